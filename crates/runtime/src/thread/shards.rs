//! Shards: the order of short operations on words that have no room for a `Runs` of their own (FACTS, "CAS-seqlock shard").
//!
//! An operation is made while its shard is locked, so that its place among the others is known exactly. Castor takes the time stamp counter
//! inside a transaction for that (Castor 3.3); on present processors such stamps can lie, and cost more than the lock.
//!
//! The processes of a session have the same shards, since words may lie in memory that they share, at the same address in each of them. (What
//! lies at different addresses, or what they don't share, is ordered by chance or needlessly.) So a shard says who has it locked: whoever is
//! killed meanwhile keeps nobody else from going on (`agent/merge.rs`).

use crate::thread::rings::head;
use core::mem::offset_of;
use core::sync::atomic::Ordering::*;
use reprise_abi::order::{OrderHead, Shard, HOLDER_SHIFT, ORDER_BASE};

pub use reprise_abi::order::SHARDS;

/// Rounds of waiting for a shard before the processor is given up.
const SPINS: u32 = 200;
/// Rounds before the agent is asked to look at who has it.
const LONG: u32 = 200 * SPINS;

/// Bytes of a shard.
pub const SIZE: usize = core::mem::size_of::<Shard>();
/// The hash of an address: its line times this, without the lowest [`SHIFT`] bits.
pub const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// See [`FACTOR`].
pub const SHIFT: u32 = 54;
/// Offset of [`Shard::last`].
pub const LAST: usize = offset_of!(Shard, last);
const _: () =
    assert!(SIZE == 64 && SHARDS == 1 << (64 - SHIFT) && offset_of!(Shard, sequence) == 0);

/// Number of the shard that orders the word at this address.
#[inline(always)]
pub fn number_of(address: u64) -> u32 {
    // A cache line's words go together: they are changed together.
    ((address >> 6).wrapping_mul(FACTOR) >> SHIFT) as u32
}

/// The shard with this number.
#[inline(always)]
pub fn shard(number: u32) -> &'static Shard {
    &head().shards[number as usize % SHARDS]
}

/// Address of the first of them; [`SIZE`] bytes each.
pub fn table() -> u64 {
    ORDER_BASE + offset_of!(OrderHead, shards) as u64
}

/// Address of the shard that orders the word at this address.
pub fn place_of(address: u64) -> u64 {
    place(number_of(address))
}

/// Address of the shard with this number.
pub fn place(number: u32) -> u64 {
    table() + number as u64 * SIZE as u64
}

/// Number of the shard at this address.
pub fn number_at(place: u64) -> u32 {
    ((place.wrapping_sub(table())) / SIZE as u64) as u32
}

/// Locks a shard for the thread of `slot`; the number of the operation that may be made now.
#[inline]
pub fn lock(number: u32, slot: u32) -> u64 {
    let shard = shard(number);
    let mut spins = 0u32;
    loop {
        let v = shard.sequence.load(Relaxed);
        let locked = (v + 1) | (slot as u64 + 1) << HOLDER_SHIFT;
        if v & 1 == 0
            && shard
                .sequence
                .compare_exchange_weak(v, locked, Acquire, Relaxed)
                .is_ok()
        {
            return v / 2 + 1;
        }
        spins = spins.wrapping_add(1);
        if spins % SPINS == 0 {
            // The holder may have lost its processor, ...
            crate::machine::sys::call(reprise_abi::syscalls::nr::SCHED_YIELD, &[]);
        }
        if spins % LONG == 0 {
            // ... or be stopped, or dead.
            head().shard_wanted.store(number + 1, Relaxed);
            crate::thread::request::wake_agent();
            crate::thread::attended::or_end();
        }
        core::hint::spin_loop();
    }
}

/// Number of the last operation on a shard that has begun.
#[inline(always)]
pub fn begun(shard: &Shard) -> u64 {
    let v = shard.sequence.load(Acquire);
    (v & ((1 << HOLDER_SHIFT) - 1)).div_ceil(2)
}

/// Unlocks it after operation `number`.
#[inline]
pub fn unlock(shard: &Shard, number: u64) {
    shard.sequence.store(2 * number, Release);
}
