//! Sleeping on, and waking from, words of the session (futex(2)), by those who are outside the program.

use rustix::thread::futex::{self, Flags};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Between processes, not only threads of one.
const SHARED: Flags = Flags::empty();

/// Sleeps while the word has this value, for at most this long.
pub fn wait(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = futex::Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Whoever sleeps looks at the word again, whatever ended it.
    let _ = futex::wait(word, SHARED, value, Some(&limit));
}

/// Wakes up to `n` that sleep on the word.
pub fn wake(word: &AtomicU32, n: i32) {
    let _ = futex::wake(word, SHARED, n as u32);
}
