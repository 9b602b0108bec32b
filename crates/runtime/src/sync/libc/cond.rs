//! `pthread_cond_t`.
//!
//! **Order.** A wait gives its mutex back and takes it again. Which turn of the mutex it then gets is in the log, so a replay doesn't wait on
//! the condition at all: when the mutex's count says that it is this thread's turn, the wait is over. Signals and broadcasts are not logged;
//! what their caller did before them under the mutex is seen because the waiter's turn comes later. That a wait timed out is logged as a
//! failure, before the mutex is taken again. Cancellation follows from a signal that interrupts the wait ([`cancel`]).
//!
//! **Layout**: `sequence` grows with every signal while somebody waits; a waiter sleeps as long as it is what it was while the waiter still
//! had the mutex. One that was waiting before a signal finds it changed; one that came later does not. `users` is where glibc has its flags,
//! which `pthread_cond_init` sets: bit 0 shared between processes, bit 1 `CLOCK_MONOTONIC`; bit 2: somebody destroys it and waits for the
//! others, who are counted above. Waits may end for no reason, as POSIX allows.
//!
//! A handler that interrupts a wait runs without the mutex, as it does natively; then the function is entered again, and goes on by taking
//! the mutex. One whose thread [stands](crate::gate::stand) is entered again, too, and waits on.

use super::cancel;
use super::error::*;
use super::mutex::{give, take, Patience};
use super::{mark, object, Stop};
use crate::engine::order::Order;
use crate::engine::waits::{Deadline, Wait, EVERYBODY, MONOTONIC, REALTIME};
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A condition.
#[repr(C)]
struct Cond {
    sequence: AtomicU32,
    _unused: [AtomicU32; 8],
    users: AtomicU32,
    _unused_too: [AtomicU32; 2],
}

const _: () = {
    assert!(core::mem::size_of::<Cond>() == 48);
    assert!(core::mem::offset_of!(Cond, users) == 36);
};

const SHARED: u32 = 1;
const CLOCK: u32 = 2;
const DESTROYED: u32 = 4;
const USER: u32 = 8;

/// When a wait ends.
#[derive(Clone, Copy)]
enum Time {
    Never,
    /// By the condition's clock.
    Own(u64),
    By(u32, u64),
}

fn cond(f: &Frame) -> &'static Cond {
    // SAFETY: only atomics; nothing of ours is held.
    unsafe { object(f.rdi) }
}

/// `pthread_cond_wait(cond, mutex)`
pub fn wait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    wait_until::<O>(t, f, Time::Never).ends_what_r9_told(f)
}

/// `pthread_cond_timedwait(cond, mutex, time)`
pub fn timedwait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    wait_until::<O>(t, f, Time::Own(f.rdx)).ends_what_r9_told(f)
}

/// `pthread_cond_clockwait(cond, mutex, clock, time)`
pub fn clockwait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    wait_until::<O>(t, f, Time::By(f.rdx as u32, f.rcx)).ends_what_r9_told(f)
}

fn wait_until<O: Order>(t: &mut Block, f: &mut Frame, time: Time) -> Done {
    let goes_on = f.r8 == mark(f.rdi);
    let waits_on = f.r8 == waiting(f.rdi);
    if !goes_on && !waits_on && cancel::is_due(t) {
        return cancel::go(t, f);
    }
    if goes_on {
        let result = f.r9 as u32;
        return reacquire::<O>(t, f, result);
    }
    let c = cond(f);
    let deadline = match time {
        Time::Never => None,
        Time::Own(_) | Time::By(..) => {
            let (clock, at) = match time {
                Time::By(clock, at) => (clock, at),
                Time::Own(at) if c.users.load(Relaxed) & CLOCK != 0 => (MONOTONIC, at),
                Time::Own(at) => (REALTIME, at),
                Time::Never => (REALTIME, 0),
            };
            match Deadline::new(clock, at) {
                Ok(d) => Some(Ok(d)),
                Err(ETIMEDOUT) => Some(Err(ETIMEDOUT)),
                Err(e) => return Done::errno(e),
            }
        }
    };
    if O::REPLAYS {
        // The mutex first: what comes of the wait may be nowhere in the log, since the thread waited to the end of the program.
        return match give::<O>(t, f.rsi, false) {
            0 => {
                let result = O::failure(t).unwrap_or(0);
                reacquire::<O>(t, f, result)
            }
            e => Done::errno(e),
        };
    }
    let sequence = match waits_on {
        true => f.r9 as u32,
        false => {
            c.users.fetch_add(USER, AcqRel);
            let sequence = c.sequence.load(Acquire);
            let e = give::<O>(t, f.rsi, false);
            if e != 0 {
                leave::<O>(t, c);
                return Done::errno(e);
            }
            sequence
        }
    };
    let stands = O::stands_in_wait(t, f, waiting(f.rdi));
    let slept = match deadline {
        _ if stands.is_some() => Wait::Signal,
        Some(Err(_)) => Wait::TimedOut,
        Some(Ok(d)) => until_changed::<O>(t, c, sequence, Some(&d)),
        None => until_changed::<O>(t, c, sequence, None),
    };
    let result = match slept {
        Wait::TimedOut => ETIMEDOUT,
        _ => 0,
    };
    if slept == Wait::Signal && O::interrupted_by(t).is_none() {
        // It stands, and waits on after that: still one of those that a signal may reach.
        f.r8 = waiting(f.rdi);
        f.r9 = stands.unwrap_or(sequence.into());
        return Done::by_frame();
    }
    if slept == Wait::Signal && c.sequence.load(Relaxed) != sequence {
        // If the thread is cancelled now, a signal that it may have got is for somebody else.
        rouse::<O>(t, c, 1);
    }
    leave::<O>(t, c);
    if result != 0 {
        O::failed(t, result);
    }
    if slept == Wait::Signal {
        return later(f, result);
    }
    reacquire::<O>(t, f, result)
}

/// Sleeps until the sequence has gone on.
fn until_changed<O: Order>(
    t: &mut Block,
    c: &Cond,
    sequence: u32,
    deadline: Option<&Deadline>,
) -> Wait {
    let shared = c.users.load(Relaxed) & SHARED != 0;
    let slept = O::wait(t, &c.sequence, sequence, deadline, shared);
    if slept == Wait::Woken && c.sequence.load(Acquire) == sequence {
        // Perhaps for a signal that was sent before this thread came, in front of one that waits for it: rare, so all may look.
        rouse::<O>(t, c, EVERYBODY);
    }
    slept
}

/// The mutex is the thread's again, and the wait over.
fn reacquire<O: Order>(t: &mut Block, f: &mut Frame, result: u32) -> Done {
    match take::<O>(t, f.rsi, Patience::Endless, false) {
        Err(Stop::Signal) => later(f, result),
        _ if cancel::is_due(t) => cancel::go(t, f),
        Ok(0) => Done::errno(result),
        Ok(e) | Err(Stop::Error(e)) => Done::errno(e),
    }
}

/// The mark of a wait on this condition that goes on waiting, for another sequence than that in r9.
fn waiting(address: u64) -> u64 {
    mark(address).rotate_left(1)
}

/// Handlers run first; then the function goes on by taking the mutex.
fn later(f: &mut Frame, result: u32) -> Done {
    f.r8 = mark(f.rdi);
    f.r9 = result as u64;
    Done::by_frame()
}

/// This thread doesn't use the condition any more, which may be gone after it.
fn leave<O: Order>(t: &mut Block, c: &Cond) {
    let word = c.users.as_ptr();
    let old = c.users.fetch_sub(USER, AcqRel);
    if old & !(SHARED | CLOCK) == USER | DESTROYED {
        O::wake(t, word, EVERYBODY, old & SHARED != 0);
    }
}

fn rouse<O: Order>(t: &mut Block, c: &Cond, n: u32) {
    let shared = c.users.load(Relaxed) & SHARED != 0;
    c.sequence.fetch_add(1, Release);
    O::wake(t, c.sequence.as_ptr(), n, shared);
}

fn notify<O: Order>(t: &mut Block, f: &Frame, n: u32) -> Done {
    let c = cond(f);
    // Read in a replay, too: a bad pointer faults there as well.
    let users = c.users.load(SeqCst);
    if !O::REPLAYS && users >= USER {
        rouse::<O>(t, c, n);
    }
    Done::value(0)
}

/// `pthread_cond_signal(cond)`
pub fn signal<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::touches_its_objects(t);
    notify::<O>(t, f, 1)
}

/// `pthread_cond_broadcast(cond)`
pub fn broadcast<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::touches_its_objects(t);
    notify::<O>(t, f, EVERYBODY)
}

/// `pthread_cond_destroy(cond)`: waits for those that were woken and are still on their way out.
pub fn destroy<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let c = cond(f);
    let mut users = c.users.fetch_or(DESTROYED, AcqRel) | DESTROYED;
    loop {
        if O::handler_first(t, f.rip) {
            return Done::by_frame();
        }
        if users < USER {
            break;
        }
        if O::wait(t, &c.users, users, None, users & SHARED != 0) == Wait::Signal {
            return Done::by_frame();
        }
        users = c.users.load(Acquire);
    }
    Done::value(0)
}
