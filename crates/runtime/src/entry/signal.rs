//! The handler that the kernel knows. It redirects dispatched calls to the gate, has non-deterministic instructions emulated, routes faults, and queues
//! asynchronous signals for the next gate.

use crate::dispatch::with_engine;
use crate::engine::Engine;
use crate::gate::instruction::{self, Stood};
use crate::machine::asm::*;
use crate::signal::frame::{self, FpState, SigContext, Ucontext};
use crate::signal::kernel::*;
use crate::signal::segment;
use crate::signal::step::is_step;
use crate::sync::in_runtime;
use crate::thread::signals::*;
use crate::thread::{take_block, Block};
use core::sync::atomic::Ordering::*;

/// si_code of a dispatched call.
const SYS_USER_DISPATCH: i32 = 2;
/// x86-64 as an audit architecture.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

#[no_mangle]
extern "C" fn rt_on_signal(signal: u32, info: *const Siginfo, uc: *mut Ucontext) {
    // SAFETY: the kernel passes valid pointers into the frame on our signal stack.
    let (info, uc) = unsafe { (&*info, &mut *uc) };
    segment::check(signal);
    // SAFETY: what the signal has interrupted is the program, or the runtime, which does not go on before this handler has returned.
    let t = unsafe { take_block() };
    let shows = with_engine!(E => !E::LIVE) || crate::isolate::conflicts::on();
    if shows && !in_runtime(uc.mc.rip) {
        crate::log::debugger::show_context(t, uc);
    }
    if with_engine!(E => E::takes_signal(t, info, uc)) {
        return;
    }
    if signal == SIGSYS && info.code() == SYS_USER_DISPATCH {
        return dispatch(info, uc);
    }
    // Codes above 0 come from the kernel itself; SIGTRAP and its kin can also be sent by kill(2).
    if bit(signal) & SYNCHRONOUS != 0 && info.code() > 0 {
        return synchronous(t, signal, info, uc);
    }
    if signal == SIGCUT {
        // Of several that are on their way the kernel keeps the first (signal(7), "Standard signals"): whatever this one says, another one may have been sent.
        let tells = crate::thread::standing::tells(info);
        if tells || crate::gate::stand::is_told(t) {
            let ours = in_runtime(uc.mc.rip);
            with_engine!(E => crate::gate::stand::told::<E>(t, uc, ours));
        }
        if tells || crate::gate::clock::takes(info) {
            return;
        }
    }
    if signal == SIGCUT && with_engine!(E => E::is_timer(info)) {
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
    info.code() == SI_TKILL && crate::thread::namespace::is_agent(info.words[2] as u32)
}

/// A system call at a site that isn't rewritten: goes on in the hook, as a rewritten site does.
fn dispatch(info: &Siginfo, uc: &mut Ucontext) {
    // si_call_addr at 16, si_syscall at 24, si_arch at 28.
    let arch = (info.words[3] >> 32) as u32;
    let c = &mut uc.mc;
    if arch != AUDIT_ARCH_X86_64 {
        // int 0x80: the 32-bit table is not offered, as by a kernel that is built without it.
        crate::thread::message::note(reprise_abi::notes::CALL_OF_32_BITS);
        c.rax = -38i64 as u64;
        return;
    }
    crate::thread::session()
        .counters
        .dispatched
        .fetch_add(1, Relaxed);
    crate::code::patch::note_dispatch(c.rip, c.rax);
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
    if !in_runtime(c.rip) && !crate::code::patch::is_stub(c.rip) {
        return false;
    }
    c.rflags &= !TRAP_FLAG;
    t.steps = true;
    true
}

fn synchronous(t: &mut Block, signal: u32, info: &Siginfo, uc: &mut Ucontext) {
    let mut hooked = false;
    if is_step(info, &uc.mc) {
        let ours = in_runtime(uc.mc.rip);
        let stepped = with_engine!(E => crate::gate::stand::stepped::<E>(t, uc, ours));
        if stepped || step_over_runtime(t, uc) {
            return;
        }
    }
    let c = &mut uc.mc;
    if in_runtime(c.rip) {
        if t.guard_sp != 0 && (signal == SIGSEGV || signal == SIGBUS) {
            // The way out takes what was there before from the stack. Where that is none, the next fault is nobody's to survive.
            c.rsp = core::mem::take(&mut t.guard_sp);
            c.rip = rt_guard_fault as *const () as u64;
            c.rflags &= !0x400;
            return;
        }
        // A hooked function was given a bad pointer: the program faults, where it called the function.
        hooked = (signal == SIGSEGV || signal == SIGBUS) && crate::sync::hook::shim::fault(t, c);
        if !hooked {
            crate::thread::panic::runtime_fault(signal, c.rip, info.address());
        }
    }
    if signal == SIGTRAP && crate::sync::locked::trapped(c) {
        return;
    }
    let in_stub = crate::sync::locked::fault(t, c);
    if with_engine!(E => E::trap(t, signal, uc)) {
        return;
    }
    if signal == SIGTRAP && info.code() == SI_KERNEL && crate::code::live_code::trapped(&mut uc.mc)
    {
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
    if !frame::deliver(
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

fn asynchronous(t: &mut Block, info: &Siginfo, uc: &mut Ucontext) {
    if with_engine!(E => E::passes_on(t, info)) {
        return;
    }
    let info = &with_engine!(E => E::received(info));
    let signal = info.signal();
    let c: &mut SigContext = &mut uc.mc;
    let immediate = with_engine!(E => E::delivers_at_once(t));
    if immediate {
        crate::sync::hook::shim::step_out(t, c);
    }
    if immediate && !in_runtime(c.rip) && t.mask & bit(signal) == 0 {
        let action = ACTIONS.get(signal);
        let mut frame = c.to_frame();
        if action.handler > IGNORE
            && frame::deliver(
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
