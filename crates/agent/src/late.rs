//! Signals that came while their thread was in the runtime, after it had looked for them the last time (`order`): the thread is asked to look
//! again, for it may compute for long before it comes back.

use crate::members::Members;
use crate::slices;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{slot_state, Slot};
use reprise_launch::SharedSession;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// A thread in a gate gets so much time to come to its end.
const PATIENCE: Duration = Duration::from_millis(1);

/// Has a thread this slot? Of one that nobody has, the ids may be others' by now.
pub fn is_used(slot: &Slot) -> bool {
    let unused = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
    !unused.contains(&slot.state.load(SeqCst))
}

/// What the agent knows of them.
#[derive(Default)]
pub struct Late {
    since: Option<Instant>,
}

impl Late {
    /// Is there anything to be done soon?
    pub fn waits(&self) -> bool {
        self.since.is_some()
    }

    /// Looks once.
    pub fn look(&mut self, shared: &SharedSession, members: &Members) {
        let s = shared.session();
        if s.slice_over.load(Relaxed) != 0 && s.slice_over.swap(0, SeqCst) != 0 {
            self.since.get_or_insert_with(Instant::now);
        }
        if self.since.is_none_or(|since| since.elapsed() < PATIENCE) {
            return;
        }
        self.since = None;
        let used = (s.slots_used.load(Relaxed) as usize).min(MAX_SLOTS);
        for slot in (0..used).map(|i| shared.slot(i)) {
            if !is_used(slot) || slot.signal_pending.load(Relaxed) == 0 {
                continue;
            }
            self.since = Some(Instant::now());
            let tid = slot.kernel_tid.load(Relaxed);
            tracing::debug!(tid, "a signal came too late");
            slices::interrupt(shared, slot, members);
        }
    }
}
