//! What the world has decided for all threads: who comes back into the ring in which round, and whose time was over while the ring was empty. Whoever has the
//! turn, or ends a rest, writes and reads it: one at a time.

use super::{next_is, replays, take};
use crate::log::events;
use crate::machine::sys;
use crate::thread::{current, session, slot, take_block};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::det::{question, WORLD_SLOT};
use reprise_abi::event::Kind;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{slot_state, MAX_PROCESSES};

/// Points that all have passed together.
static POINTS: AtomicU64 = AtomicU64::new(0);

/// Before the first thread is made: nobody gets the slot of the world's ring.
pub fn start() {
    if !super::on() {
        return;
    }
    let s = slot(WORLD_SLOT);
    s.process.store(MAX_PROCESSES as u32 - 1, SeqCst);
    s.state.store(slot_state::BLOCKED, SeqCst);
    session().slots_used.fetch_max(WORLD_SLOT + 1, SeqCst);
}

/// What `f` writes and reads is the world's ring. Which one it is, the ring asks the thread's block, as it is there: so that is what is written.
fn within<R>(f: impl FnOnce() -> R) -> R {
    current().world().store(true, SeqCst);
    let r = f();
    current().world().store(false, SeqCst);
    r
}

fn write(what: u32, point: u64, slot: u32) {
    within(|| events::plain(Kind::Told, WORLD_SLOT, what, point as i64, &[slot.into()]));
}

/// The world's next word, if it is this one.
fn read(what: u32, point: u64) -> Option<u32> {
    let args = within(|| next_is(what, point).map(take));
    args.map(|a| (a[0] as usize % MAX_SLOTS) as u32)
}

/// Another point.
pub fn point() {
    if super::on() {
        POINTS.fetch_add(1, SeqCst);
    }
}

/// Who has notified comes back, at this point. Replay: who came.
pub fn comes_back(slot: u32) {
    if super::records_of(current()) {
        write(question::NOTIFY, POINTS.load(SeqCst), slot);
    }
}

/// Replay: who comes back at this point next.
pub fn next_to_come() -> Option<u32> {
    read(question::NOTIFY, POINTS.load(SeqCst))
}

/// The time of this slot's thread is over, while nobody can go on.
pub fn is_late(slot: u32) {
    if super::records_of(current()) {
        write(question::LATE, POINTS.load(SeqCst), slot);
    }
}

/// Replay: nobody can go on. Whose time is over; `None`: somebody comes back at the next point.
pub fn ends_rest() -> Option<u32> {
    let late = read(question::LATE, POINTS.load(SeqCst));
    let next = match late {
        Some(_) => return late,
        None => within(crate::log::ring::peek),
    };
    match next {
        // Passed by: the run is another one.
        Some(h) if (h.value as u64) < POINTS.load(SeqCst) => {
            // SAFETY: whoever has another reference doesn't go on: this never returns.
            super::ask::diverges(unsafe { take_block() }, &h, 0)
        }
        Some(_) => None,
        // That was the end of the recording.
        None => loop {
            let never = 0u32;
            sys::futex_wait(&never, 0, None);
        },
    }
}

/// Does something from outside end the quiet of the ring's only thread, at this point?
pub fn disturbs(ask: impl FnOnce() -> bool) -> bool {
    if !super::follows_of(current()) {
        return ask();
    }
    POINTS.fetch_add(1, SeqCst);
    let point = POINTS.load(SeqCst);
    if replays() {
        return read(question::DISTURBED, point).is_some();
    }
    let yes = ask();
    if yes {
        write(question::DISTURBED, point, 0);
    }
    yes
}
