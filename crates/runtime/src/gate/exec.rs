//! execve(2) while recording: the agent watches the calling thread for the moment of the exec and puts the runtime into what
//! the process becomes (FACTS, "Exec inside the tree").

use crate::gate::processor;
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::schedule;
use crate::thread::signals::{bit, ACTIONS, IGNORE, SIGNALS};
use crate::thread::{process, request};
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::session::request as requests;

const EPERM: i64 = -1;

/// Makes the call. Who succeeds does not come back; the result is an errno.
pub fn attempt(t: &mut Block, c: &Call) -> i64 {
    take_head(t.slot);
    if !process::is_live() {
        // Another thread has said how the process ends.
        give_head();
        schedule::wait_for_end();
    }
    kernel::block_all();
    let s = session();
    let mut ignored = 0;
    for signal in 1..=SIGNALS as u32 {
        if ACTIONS.get(signal).handler == IGNORE {
            ignored |= bit(signal);
        }
    }
    if crate::thread::in_force::orders_synchronisation() {
        crate::log::output::table::hand_over();
    }
    processor::before_exec(t);
    s.initial_mask.store(t.mask, Relaxed);
    s.initial_ignored.store(ignored, Relaxed);
    let r = watched(t, c);
    give_head();
    kernel::sync_mask(t);
    r
}

fn watched(t: &mut Block, c: &Call) -> i64 {
    const PR_SET_PTRACER: u64 = 0x5961_6d61;
    const PR_SET_PTRACER_ANY: u64 = u64::MAX;
    // The agent can't be named in another pid namespace.
    let agent = if crate::thread::namespace::is_inside() {
        PR_SET_PTRACER_ANY
    } else {
        session().agent_pid.load(Relaxed) as u64
    };
    let me = t.slot();
    // Where only ancestors may trace (Yama), the agent needs leave.
    sys::prctl(PR_SET_PTRACER, agent, 0, 0, 0);
    let who = [
        me.kernel_tid.load(Relaxed) as u64,
        process::kernel_pid() as u64,
        t.slot as u64,
    ];
    if !matches!(request::ask(requests::EXEC, &who), Some((0, _))) {
        crate::thread::message::say(crate::thread::message::EXEC_REFUSED);
        return EPERM;
    }
    // What waits in the runtime goes on waiting in the kernel, for whatever the process becomes.
    let pid = sys::getpid() as u64;
    while let Some(info) = t.pending.take(0) {
        let at = &info as *const _ as u64;
        let signal = info.signal() as u64;
        sys::rt_tgsigqueueinfo(pid, t.kernel_tid as u64, signal, at);
    }
    process::leaves_memory(true);
    // SAFETY: the program's own call.
    let r = unsafe { sys::syscall6(c.nr, c.args) };
    process::leaves_memory(false);
    // The agent waits for this trap, and lets go.
    // SAFETY: a tracer swallows the signal.
    unsafe { core::arch::asm!("int3", options(nostack)) };
    r
}

/// The start parameters of a program are in the session's head: one exec at a time.
pub fn take_head(slot: u32) {
    let word = &session().starting;
    while let Err(other) = word.compare_exchange(0, slot + 1, Acquire, Relaxed) {
        let t = Timespec::from_ns(sys::monotonic().ns() + 1_000_000);
        sys::futex_wait(word.as_ptr(), other, Some(&t));
        crate::thread::attended::or_end();
    }
}

/// Does what says that the process ends while no other thread of it is in an exec: one that the kernel has begun ends the calling thread, or
/// fails, before anything is said, and none begins afterwards ([`attempt`]).
pub fn while_none_is_under_way<R>(t: &Block, says: impl FnOnce() -> R) -> R {
    if process::entry().live_threads.load(SeqCst) <= 1 {
        return says();
    }
    take_head(t.slot);
    let said = says();
    give_head();
    said
}

/// The next exec may use the session's head.
pub fn give_head() {
    let word = &session().starting;
    word.store(0, Release);
    sys::futex_wake(word.as_ptr(), 1);
}

/// Most bytes of a command line that are logged.
const MAX_COMMAND: u64 = 4096;

/// Where the arguments of the program that begins now lie: first byte, and how many bytes.
pub fn command_line() -> (u64, usize) {
    let sp = session().initial_sp;
    let word = |i: u64| crate::machine::guard::read::<u64>(sp + 8 * i).unwrap_or(0);
    let (argc, first) = (word(0), word(1));
    // The environment's strings follow the arguments'.
    let end = match word(argc + 2) {
        0 => word(argc) + 1,
        env => env,
    };
    if argc == 0 || end < first {
        return (0, 0);
    }
    (first, (end - first).min(MAX_COMMAND) as usize)
}
