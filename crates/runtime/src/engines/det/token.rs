//! Rounds and the token (DThreads 4.2.1), whose protocol is [`reprise_abi::rounds`]: here is what a round does besides, and how a thread waits.
//!
//! Input and output that is no synchronisation has turns of its own within the phase ([`super::io_turns`]). The ring is changed in a phase by the one that has its
//! lead ([`super::retained`]), and while it rests by whoever ends that ([`super::idle`]).

use super::spin::{FIRST_LOOK_AT_ALL_NS, FIRST_LOOK_NS};
use super::{idle, retained, spin, streams};
use crate::isolate::call::LOOK_AROUND_NS;
use crate::isolate::layout::DET_BASE;
use crate::isolate::{ending, members, options, pages, proxy, space};
use crate::machine::processors::processors;
use crate::machine::sys::{self, Timespec};
use crate::thread::session;
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::rounds::{Around, Rounds, Waiter};

pub use reprise_abi::rounds::{child, state, why, Member};

/// Rounds of looking before a thread sleeps: a futex wake to another processor costs more than that.
const SPINS: u32 = 2000;
/// As many, of a thread of the ring, as long as each of them can have a processor: the others come to the end of their phases, too.
const SPINS_IN_RING: u32 = 20_000;

const _: () = assert!(core::mem::size_of::<Rounds>() < 16 << 20);

fn all() -> &'static Rounds {
    // SAFETY: mapped before there is a second thread; zero at first; only atomics.
    unsafe { &*(DET_BASE as *const Rounds) }
}

/// What else is done when the token goes on.
#[derive(Clone, Copy)]
struct Here;

impl Around for Here {
    fn slots_used(self) -> u32 {
        session().slots_used.load(Relaxed)
    }

    fn wake(self, word: &AtomicU32) {
        sys::futex_wake(word.as_ptr(), 1);
    }

    fn goes_on(self) {
        streams::flush();
    }

    fn comes_back(self) -> bool {
        idle::comes_back()
    }

    fn rests(self) -> bool {
        idle::rest()
    }

    fn phase_begins(self) {
        pages::phase_begins();
        options::count(&session().counters.det_rounds);
    }

    fn about_to_tell(self) {
        options::delay();
    }
}

/// The thread of this slot.
pub fn member(slot: u32) -> &'static Member {
    all().member(slot)
}

/// Is the ring empty?
pub fn nobody_in_ring() -> bool {
    all().ring_len() == 0
}

/// Is this the only thread of the ring?
pub fn is_alone_in_ring(slot: u32) -> bool {
    all().is_alone_in_ring(slot)
}

/// See [`Rounds::take_lead`].
pub fn take_lead(slot: u32) -> bool {
    all().take_lead(slot, retained::lead())
}

/// See [`Rounds::nobody_looks`].
pub fn nobody_looks() -> bool {
    all().nobody_looks(Here)
}

/// Is this the first thread of the ring?
pub fn is_first_in_ring(slot: u32) -> bool {
    all().is_first_in_ring(slot)
}

/// Number of the round.
pub fn round() -> u32 {
    all().round()
}

/// How many batches there were.
pub fn batches() -> u32 {
    all().batches()
}

/// Threads of the program that have not ended.
pub fn live() -> u32 {
    all().live()
}

/// The program's only thread is the first one of the ring.
pub fn start(slot: u32) {
    pages::phase_begins();
    members::start(slot);
    all().start(slot);
}

/// In a turn: a new thread. It runs from the next phase on.
pub fn enrol(slot: u32) {
    members::begins(slot);
    all().enrol(slot);
}

/// In a phase, of the thread that has its lead ([`super::retained`]): a new thread. It runs from now on.
pub fn enrol_at_once(slot: u32) {
    members::begins(slot);
    all().enrol_at_once(slot);
}

/// One that was enrolled so could not be made.
pub fn retire_at_once(slot: u32) {
    all().retire_at_once(slot);
}

/// In its turn: the thread ends. It still has to [`pass`].
pub fn retire(slot: u32) {
    all().retire(slot);
}

/// The thread has come to a synchronisation point. Then it has to [`wait_for_turn`].
pub fn arrive(slot: u32) {
    all().arrive(slot, Here);
}

/// The thread has come to a place of input or output. Then it has to [`wait_for_turn`], and to [`pass`], and if it is done then, to
/// [`wait_for_batch`].
pub fn arrive_for_io(slot: u32) {
    all().arrive_for_io(slot, Here);
}

/// The thread's turn is over; `how` says how it goes on.
pub fn pass(slot: u32, how: u32) {
    all().pass(slot, how, Here);
}

/// The next turn, or the next phase.
pub fn next() {
    all().next(Here);
}

/// See [`Rounds::running`].
pub fn running() -> impl Iterator<Item = u32> {
    all().running(Here)
}

/// See [`Rounds::waits_for_child`].
pub fn waits_for_child(slot: u32) {
    all().waits_for_child(slot);
}

/// See [`Rounds::pass_over_child_waiter`].
pub fn pass_over_child_waiter() {
    all().pass_over_child_waiter(Here);
}

/// See [`Rounds::child_has_come`].
pub fn child_has_come(slot: u32) -> bool {
    all().child_has_come(slot, || {
        // Who is about to pass the thread over may have been killed.
        ending::look_after_threads();
        sys::sched_yield();
    })
}

/// Is it the turn of this slot's thread?
pub fn has_turn(slot: u32) -> bool {
    all().has_turn(slot)
}

/// Threads in this state.
pub fn all_in(wanted: u32) -> impl Iterator<Item = u32> {
    all().all_in(wanted, Here)
}

/// In a turn: the thread of this slot, which is not in the ring, gets a turn in this round. `reason`: one of [`why`].
pub fn recall(slot: u32, reason: u32) {
    all().recall(slot, reason);
}

/// The number of a wait that begins.
pub fn wait_number() -> u64 {
    all().wait_number()
}

/// Waits for the thread's turn.
pub fn wait_for_turn(slot: u32) {
    all().wait_for_turn(slot, Waits::new(slot));
}

/// Waits for the end of round `round`.
pub fn wait_for_phase(slot: u32, round: u32) {
    all().wait_for_phase(slot, round, Waits::new(slot));
}

/// Waits until all of the batch have had their turns, before which there were so many batches.
pub fn wait_for_batch(slot: u32, before: u32) {
    all().wait_for_batch(slot, before, Waits::new(slot));
}

/// Notes that a turn was of no use, or was of use; whether all threads' turns lately were of none.
pub fn idles(useless: bool) -> bool {
    all().idles(useless)
}

/// Was no turn of the last round of any use?
pub fn round_was_idle() -> bool {
    all().round_was_idle()
}

/// A signal has come to the thread of this slot, in whose handler this is: it looks whether it has to wait still.
pub fn signalled(slot: u32) {
    all().signalled(slot);
}

/// The thread of this slot, if it sleeps, looks again.
pub fn rouse(slot: u32) {
    all().rouse(slot, Here);
}

/// A thread that waits, and what it knows of the phase that others make last.
struct Waits {
    slot: u32,
    round: u32,
    since: i64,
    next: i64,
}

impl Waits {
    fn new(slot: u32) -> Waits {
        Waits {
            slot,
            round: 0,
            since: 0,
            next: 0,
        }
    }

    /// Is it worth it for the thread to look for longer before it sleeps?
    fn may_look_on(&self) -> bool {
        let state = member(self.slot).state.load(Relaxed);
        let waits = matches!(state, state::WAITS | state::OUTSIDE);
        !waits && all().ring_len() as usize <= processors() as usize
    }

    /// Looks after those who run, if that is due; when to look around again.
    fn looks_after_runners(&mut self) -> i64 {
        let (s, now) = (all(), sys::monotonic().ns());
        // What came after a batch is as good as a phase.
        let round = round().wrapping_add(batches());
        let wanted = idle::waits_for_phase(self.slot);
        let runs = match wanted {
            true => s.anybody_runs(),
            false => s.several_run(),
        };
        if !runs {
            self.since = 0;
        } else if self.since == 0 || self.round != round {
            if s.watches(self.slot, wanted) {
                (self.round, self.since) = (round, now);
                self.next = now
                    + if wanted {
                        FIRST_LOOK_NS
                    } else {
                        FIRST_LOOK_AT_ALL_NS
                    };
            }
        } else if now >= self.next {
            self.next = now + spin::look_after_runners(now - self.since, wanted);
        }
        match self.since {
            0 => now + LOOK_AROUND_NS,
            _ => self.next.min(now + LOOK_AROUND_NS),
        }
    }
}

impl Waiter for Waits {
    #[inline(always)]
    fn comes_soon(&mut self, what: impl Fn() -> bool) -> bool {
        for n in 1..=SPINS_IN_RING {
            if what() {
                space::follow(self.slot);
                return true;
            }
            core::hint::spin_loop();
            if n % SPINS == 0 {
                if !self.may_look_on() {
                    break;
                }
                proxy::serve(self.slot);
                // Others may want the processor.
                sys::sched_yield();
            }
        }
        false
    }

    fn serves(&mut self) {
        space::follow(self.slot);
        proxy::serve(self.slot);
    }

    fn looks(&mut self) {
        idle::look(self.slot);
    }

    fn may_sleep(&self) -> bool {
        !space::is_behind(self.slot)
    }

    fn sleeps(&mut self, word: &AtomicU32) {
        let end = idle::late(self.slot).min(self.looks_after_runners());
        sys::futex_wait(word.as_ptr(), 1, Some(&Timespec::from_ns(end)));
        ending::look_after_threads();
    }

    fn ends(&mut self) {
        all().watches_no_more(self.slot);
        space::follow(self.slot);
    }
}
