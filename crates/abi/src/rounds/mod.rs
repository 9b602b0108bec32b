//! Rounds and the token (DThreads 4.2.1): a **phase**, in which all threads run the program's code at once on what they saw when it began,
//! then a **turn** for each of them, one after the other.
//!
//! The phase ends when every thread of the **ring** has come to a synchronisation point. Then the turns are given in the ring's order, and
//! when all are over, the next phase begins, for all at once. Who waits for somebody (a mutex, a condition, a join) leaves the ring in its turn; who
//! wakes it puts it at the ring's end, and its operation goes on in a turn of the same round. So the order of everything that threads
//! do to each other follows from the program alone.
//!
//! Input and output that is no synchronisation has turns of its own within the phase: when nobody runs any more, those that have come to
//! such a place, a **batch**, have theirs, in the ring's order, and go on with the phase together.
//!
//! The ring is changed by the thread whose turn it is; in a phase by the one that has its [lead](Lead); by the last one to arrive before the
//! first turn; and while it [rests](Rest), by whoever ends that. What else is to be done when the token goes on is [`Around`]'s, and
//! how threads sleep is [`Waiter`]'s.

mod child_waits;
mod lead;
mod rest;
mod ring;
#[cfg(test)]
mod schedules;
mod turns;

use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
use crate::layout::MAX_SLOTS;

pub use lead::Lead;
pub use rest::Rest;

/// What a slot's thread is doing.
pub mod state {
    #![allow(missing_docs)]
    pub const NOBODY: u32 = 0;
    /// It runs the program's code.
    pub const RUNS: u32 = 1;
    /// It has come to a synchronisation point, and waits for its turn.
    pub const ARRIVED: u32 = 2;
    /// It has had its turn.
    pub const DONE: u32 = 3;
    /// It is not in the ring: another thread has to wake it.
    pub const WAITS: u32 = 4;
    /// It is not in the ring: it waits for what is outside of the program, as in a call that the kernel makes.
    pub const OUTSIDE: u32 = 5;
    /// It has come to a place of input or output, and waits for its turn, or has it.
    pub const AT_IO: u32 = 6;
    /// It has had that turn: it goes on with its phase when all of the batch have had theirs.
    pub const IO_DONE: u32 = 7;
}

/// Why a thread came back into the ring.
pub mod why {
    #![allow(missing_docs)]
    pub const WOKEN: u32 = 0;
    /// It has waited long enough.
    pub const TIMED_OUT: u32 = 1;
    /// A signal is to be delivered.
    pub const SIGNAL: u32 = 2;
}

/// Whether a thread waits for a child of the program.
pub mod child {
    #![allow(missing_docs)]
    pub const NONE: u32 = 0;
    /// It comes back where the program alone says, and all others wait for it there.
    pub const IN_ORDER: u32 = 1;
    /// They no longer do.
    pub const ANY_TIME: u32 = 2;
    /// Somebody is about to say so.
    pub const TAKEN: u32 = 3;
}

/// One thread.
#[repr(C, align(64))]
pub struct Member {
    /// One of [`state`].
    pub state: AtomicU32,
    /// It sleeps, on this word.
    sleeping: AtomicU32,
    /// What it waits for: the address of a word, 0 nothing.
    pub word: AtomicU64,
    /// Which wake-ups are for it (FUTEX_WAIT_BITSET).
    pub bits: AtomicU32,
    /// What the word was, where others than the program's threads may change it.
    pub outer: AtomicU64,
    /// Its number among all waits: who came first is woken first.
    pub since: AtomicU64,
    /// When it has waited long enough, in ns of the program's time; 0: never.
    pub deadline: AtomicU64,
    /// That in ns of the kernel's monotonic clock: no time limit runs out before.
    pub not_before: AtomicU64,
    /// One of [`why`].
    pub why: AtomicU32,
    /// Signals that have come to it.
    pub signals: AtomicU32,
    /// The round in which it was made.
    pub born: AtomicU32,
    /// It is asked where it is, and to make so many steps.
    pub asked: AtomicU32,
    /// Where it was when somebody looked after it.
    pub seen_at: AtomicU64,
    /// One of [`child`].
    pub child: AtomicU32,
}

/// What all threads share. Zero at first.
#[repr(C)]
pub struct Rounds {
    /// Number of the round, from 1 on.
    round: AtomicU32,
    /// Whose turn it is: the slot, plus 1.
    turn: AtomicU32,
    /// Threads of the ring that have not arrived yet.
    running: AtomicU32,
    /// Threads that have come to a place of input or output since the last batch was over, ...
    asking: AtomicU32,
    /// ... and how many batches there were.
    batches: AtomicU32,
    /// Threads of the program.
    live: AtomicU32,
    /// Waits that there ever were.
    waits: AtomicU64,
    /// Turns in which a thread found that it still can't go on, since anybody could.
    useless: AtomicU32,
    /// Who looks after the threads that run, in this round: the slot, plus 1; of those who wait for the phase's end (second), and of others (first).
    watchers: [AtomicU32; 2],
    ring_len: AtomicU32,
    /// The slots of the ring's threads, in its order.
    ring: [AtomicU32; MAX_SLOTS],
    members: [Member; MAX_SLOTS],
}

/// What is done when the token goes on, besides, by whoever gives it on.
pub trait Around: Copy {
    /// So many slots were ever used.
    fn slots_used(self) -> u32;
    /// Wakes who sleeps on the word.
    fn wake(self, word: &AtomicU32);
    /// No batch is under way: the next turn, or the next phase, begins.
    fn goes_on(self);
    /// All turns are over: puts threads that left the ring [back into it](Rounds::recall), where it is time for that; whether there are any.
    fn comes_back(self) -> bool;
    /// The ring is empty, and [rests](Rest::begins). True: somebody is in it again.
    fn rests(self) -> bool;
    /// A phase begins. Nobody runs yet.
    fn phase_begins(self);
    /// All is ready for those who wait to go on, and they are about to be told.
    fn about_to_tell(self);
}

/// How a thread waits.
pub trait Waiter {
    /// Looks for a while before it sleeps at all; whether it was not in vain.
    fn comes_soon(&mut self, what: impl Fn() -> bool) -> bool;
    /// Does what others want of it.
    fn serves(&mut self);
    /// It has said that it sleeps: looks whether it can come back by itself.
    fn looks(&mut self);
    /// Is there no other reason to look again at once?
    fn may_sleep(&self) -> bool;
    /// Sleeps while the word is 1, for a moment at most, and looks whether the others live.
    fn sleeps(&mut self, word: &AtomicU32);
    /// It goes on.
    fn ends(&mut self);
}

impl Rounds {
    /// The thread of this slot.
    #[inline]
    pub fn member(&self, slot: u32) -> &Member {
        &self.members[slot as usize % MAX_SLOTS]
    }

    /// Number of the round.
    #[inline]
    pub fn round(&self) -> u32 {
        self.round.load(SeqCst)
    }

    /// How many batches there were.
    #[inline]
    pub fn batches(&self) -> u32 {
        self.batches.load(SeqCst)
    }

    /// Threads of the program that have not ended.
    #[inline]
    pub fn live(&self) -> u32 {
        self.live.load(SeqCst)
    }

    /// The number of a wait that begins.
    #[inline]
    pub fn wait_number(&self) -> u64 {
        self.waits.fetch_add(1, Relaxed)
    }

    /// Threads in this state.
    pub fn all_in(&self, wanted: u32, around: impl Around) -> impl Iterator<Item = u32> + '_ {
        (0..around.slots_used()).filter(move |slot| self.member(*slot).state.load(SeqCst) == wanted)
    }

    /// Threads that have not come to the end of the phase; and the one whose turn it is, which may run the program's code in it.
    pub fn running(&self, around: impl Around) -> impl Iterator<Item = u32> + '_ {
        let (turn, round) = (self.turn.load(SeqCst), self.round());
        let begun = move |slot: &u32| self.member(*slot).born.load(Relaxed) != round;
        let runs = self.all_in(state::RUNS, around).filter(begun);
        runs.chain(turn.checked_sub(1))
    }

    /// Does somebody run the program's code, in the phase or in a turn?
    pub fn anybody_runs(&self) -> bool {
        self.running.load(SeqCst) != 0 || self.turn.load(SeqCst) != 0
    }

    /// Do several threads run, which may wait for each other?
    pub fn several_run(&self) -> bool {
        self.running.load(SeqCst) > 1
    }

    /// Notes that a turn was of no use, or was of use; whether all threads' turns lately were of none.
    pub fn idles(&self, useless: bool) -> bool {
        if !useless {
            self.useless.store(0, Relaxed);
            return false;
        }
        self.useless.fetch_add(1, Relaxed) > 2 * self.ring_len()
    }

    /// Was no turn of the last round of any use?
    pub fn round_was_idle(&self) -> bool {
        self.useless.load(Relaxed) >= self.ring_len().max(1)
    }

    /// The thread of this slot wants to look after those that run, in this round; whether it is the one. `wanted`: it waits for the phase's end.
    pub fn watches(&self, slot: u32, wanted: bool) -> bool {
        let watcher = &self.watchers[usize::from(wanted)];
        let first = watcher.compare_exchange(0, slot + 1, SeqCst, SeqCst);
        first.is_ok() || first == Err(slot + 1)
    }

    /// It goes on, perhaps as one that has to be looked after: another one does that from now on.
    pub fn watches_no_more(&self, slot: u32) {
        for watcher in &self.watchers {
            let _ = watcher.compare_exchange(slot + 1, 0, SeqCst, SeqCst);
        }
    }
}
