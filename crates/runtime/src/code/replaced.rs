//! Instructions in the program's code in whose place `int3` stands: [`crate::gate::cpuid`] and [`crate::gate::clock`] put it there.

use crate::code::patch;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Most sites of a process.
const MAX_SITES: usize = 2560;
/// What stands in the place of an instruction: the trap, and the second byte. The third byte of a longer one stays.
pub const TRAP: [u8; 2] = [0xcc, 0x90];
/// In a site: which instruction it was.
const WHICH: u32 = 62;

/// What was there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Was {
    /// `cpuid`
    Cpuid = 0,
    /// `rdtsc`
    Rdtsc = 1,
    /// `rdtscp`
    Rdtscp = 2,
}

/// Sites are added under the lock of the address space, or while there is one thread. What was forgotten is 0.
static SITES: [AtomicU64; MAX_SITES] = [const { AtomicU64::new(0) }; MAX_SITES];
static LEN: AtomicUsize = AtomicUsize::new(0);

fn sites() -> &'static [AtomicU64] {
    &SITES[..LEN.load(Acquire)]
}

fn read(site: &AtomicU64) -> (u64, Was) {
    let site = site.load(Relaxed);
    let was = match site >> WHICH {
        0 => Was::Cpuid,
        1 => Was::Rdtsc,
        _ => Was::Rdtscp,
    };
    (site & !(3 << WHICH), was)
}

/// All that are known, and their addresses.
pub fn all() -> impl Iterator<Item = (u64, Was)> {
    sites().iter().map(read).filter(|(pc, _)| *pc != 0)
}

/// What was at `pc`.
pub fn at(pc: u64) -> Option<Was> {
    all().find(|(site, _)| *site == pc).map(|(_, was)| was)
}

/// Remembers a site; false when there is no room.
pub fn remember(pc: u64, was: Was) -> bool {
    let site = pc | (was as u64) << WHICH;
    if let Some(free) = sites().iter().find(|s| s.load(Relaxed) == 0) {
        free.store(site, Relaxed);
        return true;
    }
    let len = LEN.load(Relaxed);
    let Some(next) = SITES.get(len) else {
        return false;
    };
    next.store(site, Relaxed);
    LEN.store(len + 1, Release);
    true
}

/// Replaces the instruction at `pc`, and remembers it.
pub fn replace(pc: u64, was: Was) -> bool {
    remember(pc, was) && patch::write_code(pc, &TRAP)
}

/// Something else lies there now.
pub fn forget(start: u64, end: u64) {
    for s in sites() {
        if (start..end).contains(&read(s).0) {
            s.store(0, Relaxed);
        }
    }
}
