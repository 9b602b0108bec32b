//! Waiting for a word of the program to change (DThreads 4.3): sleepers are woken in the order in which they came, and a time that runs out does
//! so when nobody else can go on.

use super::pure::clock;
use super::token::{self, member, state, why};
use super::{log, rest, turns};
use crate::capture::Call;
use crate::guard;
use crate::sync::wait::Wait;
use crate::sys::Timespec;
use crate::thread::Block;
use core::sync::atomic::Ordering::*;

const EAGAIN: i64 = -11;
const EFAULT: i64 = -14;
const EINTR: i64 = -4;
const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;
const ETIMEDOUT: i64 = -110;

/// In a turn: waits on the word at this address (0: for a signal only). `end`: how long, in ns of the monotonic clock.
pub fn wait(t: &mut Block, address: u64, end: Option<i64>) -> Wait {
    if let Some(end) = end {
        rest::limit(t.slot, end);
    }
    limited(t, address)
}

/// As [`wait`], for so many ns at most.
pub fn wait_for(t: &mut Block, address: u64, ns: u64) -> Wait {
    rest::limit_for(t.slot, ns);
    limited(t, address)
}

fn limited(t: &mut Block, address: u64) -> Wait {
    let m = member(t.slot);
    if log::signal_waits(t) {
        m.deadline.store(0, Relaxed);
        log::is_due(t);
        return Wait::Signal;
    }
    m.since.store(token::wait_number(), Relaxed);
    m.word.store(address, Relaxed);
    match turns::give_up(t) {
        why::TIMED_OUT => {
            rest::wait_out(t.slot);
            Wait::TimedOut
        }
        why::SIGNAL => {
            log::is_due(t);
            Wait::Signal
        }
        _ => Wait::Woken,
    }
}

/// Who has waited longest on the word at this address.
fn first(address: u64) -> Option<u32> {
    let all = token::all_in(state::WAITS).filter(|s| member(*s).word.load(Relaxed) == address);
    all.min_by_key(|s| member(*s).since.load(Relaxed))
}

/// In a turn: wakes up to `n` that wait on the word at this address; how many they were.
pub fn wake(address: u64, n: u32) -> u32 {
    for woken in 0..n {
        let Some(slot) = first(address) else {
            return woken;
        };
        token::recall(slot, why::WOKEN);
    }
    n
}

/// In a turn: those who wait at `from` wait at `to` from now on.
fn move_waiters(from: u64, to: u64, n: u32) -> u32 {
    for moved in 0..n {
        let Some(slot) = first(from) else {
            return moved;
        };
        member(slot).word.store(to, Relaxed);
    }
    n
}

/// futex(2), in a turn.
pub fn futex(t: &mut Block, c: &Call) -> i64 {
    const WAIT: u32 = 0;
    const WAKE: u32 = 1;
    const REQUEUE: u32 = 3;
    const CMP_REQUEUE: u32 = 4;
    const WAIT_BITSET: u32 = 9;
    const WAKE_BITSET: u32 = 10;
    /// FUTEX_CLOCK_REALTIME
    const REALTIME: u64 = 256;
    let [address, _, value, time, other, value3] = c.args;
    let compare = |wanted: u32| match guard::read::<u32>(address) {
        None => Some(EFAULT),
        Some(v) if v != wanted => Some(EAGAIN),
        Some(_) => None,
    };
    match crate::serial::futex::command(c) {
        WAIT | WAIT_BITSET => {
            if let Some(e) = compare(value as u32) {
                return e;
            }
            if address == 0 {
                return EFAULT;
            }
            let relative = crate::serial::futex::command(c) == WAIT;
            let waited = match time {
                0 => wait(t, address, None),
                _ => {
                    let Some(end) = guard::read::<Timespec>(time) else {
                        return EFAULT;
                    };
                    if end.sec < 0 || !(0..1_000_000_000).contains(&end.nsec) {
                        return EINVAL;
                    }
                    match relative {
                        true => wait_for(t, address, end.ns() as u64),
                        false => {
                            let end = clock::in_monotonic(end.ns(), c.args[1] & REALTIME != 0);
                            wait(t, address, Some(end))
                        }
                    }
                }
            };
            match waited {
                Wait::TimedOut => ETIMEDOUT,
                Wait::Signal if time != 0 => EINTR,
                Wait::Signal => super::calls::interrupted(t, c),
                _ => 0,
            }
        }
        WAKE | WAKE_BITSET => wake(address, value as u32) as i64,
        op @ (REQUEUE | CMP_REQUEUE) => {
            if op == CMP_REQUEUE {
                if let Some(e) = compare(value3 as u32) {
                    return e;
                }
            }
            let woken = wake(address, value as u32);
            (woken + move_waiters(address, other, time as u32)) as i64
        }
        _ => ENOSYS,
    }
}
