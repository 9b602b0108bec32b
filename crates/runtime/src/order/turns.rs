//! Replay: waiting for one's turn. What has a turn is a stamp, or the next operation on an object.
//!
//! A thread first looks again and again for a short while, since most turns come at once; then it sleeps in the room that the thing it waits
//! for has, and whoever lets the thing go on calls into that room. Several things share a room: who is woken looks for itself.

use super::{head, total};
use crate::sys;
use crate::thread::current;
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::order::{WaitingRoom, MAX_VOID};
use reprise_abi::waits::{Awaited, What};

/// Rounds of looking before a thread sleeps.
const SPINS: u32 = 2000;
/// A sleeper looks after this many nanoseconds whether the driver is still there.
const LONGEST_NAP: i64 = 1_000_000_000;

fn room(key: u64) -> &'static WaitingRoom {
    head().room(key)
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

/// The calling thread waits, until this is dropped, and has said so ([`reprise_abi::waits`]).
///
/// It is counted in the room of what it waits for, and sleeps in the one of the number that it waits for: who makes an operation wakes him whose
/// turn is next, not all that wait for theirs on the same object.
pub struct Waits {
    key: u64,
    counted: &'static WaitingRoom,
    room: u32,
    generation: &'static AtomicU32,
    told: &'static Awaited,
}

impl Waits {
    /// It begins to wait for `key`, until so many operations have been made on it.
    pub fn new(key: u64, n: u64) -> Waits {
        let (bed, generation) = head().bed(key, n);
        let w = Waits {
            key,
            counted: room(key),
            room: bed,
            generation,
            told: &head().waits[current().slot as usize],
        };
        w.counted.waiting.fetch_add(1, SeqCst);
        w.told.begin();
        w
    }

    /// What [`call_for`] changes. To be read before the thread looks.
    pub fn generation(&self) -> u32 {
        self.generation.load(SeqCst)
    }

    /// The thread has looked in vain after it had read this generation, and is about to sleep.
    pub fn sleeps(&self, generation: u32) {
        self.told.sleeps(self.key, self.room, generation);
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.told.end();
        self.counted.waiting.fetch_sub(1, SeqCst);
    }
}

/// Waits until `due` says so; `key` is what [`call`] will name.
pub fn wait(key: u64, due: impl FnMut() -> bool) {
    wait_for(key, 0, due);
}

/// As [`wait`], for the moment when so many operations on the object have been made: [`call_for`] will name their number.
pub fn wait_for(key: u64, n: u64, mut due: impl FnMut() -> bool) {
    let total = total::runs();
    for _ in 0..if total { 1 } else { SPINS } {
        if due() {
            if total {
                total::goes_on();
            }
            return;
        }
        core::hint::spin_loop();
    }
    let waits = Waits::new(key, n);
    loop {
        let generation = waits.generation();
        if due() {
            break;
        }
        waits.sleeps(generation);
        if total {
            total::give_way(current());
            continue;
        }
        let until = sys::Timespec::from_ns(sys::monotonic().ns() + LONGEST_NAP);
        sys::futex_wait(waits.generation.as_ptr(), generation, Some(&until));
        if !crate::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
    if total {
        total::goes_on();
    }
}

/// Those who wait for `key` look again.
pub fn call(key: u64) {
    call_for(key, 0);
}

/// Operation `n` on the object was made: those who [wait for it](wait_for) look again, and may not find that it is the last one any more.
pub fn call_for(key: u64, n: u64) {
    if room(key).waiting.load(SeqCst) != 0 {
        let word = head().bed(key, n).1;
        word.fetch_add(1, SeqCst);
        if !total::runs() {
            sys::futex_wake(word.as_ptr(), i32::MAX as u32);
        }
    }
}

/// Those who sleep on the word at this address in a hooked function are woken, or about to be: they don't wait in vain any more.
pub fn tell_woken(address: u64) {
    let key = What::Word(address).key();
    if room(key).waiting.load(SeqCst) != 0 {
        let word = head().bed(key, 0).1;
        word.fetch_add(1, SeqCst);
    }
}

/// Waits for the turn of a stamp.
pub fn wait_for_stamp(stamp: u64) {
    let now = &head().stamp.0;
    wait(What::Stamp(stamp).key(), || now.load(SeqCst) == stamp);
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
