//! Standard streams of processes that work beside a program: whoever reads them may go away, and is to see their end.

use reprise_console::log;

/// These descriptors are of nothing from now on. With the standard error goes the log that is written there.
pub fn leave(which: &[i32]) {
    if which.contains(&libc::STDERR_FILENO) {
        log::leave();
    }
    // SAFETY: plain calls on descriptors that this process has.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in which {
            libc::dup2(null, *fd);
        }
        libc::close(null);
    }
}
