//! How far a replay in total order goes that a debugger drives.
//!
//! Under `order` the threads' events are in rings of their own, and which thread needs the next one is nobody's to know beforehand. So the
//! runtime counts what all of them use up together, events and entries, and whoever wants more than the debugger has given leave for waits.
//! The number is a name of the place: one thread runs at a time, and every such replay is the same.
//!
//! The words are those of the session's own ring, which has no other use under this engine.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::ring::RingControl;
use crate::session::Session;

/// [`Pace::over`]: it goes on.
const GOES_ON: u64 = 0;
/// [`Pace::over`]: the process is about to say how it ends, and all its other threads have done what was recorded.
const OVER: u64 = 1;

/// See above.
#[derive(Clone, Copy)]
pub struct Pace<'a> {
    /// Events and entries that all threads have used up.
    pub done: &'a AtomicU64,
    /// So many may be used up.
    pub limit: &'a AtomicU64,
    /// The slot, plus 1, of a thread that is to stop by itself, 0: none, ...
    pub slot: &'a AtomicU64,
    /// ... and how many of its own it may use up.
    pub own_limit: &'a AtomicU64,
    /// Futex: 1 while a thread waits for leave.
    pub held: &'a AtomicU32,
    over: &'a AtomicU64,
}

impl Session {
    /// The pace of a replay in total order.
    pub fn pace(&self) -> Pace<'_> {
        let RingControl {
            events,
            head,
            position,
            tail,
            consumer_asleep,
            open_end,
            ..
        } = &self.ring;
        Pace {
            done: events,
            limit: head,
            slot: position,
            own_limit: tail,
            held: consumer_asleep,
            over: open_end,
        }
    }
}

impl Pace<'_> {
    /// Something was used up.
    pub fn one_more(&self) {
        let n = self.done.load(SeqCst);
        self.done.store(n + 1, SeqCst);
    }

    /// Has the thread of this slot to wait, which has used up `own`?
    pub fn holds(&self, slot: u32, own: u64) -> bool {
        self.done.load(SeqCst) >= self.limit.load(SeqCst)
            || self.slot.load(SeqCst) == u64::from(slot) + 1 && own >= self.own_limit.load(SeqCst)
            || self.is_over()
    }

    /// Nothing comes any more but the end of the process.
    pub fn end(&self) {
        self.over.store(OVER, SeqCst);
    }

    /// Is that so?
    pub fn is_over(&self) -> bool {
        self.over.load(SeqCst) != GOES_ON
    }
}
