//! The byte ring between the runtime and its agent (record) or driver (replay).
//!
//! One producer, one consumer. Events are written back to back; an event longer than the ring flows through it in pieces,
//! because both sides only count bytes. The producer is whoever holds the baton, so no two threads ever write at once.

use crate::atomic::{AtomicU32, AtomicU64};

/// The indices of a ring. `head` and `tail` only grow; their difference is what lies in the ring.
#[repr(C, align(64))]
pub struct RingControl {
    /// Bytes ever written. Stored by the producer with release order.
    pub head: AtomicU64,
    /// Number of the process that wrote or read last, plus 1: its own copies of the position and count are right.
    pub user: AtomicU32,
    _pad: u32,
    /// Where that process stopped.
    pub position: AtomicU64,
    /// Events up to there.
    pub events: AtomicU64,
    /// Record: where an event ends of which a part is in the ring already, because it is larger than the room was; 0 for none.
    pub open_end: AtomicU64,
    /// `order`, record: where an entry ends that is being written with the number of quiet operations in it; 0 for none. Should the thread be
    /// killed, that tells whether they have been logged.
    pub counted_end: AtomicU64,
    _pad0: [u64; 2],
    /// Bytes ever consumed. Stored by the consumer with release order.
    pub tail: AtomicU64,
    _pad1: [u64; 7],
    /// Futex: 1 while the producer sleeps for lack of room. The consumer sets it to 0 and wakes.
    pub producer_asleep: AtomicU32,
    /// Futex: 1 while the consumer sleeps for lack of data. The producer sets it to 0 and wakes.
    pub consumer_asleep: AtomicU32,
    /// Set by the producer: nothing more will come (replay: the trace ends at `head`).
    pub closed: AtomicU32,
    _pad2: [u32; 13],
}

const _: () = assert!(core::mem::size_of::<RingControl>() == 192);
