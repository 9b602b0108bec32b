//! The children of this process. Only it reaps them: as long as one has not been reaped, nobody else has its id.

use libc::pid_t;
use std::time::Duration;

/// All children of this process.
pub(crate) fn all() -> Vec<pid_t> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = tasks.flatten().filter_map(|task| {
        let list = std::fs::read_to_string(task.path().join("children"));
        list.ok()
    });
    lists
        .flat_map(|l| {
            l.split_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect::<Vec<pid_t>>()
        })
        .collect()
}

/// The processes that this one traces (ptrace(2)), whoever their parents are.
pub(crate) fn traced() -> Vec<pid_t> {
    let tracer = format!("TracerPid:\t{}", std::process::id());
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_traced = |pid: &pid_t| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|s| s.lines().any(|line| line == tracer))
    };
    pids.filter(is_traced).collect()
}

/// Is this a child of this process, alive or not, that has not been reaped?
pub fn is_ours(pid: pid_t) -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the kernel fills the structure; nothing is reaped.
    pid > 0
        && unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, options) == 0
        }
}

/// Sends a signal to a child that has not been reaped. Who was, and may be somebody else by now, gets none.
pub fn signal(pid: pid_t, signal: i32) {
    if is_ours(pid) {
        // SAFETY: plain call.
        unsafe { libc::kill(pid, signal) };
    }
}

/// What the threads of a process do, as `/proc` has it: running, sleeping, stopped (proc_pid_stat(5)). Empty when it is gone.
pub(crate) fn states(pid: pid_t) -> Vec<char> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let state = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        stat.rsplit(')').next()?.trim_start().chars().next()
    };
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.filter_map(state).collect()
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

    #[test]
    fn who_was_reaped_gets_no_signal() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as pid_t;
        assert!(is_ours(pid) && all().contains(&pid));
        signal(pid, libc::SIGKILL);
        // Dead or alive, it is there until somebody asks.
        assert!(is_ours(pid));
        child.wait().unwrap();
        assert!(!is_ours(pid) && !all().contains(&pid));
        assert!(!is_ours(1) && !is_ours(0) && !is_ours(-1));
    }
}
