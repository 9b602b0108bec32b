//! The seam of synchronisation (DESIGN 5, `order`; Castor 3): what a gate of synchronisation asks of whoever orders threads that run freely.
//!
//! An **object** is whatever threads synchronise by: a mutex, a semaphore, a word that atomic instructions change. The operations on one
//! object have an order, and only that order is recorded: two objects have nothing to do with each other. Most operations on an object are made by
//! the thread that made the one before. So an object keeps its [`Runs`]: how many operations there were, and who made the last.

use crate::engine::waits::{self, Deadline, Wait};
use crate::machine::{guard, sys};
use crate::races::objects::Kind;
use crate::races::Atomic;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

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
/// The primitives that use it are in [`crate::sync::libc`]; how each uses it, and why that is enough, is at the head of its file. What isn't said
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
    /// This call of a hooked function may be made on a short way, which nobody sees: it counts as none.
    #[inline(always)]
    fn does_not_count(_t: &mut Block) {}
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
    /// with what it saw. A value that the thread knows already (`sync::known`) needs no place among others' operations.
    #[inline(always)]
    fn seen(_t: &mut Block, _address: u64, _size: usize, look: impl Fn() -> u64) -> u64 {
        look()
    }
    /// The address by which the thread knows the word on which it made the last operation.
    #[inline(always)]
    fn known_as(_t: &Block, address: u64) -> u64 {
        address
    }
    /// What the learned load ([`crate::sync::locked::learned`]) at `pc` finds at this address: a value that the thread knows already
    /// is quiet.
    #[inline(always)]
    fn loaded(_t: &mut Block, _pc: u64, address: u64, size: usize) -> u64 {
        guard::read_word(address, size).unwrap_or(0)
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
    /// In a copy that runs an epoch again: has the program's thread slept in this function, which was called with this frame, when the epoch ended, though others may have
    /// woken it? It had `mark` in r8 then. What it had in r9.
    #[inline(always)]
    fn stands_in_wait(_t: &mut Block, _f: &Frame, _mark: u64) -> Option<u64> {
        None
    }
    /// Before the instruction of a stub ([`crate::sync::locked`]): the shard at this address becomes the thread's; where operations are listed, that of
    /// the word at this address. `f` has those registers that the stub has left as they were. Which shard it is, and what its sequence becomes;
    /// `None`: there is no order.
    fn begins_instruction(_t: &mut Block, _shard: u64, _f: &Frame) -> Option<(u64, u64)> {
        None
    }
    /// After it, when somebody waits or a signal comes.
    fn made_instruction(_t: &mut Block, _shard: u64, _f: &Frame) {}
    /// Before a learned load, ...
    #[inline(always)]
    fn begins_load(_t: &mut Block, _f: &Frame) {}
    /// ... and after it.
    #[inline(always)]
    fn made_load(_t: &mut Block) {}
    /// Before the instruction of a stub that takes a turn, where the stub has kept rax only, ...
    fn begins_turn(t: &mut Block, _f: &Frame) {
        Self::enters(t);
    }
    /// ... and after it.
    fn ends_turn(t: &mut Block) {
        Self::leaves(t, true);
    }
    /// The instruction of a stub has faulted, and is the program's again. `number`: that of the shard which it had locked, and has left.
    fn faulted_in_stub(_t: &mut Block, _number: Option<u32>) {}
    /// Waits while the word has this value. `shared`: others than threads of this process may wake.
    #[inline(always)]
    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        waits::in_kernel(t, word, value, deadline, shared, || {}, |_| false)
    }
    /// Wakes up to `n` that wait on the word at this address, which may be gone by now.
    #[inline(always)]
    fn wake(_t: &mut Block, address: *const u32, n: u32, shared: bool) {
        waits::wake(address, n, shared);
    }
    /// A moment in which another processor may do something.
    #[inline(always)]
    fn pause(_t: &mut Block) {
        core::hint::spin_loop();
    }
    /// The time of CLOCK_MONOTONIC in nanoseconds, as far as it is for waiting only.
    #[inline(always)]
    fn now() -> i64 {
        sys::monotonic().ns()
    }
    /// Which signal has ended an operation's wait; `None`: it can't be said.
    #[inline(always)]
    fn interrupted_by(t: &mut Block) -> Option<u32> {
        t.pending.first(t.mask).map(|s| s.signal())
    }
    /// The calling thread has sent itself a signal, which is due at once.
    #[inline(always)]
    fn sent_to_itself(_t: &mut Block) {}
    /// The program's memory faulted in the middle of an operation, which ends here; the fault is the program's.
    #[inline(always)]
    fn faulted(_t: &mut Block) {}
}

/// No order at all: what `--engine none` has.
pub struct Unordered;

impl Order for Unordered {
    const REPLAYS: bool = false;
    /// Runs are kept here, too, so that the short ways of [`crate::sync::hook::fast`] are gone.
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
