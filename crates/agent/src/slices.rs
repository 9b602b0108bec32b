//! Fair slices: the agent sees from outside who keeps the baton while others wait.
//!
//! It first asks (hand on at the next gate), then takes the baton from a thread inside one system call, then interrupts
//! a thread that reaches no gate (DESIGN 3 and 5). `order` has no baton; there all of this does nothing.
//!
//! Chaos is the runtime's own business; what is here are its limits.

use crate::members::Members;
use crate::processes::{with_lock, Futexes};
use reprise_abi::schedule::Lists;
use reprise_abi::session::{process_state, slot_state, Session, Slot, BATON_FREE};
use reprise_launch::doings::Doing;
use reprise_launch::SharedSession;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// A slice: others wait no longer than this for a holder that passes gates.
const SLICE: Duration = Duration::from_millis(8);
/// A holder inside one call loses the baton after this.
const IN_CALL: Duration = Duration::from_millis(5);
/// A holder that reaches no gate is cut after this; cuts cost more than hand-offs at gates.
const CUT: Duration = Duration::from_millis(40);
/// The same for a holder that did nothing but wait when it was cut last, and for one for which a signal waits.
const CUT_SOON: Duration = Duration::from_millis(4);
/// A cut may cost this part of the slices before it, ...
const CUT_COST: u32 = 20;
/// ... unless that makes others wait for longer than this.
const CUT_LATEST: Duration = Duration::from_millis(160);
/// Who came back from a call, or whose time is over, waits no longer than this, and the agent's next look, for one that computes, ...
const CAME_BACK: Duration = Duration::from_millis(2);
/// ... as long as the cuts that this takes have not cost more than their part, and so much in advance.
const ADVANCE: Duration = Duration::from_millis(200);
/// A thread that was asked for a cut and waits for a breakpoint is told every so often that time passes.
const CUT_AGAIN: Duration = Duration::from_millis(1);
/// Who has got the baton and not begun to run by then is looked at: it may be stopped.
const UNCLAIMED: Duration = Duration::from_millis(5);
/// The signal that asks for a cut.
const SIGCUT: i32 = 16;

/// What the agent last saw of the baton.
pub struct Slices {
    generation: u64,
    since: Instant,
    last_cut: Instant,
    call_seen: Option<(u64, Instant)>,
    /// What cuts for those who came back may cost now, and when that was said.
    advance: Duration,
    advanced: Instant,
}

impl Slices {
    /// Nothing seen yet.
    pub fn new() -> Slices {
        let now = Instant::now();
        Slices {
            generation: 0,
            since: now,
            last_cut: now,
            call_seen: None,
            advance: ADVANCE,
            advanced: now,
        }
    }

    /// Looks once.
    pub fn look(&mut self, shared: &SharedSession, members: &Members) {
        let s = shared.session();
        let holder = s.baton.load(Acquire);
        let generation = s.baton_generation.load(Acquire);
        if holder == BATON_FREE || generation != self.generation {
            self.generation = generation;
            self.since = Instant::now();
            self.call_seen = None;
            return;
        }
        let Some(slot) = (holder as usize)
            .checked_sub(1)
            .filter(|i| *i < reprise_abi::layout::MAX_SLOTS)
        else {
            return;
        };
        let slot = shared.slot(slot);
        let signal = slot.signal_pending.load(Relaxed) != 0;
        let wanted = s.ready_count.load(Relaxed) != 0;
        let unclaimed = slot.is_unclaimed(s);
        if unclaimed && self.since.elapsed() > UNCLAIMED {
            if wanted && state_of(slot) == Some('T') {
                return pass_over(s, holder);
            }
            // Who gave it the baton may have been stopped before it could wake it.
            Lists(s).wake_holder(Futexes);
        }
        if !wanted && !signal {
            if !unclaimed {
                self.since = Instant::now();
            }
            return;
        }
        if slot.state.load(Acquire) == slot_state::IN_CALL {
            let seen = self.call_seen.get_or_insert((generation, Instant::now()));
            // Who only waits for the processor is done with its call, or soon will be: others that write to the same pipe, say, must not be
            // logged before it.
            if seen.0 == generation && seen.1.elapsed() > IN_CALL && state_of(slot) != Some('R') {
                take(s, holder);
                self.call_seen = None;
            }
            return;
        }
        self.call_seen = None;
        let back = self.since.elapsed() > CAME_BACK && came_back(s);
        if self.since.elapsed() > if back { CAME_BACK } else { SLICE } {
            s.slice_over.store(1, Relaxed);
        }
        let cost = Duration::from_nanos(s.counters.last_cut_ns.load(Relaxed)).min(CUT_LATEST);
        let at_once = back && self.may_cost(cost);
        let after = match at_once {
            true => CAME_BACK,
            false => patience(slot, signal, cost),
        };
        let waiting = slot.cut_waiting.load(Relaxed) != 0 && self.last_cut.elapsed() > CUT_AGAIN;
        if waiting || (self.since.elapsed() > after && self.last_cut.elapsed() > after) {
            if at_once && !waiting {
                self.advance = self.advance.saturating_sub(cost);
            }
            let held = self.since.elapsed();
            tracing::debug!(holder, ?held, at_once, waiting, signal, "asks for a cut");
            self.last_cut = Instant::now();
            slot.cut_generation.store(generation, Relaxed);
            interrupt(shared, slot, members);
        }
    }

    /// Is a cut that costs so much still within what those who came back may take?
    fn may_cost(&mut self, cost: Duration) -> bool {
        let now = Instant::now();
        let earned = (now - self.advanced) / CUT_COST;
        self.advance = (self.advance + earned).min(ADVANCE);
        self.advanced = now;
        cost <= self.advance
    }
}

/// How long a holder that reaches no gate keeps the baton.
fn patience(slot: &Slot, signal: bool, cost: Duration) -> Duration {
    let affordable = (cost * CUT_COST).min(CUT_LATEST.max(cost * 2));
    let soon = signal || slot.cut_spins.load(Relaxed) != 0;
    affordable.max(if soon { CUT_SOON } else { CUT })
}

/// Does somebody wait for the baton who came back from a call, or whose time is over?
fn came_back(s: &Session) -> bool {
    let used = s.processes_used.load(Relaxed) as usize;
    let all = &s.processes[..used.clamp(1, s.processes.len())];
    all.iter()
        .any(|p| p.state.load(Relaxed) == process_state::LIVE && p.came_back.load(Relaxed) != 0)
}

impl Default for Slices {
    fn default() -> Self {
        Slices::new()
    }
}

/// Asks the holder of the baton to give it up as soon as it runs.
pub(crate) fn ask_for_cut(shared: &SharedSession, slot: &Slot, members: &Members) {
    let s = shared.session();
    s.slice_over.store(1, Relaxed);
    let generation = s.baton_generation.load(Acquire);
    slot.cut_generation.store(generation, Relaxed);
    interrupt(shared, slot, members);
}

/// A signal to the slot's thread, whose runtime handles it.
pub(crate) fn interrupt(shared: &SharedSession, slot: &Slot, members: &Members) {
    let (pid, tid) = (slot.kernel_pid.load(Relaxed), slot.kernel_tid.load(Relaxed));
    members.signal(shared, pid, tid, SIGCUT);
}

/// The state of the slot's thread: `R` runs or could, `T` is stopped, as by SIGSTOP (proc_pid_stat(5)).
pub(crate) fn state_of(slot: &Slot) -> Option<char> {
    doing(slot).map(|doing| doing.state)
}

/// What the slot's thread does.
pub(crate) fn doing(slot: &Slot) -> Option<Doing> {
    Doing::of(slot.kernel_pid.load(Relaxed), slot.kernel_tid.load(Relaxed))
}

/// A stopped thread has got the baton, and knows nothing of it yet: it queues again, and the next one gets it.
fn pass_over(s: &Session, holder: u32) {
    if with_lock(s, |l| l.pass_over(holder)) == Some(true) {
        tracing::debug!(holder, "passes over a stopped thread");
    }
}

/// Takes the baton from a holder inside a call and gives it to the first that waits. The new holder logs it.
fn take(s: &Session, holder: u32) {
    // Without the lock: a program that was killed inside; there is nobody left to give the baton to.
    if with_lock(s, |l| l.take_from_call(holder)) == Some(true) {
        tracing::debug!(holder, "takes the baton from a call");
    }
}
