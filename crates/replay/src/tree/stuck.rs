//! A replay of `order` in which nobody can ever go on, and one that somebody wants to see the end of.
//!
//! Threads that wait say so (`reprise_abi::waits`), so that it shows when all of them wait in vain: twice in a row, each in the same wait, with
//! nothing done by the driver in between. Of those that look by themselves each must have looked once more meanwhile, and seen the same. No clock
//! has a part in that. A thread that computes for ever waits for nothing; of such a replay, Ctrl-C and
//! SIGTERM show where it is, and so does its end by `replay --time-limit`.

use super::Tree;
use crate::children;
use crate::feed::{is_done, Distribution};
use crate::standstill::{self, Standstill};
use crate::ReplayError;
use libc::pid_t;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::WAITING_WORDS;
use reprise_abi::session::{process_state, request, slot_state, Process, FLAG_RACES};
use reprise_abi::waits::{Parked, What};
use reprise_launch::futex;
use rustix::process::Signal;
use std::sync::atomic::{AtomicI32, Ordering::*};
use std::time::{Duration, Instant};

/// How often it is looked whether all threads have stopped, with a millisecond in between.
const LOOKS: u32 = 200;

/// Why a replay was ended, that would not have ended by itself.
#[derive(Clone, Debug)]
pub enum Halt {
    /// All threads wait, and nobody can ever go on.
    Stuck(Standstill),
    /// By this signal to the driver.
    Signal(i32, Standstill),
    /// It took longer than the limit.
    TimeLimit(Duration, Standstill),
}

/// The signal that wants the replay to end, 0 for none.
static WANTED: AtomicI32 = AtomicI32::new(0);

extern "C" fn end_wanted(signal: i32) {
    WANTED.store(signal, SeqCst);
    super::wake_driver();
}

/// Ctrl-C and SIGTERM end the replay with a report while it lives. A second one ends the driver itself.
pub(super) struct Signals([(i32, libc::sigaction); 2]);

impl Signals {
    pub(super) fn new() -> Signals {
        WANTED.store(0, SeqCst);
        // SAFETY: handlers that only store words, and what was there before.
        Signals([libc::SIGINT, libc::SIGTERM].map(|signal| unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = end_wanted as extern "C" fn(i32) as libc::sighandler_t;
            new.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if old.sa_sigaction != libc::SIG_IGN {
                libc::sigaction(signal, &new, std::ptr::null_mut());
            }
            (signal, old)
        }))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, old) in &self.0 {
            // SAFETY: what was there before.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
        // One that came too late to end this replay is for whoever had them before: it may be one of many replays.
        let signal = WANTED.swap(0, SeqCst);
        if signal != 0 {
            // SAFETY: plain call.
            unsafe { libc::raise(signal) };
        }
    }
}

/// What is said of a replay in which nobody can ever go on.
pub const DEADLOCK: &str = "the replay diverged from the recording\ndeadlock divergence: each thread waits for another one, and none can go on";

/// By so much the [count of waits](reprise_abi::waits::Awaited::count) has grown at least of a thread that has looked in vain, and began to look after
/// it had been seen to wait: one that never ceases to wait counts two each time, and was seen in the middle of the first.
const LOOKED_ANEW: u32 = 8;

/// All threads, as they waited when that was seen first.
#[derive(Default)]
pub(super) struct Waiting {
    all: Option<Vec<(usize, Parked)>>,
    /// A later look has shown the same.
    in_vain: bool,
}

impl Waiting {
    /// This is how all wait now, if they do.
    fn seen(&mut self, now: Option<Vec<(usize, Parked)>>) {
        let before = self.all.take().zip(now.as_deref());
        let (before, same) = match before {
            Some((before, now)) if same_waits(&before, now) => {
                let anew = before.iter().zip(now).all(has_looked_anew);
                (Some(before), anew)
            }
            _ => (None, false),
        };
        self.in_vain = same;
        self.all = before.or(now);
    }
}

fn looks(p: &Parked) -> bool {
    matches!(What::of(p.key), What::Value(_))
}

fn same_waits(before: &[(usize, Parked)], now: &[(usize, Parked)]) -> bool {
    let same = |(before, now): (&(usize, Parked), &(usize, Parked))| {
        before.0 == now.0
            && before.1.key == now.1.key
            && before.1.generation == now.1.generation
            && (before.1.count == now.1.count || looks(&now.1))
    };
    before.len() == now.len() && before.iter().zip(now).all(same)
}

fn has_looked_anew((before, now): (&(usize, Parked), &(usize, Parked))) -> bool {
    !looks(&now.1) || now.1.count.wrapping_sub(before.1.count) >= LOOKED_ANEW
}

impl Tree {
    /// The driver has done something: who waited may go on.
    pub(crate) fn something_was_done(&mut self) {
        self.waiting = Waiting::default();
    }

    /// Can nobody ever go on? To be called when the driver found nothing to do.
    fn look_who_waits(&mut self, d: &Distribution) -> bool {
        let now = self.all_wait(d);
        if let Some(all) = &now {
            tracing::debug!(threads = all.len(), "all wait");
        }
        self.waiting.seen(now);
        self.waiting.in_vain
    }

    /// Ends a replay in which nobody can ever go on. To be called when the driver found nothing to do.
    pub(super) fn end_if_stuck(&mut self, d: &Distribution) {
        if !self.look_who_waits(d) {
            return;
        }
        if !d.whole {
            // What they wait for was done by a thread of which the trace, which was cut off, does not have that any more.
            return self.end_with_the_trace(d);
        }
        let found = standstill::look(&self.shared, &self.dir);
        self.gather_functions(self.waiting.all.iter().flatten());
        self.halt(Halt::Stuck(found));
    }

    /// As [`Tree::end_if_stuck`] where somebody else drives the replay, who is to know of it. Where the trace was cut off, that is [its
    /// end](Tree::waits_in_vain).
    pub(super) fn fail_if_stuck(&mut self, d: &Distribution) -> Result<(), ReplayError> {
        if !self.look_who_waits(d) || !d.whole {
            return Ok(());
        }
        let found = standstill::look(&self.shared, &self.dir);
        Err(ReplayError::Stuck(Box::new(found)))
    }

    /// Does each thread wait for what never comes?
    pub(crate) fn waits_in_vain(&self) -> bool {
        self.waiting.in_vain
    }

    /// Ends a replay that somebody wants to end, or that takes too long.
    pub(super) fn end_if_wanted(&mut self, begun: Instant) {
        if self.failed {
            return;
        }
        let limit = self.limit.filter(|l| begun.elapsed() >= *l);
        let signal = WANTED.swap(0, SeqCst);
        if signal == 0 && limit.is_none() {
            return;
        }
        self.stop_all();
        let found = standstill::look(&self.shared, &self.dir);
        self.halt(match limit {
            Some(limit) if signal == 0 => Halt::TimeLimit(limit, found),
            _ => Halt::Signal(signal, found),
        });
    }

    /// Has all who wait for their turn say in which functions they are: a race may have led them there.
    fn gather_functions<'a>(&self, all: impl Iterator<Item = &'a (usize, Parked)>) {
        let (Some(head), report) = (self.shared.order(), &self.shared.session().divergence) else {
            return;
        };
        report.all_to_add.store(1, SeqCst);
        let mut asked = 0;
        for (slot, parked) in all {
            if matches!(
                What::of(parked.key),
                What::Stamp(_) | What::Shard(_) | What::Object(_)
            ) {
                let room = head.waits[*slot].room.load(SeqCst) as usize % WAITING_WORDS;
                let generation = &head.rooms[room].generation;
                generation.fetch_add(1, SeqCst);
                futex::wake(generation, i32::MAX);
                asked += 1;
            }
        }
        for _ in 0..LOOKS {
            if report.added.load(SeqCst) >= asked {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn halt(&mut self, halt: Halt) {
        let why = match &halt {
            Halt::Stuck(_) => "nobody can go on",
            Halt::TimeLimit(..) => "it took too long",
            Halt::Signal(..) => "somebody wants that",
        };
        tracing::warn!(why, "replay is ended");
        self.failed = true;
        self.halted = Some(halt);
        self.kill_all();
    }

    /// All threads with what they wait for, if all wait in vain, some of them for others.
    fn all_wait(&self, d: &Distribution) -> Option<Vec<(usize, Parked)>> {
        let (head, s) = (self.shared.order()?, self.shared.session());
        let asked = s.request.kind.load(SeqCst) != request::NONE;
        if self.failed || asked || !d.has_read_all() || s.flags & FLAG_RACES != 0 {
            return None;
        }
        let used = s.slots_used.load(SeqCst) as usize;
        let unused = [slot_state::FREE, slot_state::EXITING];
        let mut all = Vec::new();
        for i in 0..used.min(MAX_SLOTS) {
            if unused.contains(&self.shared.slot(i).state.load(SeqCst)) {
                continue;
            }
            let parked = head.parked(i)?;
            let in_vain = match What::of(parked.key) {
                What::Feed => d.is_empty(i),
                What::Value(at) => self.has_value(i, at, parked.generation),
                What::Done(other) => {
                    self.is_there(other, parked.generation)
                        && !is_done(&self.shared, other as usize)
                }
                What::Gone(other) => self.is_there(other, parked.generation),
                _ => true,
            };
            if !in_vain {
                return None;
            }
            all.push((i, parked));
        }
        let changing = [
            process_state::ENDING,
            process_state::TAKEN,
            process_state::LOST,
        ];
        let changes = |p: &Process| changing.contains(&p.state.load(SeqCst));
        if s.processes.iter().any(changes) || self.lives.any_former() {
            return None;
        }
        let over = |p: &Parked| matches!(What::of(p.key), What::Feed | What::Over);
        (!all.iter().all(|(_, p)| over(p))).then_some(all)
    }

    /// Has the word at this address this value, in the memory of the slot's thread?
    fn has_value(&self, slot: usize, address: u64, value: u32) -> bool {
        let pid = self.shared.slot(slot).kernel_pid.load(SeqCst);
        standstill::read(pid as pid_t, address).is_some_and(|word| word as u32 == value)
    }

    /// Is the thread still in its slot that had it when this was its birth?
    fn is_there(&self, slot: u32, born: u32) -> bool {
        let slot = self.shared.slot((slot as usize).min(MAX_SLOTS - 1));
        let gone = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
        !gone.contains(&slot.state.load(SeqCst)) && slot.born.load(SeqCst) as u32 == born
    }

    /// Do all threads sleep, of all processes?
    pub(crate) fn sleeps(&self) -> bool {
        let sleep = |states: Vec<char>| states.iter().all(|s| matches!(s, 'S' | 'Z'));
        self.pids().all(|pid| sleep(children::states(pid)))
    }

    /// The processors' time that they have used.
    pub(crate) fn time(&self) -> Duration {
        self.pids().map(children::time).sum()
    }

    /// Stops all processes, so that it can be seen where their threads are.
    fn stop_all(&self) {
        let pids: Vec<pid_t> = self.pids().collect();
        for pid in &pids {
            children::signal(*pid, Signal::STOP);
        }
        for _ in 0..LOOKS {
            if pids.iter().all(|pid| is_stopped(*pid)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Has every thread of the process stopped, or ended?
fn is_stopped(pid: pid_t) -> bool {
    let states = children::states(pid);
    states.iter().all(|s| matches!(s, 'T' | 't' | 'Z' | 'X'))
}
