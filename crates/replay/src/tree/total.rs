//! The driver's part in a replay in total order, where one thread runs at a time.

use super::{wake, Tree};
use crate::feed::is_done;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{process_state, Process, FLAG_RACES, MAX_PROCESSES};
use std::sync::atomic::Ordering::*;

/// Looks at a thread that has done all that was recorded, in a replay that looks for races: for so long it must have reached no access to memory.
/// Those that do give way by themselves, always at the same access.
const PATIENCE: u32 = 50;

/// The thread that runs, when it has done all that was recorded.
#[derive(Default)]
pub(super) struct Alone {
    /// Its slot, and how many accesses there had been.
    seen: Option<(usize, u64)>,
    /// How often it was seen with as many.
    times: u32,
}

impl Tree {
    /// Tells the threads of a replay in total order that the driver has nothing to do: what they wait for, they must do themselves. While a process
    /// ends they may wait for the kernel, which takes its time on a busy machine.
    pub(super) fn nothing_to_do(&self) {
        let s = self.shared.session();
        let used = s.processes_used.load(SeqCst) as usize;
        let ends = |p: &Process| p.state.load(SeqCst) == process_state::ENDING;
        if s.processes[..used.min(MAX_PROCESSES)].iter().any(ends) {
            return;
        }
        if let Some(head) = self.shared.order() {
            head.total.idle.fetch_add(1, SeqCst);
        }
    }

    /// Who has done all that was recorded, and computes on until its process is killed, needs no turn. Nor does who is gone with its
    /// process.
    pub(super) fn relieve(&mut self) {
        let shared = &self.shared;
        let Some(head) = shared.order() else {
            return;
        };
        let used = shared.session().slots_used.load(SeqCst) as usize;
        let total = &head.total;
        let has_turn = (0..used.min(MAX_SLOTS)).find(|i| total.turn[*i].load(SeqCst) != 0);
        let done = has_turn.filter(|i| !total.takes_part(*i) || is_done(shared, *i));
        if shared.session().flags & FLAG_RACES != 0 {
            let now = done.map(|slot| (slot, shared.races().accesses.load(SeqCst)));
            if now.is_none() || now != self.alone.seen {
                self.alone = Alone {
                    seen: now,
                    times: 0,
                };
                return;
            }
            self.alone.times += 1;
            if self.alone.times < PATIENCE {
                return;
            }
        }
        // Who has the turn alone can make another thread on that slot: now nobody has it.
        if let Some(slot) = done.filter(|i| total.take_from(*i)) {
            total.leave(slot);
            // A process of which nothing is known goes.
            wake(&total.turn[slot]);
            if let Some(next) = head.give_behind(slot) {
                wake(&total.turn[next]);
            }
        }
    }

    /// The thread of a slot is gone with its process. If it had the turn, [`Tree::relieve`] passes it on.
    pub(super) fn leave_order(&self, slot: usize) {
        if let Some(head) = self.shared.order() {
            head.total.leave(slot);
        }
    }
}
