//! Static variables in C++ functions: `__cxa_guard_acquire` and its kin (Itanium C++ ABI, 3.3.3).
//!
//! **Order**: as in [`super::once`]: who was chosen to initialise is logged. The compiler's code looks at the first byte before it
//! calls: a thread that finds it set leaves no event, and neither does one that calls and finds it set. Should the look be an atomic load that
//! `reprise cc` made visible ([`super::atomic`]), a replay gives it what it saw, and has to know what that came after: so the byte is set
//! by an operation on its shard.
//!
//! **Layout**: libstdc++'s, so that a copy of it that is linked into a program and isn't hooked understands us.

use super::object;
use super::side::side;
use crate::engine::order::Order;
use crate::engine::waits::{Wait, EVERYBODY};
use crate::races::objects::Kind;
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// It is initialised.
const DONE: u32 = 1;
/// Somebody is at it.
const PENDING: u32 = 0x100;
/// Others wait for that.
const WAITED_FOR: u32 = 0x1_0000;

fn word(f: &Frame) -> &'static AtomicU32 {
    // SAFETY: only atomics; nothing of ours is held.
    unsafe { object(f.rdi) }
}

/// Waits until it is either done or free. False: a signal comes first.
fn settled<O: Order>(t: &mut Block, w: &AtomicU32) -> bool {
    loop {
        let v = w.load(Acquire);
        if v & DONE != 0 || v & PENDING == 0 {
            return true;
        }
        let waited_for = v | WAITED_FOR;
        if (v == waited_for || w.compare_exchange(v, waited_for, AcqRel, Relaxed).is_ok())
            && O::wait(t, w, waited_for, None, true) == Wait::Signal
        {
            return false;
        }
    }
}

/// `__cxa_guard_acquire(guard)`: 1 when the caller is to initialise.
pub fn acquire<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let w = word(f);
    if w.load(Acquire) & DONE != 0 {
        O::learns(t, Kind::Atomic, f.rdi);
        return Done::value(0);
    }
    let choice = O::choice(t, f.rdi);
    let count = &side(f.rdi).chosen;
    loop {
        if let Some(Some(n)) = choice {
            // Those chosen before have given it up, or will.
            if count.load(Acquire) + 1 == n
                && w.compare_exchange(0, PENDING, AcqRel, Relaxed).is_ok()
            {
                count.store(n, Release);
                return Done::value(1);
            }
        }
        if choice.is_none() && w.compare_exchange(0, PENDING, AcqRel, Relaxed).is_ok() {
            let n = count.fetch_add(1, AcqRel) + 1;
            O::chosen(t, f.rdi, n);
            return Done::value(1);
        }
        if matches!(choice, Some(None)) && O::handler_first(t, f.rip) {
            return Done::by_frame();
        }
        if !settled::<O>(t, w) && choice.is_none() {
            return Done::by_frame();
        }
        if w.load(Acquire) & DONE != 0 && !matches!(choice, Some(Some(_))) {
            O::learns(t, Kind::Atomic, f.rdi);
            return Done::value(0);
        }
        O::pause(t);
    }
}

fn settle<O: Order>(t: &mut Block, f: &Frame, value: u32) -> Done {
    let w = word(f);
    let address = w.as_ptr();
    if O::ordered(t, f.rdi, || w.swap(value, AcqRel)) & WAITED_FOR != 0 {
        O::wake(t, address, EVERYBODY, true);
    }
    Done::value(0)
}

/// `__cxa_guard_release(guard)`: it is initialised.
pub fn release<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    // As an atomic byte, which the compiler's code looks at by itself.
    O::lets_know(t, Kind::Atomic, f.rdi);
    settle::<O>(t, f, DONE)
}

/// `__cxa_guard_abort(guard)`: it is not, because of an exception.
pub fn abort<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    settle::<O>(t, f, 0)
}
