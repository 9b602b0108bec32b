//! Who waits for a child of the program in its turn, and for too long: the others go on without it.

use super::{child, state, Around, Rounds};
use crate::atomic::Ordering::*;

impl Rounds {
    /// The thread of this slot, which has just left the ring, waits for a child: it comes back where the program alone says.
    pub fn waits_for_child(&self, slot: u32) {
        self.member(slot).child.store(child::IN_ORDER, SeqCst);
    }

    /// The thread whose turn it is waits for a child, and has been doing so for too long: the others go on.
    pub fn pass_over_child_waiter(&self, around: impl Around) {
        let Some(slot) = self.turn.load(SeqCst).checked_sub(1) else {
            return;
        };
        let m = self.member(slot);
        let taken = m
            .child
            .compare_exchange(child::IN_ORDER, child::TAKEN, SeqCst, SeqCst);
        if taken.is_err() {
            return;
        }
        if !self.has_turn(slot) {
            // It has had that turn, and has begun to wait anew.
            m.child.store(child::IN_ORDER, SeqCst);
            return;
        }
        // Its turn is the caller's to end.
        self.pass(slot, state::OUTSIDE, around);
        m.child.store(child::ANY_TIME, SeqCst);
    }

    /// The thread of this slot waits for a child no more; whether others still wait for it, if it has a turn. `pause` lets others have
    /// the processor.
    pub fn child_has_come(&self, slot: u32, mut pause: impl FnMut()) -> bool {
        let word = &self.member(slot).child;
        loop {
            match word.compare_exchange(child::IN_ORDER, child::NONE, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(child::TAKEN) => pause(),
                Err(_) => break,
            }
        }
        word.store(child::NONE, SeqCst);
        false
    }
}
