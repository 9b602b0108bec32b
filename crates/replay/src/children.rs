//! The children of this process. Only it reaps them: as long as one has not been reaped, nobody else has its id.

use libc::pid_t;

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
