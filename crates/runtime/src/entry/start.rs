//! The first instructions: taking over a process, for record from the launcher, for replay from the driver's child.

use crate::dispatch::with_engine;
use crate::engine::Engine as _;
use crate::gate::clone::{adopt, prepare_block};
use crate::gate::{attach, instruction, leader, processor};
use crate::log::output;
use crate::log::ring;
use crate::machine::asm::rt_leave_with;
use crate::machine::sys;
use crate::memory::{self, files};
use crate::signal::{frame, kernel};
use crate::thread::blocks::start_first_block;
use crate::thread::in_force::ENGINE;
use crate::thread::panic;
use crate::thread::process;
use crate::thread::schedule;
use crate::thread::signals;
use crate::thread::{block_address, session, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::engine::{self, Engine};
use reprise_abi::layout::*;
use reprise_abi::session::{slot_state, Session, MAGIC, MODE_REPLAY, VERSION};
use reprise_abi::stage::{
    Stage, StageOp, OP_CLOSE, OP_COPY, OP_GUARD, OP_MAP, OP_PROTECT, STAGE_MAGIC,
};

#[no_mangle]
extern "C" fn rt_start_record(block: u64) -> ! {
    take_over(slot_of(block))
}

#[no_mangle]
extern "C" fn rt_start_from_stage(block: u64) -> ! {
    build_address_space();
    take_over(slot_of(block))
}

/// The slot whose block this is.
fn slot_of(block: u64) -> u32 {
    ((block - BLOCKS_BASE) / BLOCK_STRIDE) as u32
}

/// Replay: unmaps everything but the reservation, then follows the plan.
fn build_address_space() {
    // SAFETY: the driver's child mapped a plan there.
    let stage = unsafe { *(STAGE_BASE as *const Stage) };
    if stage.magic != STAGE_MAGIC {
        panic::give_up("no plan for the address space");
    }
    // Handlers of the driver's own runtime point to memory that is about to go.
    for signal in 1..=signals::SIGNALS as u32 {
        kernel::uninstall(signal, signals::DEFAULT, 0);
    }
    // Whoever reads our output may go away; the recorded program's fate does not depend on it.
    kernel::uninstall(13, signals::IGNORE, 0);
    sys::munmap(0x1000, RESERVATION - 0x1000);
    sys::munmap(RESERVATION_END, USER_END - RESERVATION_END);
    let ops = STAGE_BASE + core::mem::size_of::<Stage>() as u64;
    for i in 0..stage.ops {
        // SAFETY: as many operations as the head says.
        let op = unsafe { *((ops + i * core::mem::size_of::<StageOp>() as u64) as *const StageOp) };
        let r = match op.kind {
            OP_MAP => {
                let flags = op.flags as u64 | sys::MAP_FIXED;
                let r = sys::mmap(
                    op.addr,
                    op.len,
                    op.prot as u64,
                    flags,
                    op.fd as i64 as u64,
                    op.offset,
                );
                (r == op.addr as i64) as i64 - 1
            }
            OP_COPY => {
                // SAFETY: the plan's own bytes; the target was mapped by the plan.
                unsafe {
                    crate::machine::guard::copy(op.addr, STAGE_BASE + op.offset, op.len as usize)
                };
                0
            }
            OP_PROTECT => sys::mprotect(op.addr, op.len, op.prot as u64),
            OP_GUARD => sys::madvise(op.addr, op.len, memory::MADV_GUARD_INSTALL),
            OP_CLOSE => {
                sys::close(op.fd as u64);
                0
            }
            _ => -1,
        };
        if r != 0 {
            panic::give_up("the recorded address space can't be built");
        }
    }
    sys::munmap(STAGE_BASE, (stage.len + PAGE - 1) & !(PAGE - 1));
    files::start(stage.files);
}

/// The process that this one is in the session: the first one, or the one that it was before its exec.
fn take_place(t: &mut Block) {
    let s = session();
    let pid = sys::getpid() as u32;
    let me = t.slot();
    let first = s.live_threads.load(Relaxed) == 0;
    if first {
        let n = process::reserve(0).unwrap_or(0);
        me.process.store(n, Relaxed);
        s.slots_used.fetch_max(t.slot + 1, Relaxed);
        s.live_threads.store(1, Relaxed);
        if s.mode != MODE_REPLAY {
            s.program_pid.store(pid, Relaxed);
        }
        process::entry_of(n)
            .visible_pid
            .store(s.program_pid.load(Relaxed), Relaxed);
        match s.mode == MODE_REPLAY {
            true => s.baton.store(t.slot + 1, Relaxed),
            false => schedule::begin(t),
        }
    }
    let n = me.process.load(Relaxed);
    process::start(t, n);
    leader::starts(n);
    ring::start();
    let p = process::entry();
    // A process keeps its id in its exec, and the agent may know it by another one. In replay it is another process.
    if first || s.mode == MODE_REPLAY {
        p.kernel_pid.store(pid, Release);
    }
    let pid = p.kernel_pid.load(Relaxed);
    me.kernel_pid.store(pid, Relaxed);
    me.kernel_tid.store(pid, Relaxed);
    me.visible_tid.store(p.visible_pid.load(Relaxed), Relaxed);
    me.signal_pending.store(0, Relaxed);
    if !first {
        crate::thread::schedule::only_thread(t);
    }
    me.state.store(slot_state::RUNNING, Relaxed);
}

/// Common to both: makes this process ours and lets the program begin.
fn take_over(i: u32) -> ! {
    ENGINE.store(role_in(session()), Relaxed);
    let attached = attach::is_wanted();
    let t = become_first_thread(i, attached);
    let first = session().live_threads.load(Relaxed) == 0;
    take_place(t);
    start_memory();
    with_engine!(E => E::takes_over(first));
    output::start(t, first);
    if !first {
        processor::after_exec(t);
        with_engine!(E => E::image_start(t));
    }
    start_signals(t, attached);
    instruction::arm();
    let mut f = first_frame(t, attached);
    // The next exec may use the session's head now.
    crate::gate::exec::give_head();
    crate::log::debugger::show_frame(t, &f);
    let_program_begin(t, &mut f, attached);
    // SAFETY: the gate stack is ours; the frame is the program's first state.
    unsafe { rt_leave_with(&f) }
}

/// What the engine of this session does in it, recorder or replayer.
fn role_in(s: &Session) -> u32 {
    if s.magic != MAGIC || s.version != VERSION {
        panic::give_up("the session's version is not the runtime's");
    }
    let engine = Engine::of(s.engine).unwrap_or(&engine::NONE);
    let role = match s.mode {
        MODE_REPLAY => engine.replayer,
        _ => engine.recorder,
    };
    if !crate::dispatch::has(role) {
        panic::give_up("this image has no such engine");
    }
    role
}

/// The calling thread is the one of slot `i` from now on.
fn become_first_thread(i: u32, attached: bool) -> &'static mut Block {
    const ARCH_SET_FS: u64 = 0x1002;
    start_first_block(i);
    let Some(block) = prepare_block(i) else {
        panic::give_up("no memory for the first thread");
    };
    block.alive.store(1, Relaxed);
    let thread_pointer = match attached {
        true => attach::first_thread_pointer(),
        false => 0,
    };
    sys::arch_prctl(ARCH_SET_FS, thread_pointer);
    // SAFETY: the block is this thread's, and `block` is used no more.
    let t = unsafe { adopt(block_address(i)) };
    sys::set_tid_address(t.alive.as_ptr() as u64);
    t
}

/// The program's address space is known, and who is told when parts of it go.
fn start_memory() {
    memory::start();
    memory::tell_when_gone(crate::code::replaced::forget);
    memory::tell_when_gone(crate::sync::locked::forget);
    crate::code::patch::others_have_stubs(crate::sync::locked::is_stub);
}

/// The kernel has the runtime's handlers; mask and ignored signals are what the program was started with.
fn start_signals(t: &mut Block, attached: bool) {
    kernel::install_all();
    with_engine!(E => {
        if E::LIVE && attached {
            // What waits for one of its handlers comes when all is in place.
            kernel::block_all();
        } else if E::LIVE {
            inherit_signals(t);
        } else {
            t.mask = session().initial_mask.load(Relaxed);
            kernel::block_all();
        }
    });
    let ignored = session().initial_ignored.load(Relaxed);
    for signal in (1..=signals::SIGNALS as u32).filter(|s| ignored & signals::bit(*s) != 0) {
        let action = signals::Action {
            handler: signals::IGNORE,
            ..Default::default()
        };
        signals::ACTIONS.set(signal, action);
    }
}

/// The program's first state; of one that was running already, the one in which it was stopped.
fn first_frame(t: &mut Block, attached: bool) -> Frame {
    if attached {
        with_engine!(E => attach::take_handlers(E::LIVE));
        attach::restore_vectors(t.slot);
        return attach::first_thread(t);
    }
    frame::reset_fpu();
    Frame {
        rip: session().entry,
        rsp: session().initial_sp,
        rflags: 0x202,
        ..Frame::default()
    }
}

/// The first gate: all that is made of the program's code before it runs.
fn let_program_begin(t: &mut Block, f: &mut Frame, attached: bool) {
    with_engine!(E => {
        if attached {
            // Before the first event: a debugger that stops there sees them all.
            attach::start_others::<E>(t);
        }
        crate::code::modules::start(attached, E::LIVE);
        crate::gate::cpuid::start::<E>(t);
        E::program_begins(t, f);
        crate::code::resolver::start(t);
        crate::sync::hook::start(t, E::before_hooks);
        E::is_hooked();
        if E::LIVE && attached {
            kernel::sync_mask(t);
        }
        E::signal_point(t, f)
    });
}

/// Record: the mask that the program was started with is the program's view; synchronous signals and ours are open.
fn inherit_signals(t: &mut crate::thread::Block) {
    t.mask = session().initial_mask.load(Relaxed);
    kernel::sync_mask(t);
}
