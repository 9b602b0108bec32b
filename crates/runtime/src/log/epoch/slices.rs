//! What a copy does, as slices: they lie behind the log, and are the ring of the copy that writes them, and of the one that runs by them.

use super::{log, previous, Log, LOG, MOST_SLICES, SLICES_AT, STACK, STACKS_AT};
use crate::log::ring;
use crate::machine::sys;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::{EventHeader, HEADER_LEN};
use reprise_abi::layout::RING_BASE;

/// In a copy: the session's ring is where the slices are from now on; `holds` them, or is empty. False: it can't be.
pub fn slices_become_ring(holds: bool) -> bool {
    const MAYMOVE_FIXED: u64 = 3;
    let from = LOG.load(Relaxed) + SLICES_AT;
    if sys::is_error(sys::mremap(
        from,
        MOST_SLICES,
        MOST_SLICES,
        MAYMOVE_FIXED,
        RING_BASE,
    )) {
        return false;
    }
    ring::holds_only(if holds { slices_len() } else { 0 }, MOST_SLICES, holds);
    true
}

/// The end of the stack of a copy's first thread, whether that copy `reads` slices or not.
pub fn stack_end(reads: bool) -> u64 {
    LOG.load(Relaxed) + STACKS_AT + STACK * (1 + u64::from(reads))
}

/// In the copy that writes them: the slices end here, so far.
pub fn slices_end() {
    log().slices.store(ring::position(), Relaxed);
}

/// The slices, when they are all there.
pub fn slices() -> &'static [u8] {
    slices_in(log())
}

/// As [`slices`], of the epoch before.
pub fn previous_slices() -> &'static [u8] {
    previous().map_or(&[], |log| slices_in(log))
}

fn slices_in(log: &'static Log) -> &'static [u8] {
    let at = log as *const Log as u64 + SLICES_AT;
    let len = log.slices.load(Relaxed).min(MOST_SLICES);
    // SAFETY: mapped for as long as the log is; nobody writes there any more.
    unsafe { core::slice::from_raw_parts(at as *const u8, len as usize) }
}

/// Bytes of the slices.
pub fn slices_len() -> u64 {
    slices().len() as u64
}

/// The leader, for a test: the first event behind the middle that another thread has written than the one before it changes places with that, unless both only say
/// that their threads have come to the end, which they may in any order. False: there is none.
pub fn flip_slices() -> bool {
    let (base, len) = (LOG.load(Relaxed) + SLICES_AT, slices_len());
    let header = |at: u64| -> Option<EventHeader> {
        // SAFETY: within the slices.
        let bytes = || unsafe { *((base + at) as *const [u8; HEADER_LEN]) };
        let there = at + HEADER_LEN as u64 <= len;
        there.then(|| EventHeader::parse(&bytes()).ok()).flatten()
    };
    let mut at = 0;
    while let Some(one) = header(at) {
        let behind = at + u64::from(one.len);
        let Some(two) = header(behind) else {
            return false;
        };
        let matters = !(one.is_end_of_epoch() && two.is_end_of_epoch());
        if behind > len / 2 && one.slot != two.slot && matters {
            let words = |at: u64, len: u32| {
                // SAFETY: as above, of both events; nobody reads them now.
                unsafe {
                    core::slice::from_raw_parts_mut((base + at) as *mut u64, len as usize / 8)
                }
            };
            words(at, one.len + two.len).rotate_left(one.len as usize / 8);
            return true;
        }
        at = behind;
    }
    false
}
