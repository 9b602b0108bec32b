//! Replay: finds the named place again, by a patch of the program's code that stops at it.

use super::restore_protection;
use crate::code::patch::{write_code, SPIN};
use crate::common::deliver::deliver;
use crate::common::search::allowed;
use crate::common::search::find_room;
use crate::common::search::lost;
use crate::common::search::protection;
use crate::common::stopped::{hash_of, is_ours, processor_time, registers, Stopped, Under};
use crate::engines::serial::processes;
use crate::engines::serial::replay::take_turn;
use crate::engines::serial::reread;
use crate::log::debugger;
use crate::log::ring::{self, Reader};
use crate::machine::guarded::Guarded;
use crate::machine::{guard, sys};
use crate::memory;
use crate::memory::pages_of;
use crate::signal::frame::{FpState, Ucontext};
use crate::signal::kernel;
use crate::sync::locked;
use crate::thread::leave::Baton;
use crate::thread::signals::{SIGSEGV, SIGTRAP};
use crate::thread::{current, session, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::{
    EventHeader, Instruction, Kind, Tag, ENDS_IN_CODE, YIELD_AFTER_INSTRUCTION,
};
use reprise_abi::layout::{PAGE, USER_END};
use reprise_code::decode::Insn;
use reprise_code::patchable::{classify, Form, Place, INT3, JUMP_LEN};
use reprise_code::regs::Regs;
use reprise_place::check::{check, check_code, check_memory, Difference, Tests, What};
use reprise_place::name::{Name, MAX_NAME};
use reprise_place::step::{next, Next};
use reprise_place::stub::{Cell, Spot, Stub};
use reprise_place::trace::Trace;

/// So many traps at inner boundaries of a [`Form::Group`] show that the program often goes on there.
const OFTEN: u32 = 64;

/// Page protections.
const WRITE: u32 = 2;
const READ_WRITE: u64 = 3;
const READ_EXEC: u64 = 5;
const ALL: u64 = 7;

/// A place that is looked for.
struct Sought {
    name: Name,
    tests: Tests,
    /// The patch, while it is in the code.
    patch: Option<Patch>,
    /// Pages (first byte, length) that the program can write and run: they are only ever made one of the two at a time, so
    /// that no code is patched before it is there, or changed under a patch.
    watched: Option<(u64, u64)>,
    /// Our breakpoint after an instruction that writes to its own pages, and the byte under it.
    step: Option<(u64, u8)>,
    /// Processor time when the search began.
    began: i64,
    /// Traps at inner boundaries of a patch.
    inner: u32,
    /// A patch that covers several instructions costs too much here.
    one_only: bool,
    /// Processor time that the recording took.
    recorded: i64,
    /// Processor time spent on hashes of memory.
    hashing: i64,
    stops: i64,
    /// What differed at the visit that was most alike.
    closest: Option<Difference>,
}

/// A patch that is in the code.
struct Patch {
    place: Place,
    stub: Stub,
    /// The loop that is in the stub.
    trace: Option<Trace>,
    under: Under,
    /// Memory of the stub and its save cell.
    pages: (u64, u64),
    cell: u64,
}

static SOUGHT: Guarded<Option<Sought>, Baton> = Guarded::new(None);

/// What is looked for.
fn sought_now() -> &'static mut Option<Sought> {
    // SAFETY: a place is looked for by the thread whose event is next, which has the baton; others' handlers ask first whose it is. Each reference is
    // dropped before the next is asked for.
    unsafe { SOUGHT.change() }
}

/// Plants the place of the next cut, when the next event is one of this thread; or says when the thread gives way, or is to come to the end of a hooked
/// function, when that is its next event.
pub fn plant_if_next(t: &mut Block) {
    let Some(h) = next_seen(t) else { return };
    if h.slot as u32 != t.slot {
        return;
    }
    if h.kind == Kind::Instruction as u8 && h.detail == Instruction::GaveWay as u32 {
        return t.spin().expect(h.value);
    }
    if h.kind == Kind::Instruction as u8 && h.detail == Instruction::HookEnded as u32 {
        return t.cut().hooks.expect(h.value);
    }
    if h.kind != Kind::Cut as u8 || sought_now().is_some() {
        return;
    }
    let _code = debugger::CodeAsRecorded::begin();
    let mut r = Reader::begin(h);
    let recorded = r.args()[0];
    let mut bytes = [0; MAX_NAME];
    let name = match r.section() {
        Some((_, len, tag)) if tag == Tag::State as u32 && len <= MAX_NAME => {
            r.to_buffer(len, &mut bytes);
            Name::parse(&bytes[..len]).ok()
        }
        _ => None,
    };
    let Some(name) = name.filter(|n| !is_ours(n.regs.rip) && n.regs.rip < USER_END) else {
        lost(t, 0, None)
    };
    let pc = name.regs.rip;
    *sought_now() = Some(Sought {
        tests: Tests::of(&name),
        name,
        patch: None,
        watched: None,
        step: None,
        began: processor_time(),
        recorded: recorded.min(1 << 50) as i64,
        hashing: 0,
        inner: 0,
        // Whoever steps or sets breakpoints wants each instruction where it was.
        one_only: debugger::traces(),
        stops: 0,
        closest: None,
    });
    t.slot().cut_waiting.store(1, Relaxed);
    let Some(sought) = sought_now() else { return };
    let (first, len) = pages_of(pc, JUMP_LEN as u64);
    let ok = match protection(first, len) {
        Some(prot) if prot & WRITE != 0 => {
            sought.watched = Some((first, len));
            sought.let_run()
        }
        Some(_) => sought.arm(),
        None => Err(None),
    };
    if let Err(difference) = ok {
        lost(t, pc, difference);
    }
}

impl Sought {
    /// Processor time that the search may take.
    fn allowed(&self) -> i64 {
        // A debugger may stop at every instruction.
        if debugger::traces() {
            return i64::MAX;
        }
        allowed(&self.tests, self.recorded, self.stops) + self.hashing
    }

    fn machine(&self, fpstate: u64) -> Stopped {
        Stopped {
            fpstate,
            under: self.patch.as_ref().map(|p| p.under),
        }
    }

    /// Patches the place.
    fn arm(&mut self) -> Result<(), Option<Difference>> {
        if self.patch.is_some() {
            return Ok(());
        }
        let machine = self.machine(0);
        check_code(&self.name, &machine).map_err(Some)?;
        let places = classify(self.name.regs.rip, &machine);
        for place in places
            .iter()
            .filter(|p| !self.one_only || p.form != Form::Group)
        {
            if let Some(patch) = Patch::make(place, &self.tests, &self.name.regs, &machine) {
                self.patch = Some(patch);
                return Ok(());
            }
        }
        Err(None)
    }

    /// Patches a single instruction instead of several, if that can be done without a trap at every visit.
    fn prefer_one(&mut self) {
        if let Some((first, len)) = self.watched {
            sys::mprotect(first, len, ALL);
        }
        self.disarm();
        self.one_only = true;
        if self.arm().is_err()
            || self
                .patch
                .as_ref()
                .is_some_and(|p| p.place.form == Form::Breakpoint)
        {
            self.disarm();
            self.one_only = false;
            let _ = self.arm();
        }
        if let Some((first, len)) = self.watched {
            sys::mprotect(first, len, READ_EXEC);
        }
    }

    fn disarm(&mut self) {
        if let Some(p) = self.patch.take() {
            p.remove();
        }
    }

    /// The watched pages may be run, not written; the place is patched if it is there.
    fn let_run(&mut self) -> Result<(), Option<Difference>> {
        let Some((first, len)) = self.watched else {
            return Ok(());
        };
        sys::mprotect(first, len, ALL);
        match self.arm() {
            // The program has yet to write its code.
            Ok(())
            | Err(Some(Difference {
                what: What::Code, ..
            })) => {}
            other => return other,
        }
        sys::mprotect(first, len, READ_EXEC);
        Ok(())
    }

    /// The watched pages may be written, not run.
    fn let_write(&mut self) {
        let Some((first, len)) = self.watched else {
            return;
        };
        sys::mprotect(first, len, ALL);
        self.disarm();
        sys::mprotect(first, len, READ_WRITE);
    }

    /// Takes everything out of the program's code.
    fn clean_up(&mut self) {
        if let Some((first, len)) = self.watched {
            sys::mprotect(first, len, ALL);
        }
        if let Some((at, old)) = self.step.take() {
            write_code(at, &[old]);
        }
        self.disarm();
        if let Some((first, len)) = self.watched.take() {
            restore_protection(first, len);
        }
    }

    /// Hash of the program's memory without our patch.
    fn memory(&mut self) -> u64 {
        let hidden = match &self.patch {
            Some(p) if self.watched.is_some() => Some((p.under, p.place.patch(p.stub.start()))),
            _ => None,
        };
        let write = |at, bytes: &[u8]| {
            if let Some((first, len)) = self.watched {
                sys::mprotect(first, len, ALL);
                guard::write_bytes(at, bytes);
                sys::mprotect(first, len, READ_EXEC);
            }
        };
        if let Some((under, _)) = hidden {
            write(under.at, &under.bytes[..under.len]);
        }
        let begun = processor_time();
        let hash = memory::hash_all();
        self.hashing += processor_time() - begun;
        session().counters.hashed.fetch_add(hash.bytes, Relaxed);
        if let Some((under, patch)) = hidden {
            write(under.at, &patch[..under.len]);
        }
        hash.sum
    }

    /// Is the thread, stopped at the place, in the named state?
    fn judge(&mut self, t: &Block, uc: &Ucontext, pc: u64) -> Result<(), Difference> {
        let mut regs = registers(t, &uc.mc);
        regs.rip = pc;
        check(&self.name, &regs, &self.machine(uc.mc.fpstate), hash_of)?;
        if self.name.memory_bytes == 0 {
            // It was named in a copy, in which marks of waiters may be others ([`crate::gate::epochs`]).
            return Ok(());
        }
        let actual = self.memory();
        check_memory(&self.name, actual)
    }
}

/// How much of the state was found equal before this difference.
fn likeness(d: &Difference) -> u32 {
    match d.what {
        What::Code | What::Pc => 0,
        What::Register(r) => 1 + r as u32,
        What::Flags | What::FsBase | What::GsBase => 20,
        What::Vector { index, .. } => 21 + index as u32,
        What::X87(i) => 37 + i as u32 / 4,
        What::Extended => 40,
        What::StackWord(_) => 41,
        What::Window => 42,
        What::Page(_) => 43,
        What::Memory => 44,
    }
}

/// A synchronous signal: true when it was due to our patch and is dealt with. A fault in a copy of the program's instructions is
/// moved to where the program has them.
pub fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
    let Some(sought) = sought_now() else {
        return false;
    };
    let code = debugger::CodeAsRecorded::begin();
    if signal == SIGTRAP {
        let stop = stopped(t, uc, sought);
        drop(code);
        if let Stop::Found(pc) = stop {
            found(t, uc, pc);
        }
        return !matches!(stop, Stop::Strange);
    }
    let pc = uc.mc.rip;
    if let Some(p) = &sought.patch {
        match p.stub.locate(pc) {
            Some(Spot::Test) => {
                uc.mc.rcx = guard::read(p.cell).unwrap_or(0);
                uc.mc.rip = p.stub.resume();
                sought.stops += 1;
                return true;
            }
            Some(Spot::Program(at)) => uc.mc.rip = at,
            Some(Spot::ProgramSaved(at)) => {
                uc.mc.rcx = guard::read(p.cell).unwrap_or(0);
                uc.mc.rip = at;
            }
            Some(Spot::Trap) | None => {}
        }
    }
    signal == SIGSEGV && watched_fault(t, uc, sought)
}

/// A fault of our own making on pages that the program both writes and runs?
fn watched_fault(t: &Block, uc: &mut Ucontext, sought: &mut Sought) -> bool {
    const ERR_WRITE: u64 = 2;
    const ERR_FETCH: u64 = 16;
    const PAGE_FAULT: u64 = 14;
    let Some((first, len)) = sought.watched else {
        return false;
    };
    let inside = |a: u64| a.wrapping_sub(first) < len;
    let c = &mut uc.mc;
    // A write may begin before the pages.
    if c.trapno != PAGE_FAULT || !(inside(c.cr2) || inside(c.cr2 + 63)) {
        return false;
    }
    sought.stops += 1;
    if c.err & ERR_FETCH != 0 {
        if let Err(difference) = sought.let_run() {
            lost(t, sought.name.regs.rip, difference);
        }
        return true;
    }
    if c.err & ERR_WRITE == 0 {
        return false;
    }
    sought.let_write();
    if inside(c.rip) {
        // Both at once, for one instruction.
        sys::mprotect(first, len, ALL);
        let machine = sought.machine(0);
        let to = Insn::at(c.rip, &machine).map(|i| next(&i, &registers(t, c), &machine));
        let Some(Next::At(to)) = to else { return true };
        let Some(old) = guard::read::<u8>(to) else {
            return true;
        };
        let written = if inside(to) {
            guard::write(to, &INT3)
        } else {
            write_code(to, &[INT3])
        };
        if written {
            sought.step = Some((to, old));
        }
    }
    true
}

/// What a breakpoint was.
enum Stop {
    /// Not ours.
    Strange,
    /// Ours; the program goes on.
    Dealt,
    /// The place at this address, in the named state.
    Found(u64),
}

fn stopped(t: &Block, uc: &mut Ucontext, sought: &mut Sought) -> Stop {
    let at = uc.mc.rip.wrapping_sub(1);
    if let Some((to, old)) = sought.step.filter(|s| s.0 == at) {
        sought.step = None;
        match sought.watched {
            Some((first, len)) if to.wrapping_sub(first) < len => {
                guard::write(to, &old);
            }
            _ => {
                write_code(to, &[old]);
            }
        }
        uc.mc.rip = to;
        if let Err(difference) = sought.let_run() {
            lost(t, sought.name.regs.rip, difference);
        }
        return Stop::Dealt;
    }
    let Some(p) = &sought.patch else {
        return Stop::Strange;
    };
    let pc = p.place.pc;
    if p.stub.locate(at) == Some(Spot::Trap) || (p.place.form == Form::Breakpoint && at == pc) {
        return if visit(t, uc, sought, pc) {
            Stop::Found(pc)
        } else {
            Stop::Dealt
        };
    }
    if at.wrapping_sub(pc) >= p.place.patch_len() as u64 || p.stub.copy_of(at).is_none() {
        return Stop::Strange;
    }
    sought.stops += 1;
    sought.inner += 1;
    if sought.inner == OFTEN {
        sought.prefer_one();
    }
    // Where the program's own instruction is still under the patch, its copy runs.
    uc.mc.rip = at;
    if let Some((p, copy)) = sought
        .patch
        .as_ref()
        .and_then(|p| Some((p, p.stub.copy_of(at)?)))
    {
        guard::write(p.cell, &uc.mc.rcx);
        uc.mc.rip = copy;
    }
    Stop::Dealt
}

/// The place was found.
fn found(t: &mut Block, uc: &mut Ucontext, pc: u64) {
    if let Some(sought) = sought_now() {
        let _code = debugger::CodeAsRecorded::begin();
        sought.clean_up();
    }
    *sought_now() = None;
    t.slot().cut_waiting.store(0, Relaxed);
    uc.mc.rip = pc;
    if let Some(h) = ring::peek() {
        Reader::begin(h).finish();
    }
    session().counters.cuts.fetch_add(1, Relaxed);
    t.spin().restart();
    t.cut().hooks.restart();
    follow(t, uc);
}

/// The thread is at the place: true when it is in the named state.
fn visit(t: &Block, uc: &mut Ucontext, sought: &mut Sought, pc: u64) -> bool {
    let Err(difference) = sought.judge(t, uc, pc) else {
        return true;
    };
    session().counters.false_hits.fetch_add(1, Relaxed);
    sought.stops += 1;
    if sought
        .closest
        .is_none_or(|c| likeness(&c) <= likeness(&difference))
    {
        sought.closest = Some(difference);
    }
    let machine = sought.machine(uc.mc.fpstate);
    let Some(p) = &mut sought.patch else {
        return false;
    };
    if p.place.form != Form::Breakpoint && sought.tests.learn(&sought.name, &machine) {
        let at = p.stub.start();
        let (tests, named) = (sought.tests.list(), &sought.name.regs);
        if let Ok(better) = Stub::best(at, Cell::At(p.cell), &p.place, tests, &p.trace, named) {
            if p.write(&better) {
                p.stub = better;
            }
        }
    }
    uc.mc.rip = p.stub.resume();
    false
}

/// The next event's header. A process that was killed ends here, where it comes to no other gate.
fn next_seen(t: &Block) -> Option<EventHeader> {
    loop {
        match ring::peek() {
            Some(h) if processes::is_found_dead(&h) => processes::reap(t, h),
            other => return other,
        }
    }
}

/// Outside of gates: others run, if an instruction was emulated, or a handler is about to run, and the event says so.
pub fn goes_on(t: &mut Block, uc: &mut Ucontext) {
    let yields = next_seen(t).filter(|h| {
        let goes_on = h.kind == Kind::Yield as u8 && h.detail == YIELD_AFTER_INSTRUCTION;
        let ends = h.is_end_of_epoch() && h.value == ENDS_IN_CODE;
        h.slot as u32 == t.slot && (goes_on || ends)
    });
    match yields {
        Some(_) => follow(t, uc),
        None => plant_if_next(t),
    }
}

/// After a cut: signals are delivered and others run, as the events say.
pub fn follow(t: &mut Block, uc: &mut Ucontext) {
    loop {
        let Some(h) = next_seen(t) else { return };
        if h.slot as u32 != t.slot {
            return;
        }
        match Kind::from_u8(h.kind) {
            Some(Kind::Signal) => {
                t.slot().last_pc.store(uc.mc.rip, Relaxed);
                let mut frame = uc.mc.to_frame();
                deliver(t, &mut frame, FpState::Saved(uc.mc.fpstate), h);
                kernel::enter_from_kernel(t, uc, &frame);
            }
            Some(Kind::Yield) if h.is_end_of_epoch() && h.value == ENDS_IN_CODE => {
                t.traced().in_code = true;
                reread::looks_in_code(t, h);
                t.traced().in_code = false;
            }
            // They have places of their own.
            _ if h.yields_elsewhere() => return,
            Some(Kind::Yield) => {
                t.traced().in_code = true;
                take_turn(t, h);
                t.traced().in_code = false;
                uc.mc.rip = locked::moved_to(uc.mc.rip).unwrap_or(uc.mc.rip);
            }
            Some(Kind::Patch) if h.detail == SPIN => {
                crate::common::rewriting::replay_with_code::<crate::engines::serial::replay::Replay>(
                    t,
                );
                // What the thread stands at may be elsewhere now.
                uc.mc.rip = locked::moved_to(uc.mc.rip).unwrap_or(uc.mc.rip);
            }
            _ => return plant_if_next(t),
        }
    }
}

/// The driver says that time passes.
pub fn ask(t: &Block, uc: &Ucontext) {
    if session().baton.load(Relaxed) != t.slot + 1 || is_ours(uc.mc.rip) {
        return;
    }
    let Some(sought) = sought_now() else {
        // A program that was killed while it computed comes to no gate at which that could be noticed.
        crate::engines::serial::replay::next(t);
        return;
    };
    if processor_time() - sought.began > sought.allowed() {
        t.slot().last_pc.store(uc.mc.rip, Relaxed);
        lost(t, sought.name.regs.rip, sought.closest);
    }
}

/// The thread has come to a gate, and was not found in the state that is looked for: where it came nearest to it, if it came to the place at all, that is what to say.
pub fn passed_by(t: &Block) {
    if let Some(sought) = sought_now().as_ref().filter(|s| s.closest.is_some()) {
        lost(t, sought.name.regs.rip, sought.closest);
    }
}

impl Patch {
    fn make(place: &Place, tests: &Tests, named: &Regs, machine: &Stopped) -> Option<Patch> {
        let (at, pages) = find_room(place)?;
        let cell = pages.0 + pages.1 - PAGE;
        // A loop that runs whole in the stub would pass by breakpoints.
        let trace = (!debugger::traces())
            .then(|| Trace::around(place, machine, is_fixed))
            .flatten();
        let mut patch = Stub::best(at, Cell::At(cell), place, tests.list(), &trace, named)
            .ok()
            .map(|stub| Patch {
                place: *place,
                stub,
                trace,
                under: Under {
                    at: place.pc,
                    bytes: [0; JUMP_LEN],
                    len: place.patch_len(),
                },
                pages,
                cell,
            });
        let ok = patch.as_mut().is_some_and(|p| p.plant());
        if !ok {
            sys::munmap(pages.0, pages.1);
            return None;
        }
        show_stub(pages);
        patch
    }

    fn plant(&mut self) -> bool {
        let len = self.under.len;
        guard::read_bytes(self.under.at, &mut self.under.bytes[..len])
            && self.write(&self.stub)
            && write_program(self.under.at, &self.place.patch(self.stub.start())[..len])
    }

    /// Writes the stub.
    fn write(&self, stub: &Stub) -> bool {
        let (first, len) = (self.pages.0, self.pages.1 - PAGE);
        sys::mprotect(first, len, READ_WRITE) == 0
            && guard::write_bytes(stub.start(), stub.code())
            && sys::mprotect(first, len, READ_EXEC) == 0
    }

    fn remove(self) {
        show_stub((0, 0));
        write_program(self.under.at, &self.under.bytes[..self.under.len]);
        sys::munmap(self.pages.0, self.pages.1);
    }
}

/// Tells a debugger where this thread's stub is.
fn show_stub((first, len): (u64, u64)) {
    let slot = current().slot();
    slot.stub_first.store(first, Relaxed);
    slot.stub_len.store(len, Relaxed);
}

/// The program can't write to this code of its own.
fn is_fixed(insn: &Insn) -> bool {
    let (first, len) = pages_of(insn.pc, insn.bytes().len() as u64);
    !is_ours(insn.pc) && protection(first, len).is_some_and(|prot| prot & WRITE == 0)
}

/// Writes the program's code; pages that the program can write are open already.
fn write_program(at: u64, bytes: &[u8]) -> bool {
    let (first, len) = pages_of(at, bytes.len() as u64);
    match protection(first, len) {
        Some(prot) if prot & WRITE != 0 => guard::write_bytes(at, bytes),
        Some(_) => write_code(at, bytes),
        None => false,
    }
}
