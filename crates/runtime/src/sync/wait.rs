//! Waiting on a word of the program, by the kernel's futexes.

use super::error::{EINVAL, ETIMEDOUT};
use crate::asm::rt_blocking;
use crate::det::clock::Moment;
use crate::det::log;
use crate::det::pure::{self, clock};
use crate::det::wait::Word;
use crate::engine::{ENGINE, ORDER_RECORD, ORDER_REPLAY};
use crate::order::turns::{self, Looks, Waits};
use crate::order::{self, total};
use crate::signal::kernel::first_waiting;
use crate::sys::{self, Timespec};
use crate::thread::{current, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::det::question;
use reprise_abi::syscalls::nr;
use reprise_abi::waits::What;

const FUTEX_WAKE: u64 = 1;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_PRIVATE: u64 = 128;
const FUTEX_REALTIME: u64 = 256;
/// `CLOCK_REALTIME`
pub const REALTIME: u32 = 0;
/// `CLOCK_MONOTONIC`
pub const MONOTONIC: u32 = 1;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Somebody woke this thread, or the kernel did for no reason.
    Woken,
    /// The word had another value from the beginning.
    Changed,
    /// It is too late.
    TimedOut,
    /// A signal waits for delivery.
    Signal,
}

/// When waiting ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    realtime: bool,
    at: Timespec,
    /// Then the thread only looks again.
    looks: bool,
}

impl Deadline {
    /// From what the program gives: `EINVAL` when it is none, `ETIMEDOUT` when it lies before all time.
    pub fn new(clock: u32, address: u64) -> Result<Deadline, u32> {
        if clock > MONOTONIC {
            return Err(EINVAL);
        }
        // SAFETY: the program's pointer: a fault is the program's.
        let at = unsafe { core::ptr::read_volatile(address as *const Timespec) };
        if !(0..1_000_000_000).contains(&at.nsec) {
            return Err(EINVAL);
        }
        if at.sec < 0 {
            return Err(ETIMEDOUT);
        }
        Ok(Deadline {
            realtime: clock == REALTIME,
            at,
            looks: false,
        })
    }

    /// A millisecond from now, for a thread that then looks again.
    pub fn soon() -> Deadline {
        Deadline {
            realtime: false,
            at: Timespec::from_ns(clock::monotonic() + 1_000_000),
            looks: true,
        }
    }
}

/// Waits while the word has this value. `shared`: others than threads of this process may wake.
///
/// In a replay who waits for no certain time says so: if all wait, that is the end.
pub fn wait(
    t: &mut Block,
    word: &AtomicU32,
    value: u32,
    deadline: Option<&Deadline>,
    shared: bool,
) -> Wait {
    if t.det.in_turn {
        let moment = |d: &Deadline| Moment {
            ns: d.at.ns(),
            realtime: d.realtime,
        };
        let on = Word::new(word.as_ptr() as u64, value);
        return crate::det::wait::wait(t, on, deadline.map(moment));
    }
    if let Some(d) = deadline.filter(|_| pure::on()) {
        let until = clock::of_monotonic(clock::in_monotonic(d.at.ns(), d.realtime));
        return pure::sleep::wait(t, word, value, until, shared);
    }
    if log::follows(t) {
        let ask = |t: &mut Block| in_kernel(t, word, value, deadline, shared) as i64;
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
    in_kernel(t, word, value, deadline, shared)
}

/// As [`wait`], where threads are the kernel's.
fn in_kernel(
    t: &mut Block,
    word: &AtomicU32,
    value: u32,
    deadline: Option<&Deadline>,
    shared: bool,
) -> Wait {
    let others_may_wake = || crate::det::outer::is_shared(word.as_ptr() as u64);
    if deadline.is_none() && crate::det::is_alone() && !others_may_wake() {
        crate::det::deadlock::report();
    }
    let tells = deadline.is_none_or(|d| d.looks) && ENGINE.load(Relaxed) == ORDER_REPLAY;
    // Whoever wakes one of another process, or one that looks for more than the word, tells nobody.
    let is_told = !shared && deadline.is_none();
    let looks = (tells && !is_told).then(Looks::begin);
    if let Some(looks) = &looks {
        if word.load(SeqCst) != value {
            return Wait::Changed;
        }
        looks.at(word, value);
    }
    let soon = (looks.is_some() && deadline.is_none()).then(Deadline::soon);
    let waits = (tells && is_told).then(|| Waits::new(What::Word(word.as_ptr() as u64).key(), 0));
    if let Some(w) = &waits {
        let generation = w.generation();
        if word.load(SeqCst) != value {
            return Wait::Changed;
        }
        w.sleeps(generation);
    }
    if total::runs() {
        total::give_way(t);
        return Wait::Woken;
    }
    if ENGINE.load(Relaxed) == ORDER_RECORD {
        order::record::waits(t);
    }
    let mut op = FUTEX_WAIT_BITSET;
    if !shared {
        op |= FUTEX_PRIVATE;
    }
    let mut time = 0;
    if let Some(d) = deadline.or(soon.as_ref()) {
        time = &d.at as *const Timespec as u64;
        if d.realtime {
            op |= FUTEX_REALTIME;
        }
    }
    let args = [
        word.as_ptr() as u64,
        op,
        value as u64,
        time,
        0,
        u32::MAX as u64,
    ];
    loop {
        // SAFETY: the kernel only reads the word.
        let r = unsafe { rt_blocking(nr::FUTEX, &args, t.pending_word as *const u32) };
        total::begin_asleep();
        match r {
            -110 if soon.is_none() => return Wait::TimedOut,
            -11 => return Wait::Changed,
            -4 | -512 if first_waiting(t).is_some() => return Wait::Signal,
            -512 => {}
            // It was the engine's own signal: nobody has woken this thread.
            -4 if crate::det::spin::has_interrupted(t) => {}
            _ => return Wait::Woken,
        }
    }
}

/// Wakes up to `n` that wait on the word at this address, which may be gone by now.
pub fn wake(address: *const u32, mut n: u32, shared: bool) {
    if ENGINE.load(Relaxed) == ORDER_REPLAY {
        turns::tell_woken(address as u64);
        // Of those who have said that they wait, none may be left for whom that is not so any more.
        n = if shared { n } else { EVERYBODY };
    }
    if crate::det::runs() && current().det.in_turn {
        crate::det::wait::wake(address as u64, n);
        return;
    }
    let op = FUTEX_WAKE | if shared { 0 } else { FUTEX_PRIVATE };
    sys::call(nr::FUTEX, &[address as u64, op, n as u64]);
}

/// All of them.
pub const EVERYBODY: u32 = i32::MAX as u32;

/// A moment in which another processor may do something.
#[inline(always)]
pub fn pause() {
    if crate::det::runs() && current().det.in_turn {
        crate::det::turns::give_way(current());
    } else if total::runs() {
        total::give_way(current());
    } else {
        core::hint::spin_loop();
    }
}
