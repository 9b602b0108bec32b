//! Sleeping on, and waking from, words of the session (futex(2)), by those who are outside the program.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word has this value, for at most this long.
pub fn wait(word: &AtomicU32, value: u32, limit: Duration) {
    let t = libc::timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos() as i64,
    };
    // SAFETY: a word of ours or of the session.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &t);
    }
}

/// Wakes up to `n` that sleep on the word.
pub fn wake(word: &AtomicU32, n: i32) {
    // SAFETY: a word of ours or of the session.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, n);
    }
}
