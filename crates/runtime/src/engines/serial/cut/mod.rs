//! Slices that end in the middle of code (DESIGN 5): the logic of [`reprise_place`] applied to the program's threads.
//!
//! [`record`] takes the holder of the baton to a place that can be named and logs its name; [`replay`] finds the place again.
//! All of it runs in handlers of signals, on the runtime's signal stack, and in gates. There is at most one walk and one
//! planted place at a time, because only the holder runs.

pub mod record;
pub mod replay;

use crate::engines::serial::chaos::Timer;
use crate::engines::serial::hooked::Hooks;
use crate::machine::sys;
use crate::memory;
use crate::thread::Block;
use reprise_abi::layout::PAGE;

/// What a thread keeps between its cuts.
#[derive(Default)]
pub struct CutState {
    /// Processor time of the thread when its slice began, in nanoseconds.
    pub slice_began: i64,
    /// The thread's last slice ended where others wanted it, and it has woken nobody since (record).
    pub interrupted: bool,
    /// The thread has woken somebody who gets the baton at this gate (record).
    pub gives_way: bool,
    /// Under chaos, what ends its slices (record).
    pub timer: Timer,
    /// Under chaos, the thread leaves a gate with the trap flag, and a walk begins at the program's next instruction (record).
    pub steps: bool,
    /// The hooked functions that it calls.
    pub hooks: Hooks,
}

impl Block {
    /// What this engine keeps of the thread.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn cut(&self) -> &mut CutState {
        // SAFETY: the area is this room's own; filled when the block was made.
        unsafe { self.engine.get::<CutState>() }
    }
}

/// Gives pages the protection that the program chose.
fn restore_protection(first: u64, len: u64) {
    for page in (first..first + len).step_by(PAGE as usize) {
        if let Some(r) = memory::map().at(page) {
            sys::mprotect(page, PAGE, r.prot as u64);
        }
    }
}
