//! Pages that this process has written since it was copied last: one side of what is compared at an epoch's end (Respec 4.4; DoublePlay 5.2.2).
//!
//! A page that was written since then is mapped by this process alone: the copy has the old one. That is so until the process is copied once more. So the
//! set is read before that, and kept: with two copies open, a page may be shared on either side of a difference. A fork of the program's own takes it away, too:
//! what was written before is unknown then.
//!
//! Only memory that a copy has got by fork(2) is in here; other memory is compared whole.

use crate::machine::sys;
use crate::memory::compared;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::layout::{EPOCH_SETS, EPOCH_SET_MAX};

/// Most pages of a set.
const MOST: usize = 1 << 18;
const _: () = assert!((MOST * size_of::<u64>()) as u64 <= EPOCH_SET_MAX);
/// In [`LEN`]: the set isn't known.
const UNKNOWN: usize = usize::MAX;

/// Where the set is: addresses of pages, in order.
static PAGES: AtomicU64 = AtomicU64::new(0);
static LEN: AtomicUsize = AtomicUsize::new(UNKNOWN);
/// The same of the set before.
static PAGES_BEFORE: AtomicU64 = AtomicU64::new(0);
static LEN_BEFORE: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// From now on what is written counts: a copy was just made. All threads stand.
pub fn begin() {
    let pages = PAGES.swap(PAGES_BEFORE.load(Relaxed), Relaxed);
    PAGES_BEFORE.store(pages, Relaxed);
    LEN_BEFORE.store(LEN.swap(0, Relaxed), Relaxed);
}

/// What was written since the last copy isn't known.
pub fn lose() {
    LEN.store(UNKNOWN, Relaxed);
}

/// Reads the set, before a copy is made. All threads stand. False: it isn't known.
pub fn read() -> bool {
    if LEN.load(Relaxed) == UNKNOWN {
        return false;
    }
    if PAGES.load(Relaxed) == 0 {
        // Not of the arena, in which a replay, which has no sets, has everything at the same place.
        let len = (MOST * size_of::<u64>()) as u64;
        let before = PAGES_BEFORE.load(Relaxed);
        let at = EPOCH_SETS.into_iter().find(|at| *at != before);
        let at = at.filter(|at| sys::map_own(*at, len));
        PAGES.store(at.unwrap_or(0), Relaxed);
    }
    let (pages, mut len) = (PAGES.load(Relaxed) as *mut u64, 0);
    let known = !pages.is_null()
        && compared::each_written(None, |page| {
            if len < MOST {
                // SAFETY: room for so many.
                unsafe { pages.add(len).write(page) };
            }
            len += 1;
        });
    LEN.store(if known && len <= MOST { len } else { UNKNOWN }, Relaxed);
    known && len <= MOST
}

/// The set that was read last, since a copy was made.
pub fn pages() -> &'static [u64] {
    set(&PAGES, &LEN)
}

/// That which was read last before the last copy was made.
pub fn pages_before() -> &'static [u64] {
    set(&PAGES_BEFORE, &LEN_BEFORE)
}

fn set(pages: &AtomicU64, len: &AtomicUsize) -> &'static [u64] {
    let (pages, len) = (pages.load(Relaxed), len.load(Relaxed));
    if pages == 0 || len == UNKNOWN {
        return &[];
    }
    // SAFETY: written by `read`, while all stood.
    unsafe { core::slice::from_raw_parts(pages as *const u64, len) }
}
