//! Waiting for a word of the program to change (DThreads 4.3): sleepers are woken in the order in which they came, and a time that runs out does
//! so when nobody else can go on.

use super::clock::{self as readings, Moment};
use super::pure::{self, clock};
use super::token::{self, member, state, why};
use super::{idle, log, shared_word, turns};
use crate::engine::waits::Wait;
use crate::isolate::shared_signals;
use crate::machine::guard;
use crate::machine::sys::Timespec;
use crate::memory::capture::Call;
use crate::thread::Block;
use core::sync::atomic::Ordering::*;

const EAGAIN: i64 = -11;
const EFAULT: i64 = -14;
const EINTR: i64 = -4;
const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;
const ETIMEDOUT: i64 = -110;

/// A word that a thread waits on.
#[derive(Clone, Copy)]
pub struct Word {
    /// Its address; 0: it waits for a signal only.
    pub address: u64,
    /// What it was when that was decided.
    pub value: u32,
    /// Which wake-ups are for the thread.
    pub bits: u32,
}

impl Word {
    /// No word: only a signal ends the wait.
    pub const NONE: Word = Word::new(0, 0);

    /// With any wake-up.
    pub const fn new(address: u64, value: u32) -> Word {
        let bits = u32::MAX;
        Word {
            address,
            value,
            bits,
        }
    }
}

/// In a turn: waits on this word. `end`: how long.
pub fn wait(t: &mut Block, word: Word, end: Option<Moment>) -> Wait {
    if let Some(end) = end {
        match pure::on() {
            true => idle::limit(t, clock::in_monotonic(end.ns, end.realtime)),
            false => readings::limit(t, end),
        }
    }
    limited(t, word)
}

/// As [`wait`], for so many ns at most.
pub fn wait_for(t: &mut Block, word: Word, ns: u64) -> Wait {
    idle::limit_for(t, ns);
    limited(t, word)
}

fn limited(t: &mut Block, word: Word) -> Wait {
    let m = member(t.slot);
    // In a turn that was kept nobody has looked for them.
    shared_signals::take(t);
    if log::signal_waits(t) {
        m.deadline.store(0, Relaxed);
        log::is_due(t);
        return Wait::Signal;
    }
    m.since.store(token::wait_number(), Relaxed);
    m.word.store(word.address, Relaxed);
    m.bits.store(word.bits, Relaxed);
    shared_word::begins(m, &word);
    let why = turns::give_up(t);
    let changed = shared_word::ends(m, &word);
    match why {
        why::TIMED_OUT => {
            idle::wait_out(t.slot);
            Wait::TimedOut
        }
        why::SIGNAL if changed && !idle::signal_waits(t) => Wait::Woken,
        why::SIGNAL => {
            log::is_due(t);
            Wait::Signal
        }
        _ => Wait::Woken,
    }
}

/// Who has waited longest on the word at this address, for a wake-up with one of these bits.
fn first(address: u64, bits: u32) -> Option<u32> {
    let waits = |s: &u32| {
        let m = member(*s);
        m.word.load(Relaxed) == address && m.bits.load(Relaxed) & bits != 0
    };
    let all = token::all_in(state::WAITS).filter(waits);
    all.min_by_key(|s| member(*s).since.load(Relaxed))
}

/// In a turn: wakes up to `n` that wait on the word at this address; how many they were.
pub fn wake(address: u64, n: u32) -> u32 {
    wake_some(address, n, u32::MAX)
}

/// As [`wake`], of those that wait for one of these bits.
fn wake_some(address: u64, n: u32, bits: u32) -> u32 {
    for woken in 0..n {
        let Some(slot) = first(address, bits) else {
            return woken + shared_word::wake(address, n - woken, bits);
        };
        token::recall(slot, why::WOKEN);
    }
    n
}

/// In a turn: those who wait at `from` wait at `to` from now on.
fn move_waiters(from: u64, to: u64, n: u32) -> u32 {
    for moved in 0..n {
        let Some(slot) = first(from, u32::MAX) else {
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
    const WAKE_OP: u32 = 5;
    const WAIT_BITSET: u32 = 9;
    const WAKE_BITSET: u32 = 10;
    let [address, _, value, count, other, value3] = c.args;
    let (n, last) = (value as u32, value3 as u32);
    if address % 4 != 0 {
        return EINVAL;
    }
    match crate::memory::futex::command(c) {
        WAIT => waits(t, c, Word::new(address, n)),
        WAIT_BITSET | WAKE_BITSET if last == 0 => EINVAL,
        WAIT_BITSET => {
            let word = Word::new(address, n);
            waits(t, c, Word { bits: last, ..word })
        }
        WAKE => wake(address, n).into(),
        WAKE_BITSET => wake_some(address, n, last).into(),
        CMP_REQUEUE if differs(address, last).is_some() => differs(address, last).unwrap_or(0),
        REQUEUE | CMP_REQUEUE => {
            let woken = wake(address, n);
            i64::from(woken + move_waiters(address, other, count as u32))
        }
        WAKE_OP => {
            let Some(old) = guard::read::<u32>(other) else {
                return EFAULT;
            };
            let Some((new, fits)) = crate::memory::futex::wake_op(last, old) else {
                return ENOSYS;
            };
            if !guard::write(other, &new) {
                return EFAULT;
            }
            let woken = wake(address, n);
            let others = if fits { wake(other, count as u32) } else { 0 };
            i64::from(woken + others)
        }
        _ => ENOSYS,
    }
}

/// Why nobody waits on this word, if it has another value.
fn differs(address: u64, wanted: u32) -> Option<i64> {
    match guard::read::<u32>(address) {
        None => Some(EFAULT),
        Some(v) if v != wanted => Some(EAGAIN),
        Some(_) => None,
    }
}

/// FUTEX_WAIT and FUTEX_WAIT_BITSET.
fn waits(t: &mut Block, c: &Call, word: Word) -> i64 {
    const WAIT: u32 = 0;
    /// FUTEX_CLOCK_REALTIME
    const REALTIME: u64 = 256;
    if let Some(e) = differs(word.address, word.value) {
        return e;
    }
    if word.address == 0 {
        return EFAULT;
    }
    let time = c.args[3];
    let waited = match time {
        0 => wait(t, word, None),
        _ => {
            let Some(end) = guard::read::<Timespec>(time) else {
                return EFAULT;
            };
            if end.sec < 0 || !(0..1_000_000_000).contains(&end.nsec) {
                return EINVAL;
            }
            match crate::memory::futex::command(c) {
                WAIT => wait_for(t, word, end.ns() as u64),
                _ => {
                    let (ns, realtime) = (end.ns(), c.args[1] & REALTIME != 0);
                    wait(t, word, Some(Moment { ns, realtime }))
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
