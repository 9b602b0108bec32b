//! Recordings in which all threads sleep for good, because the program has written over the words by which they wake one another.
//!
//! A thread that waits in a call of the program's goes on when the kernel lets it. One that waits in the runtime goes on when another thread of the session,
//! or the agent, changes a word. Where the kernel says that all threads of a session do the latter, look after look, and the agent has nothing to do for
//! any of them, nobody is left who could change one. Such a recording ends there ([`crate::damage`] tells the same by the words themselves, sooner).
//!
//! A thread that only naps in the runtime waits for the end of its process. Where all others of one sleep, in whatever, nobody is left who would end it.
//!
//! Under `order` a new thread sleeps until its maker has logged its birth, which nothing holds up. Where all others sleep, in whatever, its maker has gone on
//! without it.
//!
//! One of these waits is the program's own: under `serial` the runtime keeps the queues of the program's futexes, and a program may wait in them for
//! ever, for a signal perhaps. So a thread in one of those queues counts for nothing.

use crate::members::Members;
use reprise_abi::engine::can;
use reprise_abi::layout::{
    ARENA_BASE, BLOCKS_BASE, IMAGE_BASE, IMAGE_MAX, MAX_SLOTS, RESERVATION, RESERVATION_END,
    SESSION_BASE,
};
use reprise_abi::schedule::Lists;
use reprise_abi::session::{Session, Slot, MAX_PROCESSES};
use reprise_abi::syscalls::nr;
use reprise_launch::proc_files::{self, children_of, Stat, Whereabouts};
use reprise_launch::SharedSession;
use std::collections::BTreeSet;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// So many looks must see it while nothing is written, and no more may see something else: a thread at the end of its nap that waits for a processor.
const ENOUGH: u32 = 6;
/// The runtime's threads look again after a nap of at most that many seconds; a program's own nap as short as that is soon an event.
const LONGEST_NAP: u64 = 1;

/// What was seen, and how often.
pub struct Asleep {
    /// Are there waits of which that can be told? (Threads of `det` wait for one another in the runtime whatever they wait for.)
    applies: bool,
    looked: Instant,
    /// How far each ring was.
    written: u64,
    times: u32,
    /// Looks meanwhile that have seen something else.
    misses: u32,
}

/// How a thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// In the runtime, until a word changes.
    Word(u64),
    /// In the runtime, for a moment.
    Nap,
    /// In a call of the program's.
    Call,
}

impl Asleep {
    /// For this session, whose program has not begun.
    pub fn new(shared: &SharedSession) -> Asleep {
        Asleep {
            // While all threads of a leader stand, it is a copy that goes on.
            applies: !shared.has_leader()
                && (shared.order().is_some()
                    || shared.session().engine().can(can::RUN_ONE_AT_A_TIME)),
            looked: Instant::now(),
            written: 0,
            times: 0,
            misses: 0,
        }
    }

    /// Is it certain that nobody goes on any more? `idle`: the agent has done all that any thread could wait for.
    pub fn look(
        &mut self,
        shared: &SharedSession,
        members: &Members,
        idle: bool,
    ) -> Option<&'static str> {
        if !idle {
            (self.times, self.misses) = (0, 0);
        }
        if !self.applies || self.looked.elapsed() < LOOK_EVERY {
            return None;
        }
        self.looked = Instant::now();
        let written = written(shared);
        if written != self.written {
            (self.written, self.times, self.misses) = (written, 0, 0);
        }
        let all_sleep = idle && self.all_sleep(shared, members);
        tracing::trace!(idle, written, all_sleep, "looked whether all sleep");
        if all_sleep {
            self.times += 1;
            tracing::debug!(times = self.times, "all threads sleep");
        } else {
            self.misses += 1;
        }
        if self.misses > ENOUGH {
            (self.times, self.misses) = (0, 0);
        }
        (self.times >= ENOUGH).then_some("threads that nobody wakes or ends")
    }

    /// Does every thread of the session sleep in the runtime, and not all of them as the program wants it? Or nap all of a process?
    fn all_sleep(&self, shared: &SharedSession, members: &Members) -> bool {
        let s = shared.session();
        let table = s.processes.iter().take(MAX_PROCESSES);
        let told = table.map(|p| p.kernel_pid.load(Relaxed));
        // What the table says may be untrue, but mostly it is true, and says at once that there is somebody who does something else.
        // One that can't be looked at may do anything.
        let may_be = |pid: u32| members.has(shared, pid) || members.may_map(shared, pid);
        let mut told: BTreeSet<u32> = told.filter(|pid| *pid != 0 && may_be(*pid)).collect();
        let children: Vec<u32> = told.iter().flat_map(|pid| children_of(*pid)).collect();
        told.extend(children.iter().filter(|pid| members.has(shared, **pid)));
        let has_unborn = |all: &[Sleep]| {
            shared.order().is_some() && all.iter().any(|sleep| go_of(*sleep).is_some())
        };
        match how_all_sleep(told.into_iter()) {
            HowAll::Naps => return true,
            HowAll::Awake => return false,
            HowAll::Asleep(all) if !are_ours(&all) && !has_unborn(&all) => return false,
            HowAll::Asleep(_) => {}
        }
        match how_all_sleep(Members::who_map(shared).into_iter()) {
            HowAll::Naps => true,
            HowAll::Awake => false,
            HowAll::Asleep(all) => {
                are_ours(&all) && all.iter().any(|sleep| !is_program_s(s, *sleep))
                    || has_unborn(&all)
            }
        }
    }
}

/// How the threads of several processes sleep.
enum HowAll {
    /// Some of a process wait for its end, and nobody ends it.
    Naps,
    /// Somebody doesn't sleep.
    Awake,
    /// All of them, so.
    Asleep(Vec<Sleep>),
}

fn how_all_sleep(pids: impl Iterator<Item = u32>) -> HowAll {
    let mut all = Some(Vec::new());
    for sleeps in pids.map(sleeps_of) {
        match sleeps {
            Some(sleeps) if nap(&sleeps) => return HowAll::Naps,
            sleeps => all = all.zip(sleeps).map(|(all, sleeps)| [all, sleeps].concat()),
        }
    }
    all.map_or(HowAll::Awake, HowAll::Asleep)
}

/// The sum of all positions up to which events were written.
fn written(shared: &SharedSession) -> u64 {
    let s = shared.session();
    let order = shared.order().map_or(&[][..], |head| &head.rings);
    let all = order.iter().chain([&s.ring]);
    all.fold(0, |sum, ring| sum.wrapping_add(ring.head.load(Relaxed)))
}

/// Of a process that sleeps so: does a thread of it wait for its end?
fn nap(sleeps: &[Sleep]) -> bool {
    sleeps.contains(&Sleep::Nap)
}

/// Do these all sleep in the runtime?
fn are_ours(sleeps: &[Sleep]) -> bool {
    !sleeps.contains(&Sleep::Call)
}

/// How the threads of a process sleep; `None` when one of them does something else.
fn sleeps_of(pid: u32) -> Option<Vec<Sleep>> {
    let threads = proc_files::threads_of::<u32>(pid);
    let mut sleeps = Vec::new();
    for tid in threads.into_iter().flatten() {
        match Stat::of_thread(pid, tid).ok().and_then(|stat| stat.state()) {
            // It has ended.
            None | Some('Z' | 'X') => {}
            Some('S') => sleeps.push(sleep(pid, Whereabouts::of_thread(pid, tid).ok()??)?),
            Some(_) => return None,
        }
    }
    Some(sleeps)
}

/// How a thread sleeps that is there; `None`: it is in no call.
fn sleep(pid: u32, place: Whereabouts) -> Option<Sleep> {
    let Whereabouts::InCall { number, words } = place else {
        return None;
    };
    Some(sleep_of_ours(pid, number, &words).unwrap_or(Sleep::Call))
}

/// The sleep in the runtime that this call with these words is.
fn sleep_of_ours(pid: u32, call: u64, words: &[u64]) -> Option<Sleep> {
    let [argument, .., pc] = *words else {
        return None;
    };
    let is_ours = (RESERVATION..RESERVATION_END).contains(&argument)
        && (IMAGE_BASE..IMAGE_BASE + IMAGE_MAX).contains(&pc);
    let is_nap = match call {
        _ if !is_ours => return None,
        nr::FUTEX => false,
        nr::NANOSLEEP => true,
        // One of the two, which somebody has interrupted: what is on a stack is a time.
        nr::RESTART_SYSCALL => (BLOCKS_BASE..ARENA_BASE).contains(&argument),
        _ => return None,
    };
    match is_nap {
        false => Some(Sleep::Word(argument)),
        true => {
            let mut seconds = [0; 8];
            let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
            memory.read_exact_at(&mut seconds, argument).ok()?;
            (u64::from_le_bytes(seconds) <= LONGEST_NAP).then_some(Sleep::Nap)
        }
    }
}

/// The slot whose thread sleeps until it is told to go on.
fn go_of(sleep: Sleep) -> Option<usize> {
    let Sleep::Word(word) = sleep else {
        return None;
    };
    let place = |i: usize| Session::slot_address(SESSION_BASE as usize, i);
    let go = |i: usize| (place(i) + offset_of!(Slot, go)) as u64;
    (0..MAX_SLOTS).find(|i| go(*i) == word)
}

/// Does a thread sleep because the program waits on a futex of its own, and do those know it that would wake it?
fn is_program_s(s: &Session, sleep: Sleep) -> bool {
    go_of(sleep).is_some_and(|i| Lists(s).is_queued(i as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u64, argument: u64, pc: u64) -> Whereabouts {
        Whereabouts::InCall {
            number,
            words: vec![argument, 0x89, 0, 0, 0, 0xffff_ffff, 0x7ffe_0000, pc],
        }
    }

    #[test]
    fn only_sleeps_of_the_runtime_count() {
        let (ours, theirs) = (SESSION_BASE + 64, 0x7fff_0000_0000);
        let (runtime, libc) = (IMAGE_BASE + 4096, 0x7fff_f700_0000);
        let own = std::process::id();
        assert!(sleep(own, place(nr::FUTEX, ours, runtime)) == Some(Sleep::Word(ours)));
        let again = sleep(own, place(nr::RESTART_SYSCALL, ours, runtime));
        assert!(again == Some(Sleep::Word(ours)));
        assert!(sleep(own, place(nr::FUTEX, theirs, runtime)) == Some(Sleep::Call));
        assert!(sleep(own, place(nr::FUTEX, ours, libc)) == Some(Sleep::Call));
        assert!(sleep(own, place(nr::READ, ours, runtime)) == Some(Sleep::Call));
        // A page fault, and somebody who computes.
        assert!(sleep(own, Whereabouts::Outside { pc: 0x5500_0000 }).is_none());
        assert!(sleep(own, Whereabouts::Runs).is_none());
    }
}
