//! What orders the synchronisation of threads that run freely, on all processors (DESIGN 5, `order`; Castor 3).
//!
//! An **object** is whatever threads synchronise by: a mutex, a semaphore, a word that atomic instructions change. The operations on one
//! object have an order, and only that order is recorded: two objects have nothing to do with each other.
//!
//! Most operations on an object are made by the thread that made the one before. So an object keeps its [`Runs`]: how many operations there
//! were, and who made the last. An operation is logged, as (object, number), only when another thread made the one before; all others
//! are **quiet**, and merely counted by their thread. In a replay a thread makes as many quiet operations as were counted; for the next
//! one it waits until the object's count says that its turn has come.

pub mod copies;
pub mod cut;
pub mod faults;
pub mod known;
pub mod listing;
pub mod processes;
pub mod record;
pub mod replay;
pub mod shards;
pub mod space;
pub mod state;
pub mod streams;
pub mod total;
pub mod trail;
pub mod turns;
pub mod unlogged;

use crate::clone::Wish;
use crate::engine::{ENGINE, ORDER_RECORD, ORDER_REPLAY};
use crate::locked::learned;
use crate::races::objects::Kind;
use crate::races::Atomic;
use crate::robust;
use crate::thread::{current, Block, Frame};
use crate::{guard, sys};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::order::{
    ring_offset, Entry, EntryKind, OrderHead, ENTRY_LEN, MAX_QUIET, ORDER_BASE,
};
use reprise_abi::ring::RingControl;

/// What the engine keeps for a thread, in its block.
#[derive(Default)]
pub struct Local {
    /// Record: the thread's quiet operations are counted, by what is missing from
    /// [`Slot::quiet_left`](reprise_abi::session::Slot::quiet_left).
    pub counts: bool,
    /// Record: the shard that an operation has locked, plus 1, and its number.
    pub shard: (u32, u64),
    /// Replay: quiet operations that the thread has to ask for before its next entry, after those that it makes without asking
    /// ([`Slot::quiet_left`](reprise_abi::session::Slot::quiet_left)).
    pub asked: u32,
    /// Replay: it has counted itself among those who wait for the shard of its operation, so that it is called after it.
    pub waits_itself: bool,
    /// Replay: for how many rounds it looks whether its turn comes, before it sleeps, ...
    pub patience: u32,
    /// ... and how often it has waited.
    pub waits: u32,
    /// Record: the thread is on its way to a place that can be named. Replay: it looks for one.
    pub walks: bool,
    /// Replay: how often an operation was put off for a handler, one after the other.
    pub put_off: u32,
    /// Replay: the next entry has been looked at, and its quiet operations are counted.
    pub looked: bool,
    /// A hooked function ends, and looks for signals.
    pub hook_ends: bool,
    /// Record: where its log was when it had told last that it waits.
    pub waits_since: (u64, u32),
    /// Gates since the last hash of its state.
    pub since_hash: u64,
    /// Another thread has sent it the signal that cancels it, or is about to.
    pub cancels: AtomicU32,
    /// Record: the thread is the first of a process whose memory was copied while others were at work.
    pub copied: bool,
    /// Record: the last stamp that it has drawn for a call.
    pub last_stamp: u64,
    /// Record: where it was when an access that had faulted was made again, and the next stamp then.
    pub made_again: (u64, u64),
    /// Replay: its way to a fault that is another thread's doing.
    pub way: replay::faults::Way,
    /// What it knows of atomic words.
    pub known: known::Known,
    /// Replay that lists operations: the one that has begun, ...
    pub item: u64,
    /// ... and the address that its object had in the recording.
    pub named: u64,
    /// Its calls that left nothing in the log.
    pub unlogged: unlogged::Unlogged,
    /// Replay: where it has been lately.
    pub trail: trail::Trail,
    /// Stamps that the event being written has, ...
    pub stamps: [u64; 2],
    /// ... and how many of them.
    pub stamped: u8,
}

impl Local {
    /// The stamps of the event that is being written.
    pub fn stamps(&self) -> &[u64] {
        &self.stamps[..self.stamped as usize]
    }
}

/// Is this engine in force?
#[inline(always)]
pub fn runs() -> bool {
    matches!(ENGINE.load(Relaxed), ORDER_RECORD | ORDER_REPLAY)
}

/// Has every thread a ring of its own?
#[inline(always)]
pub fn has_rings() -> bool {
    runs() || crate::det::log::has_rings()
}

/// The slot whose ring the thread uses.
#[inline(always)]
pub fn own_ring(t: &Block) -> u32 {
    match t.det.log.world.load(core::sync::atomic::Ordering::Relaxed) {
        false => t.slot,
        true => reprise_abi::det::WORLD_SLOT,
    }
}

/// In the copy of a memory that fork(2) made.
pub fn after_fork() {
    space::after_fork();
    replay::faults::after_fork();
    crate::clock::after_fork();
}

/// The engine's shared memory.
#[inline(always)]
pub fn head() -> &'static OrderHead {
    // SAFETY: the launcher maps it for this engine; it is only integers and atomics.
    unsafe { &*(ORDER_BASE as *const OrderHead) }
}

/// The ring of a slot: its indices, its first byte, its size.
#[inline(always)]
pub fn ring_of(slot: u32) -> (&'static RingControl, u64, u64) {
    let (h, i) = (head(), slot as usize);
    (
        &h.rings[i],
        ORDER_BASE + ring_offset(i, h.ring_size),
        h.ring_size,
    )
}

/// The agent, or the driver, should look at the calling thread's ring.
#[inline]
pub fn tell_news() {
    if !has_rings() {
        return;
    }
    let i = own_ring(current()) as usize;
    let (word, bit) = (&head().news[i / 64], 1 << (i % 64));
    if word.load(Relaxed) & bit == 0 {
        word.fetch_or(bit, Release);
    }
}

/// Before an event is written: the quiet operations up to it are counted.
#[inline]
pub fn before_event() {
    if ENGINE.load(Relaxed) != ORDER_RECORD {
        return;
    }
    let t = current();
    let quiet = quiet_so_far(t);
    if quiet != 0 {
        put_counted(
            t,
            Entry {
                kind: EntryKind::Quiet,
                quiet,
                object: 0,
                value: 0,
            },
        );
    }
}

/// Record: the quiet operations since their number was logged last.
#[inline(always)]
fn quiet_so_far(t: &mut Block) -> u32 {
    let word = t.quiet_left();
    if !core::mem::replace(&mut t.order.counts, true) {
        word.store(MAX_QUIET, Relaxed);
    }
    MAX_QUIET - word.load(Relaxed)
}

/// Record: writes an entry that has the number of [`quiet_so_far`]. A thread may be killed between any two of these steps, and the agent must
/// count its quiet operations neither twice nor not at all.
#[inline(always)]
fn put_counted(t: &mut Block, e: Entry) {
    if e.quiet == 0 {
        return crate::ring::put_entry(e.to_words());
    }
    let ends = &ring_of(t.slot).0.counted_end;
    ends.store(crate::ring::position() + ENTRY_LEN as u64, Release);
    crate::ring::put_entry(e.to_words());
    t.quiet_left().store(MAX_QUIET, Release);
    ends.store(0, Release);
}

/// Record: writes an entry, with the quiet operations before it.
#[inline]
pub(crate) fn log(t: &mut Block, kind: EntryKind, object: u32, value: u64) {
    let quiet = quiet_so_far(t);
    let e = Entry {
        kind,
        quiet,
        object,
        value,
    };
    put_counted(t, e);
}

/// Record: an operation that needs no entry.
#[inline(always)]
pub(crate) fn log_quiet(t: &mut Block) {
    let word = t.quiet_left();
    if word.load(Relaxed) == 0 {
        // None was counted yet, or the assembly has counted the last one.
        if t.order.counts {
            log(t, EntryKind::Quiet, 0, 0);
        } else {
            quiet_so_far(t);
        }
    }
    let left = word.load(Relaxed) - 1;
    word.store(left, Relaxed);
    if left == 0 {
        log(t, EntryKind::Quiet, 0, 0);
    }
}

/// What an object is called in an entry: no two objects overlap, and none is smaller than 4 bytes.
#[inline(always)]
pub(crate) fn name_of(address: u64) -> u32 {
    (address >> 2) as u32
}

/// What an object is called that is known by its run.
#[inline(always)]
pub(crate) fn name_of_run(run: u64) -> u32 {
    name_of(crate::sync::side::object_of(run).unwrap_or(run))
}

/// The lowest bits of a run's word, which say who made the last operation.
pub const SLOT_BITS: u32 = 16;

/// The run that an object is in. It lies in the object itself (16 bytes, all zero in a new one) or beside it.
#[repr(C)]
pub struct Runs {
    /// Operations so far, and in the lowest 16 bits the slot of the thread that made the last, plus 1: one word, so that it can be
    /// changed at once where several threads pass together.
    word: AtomicU64,
    _pad: AtomicU64,
}

const _: () = assert!(core::mem::size_of::<Runs>() == 16);

impl Runs {
    /// That of a new object.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Runs {
        Runs {
            word: AtomicU64::new(0),
            _pad: AtomicU64::new(0),
        }
    }

    /// Operations so far.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        self.word.load(SeqCst) >> SLOT_BITS
    }

    /// One operation more, by the thread of `slot`, which has the object to itself: its number, and whether the thread made the last
    /// one, too.
    #[inline(always)]
    pub fn pass(&self, slot: u32) -> (u64, bool) {
        let old = self.word.load(Relaxed);
        let n = (old >> SLOT_BITS) + 1;
        self.word.store(n << SLOT_BITS | (slot as u64 + 1), Release);
        (n, old as u16 as u32 == slot + 1)
    }

    /// As [`pass`](Runs::pass), when others may pass at the same time.
    #[inline(always)]
    pub fn pass_among(&self, slot: u32) -> (u64, bool) {
        let mut old = self.word.load(Relaxed);
        loop {
            let n = (old >> SLOT_BITS) + 1;
            let new = n << SLOT_BITS | (slot as u64 + 1);
            match self.word.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => return (n, old as u16 as u32 == slot + 1),
                Err(now) => old = now,
            }
        }
    }

    /// The run of a new object.
    pub fn reset(&self) {
        self.word.store(0, Release);
    }
}

/// Who orders: statically dispatched, one for each of no order, recording, replaying.
///
/// The primitives that use it are in [`crate::sync`]; how each uses it, and why that is enough, is at the head of its file. What isn't said
/// otherwise has no order: operations are just made.
pub trait Order {
    /// A replay: who waits for others' leave (a condition, a timeout) need not, for the log has it. Locks are still taken.
    const REPLAYS: bool;
    /// Before an operation that makes the object the calling thread's own (lock, wait, join): in a replay, waits for its turn.
    /// The operation itself then never waits long. False: a signal comes first; the operation is made anew after its handler.
    #[must_use]
    #[inline(always)]
    fn turn(_t: &mut Block, _object: &Runs) -> bool {
        true
    }
    /// After it, while the object is still the calling thread's own: the operation counts, and is logged where that is needed.
    fn passed(t: &mut Block, object: &Runs);
    /// As [`Order::passed`], where other threads may pass the same object at the same time: readers, semaphores.
    fn passed_among(t: &mut Block, object: &Runs);
    /// As [`Order::passed`], of a lock, whose release calls those who wait for their turn.
    #[inline(always)]
    fn locked(t: &mut Block, object: &Runs) {
        Self::passed(t, object);
    }
    /// In the middle of an operation, when all that it logs is logged: in a replay, does a handler run now at the function's entry, since a
    /// signal ended the operation's wait? The operation then goes on after it.
    #[inline(always)]
    fn handler_first(_t: &mut Block, _entry: u64) -> bool {
        false
    }
    /// Is somebody to know where a thread is that is in a hooked function?
    #[inline(always)]
    fn shows() -> bool {
        false
    }
    /// At the beginning of a hooked function.
    #[inline(always)]
    fn enters(_t: &mut Block) {}
    /// At the end of a hooked function, which `returns` or is called anew: in a replay, looks whether a handler runs before anything else.
    #[inline(always)]
    fn leaves(_t: &mut Block, _returns: bool) {}
    /// From here on the hooked function writes to nothing of the program's but the objects that its arguments point to.
    #[inline(always)]
    fn touches_its_objects(_t: &mut Block) {}
    /// Before an operation that may fail for reasons of time (a lock that is tried, a wait with a timeout): in a replay of a failure, the
    /// error number. It is then returned at once, and the operation not made.
    #[inline(always)]
    fn failure(_t: &mut Block) -> Option<u32> {
        None
    }
    /// After such a failure, while recording.
    #[inline(always)]
    fn failed(_t: &mut Block, _errno: u32) {}
    /// Makes a short operation that can't wait on the object at this address, one thread at a time.
    #[inline(always)]
    fn ordered<R>(_t: &mut Block, _address: u64, operation: impl FnOnce() -> R) -> R {
        operation()
    }
    /// As [`Order::ordered`], where the thread takes what others have left for it, and leaves nothing for them.
    #[inline(always)]
    fn taken<R>(t: &mut Block, address: u64, operation: impl FnOnce() -> R) -> R {
        Self::ordered(t, address, operation)
    }
    /// Searches for a place for the calling thread's heap, from this number on.
    #[inline(always)]
    fn claims<R>(t: &mut Block, search: impl FnOnce(&mut Block, u32) -> R) -> R {
        let first = t.slot;
        search(t, first)
    }
    /// Looks at the atomic word of `size` bytes at this address: in a replay, after the operations on it that the recorded look came after, and
    /// with what it saw. A value that the thread knows already ([`Known`](known::Known)) needs no place among others' operations.
    #[inline(always)]
    fn seen(_t: &mut Block, _address: u64, _size: usize, look: impl Fn() -> u64) -> u64 {
        look()
    }
    /// The address by which the thread knows the word on which it made the last operation.
    #[inline(always)]
    fn known_as(_t: &Block, address: u64) -> u64 {
        address
    }
    /// What the learned load ([`crate::locked::learned`]) at `pc` finds at this address: a value that the thread knows already
    /// is quiet.
    #[inline(always)]
    fn loaded(_t: &mut Block, _pc: u64, address: u64, size: usize) -> u64 {
        learned::read(address, size).unwrap_or(0)
    }
    /// A value that the replay gets as it was recorded, computed only while recording: what a clock or the kernel said.
    #[inline(always)]
    fn value(_t: &mut Block, compute: impl FnOnce() -> u64) -> u64 {
        compute()
    }
    /// Whether the calling thread is the one that initialises the object at this address. `None`: nothing says so yet (recording). In a
    /// replay, `Some(Some(n))` when the thread's next event is that it was chosen for this object, as the `n`th thread ever; that event is
    /// then used up. Not being chosen leaves no event, since programs see by themselves, too, that nothing is left to be done.
    #[inline(always)]
    fn choice(_t: &mut Block, _object: u64) -> Option<Option<u64>> {
        None
    }
    /// The calling thread was chosen for this object, as the `n`th: always logged.
    #[inline(always)]
    fn chosen(_t: &mut Block, _object: u64, _n: u64) {}
    /// In a replay that looks for races ([`crate::races`]): the calling thread learns what others left at this object.
    #[inline(always)]
    fn learns(_t: &mut Block, _kind: Kind, _name: u64) {}
    /// What it knows can be learnt there.
    #[inline(always)]
    fn lets_know(_t: &mut Block, _kind: Kind, _name: u64) {}
    /// It has made an operation on an atomic word, by a function that the program called with this frame.
    #[inline(always)]
    fn atomic(_t: &mut Block, _f: &Frame, _a: &Atomic) {}
    /// The program's memory faulted in the middle of an operation, which ends here; the fault is the program's.
    #[inline(always)]
    fn faulted(_t: &mut Block) {}
}

/// No order at all: what `--engine none` has.
pub struct Unordered;

impl Order for Unordered {
    const REPLAYS: bool = false;
    /// Runs are kept here, too, so that the short ways of [`crate::hook::fast`] are gone.
    #[inline(always)]
    fn passed(t: &mut Block, object: &Runs) {
        object.pass(t.slot);
        t.quiet_left().store(u32::MAX, Relaxed);
    }
    #[inline(always)]
    fn passed_among(t: &mut Block, object: &Runs) {
        object.pass_among(t.slot);
    }
}

/// The process ends, by exit_group(2) or by a signal of its own: who shares its memory sees the word of its thread cleared.
///
/// Whether anybody may is asked of what the program has done, not of who is there: a replay's child of vfork(2) may leave a little later
/// than its parent goes on.
pub(crate) fn clear_word<O: Order>(t: &mut Block) {
    if t.clear_tid != 0 && crate::process::may_be_seen_by_others() {
        let list = core::mem::take(&mut t.robust_list);
        announce_death::<O>(t);
        t.robust_list = list;
    }
}

/// A thread ends: its words change in the order of what others do with them.
pub(crate) fn announce_death<O: Order>(t: &mut Block) {
    let write = |t: &mut Block, address, value: u32| {
        O::ordered(t, address, || guard::write(address, &value));
    };
    let wake = |address, _, n| {
        turns::tell_woken(address);
        sys::futex_wake(address as *const u32, n);
    };
    robust::announce_death(t, write, wake, |_| None);
}

/// A thread or a process was made: the program is told its id ([`crate::clone::publish_tid`]), in the order of what others do with that word.
pub(crate) fn publish_tid<O: Order>(t: &mut Block, wish: &Wish, tid: u32) {
    for address in wish.told_by_parent() {
        O::ordered(t, address, || guard::write(address, &tid));
    }
}

/// Runs an expression with the order in force as a type.
macro_rules! with_order {
    ($o:ident => $body:expr) => {
        match $crate::engine::ENGINE.load(core::sync::atomic::Ordering::Relaxed) {
            $crate::engine::ORDER_RECORD => {
                type $o = $crate::order::record::Record;
                $body
            }
            $crate::engine::ORDER_REPLAY => {
                type $o = $crate::order::replay::Replay;
                $body
            }
            $crate::engine::DET => {
                type $o = $crate::det::turns::InTurns;
                $body
            }
            _ => {
                type $o = $crate::order::Unordered;
                $body
            }
        }
    };
}
pub(crate) use with_order;

/// As [`with_order`], for the allocator.
macro_rules! with_order_of_heaps {
    ($o:ident => $body:expr) => {
        match $crate::det::runs() {
            true => {
                type $o = $crate::det::turns::InOwnHeap;
                $body
            }
            false => $crate::order::with_order!($o => $body),
        }
    };
}
pub(crate) use with_order_of_heaps;
