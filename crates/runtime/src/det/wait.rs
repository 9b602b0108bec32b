//! Waiting for a word of the program to change (DThreads 4.3): sleepers are woken in the order in which they came, and a time that runs out does
//! so when nobody else can go on.

use super::token::{self, member};
use super::turns;
use crate::capture::Call;
use crate::guard;
use crate::sync::wait::Wait;
use crate::thread::Block;
use core::sync::atomic::Ordering::*;

const EAGAIN: i64 = -11;
const EFAULT: i64 = -14;
const EINTR: i64 = -4;
const ENOSYS: i64 = -38;
const ETIMEDOUT: i64 = -110;

/// In a turn: waits on the word at this address. `deadline`: in ns of its clock; 0: none.
pub fn wait(t: &mut Block, address: u64, deadline: u64) -> Wait {
    let m = member(t.slot);
    m.since.store(token::wait_number(), Relaxed);
    m.deadline.store(deadline, Relaxed);
    m.timed_out.store(false, Relaxed);
    m.word.store(address, Relaxed);
    turns::give_up(t);
    match m.timed_out.load(Relaxed) {
        true => Wait::TimedOut,
        false => Wait::Woken,
    }
}

/// Who has waited longest on the word at this address.
fn first(address: u64) -> Option<u32> {
    let all = token::waiting().filter(|s| member(*s).word.load(Relaxed) == address);
    all.min_by_key(|s| member(*s).since.load(Relaxed))
}

/// In a turn: wakes up to `n` that wait on the word at this address; how many they were.
pub fn wake(address: u64, n: u32) -> u32 {
    for woken in 0..n {
        let Some(slot) = first(address) else {
            return woken;
        };
        token::recall(slot);
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
            let mut deadline = 0;
            if time != 0 {
                let Some([sec, nsec]) = guard::read::<[i64; 2]>(time) else {
                    return EFAULT;
                };
                deadline = (sec.saturating_mul(1_000_000_000).saturating_add(nsec) as u64).max(1);
            }
            if t.pending.first(t.mask).is_some() {
                return EINTR;
            }
            match wait(t, address, deadline) {
                Wait::TimedOut => ETIMEDOUT,
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
