//! Functions in which a replay once left its path: their plain loads are recorded as values (Castor 3.8, "instrument the racy access").
//!
//! What other threads store there is ordered by nobody. So the value itself goes into the log, when it is not the one that the thread saw last,
//! and a replay takes it from there. It also waits a little until memory has that value: then whoever stored it has stored what belongs to
//! it before.

use super::operation::{Operation, Segment};
use crate::code::functions;
use crate::log::total;
use crate::machine::guard::{self, Program};
use crate::memory::map;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::learned::Code;
use reprise_abi::session::region_flags;
use reprise_code::decode::{Flow, Insn};
use reprise_code::elf::Module;

/// Bytes of stack that are searched for where functions return to.
const STACK: u64 = 16 * 1024;
/// Bytes below the stack pointer, where functions that have just returned have left theirs.
const DEAD_STACK: u64 = 1024;
/// Most functions that are proposed of those that the thread was in, ...
const MAX_PROPOSED: usize = 24;
/// ... and with those that they call.
const MAX_WITH_CALLED: usize = 64;

/// The learned code of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learned {
    module: u64,
    base: u64,
}

/// What of a function's loads is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loads {
    /// Nothing.
    None,
    /// Some of them.
    Some(Learned),
    /// All of them.
    All,
}

impl Learned {
    /// That of a module, if there is any.
    pub fn of(module: &Module) -> Option<Learned> {
        session().learned.all().next()?;
        let own = Learned {
            module: module.build_id(&Program)?,
            base: module.base,
        };
        let mut all = session().learned.all();
        all.any(|(c, _)| c.module == own.module).then_some(own)
    }

    /// What is recorded of the function at this address.
    pub fn loads(&self, start: u64) -> Loads {
        let function = start.wrapping_sub(self.base);
        let mut found = Loads::None;
        for (c, _) in session().learned.all() {
            if (c.module, c.function) == (self.module, function) {
                match c.load {
                    0 => return Loads::All,
                    _ => found = Loads::Some(*self),
                }
            }
        }
        found
    }

    /// Is the load at this address recorded by itself?
    pub fn holds(&self, pc: u64) -> bool {
        let load = pc.wrapping_sub(self.base);
        let mut all = session().learned.all();
        all.any(|(c, _)| (c.module, c.load) == (self.module, load))
    }
}

/// Is this a load whose value can be recorded: of 1 to 8 bytes, by an instruction that loads once and stores nothing?
pub fn is_load(i: &Insn) -> bool {
    let Some(o) = Operation::of_load(i) else {
        return false;
    };
    let names_segment = |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e);
    o.segment == Segment::Flat
        && matches!(i.memory_size(), 1 | 2 | 4 | 8)
        && !i.bytes()[..o.modrm].iter().any(names_segment)
}

/// A replay left its path: proposes the functions that the thread is in, those that it left last, and what those of them call that are learned
/// already. libc's own are no use, its callers know what
/// they share; and of ld.so's it is nobody's order which thread calls them.
///
/// `lately`: words that lay on its stack before.
pub fn propose(t: &Block, pc: u64, lately: impl Iterator<Item = u64>) {
    let mut proposals = Proposals::default();
    proposals.add(pc);
    let below = t.program_sp.saturating_sub(DEAD_STACK);
    let stack = (below..t.program_sp.saturating_add(STACK)).step_by(8);
    let on_stack = stack.map_while(guard::read::<u64>);
    for word in on_stack.chain(lately) {
        if is_behind_a_call(word) && proposals.n < MAX_PROPOSED {
            proposals.add(word - 1);
        }
    }
    // A function whose own loads were recorded was misled by one that it had called, and that may have left nothing on the stack.
    for i in 0..proposals.n {
        let caller = proposals.functions[i];
        if is_learned(caller) {
            each_called(caller, |called| proposals.add(called));
        }
    }
}

/// Were all loads of the function that begins here recorded?
fn is_learned(start: u64) -> bool {
    let code = code_at(start).map(|(code, ..)| code);
    let mut all = session().learned.all();
    code.is_some_and(|code| all.any(|(c, _)| c == code))
}

/// The functions that the one at `start` calls by name, also those of other modules.
fn each_called(start: u64, mut found: impl FnMut(u64)) {
    let functions = map().at(start).and_then(|r| functions::around(&r));
    let Some(end) = functions.and_then(|f| f.end_of(start)) else {
        return;
    };
    let mut pc = start;
    while pc < end {
        let Some(i) = Insn::at(pc, &Program) else {
            pc += 1;
            continue;
        };
        pc = i.end();
        let called = match i.flow {
            Flow::Call(to) => Some(to),
            // A call that the function ends with.
            Flow::Jump(to) if !(start..end).contains(&to) => Some(to),
            Flow::CallIndirect => i.rip_target().and_then(guard::read),
            _ => None,
        };
        if let Some(to) = called {
            found(behind_linkage(to));
        }
    }
}

/// Where a call of an entry of the procedure linkage table leads (System V ABI for x86-64, 5.2); of any other place, the place itself.
fn behind_linkage(to: u64) -> u64 {
    let mut pc = to;
    for _ in 0..2 {
        let Some(i) = Insn::at(pc, &Program) else {
            break;
        };
        match (i.flow, i.rip_target()) {
            (Flow::JumpIndirect, Some(word)) => return guard::read(word).unwrap_or(to),
            // Entries may begin with an `endbr64`.
            (Flow::Next, None) => pc = i.end(),
            _ => break,
        }
    }
    to
}

/// What of a thread has been proposed.
struct Proposals {
    functions: [u64; MAX_WITH_CALLED],
    n: usize,
}

impl Default for Proposals {
    fn default() -> Proposals {
        Proposals {
            functions: [0; MAX_WITH_CALLED],
            n: 0,
        }
    }
}

impl Proposals {
    /// Proposes the function that this address is in.
    fn add(&mut self, pc: u64) {
        let found = code_at(pc).filter(|(.., is_libc)| !is_libc);
        let new = found.filter(|(_, start, _)| !self.functions[..self.n].contains(start));
        if let (Some((code, start, _)), true) = (new, self.n < MAX_WITH_CALLED) {
            session().divergence.functions.add(code, start);
            self.functions[self.n] = start;
            self.n += 1;
        }
    }
}

/// The function that `pc` is in, its address, and whether it is libc's or ld.so's.
fn code_at(pc: u64) -> Option<(Code, u64, bool)> {
    let region = map().at(pc)?;
    let functions = functions::around(&region)?;
    let module = &functions.module;
    let start = functions.function_of(pc)?;
    let code = Code {
        module: module.build_id(&Program)?,
        function: start.wrapping_sub(module.base),
        load: 0,
    };
    Some((code, start, crate::sync::hook::is_libc(&region)))
}

/// Replay: the load at `pc` found another value than the recorded one.
fn note_race(pc: u64) {
    let list = &session().raced;
    if list.all().any(|(_, at)| at == pc) {
        return;
    }
    if let Some((code, start, _)) = code_at(pc) {
        let load = pc - start + code.function;
        list.add(Code { load, ..code }, pc);
    }
}

/// Is this an address in a file's code, with a call in front of it?
pub(crate) fn is_behind_a_call(pc: u64) -> bool {
    const EXEC: u32 = 4;
    let is_code =
        |r: &crate::memory::Region| r.prot & EXEC != 0 && r.flags & region_flags::FILE != 0;
    if !map().at(pc).is_some_and(|r| is_code(&r)) {
        return false;
    }
    let Some(before) = guard::read::<[u8; 7]>(pc.wrapping_sub(7)) else {
        return false;
    };
    // call rel32; call through a register or memory, with each length that its operand can have.
    let through = |n: usize| before[7 - n] == 0xff && before[8 - n] >> 3 & 7 == 2;
    before[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(through)
}

/// How many looks a replay waits for a value to come that may have been there already: fewer where it waited for nothing.
static PATIENCE: [AtomicU32; 256] = [const { AtomicU32::new(LONGEST) }; 256];
const LONGEST: u32 = 1 << 16;
const SHORTEST: u32 = 16;
/// Looks for a value when memory still has the one that the thread saw before: whoever changes it is yet to come.
const PATIENT: u32 = 1 << 24;
/// Looks between two turns of others.
const LOOKS: u32 = 256;

/// Replay: the load at `pc` takes a value that the thread knows. Had memory another one?
pub fn check_known(pc: u64, address: u64, size: usize, value: u64) {
    if guard::read_word(address, size) != Some(value) {
        note_race(pc);
    }
}

/// Replay: waits until memory has the recorded value, or for a while. `pc`: the load. `before`: what the thread saw there last.
pub fn await_value(pc: u64, address: u64, size: usize, before: Option<u64>, value: u64) {
    if guard::read_word(address, size) == Some(value) {
        return;
    }
    note_race(pc);
    let patience = &PATIENCE[(pc >> 1) as usize % PATIENCE.len()];
    let limit = patience.load(Relaxed);
    let (mut n, mut waited) = (0, 0);
    let found = loop {
        let now = guard::read_word(address, size);
        if now == Some(value) {
            break true;
        }
        waited += 1;
        if now != before {
            n += 1;
        }
        if n >= limit || waited >= PATIENT {
            break false;
        }
        if waited % LOOKS == 0 {
            total::let_others();
            if total::all_wait() {
                break false;
            }
        }
        core::hint::spin_loop();
    };
    if n != 0 {
        let next = if found { 2 * limit } else { limit / 2 };
        patience.store(next.clamp(SHORTEST, LONGEST), Relaxed);
    }
    if total::runs() {
        // This was no wait for the last of all.
        total::goes_on();
    }
}
