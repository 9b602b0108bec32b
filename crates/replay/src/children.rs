//! The children of this process. Only it reaps them: as long as one has not been reaped, nobody else has its id.

use libc::pid_t;
use reprise_launch::proc_files::{self, Stat, Status};
use reprise_launch::{process, SharedSession};
use rustix::process::{waitid, Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::time::Duration;

/// All children of this process.
pub(crate) fn all() -> Vec<pid_t> {
    proc_files::children_of("self")
}

/// The processes that this one traces (ptrace(2)), whoever their parents are.
pub(crate) fn traced() -> Vec<pid_t> {
    let is_traced = |pid: &pid_t| {
        let status = Status::of_process(pid);
        status.is_ok_and(|s| s.number("TracerPid") == Some(std::process::id()))
    };
    proc_files::processes().filter(is_traced).collect()
}

/// __WALL of waitid(2): those that were cloned, too.
pub(crate) const ALL: WaitIdOptions = WaitIdOptions::from_bits_retain(libc::__WALL as u32);

/// Who has ended or stopped, and the wait status; `None`: nobody.
pub(crate) fn next_change() -> rustix::io::Result<Option<(pid_t, i32)>> {
    let all = WaitOptions::from_bits_retain(ALL.bits());
    let change = rustix::process::wait(WaitOptions::NOHANG | all)?;
    Ok(change.map(|(pid, status)| (pid.as_raw_pid(), status.as_raw())))
}

/// Is this a child of this process, alive or not, that has not been reaped?
pub fn is_ours(pid: pid_t) -> bool {
    let positive = Some(pid).filter(|pid| *pid > 0);
    let Some(pid) = positive.and_then(Pid::from_raw) else {
        return false;
    };
    // Nothing is reaped.
    let only_look = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | only_look | ALL).is_ok()
}

/// The replayed process that has this id. Ids in the session are the replayed program's to write, who could name anybody there: it must be a child of this
/// process that has the session's memory mapped, as the kernel tells it. `None` when it is none, or has ended.
pub(crate) fn replayed(shared: &SharedSession, id: u32) -> Option<pid_t> {
    let pid = pid_t::try_from(id).ok()?;
    (is_ours(pid) && shared.is_mapped_by(id, id).unwrap_or(false)).then_some(pid)
}

/// Sends a signal to a child that has not been reaped. Who was, and may be somebody else by now, gets none.
pub fn signal(pid: pid_t, signal: Signal) {
    if is_ours(pid) {
        let _ = process::send(pid, signal);
    }
}

/// What the threads of a process do, as `/proc` has it: running, sleeping, stopped (proc_pid_stat(5)). Empty when it is gone.
pub(crate) fn states(pid: pid_t) -> Vec<char> {
    let threads = proc_files::threads_of::<pid_t>(pid).into_iter().flatten();
    let state = |tid| Stat::of_thread(pid, tid).ok()?.state();
    threads.filter_map(state).collect()
}

/// The processors' time that a process has used.
pub(crate) fn time(pid: pid_t) -> Duration {
    // SAFETY: fills what is ours.
    unsafe {
        let (mut clock, mut now): (libc::clockid_t, libc::timespec) = (0, std::mem::zeroed());
        match libc::clock_getcpuclockid(pid, &mut clock) == 0
            && libc::clock_gettime(clock, &mut now) == 0
        {
            true => Duration::new(now.tv_sec as u64, now.tv_nsec as u32),
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Ids out of the session are believed of nobody but children that have its memory.
    #[test]
    fn only_a_child_with_the_sessions_memory_is_replayed() {
        let shared = SharedSession::create().unwrap();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        // SAFETY: the child does nothing but wait.
        let copy = match unsafe { libc::fork() } {
            0 => loop {
                rustix::event::pause();
            },
            pid => pid,
        };
        for other in [0, 1, std::process::id(), child.id(), u32::MAX] {
            assert_eq!(replayed(&shared, other), None, "{other}");
        }
        assert_eq!(replayed(&shared, copy as u32), Some(copy));
        signal(copy, Signal::KILL);
        process::reap(copy).unwrap();
        assert_eq!(replayed(&shared, copy as u32), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn who_was_reaped_gets_no_signal() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as pid_t;
        assert!(is_ours(pid) && all().contains(&pid));
        signal(pid, Signal::KILL);
        // Dead or alive, it is there until somebody asks.
        assert!(is_ours(pid));
        child.wait().unwrap();
        assert!(!is_ours(pid) && !all().contains(&pid));
        assert!(!is_ours(1) && !is_ours(0) && !is_ours(-1));
    }
}
