//! `record --time-limit`: a run that takes longer is ended with all that came of it, and its recorder closes the trace then.
//!
//! A process of its own beside the launcher waits for the time: the launcher waits for others, and has one thread, because it forks.

use crate::recordings::programs_of;
use anyhow::{ensure, Context, Result};
use reprise_launch::{dispositions, process};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{
    pidfd_send_signal, set_parent_process_death_signal, waitid, Signal, WaitId, WaitIdOptions,
};
use rustix::stdio::{dup2_stdin, stdin};
use std::io::pipe;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::parent_id;
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
            keep_time(launcher, limit, tell.into());
        }
        Ok(TimeLimit {
            // A child that nobody has reaped yet.
            timekeeper: process::open(pid).context("watch the timekeeper")?,
            over: over.into(),
        })
    }

    /// Whether the run was ended because of it.
    pub fn is_over(&self) -> bool {
        let mut polled = [PollFd::new(&self.over, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|n| n > 0)
            && polled[0].revents().contains(PollFlags::IN)
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        // It may be gone, and reaped, where somebody has ended it.
        let _ = pidfd_send_signal(&self.timekeeper, Signal::KILL);
        let its = WaitId::PidFd(self.timekeeper.as_fd());
        let _ = waitid(its, WaitIdOptions::EXITED);
    }
}

/// Ends what the launcher records, again and again, once the time is over; goes with the launcher.
fn keep_time(launcher: i32, limit: Duration, tell: OwnedFd) -> ! {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // What a terminal sends is meant for the program.
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        dispositions::ignore(signal);
    }
    if parent_id() as i32 != launcher {
        // SAFETY: the child ends here, without running the parent's destructors.
        unsafe { libc::_exit(0) };
    }
    let _ = dup2_stdin(ManuallyDrop::new(tell).as_fd());
    // SAFETY: outputs and traces are held open by nobody here: in this process, which only ever ends by a signal, nothing that has a descriptor is used.
    unsafe { libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0) };
    std::thread::sleep(limit);
    let mut told = false;
    loop {
        // It may have ended just so, and its trace be written still.
        if !told && !programs_of(launcher).is_empty() {
            told = true;
            let _ = rustix::io::write(stdin(), b"!");
        }
        end_programs_of(launcher);
        std::thread::sleep(ROUND);
    }
}

/// Ends what this launcher records.
pub fn end_programs_of(launcher: i32) {
    for pid in programs_of(launcher) {
        // A process that has this recording's session in its memory.
        let _ = process::send(pid, Signal::KILL);
    }
}
