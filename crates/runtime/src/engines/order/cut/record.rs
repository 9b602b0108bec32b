//! Record: from an asynchronous signal to a place that has a name, where its handler runs.
//!
//! The thread goes there step by step, by the processor's trap flag: breakpoints in the code would stop others, too. A step costs about
//! 25 µs, a walk some dozens of them.
//!
//! No place is in ld.so when other threads have run: whoever calls a function first goes there to look for it, and in a replay that may be
//! another thread. The signal then waits until the thread has left it.

use super::{alone, room};
use crate::code::resolver;
use crate::common::stopped::{hash_of, is_ours, processor_time, registers, Stopped, FP_LEN};
use crate::engines::order::record::Record;
use crate::gate::leader;
use crate::log::events;
use crate::log::ring;
use crate::machine::sys;
use crate::memory;
use crate::signal::frame::{FpState, Ucontext};
use crate::signal::kernel;
use crate::thread::request;
use crate::thread::signals::SIGTRAP;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::{Kind, Tag};
use reprise_code::decode::Insn;
use reprise_place::name::{Name, MAX_NAME};
use reprise_place::walk::{Action, Plan, Walk};

/// The trap flag.
const TF: u64 = 0x100;
/// Rounds of a repeated instruction that are stepped through, one by one.
const MOST_ROUNDS: u32 = 256;

/// A thread on its way.
struct Walking {
    walk: Walk,
    /// When it began.
    begun: i64,
    /// The instruction that is being stepped, and where it leads.
    from: u64,
    to: u64,
    rounds: u32,
}

/// A signal waits for this thread, which may be anywhere: in code without gates it is taken to a place with a name.
pub fn begin(t: &mut Block, uc: &mut Ucontext) {
    if t.order().walks || t.pending.first(t.mask).is_none() {
        return;
    }
    if is_out_of_the_way(uc.mc.rip)
        || crate::gate::ptrace::holds(t)
        || session().xsave_size as usize > FP_LEN
    {
        // The end of the gate delivers it. Who has looked for the last time already is asked by the agent again.
        return later();
    }
    if leader::is_on(t) {
        // It is a copy that names the place.
        leader::ask_in_code(t, uc, true);
        return later();
    }
    let (walk, action) = Walk::begin(&registers(t, &uc.mc), &stopped(uc));
    let walking = Walking {
        walk,
        begun: sys::monotonic().ns(),
        from: 0,
        to: 0,
        rounds: 0,
    };
    // SAFETY: the thread's own room, which nothing else uses while it doesn't walk.
    unsafe { room::<Walking>(t).write(walking) };
    t.order().walks = true;
    act(t, uc, action);
}

/// Can no handler run there?
fn is_out_of_the_way(pc: u64) -> bool {
    is_ours(pc) || !alone() && resolver::is_in_loader(pc)
}

/// The agent sees to it that the signal isn't forgotten.
pub fn later() {
    request::ask_for_end_of_slice();
}

fn stopped(uc: &Ucontext) -> Stopped {
    Stopped {
        fpstate: uc.mc.fpstate,
        under: None,
    }
}

#[allow(clippy::mut_from_ref)]
fn walking(t: &Block) -> &mut Walking {
    // SAFETY: written when the walk began; only the thread itself uses it, in its handlers, which don't nest here.
    unsafe { &mut *room::<Walking>(t) }
}

/// The walk is over.
fn end(t: &mut Block, uc: &mut Ucontext) {
    t.order().walks = false;
    uc.mc.rflags &= !TF;
}

fn act(t: &mut Block, uc: &mut Ucontext, mut action: Action) {
    loop {
        match action {
            Action::PlantInt3(to) => {
                if !step(t, uc, to) {
                    end(t, uc);
                    later();
                }
                return;
            }
            // Others would run into a breakpoint, too: what the registers say must be enough.
            Action::RunUntilTrapOrTimeout(_) => {
                let regs = registers(t, &uc.mc);
                action = walking(t).walk.on_timeout(&regs, &stopped(uc));
            }
            Action::ReachedGate | Action::GiveUp(_) => {
                end(t, uc);
                return later();
            }
            Action::Done(plan) => {
                end(t, uc);
                return cut(t, uc, &plan);
            }
        }
    }
}

/// Lets the thread make one instruction. False: it can't be stepped.
fn step(t: &mut Block, uc: &mut Ucontext, to: u64) -> bool {
    const PUSHF: u8 = 0x9c;
    let from = uc.mc.rip;
    let insn = Insn::at(from, &stopped(uc));
    // It would put the trap flag where the program sees it.
    if insn.is_none_or(|i| i.bytes().ends_with(&[PUSHF])) {
        return false;
    }
    let w = walking(t);
    (w.from, w.to, w.rounds) = (from, to, 0);
    uc.mc.rflags |= TF;
    true
}

/// A synchronous signal: true when it was the end of a step.
pub fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
    if !t.order().walks {
        return false;
    }
    if signal != SIGTRAP {
        // The instruction faults: its handler is a gate.
        end(t, uc);
        later();
        return false;
    }
    uc.mc.rflags &= !TF;
    if is_out_of_the_way(uc.mc.rip) {
        end(t, uc);
        later();
        return true;
    }
    let regs = registers(t, &uc.mc);
    let w = walking(t);
    if regs.rip == w.from && w.to != w.from {
        // One more round of a repeated instruction.
        w.rounds += 1;
        if w.rounds < MOST_ROUNDS {
            uc.mc.rflags |= TF;
        } else {
            end(t, uc);
            later();
        }
        return true;
    }
    let action = w.walk.on_trap(&regs, &stopped(uc));
    act(t, uc, action);
    true
}

/// The thread is at a place with a name: the handler runs here.
fn cut(t: &mut Block, uc: &mut Ucontext, plan: &Plan) {
    if t.pending.first(t.mask).is_none() {
        return;
    }
    t.slot().last_pc.store(uc.mc.rip, Relaxed);
    log(t, uc, plan);
    let counters = &session().counters;
    counters.cuts.fetch_add(1, Relaxed);
    let took = sys::monotonic().ns() - walking(t).begun;
    counters.last_cut_ns.store(took as u64, Relaxed);
    let mut frame = uc.mc.to_frame();
    let delivered = Record::deliver_pending(t, &mut frame, FpState::Saved(uc.mc.fpstate));
    kernel::block_all();
    if delivered {
        kernel::enter_from_kernel(t, uc, &frame);
    } else {
        uc.mask = kernel::kernel_mask(t, t.mask);
    }
}

/// Most discriminators of a name while other threads run.
const WHILE_OTHERS_RUN: usize = 4;

fn log(t: &Block, uc: &Ucontext, plan: &Plan) {
    let mut name = Name::of(plan, &stopped(uc), hash_of);
    if alone() {
        let memory = memory::hash_all();
        name.memory_hash = memory.sum;
        name.memory_bytes = memory.bytes;
        session().counters.hashed.fetch_add(memory.bytes, Relaxed);
    } else {
        // Each word more may be one that another thread is just changing.
        name.discriminators = name.discriminators.first(WHILE_OTHERS_RUN);
    }
    name.event = ring::event_number();
    let mut bytes = [0; MAX_NAME];
    // A name always fits.
    let len = name.to_bytes(&mut bytes).unwrap_or(0);
    let (form, pc) = (plan.form as u32, plan.regs.rip as i64);
    let state = &bytes[..len];
    let ran = processor_time() as u64;
    events::with_section(Kind::Cut, t.slot, form, pc, &[ran], Tag::State, state);
}
