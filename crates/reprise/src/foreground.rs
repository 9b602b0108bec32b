//! Job control (setpgid(2), tcsetpgrp(3)) of a program that is recorded from a shell.
//!
//! The shell waits for the recorder, and the recorder for the program. A key stops both. A program that stops by itself, as an interactive shell does by `suspend`,
//! would leave the terminal to nobody: the recorder stops with it, so that the shell below comes back, and both go on when that says so.

use rustix::process::{
    getpgid, getpgrp, kill_process, kill_process_group, waitid, Pid, Signal, WaitId, WaitIdOptions,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;

/// The program `pid` has stopped: if it had the terminal, or left it to us, we stop until the shell continues us, and then the program.
pub fn stop_with(pid: i32) {
    let Ok(terminal) = File::open("/dev/tty") else {
        return;
    };
    // The program is our own child, which has not been reaped.
    let Some(program) = Pid::from_raw(pid) else {
        return;
    };
    let Ok(group) = getpgid(Some(program)) else {
        return;
    };
    let foreground = tcgetpgrp(&terminal).ok();
    let has_own = group != getpgrp();
    if foreground != Some(group) && foreground != Some(getpgrp()) {
        return;
    }
    // SAFETY: stops this process, which has one thread.
    unsafe { libc::raise(libc::SIGSTOP) };
    // The shell has continued its job, and has given it the terminal if it is to be in the foreground.
    if has_own && foreground == Some(group) && tcgetpgrp(&terminal) == Ok(getpgrp()) {
        let _ = tcsetpgrp(&terminal, group);
    }
    // A program in the job has been continued already, since it is in the group for a shorter time than we are.
    let goes_on = WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
    if !matches!(waitid(WaitId::Pid(program), goes_on), Ok(Some(_))) {
        let _ = match has_own {
            true => kill_process_group(group, Signal::CONT),
            false => kill_process(program, Signal::CONT),
        };
    }
}
