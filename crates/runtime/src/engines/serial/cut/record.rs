//! Record: from the agent's signal to a place that has a name, and what happens there.

use super::restore_protection;
use crate::common::search::protection;
use crate::common::stopped::{hash_of, is_ours, processor_time, registers, Stopped, FP_LEN};
use crate::engines::serial::record::Record;
use crate::engines::serial::{baton, chaos, follow, left};
use crate::log::events;
use crate::log::ring;
use crate::machine::guarded::Guarded;
use crate::machine::{guard, sys};
use crate::memory;
use crate::memory::pages_of;
use crate::signal::frame::{FpState, Ucontext};
use crate::signal::kernel;
use crate::sync::{locked, spin};
use crate::thread::leave::Baton;
use crate::thread::signals::SIGTRAP;
use crate::thread::{in_force, session, Block};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::event::{Kind, Tag};
use reprise_code::patchable::INT3;
use reprise_place::name::{Name, MAX_NAME};
use reprise_place::walk::{Action, Plan, Walk};

/// A walk waits this long for a place to be visited again, in nanoseconds, ...
const PATIENCE: i64 = 1_000_000;
/// ... and so long for several visits.
const PATIENCE_IN_ALL: i64 = 4 * PATIENCE;

/// 1 while a walk is under way.
static ACTIVE: AtomicU32 = AtomicU32::new(0);
static WALK: Guarded<Option<Walk>, Baton> = Guarded::new(None);
static CODE: Guarded<Code, Baton> = Guarded::new(Code {
    breakpoint: None,
    open: (0, 0),
    begun: 0,
    waiting_since: 0,
    waited_since: 0,
});

/// What a walk has changed in the program's code.
struct Code {
    /// Our breakpoint, and the byte under it.
    breakpoint: Option<(u64, u8)>,
    /// Pages (first byte, length) that stay writable for as long as the walk plants breakpoints there.
    open: (u64, u64),
    /// When the walk began.
    begun: i64,
    /// When the walk began to wait for its breakpoint; 0: it only steps.
    waiting_since: i64,
    /// When it waited for the first time.
    waited_since: i64,
}

/// The walk that is under way.
fn walk_now() -> &'static mut Option<Walk> {
    // SAFETY: a walk is the holder's: its handlers and gates come here, and others' ask first whose the baton is. Each reference is dropped before
    // the next is asked for.
    unsafe { WALK.change() }
}

/// What it has changed.
fn code_now() -> &'static mut Code {
    // SAFETY: as above.
    unsafe { CODE.change() }
}

impl Code {
    fn write(&mut self, at: u64, byte: u8) -> bool {
        if at.wrapping_sub(self.open.0) >= self.open.1 {
            self.close();
            let (first, len) = pages_of(at, 1);
            let Some(prot) = protection(first, len) else {
                return false;
            };
            if prot & 2 == 0 {
                if sys::mprotect(first, len, 7) != 0 {
                    return false;
                }
                self.open = (first, len);
            }
        }
        guard::write(at, &byte)
    }

    fn close(&mut self) {
        if self.open.1 != 0 {
            restore_protection(self.open.0, self.open.1);
            self.open = (0, 0);
        }
    }

    fn plant(&mut self, at: u64) -> bool {
        let Some(old) = guard::read::<u8>(at) else {
            return false;
        };
        // A breakpoint of the program's own is the program's.
        if old == INT3 || !self.write(at, INT3) {
            return false;
        }
        self.breakpoint = Some((at, old));
        true
    }

    fn lift(&mut self) {
        if let Some((at, old)) = self.breakpoint.take() {
            self.write(at, old);
        }
    }
}

/// The program reached a gate or a fault: the walk, if there is one, is over.
#[inline]
pub fn abandon(t: &Block) {
    if ACTIVE.load(Relaxed) != 0 {
        end(t);
    }
}

#[cold]
fn end(t: &Block) {
    let code = code_now();
    code.lift();
    code.close();
    code.waiting_since = 0;
    code.waited_since = 0;
    if let Some(walk) = walk_now().take() {
        chaos::remember(t.slot, walk.seen());
    }
    t.slot().cut_waiting.store(0, Relaxed);
    ACTIVE.store(0, Relaxed);
    chaos::begin_slice(t);
}

/// Under chaos, the thread steps: true when it does so for us. Where it comes out of what is ours, a walk begins.
pub fn stepped(t: &mut Block, uc: &mut Ucontext) -> bool {
    if !t.cut().steps {
        return false;
    }
    let ours = is_ours(uc.mc.rip);
    if ours && !crate::sync::in_runtime(uc.mc.rip) {
        return true;
    }
    t.cut().steps = false;
    uc.mc.rflags &= !kernel::TRAP_FLAG;
    if !ours {
        walk_behind_event(t, uc);
    }
    true
}

/// The thread's last event is right behind it: the next cut may come within a few instructions.
fn walk_behind_event(t: &mut Block, uc: &mut Ucontext) {
    let s = session();
    let busy = ACTIVE.load(Relaxed) != 0 || s.baton.load(Relaxed) != t.slot + 1;
    if busy || crate::gate::ptrace::holds(t) || s.xsave_size as usize > FP_LEN {
        return;
    }
    let machine = Stopped {
        fpstate: uc.mc.fpstate,
        under: None,
    };
    code_now().begun = sys::monotonic().ns();
    let regs = registers(t, &uc.mc);
    let (walk, action) = match chaos::known_place() {
        Some(pc) => Walk::back_to(pc, &regs, &machine),
        None => {
            let (skip, access) = chaos::accesses();
            Walk::behind(skip, access, &regs, &machine)
        }
    };
    *walk_now() = Some(walk);
    ACTIVE.store(1, Relaxed);
    act(t, uc, action);
}

/// Under chaos, the thread's timer is over.
pub fn ask_by_timer(t: &mut Block, uc: &mut Ucontext) {
    let s = session();
    if s.baton.load(Relaxed) != t.slot + 1 {
        return;
    }
    if ACTIVE.load(Relaxed) != 0 {
        return ask(t, uc);
    }
    if chaos::holds_back_the_others() {
        return chaos::begin_slice(t);
    }
    let generation = s.baton_generation.load(Relaxed);
    t.slot().cut_generation.store(generation, Relaxed);
    ask(t, uc);
    if ACTIVE.load(Relaxed) == 0 && s.baton.load(Relaxed) == t.slot + 1 {
        chaos::begin_slice(t);
    }
}

fn signal_waits(t: &Block) -> bool {
    t.pending.first(t.mask).is_some()
}

/// In a copy that runs an epoch again: may the epoch end for the thread in the middle of its code?
fn ends_epoch(t: &Block) -> bool {
    in_force::runs_epoch_again() && follow::part(t).computes_to_end()
}

/// The agent asks the thread to leave its slice, or says that time passes.
pub fn ask(t: &mut Block, uc: &mut Ucontext) {
    let s = session();
    if s.baton.load(Relaxed) != t.slot + 1 || crate::gate::ptrace::holds(t) {
        return;
    }
    if is_ours(uc.mc.rip) {
        // The next gate hands on.
        s.slice_over.store(1, Relaxed);
        return;
    }
    let code = code_now();
    let now = sys::monotonic().ns();
    let (regs, machine) = (
        registers(t, &uc.mc),
        Stopped {
            fpstate: uc.mc.fpstate,
            under: None,
        },
    );
    if let Some(walk) = walk_now() {
        let patience = match chaos::is_brief(walk) {
            true => chaos::BRIEF,
            false => PATIENCE,
        };
        let in_vain =
            now - code.waiting_since >= patience || now - code.waited_since >= PATIENCE_IN_ALL;
        if code.waiting_since != 0 && in_vain {
            chaos::forget(code.breakpoint);
            code.lift();
            let action = walk.on_timeout(&regs, &machine);
            act(t, uc, action);
        }
        return;
    }
    // A signal that comes late was meant for a slice that is over.
    let late = t.slot().cut_generation.load(Relaxed) != s.baton_generation.load(Relaxed);
    let wanted = s.ready_count.load(Relaxed) != 0 || signal_waits(t) || ends_epoch(t);
    if late || !wanted || s.xsave_size as usize > FP_LEN {
        return;
    }
    code.begun = now;
    let (mut walk, action) = Walk::begin(&regs, &machine);
    walk.look_closely();
    if baton::chaos() && baton::random() % 4 != 0 {
        let (skip, access) = chaos::accesses();
        walk.seek(skip, access);
    }
    *walk_now() = Some(walk);
    ACTIVE.store(1, Relaxed);
    act(t, uc, action);
}

/// A synchronous signal: true when it was our breakpoint.
pub fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
    if ACTIVE.load(Relaxed) == 0 || signal != SIGTRAP {
        return false;
    }
    let code = code_now();
    let at = uc.mc.rip.wrapping_sub(1);
    if code.breakpoint.is_none_or(|b| b.0 != at) {
        return false;
    }
    code.lift();
    code.waiting_since = 0;
    uc.mc.rip = at;
    let (regs, machine) = (
        registers(t, &uc.mc),
        Stopped {
            fpstate: uc.mc.fpstate,
            under: None,
        },
    );
    let Some(walk) = walk_now() else { return true };
    let action = walk.on_trap(&regs, &machine);
    act(t, uc, action);
    true
}

fn act(t: &mut Block, uc: &mut Ucontext, action: Action) {
    let code = code_now();
    match action {
        Action::PlantInt3(pc) => {
            if !code.plant(pc) {
                end(t);
            }
        }
        Action::RunUntilTrapOrTimeout(pc) => {
            if !code.plant(pc) {
                return end(t);
            }
            code.waiting_since = sys::monotonic().ns();
            if code.waited_since == 0 {
                code.waited_since = code.waiting_since;
            }
            t.slot().cut_waiting.store(1, Relaxed);
            if walk_now().as_ref().is_some_and(chaos::is_brief) {
                chaos::wait_briefly(t);
            }
        }
        Action::ReachedGate => {
            end(t);
            session().slice_over.store(1, Relaxed);
        }
        Action::GiveUp(_) => end(t),
        Action::Done(plan) => {
            end(t);
            cut(t, uc, &plan);
        }
    }
}

/// The thread is at a place with a name: the slice ends here.
fn cut(t: &mut Block, uc: &mut Ucontext, plan: &Plan) {
    let s = session();
    if s.ready_count.load(Relaxed) == 0 && !signal_waits(t) && !ends_epoch(t) {
        return;
    }
    log(t, uc, plan);
    s.counters.cuts.fetch_add(1, Relaxed);
    let took = (sys::monotonic().ns() - code_now().begun) as u64;
    s.counters.last_cut_ns.store(took, Relaxed);
    chaos::pay(took);
    t.slot().cut_spins.store(plan.spin.into(), Relaxed);
    t.spin().restart();
    t.cut().hooks.restart();
    if in_force::runs_epoch_again() {
        // Its code stays what the program's is, and signals are none of a copy's.
        t.traced().in_code = true;
        if plan.spin {
            left::one_waits_by_looking();
        }
        if ends_epoch(t) {
            follow::ends_in_code(t, uc, false);
        } else {
            follow::interrupt(t);
        }
        t.traced().in_code = false;
        uc.mc.rip = locked::moved_to(uc.mc.rip).unwrap_or(uc.mc.rip);
        return;
    }
    if plan.spin {
        spin::found_waiting(t, plan);
    }
    if signal_waits(t) {
        let mut frame = uc.mc.to_frame();
        let delivered = Record::deliver_pending(t, &mut frame, FpState::Saved(uc.mc.fpstate));
        kernel::block_all();
        if delivered {
            kernel::enter_from_kernel(t, uc, &frame);
        } else {
            uc.mask = kernel::kernel_mask(t, t.mask);
        }
    }
    t.cut().slice_began = processor_time();
    t.traced().in_code = true;
    Record::interrupt(t);
    t.traced().in_code = false;
    // What it stands at may be elsewhere now.
    uc.mc.rip = locked::moved_to(uc.mc.rip).unwrap_or(uc.mc.rip);
    if chaos::walks_on() && s.ready_count.load(Relaxed) != 0 {
        walk_behind_event(t, uc);
    }
}

fn log(t: &Block, uc: &Ucontext, plan: &Plan) {
    let mut name = Name::of(
        plan,
        &Stopped {
            fpstate: uc.mc.fpstate,
            under: None,
        },
        hash_of,
    );
    if !in_force::runs_epoch_again() {
        let memory = memory::hash_all();
        name.memory_hash = memory.sum;
        name.memory_bytes = memory.bytes;
        name.event = ring::event_number();
        session().counters.hashed.fetch_add(memory.bytes, Relaxed);
    }
    let mut bytes = [0; MAX_NAME];
    // A name always fits.
    let len = name.to_bytes(&mut bytes).unwrap_or(0);
    let ran = processor_time() - t.cut().slice_began;
    let (form, pc) = (plan.form as u32, plan.regs.rip as i64);
    events::with_section(
        Kind::Cut,
        t.slot,
        form,
        pc,
        &[ran as u64],
        Tag::State,
        &bytes[..len],
    );
}
