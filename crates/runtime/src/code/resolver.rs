//! Replaces what ld.so's resolver leaves on the stack by what is the same on all processors ([`reprise_code::resolver`] says what, and why).

use crate::code::patch;
use crate::code::searched::{self, What};
use crate::machine::guard;
use crate::memory::map;
use crate::memory::regions::Region;
use crate::thread::in_force;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::event::Kind;
use reprise_abi::session::region_flags;
use reprise_code::resolver::{entry, exit, Save, Stub, ENTRY, EXIT, KEPT, LEAVES, LEN, SITE};

/// Bytes of a jump.
const JUMP: usize = 5;
/// The resolver's beginning and end are not farther than this from the instruction that saves.
const NEAR: u64 = 128;
/// ld.so has less code than this; larger is a program without it.
const MOST_CODE: u64 = 1 << 20;

/// In [`shown`]: whatever the subleaf.
const ANY: u32 = u32::MAX;
/// Leaf 1, ecx.
const XSAVE_AND_OSXSAVE: u32 = 3 << 26;
/// Leaf 0xd, subleaf 1, eax.
const XSAVEC_BIT: u32 = 1 << 1;

/// What ld.so chooses by what cpuid shows it.
fn shown() -> Save {
    let s = session();
    let known = s.cpuid.iter().take(s.cpuid_len as usize);
    let has = |leaf: u32, register: usize, bits: u32, subleaf: u32| {
        let mut rows = known.clone().filter(|l| l.leaf == leaf);
        rows.any(|l| l.regs[register] & bits == bits && (l.subleaf == subleaf || subleaf == ANY))
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

/// Where `xsave` saves the upper halves of AVX-512's registers, from where the area begins, as cpuid says.
fn upper_of_512() -> Option<u32> {
    const COMPONENT: u32 = 6;
    let s = session();
    let all = &s.cpuid[..s.cpuid_len as usize];
    let found = all.iter().find(|l| (l.leaf, l.subleaf) == (0xd, COMPONENT));
    found.map(|l| l.regs[1])
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
    Some(save.stub(
        if is_kept { KEPT } else { 0 },
        save.upper_of_512(upper_of_512()),
    ))
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
    let save = shown();
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
    site.filter(|site| guard::read::<[u8; SITE]>(*site) == Some(wanted))
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
