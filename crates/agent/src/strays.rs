//! A net under the recording: children of recorded processes that are no processes of the session.
//!
//! Every way to make a child leads through the runtime, so there should be none. Would one slip through all the same, by a mistake of
//! ours or because somebody entered a namespace whose first process is recorded, the agent finds it here, and the trace says so.

use crate::members::Members;
use crate::namespaces::all_numbers;
use reprise_abi::session::{
    process_state, FLAG_EPOCHS, FLAG_TEST_COPIES, FLAG_TEST_EPOCHS, MAX_PROCESSES,
};
use reprise_launch::proc_files::{self, Status};
use reprise_launch::SharedSession;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A look may cost this part of the time between two of them.
const COST: u32 = 100;

/// A child that is no process of the session.
pub struct Stray {
    /// Its ids, in its own namespace and those around it.
    pub numbers: Vec<i64>,
    /// Its name.
    pub name: String,
}

/// The children that were seen.
pub struct Strays {
    others: HashSet<i64>,
    /// Seen once: it may be on its way into the session.
    suspects: HashSet<u32>,
    /// Seen twice.
    pub found: HashMap<u32, Stray>,
    next: Instant,
}

impl Strays {
    /// None seen yet. `others`: children that were there before.
    pub fn new(others: HashSet<i64>) -> Strays {
        Strays {
            others,
            suspects: HashSet::new(),
            found: HashMap::new(),
            next: Instant::now() + LOOK_EVERY,
        }
    }

    /// Looks, when it is time.
    pub fn look(&mut self, shared: &SharedSession, members: &Members) {
        let begun = Instant::now();
        // (Copies of a live program are its children, and known to no slot.)
        let copies =
            shared.session().flags & (FLAG_TEST_COPIES | FLAG_TEST_EPOCHS | FLAG_EPOCHS) != 0;
        if begun < self.next || copies {
            return;
        }
        let mut now = children(shared, members);
        now.retain(|pid| !self.others.contains(&i64::from(*pid)));
        for pid in now.intersection(&self.suspects) {
            if let Some(stray) = meet(*pid) {
                tracing::debug!(pid, name = ?stray.name, "a child that no slot knows");
                self.found.entry(*pid).or_insert(stray);
            }
        }
        self.suspects = now;
        self.next = Instant::now() + LOOK_EVERY.max(begun.elapsed() * COST);
    }
}

/// Children of the session's processes that no slot knows. Who is one of those is not for the program to say, which could name its recorder: that has children,
/// too.
fn children(shared: &SharedSession, members: &Members) -> HashSet<u32> {
    let s = shared.session();
    let slots = 0..s
        .slots_used
        .load(Relaxed)
        .min(reprise_abi::layout::MAX_SLOTS as u32);
    let threads: HashSet<u32> = slots
        .map(|i| s.slot(i as usize).kernel_tid.load(Acquire))
        .collect();
    let processes = (0..MAX_PROCESSES).map(|n| &s.processes[n]);
    let live: Vec<u32> = processes
        .filter(|p| p.state.load(Acquire) == process_state::LIVE)
        .map(|p| p.kernel_pid.load(Acquire))
        .filter(|pid| *pid != 0)
        .filter(|pid| members.has(shared, *pid) || members.may_map(shared, *pid))
        .collect();
    let children = live.iter().flat_map(proc_files::children_of::<u32>);
    children
        .filter(|pid| !live.contains(pid) && !threads.contains(pid))
        .collect()
}

fn meet(pid: u32) -> Option<Stray> {
    let status = Status::of_process(pid).ok()?;
    Some(Stray {
        numbers: all_numbers(pid),
        name: status.get("Name").unwrap_or_default().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_of_whom_the_program_only_names_are_no_strays() {
        let shared = SharedSession::create().expect("a session");
        let first = &shared.session().processes[0];
        first.state.store(process_state::LIVE, Relaxed);
        // It has the session's memory mapped, and a child that no slot knows.
        first.kernel_pid.store(std::process::id(), Relaxed);
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        assert!(children(&shared, &Members::default()).contains(&child.id()));
        let launcher = std::os::unix::process::parent_id();
        let recorder = Members::of_recorder(launcher as i32);
        assert!(children(&shared, &recorder).is_empty());
        first.kernel_pid.store(launcher, Relaxed);
        assert!(children(&shared, &Members::default()).is_empty());
        child.kill().expect("a child");
        child.wait().expect("its end");
    }
}
