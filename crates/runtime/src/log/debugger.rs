//! What a replay tells the debugger that traces it (ptrace(2)): where the program's registers are, when the runtime reads or writes
//! the program's code, so that no breakpoint is in it meanwhile. And, under `order`, where it waits for
//! the debugger's leave to go on ([`reprise_abi::pace`]).

use crate::log::total;
use crate::machine::asm::{rt_breakpoints_in, rt_breakpoints_out};
use crate::machine::sys;
use crate::thread::process;
use crate::thread::request;
use crate::thread::rings::ring_of;
use crate::thread::{current, session, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::session::shown;

/// A sleeper looks after this many nanoseconds whether the driver is still there.
const LONGEST_NAP: i64 = 100_000_000;

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

/// From here on they are those of a context that a signal interrupted.
#[inline]
pub fn show_context<T>(t: &Block, uc: &T) {
    let at = core::ptr::from_ref(uc) as u64;
    t.slot().shown.store(at | shown::CONTEXT, Relaxed);
}

/// Does a debugger drive this replay, in total order?
#[inline]
pub fn paces() -> bool {
    total::runs() && traces()
}

/// The calling thread, whose turn it is, wants the next event or entry: it waits until it may have it.
#[inline]
pub fn await_leave() {
    if paces() {
        wait();
    }
}

#[cold]
fn wait() {
    let (pace, slot) = (session().pace(), current().slot_number());
    let own = &ring_of(slot).0.events;
    while pace.holds(slot, own.load(SeqCst)) {
        pace.held.store(1, SeqCst);
        if pace.holds(slot, own.load(SeqCst)) {
            request::wake_agent();
            let until = sys::Timespec::from_ns(sys::monotonic().ns() + LONGEST_NAP);
            sys::futex_wait(pace.held.as_ptr(), 1, Some(&until));
        }
        pace.held.store(0, SeqCst);
        if !crate::thread::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
}

/// An event or an entry was used up.
#[inline]
pub fn used_up() {
    if paces() {
        session().pace().one_more();
    }
}

/// The process ends here, and there is nothing else to be done: it stays for whoever looks at it.
pub fn stay() {
    session().pace().end();
    wait();
}
