//! What is kept of each thread of the program, by slot, where others look at it: which signals it hears, and how far it has followed what others did to the
//! address space.
//!
//! It is data of the image's, so all thread-processes share it.

use super::owned;
use crate::signal::kernel::WANTED;
use crate::thread::process;
use crate::thread::{session, slot};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::layout::MAX_SLOTS;

/// Whether signals come to a thread.
pub mod hearing {
    #![allow(missing_docs)]
    pub const HEARS: u32 = 0;
    /// It has just been made.
    pub const NOT_YET: u32 = 1;
    /// It ends.
    pub const NO_MORE: u32 = 2;
}

/// One thread.
#[repr(align(64))]
pub struct Member {
    /// How many of the changes of the address space it has followed ([`super::space`]).
    pub followed: AtomicU64,
    /// One of [`hearing`].
    pub hearing: AtomicU32,
    /// Its call in the kernel is to end: a signal waits for it.
    pub called: AtomicU32,
    /// Signals for one of which it waits (sigtimedwait(2)).
    pub sigwait: AtomicU64,
    /// Signals that it knows to be wanted ([`super::outside`]).
    pub wants: AtomicU64,
    /// Which thread of the program it is, by the order in which they were made.
    number: AtomicU32,
}

/// Threads that there ever were.
static MADE: AtomicU32 = AtomicU32::new(0);

static MEMBERS: [Member; MAX_SLOTS] = [const {
    Member {
        followed: AtomicU64::new(0),
        hearing: AtomicU32::new(hearing::HEARS),
        called: AtomicU32::new(0),
        sigwait: AtomicU64::new(0),
        wants: AtomicU64::new(0),
        number: AtomicU32::new(0),
    }
}; MAX_SLOTS];

/// The thread of this slot.
pub fn member(slot: u32) -> &'static Member {
    &MEMBERS[slot as usize % MAX_SLOTS]
}

/// In a turn: a thread is about to be made on this slot. It has its maker's address space, and its handlers, in the kernel too.
pub fn begins(slot: u32) {
    owned::thread_begins(slot);
    let m = member(slot);
    m.number.store(MADE.fetch_add(1, Relaxed), Relaxed);
    m.followed.store(super::space::made(), Relaxed);
    m.sigwait.store(0, Relaxed);
    m.wants.store(WANTED.load(Relaxed), Relaxed);
    m.called.store(0, Relaxed);
    m.hearing.store(hearing::NOT_YET, Relaxed);
}

/// The program's only thread, of this slot, is about to have others beside it.
pub fn start(slot: u32) {
    MADE.store(0, Relaxed);
    begins(slot);
    member(slot).hearing.store(hearing::HEARS, SeqCst);
}

/// Number of the thread of this slot, in the order in which they were made.
pub fn number_of(slot: u32) -> u32 {
    member(slot).number.load(Relaxed)
}

/// The slots of the program's threads, those that have ended included.
pub fn slots() -> impl Iterator<Item = u32> {
    let used = session().slots_used.load(Relaxed);
    (0..used).filter(|s| is_ours(*s))
}

/// Is this the slot of a thread of this process?
pub fn is_ours(s: u32) -> bool {
    slot(s).process.load(Relaxed) == process::number()
}
