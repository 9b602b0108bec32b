//! How the token goes on: from those that run to the first turn, from turn to turn, and to the next phase; and how threads wait for it.

use super::{state, Around, Rounds, Waiter};
use crate::atomic::Ordering::*;
use crate::layout::MAX_SLOTS;

/// Threads, by slot.
#[derive(Default)]
struct Set {
    words: SetWords,
    len: u32,
}

/// A bit for each.
struct SetWords([u64; MAX_SLOTS / 64]);

impl Default for SetWords {
    fn default() -> SetWords {
        SetWords([0; MAX_SLOTS / 64])
    }
}

impl Set {
    fn insert(&mut self, slot: u32) {
        self.words.0[slot as usize / 64] |= 1 << (slot % 64);
        self.len += 1;
    }
}

impl Rounds {
    /// The thread has come to a synchronisation point. Then it has to [wait for its turn](Self::wait_for_turn).
    pub fn arrive(&self, slot: u32, around: impl Around) {
        self.member(slot).state.store(state::ARRIVED, SeqCst);
        self.runs_no_more(around);
    }

    /// The thread has come to a place of input or output. Then it has to [wait for its turn](Self::wait_for_turn), and to [`pass`](Self::pass), and if it is
    /// done then, to [wait for its batch](Self::wait_for_batch).
    pub fn arrive_for_io(&self, slot: u32, around: impl Around) {
        self.asking.fetch_add(1, SeqCst);
        self.member(slot).state.store(state::AT_IO, SeqCst);
        self.runs_no_more(around);
    }

    fn runs_no_more(&self, around: impl Around) {
        if self.running.fetch_sub(1, SeqCst) == 1 {
            self.next(around);
        }
    }

    /// The thread's turn is over; `how` says how it goes on.
    pub fn pass(&self, slot: u32, how: u32, around: impl Around) {
        if how != state::NOBODY {
            self.member(slot).state.store(how, SeqCst);
        }
        if matches!(how, state::WAITS | state::OUTSIDE) {
            self.leave_ring(slot);
        }
        self.next(around);
    }

    /// The next turn, or the next phase.
    pub fn next(&self, around: impl Around) {
        if self.next_of_batch(around) {
            return;
        }
        around.goes_on();
        loop {
            if let Some(slot) = self.first_of_ring(state::ARRIVED) {
                return self.give_turn(slot, around);
            }
            self.turn.store(0, SeqCst);
            if around.comes_back() {
                continue;
            }
            if self.ring_len() != 0 {
                return self.begin_phase(around);
            }
            if self.live() == 0 || !around.rests() {
                return;
            }
        }
    }

    fn first_of_ring(&self, wanted: u32) -> Option<u32> {
        self.in_ring().find(|slot| self.is_in(*slot, wanted))
    }

    fn is_in(&self, slot: u32, wanted: u32) -> bool {
        self.member(slot).state.load(SeqCst) == wanted
    }

    fn give_turn(&self, slot: u32, around: impl Around) {
        self.turn.store(slot + 1, SeqCst);
        self.rouse(slot, around);
    }

    /// Nobody runs: the next one of the batch has its turn, or all of it go on with their phase. False: there is no batch.
    fn next_of_batch(&self, around: impl Around) -> bool {
        if self.asking.load(SeqCst) == 0 {
            return false;
        }
        if let Some(slot) = self.first_of_ring(state::AT_IO) {
            self.give_turn(slot, around);
            return true;
        }
        self.asking.store(0, SeqCst);
        let of_batch = self.in_ring().filter(|s| self.is_in(*s, state::IO_DONE));
        let told = self.let_run(of_batch);
        // All have become real turns.
        if told.len == 0 {
            return false;
        }
        self.turn.store(0, SeqCst);
        self.running.store(told.len, SeqCst);
        around.about_to_tell();
        self.batches.fetch_add(1, SeqCst);
        self.rouse_all(&told, around);
        true
    }

    fn begin_phase(&self, around: impl Around) {
        around.phase_begins();
        self.watchers.iter().for_each(|w| w.store(0, Relaxed));
        self.running.store(self.ring_len(), SeqCst);
        let told = self.let_run(self.in_ring());
        around.about_to_tell();
        self.round.fetch_add(1, SeqCst);
        self.rouse_all(&told, around);
    }

    /// These are to go on when they are told. Who is told may have gone on, and arrived, before all are: so they are named beforehand.
    fn let_run(&self, who: impl Iterator<Item = u32>) -> Set {
        let mut told = Set::default();
        for slot in who {
            self.member(slot).state.store(state::RUNS, SeqCst);
            told.insert(slot);
        }
        told
    }

    /// All threads of this set look again.
    fn rouse_all(&self, set: &Set, around: impl Around) {
        for (n, word) in set.words.0.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                self.rouse(n as u32 * 64 + word.trailing_zeros(), around);
                word &= word - 1;
            }
        }
    }

    /// The thread of this slot, if it sleeps, looks again.
    pub fn rouse(&self, slot: u32, around: impl Around) {
        let m = self.member(slot);
        if m.sleeping.swap(0, SeqCst) != 0 {
            around.wake(&m.sleeping);
        }
    }

    /// A signal has come to the thread of this slot, in whose handler this is: it looks whether it has to wait still.
    pub fn signalled(&self, slot: u32) {
        let m = self.member(slot);
        m.signals.fetch_add(1, SeqCst);
        m.sleeping.store(0, SeqCst);
    }

    /// Is it the turn of this slot's thread?
    #[inline]
    pub fn has_turn(&self, slot: u32) -> bool {
        self.turn.load(SeqCst) == slot + 1
    }

    /// Waits for the thread's turn.
    pub fn wait_for_turn(&self, slot: u32, waiter: impl Waiter) {
        self.wait(slot, waiter, || self.has_turn(slot));
    }

    /// Waits for the end of round `round`.
    pub fn wait_for_phase(&self, slot: u32, round: u32, waiter: impl Waiter) {
        self.wait(slot, waiter, || self.round() != round);
    }

    /// Waits until all of the batch have had their turns, before which there were so many batches.
    pub fn wait_for_batch(&self, slot: u32, before: u32, waiter: impl Waiter) {
        self.wait(slot, waiter, || self.batches() != before);
    }

    fn wait(&self, slot: u32, mut waiter: impl Waiter, what: impl Fn() -> bool) {
        let m = self.member(slot);
        if waiter.comes_soon(&what) {
            return;
        }
        while !what() {
            waiter.serves();
            m.sleeping.store(1, SeqCst);
            waiter.looks();
            if !what() && waiter.may_sleep() {
                // A signal that came after the look has changed the word.
                waiter.sleeps(&m.sleeping);
            }
            m.sleeping.store(0, SeqCst);
        }
        waiter.ends();
    }
}
