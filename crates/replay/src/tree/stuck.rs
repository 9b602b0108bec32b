//! A replay of `order` in which nobody can ever go on, and one that somebody wants to see the end of.
//!
//! Threads that wait say so (`reprise_abi::waits`), so that it shows when all of them wait in vain: twice in a row, each in the same wait, with
//! nothing done by the driver in between. No clock has a part in that. A thread that computes for ever waits for nothing; of such a replay, Ctrl-C and
//! SIGTERM show where it is, and so does its end by `replay --time-limit`.

use super::Tree;
use crate::children;
use crate::feed::Distribution;
use crate::standstill::{self, Standstill};
use libc::pid_t;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::order::WAITING_WORDS;
use reprise_abi::session::{process_state, request, slot_state, Process, FLAG_RACES};
use reprise_abi::waits::{Parked, What};
use reprise_launch::futex;
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

/// All threads, as they waited when they were looked at last.
#[derive(Default)]
pub(super) struct Waiting(Option<Vec<(usize, Parked)>>);

impl Tree {
    /// The driver has done something: who waited may go on.
    pub(super) fn something_was_done(&mut self) {
        self.waiting.0 = None;
    }

    /// Ends a replay in which nobody can ever go on. To be called when the driver found nothing to do.
    pub(super) fn end_if_stuck(&mut self, d: &Distribution) {
        let now = self.all_wait(d);
        if now.is_some() && now == self.waiting.0 && !d.whole {
            // What they wait for was done by a thread of which the trace, which was cut off, does not have that any more.
            self.end_with_the_trace(d);
        } else if now.is_some() && now == self.waiting.0 {
            let found = standstill::look(&self.shared, &self.dir);
            self.gather_functions(now.iter().flatten());
            self.halt(Halt::Stuck(found));
        }
        self.waiting.0 = now;
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
        let changing = [
            process_state::ENDING,
            process_state::TAKEN,
            process_state::LOST,
        ];
        let changes = |p: &Process| changing.contains(&p.state.load(SeqCst));
        if s.processes.iter().any(changes) || self.lives.any_former() {
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
            if What::of(parked.key) == What::Feed && !d.is_empty(i) {
                return None;
            }
            all.push((i, parked));
        }
        let over = |p: &Parked| matches!(What::of(p.key), What::Feed | What::Over);
        (!all.iter().all(|(_, p)| over(p))).then_some(all)
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
            children::signal(*pid, libc::SIGSTOP);
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
