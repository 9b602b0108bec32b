//! How threads of a replay begin, wait for what the driver knows, and end.

use super::entries::is_quiet;
use crate::engines::order::turns;
use crate::gate::clone;
use crate::log::debugger;
use crate::log::ring;
use crate::log::total;
use crate::machine::sys;
use crate::thread::process;
use crate::thread::request;
use crate::thread::rings::{head, ring_of};
use crate::thread::{current, slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::EventHeader;
use reprise_abi::order::{CLOSED_END, CLOSED_GONE};
use reprise_abi::session::slot_state;
use reprise_abi::waits::OVER;

/// The calling thread has done all that was recorded of it. It stays where it is until the driver ends it with its process; it goes on only if
/// the driver took it for the slot's last thread.
pub(in crate::engines::order) fn exhausted(t: &mut Block) {
    total::leave(t.slot);
    let (ring, ..) = ring_of(t.slot);
    let was = t.slot().busy.swap(0, SeqCst);
    request::wake_agent();
    let told = &head().waits[t.slot as usize];
    told.begin();
    loop {
        let closed = ring.closed.load(SeqCst);
        if closed == 0 {
            break;
        }
        told.sleeps(OVER, 0, closed);
        let soon = sys::Timespec::from_ns(sys::monotonic().ns() + 50_000_000);
        sys::futex_wait(ring.closed.as_ptr(), closed, Some(&soon));
        if !crate::thread::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
    told.end();
    total::come_back(t);
    t.slot().busy.store(was, SeqCst);
}

/// A debugger drives the replay, and the calling thread has done all that was recorded of it. (What it may have computed after that is in no order,
/// and can't be shown.)
pub(super) fn is_done(t: &Block) -> bool {
    debugger::paces() && !is_quiet(t) && ring::peek_entry().is_none()
}

/// If so, the thread stays where it is, on its way back to the program.
pub(super) fn stay_if_done(t: &mut Block) {
    while is_done(t) {
        exhausted(t);
    }
}

/// The calling thread does nothing any more, and what was recorded of it is thrown away, so that the driver takes it for one that has done
/// it.
pub(crate) fn gives_up() -> ! {
    let t = current();
    total::leave(t.slot_number());
    let (ring, ..) = ring_of(t.slot_number());
    loop {
        ring.position.store(ring.head.load(SeqCst), SeqCst);
        t.slot().busy.store(0, SeqCst);
        request::wake_agent();
        let soon = sys::Timespec::from_ns(sys::monotonic().ns() + 1_000_000);
        sys::futex_wait(ring.consumer_asleep.as_ptr(), 1, Some(&soon));
        if !crate::thread::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
}

/// Waits until the calling thread is the only one of its process.
pub fn wait_for_others_to_end(t: &mut Block) {
    let live = &process::entry().live_threads;
    turns::wait(t, live.as_ptr() as u64, || live.load(SeqCst) <= 1);
}

/// The header of the thread's next event, which must come.
pub(in crate::engines::order) fn header(t: &mut Block) -> EventHeader {
    loop {
        match ring::peek() {
            Some(h) => return h,
            None => exhausted(t),
        }
    }
}

/// Has the trace nothing more for the calling thread's slot?
pub(in crate::engines::order) fn is_over(t: &Block) -> bool {
    let (ring, ..) = ring_of(t.slot);
    ring.closed.load(SeqCst) == CLOSED_END && ring.position.load(SeqCst) == ring.head.load(SeqCst)
}

/// The header of the first event of a new process; `None` when the trace has none for its slot any more.
pub(in crate::engines::order) fn first_header(t: &mut Block) -> Option<EventHeader> {
    loop {
        match ring::peek() {
            None if !is_over(t) => exhausted(t),
            first => return first,
        }
    }
}

/// Does no thread have a slot with this state?
pub(in crate::engines::order) fn is_unused(state: u32) -> bool {
    matches!(state, slot_state::FREE | slot_state::EXITING)
}

/// Waits until slot `i` is free, and takes it for the thread that the call makes whose first stamp is in the block.
pub(in crate::engines::order) fn take_slot(t: &Block, i: u32) {
    clone::wait_for_slot::<super::Replay>(i);
    // Whoever had it may have been ended in the middle of something.
    slot(i).busy.store(0, SeqCst);
    head().waits[i as usize].reset();
    slot(i).visible_tid.store(0, SeqCst);
    // Whatever ends a process leaves all its slots: not the process that had this one before, while the thread is made.
    slot(i).process.store(process::number(), SeqCst);
    // In this order: the driver takes a slot that nobody has for one whose thread is gone.
    slot(i).state.store(slot_state::BLOCKED, SeqCst);
    slot(i).born.store(t.logging.stamps[0] + 1, SeqCst);
}

/// The calling thread begins. If the driver ends its process at this moment, the slot is left already, and stays so.
pub(in crate::engines::order) fn runs_now(t: &Block) {
    let state = &t.slot().state;
    let _ = state.compare_exchange(slot_state::BLOCKED, slot_state::RUNNING, SeqCst, SeqCst);
}

/// May the next thread have slot `i`, of which nothing is left that was recorded of the last one?
pub fn is_vacant(i: u32) -> bool {
    let (ring, ..) = ring_of(i);
    is_unused(slot(i).state.load(Acquire)) && ring.closed.load(SeqCst) != CLOSED_GONE
}
