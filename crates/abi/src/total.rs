//! Whose turn it is in a replay in total order, where one thread runs at a time.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::layout::MAX_SLOTS;
use crate::order::OrderHead;
use crate::waits::What;

/// Whose turn it is in a replay in total order.
#[repr(C)]
pub struct TotalOrder {
    /// Turns given to threads, one after the other, that could not use them.
    pub fruitless: AtomicU32,
    /// How often the driver has found nothing to do.
    pub idle: AtomicU32,
    /// 1 while nobody has the turn because nobody took part when it was to be given: the next one that takes part has it.
    pub unclaimed: AtomicU32,
    _pad: AtomicU32,
    /// A bit for each slot with a thread that takes part.
    pub members: [AtomicU64; MAX_SLOTS / 64],
    /// Not 0 for the slot whose thread runs (futexes): [`TURN`] or [`TURN_KEPT`].
    pub turn: [AtomicU32; MAX_SLOTS],
}

/// [`TotalOrder::turn`]: this slot's thread runs.
pub const TURN: u32 = 1;
/// [`TotalOrder::turn`]: it runs, and nobody else may take its turn away.
pub const TURN_KEPT: u32 = 2;

impl TotalOrder {
    /// The thread of this slot takes no part any more.
    pub fn leave(&self, slot: usize) {
        self.members[slot / 64].fetch_and(!(1 << (slot % 64)), SeqCst);
    }

    /// Takes the turn from this slot's thread; false: it has none. Until `give_behind` nobody has one.
    pub fn take(&self, slot: usize) -> bool {
        self.turn[slot].swap(0, SeqCst) != 0
    }

    /// As [`take`](TotalOrder::take), by somebody else than the thread; false: it has no turn, or keeps it.
    pub fn take_from(&self, slot: usize) -> bool {
        self.turn[slot]
            .compare_exchange(TURN, 0, SeqCst, SeqCst)
            .is_ok()
    }

    /// The thread of this slot takes part from now on.
    pub fn join(&self, slot: usize) {
        self.members[slot / 64].fetch_or(1 << (slot % 64), SeqCst);
        if self.end_idling() {
            self.turn[slot].store(TURN, SeqCst);
        }
    }

    /// Did nobody have the turn until now? Then the caller gives it to somebody.
    fn end_idling(&self) -> bool {
        self.unclaimed
            .compare_exchange(1, 0, SeqCst, SeqCst)
            .is_ok()
    }

    /// Does the thread of this slot take part?
    pub fn takes_part(&self, slot: usize) -> bool {
        self.members[slot / 64].load(SeqCst) & 1 << (slot % 64) != 0
    }

    /// The member that comes after this slot, which may be itself.
    pub fn after(&self, slot: usize) -> Option<usize> {
        self.members_after(slot).next()
    }

    /// All members, beginning behind this slot, which comes last.
    fn members_after(&self, slot: usize) -> impl Iterator<Item = usize> + '_ {
        let (first, bit) = (slot / 64, slot % 64);
        let behind = (u64::MAX << bit) << 1;
        (0..=self.members.len()).flat_map(move |k| {
            let i = (first + k) % self.members.len();
            let mut w = self.members[i].load(SeqCst);
            if k == 0 {
                w &= behind;
            } else if k == self.members.len() {
                w &= !behind;
            }
            core::iter::from_fn(move || {
                let bit = (w != 0).then(|| w.trailing_zeros() as usize)?;
                w &= w - 1;
                Some(i * 64 + bit)
            })
        })
    }

    /// How many threads take part.
    pub fn count(&self) -> u32 {
        let ones = |w: &AtomicU64| w.load(SeqCst).count_ones();
        self.members.iter().map(ones).sum()
    }

    /// The thread of this slot takes part, and it is its turn.
    pub fn begin(&self, slot: usize) {
        self.members[slot / 64].fetch_or(1 << (slot % 64), SeqCst);
        self.turn[slot].store(TURN, SeqCst);
    }
}

impl OrderHead {
    /// The member that comes after this slot, which may be itself, without those who wait in vain; `None`: all of them do.
    pub fn next_able(&self, slot: usize) -> Option<usize> {
        self.total.members_after(slot).find(|i| self.is_able(*i))
    }

    /// May the thread of this slot have a use for the turn?
    fn is_able(&self, slot: usize) -> bool {
        self.parked(slot)
            .is_none_or(|p| What::of(p.key).is_looked_for())
    }

    /// The turn of this slot's thread, if it has it, is over: whose turn it is now, by whom the word [`turn`](TotalOrder::turn) may be waited for.
    pub fn pass_on(&self, slot: usize) -> Option<usize> {
        if !self.total.take(slot) {
            // Somebody else has passed it on.
            return None;
        }
        self.give_behind(slot)
    }

    /// Gives the turn to the member that comes after this slot, if there is any to one that may be able to use it.
    pub fn give_behind(&self, slot: usize) -> Option<usize> {
        let total = &self.total;
        let next = self
            .next_able(slot)
            .or_else(|| total.after(slot))
            .or_else(|| {
                total.unclaimed.store(1, SeqCst);
                // Somebody may have come meanwhile.
                let late = total.after(slot)?;
                total.end_idling().then_some(late)
            })?;
        total.turn[next].store(TURN, SeqCst);
        Some(next)
    }
}
