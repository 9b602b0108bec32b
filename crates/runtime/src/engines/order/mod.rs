//! What orders the synchronisation of threads that run freely, on all processors (DESIGN 5, `order`; Castor 3).
//!
//! An **object** is whatever threads synchronise by: a mutex, a semaphore, a word that atomic instructions change. The operations on one
//! object have an order, and only that order is recorded: two objects have nothing to do with each other.
//!
//! Most operations on an object are made by the thread that made the one before. So an object keeps its [`Runs`](crate::engine::order::Runs): how many operations there
//! were, and who made the last. An operation is logged, as (object, number), only when another thread made the one before; all others
//! are **quiet**, and merely counted by their thread. In a replay a thread makes as many quiet operations as were counted; for the next
//! one it waits until the object's count says that its turn has come.

pub mod copies;
pub mod cut;
pub mod faults;
pub mod listing;
pub mod processes;
pub mod record;
pub mod replay;
pub mod state;
pub mod streams;
pub mod trail;
pub mod turns;
pub mod unlogged;

use crate::engine::order::Order;
use crate::engine::wish::Wish;
use crate::gate::robust;
use crate::log::awaited;
use crate::machine::{guard, sys};
use crate::thread::Block;

/// What the engine keeps for a thread, in its block.
#[derive(Default)]
pub struct Local {
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
    /// Record: where its log was when it had told last that it waits.
    pub waits_since: (u64, u32),
    /// Gates since the last hash of its state.
    pub since_hash: u64,
    /// Record: the thread is the first of a process whose memory was copied while others were at work.
    pub copied: bool,
    /// Record: the last stamp that it has drawn for a call.
    pub last_stamp: u64,
    /// Record: where it was when an access that had faulted was made again, and the next stamp then.
    pub made_again: (u64, u64),
    /// Replay: its way to a fault that is another thread's doing.
    pub way: replay::faults::Way,
    /// Replay that lists operations: the one that has begun, ...
    pub item: u64,
    /// ... and the address that its object had in the recording.
    pub named: u64,
    /// Its calls that left nothing in the log.
    pub unlogged: unlogged::Unlogged,
    /// Replay: where it has been lately.
    pub trail: trail::Trail,
}

impl Block {
    /// What this engine keeps of the thread.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) fn order(&self) -> &mut Local {
        // SAFETY: the area is this room's own; filled when the block was made.
        unsafe { self.engine.get::<Local>() }
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
    name_of(crate::sync::libc::side::object_of(run).unwrap_or(run))
}

/// The process ends, by exit_group(2) or by a signal of its own: who shares its memory sees the word of its thread cleared.
///
/// Whether anybody may is asked of what the program has done, not of who is there: a replay's child of vfork(2) may leave a little later
/// than its parent goes on.
pub(crate) fn clear_word<O: Order>(t: &mut Block) {
    if t.clear_tid != 0 && crate::thread::process::may_be_seen_by_others() {
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
        awaited::tell_woken(address);
        sys::futex_wake(address as *const u32, n);
    };
    robust::announce_death(t, write, wake, |_| None);
}

/// A thread or a process was made: the program is told its id ([`crate::gate::clone::publish_tid`]), in the order of what others do with that word.
pub(crate) fn publish_tid<O: Order>(t: &mut Block, wish: &Wish, tid: u32) {
    for address in wish.told_by_parent() {
        O::ordered(t, address, || guard::write(address, &tid));
    }
}
