//! Quiet operations (Castor 3.4: what needs no entry of its own): a thread counts them, and whatever it logs next says how many there were.

use crate::log::ring;
use crate::thread::in_force;
use crate::thread::rings::ring_of;
use crate::thread::{current, slot, Block, Current};
use core::sync::atomic::Ordering::*;
use reprise_abi::order::{Entry, EntryKind, ENTRY_LEN, MAX_QUIET};

/// Before an event is written: the quiet operations up to it are counted.
#[inline]
pub fn before_event() {
    if !in_force::records_synchronisation() {
        return;
    }
    let t = current();
    let quiet = quiet_so_far(t);
    if quiet != 0 {
        put_counted(
            t,
            Entry {
                kind: EntryKind::Quiet,
                quiet,
                object: 0,
                value: 0,
            },
        );
    }
}

/// Record: the quiet operations since their number was logged last.
#[inline(always)]
pub fn quiet_so_far(t: Current) -> u32 {
    let word = t.quiet_left();
    if !t.counts().replace(true) {
        word.store(MAX_QUIET, Relaxed);
    }
    MAX_QUIET - word.load(Relaxed)
}

/// Record: the quiet operations of the thread of slot `i`, which stands, since their number was logged last. `counts`: it counts them by now
/// ([`Logging`](crate::thread::logging::Logging)).
pub fn unlogged(i: u32, counts: bool) -> u32 {
    match counts {
        true => MAX_QUIET - slot(i).quiet_left.load(Relaxed),
        false => 0,
    }
}

/// The thread goes on under an engine that counts none: what was counted is in its log's epoch, which is over. No operation is made on a short way.
pub fn restart(t: &mut Block) {
    t.logging.counts.set(false);
    t.quiet_left().store(0, Relaxed);
}

/// Record: writes an entry that has the number of [`quiet_so_far`]. A thread may be killed between any two of these steps, and the agent must
/// count its quiet operations neither twice nor not at all.
#[inline(always)]
pub fn put_counted(t: Current, e: Entry) {
    if e.quiet == 0 {
        return ring::put_entry(e.to_words());
    }
    let ends = &ring_of(t.slot_number()).0.counted_end;
    ends.store(ring::position() + ENTRY_LEN as u64, Release);
    ring::put_entry(e.to_words());
    t.quiet_left().store(MAX_QUIET, Release);
    ends.store(0, Release);
}

/// Record: writes an entry, with the quiet operations before it.
#[inline]
pub fn log_entry(t: &mut Block, kind: EntryKind, object: u32, value: u64) {
    let t = t.as_current();
    let quiet = quiet_so_far(t);
    let e = Entry {
        kind,
        quiet,
        object,
        value,
    };
    put_counted(t, e);
}

/// Record: an operation that needs no entry.
#[inline(always)]
pub fn log_quiet(t: &mut Block) {
    let word = t.quiet_left();
    if word.load(Relaxed) == 0 {
        // None was counted yet, or the assembly has counted the last one.
        if t.logging.counts.get() {
            log_entry(t, EntryKind::Quiet, 0, 0);
        } else {
            quiet_so_far(t.as_current());
        }
    }
    let left = word.load(Relaxed) - 1;
    word.store(left, Relaxed);
    if left == 0 {
        log_entry(t, EntryKind::Quiet, 0, 0);
    }
}
