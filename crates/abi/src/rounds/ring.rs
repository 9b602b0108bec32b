//! Who is in the ring, and in which order: those who have a turn in each round.

use super::{child, state, Around, Lead, Rounds};
use crate::atomic::Ordering::*;

impl Rounds {
    /// How many are in the ring.
    #[inline]
    pub fn ring_len(&self) -> u32 {
        self.ring_len.load(Relaxed)
    }

    pub(super) fn in_ring(&self) -> impl Iterator<Item = u32> + '_ {
        let len = self.ring_len() as usize;
        self.ring.iter().take(len).map(|slot| slot.load(Relaxed))
    }

    fn place_of(&self, slot: u32) -> Option<usize> {
        self.in_ring().position(|s| s == slot)
    }

    fn join_ring(&self, slot: u32) {
        let len = self.ring_len();
        self.ring[len as usize].store(slot, Relaxed);
        self.ring_len.store(len + 1, Relaxed);
    }

    pub(super) fn leave_ring(&self, slot: u32) {
        let Some(n) = self.place_of(slot) else {
            return;
        };
        let len = self.ring_len();
        for n in n + 1..len as usize {
            let next = self.ring[n].load(Relaxed);
            self.ring[n - 1].store(next, Relaxed);
        }
        self.ring_len.store(len - 1, Relaxed);
    }

    /// Is this the only thread of the ring?
    #[inline]
    pub fn is_alone_in_ring(&self, slot: u32) -> bool {
        self.ring_len() == 1 && self.is_first_in_ring(slot)
    }

    /// Is this the first thread of the ring?
    #[inline]
    pub fn is_first_in_ring(&self, slot: u32) -> bool {
        self.ring_len() != 0 && self.ring[0].load(Relaxed) == slot
    }

    /// Are several threads in the ring, and is none left that looks after them while it waits? Who waits in the kernel can't.
    pub fn nobody_looks(&self, around: impl Around) -> bool {
        let len = self.ring_len();
        len > 1 && (len == self.live() || self.all_in(state::WAITS, around).next().is_none())
    }

    /// In its turn: the thread of this slot has the lead of the next phase, and is the ring's first from now on, unless another one takes it in this round. False:
    /// it is alone in the ring, so its turn may go on as long as it is, and there is no next phase to lead in.
    pub fn take_lead(&self, slot: u32, lead: &Lead) -> bool {
        if self.is_alone_in_ring(slot) {
            return false;
        }
        self.put_first(slot);
        lead.take(slot);
        true
    }

    fn put_first(&self, slot: u32) {
        let Some(n) = self.place_of(slot) else {
            return;
        };
        for n in (0..n).rev() {
            let before = self.ring[n].load(Relaxed);
            self.ring[n + 1].store(before, Relaxed);
        }
        self.ring[0].store(slot, Relaxed);
    }

    /// The program's only thread is the first one of the ring.
    pub fn start(&self, slot: u32) {
        self.round.store(1, SeqCst);
        self.running.store(0, SeqCst);
        self.ring_len.store(0, Relaxed);
        self.enrol(slot);
        // It doesn't wait for its first phase.
        self.member(slot).born.store(0, SeqCst);
        self.running.store(1, SeqCst);
    }

    /// In a turn: a new thread. It runs from the next phase on.
    pub fn enrol(&self, slot: u32) {
        let m = self.member(slot);
        self.live.fetch_add(1, SeqCst);
        m.word.store(0, Relaxed);
        m.sleeping.store(0, Relaxed);
        m.born.store(self.round.load(Relaxed), Relaxed);
        m.deadline.store(0, Relaxed);
        m.asked.store(0, Relaxed);
        m.child.store(child::NONE, Relaxed);
        m.state.store(state::RUNS, SeqCst);
        self.join_ring(slot);
    }

    /// In a phase, of the thread that has its [lead](super::Lead): a new thread. It runs from now on.
    pub fn enrol_at_once(&self, slot: u32) {
        self.enrol(slot);
        self.member(slot).born.store(self.round() - 1, Relaxed);
        self.running.fetch_add(1, SeqCst);
    }

    /// In its turn: the thread ends. It still has to [`pass`](Rounds::pass).
    pub fn retire(&self, slot: u32) {
        self.live.fetch_sub(1, SeqCst);
        self.leave_ring(slot);
        self.member(slot).state.store(state::NOBODY, SeqCst);
    }

    /// One that was enrolled at once could not be made.
    pub fn retire_at_once(&self, slot: u32) {
        self.retire(slot);
        self.running.fetch_sub(1, SeqCst);
    }

    /// In a turn: the thread of this slot, which is not in the ring, gets a turn in this round. `reason`: one of [`why`](super::why).
    pub fn recall(&self, slot: u32, reason: u32) {
        let m = self.member(slot);
        m.word.store(0, Relaxed);
        m.deadline.store(0, Relaxed);
        m.why.store(reason, Relaxed);
        m.state.store(state::ARRIVED, SeqCst);
        self.join_ring(slot);
    }
}
