//! Threads of a copy that have left the log, and what that means for the others (DoublePlay 5.2.4, in the middle of an epoch). What such a thread does is the engine's.

use super::{is_open, log, notes, part, parts, previous};
use crate::machine::sys;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::epoch::Why;
use reprise_abi::event::{Event, Kind};
use reprise_abi::order::ENTRY_LEN;
use reprise_abi::syscalls::nr;

/// A thread of the copy has come to something else than the leader's thread.
const RACED: u32 = 1;

/// Where the leader's thread stood the log doesn't say, and the copy's has come to another place behind the same log.
const COMPUTED: u32 = 2;

/// The copy: the thread of slot `i` goes on without its log, for this reason.
pub fn leaves(i: u32, why: Why) {
    if log().left.swap(RACED, Relaxed) != RACED {
        notes(i, why);
    }
    leaves_part(i);
}

/// As [`leaves`], of a thread that has used up its part: the leader's has [computed](super::End::in_code) since then.
pub fn ends_elsewhere(i: u32) {
    let _ = log().left.compare_exchange(0, COMPUTED, Relaxed, Relaxed);
    leaves_part(i);
}

fn leaves_part(i: u32) {
    if let Some(p) = part(i).filter(|p| !p.left) {
        p.left = true;
        p.goes_on_for = p.count_rest();
    }
}

/// Nobody goes on: all who wait for their turns are to leave the log, too. False: they were told before.
pub fn all_leave() -> bool {
    log().all_leave.swap(1, Relaxed) == 0
}

/// Are all who wait for their turns to leave the log?
pub fn are_to_leave() -> bool {
    log().all_leave.load(Relaxed) != 0
}

/// May the thread of slot `i` of the copy be where the leader's has computed to the end of the epoch? Asked by another thread.
pub fn may_compute_to_end(i: u32) -> bool {
    part(i).is_some_and(|p| p.ends.in_code && p.at + ENTRY_LEN as u64 > p.end)
}

/// The copy has run for long.
pub fn hurries() {
    if is_open() {
        log().is_long.store(1, Relaxed);
    }
}

/// Has a thread of the copy left the log?
pub fn has_left() -> bool {
    log().left.load(Relaxed) != 0
}

/// Has one come to something else than the leader's thread, in the epoch before or in the open one?
pub fn has_raced(before: bool) -> bool {
    let log = if before { previous() } else { Some(log()) };
    log.is_some_and(|log| log.left.load(Relaxed) == RACED)
}

/// As [`has_left`], in the epoch before.
pub fn had_left() -> bool {
    previous().is_some_and(|log| log.left.load(Relaxed) != 0)
}

/// Where in this stretch a thread that goes by the log will map memory: the lowest such address. `None`: nowhere.
pub fn will_be_mapped(at: u64, len: u64) -> Option<u64> {
    let is_there = |(start, end): &(u64, u64)| *start < at + len && at < *end;
    let mapped = parts()
        .filter(|p| !p.left)
        .flat_map(|p| p.rest().filter_map(|e| mapped_by(&e)));
    mapped.filter(is_there).map(|(start, _)| start).min()
}

/// Where the call of this event has got memory.
fn mapped_by(e: &Event) -> Option<(u64, u64)> {
    let len = match u64::from(e.header.detail) {
        nr::MMAP => e.arg(1),
        nr::MREMAP => e.arg(2),
        _ => return None,
    };
    let start = e.header.value as u64;
    let has_got = e.kind == Kind::Syscall && !sys::is_error(e.header.value);
    has_got.then_some((start, start.saturating_add(len)))
}

/// Have the threads of the copy nothing left in their parts that counts?
pub fn nothing_is_kept() -> bool {
    parts().all(|p| p.next_kept().is_none())
}

/// One of the threads of the copy that sleep at this word goes on. False: there is none.
pub fn wakes_sleeper(address: u64) -> bool {
    let sleeper = parts().find(|p| p.sleeps_at == address);
    sleeper.map(|p| p.sleeps_at = 0).is_some()
}
