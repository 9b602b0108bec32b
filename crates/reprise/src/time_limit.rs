//! `record --time-limit`: a run that takes longer is ended with all that came of it, and its recorder closes the trace then.
//!
//! A process of its own beside the launcher waits for the time: the launcher waits for others, and has one thread, because it forks.

use crate::recordings::programs_of;
use anyhow::{ensure, Context, Result};
use std::io::pipe;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Between two rounds in which what is left of a program is ended.
pub const ROUND: Duration = Duration::from_millis(100);

/// The time of a run of this process. It counts until this goes.
pub struct TimeLimit {
    /// A descriptor of the process that waits for it.
    timekeeper: OwnedFd,
    /// Has a byte when something was ended because of it.
    over: OwnedFd,
}

impl TimeLimit {
    /// The program that this process records has so much time, from now on.
    ///
    /// # Errors
    /// When no process can be made.
    pub fn start(limit: Duration) -> Result<TimeLimit> {
        let (over, tell) = pipe().context("make a pipe to the timekeeper")?;
        let launcher = std::process::id() as i32;
        // SAFETY: plain call; this process has one thread.
        let pid = unsafe { libc::fork() };
        let error = std::io::Error::last_os_error();
        ensure!(pid >= 0, "fork the timekeeper: {error}");
        if pid == 0 {
            keep_time(launcher, limit, tell.as_raw_fd());
        }
        // SAFETY: a new descriptor of a child that nobody has reaped yet, owned from here on.
        let timekeeper = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32 };
        let error = std::io::Error::last_os_error();
        ensure!(timekeeper >= 0, "watch the timekeeper: {error}");
        Ok(TimeLimit {
            // SAFETY: see there.
            timekeeper: unsafe { OwnedFd::from_raw_fd(timekeeper) },
            over: over.into(),
        })
    }

    /// Whether the run was ended because of it.
    pub fn is_over(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.over.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor of ours.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 && poll.revents & libc::POLLIN != 0 }
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        let fd = self.timekeeper.as_raw_fd();
        // SAFETY: plain calls. It may be gone, and reaped, where somebody has ended it.
        unsafe {
            let none = std::ptr::null::<libc::siginfo_t>();
            libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0);
            libc::waitid(
                libc::P_PIDFD,
                fd as u32,
                &mut std::mem::zeroed(),
                libc::WEXITED,
            );
        }
    }
}

/// Ends what the launcher records, again and again, once the time is over; goes with the launcher.
fn keep_time(launcher: i32, limit: Duration, tell: i32) -> ! {
    // SAFETY: plain calls. What a terminal sends is meant for the program, and outputs and traces are held open by nobody here.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        if libc::getppid() != launcher {
            libc::_exit(0);
        }
        libc::dup2(tell, 0);
        libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0);
    }
    std::thread::sleep(limit);
    let mut told = false;
    loop {
        // It may have ended just so, and its trace be written still.
        if !told && !programs_of(launcher).is_empty() {
            told = true;
            // SAFETY: one byte of ours, to the pipe.
            unsafe { libc::write(0, b"!".as_ptr().cast(), 1) };
        }
        end_programs_of(launcher);
        std::thread::sleep(ROUND);
    }
}

/// Ends what this launcher records.
pub fn end_programs_of(launcher: i32) {
    for pid in programs_of(launcher) {
        // SAFETY: plain call, to a process that has this recording's session in its memory.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}
