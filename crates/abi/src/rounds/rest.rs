//! How threads that left the ring come back into it: they **notify**, and that is heard at the end of a round. When the ring is empty it **rests**, and whoever
//! notifies sets it going again.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
use crate::layout::MAX_SLOTS;

/// Who has notified, a bit for each slot.
pub type Notices = [u64; MAX_SLOTS / 64];

/// What all threads share. Zero at first.
///
/// Whoever ends the rest, by a call that returns true, moves on ([`Rounds::next`](super::Rounds::next)), and nobody else does.
#[repr(C)]
pub struct Rest {
    /// The ring is empty, and nobody has set it going again.
    pub(super) rests: AtomicU32,
    /// Somebody has notified.
    pub(super) notified: AtomicU32,
    notices: [AtomicU64; MAX_SLOTS / 64],
}

impl Rest {
    /// The thread of this slot, which left the ring, wants to be in it again. True: that ends the rest.
    pub fn notify(&self, slot: u32) -> bool {
        self.notices[slot as usize / 64].fetch_or(1 << (slot % 64), SeqCst);
        self.notify_for_nobody()
    }

    /// Something has come that is to be looked at when the round ends. True: that ends the rest.
    pub fn notify_for_nobody(&self) -> bool {
        self.notified.store(1, SeqCst);
        self.ends()
    }

    /// Ends the rest. False: there is none, or somebody else was first.
    pub fn ends(&self) -> bool {
        self.rests.load(SeqCst) == 1 && self.rests.swap(0, SeqCst) == 1
    }

    /// Does the ring rest?
    pub fn is_on(&self) -> bool {
        self.rests.load(SeqCst) == 1
    }

    /// The ring is empty: it rests. True: that is over already.
    pub fn begins(&self) -> bool {
        self.rests.store(1, SeqCst);
        // Somebody may have notified before that was to be seen.
        self.is_notified() && self.rests.swap(0, SeqCst) == 1
    }

    /// Has somebody notified who was not heard yet?
    pub fn is_notified(&self) -> bool {
        self.notified.load(SeqCst) != 0
    }

    /// At the end of a round: who has notified since the last one. `None`: nobody.
    pub fn take(&self) -> Option<Notices> {
        if self.notified.swap(0, SeqCst) == 0 {
            return None;
        }
        Some(self.notices.each_ref().map(|word| word.swap(0, SeqCst)))
    }

    /// Has the thread of this slot notified, and is not in the ring yet?
    pub fn has_notified(&self, slot: u32) -> bool {
        self.notices[slot as usize / 64].load(SeqCst) & 1 << (slot % 64) != 0
    }

    /// In a turn, before the thread leaves the ring: notices that came too late mean nothing.
    pub fn forget(&self, slot: u32) {
        self.notices[slot as usize / 64].fetch_and(!(1 << (slot % 64)), SeqCst);
    }
}
