//! The baton: exactly one thread of the session has it. How it is given on, waited for, and taken from a holder that stays inside one call.
//!
//! Who gives it on says so in the lists and, last, in the receiver's word [`Slot::go`], all under the lock, and wakes it when the lock is
//! free again. The word names the turn, by the number of times that the baton changed hands, and the receiver marks it there
//! when it begins. So whoever finds the lock of somebody that was killed while it gave the baton on can tell whether the receiver was told, and tells it if not
//! ([`Lists::repair`]).
//!
//! Inside a call that may wait the holder's slot is [`IN_CALL`](slot_state::IN_CALL), and whoever changes that first, the thread or the agent, has decided
//! whether the thread still has the baton when it comes back.

use super::{FutexKey, Kernel, Lists, Locked};
use crate::atomic::Ordering::*;
use crate::session::{slot_state, Session, Slot, BATON_FREE};

impl Slot {
    /// The holder's call begins; from now on the baton may be taken from it.
    #[inline]
    pub fn enter_call(&self) {
        self.state.store(slot_state::IN_CALL, Release);
    }

    /// The call is over; true when the baton is still here, false when it was taken.
    #[inline]
    pub fn leave_call(&self) -> bool {
        self.state
            .compare_exchange(slot_state::IN_CALL, slot_state::RUNNING, AcqRel, Relaxed)
            .is_ok()
    }

    /// Waits for the baton: sleeps until it was given to the slot, and takes it.
    pub fn wait_for_baton(&self, s: &Session, kernel: impl Kernel) {
        loop {
            let seen = self.go.load(Acquire);
            if self.takes_baton(s, seen) {
                return;
            }
            kernel.sleep(&self.go, seen);
        }
    }

    /// Takes the baton, if it was given to the slot. `seen`: what [`go`](Slot::go) is; as long as it is that, it was not.
    #[inline]
    pub fn takes_baton(&self, s: &Session, seen: u32) -> bool {
        let told = told(s.baton_generation.load(Acquire));
        seen == told
            && self
                .go
                .compare_exchange(told, begun(told), AcqRel, Relaxed)
                .is_ok()
    }

    /// Has the slot's thread, which has the baton, not begun to run with it?
    pub fn is_unclaimed(&self, s: &Session) -> bool {
        self.go.load(Acquire) == told(s.baton_generation.load(Acquire))
    }
}

/// What a slot's [`go`](Slot::go) is when it was given the baton as the one that has it in this generation: even, and not 0.
pub(super) fn told(generation: u64) -> u32 {
    ((generation % 0x7fff_ffff) as u32 + 1) << 1
}

/// What becomes of it when the thread begins to run.
pub(super) fn begun(told: u32) -> u32 {
    told | 1
}

impl<K: Kernel> Locked<'_, K> {
    /// Hands the baton to the slot that is so far from the front of the queue of those that are ready, or to nobody.
    pub fn pass(self, skip: u32) {
        let to = self.hand_on(skip);
        let (lists, kernel) = (*self, self.kernel());
        drop(self);
        if let Some(i) = to {
            kernel.wake(&lists.slot(i).go);
        }
    }

    /// The holder, slot `i`, leaves: inside a call that may wait, or for good. `next` says who has the baton then, as [`Lists::next`] does.
    pub fn release(self, i: u32, state: u32, next: impl FnOnce(&Lists) -> u32) {
        self.slot(i).state.store(state, Release);
        let skip = next(&self);
        self.pass(skip);
    }

    /// Slot `i` comes back for the baton. True: it has it; else it is in the queue, before those who compute, and has to
    /// [wait](Slot::wait_for_baton). `before` runs in that case, with the lock.
    pub fn come_back(self, i: u32, before: impl FnOnce()) -> bool {
        let free = self.0.baton.load(Relaxed) == BATON_FREE;
        if free {
            self.begins(i);
        } else {
            before();
            self.push_returned(i);
        }
        free
    }

    /// The holder, slot `i`, goes to the end of the queue, and has to [wait](Slot::wait_for_baton).
    pub fn queue_again(self, i: u32, next: impl FnOnce(&Lists) -> u32) {
        self.push_ready(i);
        let skip = next(&self);
        self.pass(skip);
    }

    /// By the agent: a holder that has the baton, and knows nothing of it yet, since it is stopped, say, queues again, and the next one gets the baton. False: it
    /// knows.
    pub fn pass_over(self, holder: u32) -> bool {
        let Some(i) = holder.checked_sub(1) else {
            return false;
        };
        // Whoever marks the word decides: the thread, which then runs, or the agent.
        let slot = self.slot(i);
        let unclaimed =
            self.0.baton.load(Relaxed) == holder && slot.takes_baton(self.0, slot.go.load(Acquire));
        if unclaimed {
            self.push_ready(i);
            let skip = self.next();
            self.pass(skip);
        }
        unclaimed
    }

    /// By the agent: takes the baton from a holder inside a call and gives it to the next one that waits, which logs that. False: the holder has none, or is back, or
    /// nobody waits, or the last such taking is not logged yet.
    pub fn take_from_call(self, holder: u32) -> bool {
        let Some(i) = holder.checked_sub(1) else {
            return false;
        };
        let s = self.0;
        let may = s.baton.load(Relaxed) == holder
            && s.ready_count.load(Relaxed) != 0
            && s.stolen_from.load(Relaxed) == 0;
        if !may {
            return false;
        }
        // Said first: who finds that the holder lost the baton has to find from whom it was taken, too.
        s.stolen_from.store(holder, Relaxed);
        let state = &self.slot(i).state;
        let takes = state
            .compare_exchange(slot_state::IN_CALL, slot_state::BLOCKED, AcqRel, Relaxed)
            .is_ok();
        if !takes {
            s.stolen_from.store(0, Relaxed);
        } else {
            s.counters.handoffs.fetch_sub(1, Relaxed);
            s.counters.stolen.fetch_add(1, Relaxed);
            let skip = self.next();
            self.pass(skip);
        }
        takes
    }

    /// By the agent: process `p` was found dead ([`Lists::reap`]). If it had the baton, or nobody has it, the next one gets it.
    pub fn bury(self, p: u32, status: Option<i32>) {
        let held = self.reap(p, status);
        let (lists, kernel) = (*self, self.kernel());
        // Those that wait for its robust futexes may be all there are.
        if held || self.0.baton.load(Relaxed) == BATON_FREE {
            let skip = self.next();
            self.hand_on(skip);
        }
        drop(self);
        // Also when the dead one was killed between giving the baton and waking whom it gave it to.
        lists.wake_holder(kernel);
    }
}

impl Lists<'_> {
    /// Slot `i` has the baton, which nobody had, and runs.
    pub fn begins(&self, i: u32) {
        self.slot(i).state.store(slot_state::RUNNING, Relaxed);
        self.set_holder(i + 1);
        let told = told(self.0.baton_generation.load(Relaxed));
        self.slot(i).go.store(begun(told), Relaxed);
    }

    /// Says who holds the baton: a slot plus 1, or [`BATON_FREE`].
    fn set_holder(&self, holder: u32) {
        let s = self.0;
        s.baton.store(holder, Relaxed);
        s.slice_over.store(0, Relaxed);
        s.baton_generation.fetch_add(1, Release);
    }

    /// Gives the baton to a slot of the ready queue (see [`Lists::pop_ready`]), or to nobody. The new holder is to be woken.
    pub fn hand_on(&self, skip: u32) -> Option<u32> {
        let Some(i) = self.ready_at(skip) else {
            self.set_holder(BATON_FREE);
            return None;
        };
        self.0.counters.handoffs.fetch_add(1, Relaxed);
        self.set_holder(i + 1);
        self.pop_ready(skip);
        self.tell(i);
        Some(i)
    }

    /// Slot `i`, which is in no queue any more, learns that it has the baton.
    fn tell(&self, i: u32) {
        let s = self.slot(i);
        s.state.store(slot_state::RUNNING, Relaxed);
        let told = told(self.0.baton_generation.load(Relaxed));
        s.go.store(told, Release);
    }

    /// Somebody was killed with the lock, perhaps while the baton changed hands: that is brought to its end. Other lists are right already.
    pub(super) fn repair_baton(&self) {
        let s = self.0;
        let holder = s.baton.load(Relaxed);
        let Some(i) = holder.checked_sub(1) else {
            // Whoever was to get it is in the queue.
            self.hand_on(self.next());
            return;
        };
        match self.slot(i).state.load(Relaxed) {
            slot_state::READY => {
                self.remove_ready(i);
                self.tell(i);
            }
            slot_state::RUNNING => {
                if s.stolen_from.load(Relaxed) == holder {
                    s.stolen_from.store(0, Relaxed);
                }
                let told = told(s.baton_generation.load(Relaxed));
                let go = self.slot(i).go.load(Relaxed);
                if go != told && go != begun(told) {
                    self.tell(i);
                }
            }
            slot_state::IN_CALL => {
                if s.stolen_from.load(Relaxed) == holder {
                    s.stolen_from.store(0, Relaxed);
                }
            }
            // It has left.
            _ => {
                self.hand_on(self.next());
            }
        }
    }

    /// Wakes the holder of the baton, whoever that is: who gave it the baton may be dead or stopped, and could not.
    pub fn wake_holder(&self, kernel: impl Kernel) {
        let holder = self.0.baton.load(Relaxed);
        if let Some(i) = holder.checked_sub(1) {
            kernel.wake(&self.slot(i).go);
        }
    }

    /// Takes slot `i` out of the queue of its futex because its wait ended by itself; false when it was woken meanwhile: then it is in the queue for the baton, or has
    /// it already.
    pub fn futex_cancel(&self, i: u32) -> bool {
        let s = self.slot(i);
        if s.state.load(Relaxed) != slot_state::FUTEX {
            return false;
        }
        self.futex_take(FutexKey::of(s), |k, _| k == i).is_some()
    }
}
