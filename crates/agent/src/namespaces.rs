//! Processes in pid namespaces of their own, found by the numbers that they have there (pid_namespaces(7)).

use crate::requests::done;
use reprise_abi::session::{process_state, request, Session, MAX_PROCESSES};
use reprise_launch::SharedSession;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::*;

/// Answers the open request for a thread's numbers, if there is one.
pub fn answer(shared: &SharedSession) {
    let s = shared.session();
    let q = &s.request;
    if q.kind.load(Acquire) != request::FIND {
        return;
    }
    let [pid, tid] = [0, 1].map(|i| q.args[i].load(Relaxed) as u32);
    let found = find(s, pid).and_then(|real| Some((real, find_thread(real, tid)?)));
    match found {
        Some((pid, tid)) => {
            q.answer[0].store(pid.into(), Relaxed);
            q.answer[1].store(tid.into(), Relaxed);
            q.status.store(0, Relaxed);
        }
        None => q.status.store(libc::ESRCH as u32, Relaxed),
    }
    done(shared);
}

/// The process that calls itself `own`: one inside a namespace, made by a process of the session. Of several, one that is not
/// known yet.
pub fn find(s: &Session, own: u32) -> Option<u32> {
    let known: HashSet<u32> = (0..MAX_PROCESSES)
        .map(|n| &s.processes[n])
        .filter(|p| p.state.load(Acquire) == process_state::LIVE)
        .map(|p| p.kernel_pid.load(Acquire))
        .collect();
    let mut all: Vec<(bool, bool, u32)> = numbers(Path::new("/proc"))
        .filter_map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let inside = last_of(&status, "NStgid:").filter(|(n, depth)| *depth > 1 && *n == own);
            let parent = field(&status, "PPid:").and_then(|p| p.trim().parse().ok());
            let of_ours = parent.is_some_and(|p: u32| known.contains(&p));
            inside.map(|_| (!known.contains(&pid), of_ours, pid))
        })
        .collect();
    all.sort_unstable();
    all.pop().map(|(_, _, pid)| pid)
}

fn find_thread(pid: u32, own: u32) -> Option<u32> {
    numbers(Path::new(&format!("/proc/{pid}/task"))).find(|tid| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"))
            .is_ok_and(|status| last_of(&status, "NSpid:").is_some_and(|(n, _)| n == own))
    })
}

/// The ids by which a process is known in its own namespace and those around it.
pub fn all_numbers(pid: u32) -> Vec<i64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = field(&status, "NStgid:").unwrap_or_default();
    of.split_whitespace()
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// Entries of a directory of /proc that are numbers.
pub fn numbers(dir: &Path) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// What stands behind a name in a status file of /proc.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|l| l.strip_prefix(name))
}

/// The last of several numbers behind a name, and how many there are.
fn last_of(status: &str, name: &str) -> Option<(u32, usize)> {
    let numbers: Vec<&str> = field(status, name)?.split_whitespace().collect();
    Some((numbers.last()?.parse().ok()?, numbers.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_status_file() {
        let status = "Name:\tsh\nNStgid:\t4711\t12\t1\nNSpid:\t4711\t12\t1\n";
        assert_eq!(last_of(status, "NStgid:"), Some((1, 3)));
        assert_eq!(last_of(status, "NSsid:"), None);
        let own = all_numbers(std::process::id());
        assert_eq!(own.first(), Some(&i64::from(std::process::id())));
    }
}
