//! A recording that is to end before its program does: the user says so by a signal to the agent (`reprise stop`).

use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// The signal that says so.
pub const SIGNAL: Signal = Signal::USR1;

static WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn wanted(_: i32) {
    WANTED.store(true, SeqCst);
}

/// What became of the signal before it was [listened](listen) to.
pub struct Before(libc::sigaction);

/// From here on the signal is heard. It ends the agent's sleep, too. To be called before the agent is forked: it may be sent to him at once, and would
/// end him otherwise.
pub fn listen() -> Before {
    let handler = wanted as extern "C" fn(i32);
    // SAFETY: a handler that only stores a word.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(SIGNAL.as_raw(), &new, &mut before);
        Before(before)
    }
}

impl Before {
    /// For whoever has forked the agent.
    pub fn restore(self) {
        // SAFETY: what was there before.
        unsafe { libc::sigaction(SIGNAL.as_raw(), &self.0, std::ptr::null_mut()) };
    }
}

/// Is the recording to end?
pub fn is_wanted() -> bool {
    WANTED.load(SeqCst)
}
