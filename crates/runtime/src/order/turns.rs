//! Replay: waiting for one's turn. What has a turn is a stamp, or the next operation on an object.
//!
//! A thread first looks again and again for a short while, since most turns come at once; a shorter one where there are more threads awake than
//! processors, for whoever it waits for may need its own. Then it sleeps in the room that the number it waits for has, of the thing it waits for, and
//! whoever lets the thing go on calls into the room of the next number. Several things share a room: who is woken looks for itself.

use super::{head, total, Local};
use crate::serial::report::add_functions;
use crate::sys;
use crate::thread::{current, session, slot};
use core::mem::{offset_of, size_of, size_of_val};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::order::{OrderHead, WaitingRoom, MAX_VOID, ORDER_BASE};
use reprise_abi::syscalls::nr;
use reprise_abi::waits::{Awaited, What, ROOM_FACTOR, ROOM_SHIFT};

/// Rounds of looking before a thread sleeps, at least, ...
const LEAST_SPINS: u32 = 32;
/// ... and at most.
const MOST_SPINS: u32 = 4000;
/// Every so many waits it tries anew whether that many pay off.
const ANEW: u32 = 16;
/// A sleeper looks after this many nanoseconds whether the driver is still there.
const LONGEST_NAP: i64 = 1_000_000_000;

/// The room of a key is found by this: the highest bits of the product.
pub const FACTOR: u64 = ROOM_FACTOR;
/// See [`FACTOR`].
pub const SHIFT: u32 = ROOM_SHIFT;
const _: () = assert!(size_of::<WaitingRoom>() == 8);

/// What those wait for who wait for a shard. It has a room of its own.
pub fn key_of_shard(number: u32) -> u64 {
    What::Shard(number).key()
}

/// How many processors this process may use.
pub fn processors() -> u32 {
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    let known = KNOWN.load(Relaxed);
    if known != 0 {
        return known;
    }
    let mut mask = [0u64; 128];
    let size = size_of_val(&mask);
    sys::call(
        nr::SCHED_GETAFFINITY,
        &[0, size as u64, mask.as_mut_ptr() as u64],
    );
    let n = mask.iter().map(|w| w.count_ones()).sum::<u32>().max(1);
    KNOWN.store(n, Relaxed);
    n
}

/// Are there more threads awake than processors?
fn is_crowded() -> bool {
    let live = session().live_threads.load(Relaxed);
    live.saturating_sub(head().sleeping.load(Relaxed)) > processors()
}

/// Address of the first room.
pub const fn rooms() -> u64 {
    ORDER_BASE + offset_of!(OrderHead, rooms) as u64
}

/// The calling thread waits, until this is dropped, and has said so ([`reprise_abi::waits`]).
///
/// It is counted in the room of what it waits for, and sleeps in the one of the number that it waits for: who makes an operation wakes him whose
/// turn is next, not all that wait for theirs on the same object. In that room it is counted, too, so that nobody is called who isn't there.
pub struct Waits {
    key: u64,
    counted: [&'static WaitingRoom; 2],
    room: u32,
    generation: &'static AtomicU32,
    told: &'static Awaited,
}

impl Waits {
    /// It begins to wait for `key`, until so many operations have been made on it.
    pub fn new(key: u64, n: u64) -> Waits {
        let h = head();
        let (room, generation) = h.bed(key, n);
        let w = Waits {
            key,
            counted: [h.room(key), &h.rooms[room as usize]],
            room,
            generation,
            told: &h.waits[current().slot as usize],
        };
        for room in w.counted {
            room.waiting.fetch_add(1, SeqCst);
        }
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
        for room in self.counted {
            room.waiting.fetch_sub(1, SeqCst);
        }
    }
}

/// The calling thread looks again and again, of which nobody has to tell it, until this is dropped.
pub struct Looks(&'static Awaited);

impl Looks {
    /// It begins to.
    pub fn begin() -> Looks {
        let told = &head().waits[current().slot as usize];
        told.begin();
        Looks(told)
    }

    /// It is to find that this word has another value, and has looked in vain.
    pub fn at(&self, word: &AtomicU32, value: u32) {
        let key = What::Value(word.as_ptr() as u64).key();
        self.0.sleeps(key, 0, value);
        self.0.looked();
    }

    /// It is to find that the thread which has slot `i` now has done all that was recorded of it.
    pub fn until_done(&self, i: u32) {
        let born = slot(i).born.load(SeqCst);
        self.0.sleeps(What::Done(i).key(), 0, born as u32);
    }

    /// It is to find that this one is gone.
    pub fn until_gone(&self, i: u32) {
        let born = slot(i).born.load(SeqCst);
        self.0.sleeps(What::Gone(i).key(), 0, born as u32);
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Waits until `due` says so; `key` is what [`call`] will name.
pub fn wait(key: u64, due: impl FnMut() -> bool) {
    wait_for(key, 0, due);
}

/// As [`wait`], for the moment when so many operations on the object have been made: [`call_for`] will name their number.
#[inline]
pub fn wait_for(key: u64, n: u64, mut due: impl FnMut() -> bool) {
    if !due() {
        wait_long(key, n, due);
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

fn wait_long(key: u64, n: u64, mut due: impl FnMut() -> bool) {
    let mut total = total::runs();
    if !total && comes_soon(&mut current().order, &mut due) {
        return;
    }
    let waits = Waits::new(key, n);
    let mut has_added = false;
    loop {
        if !has_added && session().divergence.all_to_add.load(SeqCst) != 0 {
            has_added = true;
            add_functions(current());
        }
        let generation = waits.generation();
        if due() {
            break;
        }
        waits.sleeps(generation);
        if total {
            total::give_way(current());
            continue;
        }
        let (word, sleeping) = (waits.generation.as_ptr(), &head().sleeping);
        let until = sys::Timespec::from_ns(sys::monotonic().ns() + LONGEST_NAP);
        sleeping.fetch_add(1, Relaxed);
        if sys::futex_wait(word, generation, Some(&until)) != 0 {
            // Nobody has counted it as awake.
            sleeping.fetch_sub(1, Relaxed);
        }
        if !crate::namespace::agent_lives() {
            sys::exit_group(125);
        }
        total = total::runs();
        total::begin_asleep();
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
#[inline]
pub fn call_for(key: u64, n: u64) {
    let h = head();
    if h.room(key).waiting.load(SeqCst) != 0 {
        let (bed, word) = h.bed(key, n);
        word.fetch_add(1, SeqCst);
        if !total::runs() && h.rooms[bed as usize].waiting.load(SeqCst) != 0 {
            let woken = sys::futex_wake_all(word.as_ptr());
            // At once: until they have a processor, those who look should leave them one.
            h.sleeping.fetch_sub(woken, Relaxed);
        }
    }
}

/// Those who sleep on the word at this address in a hooked function are woken, or about to be: they don't wait in vain any more.
pub fn tell_woken(address: u64) {
    let (h, key) = (head(), What::Word(address).key());
    if h.room(key).waiting.load(SeqCst) != 0 {
        h.bed(key, 0).1.fetch_add(1, SeqCst);
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
