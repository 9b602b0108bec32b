//! cpuid where the processor can't let it trap (AMD's before Zen 5, many hypervisors): the instruction is replaced by `int3` and a `nop`,
//! which are as long together, raise SIGTRAP, and are emulated from the session's table as a trapping cpuid would be (DESIGN 3, "else
//! patched cpuid sites"). (`ud2` would do, too, but hypervisors look at each: it costs three times as much.)
//!
//! Only code of files is looked through, when it is mapped. The two bytes of a cpuid may also be data, or the middle of another instruction;
//! they are replaced only where the code is proven to have a cpuid: decoding from the beginning of the function, which the module's table for
//! unwinding tells ([`crate::functions`]), arrives there. In modules without such a table (Go,
//! assembler) decoding from many places before it must arrive there, and find that eax is prepared. Each replacement is an event, so that
//! replay has the same code without having to prove anything. Code that a program generates (a virtual machine's) isn't seen.

use crate::capture::Call;
use crate::engine::{Engine, ENGINE, NONE};
use crate::functions::Functions;
use crate::guard;
use crate::memory::{self, Region};
use crate::patch;
use crate::replaced::{remember, Was, TRAP};
use crate::searched::{self, Found, What};
use crate::seek::{self, Way};
use crate::sys;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::Kind;
use reprise_abi::layout::PAGE;
use reprise_abi::session::{FLAG_CPUID_FAULTING, FLAG_CPUID_REPLACED};
use reprise_abi::syscalls::nr;

/// The instruction.
const CPUID: [u8; 2] = [0x0f, 0xa2];

/// Are the instructions to be found and replaced here? Not where the processor helps, nor in a replay whose trace names them.
fn needed<E: Engine>() -> bool {
    let wanted = if E::LIVE { 0 } else { FLAG_CPUID_REPLACED };
    session().flags & (FLAG_CPUID_FAULTING | FLAG_CPUID_REPLACED) == wanted
}

/// Looks through the code that a program has at its first instruction.
pub fn start<E: Engine>(t: &mut Block) {
    if !needed::<E>() {
        return;
    }
    for r in memory::each() {
        look_through::<E>(t, &r, searched::initial_content(&r));
    }
}

/// Looks through the code that a call has mapped, or made executable. `content`: hash of the file that was mapped, zeros where it isn't
/// known.
pub fn after_call<E: Engine>(t: &mut Block, c: &Call, result: i64, content: [u64; 2]) {
    let Some((at, len)) = memory::new_code(c, result).filter(|_| needed::<E>()) else {
        return;
    };
    let _code = crate::debugger::CodeAsRecorded::begin();
    for r in memory::without_hole(at, at.saturating_add(len)) {
        look_through::<E>(t, &r, [content[0], content[1], r.offset]);
    }
}

fn look_through<E: Engine>(t: &mut Block, r: &Region, content: [u64; 3]) {
    if !r.is_code() {
        return;
    }
    let logged = E::LIVE && ENGINE.load(Relaxed) != NONE;
    // Only the holder of the baton may use what the session's processes share.
    let found = match logged {
        true => searched::found(r, content, What::Cpuid, CPUID.len(), search),
        false => {
            let mut found = Found::default();
            search(r, &mut found);
            found
        }
    };
    let sites = found.sites();
    let (Some(first), Some(last)) = (sites.iter().min(), sites.iter().max()) else {
        return;
    };
    // Once for all of them: to make a page writable costs more than all the rest.
    let first = first & !(PAGE - 1);
    let len = (last + CPUID.len() as u64 - first).next_multiple_of(PAGE);
    let opened = sys::call(nr::MPROTECT, &[first, len, 3]) == 0;
    for pc in sites {
        // Others have found them, in a file that may have changed since.
        let there = opened && guard::read::<[u8; 2]>(*pc) == Some(CPUID);
        if there && remember(*pc, Was::Cpuid) && guard::write_bytes(*pc, &TRAP) && logged {
            crate::serial::events::plain(Kind::Patch, t.slot, patch::CPUID, 0, &[*pc, 0]);
        }
    }
    sys::call(nr::MPROTECT, &[first, len, r.prot as u64]);
}

/// Finds the cpuid instructions of a mapping.
fn search(r: &Region, found: &mut Found) {
    let functions = Functions::around(r);
    let mut way = Way::default();
    let mut at = r.start;
    while let Some(pc) = seek::find(at, r.end, CPUID) {
        at = pc + 1;
        let proven = match &functions {
            Some(f) => seek::is_instruction(f, &mut way, pc) == Some(true),
            None => converges(r.start, pc),
        };
        if proven {
            found.add(pc);
        }
    }
}

/// Does decoding arrive at `pc`, wherever before it one begins, and prepare eax on the way?
fn converges(from: u64, pc: u64) -> bool {
    const FARTHEST: u64 = 96;
    const NEAREST: u64 = 48;
    const RAX: u8 = 0;
    let mut prepared = false;
    for back in NEAREST..FARTHEST {
        let Some(mut at) = pc.checked_sub(back).filter(|a| *a >= from) else {
            return false;
        };
        while at < pc {
            match seek::instruction(at) {
                Some(i) => {
                    at = i.end();
                    prepared |= i.writes(RAX);
                }
                // The middle of an instruction need not be one.
                None => at += 1,
            }
        }
        if at != pc {
            return false;
        }
    }
    prepared
}
