//! The baton: who may run. Session-wide, in shared memory, so that it works across processes.
//!
//! The protocol itself, in which the agent takes part, is [`reprise_abi::schedule`]'s; here is what a thread does of it: its slices begin and end,
//! and its robust futexes are put down and picked up. A hand-off completes when the receiver wakes; the log says who ran.

use super::chaos;
use crate::gate::robust;
use crate::machine::asm::rt_blocking;
use crate::machine::{split_mix, sys};
use crate::thread::attended;
use crate::thread::schedule;
use crate::thread::schedule::lock;
use crate::thread::schedule::wait_for_baton;
use crate::thread::schedule::wait_for_end;
use crate::thread::schedule::Locked;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::schedule::Lists;
use reprise_abi::session::FLAG_CHAOS;
use reprise_abi::syscalls::nr;

/// Who waits on a futex of the program looks so often whether others can still wake it.
const LOOK_NS: i64 = 5_000_000_000;

/// Is this the only thread of the session?
#[inline]
pub fn alone() -> bool {
    session().live_threads.load(Relaxed) == 1
}

/// Next number of chaos mode's generator (splitmix64).
pub fn random() -> u64 {
    let s = &session().chaos_state;
    let next = s.load(Relaxed).wrapping_add(split_mix::GAMMA);
    s.store(next, Relaxed);
    split_mix::mix(next)
}

/// Is chaos mode on?
#[inline]
pub fn chaos() -> bool {
    session().flags & FLAG_CHAOS != 0
}

/// Who is next: the first that waits, in chaos mode anyone.
fn next(l: &Lists) -> u32 {
    let count = session().ready_count.load(Relaxed) as u64;
    if !chaos() || count <= 1 {
        return l.next();
    }
    let drawn = (random() % count) as u32;
    let held = l.ready_at(drawn).is_some_and(chaos::is_held_back);
    match held {
        true => (drawn + 1) % count as u32,
        false => drawn,
    }
}

/// The calling thread's process ends ([`schedule::leave_to`]).
pub fn leave(t: &Block) {
    schedule::leave_to(t, next);
}

/// The holder leaves: inside a call that may wait, or for good.
pub fn release(t: &mut Block, state: u32) {
    chaos::end_slice(t);
    robust::put_down(t);
    lock().release(t.slot, state, next);
}

/// Comes back for the baton and waits until it has it.
pub fn acquire(t: &mut Block) {
    acquire_locked(lock(), t);
}

fn acquire_locked(l: Locked, t: &mut Block) {
    if !crate::thread::process::is_live() {
        drop(l);
        wait_for_end();
    }
    // The agent sees to it that this doesn't take long.
    let waiting = &crate::thread::process::entry().came_back;
    let queued = || {
        waiting.fetch_add(1, Relaxed);
    };
    if !l.come_back(t.slot, queued) {
        wait_for_baton(t.slot);
        waiting.fetch_sub(1, Relaxed);
    }
    robust::pick_up(t);
    chaos::begin_slice(t);
}

/// The holder's call begins; from now on the agent may take the baton.
#[inline]
pub fn enter_call(t: &mut Block) {
    robust::put_down(t);
    t.slot().enter_call();
}

/// The call is over; true when the baton is still here, false when it was taken.
#[inline]
pub fn leave_call(t: &mut Block) -> bool {
    let held = t.slot().leave_call();
    if held {
        robust::pick_up(t);
    }
    held
}

/// Goes to the end of the queue, if anybody waits; `before` runs when it is certain.
pub fn step_back(t: &mut Block, before: impl FnOnce(&mut Block)) -> bool {
    if session().ready_count.load(Relaxed) == 0 {
        return false;
    }
    // Nobody but the holder takes others out of the queue, so it stays non-empty.
    before(t);
    robust::put_down(t);
    lock().queue_again(t.slot, next);
    wait_for_baton(t.slot);
    robust::pick_up(t);
    chaos::begin_slice(t);
    true
}

/// How a wait on a futex ended.
#[derive(PartialEq, Eq)]
pub enum Wait {
    /// Somebody woke it.
    Woken,
    /// The time is over.
    TimedOut,
    /// A signal for the program is there.
    Interrupted,
}

/// Waits on a futex of the program (already queued by `l`), and returns with the baton. The caller has put down its robust futexes.
pub fn futex_sleep(l: Locked, t: &mut Block, deadline: Option<(sys::Timespec, bool)>) -> Wait {
    chaos::end_slice(t);
    l.pass_to(next);
    let me = t.slot();
    // FUTEX_WAIT_BITSET, absolute; on CLOCK_REALTIME when so asked.
    let op = 9 | if matches!(deadline, Some((_, true))) {
        256
    } else {
        0
    };
    let mut look;
    loop {
        let seen = me.go.load(Acquire);
        if me.takes_baton(session(), seen) {
            chaos::begin_slice(t);
            return Wait::Woken;
        }
        attended::or_end();
        look = sys::Timespec::from_ns(sys::monotonic().ns() + LOOK_NS);
        let limit = deadline.as_ref().map_or(&look, |(t, _)| t) as *const sys::Timespec as u64;
        let args = [
            me.go.as_ptr() as u64,
            op,
            seen.into(),
            limit,
            0,
            u32::MAX as u64,
        ];
        // SAFETY: the words belong to the session.
        let r = unsafe { rt_blocking(nr::FUTEX, &args, me.signal_pending.as_ptr()) };
        let why = match r {
            -110 if deadline.is_some() => Wait::TimedOut,
            -512 | -4 if me.signal_pending.load(Acquire) != 0 => Wait::Interrupted,
            _ => continue,
        };
        let l = lock();
        if l.futex_cancel(t.slot) {
            acquire_locked(l, t);
            return why;
        }
        // Woken meanwhile: it is in the queue, or has the baton already.
        drop(l);
        wait_for_baton(t.slot);
        chaos::begin_slice(t);
        return Wait::Woken;
    }
}
