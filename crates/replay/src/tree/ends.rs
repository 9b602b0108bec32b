//! The ends of processes under `order`. One that said how it ends does so by itself. One that was killed is killed here, when its threads have
//! done all that was recorded of them; and where the trace ends, so do all.

use super::{tell_time, Tree};
use crate::children;
use crate::feed::{is_done, Distribution};
use libc::pid_t;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{process_state, slot_state, MAX_PROCESSES};
use rustix::process::Signal;
use std::sync::atomic::Ordering::*;

/// The runtime's message that the trace has no more events.
pub const TRACE_ENDED: u32 = 4;

impl Tree {
    /// `order`: ends processes that were killed, when they have done all that was recorded of them, and in the end all that are left.
    pub(crate) fn let_go(&mut self, distribution: &Distribution) {
        let killed: Vec<(usize, i64)> = distribution.killed(&self.shared).collect();
        let mut still_at_work = false;
        for (slot, status) in killed {
            let n = self.shared.slot(slot).process.load(SeqCst) as usize;
            if n >= MAX_PROCESSES || !self.lives(n) {
                continue;
            }
            if self.is_through(n) {
                let killed = if status > 0 {
                    status as i32
                } else {
                    libc::SIGKILL
                };
                self.end_process(n, killed);
            } else {
                still_at_work = true;
            }
        }
        if still_at_work {
            // It may be through by now: the next look ends it, as it ended.
            return;
        }
        let left: Vec<usize> = (0..MAX_PROCESSES).filter(|n| self.lives(*n)).collect();
        if left.is_empty() || !distribution.is_closed() || !left.iter().all(|n| self.is_through(*n))
        {
            return;
        }
        self.end_with_the_trace(distribution);
    }

    /// `order`: nothing more can be done of what was recorded.
    pub(super) fn end_with_the_trace(&mut self, distribution: &Distribution) {
        let s = self.shared.session();
        if !distribution.whole && !self.failed {
            s.message.store(TRACE_ENDED, SeqCst);
        }
        let left: Vec<usize> = (0..MAX_PROCESSES).filter(|n| self.lives(*n)).collect();
        for n in left {
            self.end_process(n, libc::W_EXITCODE(125, 0));
        }
    }

    /// `order`: tells all threads that look for the place of a cut that time passes.
    pub(super) fn ping_seekers(&self) {
        let used = self.shared.session().slots_used.load(SeqCst) as usize;
        for slot in (0..used.min(MAX_SLOTS)).map(|i| self.shared.slot(i)) {
            let gone = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
            let seeks =
                slot.cut_waiting.load(Relaxed) != 0 && !gone.contains(&slot.state.load(Relaxed));
            if seeks {
                tell_time(&self.shared, slot);
            }
        }
    }

    /// Slots of the threads of process `n`.
    fn slots_of(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        let used = self.shared.session().slots_used.load(SeqCst) as usize;
        (0..used.min(MAX_SLOTS)).filter(move |i| {
            let slot = self.shared.slot(*i);
            let unused = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
            slot.process.load(SeqCst) as usize == n && !unused.contains(&slot.state.load(SeqCst))
        })
    }

    fn lives(&self, n: usize) -> bool {
        let state = &self.shared.session().processes[n].state;
        state.load(SeqCst) == process_state::LIVE
    }

    /// Does process `n` live, and have all its threads done what was recorded of them?
    fn is_through(&self, n: usize) -> bool {
        let p = &self.shared.session().processes[n];
        self.lives(n)
            && p.kernel_pid.load(SeqCst) != 0
            && self.slots_of(n).all(|i| is_done(&self.shared, i))
    }

    /// Ends process `n` as the recorded one ended.
    fn end_process(&mut self, n: usize, status: i32) {
        let s = self.shared.session();
        let p = &s.processes[n];
        let pid = p.kernel_pid.load(SeqCst) as pid_t;
        p.state.store(process_state::ENDING, SeqCst);
        for i in self.slots_of(n) {
            self.shared.slot(i).state.store(slot_state::LEFT, SeqCst);
        }
        if self.roots.contains(&pid) {
            s.root_status.store(status as u32 + 1, SeqCst);
        }
        let wanted = self.ended.is_none() && self.is_wanted(pid, Some(n));
        if let Some(pid) = children::replayed(&self.shared, pid as u32) {
            children::signal(pid, Signal::KILL);
        }
        if wanted {
            // Nobody is interested in the others.
            self.ended = Some(status);
            self.failed = true;
            self.kill_all();
        }
    }
}
