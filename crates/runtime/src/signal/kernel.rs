//! Signals and the kernel: which of them it calls the runtime for, what it blocks, what is given back to it, and how a process ends by one.

use super::frame::{SigContext, Ucontext};
use crate::machine::asm::*;
use crate::machine::sys;
use crate::thread::signals::*;
use crate::thread::{in_force, Block, Current};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::layout::{IMAGE_BASE, RESERVATION};
use reprise_abi::syscalls::nr;

/// si_code of a fault whose address the kernel doesn't say (general protection).
pub const SI_KERNEL: i32 = 128;
/// si_code of what tkill(2) and tgkill(2) send.
pub const SI_TKILL: i32 = -6;
/// TF.
pub const TRAP_FLAG: u64 = 0x100;
/// Our handlers block everything but what the running code itself can raise.
pub const HANDLER_MASK: u64 = !SYNCHRONOUS;

extern "C" {
    /// The handler ([`crate::entry`]).
    fn rt_on_signal(signal: u32, info: *const Siginfo, uc: *mut Ucontext);
}

/// Signals that come to the handler whatever the program's mask is: the engine wants them.
pub static WANTED: AtomicU64 = AtomicU64::new(0);

/// Flags of a program's action by which the kernel decides whether a signal is sent, and what becomes of zombies.
const OF_CHILDREN: u64 = SA_NOCLDSTOP | SA_NOCLDWAIT;

/// Tells the kernel to call us for `signal`.
///
/// Of the program's `flags` the kernel gets those that say which signals it sends at all.
pub fn install(signal: u32, flags: u64) {
    let mut flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK | flags & OF_CHILDREN;
    if bit(signal) & SYNCHRONOUS != 0 {
        flags |= SA_NODEFER;
    }
    let a = Action {
        handler: rt_on_signal as *const () as u64,
        flags,
        restorer: rt_restorer as *const () as u64,
        mask: HANDLER_MASK,
    };
    sys::rt_sigaction(signal as u64, &a as *const Action as u64, 0, 8);
}

/// Gives `signal` back to the kernel, with `DEFAULT` or `IGNORE`.
pub fn uninstall(signal: u32, handler: u64, flags: u64) {
    let a = Action {
        handler,
        flags: SA_RESTORER | flags & OF_CHILDREN,
        restorer: rt_restorer as *const () as u64,
        mask: 0,
    };
    sys::rt_sigaction(signal as u64, &a as *const Action as u64, 0, 8);
}

/// The handlers that are there from the first instruction on.
pub fn install_all() {
    for s in [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGCUT] {
        install(s, 0);
    }
}

/// The mask that the kernel gets when the program wants `mask`.
pub fn kernel_mask(t: &Block, mask: u64) -> u64 {
    kernel_mask_with(&t.pending, mask)
}

fn kernel_mask_with(pending: &Pending, mask: u64) -> u64 {
    (mask & !WANTED.load(Relaxed) | pending.set()) & !(SYNCHRONOUS | bit(SIGCUT))
}

/// Makes the kernel's mask agree with the program's.
pub fn sync_mask(t: &Block) {
    sync_own_mask(t.as_current());
}

/// As [`sync_mask`], for who wasn't handed the thread's block.
pub fn sync_own_mask(t: Current) {
    // What waited behind the old mask may be deliverable now.
    if t.pending().first(t.mask()).is_some() {
        t.slot().signal_pending.store(1, Release);
    }
    let m = kernel_mask_with(t.pending(), t.mask());
    sys::rt_sigprocmask(2, &m as *const u64 as u64, 0, 8);
}

/// What came for a handler, waits in the runtime and has become blocked meanwhile waits in the kernel from now on, where sigwait(3) and
/// signalfd(2) of any thread find it. Those by which the kernel reports faults can't: the runtime needs them itself.
pub fn give_back_blocked(t: &mut Block) {
    let keep = !t.mask | SYNCHRONOUS;
    if t.pending.set() & !keep == 0 {
        return;
    }
    block_all();
    while let Some(info) = t.pending.take(keep) {
        if !give_back(&info) {
            // The kernel has no room for it (RLIMIT_SIGPENDING).
            t.pending.push(info);
            return;
        }
    }
}

/// The calling thread ends, with all signals blocked: what was sent to its process, and came to this thread first, is for the others.
pub fn give_back_at_exit(t: &mut Block) {
    while let Some(info) = t.pending.take(SYNCHRONOUS) {
        if info.code() != SI_TKILL {
            give_back(&info);
        }
    }
}

/// Sends a signal once more, to the calling thread or to its process, as it was sent.
///
/// To the process by the id of this thread: rt_sigqueueinfo(2) goes to the process of the thread that it names, and only who names
/// itself, by the id that the kernel knows of the calling thread, may pass on what kill(2) or a timer has sent (kernel/signal.c,
/// `do_rt_sigqueueinfo`).
fn give_back(info: &Siginfo) -> bool {
    let (signal, at) = (info.signal() as u64, info as *const Siginfo as u64);
    let tid = sys::gettid() as u64;
    let sent = if info.code() == SI_TKILL {
        let pid = sys::getpid() as u64;
        sys::call_undisturbed(nr::RT_TGSIGQUEUEINFO, &[pid, tid, signal, at])
    } else {
        sys::call_undisturbed(nr::RT_SIGQUEUEINFO, &[tid, signal, at])
    };
    !sys::is_error(sent)
}

/// The first signal that waits and that the program doesn't block. Without one the slot's `signal_pending` says so, too.
pub fn first_waiting(t: &mut Block) -> Option<Siginfo> {
    // The handler may come in between: it sets the word again.
    t.slot().signal_pending.store(0, SeqCst);
    let first = t.pending.first(t.mask);
    if first.is_some() {
        t.slot().signal_pending.store(1, SeqCst);
    }
    first
}

/// Blocks all that can be blocked; for stretches of the runtime that must not be interrupted.
pub fn block_all() {
    let m = quiet_mask();
    sys::rt_sigprocmask(2, &m as *const u64 as u64, 0, 8);
}

/// Blocks all that can be blocked, whoever sends it: the process ends.
pub fn block_everything() {
    let m = HANDLER_MASK;
    sys::rt_sigprocmask(2, &m as *const u64 as u64, 0, 8);
}

/// All that can be blocked, but in replay what the driver sends.
fn quiet_mask() -> u64 {
    match in_force::takes_from_trace() {
        false => HANDLER_MASK,
        true => HANDLER_MASK & !bit(SIGCUT),
    }
}

/// Lets the kernel frame return into `frame`, with the program's mask and fresh vector registers.
pub fn enter_from_kernel(t: &mut Block, uc: &mut Ucontext, frame: &crate::thread::Frame) {
    uc.mc.set_frame(frame);
    uc.mask = match in_force::takes_from_trace() {
        false => kernel_mask(t, t.mask),
        true => quiet_mask(),
    };
    // SAFETY: the frame is the kernel's own, on our signal stack.
    unsafe { super::frame::reset_saved_fp(uc.mc.fpstate) };
}

/// The next occurrence of `signal` ends the process the way the kernel does it: same status, same core file.
pub fn die_of(signal: u32) {
    uninstall(signal, DEFAULT, 0);
    let m = HANDLER_MASK & !bit(signal);
    sys::rt_sigprocmask(2, &m as *const u64 as u64, 0, 8);
    // The faulting instruction runs again after the return and faults again, now for good. A trap is over already.
    if signal == SIGTRAP {
        send_self(signal);
    }
}

/// Sends a signal to the calling thread.
pub fn send_self(signal: u32) {
    let pid = sys::getpid() as u64;
    let tid = sys::gettid() as u64;
    sys::call_undisturbed(nr::TGKILL, &[pid, tid, signal as u64]);
}

/// Lets the kernel do by default what `signal` means, and lets it in.
pub fn default_action(signal: u32) {
    if signal != SIGKILL {
        uninstall(signal, DEFAULT, 0);
        let m = HANDLER_MASK & !bit(signal);
        sys::rt_sigprocmask(2, &m as *const u64 as u64, 0, 8);
    }
}

/// Ends the process by this signal, here and now.
pub fn die_now(signal: u32) -> ! {
    default_action(signal);
    loop {
        send_self(signal);
    }
}

/// Is the thread about to make a call that waits, or has it just come back from there?
pub fn is_at_call(c: &SigContext) -> bool {
    const SYSCALL: u64 = 2;
    let first = rt_blocking_check as *const () as u64;
    let behind = rt_blocking_syscall as *const () as u64 + SYSCALL;
    (first..=behind).contains(&c.rip)
}

/// A call that waits, and is about to be made, is not made.
pub fn divert(c: &mut SigContext) {
    let (first, last) = (
        rt_blocking_check as *const () as u64,
        rt_blocking_syscall as *const () as u64,
    );
    if (first..=last).contains(&c.rip) {
        c.rip = rt_blocking_abort as *const () as u64;
    }
}

const _: () = assert!(IMAGE_BASE == RESERVATION);
