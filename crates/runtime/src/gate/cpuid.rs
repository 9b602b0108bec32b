//! cpuid where the processor can't let it trap (AMD's before Zen 5, many hypervisors): the instruction is replaced by `int3` and a `nop`,
//! which are as long together, raise SIGTRAP, and are emulated from the session's table as a trapping cpuid would be (DESIGN 3, "else
//! patched cpuid sites"). (`ud2` would do, too, but hypervisors look at each: it costs three times as much.)
//!
//! Only code of the process's own modules ([`crate::code::modules`]) is looked through, when it is mapped, and none that can be written. The two
//! bytes of a cpuid may also be data, or the middle of another instruction; they are replaced only where the code is proven to have a cpuid:
//! decoding from the beginning of the function, which the module's table for unwinding tells ([`crate::code::functions`]), arrives there, or, where
//! there is no such table or function, control flow from where the module's code begins does ([`crate::code::reached`]). Each replacement is an
//! event, so that replay has the same code without having to prove anything. What may be a cpuid and isn't proven to be one stays as it is,
//! and answers as the processor does: the trace says in which files. Code that a program generates (a virtual machine's) isn't seen.

use crate::code::functions;
use crate::code::modules;
use crate::code::patch;
use crate::code::reached;
use crate::code::replaced::{remember, Was, TRAP};
use crate::code::searched::{self, Found, What};
use crate::code::seek;
use crate::engine::Engine;
use crate::machine::guard::{self, Program};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{self, Region};
use crate::thread::in_force;
use crate::thread::request;
use crate::thread::{session, Block};
use reprise_abi::event::Kind;
use reprise_abi::layout::PAGE;
use reprise_abi::session::request as requests;
use reprise_abi::session::{FLAG_CPUID_FAULTING, FLAG_CPUID_REPLACED};
use reprise_code::sweep::{self, Way};

/// The instruction.
const CPUID: [u8; 2] = [0x0f, 0xa2];
/// Most places of a mapping that may be one and are in no known function.
const MAX_UNKNOWN: usize = 256;
/// In their list: nothing more is to be found out about it.
const SETTLED: u64 = 0;

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
        let ours = modules::had_module(&r);
        look_through::<E>(t, &r, searched::initial_content(&r), ours);
    }
}

/// Looks through the code that a call has mapped, or made executable. `content`: hash of the file that was mapped, zeros where it isn't
/// known.
pub fn after_call<E: Engine>(t: &mut Block, c: &Call, result: i64, content: [u64; 2]) {
    let Some((at, len)) = memory::new_code(c, result).filter(|_| needed::<E>()) else {
        return;
    };
    let _code = crate::log::debugger::CodeAsRecorded::begin();
    let ours = modules::maps_module();
    for r in memory::without_hole(at, at.saturating_add(len)) {
        look_through::<E>(t, &r, [content[0], content[1], r.offset], ours);
    }
}

/// `ours`: it belongs to a module of this process.
fn look_through<E: Engine>(t: &mut Block, r: &Region, content: [u64; 3], ours: bool) {
    if !r.is_code() {
        return;
    }
    let (what, search): (What, fn(&Region, &mut Found)) = match ours && !r.is_writable() {
        true => (What::Cpuid, search),
        false => (What::Foreign, search_foreign),
    };
    let logged = E::LIVE && !in_force::is_none();
    // Only the holder of the baton may use what the session's processes share.
    let found = match logged {
        true => searched::found(r, content, what, CPUID.len(), search),
        false => {
            let mut found = Found::default();
            search(r, &mut found);
            found
        }
    };
    if logged && found.is_unsure() {
        let pid = crate::thread::process::kernel_pid() as u64;
        request::ask(requests::NATIVE_CPUID, &[pid, r.start]);
    }
    let sites = found.sites();
    let (Some(first), Some(last)) = (sites.iter().min(), sites.iter().max()) else {
        return;
    };
    // Once for all of them: to make a page writable costs more than all the rest.
    let first = first & !(PAGE - 1);
    let len = (last + CPUID.len() as u64 - first).next_multiple_of(PAGE);
    let opened = sys::mprotect(first, len, 3) == 0;
    for pc in sites {
        // Others have found them, in a file that may have changed since.
        let there = opened && guard::read::<[u8; 2]>(*pc) == Some(CPUID);
        if there && remember(*pc, Was::Cpuid) && guard::write_bytes(*pc, &TRAP) && logged {
            crate::log::events::plain(Kind::Patch, t.slot, patch::CPUID, 0, &[*pc, 0]);
        }
    }
    sys::mprotect(first, len, r.prot as u64);
}

/// Finds the cpuid instructions of a module's code.
fn search(r: &Region, found: &mut Found) {
    let functions = functions::around(r);
    let mut way = Way::default();
    let mut unknown = [0; MAX_UNKNOWN];
    let mut unknowns = 0;
    for pc in places(r) {
        let known = functions
            .as_ref()
            .and_then(|f| sweep::is_instruction(f, &mut way, pc));
        match known {
            Some(true) => found.add(pc),
            Some(false) => {}
            None if !is_likely(r.start, pc) => {}
            None => match unknown.get_mut(unknowns) {
                Some(place) => {
                    *place = pc;
                    unknowns += 1;
                }
                None => found.be_unsure(),
            },
        }
    }
    let unknown = &mut unknown[..unknowns];
    if unknown.is_empty() {
        return;
    }
    let Some(module) = functions::module_around(r) else {
        return found.be_unsure();
    };
    functions::of_entries(&module, r, |start, end| {
        for pc in unknown.iter_mut().filter(|pc| (start..end).contains(pc)) {
            if let Some(is_one) = sweep::arrives(&Program, start, *pc) {
                if is_one {
                    found.add(*pc);
                }
                *pc = SETTLED;
            }
        }
    });
    if unknown.iter().all(|pc| *pc == SETTLED) {
        return;
    }
    let walked = reached::with(&module, r, |reached| {
        for pc in unknown.iter().filter(|pc| **pc != SETTLED) {
            match reached(*pc) {
                true => found.add(*pc),
                false => found.be_unsure(),
            }
        }
    });
    if !walked {
        found.be_unsure();
    }
}

/// Finds out whether there may be a cpuid in what is no module's code.
fn search_foreign(r: &Region, found: &mut Found) {
    if places(r).any(|pc| is_likely(r.start, pc)) {
        found.be_unsure();
    }
}

/// The places that have the bytes.
fn places(r: &Region) -> impl Iterator<Item = u64> {
    let (mut at, end) = (r.start, r.end);
    core::iter::from_fn(move || {
        let pc = seek::find(at, end, CPUID)?;
        at = pc + 1;
        Some(pc)
    })
}

/// Does it look as if there were code around `pc`: does decoding arrive there wherever before it one begins, and prepare eax on the way? It
/// proves nothing; but where it doesn't, there is no cpuid.
fn is_likely(from: u64, pc: u64) -> bool {
    const FARTHEST: u64 = 96;
    const NEAREST: u64 = 48;
    const RAX: u8 = 0;
    let mut prepared = false;
    for back in NEAREST..FARTHEST {
        let Some(mut at) = pc.checked_sub(back).filter(|a| *a >= from) else {
            // Too near to the beginning to be told.
            return true;
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
