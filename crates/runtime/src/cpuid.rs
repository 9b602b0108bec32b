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
use crate::memory::{map, Region};
use crate::patch;
use crate::searched::{self, Found, Searched, What};
use crate::seek::{self, Way};
use crate::sys;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::event::Kind;
use reprise_abi::layout::PAGE;
use reprise_abi::session::{region_flags, FLAG_CPUID_FAULTING, FLAG_CPUID_REPLACED};
use reprise_abi::syscalls::nr;

/// Most sites of a process.
const MAX_SITES: usize = 2048;
/// The instruction.
const CPUID: [u8; 2] = [0x0f, 0xa2];
/// What stands in its place: `int3`, and the rest of the instruction.
const TRAP: [u8; 2] = [0xcc, 0x90];
const PROT_EXEC: u32 = 4;

static SITES: [AtomicU64; MAX_SITES] = [const { AtomicU64::new(0) }; MAX_SITES];
static LEN: AtomicUsize = AtomicUsize::new(0);

/// Was the cpuid at this address replaced?
pub fn is_site(pc: u64) -> bool {
    sites().any(|s| s.load(Relaxed) == pc)
}

fn sites() -> impl Iterator<Item = &'static AtomicU64> {
    SITES[..LEN.load(Relaxed).min(MAX_SITES)].iter()
}

/// Are the instructions to be found and replaced here? Not where the processor helps, nor in a replay whose trace names them.
fn needed<E: Engine>() -> bool {
    let wanted = if E::LIVE { 0 } else { FLAG_CPUID_REPLACED };
    session().flags & (FLAG_CPUID_FAULTING | FLAG_CPUID_REPLACED) == wanted
}

/// Something else lies there now.
pub fn forget(start: u64, end: u64) {
    for s in sites() {
        if (start..end).contains(&s.load(Relaxed)) {
            s.store(0, Relaxed);
        }
    }
}

/// Replaces the instruction at `pc` and remembers it.
pub fn replace(pc: u64) -> bool {
    remember(pc) && patch::write_code(pc, &TRAP)
}

fn remember(pc: u64) -> bool {
    let free = sites().position(|s| s.load(Relaxed) == 0);
    let i = free.unwrap_or_else(|| LEN.fetch_add(1, Relaxed));
    if i >= MAX_SITES {
        LEN.store(MAX_SITES, Relaxed);
        return false;
    }
    SITES[i].store(pc, Relaxed);
    true
}

/// Looks through the code that a program has at its first instruction.
pub fn start<E: Engine>(t: &mut Block) {
    if !needed::<E>() {
        return;
    }
    let mut at = 0;
    while let Some(r) = map().regions().iter().find(|r| r.start >= at).copied() {
        at = r.end;
        look_through::<E>(t, &r, searched::initial_content(&r));
    }
}

/// Looks through the code that a call has mapped, or made executable. `content`: hash of the file that was mapped, zeros where it isn't
/// known.
pub fn after_call<E: Engine>(t: &mut Block, c: &Call, result: i64, content: [u64; 2]) {
    let mut at = match c.nr {
        nr::MMAP => result as u64,
        nr::MPROTECT => c.args[0],
        _ => return,
    };
    if !needed::<E>() || sys::is_error(result) || c.args[2] as u32 & PROT_EXEC == 0 {
        return;
    }
    let _code = crate::debugger::CodeAsRecorded::begin();
    let end = at.saturating_add(c.args[1]);
    while let Some(r) = map().at(at).filter(|_| at < end) {
        at = r.end;
        look_through::<E>(t, &r, [content[0], content[1], r.offset]);
    }
}

fn look_through<E: Engine>(t: &mut Block, r: &Region, content: [u64; 3]) {
    let code = r.prot & PROT_EXEC != 0
        && r.flags & region_flags::FILE != 0
        && r.flags & (region_flags::SHARED | region_flags::VDSO) == 0;
    if !code {
        return;
    }
    let logged = E::LIVE && ENGINE.load(Relaxed) != NONE;
    let mut found = Found::default();
    // Only the holder of the baton may use what the session's processes share.
    let searched = if logged {
        Searched::of(r, content, What::Cpuid)
    } else {
        None
    };
    if !searched
        .as_ref()
        .is_some_and(|s| s.tell(r, CPUID.len(), &mut found))
    {
        search(r, &mut found);
        if let Some(s) = searched {
            s.remember(r, &found);
        }
    }
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
        if there && remember(*pc) && guard::write_bytes(*pc, &TRAP) && logged {
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
