//! The threads of a program under `det`, which are processes to the kernel: whoever started the program ends those that outlive it.

use crate::SharedSession;
use reprise_abi::engine::can;
use reprise_abi::layout::MAX_SLOTS;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use std::sync::atomic::Ordering::SeqCst;

/// Ends all threads of the process that the kernel knows as `program`, but for the first one, which is that process. `recorders`: processes of the caller's own
/// that have the session's memory mapped, too; the program can write their ids where its threads' are.
pub fn end_all(shared: &SharedSession, program: u32, recorders: &[u32]) {
    let s = shared.session();
    if !s.engine().can(can::SEPARATE_MEMORY) {
        return;
    }
    let used = (s.slots_used.load(SeqCst) as usize).min(MAX_SLOTS);
    for slot in (0..used).map(|i| shared.slot(i)) {
        let tid = slot.kernel_tid.load(SeqCst);
        let process = slot.process.load(SeqCst) as usize % s.processes.len();
        // Whatever the slot's state says: whoever ended the program may have freed it, while its thread computes on.
        let of_it = s.processes[process].kernel_pid.load(SeqCst) == program;
        // The caller has the session's memory mapped as well.
        let is_its =
            tid > 0 && ![program, std::process::id()].contains(&tid) && !recorders.contains(&tid);
        if of_it && is_its {
            end(shared, tid as i32);
        }
    }
}

/// Ends a process of the session. It is nobody's child here: its id may be another's by now, who does not have the session's memory.
fn end(shared: &SharedSession, pid: i32) {
    let fd = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let Some(Ok(fd)) = fd else { return };
    if shared.is_mapped_by(pid as u32, pid as u32).unwrap_or(false) {
        // Whoever was looked at gets it, or nobody.
        let _ = pidfd_send_signal(fd, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    /// A process that has the session's memory mapped, and does nothing.
    fn copy() -> i32 {
        // SAFETY: the child does nothing but wait.
        match unsafe { libc::fork() } {
            0 => loop {
                rustix::event::pause();
            },
            pid => pid,
        }
    }

    #[test]
    fn threads_are_ended_and_who_records_is_not() {
        const PROGRAM: u32 = 0x3fff_fffe;
        let mut shared = SharedSession::create().expect("a session");
        let det = reprise_abi::engine::ENGINES.iter();
        let det = det.copied().find(|e| e.can(can::SEPARATE_MEMORY));
        let s = shared.session_mut();
        s.engine = det.expect("an engine whose threads are processes").number;
        s.processes[0].kernel_pid.store(PROGRAM, Relaxed);
        s.slots_used.store(3, Relaxed);
        let [thread, agent] = [copy(), copy()];
        let ids = [std::process::id(), thread as u32, agent as u32];
        for (i, id) in ids.into_iter().enumerate() {
            shared.slot(i).kernel_tid.store(id, Relaxed);
        }
        end_all(&shared, PROGRAM, &[agent as u32]);
        let ended = process::open(thread).expect("a child of ours");
        assert!(process::has_ended(&ended, Duration::from_secs(100)));
        assert_eq!(process::reap_ended(agent).expect("a child of ours"), None);
        process::send(agent, Signal::KILL).expect("a child of ours");
        for child in [thread, agent] {
            process::reap(child).expect("a child of ours");
        }
    }
}
