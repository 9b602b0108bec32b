//! The threads of a program under `det`, which are processes to the kernel: whoever started the program ends those that outlive it.

use crate::SharedSession;
use reprise_abi::engine::can;
use reprise_abi::layout::MAX_SLOTS;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use std::sync::atomic::Ordering::SeqCst;

/// Ends all threads of the process that the kernel knows as `program`, but for the first one, which is that process.
pub fn end_all(shared: &SharedSession, program: u32) {
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
        let is_its = tid > 0 && ![program, std::process::id()].contains(&tid);
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
