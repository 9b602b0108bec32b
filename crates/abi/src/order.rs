//! The shared memory of the `order` engine (DESIGN 5; Castor 3.3): a ring for each slot, and what orders the events in them.
//!
//! It lies at [`ORDER_BASE`] in the program, behind the session and its ring in the same memfd, and is mapped for this engine only. Like the
//! session it is plain integers and atomics: the program can scribble over it.
//!
//! Threads write their events without knowing of each other. What orders them are **stamps**: every system call draws one from
//! [`OrderHead::stamp`] when it begins and another one when it ends, and a replay lets them pass in that order.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::event::{section_len, EventHeader, Kind, Tag, HEADER_LEN, SECTION_LEN};
use crate::layout::{MAX_SLOTS, RESERVATION, RESERVATION_END};
use crate::ring::RingControl;
use crate::total::TotalOrder;
use crate::waits::Awaited;

/// Where it is mapped.
pub const ORDER_BASE: u64 = RESERVATION + 0xb_0000_0000;
/// Distance between two slots' rings in bytes, where no ring is larger (address space; memory is used only as touched).
pub const RING_STRIDE: u64 = 4 << 20;
/// Bytes of a ring in the default mode (Castor 3.6).
pub const DEFAULT_RING: u64 = RING_STRIDE;
/// Bytes of a ring in the small mode.
pub const SMALL_RING: u64 = 4096;
/// Bytes of a ring in the mode for crashes: nothing is taken from it before a quarter of it is full.
pub const CRASH_RING: u64 = 64 << 20;
/// Words on which threads of a replay wait for their turn.
pub const WAITING_WORDS: usize = 4096;
/// Most stamps that were drawn and never logged, because their process was killed at that moment.
pub const MAX_VOID: usize = 8 * 1024;

/// Places in a page at which an object can begin.
pub const SHARED_RUNS: usize = 1024;

/// A word with a cache line of its own.
#[repr(C, align(128))]
pub struct Lone<T>(pub T);

/// Where threads wait for their turn in a replay: who waits counts itself, and sleeps on the generation.
#[repr(C)]
pub struct WaitingRoom {
    /// Grows when somebody should look again (a futex).
    pub generation: AtomicU32,
    /// How many wait.
    pub waiting: AtomicU32,
}

/// How many shards there are. Objects that share one are ordered among each other, too, which costs time and harms nothing.
pub const SHARDS: usize = 1024;
/// In a shard's sequence while it is locked, from this bit on: slot plus 1 of the thread that has it, or 0 if that is the one that had it last.
pub const HOLDER_SHIFT: u32 = 48;

/// A shard: a lock that counts the operations that were made while it was held.
#[repr(C, align(64))]
pub struct Shard {
    /// Twice the operations so far; odd while one is made.
    pub sequence: AtomicU64,
    /// Slot of the thread that made the last, plus 1.
    pub last: AtomicU32,
    /// Where threads of a replay wait for it.
    pub room: WaitingRoom,
}

impl Shard {
    /// Who has it locked (slot plus 1), and the number of the operation that is being made.
    pub fn holder(&self) -> Option<(u32, u64)> {
        let v = self.sequence.load(SeqCst);
        let told = (v >> HOLDER_SHIFT) as u32;
        let who = if told == 0 {
            self.last.load(SeqCst)
        } else {
            told
        };
        let same = self.sequence.load(SeqCst) == v;
        (v & 1 != 0 && same).then_some((who, (v & ((1 << HOLDER_SHIFT) - 1)).div_ceil(2)))
    }
}

/// The head; the rings follow it.
#[repr(C, align(4096))]
pub struct OrderHead {
    /// Record: the next stamp. Replay: the stamp whose turn it is.
    pub stamp: Lone<AtomicU64>,
    /// Bytes of a ring, a power of two.
    pub ring_size: u64,
    /// Record: number plus 1 of a shard for which somebody waits long, 0 for none.
    pub shard_wanted: AtomicU32,
    /// Replay: how many threads sleep in rooms, of those that nobody has called yet.
    pub sleeping: AtomicU32,
    _pad: AtomicU64,
    /// Replay: how many stamps in `void`.
    pub voids: AtomicU64,
    /// Replay: stamps that no event has, in their order.
    pub void: [AtomicU64; MAX_VOID],
    /// Record: who writes to the program's standard output, and to its standard error: a slot's number plus 1, and the highest bit if others wait.
    pub streams: [Lone<AtomicU32>; 2],
    /// A bit for each slot that has news for the agent; Castor 3.5: who is idle costs nothing.
    pub news: [AtomicU64; MAX_SLOTS / 64],
    /// Replay in total order.
    pub total: TotalOrder,
    /// Where threads wait in a replay.
    pub rooms: [WaitingRoom; WAITING_WORDS],
    /// What they wait for, by slot.
    pub waits: [Awaited; MAX_SLOTS],
    /// Runs of objects in memory that processes share, where the objects have no room for them: by their place in their page.
    pub shared_runs: [[AtomicU64; 2]; SHARED_RUNS],
    /// The order of operations on words, by their addresses.
    pub shards: [Shard; SHARDS],
    /// The rings' indices.
    pub rings: [RingControl; MAX_SLOTS],
}

/// [`OrderHead::streams`]: others wait for the stream.
pub const WAITED_FOR: u32 = 1 << 31;

/// [`RingControl::closed`]: the slot's thread is gone, nothing more comes of it.
pub const CLOSED_GONE: u32 = 1;
/// [`RingControl::closed`]: the trace ends here.
pub const CLOSED_END: u32 = 2;

/// Bytes of the head.
pub const ORDER_HEAD_LEN: usize = core::mem::size_of::<OrderHead>();
/// Bytes of it all.
pub const ORDER_TOTAL: u64 = ORDER_HEAD_LEN as u64 + MAX_SLOTS as u64 * RING_STRIDE;

const _: () = assert!(ORDER_HEAD_LEN % 4096 == 0);
const _: () = assert!(ORDER_BASE + ORDER_TOTAL <= RESERVATION_END);

/// Distance between rings of so many bytes.
#[inline(always)]
pub const fn stride(ring_size: u64) -> u64 {
    if ring_size > RING_STRIDE {
        ring_size
    } else {
        RING_STRIDE
    }
}

/// How many slots have a ring, where these have so many bytes.
pub const fn slots_with(ring_size: u64) -> usize {
    (MAX_SLOTS as u64 * RING_STRIDE / stride(ring_size)) as usize
}

/// Offset of a slot's ring from the head, where rings have so many bytes.
#[inline(always)]
pub const fn ring_offset(slot: usize, ring_size: u64) -> u64 {
    ORDER_HEAD_LEN as u64 + slot as u64 * stride(ring_size)
}

/// What an [`Entry`] says. Numbers are part of the trace format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// Nothing more: only how many quiet operations there were, and whether the thread [waits](Entry::waits) then.
    Quiet = 0,
    /// An operation on an object that keeps its own count: the value is its number.
    Passed = 1,
    /// An operation on a shard: the value is its number.
    Ordered = 2,
    /// An operation that failed: the value is the error number.
    Failed = 3,
    /// A value that a replay gets as it was.
    Value = 4,
    /// The thread was chosen to initialise the object: the value says as the how-manieth.
    Chosen = 5,
    /// An atomic word was looked at and had a new value for the thread, which the next entry tells: the value here is the number of the last
    /// operation on its shard that had begun.
    Seen = 6,
    /// A plain load of a learned function found a new value for the thread.
    Loaded = 7,
}

impl EntryKind {
    /// Every kind, in order of its number.
    pub const ALL: [EntryKind; 8] = [
        EntryKind::Quiet,
        EntryKind::Passed,
        EntryKind::Ordered,
        EntryKind::Failed,
        EntryKind::Value,
        EntryKind::Chosen,
        EntryKind::Seen,
        EntryKind::Loaded,
    ];
}

/// An operation of synchronisation in a ring: 16 bytes. An odd first word tells it from an event, whose length is even.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it says.
    pub kind: EntryKind,
    /// Operations of the thread before this one, since its last entry, that needed no entry.
    pub quiet: u32,
    /// What the object is called: 32 bits of its address, or the number of its shard.
    pub object: u32,
    /// Depends on the kind.
    pub value: u64,
}

/// Bytes of an [`Entry`].
pub const ENTRY_LEN: usize = 16;
/// Bytes of an event of entries ([`Kind::Sync`]) before them.
pub const ENTRIES_HEAD_LEN: usize = HEADER_LEN + SECTION_LEN;

/// What stands before `count` entries of a slot in an event of entries.
pub fn head_of_entries(slot: u16, count: usize) -> [u8; ENTRIES_HEAD_LEN] {
    let len = count * ENTRY_LEN;
    let h = EventHeader {
        len: (HEADER_LEN + section_len(len)) as u32,
        kind: Kind::Sync as u8,
        slot,
        value: count as i64,
        ..Default::default()
    };
    let mut head = [0; ENTRIES_HEAD_LEN];
    let (header, section) = head.split_at_mut(HEADER_LEN);
    header.copy_from_slice(&h.to_bytes());
    // A section of no address.
    section[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    section[12..].copy_from_slice(&(Tag::Entries as u32).to_le_bytes());
    head
}

/// Most quiet operations that an entry can count.
pub const MAX_QUIET: u32 = (1 << 24) - 1;

/// Value of an [`EntryKind::Quiet`] of a thread that waits before a hooked function's first operation, ...
const WAITS: u64 = 1;
/// ... and of one that waits after it.
const WAITS_AMID: u64 = 2;

impl Entry {
    /// The thread is about to sleep in a hooked function, after so many quiet operations, `amid` those of the function: what comes next happens
    /// there. A replay that is given no more as yet knows by it that the thread has gone on to there, past an unlock, say, which leaves no
    /// entry.
    pub const fn wait(quiet: u32, amid: bool) -> Entry {
        Entry {
            kind: EntryKind::Quiet,
            quiet,
            object: 0,
            value: if amid { WAITS_AMID } else { WAITS },
        }
    }

    /// Is it such an entry?
    #[inline]
    pub fn waits(&self) -> bool {
        self.kind == EntryKind::Quiet && self.value != 0
    }

    /// Is it such an entry, of a function that has made an operation?
    #[inline]
    pub fn waits_amid(&self) -> bool {
        self.kind == EntryKind::Quiet && self.value == WAITS_AMID
    }

    /// As two words.
    #[inline(always)]
    pub fn to_words(self) -> [u64; 2] {
        let first = 1
            | (self.kind as u64) << 1
            | ((self.quiet & MAX_QUIET) as u64) << 8
            | (self.object as u64) << 32;
        [first, self.value]
    }

    /// From two words; `None` when they are no entry.
    #[inline]
    pub fn from_words([first, value]: [u64; 2]) -> Option<Entry> {
        if first & 1 == 0 {
            return None;
        }
        let kind = *EntryKind::ALL.get((first as u8 >> 1) as usize)?;
        Some(Entry {
            kind,
            quiet: (first >> 8) as u32 & MAX_QUIET,
            object: (first >> 32) as u32,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_what_they_say() {
        for kind in EntryKind::ALL {
            let e = Entry {
                kind,
                quiet: MAX_QUIET,
                object: 0xdead_beef,
                value: u64::MAX - 3,
            };
            assert_eq!(Entry::from_words(e.to_words()), Some(e));
        }
        assert_eq!(Entry::from_words([64, 0]), None, "an event's length");
        assert_eq!(Entry::from_words([0xff, 0]), None, "no such kind");
    }

    #[test]
    fn a_locked_shard_says_who_has_it() {
        let shard = Shard {
            sequence: AtomicU64::new(12),
            last: AtomicU32::new(3),
            room: WaitingRoom {
                generation: AtomicU32::new(0),
                waiting: AtomicU32::new(0),
            },
        };
        assert_eq!(shard.holder(), None);
        // By who had it last, without a word; by another one.
        shard.sequence.store(13, SeqCst);
        assert_eq!(shard.holder(), Some((3, 7)));
        shard.sequence.store(13 | 5 << HOLDER_SHIFT, SeqCst);
        assert_eq!(shard.holder(), Some((5, 7)));
    }
}
