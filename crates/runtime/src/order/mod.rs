//! What orders the synchronisation of threads that run freely, on all processors (DESIGN 5, `order`; Castor 3).
//!
//! An **object** is whatever threads synchronise by: a mutex, a semaphore, a word that atomic instructions change. The operations on one
//! object have an order, and only that order is recorded: two objects have nothing to do with each other.
//!
//! Most operations on an object are made by the thread that made the one before. So an object keeps its [`Runs`]: how many operations there
//! were, and who made the last. An operation is logged, as (object, number), only when another thread made the one before; all others
//! are **quiet**, and merely counted by their thread. In a replay a thread makes as many quiet operations as were counted; for the next
//! one it waits until the object's count says that its turn has come.

use crate::thread::Block;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The run that an object is in. It lies in the object itself (16 bytes, all zero in a new one) or beside it.
#[repr(C)]
pub struct Runs {
    /// Operations so far.
    pub count: AtomicU64,
    /// Slot of the thread that made the last, plus 1.
    pub last: AtomicU32,
    _pad: AtomicU32,
}

const _: () = assert!(core::mem::size_of::<Runs>() == 16);

/// Who orders: statically dispatched, one for each of no order, recording, replaying.
pub trait Order {
    /// Before an operation that makes the object the calling thread's own (lock, wait, join): in a replay, waits for its turn.
    /// The operation itself then never waits long.
    fn turn(t: &mut Block, object: &Runs);
    /// After it, while the object is still the calling thread's own: the operation counts, and is logged where that is needed.
    fn passed(t: &mut Block, object: &Runs);
    /// Before an operation that may fail for reasons of time (a lock that is tried, a wait with a timeout): in a replay of a failure, the
    /// error number. It is then returned at once, and the operation not made.
    fn failure(t: &mut Block) -> Option<u32>;
    /// After such a failure, while recording.
    fn failed(t: &mut Block, errno: u32);
    /// Makes a short operation that can't wait on the object at this address, one thread at a time.
    fn ordered<R>(t: &mut Block, address: u64, operation: impl FnOnce() -> R) -> R;
    /// A value that the replay gets as it was recorded, computed only while recording: what a clock or the kernel said.
    fn value(t: &mut Block, compute: impl FnOnce() -> u64) -> u64;
}

/// No order at all: what `--engine none` has.
pub struct Unordered;

impl Order for Unordered {
    #[inline(always)]
    fn turn(_t: &mut Block, _object: &Runs) {}
    #[inline(always)]
    fn passed(_t: &mut Block, _object: &Runs) {}
    #[inline(always)]
    fn failure(_t: &mut Block) -> Option<u32> {
        None
    }
    #[inline(always)]
    fn failed(_t: &mut Block, _errno: u32) {}
    #[inline(always)]
    fn ordered<R>(_t: &mut Block, _address: u64, operation: impl FnOnce() -> R) -> R {
        operation()
    }
    #[inline(always)]
    fn value(_t: &mut Block, compute: impl FnOnce() -> u64) -> u64 {
        compute()
    }
}
