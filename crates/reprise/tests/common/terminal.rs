//! A terminal of its own for a command, as a terminal emulator makes one (pty(7), openpty(3)).

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a terminal: the side at which somebody types and reads, and the side of who is run there.
pub fn terminal() -> (File, OwnedFd) {
    let (mut master, mut slave) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: fills two descriptors, owned from here on.
    unsafe {
        let made = libc::openpty(&mut master, &mut slave, none, none as _, none as _);
        assert_eq!(made, 0, "openpty");
        (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

/// Makes that side of a terminal the controlling one of the command, and the command the leader of a session of its own.
pub fn controlled_by(command: &mut Command, terminal: &OwnedFd) {
    let number = terminal.as_raw_fd();
    // SAFETY: plain calls in the child.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            match libc::ioctl(number, libc::TIOCSCTTY, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}
