//! A net under the recording: children of recorded processes that are no processes of the session.
//!
//! Every way to make a child leads through the runtime, so there should be none. Would one slip through all the same, by a mistake of
//! ours or because somebody entered a namespace whose first process is recorded, the agent finds it here, and the trace says so.

use crate::namespaces::all_numbers;
use reprise_abi::session::{
    process_state, Session, FLAG_EPOCHS, FLAG_TEST_COPIES, FLAG_TEST_EPOCHS, MAX_PROCESSES,
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
    pub fn look(&mut self, shared: &SharedSession) {
        let begun = Instant::now();
        // (Copies of a live program are its children, and known to no slot.)
        let copies =
            shared.session().flags & (FLAG_TEST_COPIES | FLAG_TEST_EPOCHS | FLAG_EPOCHS) != 0;
        if begun < self.next || copies {
            return;
        }
        let mut now = children(shared.session());
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

/// Children of the session's processes that no slot knows.
fn children(s: &Session) -> HashSet<u32> {
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
