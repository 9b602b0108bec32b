//! `pthread_spinlock_t`: 1 when it is free.
//!
//! **Order**: as a mutex ([`super::mutex`]). There is room for nothing but the lock: its [`Runs`](crate::engine::order::Runs) are beside it. What sets it
//! free is an ordinary store, in libc, which needs no number (a replay that looks for races sees it all the same, [`crate::races::watch`]).

use super::error::EBUSY;
use super::object;
use super::side::runs_of;
use crate::engine::order::Order;
use crate::engine::waits::{Deadline, Wait};
use crate::machine::sys;
use crate::races::objects::Kind;
use crate::sync::hook::shim::Done;
use crate::thread::in_force;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 1;
const TAKEN: u32 = 0;
/// Looks between two turns of others on this processor, one of whom may have the lock.
const LOOKS: u32 = 1000;

fn word(f: &Frame) -> &'static AtomicU32 {
    // SAFETY: only atomics; nothing of ours is held.
    unsafe { object(f.rdi) }
}

fn take(w: &AtomicU32) -> bool {
    w.load(Relaxed) == FREE && w.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
}

/// `pthread_spin_lock(lock)`
pub fn lock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let w = word(f);
    let runs = runs_of(f.rdi);
    if !O::turn(t, runs) {
        return Done::by_frame();
    }
    let mut looks = 0;
    while !take(w) {
        if in_force::runs_one_at_a_time() {
            // Who has it needs this thread's processor, and will not say when the lock is free.
            let soon = Deadline::soon(O::now());
            if O::wait(t, w, TAKEN, Some(&soon), false) == Wait::Signal {
                return Done::by_frame();
            }
            continue;
        }
        looks += 1;
        O::pause(t);
        if looks % LOOKS == 0 {
            // A handler is not kept waiting by a lock that may never be free.
            if !O::REPLAYS
                && t.slot().signal_pending.load(Relaxed) != 0
                && t.pending.first(t.mask).is_some()
            {
                return Done::by_frame();
            }
            sys::sched_yield();
        }
    }
    O::passed(t, runs);
    O::learns(t, Kind::Lock, f.rdi);
    Done::value(0)
}

/// `pthread_spin_trylock(lock)`
pub fn trylock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let w = word(f);
    if let Some(e) = O::failure(t) {
        return Done::errno(e);
    }
    let runs = runs_of(f.rdi);
    if !O::turn(t, runs) {
        return Done::by_frame();
    }
    while !take(w) {
        if !O::REPLAYS {
            O::failed(t, EBUSY);
            return Done::errno(EBUSY);
        }
        O::pause(t);
    }
    O::passed(t, runs);
    O::learns(t, Kind::Lock, f.rdi);
    Done::value(0)
}
