//! Processes that were stopped (by SIGSTOP, by a terminal) while they had something that all others need.
//!
//! What the program stops natively keeps nobody else from going on. Here a thread may be stopped while it holds the scheduler's lock,
//! the baton (of `serial`) in the middle of its code, the box of requests, the head of the session, the right to write to a stream of the
//! output, or a shard (both of `order`). It then runs on until it has given that back, and is stopped again. The holder of the baton is asked
//! for a cut meanwhile ([`slices`]), so it runs a few instructions of the program at most.

use crate::members::Members;
use crate::slices;
use reprise_abi::engine::can;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::{OrderHead, Shard};
use reprise_abi::schedule::{owner_of, OWNER_DIED, WAITERS};
use reprise_abi::session::{request, slot_state, Session, Slot};
use reprise_launch::stopped::{go_on_until, Pace};
use reprise_launch::{futex, SharedSession};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// Who keeps something for so long is looked at.
const PATIENCE: Duration = Duration::from_millis(5);

/// Something that one thread of the session has at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Thing {
    /// The scheduler's lock.
    Lock,
    /// The baton, in the hands of a thread that is in no call.
    Baton,
    /// The box of requests.
    Requests,
    /// The session's head.
    Head,
    /// The right to write to the standard output.
    Output,
    /// The right to write to the standard error.
    Errors,
    /// A shard for which somebody waits long.
    Shard,
}

impl Thing {
    const ALL: [Thing; 7] = [
        Thing::Lock,
        Thing::Baton,
        Thing::Requests,
        Thing::Head,
        Thing::Output,
        Thing::Errors,
        Thing::Shard,
    ];

    /// The word that says who has it, if there is such a thing in this session.
    pub(crate) fn word(self, shared: &SharedSession) -> Option<&AtomicU32> {
        let s = shared.session();
        match self {
            Thing::Lock => Some(&s.schedule_lock),
            // From a thread in a call, and from one that has not begun to run with it, it is taken without its help.
            Thing::Baton => Some(&s.baton).filter(|baton| is_wanted(s, baton.load(Acquire))),
            Thing::Requests => Some(&s.request.taken),
            Thing::Head => Some(&s.starting),
            Thing::Output => shared.order().map(|head| &head.streams[0].0),
            Thing::Errors => shared.order().map(|head| &head.streams[1].0),
            Thing::Shard => shared.order().map(|head| &head.shard_wanted),
        }
    }

    /// Who has it: a thread id or a slot plus 1; 0: nobody.
    pub(crate) fn owner(self, shared: &SharedSession) -> u32 {
        let word = self.word(shared).map_or(0, |word| word.load(Acquire));
        match shared.order().filter(|_| self == Thing::Shard && word != 0) {
            Some(head) => holder(head, word - 1),
            None => word & !(WAITERS | OWNER_DIED),
        }
    }

    /// The slot of that owner.
    pub(crate) fn slot(self, s: &Session, owner: u32) -> Option<&Slot> {
        let i = match self {
            Thing::Lock => owner_of(owner)?.1,
            _ => owner.checked_sub(1)?,
        };
        ((i as usize) < MAX_SLOTS).then(|| s.slot(i as usize))
    }
}

/// Do others wait for the baton while its holder, a slot plus 1, runs or is stopped with it?
fn is_wanted(s: &Session, holder: u32) -> bool {
    let slot = holder
        .checked_sub(1)
        .filter(|i| (*i as usize) < MAX_SLOTS)
        .map(|i| s.slot(i as usize));
    let runs =
        |slot: &Slot| slot.state.load(Acquire) == slot_state::RUNNING && !slot.is_unclaimed(s);
    s.engine().can(can::RUN_ONE_AT_A_TIME)
        && s.ready_count.load(Relaxed) != 0
        && slot.is_some_and(runs)
}

/// Slot plus 1 of the thread that has a shard; 0, and nobody waits for it any more, when there is none.
fn holder(head: &OrderHead, shard: u32) -> u32 {
    let who = head.shards.get(shard as usize).and_then(Shard::holder);
    if who.is_none() {
        head.shard_wanted.store(0, Relaxed);
    }
    who.map_or(0, |(slot, _)| slot)
}

/// What the agent saw last.
pub struct StoppedOwners {
    seen: [(u32, Instant); Thing::ALL.len()],
}

impl StoppedOwners {
    /// Nothing seen yet.
    pub fn new() -> StoppedOwners {
        StoppedOwners {
            seen: [(0, Instant::now()); Thing::ALL.len()],
        }
    }

    /// Looks once.
    pub fn look(&mut self, shared: &SharedSession, members: &Members) {
        for (thing, seen) in Thing::ALL.into_iter().zip(&mut self.seen) {
            let owner = thing.owner(shared);
            if owner == 0 || owner != seen.0 {
                *seen = (owner, Instant::now());
            } else if seen.1.elapsed() > PATIENCE {
                seen.1 = Instant::now();
                take_back(shared, members, thing, owner);
            }
        }
    }
}

impl Default for StoppedOwners {
    fn default() -> Self {
        StoppedOwners::new()
    }
}

/// If the owner is stopped: lets it go on until it owns no more, or waits for the agent.
fn take_back(shared: &SharedSession, members: &Members, thing: Thing, owner: u32) {
    let s = shared.session();
    let Some(slot) = thing.slot(s, owner) else {
        return;
    };
    // Copied once: they are looked up, and then they are used.
    let (pid, tid) = (slot.kernel_pid.load(Relaxed), slot.kernel_tid.load(Relaxed));
    if slices::state_of(slot) != Some('T') || !members.has_thread(shared, pid, tid) {
        return;
    }
    let is_done = || {
        let asks = thing != Thing::Lock && s.request.kind.load(Acquire) != request::NONE;
        thing.owner(shared) != owner || asks
    };
    if thing == Thing::Baton {
        slices::ask_for_cut(shared, slot, members);
    }
    // Under `serial` the lock is held for a few instructions, and the thread must not come to run the program with the baton that it
    // got there. All else may take long.
    let pace = match thing {
        Thing::Lock if s.engine().can(can::RUN_ONE_AT_A_TIME) => Pace::Steps,
        _ => Pace::Runs,
    };
    tracing::debug!(?thing, owner, tid, "lets a stopped thread go on");
    // Where ptrace is refused nothing can be done: the others wait until the thread goes on.
    let _ = go_on_until(tid as i32, pace, is_done);
    // It may have been about to do this.
    if thing.owner(shared) != owner {
        if let Some(word) = thing.word(shared) {
            futex::wake(word, 1);
        }
    }
}
