//! Functions in which a replay once left its path: their plain loads are recorded as values (Castor 3.8, "instrument the racy access").
//!
//! What other threads store there is ordered by nobody. So the value itself goes into the log, when it is not the one that the thread saw last,
//! and a replay takes it from there. It also waits a little until memory has that value: then whoever stored it has stored what belongs to
//! it before.

use super::operation::{Operation, Segment};
use super::thread_id::ThreadId;
use crate::cut::decode::Insn;
use crate::elf::Module;
use crate::functions::Functions;
use crate::guard::{self, Program};
use crate::memory::map;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::learned::FunctionId;
use reprise_abi::session::region_flags;

/// Bytes of stack that are searched for where functions return to.
const STACK: u64 = 16 * 1024;
/// Most functions that are proposed.
const MAX_PROPOSED: usize = 12;

/// What is known of a module's functions.
#[derive(Clone, Copy)]
pub struct Learned {
    module: u64,
    base: u64,
}

impl Learned {
    /// Those of a module, if any were learned.
    pub fn of(module: &Module) -> Option<Learned> {
        session().learned.all().next()?;
        let id = module.build_id(&Program)?;
        session()
            .learned
            .all()
            .any(|(f, _)| f.module == id)
            .then_some(Learned {
                module: id,
                base: module.base,
            })
    }

    /// Is the function at this address among them?
    pub fn holds(&self, start: u64) -> bool {
        let offset = start.wrapping_sub(self.base);
        let mut all = session().learned.all();
        all.any(|(f, _)| f.module == self.module && f.offset == offset)
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

/// A replay left its path: proposes the functions that the thread was in. libc's own are no use, its callers know what they share.
pub fn propose(t: &Block) {
    let list = &session().divergence.functions;
    let mut n = 0;
    let mut last = 0;
    let pc = t.slot().last_pc.load(Relaxed);
    propose_one(pc, list, &mut n, &mut last);
    for at in (t.program_sp..t.program_sp.saturating_add(STACK)).step_by(8) {
        let Some(pc) = guard::read::<u64>(at) else {
            return;
        };
        if n == MAX_PROPOSED {
            return;
        }
        if is_behind_a_call(pc) {
            propose_one(pc - 1, list, &mut n, &mut last);
        }
    }
}

fn propose_one(pc: u64, list: &reprise_abi::learned::Functions, n: &mut usize, last: &mut u64) {
    let found = map().at(pc).and_then(|region| {
        let functions = Functions::around(&region)?;
        if ThreadId::of(&functions.module).is_some() {
            return None;
        }
        let start = functions.function_of(pc)?;
        let id = FunctionId {
            module: functions.module.build_id(&Program)?,
            offset: start.wrapping_sub(functions.module.base),
        };
        Some((id, start))
    });
    if let Some((id, start)) = found.filter(|(_, start)| start != last) {
        list.add(id, start);
        *last = start;
        *n += 1;
    }
}

/// Is this an address in a file's code, with a call in front of it?
fn is_behind_a_call(pc: u64) -> bool {
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

/// How long a replay waits for a value to come, in looks: less where it waited for nothing.
static PATIENCE: [AtomicU32; 256] = [const { AtomicU32::new(LONGEST) }; 256];
const LONGEST: u32 = 1 << 16;
const SHORTEST: u32 = 16;
/// Looks between two turns of others.
const LOOKS: u32 = 256;

/// Replay: waits until memory has the recorded value, or for a while.
pub fn await_value(address: u64, size: usize, value: u64) {
    let patience = &PATIENCE[(address >> 3) as usize % PATIENCE.len()];
    let limit = patience.load(Relaxed);
    for n in 1..=limit {
        if read(address, size) == Some(value) {
            if n > 1 {
                patience.store((2 * limit).min(LONGEST), Relaxed);
            }
            return;
        }
        if n % LOOKS == 0 {
            crate::order::total::let_others();
        }
        core::hint::spin_loop();
    }
    patience.store((limit / 2).max(SHORTEST), Relaxed);
}

/// A word of the program's, of 1, 2, 4 or 8 bytes.
pub fn read(address: u64, size: usize) -> Option<u64> {
    let mut v = 0;
    // SAFETY: guarded; each is one load, as the program's is.
    guard::guarded(|| unsafe {
        v = match size {
            1 => (address as *const u8).read_volatile() as u64,
            2 => (address as *const u16).read_unaligned() as u64,
            4 => (address as *const u32).read_unaligned() as u64,
            _ => (address as *const u64).read_unaligned(),
        };
    })
    .map(|()| v)
}
