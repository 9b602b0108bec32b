//! Running an epoch by the slices that another copy of the program has written ([`super::told`]): a replay that begins where all threads stood, and ends where they
//! stand again. It is compared with the program as the copy was that wrote the slices.

use super::hooked::Hooks;
use super::replay::{hand_on, pass_on, take_turn};
use crate::gate::{copy, stand};
use crate::log::epoch;
use crate::log::ring::{self, Reader};
use crate::machine::sys;
use crate::signal::frame::{save_vectors, FpState};
use crate::signal::kernel;
use crate::thread::{schedule, session, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::epoch::Why;
use reprise_abi::event::{
    EventHeader, Kind, ENDS_AT_FAULT, ENDS_IN_CODE, ENDS_UNDER_MASK, YIELD_AT_FAULT,
};
use reprise_abi::order::{ORDER_BASE, ORDER_HEAD_LEN};
use reprise_abi::session::{slot_state, FLAG_EPOCHS};

/// Are there epochs in what is replayed: in a copy that runs one by its slices, or in a trace that is made of such slices?
#[inline(always)]
pub fn are_there() -> bool {
    session().flags & FLAG_EPOCHS != 0 || epoch::is_open()
}

/// Stubs of locked instructions look at shards, which only say something where threads run on all processors.
pub fn prepare() {
    if session().flags & FLAG_EPOCHS != 0 {
        const FLAGS: u64 = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED_NOREPLACE;
        sys::mmap(
            ORDER_BASE,
            ORDER_HEAD_LEN as u64,
            sys::PROT_RW,
            FLAGS,
            u64::MAX,
            0,
        );
    }
}

/// The calling thread, which stood, is about to go on, when the slices say so. Nobody does before all are there.
pub fn begins(t: &mut Block) {
    t.kernel_tid = sys::gettid() as u32;
    // No operation is made on a short way.
    t.quiet_left().store(0, Relaxed);
    copy::takes_long_ways(t);
    t.slot().state.store(slot_state::READY, Release);
    if !epoch::comes(t.slot) || hand_on(t, slot_state::READY) {
        schedule::wait_go(t.slot);
    }
    t.slot().state.store(slot_state::RUNNING, Relaxed);
}

/// A thread is about to be made in this slot.
pub fn is_born(i: u32) {
    if epoch::is_open() {
        epoch::is_born(i);
    }
}

/// The calling thread has begun in the epoch.
pub fn thread_has_begun(t: &Block) {
    if epoch::is_open() {
        copy::takes_long_ways(t);
    }
}

/// The calling thread ends: does anything come after that? At the end of an epoch it may be the last that others wait for.
pub fn others_go_on(t: &Block) -> bool {
    if !epoch::is_open() {
        return true;
    }
    epoch::comes_to_end(t.slot);
    !epoch::all_have_come_to_end()
}

/// Is this event the end of the epoch for the thread, before a call that it hasn't made (`deferred`), or elsewhere?
fn is_end(t: &Block, h: &EventHeader, deferred: bool) -> bool {
    is_end_by(t, h, deferred.into())
}

fn is_end_by(t: &Block, h: &EventHeader, how: i64) -> bool {
    h.is_end_of_epoch() && u32::from(h.slot) == t.slot && h.value == how
}

/// The program is about to make a call: does the epoch end before it?
#[inline(always)]
pub fn defers(t: &mut Block) -> bool {
    if are_there() {
        t.deferred = ring::peek().is_some_and(|h| is_end(t, &h, true));
    }
    t.deferred
}

/// The thread is at the end of a gate, of a hooked function, or in a call: does its epoch end here? The program goes on at `frame`. In a trace it goes on in the
/// next epoch then, and this says so.
#[inline(always)]
pub fn look(t: &mut Block, frame: &Frame) -> bool {
    if epoch::is_open() {
        copy::takes_long_ways(t);
    }
    are_there() && look_closely(t, frame)
}

/// As [`look`], at the end of a call whose signal mask is still in force.
pub fn look_under_mask(t: &mut Block, frame: &Frame) -> bool {
    are_there() && look_for(t, frame, ENDS_UNDER_MASK)
}

fn look_closely(t: &mut Block, frame: &Frame) -> bool {
    let deferred = core::mem::take(&mut t.deferred);
    look_for(t, frame, deferred.into())
}

/// Does the thread's epoch end here, in this way?
fn look_for(t: &mut Block, frame: &Frame, how: i64) -> bool {
    let Some(h) = ring::peek().filter(|h| is_end_by(t, h, how)) else {
        return false;
    };
    if !epoch::is_open() {
        goes_into_next(t, h);
        // It may stand there once more.
        let slot = t.slot;
        let again = |h: &EventHeader| {
            h.is_end_of_epoch() && u32::from(h.slot) == slot && h.value == ENDS_IN_CODE
        };
        while let Some(h) = ring::peek().filter(again) {
            goes_into_next(t, h);
        }
        return true;
    }
    let ends = epoch::part(t.slot).map(|p| p.ends.frame);
    if ends != Some(*frame) {
        epoch::fails(t.slot, Why::Place);
    }
    kernel::block_all();
    save_vectors(FpState::Live, stand::vectors(t.slot));
    let parent = sys::getppid() as u64;
    Reader::begin(h).finish();
    epoch::comes_to_end(t.slot);
    if !epoch::all_have_come_to_end() {
        hand_on(t, slot_state::BLOCKED);
    }
    copy::rest_while_lives(parent);
    sys::exit_group(125)
}

/// As [`look`], in the middle of the program's code, where the thread's slice has ended by this event of it.
pub fn looks_in_code(t: &mut Block, h: EventHeader) {
    match epoch::is_open() {
        true => epoch::fails(t.slot, Why::Place),
        false => goes_into_next(t, h),
    }
}

/// The thread faults in the program's code. In a trace of epochs others may go on first, in the same epoch or in the next one: then it is to make the instruction once more, which need not fault
/// again.
pub fn gives_way_at_fault(t: &mut Block) -> bool {
    let slot = t.slot;
    let next = |ends: i64| {
        let h = ring::peek().filter(|h| are_there() && u32::from(h.slot) == slot)?;
        let is_end = h.is_end_of_epoch() && h.value == ends;
        let is_yield = h.kind == Kind::Yield as u8 && h.detail == YIELD_AT_FAULT;
        let gives_way = is_yield && ends == ENDS_AT_FAULT;
        (is_end || gives_way).then_some(h)
    };
    let Some(mut h) = next(ENDS_AT_FAULT) else {
        return false;
    };
    t.traced().in_code = true;
    loop {
        match h.is_end_of_epoch() {
            true => looks_in_code(t, h),
            false => take_turn(t, h),
        }
        // It may have come to its end while it waited.
        match next(ENDS_IN_CODE) {
            Some(end) => h = end,
            None => break,
        }
    }
    t.traced().in_code = false;
    true
}

/// In a trace: others go on in the next epoch, then this thread does. What is counted in an epoch begins anew.
fn goes_into_next(t: &mut Block, h: EventHeader) {
    t.cut().hooks = Hooks::default();
    take_turn(t, h);
}

/// The thread is in a call of which only the beginning was replayed: in a trace, epochs may end before it does.
pub fn look_in_call(t: &mut Block) {
    if epoch::is_open() {
        look(t, &stand::gate_frame(t));
        return;
    }
    while let Some(h) = ring::peek().filter(|h| is_end(t, h, false)) {
        t.cut().hooks = Hooks::default();
        Reader::begin(h).finish();
        pass_on(t);
    }
}
