//! What ld.so's resolver leaves on the stack, and in registers.
//!
//! The first call of a function goes through the resolver, which saves the vector registers below the caller's frame, by one of three
//! instructions, whichever the processor seems to have. What they leave there is not the program's alone:
//!
//! - `xsavec` leaves out what is not *in use*, so that older bytes stay there, and both it and `xsave` say what is in use: registers
//!   that are all zero (SSE's, the upper halves of AVX, masks) may count as used or not, and on AMD's processors an interrupt can change that;
//! - `fxsave`, of programs that are shown no XSAVE (`--cpu baseline`), writes where x87 was last on some processors, and leaves bytes alone
//!   that others write;
//! - all of them write which bits of MXCSR the processor has.
//!
//! So a jump stands in the place of the instruction, to a stub that clears the area first, and afterwards writes the same on all
//! processors: that everything is there, that x87 was nowhere, and the bits of MXCSR that all have. What follows from that is also what is in use when
//! the resolver has loaded the registers again. Upper halves that are in use cost Intel's processors much in code of SSE (30 times in a loop over exp(3), where
//! nothing puts them out of use again), so of these it is said that they are there only if they aren't all zero.
//!
//! The registers that the stub changes are those that the resolver has saved before and loads after it.
//!
//! Of threads that call a function for the first time at about the same moment, one goes through the resolver, or several do: that is in no order,
//! and natively nobody can tell, since what the resolver changes is dead when a function begins: the flags, r10 and r11. But they are in the state of
//! the next system call. So jumps stand at its beginning and its end, too, to stubs that keep them (below the caller's frame) and put them back.

use crate::code::patch;
use crate::code::searched::{self, What};
use crate::machine::guard;
use crate::memory::map;
use crate::memory::regions::Region;
use crate::signal::frame::MXCSR_BITS;
use crate::thread::in_force;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::event::Kind;
use reprise_abi::session::region_flags;

/// Bytes of an instruction that saves.
const LEN: usize = 5;
/// Bytes of a jump.
const JUMP: usize = 5;
/// What the resolver begins with: `push %rbx; mov %rsp,%rbx; and $-64,%rsp`.
const ENTRY: [u8; 8] = [0x53, 0x48, 0x89, 0xe3, 0x48, 0x83, 0xe4, 0xc0];
/// What it ends with, but for the jump to what it found, in r11: `mov %rbx,%rsp; mov (%rsp),%rbx; add $0x18,%rsp`.
const EXIT: [u8; 11] = [
    0x48, 0x89, 0xdc, 0x48, 0x8b, 0x1c, 0x24, 0x48, 0x83, 0xc4, 0x18,
];
/// That jump, `jmp *%r11`, which may have a prefix.
const LEAVES: [u8; 3] = [0x41, 0xff, 0xe3];
/// Both are not farther than this from the instruction that saves.
const NEAR: u64 = 128;
/// What follows it: `mov 0x10(%rbx),%rsi; mov 0x8(%rbx),%rdi`.
const NEXT: [u8; 8] = [0x48, 0x8b, 0x73, 0x10, 0x48, 0x8b, 0x7b, 0x08];
/// ld.so has less code than this; larger is a program without it.
const MOST_CODE: u64 = 1 << 20;

/// How the resolver saves the vector registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Save {
    Fxsave,
    Xsave,
    Xsavec,
}

impl Save {
    const ALL: [Save; 3] = [Save::Fxsave, Save::Xsave, Save::Xsavec];

    /// What ld.so chooses by what cpuid shows it.
    fn shown() -> Save {
        let s = session();
        let known = s.cpuid.iter().take(s.cpuid_len as usize);
        let has = |leaf: u32, register: usize, bits: u32, subleaf: u32| {
            let mut rows = known.clone().filter(|l| l.leaf == leaf);
            rows.any(|l| {
                l.regs[register] & bits == bits && (l.subleaf == subleaf || subleaf == ANY)
            })
        };
        match (
            has(1, 2, XSAVE_AND_OSXSAVE, ANY),
            has(0xd, 0, XSAVEC_BIT, 1),
        ) {
            (false, _) => Save::Fxsave,
            (true, false) => Save::Xsave,
            (true, true) => Save::Xsavec,
        }
    }

    /// The instruction, with its operand `0x40(%rsp)`.
    fn code(self) -> [u8; LEN] {
        match self {
            Save::Fxsave => [0x0f, 0xae, 0x44, 0x24, 0x40],
            Save::Xsave => [0x0f, 0xae, 0x64, 0x24, 0x40],
            Save::Xsavec => [0x0f, 0xc7, 0x64, 0x24, 0x40],
        }
    }

    /// The instruction and what follows it.
    fn site(self) -> [u8; LEN + NEXT.len()] {
        let mut site = [0; LEN + NEXT.len()];
        site[..LEN].copy_from_slice(&self.code());
        site[LEN..].copy_from_slice(&NEXT);
        site
    }

    /// Where it saves the upper halves of AVX-512's registers.
    fn upper_of_512(self) -> Option<u32> {
        const COMPONENT: u32 = 6;
        /// Behind what comes first, the upper halves of AVX, and the masks.
        const COMPACTED: u32 = AREA + AFTER_HEADER + 256 + 64;
        match self {
            Save::Fxsave => None,
            Save::Xsavec => Some(COMPACTED),
            Save::Xsave => {
                let s = session();
                let all = &s.cpuid[..s.cpuid_len as usize];
                let found = all.iter().find(|l| (l.leaf, l.subleaf) == (0xd, COMPONENT));
                found
                    .map(|l| l.regs[1])
                    .filter(|at| *at != 0)
                    .map(|at| AREA + at)
            }
        }
    }

    /// The code in its place, without the jump back. `kept`: words below the caller's frame that stay as they are. `upper_of_512`: where those are.
    fn stub(self, kept: u8, upper_of_512: Option<u32>) -> Stub {
        let mut stub = Stub::new(LEN);
        // lea 0x40(%rsp),%rdi
        stub.put(&[0x48, 0x8d, 0x7c, 0x24, 0x40]);
        // mov %ebx,%ecx; sub %edi,%ecx; shr $3,%ecx: up to the caller's frame
        stub.put(&[0x89, 0xd9, 0x29, 0xf9, 0xc1, 0xe9, 0x03]);
        if kept != 0 {
            // sub $kept,%ecx
            stub.put(&[0x83, 0xe9, kept]);
        }
        if self != Save::Fxsave {
            // xchg %eax,%esi: what is to be saved
            stub.put(&[0x96]);
        }
        // xor %eax,%eax; rep stosq
        stub.put(&[0x31, 0xc0, 0xf3, 0x48, 0xab]);
        if self == Save::Xsavec {
            // movl $0x1f80,0x58(%rsp): MXCSR, should SSE be left out
            stub.put(&[0xc7, 0x44, 0x24, 0x58, 0x80, 0x1f, 0x00, 0x00]);
        }
        if self != Save::Fxsave {
            // xchg %eax,%esi
            stub.put(&[0x96]);
        }
        stub.put(&self.code());
        match self {
            Save::Fxsave => {
                // mov %ax,0x46(%rsp); mov %rax,0x48(%rsp); mov %rax,0x50(%rsp): the last instruction of x87 and its operand
                stub.put(&[0x66, 0x89, 0x44, 0x24, 0x46]);
                stub.put(&[0x48, 0x89, 0x44, 0x24, 0x48]);
                stub.put(&[0x48, 0x89, 0x44, 0x24, 0x50]);
            }
            Save::Xsave => {
                // xor %ecx,%ecx; mov %eax,%esi; xgetbv; and %eax,%esi: what was asked for and can be there
                stub.put(&[0x31, 0xc9, 0x89, 0xc6, 0x0f, 0x01, 0xd0, 0x21, 0xc6]);
            }
            // mov 0x248(%rsp),%esi: the same, in XCOMP_BV
            Save::Xsavec => stub.put(&[0x8b, 0xb4, 0x24, 0x48, 0x02, 0x00, 0x00]),
        }
        if self != Save::Fxsave {
            stub.leave_out_upper_halves(upper_of_512);
            // mov %esi,0x240(%rsp): all of that is in XSTATE_BV
            stub.put(&[0x89, 0xb4, 0x24, 0x40, 0x02, 0x00, 0x00]);
        }
        // movl $0xffff,0x5c(%rsp): the bits of MXCSR
        stub.put(&[0xc7, 0x44, 0x24, 0x5c]);
        stub.put(&MXCSR_BITS.to_le_bytes());
        stub
    }
}

/// Where the resolver saves, from its stack pointer; and what of that comes before the components that not all processors have.
const AREA: u32 = 0x40;
const AFTER_HEADER: u32 = 576;
/// In [`Save::shown`]: whatever the subleaf.
const ANY: u32 = u32::MAX;
/// Leaf 1, ecx.
const XSAVE_AND_OSXSAVE: u32 = 3 << 26;
/// Leaf 0xd, subleaf 1, eax.
const XSAVEC_BIT: u32 = 1 << 1;
/// Most bytes of a stub: with the jump back it has to fit into [`patch::RESOLVER_STUB`].
const MOST_STUB: usize = patch::RESOLVER_STUB as usize - 5;

/// The code in the place of some instructions.
pub struct Stub {
    code: [u8; MOST_STUB],
    len: usize,
    /// Bytes of the instructions: what comes then is next.
    pub replaces: usize,
}

impl Stub {
    fn new(replaces: usize) -> Stub {
        Stub {
            code: [0; MOST_STUB],
            len: 0,
            replaces,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.code[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Takes upper halves that are all zero out of the components in esi. Changes rax, rcx, rdi.
    fn leave_out_upper_halves(&mut self, upper_of_512: Option<u32>) {
        /// Those of AVX and AVX-512; and of MPX, which come between where there are any.
        const AVX: u8 = 1 << 2;
        const AVX_512: u8 = 1 << 6;
        const MPX: u8 = 3 << 3;
        let avx = (AREA + AFTER_HEADER, 32, AVX);
        let avx_512 = upper_of_512.map(|at| (at, 64, AVX_512));
        let mut ends = [0; 3];
        // test $MPX,%sil; jnz
        self.put(&[0x40, 0xf6, 0xc6, MPX, 0x75, 0]);
        ends[0] = self.len;
        // xor %eax,%eax
        self.put(&[0x31, 0xc0]);
        for (n, (at, words, bit)) in [avx].into_iter().chain(avx_512).enumerate() {
            // test $bit,%sil; jz
            self.put(&[0x40, 0xf6, 0xc6, bit, 0x74, 0]);
            ends[n + 1] = self.len;
            // lea at(%rsp),%rdi; mov $words,%ecx; repe scasq
            self.put(&[0x48, 0x8d, 0xbc, 0x24]);
            self.put(&at.to_le_bytes());
            self.put(&[0xb9, words, 0, 0, 0, 0xf3, 0x48, 0xaf]);
            // jne over; and $~bit,%esi
            self.put(&[0x75, 3, 0x83, 0xe6, !bit]);
        }
        for end in ends.into_iter().filter(|end| *end != 0) {
            self.code[end - 1] = (self.len - end) as u8;
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.code[..self.len]
    }
}

/// Words that the stub of the [`ENTRY`] keeps: the flags, r10, r11.
const KEPT: u8 = 3;

/// In the place of [`ENTRY`].
fn entry() -> Stub {
    let mut stub = Stub::new(ENTRY.len());
    // push %rbx; mov %rsp,%rbx
    stub.put(&ENTRY[..4]);
    // push %rax; lahf; seto %al; xchg %rax,(%rsp): those flags that instructions compute
    stub.put(&[0x50, 0x9f, 0x0f, 0x90, 0xc0, 0x48, 0x87, 0x04, 0x24]);
    // push %r10; push %r11
    stub.put(&[0x41, 0x52, 0x41, 0x53]);
    // and $-64,%rsp
    stub.put(&ENTRY[4..]);
    stub
}

/// In the place of [`EXIT`] and the jump.
fn exit() -> Stub {
    let mut stub = Stub::new(EXIT.len());
    // mov %r11,0x10(%rbx): where the number of the relocation was, lies what was found
    stub.put(&[0x4c, 0x89, 0x5b, 0x10]);
    // lea -0x18(%rbx),%rsp; pop %r11; pop %r10
    stub.put(&[0x48, 0x8d, 0x63, 0xe8, 0x41, 0x5b, 0x41, 0x5a]);
    // xchg %rax,(%rsp); add $0x7f,%al: overflows if it did; sahf; pop %rax
    stub.put(&[0x48, 0x87, 0x04, 0x24, 0x04, 0x7f, 0x9e, 0x58]);
    // pop %rbx; lea 8(%rsp),%rsp; ret
    stub.put(&[0x5b, 0x48, 0x8d, 0x64, 0x24, 0x08, 0xc3]);
    stub
}

/// The stub for the instructions at `site`, which are there still.
pub fn stub(site: u64) -> Option<Stub> {
    if guard::read::<[u8; ENTRY.len()]>(site) == Some(ENTRY) {
        return Some(entry());
    }
    if guard::read::<[u8; EXIT.len()]>(site) == Some(EXIT) {
        return Some(exit());
    }
    let code = guard::read::<[u8; LEN]>(site)?;
    let save = Save::ALL.into_iter().find(|s| s.code() == code)?;
    // The other stubs come first.
    let is_kept = (site - NEAR..site).any(|at| {
        guard::read::<[u8; ENTRY.len()]>(at)
            .is_some_and(|code| code[0] == 0xe9 && code[JUMP..] == ENTRY[JUMP..])
    });
    Some(save.stub(if is_kept { KEPT } else { 0 }, save.upper_of_512()))
}

/// Where the resolver that saves at `site` begins and ends, if it does so as the stubs expect.
fn ends(site: u64) -> Option<[u64; 2]> {
    let begins = (site - NEAR..site)
        .rev()
        .find(|at| guard::read::<[u8; ENTRY.len()]>(*at) == Some(ENTRY))?;
    let leaves =
        (site..site + NEAR).find(|at| guard::read::<[u8; EXIT.len()]>(*at) == Some(EXIT))?;
    let then = leaves + EXIT.len() as u64;
    let found = [0, 1].map(|prefix| guard::read::<[u8; LEAVES.len()]>(then + prefix));
    found.contains(&Some(LEAVES)).then_some([begins, leaves])
}

/// Replaces the instructions in the code that a program begins in, which is ld.so's.
pub fn start(t: &mut Block) {
    if in_force::takes_from_trace() || in_force::is_none() {
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
    LOADER[0].store(code.start, Relaxed);
    LOADER[1].store(code.end, Relaxed);
    if let Some([begins, leaves]) = ends(site) {
        // The beginning first: what it keeps need not be put back, but what is put back must have been kept.
        let _ = replace(t, begins) && replace(t, leaves);
    }
    replace(t, site);
}

fn replace(t: &Block, site: u64) -> bool {
    let Some(stub) = patch::place(site, patch::RESOLVER_STUB) else {
        return false;
    };
    let done = patch::write(site, stub, patch::RESOLVER, false);
    if done {
        crate::log::events::plain(Kind::Patch, t.slot, patch::RESOLVER, 0, &[site, stub]);
    }
    done
}

/// Record: the code in which the resolver was found, ld.so's.
static LOADER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Record: is this in ld.so? There the first thread that calls a function looks for it, and no other one does so again.
pub fn is_in_loader(pc: u64) -> bool {
    (LOADER[0].load(Relaxed)..LOADER[1].load(Relaxed)).contains(&pc)
}

/// Where the instruction is in a mapping, by what the session knows of it.
fn known_site(code: &Region) -> Option<u64> {
    let save = Save::shown();
    let what = match save {
        Save::Fxsave => What::Fxsave,
        Save::Xsave => What::Xsave,
        Save::Xsavec => What::Xsavec,
    };
    let wanted = save.site();
    let content = searched::initial_content(code);
    let found = searched::found(code, content, what, wanted.len(), |code, found| {
        if let Some(site) = find(&wanted, code.start, code.end) {
            found.add(site);
        }
    });
    // In a file that may have changed since.
    let site = found.sites().first().copied();
    site.filter(|site| guard::read::<[u8; LEN + NEXT.len()]>(*site) == Some(wanted))
}

/// Where the bytes are, if they are there once.
fn find(wanted: &[u8], from: u64, to: u64) -> Option<u64> {
    guard::guarded(|| {
        // SAFETY: guarded, and inside the mapping.
        let code = unsafe { core::slice::from_raw_parts(from as *const u8, (to - from) as usize) };
        let mut places = code
            .windows(wanted.len())
            .enumerate()
            .filter(|(_, w)| *w == wanted);
        let (first, _) = places.next()?;
        places.next().is_none().then_some(from + first as u64)
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stub_has_its_instruction_and_fits() {
        for (save, kept) in Save::ALL.into_iter().flat_map(|s| [(s, 0), (s, KEPT)]) {
            let stub = save.stub(kept, Some(0x1000));
            let with = stub.bytes().windows(LEN).filter(|w| *w == save.code());
            assert_eq!(with.count(), 1, "{save:?}");
            assert!(stub.bytes().len() + 5 <= patch::RESOLVER_STUB as usize);
        }
    }

    /// The stub of `fxsave` run on a stack of its own: what it leaves there is the same whatever was there before, and what x87 did last.
    #[test]
    fn fxsave_leaves_the_same_everywhere() {
        let mut code = Save::Fxsave.stub(0, None).bytes().to_vec();
        code.push(0xc3);
        // SAFETY: a page of our own.
        let page = unsafe {
            let page = mmap(4096);
            core::ptr::copy_nonoverlapping(code.as_ptr(), page, code.len());
            page
        };
        let mut seen = std::vec::Vec::new();
        for (fill, steps) in [(0u8, 0), (0xff, 3)] {
            #[repr(align(16))]
            struct Frame([u8; 1024]);
            let mut frame = Frame([fill; 1024]);
            let at = frame.0.as_mut_ptr() as u64;
            for _ in 0..steps {
                // Leaves a last instruction and operand behind.
                // SAFETY: pushes and pops a value of ours.
                unsafe {
                    core::arch::asm!("fld dword ptr [{0}]", "fstp dword ptr [{0}]", in(reg) &mut 1f32)
                };
            }
            // `call` leaves the return address where the stack pointer points to.
            // SAFETY: the code writes between its stack pointer + 0x40 and rbx.
            unsafe {
                core::arch::asm!(
                    "xchg rbx, r8", "mov r9, rsp", "mov rsp, r10", "call r11", "mov rsp, r9", "xchg rbx, r8",
                    inout("r8") at + 16 + 0x40 + 512 => _, out("r9") _, in("r10") at + 24, in("r11") page,
                    out("rax") _, out("rcx") _, out("rdi") _,
                );
            }
            let area = &frame.0[16 + 0x40..16 + 0x40 + 512];
            assert_eq!(area[28..32], MXCSR_BITS.to_le_bytes());
            assert!(area[6..24].iter().chain(&area[416..]).all(|b| *b == 0));
            seen.push(area[..32].to_vec());
        }
        assert_eq!(seen[0], seen[1]);
    }

    extern crate std;

    unsafe fn mmap(len: usize) -> *mut u8 {
        const PRIVATE_ANONYMOUS: u64 = 0x22;
        // SAFETY: a new mapping.
        unsafe {
            crate::machine::sys::syscall6(9, [0, len as u64, 7, PRIVATE_ANONYMOUS, u64::MAX, 0])
                as *mut u8
        }
    }
}
