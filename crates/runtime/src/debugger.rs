//! What a replay tells the debugger that traces it (ptrace(2)): where the program's registers are, and when the runtime reads or writes
//! the program's code, so that no breakpoint is in it meanwhile.

use crate::asm::{rt_breakpoints_in, rt_breakpoints_out};
use crate::process;
use crate::signal::frame::Ucontext;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::session::shown;

/// Does a debugger trace this process?
pub fn traces() -> bool {
    process::entry().debugged.load(Relaxed) != 0
}

/// While it lives, the debugger's breakpoints are not in the program's code.
pub struct CodeAsRecorded(());

impl CodeAsRecorded {
    /// Has the breakpoints taken out; `None` when there is no debugger.
    #[inline]
    pub fn begin() -> Option<CodeAsRecorded> {
        traces().then(|| {
            // SAFETY: a breakpoint that the debugger knows.
            unsafe { rt_breakpoints_out() };
            CodeAsRecorded(())
        })
    }
}

impl Drop for CodeAsRecorded {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { rt_breakpoints_in() };
    }
}

/// From here on the program's registers are those of a gate's frame.
#[inline]
pub fn show_frame(t: &Block, frame: &Frame) {
    let at = core::ptr::from_ref(frame) as u64;
    t.slot().shown.store(at | shown::FRAME, Relaxed);
}

/// From here on they are those that a signal interrupted.
#[inline]
pub fn show_context(t: &Block, uc: &Ucontext) {
    let at = core::ptr::from_ref(uc) as u64;
    t.slot().shown.store(at | shown::CONTEXT, Relaxed);
}
