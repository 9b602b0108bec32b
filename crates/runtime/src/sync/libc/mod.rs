//! The synchronisation of libc, done by the runtime ([`crate::sync::hook`] leads the program's calls here): the same promises, on the same objects,
//! ordered by an [`Order`](crate::engine::order::Order).
//!
//! Objects lie in the program's memory, where static initialisers and functions that aren't hooked have glibc's layouts in mind: the words
//! that those know keep their places, the others are ours. What an operation needs and finds no room for lies in a table ([`side`]).
//!
//! A pointer of the program may be bad. Then the operation ends in the middle, and the program gets the fault at the function's entry
//! ([`crate::sync::hook::shim::fault`]); nothing of the runtime's may be held while the program's memory is touched.

pub mod atomic;
pub mod barrier;
pub mod cancel;
pub mod cond;
pub mod cxa;
pub mod errno;
pub mod join;
pub mod kill;
pub mod malloc;
pub mod mutex;
pub mod once;
pub mod robust;
pub mod rwlock;
pub mod sem;
pub mod side;
pub mod spin;

use crate::heap;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;

/// Why an operation didn't come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A signal is to be delivered first.
    Signal,
    /// It failed with this error number.
    Error(u32),
}

/// In r8, mixed with the object's address, of a function that is entered to go on where a signal interrupted it: r9 says where. None of
/// the functions takes that many arguments, and the program has this value in r8 by no accident.
const GOES_ON: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mark of an operation on this object that goes on.
fn mark(object: u64) -> u64 {
    object.rotate_left(32) ^ GOES_ON
}

/// The thread id by which objects know their owner.
#[inline(always)]
fn tid(t: &mut Block) -> u32 {
    if t.tid == 0 {
        t.tid = t.slot().visible_tid.load(Relaxed);
    }
    t.tid
}

/// The object at an address of the program.
///
/// # Safety
/// The address may be anything: only atomic words of the object may be used, with nothing held that a fault would leave behind.
#[inline(always)]
unsafe fn object<T>(address: u64) -> &'static T {
    // SAFETY: as the caller promises; `T` consists of atomics.
    unsafe { &*(address as *const T) }
}

/// Adds what the thread has done to the session's counter.
pub fn count(t: &mut Block) {
    let n = core::mem::take(&mut t.operations);
    session().counters.operations.fetch_add(n, Relaxed);
}

/// In the copy of a memory that fork(2) made, whose only thread is the calling one.
pub fn after_fork(t: &mut Block) {
    once::after_fork();
    join::after_fork();
    heap::after_fork(t);
    t.operations = 0;
}

/// The tables beside the objects, each at the start of a page, with their bytes: they belong to the memory.
pub fn tables() -> impl Iterator<Item = (u64, u64)> {
    heap::prepare();
    [heap::table(), side::place()].into_iter()
}

/// Makes them, before there are copies of the memory: what is made only then lies elsewhere in each, and no state of one could be taken over by another.
pub fn makes_tables() {
    tables().for_each(drop);
}

#[allow(missing_docs)]
pub mod error {
    pub const EPERM: u32 = 1;
    pub const EINTR: u32 = 4;
    pub const EAGAIN: u32 = 11;
    pub const EBUSY: u32 = 16;
    pub const EINVAL: u32 = 22;
    pub const EDEADLK: u32 = 35;
    pub const EOVERFLOW: u32 = 75;
    pub const ETIMEDOUT: u32 = 110;
    pub const EOWNERDEAD: u32 = 130;
    pub const ENOTRECOVERABLE: u32 = 131;
}
