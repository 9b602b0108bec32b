//! The byte ring between the runtime and its agent (record) or driver (replay).
//!
//! One producer, one consumer. Events are written back to back; an event longer than the ring flows through it in pieces,
//! because both sides only count bytes. The producer is whoever holds the baton, so no two threads ever write at once.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};

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

/// Where the byte at position `at` lies in a ring of `size` bytes (a power of two), and how many follow it in one piece. `twice`: the ring is mapped twice, one
/// after the other.
#[inline(always)]
pub const fn place_of(at: u64, size: u64, twice: bool) -> (u64, u64) {
    let offset = at & (size - 1);
    (offset, if twice { size } else { size - offset })
}

/// What a producer asks for that finds no room ([`RingControl::wait_for_room`]).
pub trait Producer {
    /// Does nobody read any more?
    fn is_lost(&self) -> bool;
    /// The consumer looks at the ring.
    fn tells(&self);
    /// Sleeps while the word is 1, for a moment at most.
    fn sleeps(&self, word: &AtomicU32);
}

impl RingControl {
    /// How many bytes there is room for in a ring of `size` bytes behind `at`, up to which it is written.
    #[inline]
    pub fn room(&self, at: u64, size: u64) -> u64 {
        size - (at - self.tail.load(Acquire).min(at))
    }

    /// The producer, which has written up to `at`, has no room: it waits until it has; how many bytes.
    pub fn wait_for_room(&self, at: u64, size: u64, producer: &impl Producer) -> u64 {
        let mut room = self.room(at, size);
        while room == 0 {
            if producer.is_lost() {
                self.tail.store(at, Release);
                // Never none, whatever somebody has written over the size.
                return size.max(1);
            }
            self.producer_asleep.store(1, SeqCst);
            producer.tells();
            if self.room(at, size) == 0 {
                producer.sleeps(&self.producer_asleep);
            }
            self.producer_asleep.store(0, Relaxed);
            room = self.room(at, size);
        }
        room
    }

    /// The consumer has taken all bytes up to `tail`. True: the producer sleeps for lack of room, and is to be woken.
    #[inline]
    pub fn taken(&self, tail: u64) -> bool {
        // Seen before the producer is looked at: it looks at the two in the other order.
        self.tail.store(tail, SeqCst);
        self.producer_asleep.load(SeqCst) != 0
    }

    /// Replay: the driver has written all bytes up to `head`. True: the consumer sleeps for lack of them, and is to be woken.
    pub fn filled(&self, head: u64) -> bool {
        self.head.store(head, SeqCst);
        self.consumer_asleep.swap(0, SeqCst) != 0
    }

    /// Replay: are the bytes up to `until` there? `None`: they may come, and `sleep`, which gets the word and what the head was, has slept while
    /// the word was 1.
    #[inline]
    pub fn look_for(&self, until: u64, sleep: impl FnOnce(&AtomicU32, u64)) -> Option<bool> {
        if self.head.load(Acquire) >= until {
            return Some(true);
        }
        if self.closed.load(Acquire) != 0 {
            return Some(self.head.load(Acquire) >= until);
        }
        self.consumer_asleep.store(1, SeqCst);
        let head = self.head.load(SeqCst);
        if head < until && self.closed.load(SeqCst) == 0 {
            sleep(&self.consumer_asleep, head);
        }
        self.consumer_asleep.store(0, Relaxed);
        None
    }
}

#[cfg(test)]
mod schedules;
