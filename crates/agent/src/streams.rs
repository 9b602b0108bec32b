//! Standard streams of processes that work beside a program: whoever reads them may go away, and is to see their end.

use reprise_console::log;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::File;

/// These standard streams are of nothing from now on. With the standard error goes the log that is written there.
pub fn leave(which: &[i32]) {
    if which.contains(&libc::STDERR_FILENO) {
        log::leave();
    }
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    for fd in which {
        let _ = match *fd {
            libc::STDIN_FILENO => dup2_stdin(&null),
            libc::STDOUT_FILENO => dup2_stdout(&null),
            _ => dup2_stderr(&null),
        };
    }
}
