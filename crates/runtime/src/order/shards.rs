//! Shards: the order of short operations on words that have no room for a [`Runs`](super::Runs) of their own (FACTS, "CAS-seqlock shard").
//!
//! An operation is made while its shard is locked, so that its place among the others is known exactly. Castor takes the time stamp counter
//! inside a transaction for that (Castor 3.3); on present processors such stamps can lie, and cost more than the lock.
//!
//! Shards are private to a process. A fork copies them while others may use them, at places that a replay does not know: in the child
//! all begin anew.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// How many there are. Objects that share one are ordered among each other, too, which costs time and harms nothing.
pub const SHARDS: usize = 1024;
/// Rounds of waiting for a shard before the processor is given up.
const SPINS: u32 = 200;

/// Bytes of a shard.
pub const SIZE: usize = core::mem::size_of::<Shard>();
/// The hash of an address: its line times this, without the lowest [`SHIFT`] bits.
pub const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// See [`FACTOR`].
pub const SHIFT: u32 = 54;
/// Offset of [`Shard::last`].
pub const LAST: usize = core::mem::offset_of!(Shard, last);
const _: () = assert!(
    SIZE == 64 && SHARDS == 1 << (64 - SHIFT) && core::mem::offset_of!(Shard, sequence) == 0
);

/// A shard: a lock that counts.
#[repr(C, align(64))]
pub struct Shard {
    /// Twice the operations so far; odd while one is made.
    pub sequence: AtomicU64,
    /// Slot of the thread that made the last, plus 1.
    pub last: AtomicU32,
}

static TABLE: [Shard; SHARDS] = [const {
    Shard {
        sequence: AtomicU64::new(0),
        last: AtomicU32::new(0),
    }
}; SHARDS];

/// Number of the shard that orders the word at this address.
#[inline(always)]
pub fn number_of(address: u64) -> u32 {
    // A cache line's words go together: they are changed together.
    ((address >> 6).wrapping_mul(FACTOR) >> SHIFT) as u32
}

/// The shard with this number.
#[inline(always)]
pub fn shard(number: u32) -> &'static Shard {
    &TABLE[number as usize % SHARDS]
}

/// Address of the first of them; [`SIZE`] bytes each.
pub fn table() -> u64 {
    TABLE.as_ptr() as u64
}

/// Address of the shard that orders the word at this address.
pub fn place_of(address: u64) -> u64 {
    table() + number_of(address) as u64 * SIZE as u64
}

/// Number of the shard at this address.
pub fn number_at(place: u64) -> u32 {
    ((place.wrapping_sub(table())) / SIZE as u64) as u32
}

impl Shard {
    /// Locks it; the number of the operation that may be made now.
    #[inline]
    pub fn lock(&self) -> u64 {
        let mut spins = 0;
        loop {
            let v = self.sequence.load(Relaxed);
            if v & 1 == 0
                && self
                    .sequence
                    .compare_exchange_weak(v, v + 1, Acquire, Relaxed)
                    .is_ok()
            {
                return v / 2 + 1;
            }
            spins += 1;
            if spins % SPINS == 0 {
                // The holder may have lost its processor.
                crate::sys::call(reprise_abi::syscalls::nr::SCHED_YIELD, &[]);
            }
            core::hint::spin_loop();
        }
    }

    /// Number of the last operation that has begun.
    #[inline(always)]
    pub fn begun(&self) -> u64 {
        self.sequence.load(Acquire).div_ceil(2)
    }

    /// Unlocks it after operation `number`.
    #[inline]
    pub fn unlock(&self, number: u64) {
        self.sequence.store(2 * number, Release);
    }
}

/// In a new process: nobody has used a shard.
pub fn after_fork() {
    for s in &TABLE {
        // What is not touched needs no page of its own.
        if s.sequence.load(Relaxed) != 0 {
            s.sequence.store(0, Relaxed);
            s.last.store(0, Relaxed);
        }
    }
}
