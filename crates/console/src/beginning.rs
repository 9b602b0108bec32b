//! What this process was given, and Rust's standard library changes before `main`: it ignores SIGPIPE, and opens /dev/null in place of
//! standard streams that are closed. A program that is recorded is to find both as they were.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

/// How many standard streams there are.
const STREAMS: i32 = 3;

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Was SIGPIPE ignored when this process began?
pub fn was_sigpipe_ignored() -> bool {
    SIGPIPE_IGNORED.load(Relaxed)
}

/// Was this standard stream closed when this process began? Safe after a fork.
pub fn was_closed(fd: i32) -> bool {
    (0..STREAMS).contains(&fd) && CLOSED.load(Relaxed) & 1 << fd != 0
}

/// Runs before `main`, and so before the standard library.
extern "C" fn note() {
    // SAFETY: reads a disposition, and whether descriptors are open.
    unsafe {
        let mut a: libc::sigaction = std::mem::zeroed();
        let read = libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut a) == 0;
        SIGPIPE_IGNORED.store(read && a.sa_sigaction == libc::SIG_IGN, Relaxed);
        for fd in 0..STREAMS {
            if libc::fcntl(fd, libc::F_GETFD) < 0 {
                CLOSED.fetch_or(1 << fd, Relaxed);
            }
        }
    }
}

#[used]
#[link_section = ".init_array"]
static NOTE: extern "C" fn() = note;
