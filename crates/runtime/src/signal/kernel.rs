//! The handlers that the kernel knows. They redirect dispatched calls to the gate, emulate non-deterministic
//! instructions, route faults, and queue asynchronous signals for the next gate.

use super::frame::{FpState, SigContext, Ucontext};
use super::segment;
use super::state::*;
use crate::asm::*;
use crate::det::touch;
use crate::engine::{with_engine, Engine};
use crate::instruction::{self, Stood};
use crate::sys;
use crate::thread::{current, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::layout::{IMAGE_BASE, RESERVATION, RESERVATION_END};
use reprise_abi::syscalls::nr;

/// si_code of a dispatched call.
const SYS_USER_DISPATCH: i32 = 2;
/// x86-64 as an audit architecture.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// si_code of a fault whose address the kernel doesn't say (general protection).
pub const SI_KERNEL: i32 = 128;
/// si_code of a trap after a single step.
const TRAP_TRACE: i32 = 2;
/// si_code of what tkill(2) and tgkill(2) send.
const SI_TKILL: i32 = -6;
/// TF.
pub const TRAP_FLAG: u64 = 0x100;
/// Our handlers block everything but what the running code itself can raise.
const HANDLER_MASK: u64 = !SYNCHRONOUS;

/// Flags of a program's action by which the kernel decides whether a signal is sent, and what becomes of zombies.
const OF_CHILDREN: u64 = SA_NOCLDSTOP | SA_NOCLDWAIT;

/// Is this address in the runtime, or in code of it that was copied elsewhere?
pub fn in_runtime(pc: u64) -> bool {
    (RESERVATION..RESERVATION_END).contains(&pc) || crate::hook::fast::is_inside(pc)
}

/// Tells the kernel to call us for `signal`.
///
/// Of the program's `flags` the kernel gets those that say which signals it sends at all.
pub fn install(signal: u32, flags: u64) {
    let mut flags = SA_SIGINFO | SA_RESTORER | SA_ONSTACK | flags & OF_CHILDREN;
    if bit(signal) & SYNCHRONOUS != 0 {
        flags |= SA_NODEFER;
    }
    let a = Action {
        handler: on_signal as *const () as u64,
        flags,
        restorer: rt_restorer as *const () as u64,
        mask: HANDLER_MASK,
    };
    sys::call(
        nr::RT_SIGACTION,
        &[signal as u64, &a as *const Action as u64, 0, 8],
    );
}

/// Gives `signal` back to the kernel, with `DEFAULT` or `IGNORE`.
pub fn uninstall(signal: u32, handler: u64, flags: u64) {
    let a = Action {
        handler,
        flags: SA_RESTORER | flags & OF_CHILDREN,
        restorer: rt_restorer as *const () as u64,
        mask: 0,
    };
    sys::call(
        nr::RT_SIGACTION,
        &[signal as u64, &a as *const Action as u64, 0, 8],
    );
}

/// The handlers that are there from the first instruction on.
pub fn install_all() {
    for s in [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGCUT] {
        install(s, 0);
    }
}

/// The mask that the kernel gets when the program wants `mask`.
pub fn kernel_mask(t: &Block, mask: u64) -> u64 {
    (mask & !crate::det::outside::wanted() | t.pending.set()) & !(SYNCHRONOUS | bit(SIGCUT))
}

/// Makes the kernel's mask agree with the program's.
pub fn sync_mask(t: &Block) {
    // What waited behind the old mask may be deliverable now.
    if t.pending.first(t.mask).is_some() {
        t.slot().signal_pending.store(1, Release);
    }
    let m = kernel_mask(t, t.mask);
    sys::call(nr::RT_SIGPROCMASK, &[2, &m as *const u64 as u64, 0, 8]);
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
    let tid = sys::call(nr::GETTID, &[]) as u64;
    let sent = if info.code() == SI_TKILL {
        let pid = sys::call(nr::GETPID, &[]) as u64;
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
    sys::call(nr::RT_SIGPROCMASK, &[2, &m as *const u64 as u64, 0, 8]);
}

/// Blocks all that can be blocked, whoever sends it: the process ends.
pub fn block_everything() {
    let m = HANDLER_MASK;
    sys::call(nr::RT_SIGPROCMASK, &[2, &m as *const u64 as u64, 0, 8]);
}

/// All that can be blocked, but in replay what the driver sends.
fn quiet_mask() -> u64 {
    with_engine!(E => if E::LIVE { HANDLER_MASK } else { HANDLER_MASK & !bit(SIGCUT) })
}

extern "C" fn on_signal(signal: u32, info: *const Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel passes valid pointers into the frame on our signal stack.
    let (info, uc) = unsafe { (&*info, &mut *uc) };
    segment::check(signal);
    let t = current();
    let shows = with_engine!(E => !E::LIVE) || crate::isolate::conflicts::on();
    if shows && !in_runtime(uc.mc.rip) {
        crate::debugger::show_context(t, uc);
    }
    if crate::det::spin::takes(t, signal, info, uc) || touch::takes(t, signal, info, uc) {
        return;
    }
    if signal == SIGSYS && info.code() == SYS_USER_DISPATCH {
        return dispatch(info, uc);
    }
    // Codes above 0 come from the kernel itself; SIGTRAP and its kin can also be sent by kill(2).
    if bit(signal) & SYNCHRONOUS != 0 && info.code() > 0 {
        return synchronous(t, signal, info, uc);
    }
    if signal == SIGCUT && crate::clock::takes(info) {
        return;
    }
    if signal == SIGCUT && crate::serial::chaos::is_ours(info) {
        return with_engine!(E => E::timer(t, uc));
    }
    if signal == SIGCUT && is_from_agent(info) {
        return with_engine!(E => E::cut(t, uc));
    }
    asynchronous(t, info, uc)
}

/// SIGSTKFLT from the agent asks for a cut; from anybody else it is the program's business.
fn is_from_agent(info: &Siginfo) -> bool {
    // si_pid is the first word of the union.
    info.code() == SI_TKILL && crate::namespace::is_agent(info.words[2] as u32)
}

/// A system call at a site that isn't rewritten: goes on in the hook, as a rewritten site does.
fn dispatch(info: &Siginfo, uc: &mut Ucontext) {
    // si_call_addr at 16, si_syscall at 24, si_arch at 28.
    let arch = (info.words[3] >> 32) as u32;
    let c = &mut uc.mc;
    if arch != AUDIT_ARCH_X86_64 {
        // int 0x80: the 32-bit table is not offered, as by a kernel that is built without it.
        crate::message::note(reprise_abi::notes::CALL_OF_32_BITS);
        c.rax = -38i64 as u64;
        return;
    }
    crate::thread::session()
        .counters
        .dispatched
        .fetch_add(1, Relaxed);
    crate::patch::note_dispatch(c.rip, c.rax);
    c.rcx = c.rip;
    c.rip = rt_hook as *const () as u64;
}

/// A program that set the trap flag came into the runtime with it, by a call, or leaves it so: its calls are one instruction to it. The
/// flag is back when it goes on.
fn step_over_runtime(t: &mut Block, uc: &mut Ucontext) -> bool {
    let c = &mut uc.mc;
    let leaves = c.rip == rt_leaves_stepping as *const () as u64;
    if leaves {
        // SAFETY: the gate's frame, of which only the program's next instruction is left on the gate stack.
        c.rip = unsafe { *(c.rsp as *const u64) };
        c.rsp = t.program_sp;
    }
    if with_engine!(E => E::stepped(t, uc)) || leaves {
        return true;
    }
    let c = &mut uc.mc;
    if !in_runtime(c.rip) && !crate::patch::is_stub(c.rip) {
        return false;
    }
    c.rflags &= !TRAP_FLAG;
    t.steps = true;
    true
}

fn synchronous(t: &mut Block, signal: u32, info: &Siginfo, uc: &mut Ucontext) {
    let mut hooked = false;
    if signal == SIGTRAP && info.code() == TRAP_TRACE && step_over_runtime(t, uc) {
        return;
    }
    let c = &mut uc.mc;
    if in_runtime(c.rip) {
        if t.guard_sp != 0 && (signal == SIGSEGV || signal == SIGBUS) {
            c.rsp = t.guard_sp;
            c.rip = rt_guard_fault as *const () as u64;
            c.rflags &= !0x400;
            return;
        }
        // A hooked function was given a bad pointer: the program faults, where it called the function.
        hooked = (signal == SIGSEGV || signal == SIGBUS) && crate::hook::shim::fault(t, c);
        if !hooked {
            crate::panic::runtime_fault(signal, c.rip, info.address());
        }
    }
    if signal == SIGTRAP && crate::locked::trapped(c) {
        return;
    }
    let in_stub = crate::locked::fault(t, c);
    if with_engine!(E => E::trap(t, signal, uc)) {
        return;
    }
    if signal == SIGTRAP && info.code() == SI_KERNEL && crate::live_code::trapped(&mut uc.mc) {
        return;
    }
    let emulated = match signal {
        SIGSEGV if info.code() == SI_KERNEL => {
            with_engine!(E => instruction::emulate::<E>(t, &mut uc.mc))
        }
        SIGTRAP if info.code() == SI_KERNEL => {
            match with_engine!(E => instruction::emulate_replaced::<E>(t, &mut uc.mc)) {
                Stood::ForNothing => false,
                Stood::Made => true,
                Stood::Faults => {
                    // As the instruction itself would.
                    const GENERAL_PROTECTION: u64 = 13;
                    (uc.mc.trapno, uc.mc.err) = (GENERAL_PROTECTION, 0);
                    let mut info = Siginfo::ZERO;
                    info.words[0] = SIGSEGV as u64;
                    info.words[1] = SI_KERNEL as u64;
                    let at = Some(uc.mc.rip);
                    return with_engine!(E => fault::<E>(t, &info, uc, at));
                }
            }
        }
        _ => false,
    };
    if emulated {
        return with_engine!(E => E::goes_on(t, uc));
    }
    let again = (!hooked).then_some(in_stub.unwrap_or(uc.mc.rip));
    with_engine!(E => fault::<E>(t, info, uc, again))
}

/// A fault of the program's own: delivered at once, at the instruction. `again`: where the instruction really is; `None` for a hooked function,
/// which might not touch the same memory once more: it may have changed something before it came to that.
fn fault<E: Engine>(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, again: Option<u64>) {
    let signal = info.signal();
    // Of what is done in a stub a part may be done.
    let can = again == Some(uc.mc.rip);
    if E::fault(t, info, uc, can) {
        return;
    }
    let action = ACTIONS.get(signal);
    let blocked = t.mask & bit(signal) != 0;
    if action.handler == DEFAULT || action.handler == IGNORE || blocked {
        E::process_dies(t, signal);
        let Some(at) = again else { die_now(signal) };
        // Nothing may come in between any more; the instruction alone is made again.
        uc.mask = HANDLER_MASK;
        uc.mc.rip = at;
        return die_of(signal);
    }
    let mut frame = uc.mc.to_frame();
    // What depends on the past of the thread or of a page is not shown: the address of some earlier fault, and whether the page
    // was there.
    const PAGE_FAULT: u64 = 14;
    const PRESENT: u64 = 1;
    let faults = match uc.mc.trapno {
        PAGE_FAULT => [uc.mc.err & !PRESENT, PAGE_FAULT, uc.mc.cr2],
        other => [uc.mc.err, other, 0],
    };
    if !super::frame::deliver(
        t,
        &mut frame,
        FpState::Saved(uc.mc.fpstate),
        info,
        &action,
        faults,
    ) {
        E::process_dies(t, SIGSEGV);
        die_now(SIGSEGV);
    }
    enter_from_kernel(t, uc, &frame);
    E::goes_on(t, uc);
}

/// Lets the kernel frame return into `frame`, with the program's mask and fresh vector registers.
pub fn enter_from_kernel(t: &mut Block, uc: &mut Ucontext, frame: &crate::thread::Frame) {
    uc.mc.set_frame(frame);
    uc.mask = with_engine!(E => if E::LIVE { kernel_mask(t, t.mask) } else { quiet_mask() });
    // SAFETY: the frame is the kernel's own, on our signal stack.
    unsafe { super::frame::reset_saved_fp(uc.mc.fpstate) };
}

/// The next occurrence of `signal` ends the process the way the kernel does it: same status, same core file.
pub fn die_of(signal: u32) {
    uninstall(signal, DEFAULT, 0);
    let m = HANDLER_MASK & !bit(signal);
    sys::call(nr::RT_SIGPROCMASK, &[2, &m as *const u64 as u64, 0, 8]);
    // The faulting instruction runs again after the return and faults again, now for good. A trap is over already.
    if signal == SIGTRAP {
        send_self(signal);
    }
}

/// Sends a signal to the calling thread.
pub fn send_self(signal: u32) {
    let pid = sys::call(nr::GETPID, &[]) as u64;
    let tid = sys::call(nr::GETTID, &[]) as u64;
    sys::call_undisturbed(nr::TGKILL, &[pid, tid, signal as u64]);
}

/// Lets the kernel do by default what `signal` means, and lets it in.
pub fn default_action(signal: u32) {
    if signal != SIGKILL {
        uninstall(signal, DEFAULT, 0);
        let m = HANDLER_MASK & !bit(signal);
        sys::call(nr::RT_SIGPROCMASK, &[2, &m as *const u64 as u64, 0, 8]);
    }
}

/// Ends the process by this signal, here and now.
pub fn die_now(signal: u32) -> ! {
    default_action(signal);
    loop {
        send_self(signal);
    }
}

fn asynchronous(t: &mut Block, info: &Siginfo, uc: &mut Ucontext) {
    if crate::det::outside::takes(t, info) {
        return;
    }
    let info = &crate::det::signals::received(info);
    let signal = info.signal();
    let c: &mut SigContext = &mut uc.mc;
    let immediate = with_engine!(E => E::IMMEDIATE) && !crate::det::log::follows(t);
    if immediate {
        crate::hook::shim::step_out(t, c);
    }
    if immediate && !in_runtime(c.rip) && t.mask & bit(signal) == 0 {
        let action = ACTIONS.get(signal);
        let mut frame = c.to_frame();
        if action.handler > IGNORE
            && super::frame::deliver(
                t,
                &mut frame,
                FpState::Saved(c.fpstate),
                info,
                &action,
                [0; 3],
            )
        {
            return enter_from_kernel(t, uc, &frame);
        }
    }
    if bit(signal) & SYNCHRONOUS == 0 {
        t.pending.push(*info);
        // Until it is delivered the kernel keeps further ones.
        uc.mask |= bit(signal);
    } else if t.pending.set() & bit(signal) == 0 {
        // Sent by somebody. The kernel can't keep further ones: it would end the process at the first fault of the runtime's own. Of
        // these numbers only one can wait (signal(7)).
        t.pending.push(*info);
    }
    t.slot().signal_pending.store(1, Release);
    divert(c);
    with_engine!(E => E::arrived(t, uc));
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
