//! What ld.so's resolver leaves on the stack.
//!
//! The first call of a function goes through the resolver, which saves the vector registers by `xsavec` below the caller's frame. That
//! instruction leaves out what is not *in use*, so that older bytes stay there; and what is in use is not the program's alone: registers
//! that are all zero (SSE's, the upper halves of AVX, masks) may count as used or not, and on AMD's processors an interrupt can change
//! that. The program's memory would then depend on interrupts. So a jump stands in the place of the instruction, to a stub that clears the
//! area first and says of everything that it is there.
//!
//! The registers that the stub changes are those that the resolver has saved before and loads after it.

use crate::engine::{Engine, ENGINE, NONE};
use crate::guard;
use crate::memory::map;
use crate::patch;
use crate::regions::Region;
use crate::searched::{self, Found, Searched, What};
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::Kind;
use reprise_abi::session::region_flags;

/// `xsavec 0x40(%rsp)`, and what follows it: `mov 0x10(%rbx),%rsi; mov 0x8(%rbx),%rdi`.
const SITE: [u8; 13] = [
    0x0f, 0xc7, 0x64, 0x24, 0x40, 0x48, 0x8b, 0x73, 0x10, 0x48, 0x8b, 0x7b, 0x08,
];
/// ld.so has less code than this; larger is a program without it.
const MOST_CODE: u64 = 1 << 20;
/// Bytes of [`stub`].
const STUB_LEN: usize = 53;
/// MXCSR in its initial state; another one counts as in use.
const MXCSR: u64 = 0x1f80;

/// The code in the place of the instruction, without the jump back.
pub fn stub() -> [u8; STUB_LEN] {
    let mut code = [0; STUB_LEN];
    let controls = (MXCSR | (mxcsr_mask() as u64) << 32).to_le_bytes();
    let parts: [&[u8]; 12] = [
        // lea 0x40(%rsp),%rdi
        &[0x48, 0x8d, 0x7c, 0x24, 0x40],
        // mov %ebx,%ecx; sub %edi,%ecx; shr $3,%ecx: up to the caller's frame
        &[0x89, 0xd9, 0x29, 0xf9, 0xc1, 0xe9, 0x03],
        // xchg %eax,%esi: what is to be saved
        &[0x96],
        // xor %eax,%eax
        &[0x31, 0xc0],
        // rep stosq
        &[0xf3, 0x48, 0xab],
        // mov $controls,%rax
        &[0x48, 0xb8],
        &controls,
        // mov %rax,0x58(%rsp): MXCSR and its mask, should SSE be left out
        &[0x48, 0x89, 0x44, 0x24, 0x58],
        // xchg %eax,%esi
        &[0x96],
        // xsavec 0x40(%rsp)
        &SITE[..5],
        // mov 0x248(%rsp),%eax: what was asked for, in XCOMP_BV
        &[0x8b, 0x84, 0x24, 0x48, 0x02, 0x00, 0x00],
        // mov %eax,0x240(%rsp): all of that is in XSTATE_BV
        &[0x89, 0x84, 0x24, 0x40, 0x02, 0x00, 0x00],
    ];
    let mut n = 0;
    for p in parts {
        code[n..n + p.len()].copy_from_slice(p);
        n += p.len();
    }
    code
}

/// The bits of MXCSR that the processor has.
fn mxcsr_mask() -> u32 {
    #[repr(align(16))]
    struct Area([u8; 512]);
    let mut area = Area([0; 512]);
    // SAFETY: writes 512 bytes.
    unsafe {
        core::arch::asm!("fxsave64 [{}]", in(reg) area.0.as_mut_ptr(), options(nostack));
    }
    u32::from_le_bytes([area.0[28], area.0[29], area.0[30], area.0[31]])
}

/// Replaces the instruction in the code that a program begins in, which is ld.so's.
pub fn start<E: Engine>(t: &mut Block) {
    if !E::LIVE || ENGINE.load(Relaxed) == NONE {
        return;
    }
    let Some(code) = map().at(session().entry) else {
        return;
    };
    if code.flags & region_flags::FILE == 0 || code.end - code.start > MOST_CODE {
        return;
    }
    let Some(site) = known_site(&code) else {
        return;
    };
    let Some(stub) = patch::place(site) else {
        return;
    };
    if patch::write(site, stub, patch::XSAVEC) {
        crate::serial::events::plain(Kind::Patch, t.slot, patch::XSAVEC, 0, &[site, stub]);
    }
}

/// Where the instruction is in a mapping, by what the session knows of it.
fn known_site(code: &Region) -> Option<u64> {
    let mut found = Found::default();
    let searched = Searched::of(code, searched::initial_content(code), What::Xsavec);
    if !searched
        .as_ref()
        .is_some_and(|s| s.tell(code, SITE.len(), &mut found))
    {
        if let Some(site) = find(code.start, code.end) {
            found.add(site);
        }
        if let Some(s) = searched {
            s.remember(code, &found);
        }
    }
    // In a file that may have changed since.
    let site = found.sites().first().copied();
    site.filter(|site| guard::read::<[u8; SITE.len()]>(*site) == Some(SITE))
}

/// Where the instruction is, if it is there once.
fn find(from: u64, to: u64) -> Option<u64> {
    guard::guarded(|| {
        // SAFETY: guarded, and inside the mapping.
        let code = unsafe { core::slice::from_raw_parts(from as *const u8, (to - from) as usize) };
        let mut places = code
            .windows(SITE.len())
            .enumerate()
            .filter(|(_, w)| *w == SITE);
        let (first, _) = places.next()?;
        places.next().is_none().then_some(from + first as u64)
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stub_is_full_and_has_the_instruction() {
        let code = stub();
        assert!(code.windows(5).any(|w| *w == SITE[..5]));
        assert_ne!(code[STUB_LEN - 4], 0);
    }
}
