//! Waiting in hooked functions: in the ring while the thread has its turn, else as the kernel does it, and as it was logged.

use super::clock::Moment;
use super::pure::{self, clock};
use super::wait::Word;
use super::{deadlock, is_alone, log, shared_word, turns};
use crate::engine::waits::{self, in_kernel, Deadline, Wait};
use crate::isolate::call;
use crate::thread::Block;
use core::sync::atomic::AtomicU32;
use reprise_abi::det::question;

/// See [`Order::wait`](crate::engine::order::Order::wait).
pub fn wait(
    t: &mut Block,
    word: &AtomicU32,
    value: u32,
    deadline: Option<&Deadline>,
    shared: bool,
) -> Wait {
    if t.det().in_turn {
        let moment = |d: &Deadline| Moment {
            ns: d.at.ns(),
            realtime: d.realtime,
        };
        let on = Word::new(word.as_ptr() as u64, value);
        return super::wait::wait(t, on, deadline.map(moment));
    }
    if let Some(d) = deadline.filter(|_| pure::on()) {
        let until = clock::of_monotonic(clock::in_monotonic(d.at.ns(), d.realtime));
        return pure::sleep::wait(t, word, value, until, shared);
    }
    if log::follows(t) {
        let ask = |t: &mut Block| by_kernel(t, word, value, deadline, shared) as i64;
        let how = log::told(t, question::WAITED, ask);
        return match how {
            _ if how == Wait::Changed as i64 => Wait::Changed,
            _ if how == Wait::TimedOut as i64 => Wait::TimedOut,
            _ if how == Wait::Signal as i64 => {
                log::is_due(t);
                Wait::Signal
            }
            _ => Wait::Woken,
        };
    }
    by_kernel(t, word, value, deadline, shared)
}

/// As [`wait`], where threads are the kernel's.
fn by_kernel(
    t: &mut Block,
    word: &AtomicU32,
    value: u32,
    deadline: Option<&Deadline>,
    shared: bool,
) -> Wait {
    let others_may_wake = || shared_word::is_shared(word.as_ptr() as u64);
    if deadline.is_none() && is_alone() && !others_may_wake() {
        deadlock::report();
    }
    in_kernel(
        t,
        word,
        value,
        deadline,
        shared,
        || {},
        call::has_interrupted,
    )
}

/// See [`Order::wake`](crate::engine::order::Order::wake).
pub fn wake(t: &mut Block, address: *const u32, n: u32, shared: bool) {
    match t.det().in_turn {
        true => {
            super::wait::wake(address as u64, n);
        }
        false => waits::wake(address, n, shared),
    }
}

/// See [`Order::pause`](crate::engine::order::Order::pause).
#[inline(always)]
pub fn pause(t: &mut Block) {
    match t.det().in_turn {
        true => turns::give_way(t),
        false => core::hint::spin_loop(),
    }
}

/// See [`Order::interrupted_by`](crate::engine::order::Order::interrupted_by). The log says it in a replay.
pub fn interrupted_by(t: &mut Block) -> Option<u32> {
    let first = log::told(t, question::SIGNAL, |t| {
        t.pending.first(t.mask).map_or(0, |s| s.signal().into())
    });
    (first != 0).then_some(first as u32)
}
