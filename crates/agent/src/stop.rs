//! A recording that is to end before its program does: the user says so by a signal to the agent (`reprise stop`).

use std::sync::atomic::{AtomicBool, Ordering::*};

/// The signal that says so.
pub const SIGNAL: i32 = libc::SIGUSR1;

static WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn wanted(_: i32) {
    WANTED.store(true, SeqCst);
}

/// From here on the signal is heard. It ends the agent's sleep, too.
pub fn listen() {
    let handler = wanted as extern "C" fn(i32);
    // SAFETY: a handler that only stores a word.
    unsafe { libc::signal(SIGNAL, handler as libc::sighandler_t) };
}

/// Is the recording to end?
pub fn is_wanted() -> bool {
    WANTED.load(SeqCst)
}
