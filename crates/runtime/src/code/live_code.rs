//! Changing code of the program that other threads may be running at this moment (FACTS, "Rewriting syscall sites").
//!
//! No thread may ever run bytes of which some are old and some are new. So each instruction's first byte becomes a breakpoint first, then
//! every processor is made to look again (membarrier(2)), then the bytes between follow, and at last the first ones. Who runs into a
//! breakpoint meanwhile tries again.

use crate::code::patch::{self, PROT_RWX};
use crate::machine::guard;
use crate::machine::sys;
use crate::signal::frame::SigContext;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use reprise_code::patchable::INT3;

/// Most bytes that are changed at once.
const LONGEST: usize = 16;
/// Most instructions that are changed for good.
const MAX_PLACES: usize = 2048;

const REGISTER_SYNC_CORE: u64 = 64;
const SYNC_CORE: u64 = 32;

/// Instructions that were changed for good, or are about to be, and where who meets a breakpoint there goes on.
static PLACES: [(AtomicU64, AtomicU64); MAX_PLACES] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; MAX_PLACES];
static PLACES_LEN: AtomicUsize = AtomicUsize::new(0);

/// Makes every processor that runs this program fetch its instructions anew. Not where a sandbox forbids membarrier(2).
fn synchronise() -> bool {
    let again = || sys::membarrier(SYNC_CORE, 0, 0) == 0;
    again() || (sys::membarrier(REGISTER_SYNC_CORE, 0, 0) == 0 && again())
}

/// Writes single bytes: those that `which` wants.
fn write(at: u64, bytes: &[u8], which: impl Fn(usize) -> bool) {
    for (i, b) in bytes.iter().enumerate().filter(|(i, _)| which(*i)) {
        guard::write(at + i as u64, b);
    }
}

/// Changes the code at a place, where `begins` says which bytes begin an instruction, old or new. One thread at a time.
pub fn change(at: u64, bytes: &[u8], begins: impl Fn(usize) -> bool) -> bool {
    if bytes.len() > LONGEST || !synchronise() {
        return false;
    }
    // Never without the right to run: others do.
    patch::unprotected(at, bytes.len() as u64, PROT_RWX, || {
        write(at, &[INT3; LONGEST][..bytes.len()], &begins);
        synchronise();
        write(at, bytes, |i| !begins(i));
        synchronise();
        write(at, bytes, |i| i != 0 && begins(i));
        write(at, bytes, |i| i == 0);
        synchronise();
    })
    .is_some()
}

/// Changes code for good. `inner`: a second instruction that begins in it, at this offset, and where its copy is; `bytes` has a
/// breakpoint there, since a thread that was about to make it may come back at any time. One thread at a time.
pub fn replace(at: u64, bytes: &[u8], inner: Option<(usize, u64)>) -> bool {
    let n = PLACES_LEN.load(Relaxed);
    if n + 2 > MAX_PLACES || inner.is_some_and(|(i, _)| bytes[i] != INT3) {
        return false;
    }
    let mut end = n;
    let mut add = |at: u64, to: u64| {
        PLACES[end].0.store(at, Relaxed);
        PLACES[end].1.store(to, Relaxed);
        end += 1;
    };
    add(at, at);
    if let Some((i, copy)) = inner {
        add(at + i as u64, copy);
    }
    PLACES_LEN.store(end, Release);
    change(at, bytes, |i| i == 0 || inner.is_some_and(|n| n.0 == i))
}

/// A thread ran into a breakpoint: was it one of those that lie in code while it is replaced, or that stay in it? Then it goes on where the
/// instruction is.
pub fn trapped(c: &mut SigContext) -> bool {
    let at = c.rip - 1;
    let places = &PLACES[..PLACES_LEN.load(Acquire)];
    let Some(place) = places.iter().find(|p| p.0.load(Relaxed) == at) else {
        return false;
    };
    c.rip = place.1.load(Relaxed);
    true
}
