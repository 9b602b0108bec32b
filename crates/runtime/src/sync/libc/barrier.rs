//! `pthread_barrier_t`.
//!
//! **Order.** The arrivals are numbered, one after the other. From an arrival's number follow its round and whether it is the round's last, which
//! is the one that is told so (`PTHREAD_BARRIER_SERIAL_THREAD`). Nothing else is logged: those who wait really wait, in a replay
//! as well, until the last of their round has come.
//!
//! **Layout**: our own; nobody but the functions here looks into a barrier. Who leaves is counted, so that a barrier that is destroyed right after
//! a round is not touched any more.
//!
//! A wait that is interrupted by a signal's handler goes on after it: the function is entered again, with its round in r9.

use super::error::EINVAL;
use super::{mark, object};
use crate::engine::order::Order;
use crate::engine::waits::{Wait, EVERYBODY};
use crate::races::objects::Kind;
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// A barrier.
#[repr(C)]
struct Barrier {
    /// Threads of a round.
    count: AtomicU32,
    /// Other processes use it, too.
    shared: AtomicU32,
    /// Arrivals ever.
    arrived: AtomicU64,
    /// Rounds that are complete.
    rounds: AtomicU32,
    /// Threads that are in, and whether somebody waits until there is none.
    inside: AtomicU32,
    _unused: AtomicU64,
}

const _: () = assert!(core::mem::size_of::<Barrier>() == 32);

const DESTROYED: u32 = 1 << 31;
/// More a barrier can't have (as glibc).
const MAX: u32 = i32::MAX as u32;
/// `PTHREAD_BARRIER_SERIAL_THREAD`
const SERIAL: u64 = u32::MAX as u64;

fn barrier(f: &Frame) -> &'static Barrier {
    // SAFETY: only atomics; nothing of ours is held.
    unsafe { object(f.rdi) }
}

/// `pthread_barrier_init(barrier, attributes, count)`
pub fn init<O: Order>(_t: &mut Block, f: &mut Frame) -> Done {
    let (b, count) = (barrier(f), f.rdx as u32);
    if count == 0 || count > MAX {
        return Done::errno(EINVAL);
    }
    // The attributes are one word: 1 when shared between processes.
    let shared = match f.rsi {
        0 => 0,
        // SAFETY: the program's pointer: a fault is the program's.
        at => unsafe { core::ptr::read_volatile(at as *const u32) },
    };
    b.count.store(count, Relaxed);
    b.shared.store(shared, Relaxed);
    b.arrived.store(0, Relaxed);
    b.rounds.store(0, Relaxed);
    b.inside.store(0, Release);
    Done::value(0)
}

/// `pthread_barrier_wait(barrier)`
pub fn wait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    pass::<O>(t, f).ends_what_r9_told(f)
}

fn pass<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::touches_its_objects(t);
    let b = barrier(f);
    let goes_on = f.r8 == mark(f.rdi);
    let (round, last) = if goes_on {
        (f.r9 as u32, false)
    } else {
        b.inside.fetch_add(1, AcqRel);
        let n = O::ordered(t, f.rdi, || b.arrived.fetch_add(1, AcqRel));
        let count = b.count.load(Relaxed).max(1) as u64;
        ((n / count) as u32, n % count == count - 1)
    };
    let shared = b.shared.load(Relaxed) != 0;
    let rounds = match round % 2 {
        0 => Kind::EvenRounds,
        _ => Kind::OddRounds,
    };
    if !goes_on {
        O::lets_know(t, rounds, f.rdi);
    }
    if last {
        b.rounds.fetch_add(1, AcqRel);
        O::wake(t, b.rounds.as_ptr(), EVERYBODY, shared);
    }
    if !last && O::stands_in_wait(t, f, mark(f.rdi)).is_some() {
        // It stood here, whether its round was complete by then or not.
        return interrupted(f, round);
    }
    loop {
        if !last && O::handler_first(t, f.rip) {
            return interrupted(f, round);
        }
        let complete = b.rounds.load(Acquire);
        // More than `round` of them, as numbers that start again from 0 compare.
        if complete.wrapping_sub(round) as i32 > 0 {
            break;
        }
        if O::wait(t, &b.rounds, complete, None, shared) == Wait::Signal {
            return interrupted(f, round);
        }
    }
    O::learns(t, rounds, f.rdi);
    let word = b.inside.as_ptr();
    if b.inside.fetch_sub(1, AcqRel) == DESTROYED | 1 {
        O::wake(t, word, EVERYBODY, shared);
    }
    Done::value(if last { SERIAL } else { 0 })
}

/// A handler runs first; then the function goes on waiting for the end of this round.
fn interrupted(f: &mut Frame, round: u32) -> Done {
    f.r8 = mark(f.rdi);
    f.r9 = round as u64;
    Done::by_frame()
}

/// `pthread_barrier_destroy(barrier)`: waits for those that are on their way out.
pub fn destroy<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let b = barrier(f);
    let shared = b.shared.load(Relaxed) != 0;
    let mut inside = b.inside.fetch_or(DESTROYED, AcqRel) | DESTROYED;
    loop {
        // A handler that ran in the recording runs, also when nobody is to be waited for now.
        if O::handler_first(t, f.rip) {
            return Done::by_frame();
        }
        if inside == DESTROYED {
            break;
        }
        if O::wait(t, &b.inside, inside, None, shared) == Wait::Signal {
            return Done::by_frame();
        }
        inside = b.inside.load(Acquire);
    }
    Done::value(0)
}
