//! Replay: waiting for one's turn. What has a turn is a stamp, or the next operation on an object.
//!
//! A thread first looks again and again for a short while, since most turns come at once; a shorter one where there are more threads awake than
//! processors, for whoever it waits for may need its own. Then it sleeps in the room that the thing it waits for has, and whoever lets the
//! thing go on calls into that room, if he can only those whose turn it is. Several things share a room: who is woken looks for itself.

use super::{head, total, Local};
use crate::sys;
use crate::thread::{current, session};
use core::mem::{offset_of, size_of, size_of_val};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::order::{OrderHead, WaitingRoom, MAX_VOID, ORDER_BASE, SHARDS, WAITING_WORDS};
use reprise_abi::syscalls::nr;

/// Rounds of looking before a thread sleeps, at least, ...
const LEAST_SPINS: u32 = 32;
/// ... and at most.
const MOST_SPINS: u32 = 4000;
/// Every so many waits it tries anew whether that many pay off.
const ANEW: u32 = 16;
/// A sleeper looks again after this many nanoseconds, called or not.
const LONGEST_NAP: i64 = 50_000_000;

/// The room of a key is found by this: the highest bits of the product.
pub const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// See [`FACTOR`].
pub const SHIFT: u32 = 54;
const _: () = assert!(WAITING_WORDS == 1 << (64 - SHIFT) && size_of::<WaitingRoom>() == 8);

/// Who waits for anything, and a call to all.
const ANY: u32 = u32::MAX;

/// What those wait for who wait for a shard. It has a room of its own.
pub fn key_of_shard(number: u32) -> u64 {
    !(number as u64)
}

/// How many processors this process may use.
fn processors() -> u32 {
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

fn room(key: u64) -> &'static WaitingRoom {
    match !key {
        number if number < SHARDS as u64 => &head().shards[number as usize].room,
        _ => &head().rooms[(key.wrapping_mul(FACTOR) >> SHIFT) as usize],
    }
}

/// Address of the first room.
pub const fn rooms() -> u64 {
    ORDER_BASE + offset_of!(OrderHead, rooms) as u64
}

/// Of those who sleep in a room only they are woken whose number it may be.
fn bit(n: u64) -> u32 {
    1 << (n % 32)
}

/// Waits until `due` says so; `key` is what [`call`] will name.
pub fn wait(key: u64, due: impl FnMut() -> bool) {
    wait_among(key, ANY, due);
}

/// As [`wait`], for the moment when so many operations on the object have been made: [`call_for`] will name their number.
#[inline]
pub fn wait_for(key: u64, n: u64, mut due: impl FnMut() -> bool) {
    if !due() {
        wait_among(key, bit(n), due);
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

fn wait_among(key: u64, bits: u32, mut due: impl FnMut() -> bool) {
    if total::runs() {
        while !due() {
            total::give_way(current());
        }
        return total::goes_on();
    }
    if comes_soon(&mut current().order, &mut due) {
        return;
    }
    let (h, r) = (head(), room(key));
    r.waiting.fetch_add(1, SeqCst);
    loop {
        let generation = r.generation.load(SeqCst);
        if due() {
            break;
        }
        let until = sys::Timespec::from_ns(sys::monotonic().ns() + LONGEST_NAP);
        h.sleeping.fetch_add(1, Relaxed);
        let woken = sys::futex_wait_among(r.generation.as_ptr(), generation, Some(&until), bits);
        if woken != 0 {
            // Nobody has counted it as awake.
            h.sleeping.fetch_sub(1, Relaxed);
        }
        if !crate::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
    r.waiting.fetch_sub(1, SeqCst);
}

/// Those who wait for `key` look again.
pub fn call(key: u64) {
    call_among(key, ANY);
}

/// Operation `n` on the object was made: those who [wait for it](wait_for) look again, and may not find that it is the last one any more.
#[inline]
pub fn call_for(key: u64, n: u64) {
    call_among(key, bit(n));
}

#[inline]
fn call_among(key: u64, bits: u32) {
    let r = room(key);
    if r.waiting.load(SeqCst) != 0 {
        r.generation.fetch_add(1, SeqCst);
        let woken = sys::futex_wake_among(r.generation.as_ptr(), bits);
        // At once: until they have a processor, those who look should leave them one.
        head().sleeping.fetch_sub(woken, Relaxed);
    }
}

/// Waits for the turn of a stamp.
pub fn wait_for_stamp(stamp: u64) {
    let now = &head().stamp.0;
    wait_for(stamp, stamp, || now.load(SeqCst) == stamp);
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
    call_for(next, next);
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
