//! The lead of a phase: who makes threads changes the ring and the table of views beside those that run, while none of them looks at it.

use crate::atomic::{AtomicU32, Ordering::*};

/// The leader changes something.
const OPERATION: u32 = 1 << 31;

/// Who has the lead, and who looks at what it may change. Zero at first.
#[derive(Default)]
pub struct Lead {
    /// The slot of who has it, plus 1; 0: nobody.
    leader: AtomicU32,
    /// How many threads look; [`OPERATION`].
    pub(super) looking: AtomicU32,
}

impl Lead {
    /// Nobody has it.
    pub const fn new() -> Lead {
        Lead {
            leader: AtomicU32::new(0),
            looking: AtomicU32::new(0),
        }
    }

    /// There are no other threads yet.
    pub fn start(&self) {
        self.leader.store(0, SeqCst);
        self.looking.store(0, SeqCst);
    }

    /// See [`Rounds::take_lead`](super::Rounds::take_lead).
    pub(super) fn take(&self, slot: u32) {
        self.leader.store(slot + 1, SeqCst);
    }

    /// Has this slot's thread the lead?
    #[inline]
    pub fn is(&self, slot: u32) -> bool {
        self.leader.load(SeqCst) == slot + 1
    }

    /// Its phase is over.
    pub fn end(&self, slot: u32) {
        let _ = self.leader.compare_exchange(slot + 1, 0, SeqCst, SeqCst);
    }

    /// The leader begins an operation: nobody looks at what it may change. `pause` is called again and again meanwhile.
    pub fn operation_begins(&self, mut pause: impl FnMut()) {
        while self
            .looking
            .compare_exchange(0, OPERATION, SeqCst, Relaxed)
            .is_err()
        {
            pause();
        }
    }

    /// It has ended.
    pub fn operation_ends(&self) {
        self.looking.fetch_and(!OPERATION, SeqCst);
    }

    /// A thread looks, in a phase. True: the phase has a leader, and [`has_looked`](Self::has_looked) is to be told.
    pub fn looks(&self, mut pause: impl FnMut()) -> bool {
        if self.leader.load(SeqCst) == 0 {
            return false;
        }
        loop {
            let n = self.looking.load(SeqCst);
            let counted = || {
                let more = self.looking.compare_exchange(n, n + 1, SeqCst, Relaxed);
                more.is_ok()
            };
            if n & OPERATION == 0 && counted() {
                return true;
            }
            pause();
        }
    }

    /// It has looked.
    pub fn has_looked(&self) {
        self.looking.fetch_sub(1, SeqCst);
    }
}
