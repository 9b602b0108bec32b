//! What private views of memory ask of whoever says when a thread shows what it wrote, and who is asked to do something in its own process.

use super::owned::How;
use crate::thread::{panic, Block};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;

/// See the module. All that isn't said to be otherwise is asked in a turn: while nobody else changes what is shared.
pub trait Phases: Sync {
    /// Number of the round of commits.
    fn round(&self) -> u32;
    /// A number for a twin. At any time.
    fn take_twin(&self) -> u32;
    /// Threads of the program that have not ended.
    fn live(&self) -> u32;
    /// Number of the thread of this slot, in the order in which threads were made. At any time.
    fn number_of(&self, slot: u32) -> u32;
    /// Is the calling thread in a turn, and not one of several at work?
    fn is_in_turn(&self, t: &Block) -> bool;
    /// In a phase: the thread is about to look at the table of views, or to open a descriptor for a moment. True: [`Phases::has_looked`] is to be told.
    fn looks(&self) -> bool;
    /// It has looked.
    fn has_looked(&self);
    /// Has the thread of this slot give back its own pages between these addresses.
    fn give_back(&self, slot: u32, start: u64, end: u64, how: How);
    /// Has the thread that is the program's process to others make this call.
    fn call_by_first(&self, number: u64, args: &[u64; 6]) -> i64;
    /// Others have this protection there from now on.
    fn tell_protection(&self, t: &Block, at: u64, len: u64, prot: u64);
    /// Set by a child of fork(2) when it has its copy of the memory.
    fn has_copied(&self) -> &'static AtomicU32;
    /// This process has left the memory of the threads: what was shared with them is of no use any more.
    fn left(&self);
}

struct Policy(UnsafeCell<Option<&'static dyn Phases>>);
// SAFETY: set while there is one thread, before anybody has a view of his own.
unsafe impl Sync for Policy {}
static POLICY: Policy = Policy(UnsafeCell::new(None));

/// Says whom to ask, before anything of this room is in use.
pub fn start(policy: &'static dyn Phases) {
    // SAFETY: see `Policy`.
    unsafe { *POLICY.0.get() = Some(policy) }
}

/// Whom to ask.
pub fn phases() -> &'static dyn Phases {
    // SAFETY: see `Policy`.
    match unsafe { *POLICY.0.get() } {
        Some(policy) => policy,
        None => panic::give_up("private views without anybody who orders them"),
    }
}

/// Looks at the table of views, or opens a descriptor for a moment, in a phase.
pub fn look<R>(f: impl FnOnce() -> R) -> R {
    let looks = phases().looks();
    let r = f();
    if looks {
        phases().has_looked();
    }
    r
}
