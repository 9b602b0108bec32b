//! Pages that are copied before anybody has written to them: the kernel fills locked memory (mlock(2), MAP_LOCKED) and what is to be populated
//! (MAP_POPULATE, MADV_POPULATE_WRITE) as if it were written, where it can be. A private mapping of a file then no longer shows what others write
//! to the file. A replay locks nothing, whose limits are not the recording's; it has the pages copied.

use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::regions::Region;
use crate::memory::{self, map, up};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use reprise_abi::effect::Effect;
use reprise_abi::session::region_flags;

const MADV_POPULATE_WRITE: u64 = 23;
const MLOCK_ONFAULT: u64 = 1;
const MCL_CURRENT: u64 = 1;
const MCL_FUTURE: u64 = 2;
const MCL_ONFAULT: u64 = 4;
const MAP_LOCKED: u64 = 0x2000;
const MAP_POPULATE: u64 = 0x8000;

/// What is mapped from now on is locked.
static FUTURE: AtomicBool = AtomicBool::new(false);

/// Is this one of the calls that lock memory?
#[inline]
pub fn locks(c: &Call) -> bool {
    c.effect.locks_memory()
}

/// The map after such a call; in a replay, memory as well.
#[cold]
pub fn follow(c: &Call, result: i64, live: bool) {
    let a = &c.args;
    let all = (0, u64::MAX);
    let (range, locked, fills) = match c.effect {
        Effect::LocksAll => {
            FUTURE.store(a[0] & MCL_FUTURE != 0 && result == 0, Relaxed);
            if a[0] & MCL_CURRENT == 0 {
                return;
            }
            (all, true, a[0] & MCL_ONFAULT == 0)
        }
        Effect::UnlocksAll => {
            FUTURE.store(false, Relaxed);
            (all, false, false)
        }
        _ => {
            let start = a[0] & !(reprise_abi::layout::PAGE - 1);
            let end = start.saturating_add(up(a[1] + (a[0] - start)));
            // A hole ends it, after what lies before.
            let hole = memory::without_hole(start, end)
                .last()
                .map_or(start, |r| r.end);
            let flags = match c.effect {
                Effect::Locks(Some(flags)) => c.arg(flags),
                _ => 0,
            };
            let locks = c.effect != Effect::Unlocks;
            ((start, hole.min(end)), locks, flags & MLOCK_ONFAULT == 0)
        }
    };
    const ENOMEM: i64 = -12;
    // With ENOMEM it stopped at a hole, or was refused as a whole: then there is none.
    let reached_hole =
        result == ENOMEM && c.effect != Effect::LocksAll && range.1 < a[0] + up(a[1]);
    if result != 0 && !reached_hole {
        return;
    }
    map().set_locked(range.0, range.1, locked);
    if !live && result == 0 && fills && locked {
        fill(range.0, range.1, Region::is_writable);
    }
}

/// The map after mmap(2) has put something at `start`; in a replay, memory as well.
pub fn mapped(start: u64, len: u64, flags: u64, live: bool) {
    let locked = flags & MAP_LOCKED != 0 || FUTURE.load(Relaxed);
    if locked {
        map().set_locked(start, start + len, true);
    }
    if !live && (locked || flags & MAP_POPULATE != 0) {
        fill(start, start + len, Region::is_writable);
    }
}

/// Replay: for the kernel this can be written by now. What is locked and, as the map still says, could not be is filled.
pub fn becomes_writable(start: u64, end: u64) {
    fill(start, end, |r| {
        r.flags & region_flags::LOCKED != 0 && !r.is_writable()
    });
}

/// Has the pages of private mappings of files copied that can be written.
fn fill(start: u64, end: u64, which: impl Fn(&Region) -> bool) {
    let mut at = start;
    while let Some(r) = map().after(at).filter(|r| r.start < end) {
        let shows_file =
            r.flags & (region_flags::FILE | region_flags::SHARED) == region_flags::FILE;
        if shows_file && which(&r) {
            let first = r.start.max(at);
            let len = r.end.min(end) - first;
            sys::madvise(first, len, MADV_POPULATE_WRITE);
        }
        at = r.end;
    }
}
