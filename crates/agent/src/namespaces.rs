//! Processes in pid namespaces of their own, found by the numbers that they have there (pid_namespaces(7)).

use crate::asked::Asked;
use crate::members::Members;
use crate::processes::is_gone;
use crate::requests::done;
use reprise_abi::session::{process_state, MAX_PROCESSES};
use reprise_launch::proc_files::{self, children_of, Status};
use reprise_launch::SharedSession;
use std::collections::HashSet;
use std::sync::atomic::Ordering::*;

/// Answers the open request for a thread's numbers, if there is one.
pub fn answer(shared: &SharedSession) {
    let s = shared.session();
    let q = &s.request;
    let Some(Asked::Find {
        process,
        thread,
        number,
    }) = Asked::open(shared)
    else {
        return;
    };
    let found = find(shared, number, process);
    match found.and_then(|f| Some((f, find_thread(f.pid, thread)?))) {
        Some((f, tid)) => {
            q.answer[0].store(f.pid.into(), Relaxed);
            q.answer[1].store(tid.into(), Relaxed);
            q.answer[2].store(f.inside as u64, Relaxed);
            q.status.store(0, Relaxed);
        }
        None => q.status.store(libc::ESRCH as u32, Relaxed),
    }
    done(shared);
}

/// A process as the agent sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its id.
    pub pid: u32,
    /// How many pid namespaces it is further inside than the agent.
    pub inside: usize,
    /// Its id in its own namespace.
    own: u32,
}

/// The session's process `n`, which lives and calls itself `own`.
fn find(shared: &SharedSession, n: usize, own: u32) -> Option<Found> {
    let p = &shared.session().processes[n];
    let known = p.kernel_pid.load(Acquire);
    if known != 0 {
        return look_at(known, 0, known).map(|(f, _)| f);
    }
    let told = p.told.load(Acquire);
    let found = candidates(shared, n, told);
    found.into_iter().find(|f| f.own == own)
}

/// Who may be the session's process `n`, which doesn't know itself yet, the likeliest first. Its maker was told of it by the number `told`.
///
/// That number counts in its maker's namespace, in which no other process has it; and the maker's children are in that namespace, or
/// further inside. So of the children of the maker it is the only one. Where the maker has died, or made it as a sister (CLONE_PARENT), others
/// are looked at: those that are no known process of the session, and may be one. The machine has namespaces of others (containers, boxes of replays), in which the same
/// numbers are in use.
pub fn candidates(shared: &SharedSession, n: usize, told: u32) -> Vec<Found> {
    let s = shared.session();
    let p = &s.processes[n];
    let level = p.told_inside.load(Relaxed) as usize;
    if level == 0 {
        return look_at(told, 0, told).map(|(f, _)| f).into_iter().collect();
    }
    let maker = p.maker.load(Relaxed);
    let of_maker = children_of(maker)
        .into_iter()
        .filter_map(|pid| look_at(pid, level, told));
    let found: Vec<Found> = of_maker.map(|(f, _)| f).collect();
    if !found.is_empty() {
        return found;
    }
    let known: HashSet<u32> = (0..MAX_PROCESSES)
        .map(|n| &s.processes[n])
        .filter(|p| p.state.load(Acquire) == process_state::LIVE)
        .map(|p| p.kernel_pid.load(Acquire))
        .collect();
    let mut all: Vec<(bool, Found)> = proc_files::processes()
        .filter(|pid| !known.contains(pid))
        .filter_map(|pid| look_at(pid, level, told))
        .map(|(f, parent)| (!known.contains(&parent), f, parent))
        .filter(|(is_orphan, f, parent)| !is_orphan || may_be_of(shared, f.pid, *parent))
        .map(|(is_orphan, f, _)| (is_orphan, f))
        .collect();
    // Those whose parents are of the session first.
    all.sort_by_key(|(is_orphan, f)| (*is_orphan, f.pid));
    all.into_iter().map(|(_, f)| f).collect()
}

/// May a process whose parent is none of the session be of it? It has the session's memory from its making on; of one that is dead the parent tells: who takes in
/// orphans here.
fn may_be_of(shared: &SharedSession, pid: u32, parent: u32) -> bool {
    const FIRST: u32 = 1;
    if is_gone(pid) {
        let ours = [std::process::id(), std::os::unix::process::parent_id()];
        return parent == FIRST || ours.contains(&parent);
    }
    Members::maps(shared, pid) != Some(false)
}

/// Process `pid` and its parent, if its number is `told` so many namespaces further inside than the agent.
fn look_at(pid: u32, level: usize, told: u32) -> Option<(Found, u32)> {
    let status = Status::of_process(pid).ok()?;
    let numbers: Vec<u32> = status.numbers("NStgid")?;
    let found = Found {
        pid,
        inside: numbers.len().checked_sub(1)?,
        own: *numbers.last()?,
    };
    let parent = status.number("PPid");
    (numbers.get(level) == Some(&told)).then_some((found, parent.unwrap_or(0)))
}

fn find_thread(pid: u32, own: u32) -> Option<u32> {
    let is_called = |tid: &u32| {
        let status = Status::of_thread(pid, tid);
        let numbers = status.ok().and_then(|s| s.numbers("NSpid"));
        numbers.is_some_and(|n: Vec<u32>| n.last() == Some(&own))
    };
    proc_files::threads_of(pid).ok()?.find(is_called)
}

/// The ids by which a process is known in its own namespace and those around it.
pub fn all_numbers(pid: u32) -> Vec<i64> {
    let status = Status::of_process(pid).ok();
    status.and_then(|s| s.numbers("NStgid")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_this_process() {
        let own = all_numbers(std::process::id());
        assert_eq!(own.first(), Some(&i64::from(std::process::id())));
        let (found, parent) =
            look_at(std::process::id(), 0, std::process::id()).expect("it is there");
        assert_eq!(
            (found.pid, parent),
            (std::process::id(), std::os::unix::process::parent_id())
        );
        assert_eq!(look_at(std::process::id(), 0, parent), None);
        let tid = rustix::thread::gettid().as_raw_pid() as u32;
        let last = Status::of_this_thread()
            .ok()
            .and_then(|s| s.numbers("NSpid"));
        let last = last
            .and_then(|n: Vec<u32>| n.last().copied())
            .expect("its number");
        assert_eq!(find_thread(std::process::id(), last), Some(tid));
    }
}
