//! Processes in a pid namespace of their own (pid_namespaces(7)): they know themselves and each other by other numbers than the
//! agent does.
//!
//! What the session says of a process and its threads ([`Slot::kernel_tid`](reprise_abi::session::Slot::kernel_tid) and its kin) is
//! for the agent, so it is the agent's numbers. A process whose parent is outside is told its by the kernel, by way of the parent;
//! further inside only the agent can find them.

use crate::sys;
use crate::thread::{session, slot, Block};
use crate::{process, request};
use core::sync::atomic::Ordering::*;
use reprise_abi::session::request as requests;
use reprise_abi::syscalls::nr;

const ESRCH: i64 = -3;

/// Is the calling process in another pid namespace than the agent?
pub fn is_inside() -> bool {
    process::entry().inside.load(Relaxed) != 0
}

/// A process is about to be made by the calling one: it is where that is, or further inside.
pub fn pass_on(child: u32) {
    let inside = process::entry().inside.load(Relaxed);
    process::entry_of(child).inside.store(inside, Relaxed);
}

/// Is the agent, or the driver, still there? From inside nobody can tell but the launcher, who then says so.
pub fn agent_lives() -> bool {
    let s = session();
    if is_inside() {
        return s.recording_lost.load(Relaxed) == 0;
    }
    sys::call(nr::KILL, &[s.agent_pid.load(Relaxed) as u64, 0]) != ESRCH
}

/// Is a signal with this `si_pid` from the agent? Whoever is outside is 0 to those inside.
pub fn is_agent(pid: u32) -> bool {
    let s = session();
    pid == s.agent_pid.load(Relaxed)
        || pid == s.former_agent.load(Relaxed) && pid != 0
        || pid == 0 && is_inside()
}

/// A new thread, or the first one of a new process, sees to it that the session has the agent's numbers for it.
pub fn learn(t: &Block, new_process: bool) {
    let me = slot(t.slot);
    let entry = process::entry();
    let told = me.kernel_tid.load(Relaxed);
    if entry.inside.load(Relaxed) != 0 {
        let own = sys::call(nr::GETPID, &[]) as u64;
        let asked = request::ask(requests::FIND, &[own, t.kernel_tid as u64]);
        if let Some((0, [pid, tid, ..])) = asked {
            me.kernel_tid.store(tid as u32, Relaxed);
            if new_process {
                me.kernel_pid.store(pid as u32, Relaxed);
                entry.kernel_pid.store(pid as u32, Release);
            }
        }
        return;
    }
    if new_process {
        // The parent's number is the agent's; where it isn't the process's own, a namespace begins here.
        let inside = told != t.kernel_tid;
        entry.inside.store(inside as u32, Relaxed);
        me.kernel_pid.store(told, Relaxed);
        entry.kernel_pid.store(told, Release);
    }
}
