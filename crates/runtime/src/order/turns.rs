//! Replay: waiting for one's turn. What has a turn is a stamp, or the next operation on an object.
//!
//! A thread first looks again and again for a short while, since most turns come at once; then it sleeps in the room that the thing it waits
//! for has, and whoever lets the thing go on calls into that room. Several things share a room: who is woken looks for itself.

use super::{head, total};
use crate::sys;
use crate::thread::current;
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::order::{WaitingRoom, MAX_VOID, WAITING_WORDS};

/// Rounds of looking before a thread sleeps.
const SPINS: u32 = 2000;
/// A sleeper looks again after this many nanoseconds, called or not.
const LONGEST_NAP: i64 = 50_000_000;

fn room(key: u64) -> &'static WaitingRoom {
    &head().rooms[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % WAITING_WORDS]
}

/// Address of the room that those wait in who wait for `key`.
pub fn room_of(key: u64) -> u64 {
    room(key) as *const WaitingRoom as u64
}

/// A room in which somebody always waits: who asks whether to call goes the long way.
static NEVER_EMPTY: WaitingRoom = WaitingRoom {
    generation: AtomicU32::new(0),
    waiting: AtomicU32::new(1),
};

/// Its address.
pub fn room_never_empty() -> u64 {
    &NEVER_EMPTY as *const WaitingRoom as u64
}

/// Waits until `due` says so; `key` is what [`call`] will name.
pub fn wait(key: u64, mut due: impl FnMut() -> bool) {
    if total::runs() {
        while !due() {
            total::give_way(current());
        }
        return total::goes_on();
    }
    for _ in 0..SPINS {
        if due() {
            return;
        }
        core::hint::spin_loop();
    }
    let r = room(key);
    r.waiting.fetch_add(1, SeqCst);
    loop {
        let generation = r.generation.load(SeqCst);
        if due() {
            break;
        }
        let until = sys::Timespec::from_ns(sys::monotonic().ns() + LONGEST_NAP);
        sys::futex_wait(r.generation.as_ptr(), generation, Some(&until));
        if !crate::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
    r.waiting.fetch_sub(1, SeqCst);
}

/// Those who wait for `key` look again.
pub fn call(key: u64) {
    let r = room(key);
    if r.waiting.load(SeqCst) != 0 {
        r.generation.fetch_add(1, SeqCst);
        sys::futex_wake(r.generation.as_ptr(), i32::MAX as u32);
    }
}

/// Waits for the turn of a stamp.
pub fn wait_for_stamp(stamp: u64) {
    let now = &head().stamp.0;
    wait(stamp, || now.load(SeqCst) == stamp);
}

/// Waits for the turn of a stamp, and lets the next one have its.
pub fn take(stamp: u64) {
    wait_for_stamp(stamp);
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
    call(next);
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
