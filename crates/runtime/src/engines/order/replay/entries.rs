//! What a thread's ring has next, and the operations that are only counted there.
//!
//! Of the quiet operations before an entry, most are made by the short ways of [`crate::sync::hook::fast`] and of stubs, which ask nobody as long as
//! [`Slot::quiet_left`](reprise_abi::session::Slot::quiet_left) is not 0. The thread asks for the last one before an event, since that may be a
//! signal, which comes right behind it, and for all of them while races are looked for, or operations are listed ([`crate::engines::order::listing`]).

use super::faults;
use super::life::exhausted;
use crate::common::report::{diverge, Actual};
use crate::engines::order::{cut, listing, trail};
use crate::log::ring;
use crate::thread::Block;
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{EventHeader, Kind};
use reprise_abi::listing::Item;
use reprise_abi::order::{Entry, EntryKind};
use reprise_abi::session::{divergence_kind as kinds, BY_ADDRESS};

/// An entry was looked at for the first time: its quiet operations come before anything else.
fn count(t: &mut Block, e: &Entry) {
    if t.order().looked {
        return;
    }
    t.order().looked = true;
    t.order().asked = match e.kind {
        _ if crate::thread::in_force::looks_for_races() || listing::on() => e.quiet,
        EntryKind::Quiet if !e.waits() => e.quiet.min(1),
        _ => 0,
    };
    t.quiet_left().store(e.quiet - t.order().asked, Relaxed);
}

/// Are there quiet operations before the next entry or event?
#[inline(always)]
pub(super) fn is_quiet(t: &Block) -> bool {
    t.order().asked != 0 || t.quiet_left().load(Relaxed) != 0
}

/// The entry that counts the thread's quiet operations now; `None` when an event comes next.
pub(super) fn look(t: &mut Block) -> Option<Entry> {
    loop {
        let Some(words) = ring::peek_entry() else {
            exhausted(t);
            continue;
        };
        let e = Entry::from_words(words)?;
        count(t, &e);
        if e.kind != EntryKind::Quiet || is_quiet(t) {
            return Some(e);
        }
        consume(t);
    }
}

/// The thread is where it slept, if it did in this operation: entries that only tell so are out of the way.
pub(super) fn arrive(t: &mut Block) {
    skip(t, Entry::waits);
}

/// A hooked function ends in which the thread may have slept, after its last operation.
pub(super) fn depart(t: &mut Block) {
    skip(t, Entry::waits_amid);
}

fn skip(t: &mut Block, is_past: impl Fn(&Entry) -> bool) {
    while let Some(e) = ring::peek_entry().and_then(Entry::from_words) {
        count(t, &e);
        if !is_past(&e) || is_quiet(t) {
            return;
        }
        consume(t);
    }
}

/// Does an event come before any other operation of the thread, and before it sleeps in one? Where the trace ends there is none.
pub(super) fn event_is_next(t: &mut Block) -> bool {
    while let Some(words) = ring::peek_entry() {
        let Some(e) = Entry::from_words(words) else {
            return true;
        };
        count(t, &e);
        if e.kind != EntryKind::Quiet || e.waits() || is_quiet(t) {
            return false;
        }
        consume(t);
    }
    false
}

/// The entry was used up.
pub(super) fn consume(t: &mut Block) {
    trail::at_operation(t);
    t.order().looked = false;
    t.order().asked = 0;
    t.quiet_left().store(0, Relaxed);
    ring::skip_entry();
}

/// An operation was made: it was quiet, or had the entry that is next.
#[inline]
pub(super) fn made(t: &mut Block) {
    let word = t.quiet_left();
    match (word.load(Relaxed), t.order().asked) {
        (0, 0) => consume(t),
        (0, n) => t.order().asked = n - 1,
        (n, _) => word.store(n - 1, Relaxed),
    }
    tell_of_signal(t);
}

/// What an operation of synchronisation is, for a report.
pub(super) fn operation(t: &Block, detail: u32, args: &[u64], recorded: Option<&EventHeader>) -> ! {
    let actual = Actual {
        detail,
        args,
        ..Actual::of(Kind::Sync)
    };
    diverge(t, kinds::EVENT, recorded, &actual)
}

/// Another operation than the recorded entry says.
pub(super) fn unlike(t: &Block, kind: EntryKind, object: u32, recorded: &Entry) -> ! {
    let e = recorded;
    let args = [object as u64, e.kind as u64 + 1, e.object as u64, e.value];
    operation(t, kind as u32, &args, None)
}

/// Another operation than the one that is listed, or on another object.
#[cold]
pub(in crate::engines::order) fn not_as_listed(
    t: &Block,
    kind: EntryKind,
    object: u64,
    item: Item,
) -> ! {
    let args = [object, item.what as u64 + 1, item.address, 0];
    operation(t, kind as u32 | BY_ADDRESS, &args, None)
}

/// The next operation: quiet (`None`), or the entry that it has. Anything else is a divergence.
pub(super) fn due(t: &mut Block, object: u32) -> Option<Entry> {
    match look(t) {
        Some(_) if is_quiet(t) => None,
        Some(e) => Some(e),
        None => {
            cut::replay::must_be_found(t);
            let h = ring::peek();
            operation(t, EntryKind::Passed as u32, &[object as u64], h.as_ref())
        }
    }
}

/// Before events are looked for that are nobody's answer: what only counted quiet operations, all of them made, is out of the way.
pub fn settle(t: &mut Block) {
    event_is_next(t);
}

/// After an operation: does a signal come now, or a fault whose turn is to be waited for? Hooked functions look for it on their way out.
pub(super) fn tell_of_signal(t: &mut Block) {
    if comes_in_code(t) {
        t.slot().signal_pending.store(1, Relaxed);
    }
}

/// Before the thread's next operation, does something come that is not up to its code alone: a signal, a cut, or a fault that is another thread's doing?
#[inline]
pub(super) fn comes_in_code(t: &mut Block) -> bool {
    let comes = |h: EventHeader| is_signal(&h) || faults::has_stamp(&h);
    !is_quiet(t) && event_is_next(t) && ring::peek().is_some_and(comes)
}

fn is_signal(h: &EventHeader) -> bool {
    matches!(Kind::from_u8(h.kind), Some(Kind::Signal | Kind::Cut))
}

/// Does a signal, or a cut, come before the thread's next operation, quiet ones included?
#[inline]
pub(super) fn signal_comes(t: &mut Block) -> bool {
    !is_quiet(t) && is_signal_next(t).is_some()
}

/// The signal, or the cut, that comes before the thread's next operation or gate. Where the trace ends there is none.
pub(super) fn is_signal_next(t: &mut Block) -> Option<EventHeader> {
    match event_is_next(t) {
        true => ring::peek().filter(is_signal),
        false => None,
    }
}

/// Does the thread touch memory that isn't there before any other operation? Then it does in this one, for which nothing else is to be
/// waited for than the turn of the fault, if it has one: that was waited for.
pub(super) fn faults_next(t: &mut Block) -> bool {
    let next = look(t).is_none() && ring::peek().is_some_and(|h| h.kind == Kind::Fault as u8);
    if next {
        faults::await_turn(t);
    }
    next
}
