//! The gate of system calls: every one of the program comes through here and is sorted by the table.

use crate::code::patch;
use crate::common::rebuilt;
use crate::dispatch::with_engine;
use crate::engine::{Engine, RESTART};
use crate::gate::clone;
use crate::gate::processor;
use crate::gate::ptrace;
use crate::gate::seccomp;
use crate::gate::signals;
use crate::gate::stand;
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::limits;
use crate::memory::lock_memory;
use crate::memory::populated;
use crate::thread::message;
use crate::thread::{in_force, session};
use crate::thread::{take_block, Block, Frame};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::effect::{Effect, Told};
use reprise_abi::session::FLAG_NO_PATCH;
use reprise_abi::spec::{Blocking, Mem, Replay};
use reprise_abi::syscalls::{self, nr};

const EPERM: i64 = -1;
const EINVAL: i64 = -22;
const EFAULT: i64 = -14;

#[no_mangle]
extern "C" fn rt_gate(frame: &mut Frame) {
    // SAFETY: the thread comes from the program, by a call.
    let t = unsafe { take_block() };
    with_engine!(E => {
        gate::<E>(t, frame);
        stand::point::<E>(t, frame);
    })
}

/// A thread that stood in a call, of which only the end is missing in the log, is in it again: `frame` as at the gate.
pub fn call_again(t: &mut Block, frame: &mut Frame) {
    with_engine!(E => {
        made::<E>(t, frame);
        stand::point::<E>(t, frame);
    })
}

/// One gate: the program's call is answered, then signals and slices get their turn.
fn gate<E: Engine>(t: &mut Block, frame: &mut Frame) {
    t.slot().last_pc.store(frame.rip, Relaxed);
    // Under `none` it may be a diversion.
    if !E::LIVE || E::IMMEDIATE {
        crate::log::debugger::show_frame(t, frame);
    }
    if core::mem::take(&mut t.steps) {
        frame.rflags |= crate::signal::kernel::TRAP_FLAG;
    }
    E::enters_gate(t, frame);
    if rebuilt::is_print(frame.rax, frame.rdi) {
        let result = rebuilt::print(frame.rsi, frame.rdx);
        answer(frame, frame.rax, result);
        return leave(frame);
    }
    if let Some(after) = patch::take_hot_site() {
        hot_site::<E>(t, after);
    }
    E::rewrites_again(t);
    // What the instruction leaves there. A rewritten site doesn't, and a replay rewrites a site one gate earlier than the recording:
    // calls that never return, or that are made again, must look the same all the same.
    frame.rcx = frame.rip;
    frame.r11 = frame.rflags;
    let number = frame.rax as u32 as u64;
    if seccomp::filtered(t) {
        match seccomp::judge::<E>(t, frame) {
            seccomp::Verdict::Allowed => {}
            seccomp::Verdict::Answered(result) => {
                answer(frame, number, result);
                E::signal_point(t, frame);
                return leave(frame);
            }
            seccomp::Verdict::Trapped => {
                E::signal_point(t, frame);
                return leave(frame);
            }
        }
    }
    if E::defers(t, frame) {
        answer(frame, number, RESTART);
        return leave(frame);
    }
    if let Some(result) = E::short(t, frame) {
        answer(frame, number, result);
        E::signal_point(t, frame);
        return leave(frame);
    }
    made::<E>(t, frame);
}

/// The call is made, and the program answered.
fn made<E: Engine>(t: &mut Block, frame: &mut Frame) {
    let number = frame.rax as u32 as u64;
    let args = frame.args();
    let desc = syscalls::lookup(number);
    let mut c = Call::new(number, args, desc);
    let result = match c.replay {
        _ if c.effect == Effect::Affinity => processor::mask::<E>(t, &mut c, frame),
        _ if c.effect == Effect::Tells(Told::Processor) => processor::number::<E>(t, &mut c, frame),
        _ if c.effect == Effect::LocksAll => E::acted(t, &c, |recorded| {
            recorded.unwrap_or_else(|| lock_memory::all(args[0] as u32 as u64))
        }),
        _ if c.effect == Effect::UnlocksAll => {
            E::acted(t, &c, |recorded| recorded.unwrap_or_else(lock_memory::none))
        }
        _ if signals::replaces_mask(number) => signals::masked::<E>(t, &mut c, frame),
        _ if c.effect == Effect::Traces => ptrace::call::<E>(t, &c),
        Replay::Refuse(e) if matches!(c.effect, Effect::Commands(_)) => {
            refuse_of_descriptor::<E>(t, &mut c, frame, e)
        }
        Replay::Refuse(e) => {
            message::note_refusal(number);
            E::computed(t, &c, -(e as i64))
        }
        Replay::Special => match special::<E>(t, &mut c, frame) {
            Some(r) => r,
            // The frame already is where the program goes on.
            None => {
                E::signal_point(t, frame);
                // A handler returns to where a place was replaced meanwhile.
                frame.rip = crate::sync::locked::moved_to(frame.rip).unwrap_or(frame.rip);
                return leave(frame);
            }
        },
        Replay::Reexecute => E::address_space(t, &mut c),
        Replay::Emulate => match number {
            nr::WAIT4 => match ptrace::wait::<E>(t, &c) {
                Some(r) => r,
                None => E::syscall(t, &mut c, frame),
            },
            _ => E::syscall(t, &mut c, frame),
        },
    };
    if !E::LIVE && result == 0 && limits::sets_stack(&c) {
        limits::again(&c);
    }
    if populated::locks(&c) {
        populated::follow(&c, result, E::LIVE);
    }
    answer(frame, number, result);
    E::signal_point(t, frame);
    if t.saved_mask.is_some() {
        stand::point_under_mask::<E>(t, frame);
    }
    if t.saved_mask.is_some() {
        signals::restore_mask::<E>(t);
    }
    leave(frame);
}

#[cold]
fn hot_site<E: Engine>(t: &mut Block, after: u64) {
    if session().flags & FLAG_NO_PATCH == 0 && !in_force::threads_are_processes() {
        E::rewrites(t, after);
    }
}

/// A command that the program is refused. What is wrong with the descriptor comes first: the kernel is asked by a command that no descriptor knows.
#[cold]
fn refuse_of_descriptor<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame, errno: i32) -> i64 {
    const NO_COMMAND: u64 = 0xffff;
    const EBADF: i64 = -9;
    const ENOTSOCK: i64 = -88;
    c.mem = [Mem::None; 6];
    c.known = true;
    c.blocking = Blocking::Never;
    c.local = [c.args[0], NO_COMMAND, 0, 0, 0, 0];
    match E::syscall(t, c, frame) {
        r @ (EBADF | ENOTSOCK | RESTART) => r,
        _ => {
            message::note_refusal(c.nr);
            -(errno as i64)
        }
    }
}

/// The program gets the result of its call, or makes it again.
#[inline]
fn answer(frame: &mut Frame, number: u64, result: i64) {
    if result == RESTART {
        frame.rip -= 2;
        frame.rax = number;
    } else {
        frame.rax = result as u64;
        frame.rcx = frame.rip;
        frame.r11 = frame.rflags;
    }
}

/// Last look at the frame before the program goes on.
fn leave(frame: &mut Frame) {
    frame.rip = crate::code::patch::resume_address(frame.rip);
}

/// Calls for which the runtime has its own code. `None`: the frame was replaced.
fn special<E: Engine>(t: &mut Block, c: &mut Call, frame: &mut Frame) -> Option<i64> {
    Some(match c.effect {
        effect if effect.shapes_memory() => E::address_space(t, c),
        Effect::Breaks => E::acted(t, c, |recorded| memory::brk(c, recorded)),
        Effect::Futex => E::futex(t, c, frame),
        Effect::Yields => E::sched_yield(t, c),
        Effect::SetsAction => signals::sigaction::<E>(t, c),
        Effect::SetsMask => signals::sigprocmask::<E>(t, c),
        Effect::SetsStack => signals::sigaltstack::<E>(t, c, frame.rsp),
        Effect::Returns => {
            signals::sigreturn::<E>(t, c, frame);
            return None;
        }
        effect if effect.makes_thread() => clone::clone::<E>(t, c, frame),
        Effect::Execs => E::exec(t, c, frame),
        Effect::EndsThread => E::thread_exit(t, c, frame),
        Effect::EndsProcess => E::process_exit(t, c, frame),
        Effect::SetsExitWord => {
            t.clear_tid = c.args[0];
            let tid = t.slot().visible_tid.load(Relaxed);
            E::computed(t, c, tid as i64)
        }
        Effect::SetsRobustList => {
            let r = if c.args[1] == 24 {
                t.robust_list = c.args[0];
                if E::LIVE {
                    crate::gate::robust::tell_kernel(t.robust_list);
                }
                0
            } else {
                EINVAL
            };
            E::computed(t, c, r)
        }
        Effect::TellsRobustList => {
            let own =
                c.args[0] as u32 == 0 || c.args[0] as u32 == t.slot().visible_tid.load(Relaxed);
            let r = if !own {
                EPERM
            } else if crate::machine::guard::write(c.args[2], &24u64)
                && crate::machine::guard::write(c.args[1], &t.robust_list)
            {
                0
            } else {
                EFAULT
            };
            E::computed(t, c, r)
        }
        Effect::SegmentBase => arch_prctl::<E>(t, c),
        Effect::Options => prctl::<E>(t, c, frame),
        Effect::Filters if c.args[0] as u32 <= 1 => seccomp::install::<E>(t, c, frame),
        // Whatever else is special to later engines is an ordinary call here.
        _ => E::syscall(t, c, frame),
    })
}

/// arch_prctl(2): the thread pointer is the program's, `%gs` is ours.
fn arch_prctl<E: Engine>(t: &mut Block, c: &Call) -> i64 {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    const GET_CPUID: u64 = 0x1011;
    let r = match c.args[0] {
        SET_FS => {
            t.fs_base = c.args[1];
            crate::machine::sys::arch_prctl(SET_FS, c.args[1])
        }
        GET_FS => match crate::machine::guard::write(c.args[1], &t.fs_base) {
            true => 0,
            false => -14,
        },
        GET_GS => match crate::machine::guard::write(c.args[1], &0u64) {
            true => 0,
            false => -14,
        },
        SET_GS => {
            message::note(reprise_abi::notes::SEGMENT_BASE);
            EPERM
        }
        GET_CPUID => 1,
        _ => EINVAL,
    };
    E::computed(t, c, r)
}

/// prctl(2): options that would touch what the runtime stands on.
fn prctl<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    const PR_SET_SECCOMP: u64 = 22;
    const PR_GET_TSC: u64 = 25;
    const PR_SET_TSC: u64 = 26;
    const TSC_ENABLE: u64 = 1;
    const TSC_SIGSEGV: u64 = 2;
    const PR_GET_TID_ADDRESS: u64 = 40;
    // The kernel looks at the lower half only.
    match c.args[0] as u32 as u64 {
        PR_SET_TSC => {
            let wanted = c.args[1] as u32 as u64;
            if !matches!(wanted, TSC_ENABLE | TSC_SIGSEGV) {
                return E::computed(t, c, EINVAL);
            }
            let faults = (wanted == TSC_SIGSEGV) as u64;
            t.slot().tsc_faults.store(faults, Relaxed);
            E::computed(t, c, 0)
        }
        PR_GET_TSC => {
            let faults = t.slot().tsc_faults.load(Relaxed) != 0;
            let now = if faults { TSC_SIGSEGV } else { TSC_ENABLE } as u32;
            let written = crate::machine::guard::write(c.args[1], &now);
            E::computed(t, c, if written { 0 } else { EFAULT })
        }
        PR_GET_TID_ADDRESS => {
            let written = crate::machine::guard::write(c.args[1], &t.clear_tid);
            E::computed(t, c, if written { 0 } else { EFAULT })
        }
        PR_SET_SECCOMP => seccomp::install::<E>(t, c, frame),
        option => match c.option_replay {
            Replay::Refuse(e) => {
                message::note_option(option);
                E::computed(t, c, -(e as i64))
            }
            _ => E::syscall(t, c, frame),
        },
    }
}
