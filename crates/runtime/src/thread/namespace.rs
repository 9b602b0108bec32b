//! Processes in a pid namespace of their own (pid_namespaces(7)): they know themselves and each other by other numbers than the
//! agent does.
//!
//! A number says nothing without the namespace in which it counts, and namespaces lie inside one another to any depth. What the session says of
//! a process and its threads ([`Slot::kernel_tid`](reprise_abi::session::Slot::kernel_tid) and its kin) is for the agent, so it is the
//! agent's numbers. A process whose parent is in the agent's namespace is told its by the kernel, by way of the parent; for one
//! further inside the agent finds it by its parent and the number that this was told.

use crate::machine::sys;
use crate::thread::{in_force, process, request};
use crate::thread::{session, slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::session::request as requests;
use reprise_abi::session::{process_state, Process};

const ESRCH: i64 = -3;

/// Is the calling process in another pid namespace than the agent?
pub fn is_inside() -> bool {
    process::entry().inside.load(Relaxed) != 0
}

/// A process is about to be made by the calling one: it is where that is, or further inside.
pub fn pass_on(child: u32) {
    let inside = process::entry().inside.load(Relaxed);
    let child = process::entry_of(child);
    child.inside.store(inside, Relaxed);
    child.told_inside.store(inside, Relaxed);
}

/// Is the agent, or the driver, still there? From inside nobody can tell but the launcher, who then says so.
pub fn agent_lives() -> bool {
    let s = session();
    // A dead agent that nobody reaps has its number still.
    if crate::thread::attended::by_nobody() {
        return false;
    }
    if is_inside() {
        return s.recording_lost.load(Relaxed) == 0;
    }
    sys::kill(s.agent_pid.load(Relaxed) as u64, 0) != ESRCH
}

/// Is a signal with this `si_pid` from the agent? Whoever is outside is 0 to those inside, whose own numbers may be like the agent's.
pub fn is_agent(pid: u32) -> bool {
    if is_inside() {
        return pid == 0;
    }
    let s = session();
    pid == s.agent_pid.load(Relaxed) || pid == s.former_agent.load(Relaxed) && pid != 0
}

/// A new thread, or the first one of a new process, sees to it that the session has the agent's numbers for it.
pub fn learn(t: &Block, new_process: bool) {
    let me = slot(t.slot);
    let entry = process::entry();
    let told = me.kernel_tid.load(Relaxed);
    let mut inside = entry.inside.load(Relaxed) != 0;
    if new_process {
        entry.told.store(told, Relaxed);
        // Where the parent's number is the agent's, a namespace begins here if it isn't the process's own, too, or if the parent can't be seen:
        // in a young namespace beside a young machine, numbers may be alike.
        inside |= told != t.kernel_tid || is_parent_outside();
    }
    if !inside {
        if new_process {
            me.kernel_pid.store(told, Relaxed);
            entry.kernel_pid.store(told, Release);
        }
        return;
    }
    // From here on the agent's number means nothing to this process, and must not be asked for.
    entry.inside.fetch_max(1, Relaxed);
    let own = sys::getpid() as u64;
    let who = [own, t.kernel_tid as u64, process::number().into()];
    if let Some((0, [pid, tid, inside, _])) = request::ask(requests::FIND, &who) {
        me.kernel_tid.store(tid as u32, Relaxed);
        if new_process {
            me.kernel_pid.store(pid as u32, Relaxed);
            entry.inside.store(inside as u32, Relaxed);
            entry.kernel_pid.store(pid as u32, Release);
        }
    }
}

/// Is the parent in no namespace that this process can look into?
fn is_parent_outside() -> bool {
    !in_force::takes_from_trace() && sys::getppid() == 0
}

/// Is `p` the process that the calling one knows as `pid`, or may it be?
///
/// Of its own children each process knows the numbers. Children of others, whose makers have ended, are told of by their numbers in their makers'
/// namespaces as far as that is known.
pub fn is_known_as(p: &Process, number: u32, pid: u32) -> bool {
    let told = match p.told.load(Relaxed) {
        0 => reprise_abi::schedule::Lists(session()).pid_of(number),
        told => told,
    };
    if told != pid {
        return false;
    }
    let level = process::entry().inside.load(Relaxed);
    if level != p.told_inside.load(Relaxed) {
        return false;
    }
    let maker = p.maker.load(Relaxed);
    let lives = |q: &Process| {
        q.kernel_pid.load(Relaxed) == maker && q.state.load(Relaxed) == process_state::LIVE
    };
    level == 0 || maker == process::kernel_pid() || !session().processes.iter().any(lives)
}
