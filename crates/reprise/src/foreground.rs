//! Job control (setpgid(2), tcsetpgrp(3)) of a program that is recorded from a shell.
//!
//! The shell waits for the recorder, and the recorder for the program. A key stops both. A program that stops by itself, as an interactive shell does by `suspend`,
//! would leave the terminal to nobody: the recorder stops with it, so that the shell below comes back, and both go on when that says so.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The program `pid` has stopped: if it had the terminal, or left it to us, we stop until the shell continues us, and then the program.
pub fn stop_with(pid: i32) {
    let Ok(terminal) = File::open("/dev/tty") else {
        return;
    };
    let terminal = terminal.as_raw_fd();
    // SAFETY: plain calls. The program is our own child, which has not been reaped.
    unsafe {
        let (foreground, group) = (libc::tcgetpgrp(terminal), libc::getpgid(pid));
        let has_own = group != libc::getpgrp();
        if foreground != group && foreground != libc::getpgrp() {
            return;
        }
        libc::raise(libc::SIGSTOP);
        // The shell has continued its job, and has given it the terminal if it is to be in the foreground.
        if has_own && foreground == group && libc::tcgetpgrp(terminal) == libc::getpgrp() {
            libc::tcsetpgrp(terminal, group);
        }
        // A program in the job has been continued already, since it is in the group for a shorter time than we are.
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let goes_on = libc::WCONTINUED | libc::WNOHANG;
        libc::waitid(libc::P_PID, pid as u32, &mut info, goes_on);
        if info.si_pid() != pid {
            libc::kill(if has_own { -group } else { pid }, libc::SIGCONT);
        }
    }
}
