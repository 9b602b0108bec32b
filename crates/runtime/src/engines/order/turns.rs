//! Replay: waiting for one's turn. What has a turn is a stamp, or the next operation on an object.
//!
//! A thread first looks again and again for a short while, since most turns come at once; a shorter one where there are more threads awake than
//! processors, for whoever it waits for may need its own. Then it sleeps in the room that the number it waits for has, of the thing it waits for, and
//! whoever lets the thing go on calls into the room of the next number. Several things share a room: who is woken looks for itself.

use super::Local;
use crate::common::report::add_functions;
use crate::log::awaited::{begin_wait, call};
use crate::log::total;
use crate::machine::processors::processors;
use crate::machine::sys;
use crate::thread::rings::head;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::order::MAX_VOID;
use reprise_abi::waits::What;

/// Rounds of looking before a thread sleeps, at least, ...
const LEAST_SPINS: u32 = 32;
/// ... and at most.
const MOST_SPINS: u32 = 4000;
/// Every so many waits it tries anew whether that many pay off.
const ANEW: u32 = 16;
/// A sleeper looks after this many nanoseconds whether the driver is still there.
const LONGEST_NAP: i64 = 1_000_000_000;

/// Are there more threads awake than processors?
fn is_crowded() -> bool {
    let live = session().live_threads.load(Relaxed);
    live.saturating_sub(head().sleeping.load(Relaxed)) > processors()
}

/// Waits until `due` says so; `key` is what [`call`] will name.
pub fn wait(t: &mut Block, key: u64, due: impl FnMut() -> bool) {
    wait_for(t, key, 0, due);
}

/// As [`wait`], for the moment when so many operations on the object have been made: [`call_for`](crate::log::awaited::call_for) will name their number.
#[inline]
pub fn wait_for(t: &mut Block, key: u64, n: u64, mut due: impl FnMut() -> bool) {
    if !due() {
        wait_long(t, key, n, due);
    } else if total::runs() {
        total::goes_on();
    }
}

/// Looks for a while: as long as that has paid off lately. On a processor of its own a thread finds its turn come soon nearly always, and hardly
/// ever where the one that it waits for needs the same processor.
fn comes_soon(o: &mut Local, due: &mut impl FnMut() -> bool) -> bool {
    o.waits = o.waits.wrapping_add(1);
    let patience = match o.waits % ANEW {
        0 => MOST_SPINS,
        _ => o.patience.clamp(LEAST_SPINS, MOST_SPINS),
    };
    for n in 1..=patience {
        if due() {
            o.patience = (o.patience + o.patience / 4).clamp(2 * n, 2 * MOST_SPINS);
            return true;
        }
        if n % LEAST_SPINS == 0 && is_crowded() {
            return false;
        }
        core::hint::spin_loop();
    }
    o.patience /= 2;
    false
}

fn wait_long(t: &mut Block, key: u64, n: u64, mut due: impl FnMut() -> bool) {
    let mut total = total::runs();
    if !total && comes_soon(t.order(), &mut due) {
        return;
    }
    let waits = begin_wait(key, n);
    let mut has_added = false;
    let due = || {
        if !has_added && session().divergence.all_to_add.load(SeqCst) != 0 {
            has_added = true;
            add_functions(t);
        }
        due()
    };
    waits.until(due, |generation| {
        if total {
            total::give_way();
            return;
        }
        let word = waits.word().as_ptr();
        let until = sys::Timespec::from_ns(sys::monotonic().ns() + LONGEST_NAP);
        head().sleep_counted(|| sys::futex_wait(word, generation, Some(&until)) == 0);
        if !crate::thread::namespace::agent_lives() {
            sys::exit_group(125);
        }
        total = total::runs();
        total::begin_asleep();
    });
    if total {
        total::goes_on();
    }
}

/// Waits for the turn of a stamp.
pub fn wait_for_stamp(t: &mut Block, stamp: u64) {
    let now = &head().stamp.0;
    wait(t, What::Stamp(stamp).key(), || now.load(SeqCst) == stamp);
}

/// Waits for the turn of a stamp, and lets the next one have its.
pub fn take(t: &mut Block, stamp: u64) {
    wait_for_stamp(t, stamp);
    pass_stamp(stamp);
}

/// The turn of this stamp, which was the calling thread's, is over.
pub fn pass_stamp(stamp: u64) {
    let h = head();
    let mut next = stamp + 1;
    while is_void(next) {
        next += 1;
    }
    h.stamp.0.store(next, SeqCst);
    call(What::Stamp(next).key());
}

/// Was this stamp drawn without ever being logged?
fn is_void(stamp: u64) -> bool {
    let h = head();
    let n = (h.voids.load(Relaxed) as usize).min(MAX_VOID);
    n != 0
        && h.void[..n]
            .binary_search_by_key(&stamp, |v| v.load(Relaxed))
            .is_ok()
}
