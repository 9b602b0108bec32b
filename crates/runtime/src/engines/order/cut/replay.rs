//! Replay: finds the place of a cut again, by a patch that lets all visits pass but those in the named state. All threads go through the patch,
//! but only the one that looks for the place has its registers, the stack pointer among them.

use super::patches::{self, Patch, Stop};
use super::room;
use crate::common::search::protection;
use crate::common::search::{allowed, find_room, lost};
use crate::common::stopped::{hash_of, is_ours, processor_time, registers, Stopped};
use crate::engines::order::replay::{faults, follow};
use crate::log::awaited::Looks;
use crate::log::debugger::{traces, CodeAsRecorded};
use crate::log::ring::{self, Reader};
use crate::log::total;
use crate::machine::guard;
use crate::memory;
use crate::memory::pages_of;
use crate::memory::space;
use crate::signal::frame::Ucontext;
use crate::thread::signals::SIGTRAP;
use crate::thread::{block_address, session, Block, STUB_CELL};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use reprise_abi::event::{EventHeader, Kind, Tag};
use reprise_abi::layout::USER_END;
use reprise_code::patchable::{classify, Form, Place, JUMP_LEN};
use reprise_place::check::{check, check_code, check_memory, check_own, Difference, Tests};
use reprise_place::name::{Name, MAX_NAME};
use reprise_place::stub::Spot;

/// Page protection.
const WRITE: u32 = 2;

/// A place that the thread looks for.
struct Sought {
    name: Name,
    patch: &'static Patch,
    /// What differed at the last visit that passed the tests.
    closest: Option<Difference>,
    /// Processor time of the thread when the search began, ...
    began: i64,
    /// ... and what the recorded one had used up to the place.
    recorded: i64,
    /// Visits that passed the tests, and weren't the one.
    stops: i64,
}

#[allow(clippy::mut_from_ref)]
fn sought(t: &Block) -> &mut Sought {
    // SAFETY: written when the search began; only the thread itself uses it.
    unsafe { &mut *room::<Sought>(t) }
}

/// Where the thread's rcx is while it is in a stub.
fn cell(t: &Block) -> u64 {
    block_address(t.slot) + STUB_CELL
}

/// The next event is a cut: its place is patched.
pub fn plant(t: &mut Block, h: EventHeader) {
    if t.order().walks {
        return;
    }
    let Some((name, args)) = name_in(h) else {
        lost(t, 0, None)
    };
    if crate::common::rebuilt::on() {
        lost(t, name.regs.rip, None);
    }
    let pc = name.regs.rip;
    if let Err(difference) = look_for(t, name, args[0]) {
        lost(t, pc, difference);
    }
}

fn is_cut(h: &EventHeader) -> bool {
    h.kind == Kind::Cut as u8
}

/// The next event is a fault: its place is patched. False: that can't be.
pub fn plant_fault(t: &mut Block, h: EventHeader) -> bool {
    match name_in(h).filter(|_| !crate::common::rebuilt::on()) {
        Some((name, args)) => look_for(t, name, args[3]).is_ok(),
        None => false,
    }
}

/// The name of the place that an event tells, and its arguments.
fn name_in(h: EventHeader) -> Option<(Name, [u64; 8])> {
    let mut r = Reader::begin(h);
    let args = r.args();
    let mut bytes = [0; MAX_NAME];
    let name = match r.section() {
        Some((_, len, tag)) if tag == Tag::State as u32 && len <= MAX_NAME => {
            r.to_buffer(len, &mut bytes);
            Name::parse(&bytes[..len]).ok()
        }
        _ => None,
    };
    let name = name.filter(|n| !is_ours(n.regs.rip) && n.regs.rip < USER_END)?;
    Some((name, args))
}

/// The thread looks for a place, at which the recorded one had used up so much processor time.
fn look_for(t: &mut Block, name: Name, recorded: u64) -> Result<(), Option<Difference>> {
    let patch = arm(t, &name)?;
    let sought = Sought {
        name,
        patch,
        closest: None,
        began: processor_time(),
        recorded: recorded.min(1 << 50) as i64,
        stops: 0,
    };
    // SAFETY: the thread's own room, which nothing else uses while it doesn't look for a place.
    unsafe { room::<Sought>(t).write(sought) };
    t.order().walks = true;
    t.slot().cut_waiting.store(1, Relaxed);
    Ok(())
}

fn arm(t: &Block, name: &Name) -> Result<&'static Patch, Option<Difference>> {
    let mut waits = None;
    loop {
        let removed = patches::REMOVED.load(SeqCst);
        let machine = Stopped {
            fpstate: 0,
            under: None,
        };
        let tests = Tests::of(name);
        let mut taken = false;
        let as_recorded = CodeAsRecorded::begin();
        // While another thread's patch lies there, the code looks otherwise.
        let pc = name.regs.rip;
        let look = || (check_code(name, &machine), classify(pc, &machine));
        let ((code, places), near) = patches::look(pc, look);
        // Whoever steps or sets breakpoints wants each instruction where it was.
        let fits = |p: &&Place| code.is_ok() && !(traces() && p.form == Form::Group);
        for place in places.iter().filter(fits) {
            let room = |place: &_| {
                let _lock = space::lock();
                find_room(place)
            };
            match patches::make(t.slot, place, tests.list(), room) {
                Some(Some(patch)) => return Ok(patch),
                Some(None) => taken = true,
                None => {}
            }
        }
        if !taken && !near {
            return Err(code.err());
        }
        drop(as_recorded);
        waits
            .get_or_insert_with(Looks::begin)
            .at(&patches::REMOVED, removed);
        total::let_others();
    }
}

/// The thread comes to its next event: the place, if one is looked for, was not found.
pub fn must_be_found(t: &Block) {
    if t.order().walks {
        let s = sought(t);
        lost(t, s.name.regs.rip, s.closest)
    }
}

/// A synchronous signal: true when it was due to a patch and is dealt with. A fault in a copy of the program's instructions is moved to
/// where the program has them.
pub fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
    if patches::are_none() {
        return false;
    }
    let code = CodeAsRecorded::begin();
    if signal == SIGTRAP {
        let at = uc.mc.rip.wrapping_sub(1);
        match patches::stop(at) {
            Stop::Strange => return false,
            Stop::Again => uc.mc.rip = at,
            Stop::Copied(copy) => {
                guard::write(cell(t), &uc.mc.rcx);
                uc.mc.rip = copy;
            }
            Stop::Passed(patch) => {
                let of_signal = ring::peek().is_some_and(|h| is_cut(&h));
                let found = visit(t, uc, patch);
                drop(code);
                match found {
                    true if of_signal => follow(t, uc),
                    true => faults::is_found(t),
                    false => {}
                }
            }
        }
        return true;
    }
    match patches::locate(uc.mc.rip) {
        Some((patch, Spot::Test)) => {
            uc.mc.rcx = guard::read(cell(t)).unwrap_or(0);
            uc.mc.rip = patch.resume();
            return true;
        }
        Some((_, Spot::Program(at))) => uc.mc.rip = at,
        Some((_, Spot::ProgramSaved(at))) => {
            uc.mc.rcx = guard::read(cell(t)).unwrap_or(0);
            uc.mc.rip = at;
        }
        Some((_, Spot::Trap)) | None => {}
    }
    false
}

/// A thread is at a place, and all tests passed: true when it is the one that is looked for.
fn visit(t: &mut Block, uc: &mut Ucontext, patch: &'static Patch) -> bool {
    let mine = t.order().walks && core::ptr::eq(sought(t).patch, patch);
    if !mine {
        uc.mc.rip = patch.resume();
        return false;
    }
    if let Err(difference) = judge(t, uc, patch) {
        session().counters.false_hits.fetch_add(1, Relaxed);
        sought(t).closest = Some(difference);
        sought(t).stops += 1;
        uc.mc.rip = patch.resume();
        return false;
    }
    patch.remove();
    t.order().walks = false;
    t.slot().cut_waiting.store(0, Relaxed);
    uc.mc.rip = patch.place.pc;
    if let Some(h) = ring::peek().filter(is_cut) {
        Reader::begin(h).finish();
    }
    session().counters.cuts.fetch_add(1, Relaxed);
    true
}

/// Is the thread in the named state?
fn judge(t: &Block, uc: &Ucontext, patch: &Patch) -> Result<(), Difference> {
    let mut regs = registers(t, &uc.mc);
    regs.rip = patch.place.pc;
    let machine = Stopped {
        fpstate: uc.mc.fpstate,
        under: Some(patch.under),
    };
    let name = &sought(t).name;
    check_own(name, &regs, &machine)?;
    if name.memory_bytes == 0 {
        return Ok(());
    }
    check(name, &regs, &machine, hash_of)?;
    let (first, len) = pages_of(regs.rip, JUMP_LEN as u64);
    let hidden = protection(first, len).is_some_and(|prot| prot & WRITE != 0);
    if hidden {
        patch.show(false);
    }
    let hash = memory::hash_all();
    if hidden {
        patch.show(true);
    }
    session().counters.hashed.fetch_add(hash.bytes, Relaxed);
    check_memory(name, hash.sum)
}

/// The driver says that time passes. In code without gates nothing else would tell that the place never comes.
pub fn ask(t: &Block, uc: &Ucontext) {
    // A debugger takes its time.
    if !t.order().walks || is_ours(uc.mc.rip) || traces() {
        return;
    }
    let s = sought(t);
    let allowed = allowed(&Tests::of(&s.name), s.recorded, s.stops);
    if processor_time() - s.began > allowed {
        t.slot().last_pc.store(uc.mc.rip, Relaxed);
        lost(t, s.name.regs.rip, s.closest);
    }
}
