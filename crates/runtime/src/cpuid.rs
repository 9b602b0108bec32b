//! cpuid where the processor can't let it trap (AMD's before Zen 5, many hypervisors): the instruction is replaced by `ud2`, which is as
//! long, raises SIGILL, and is emulated from the session's table as a trapping cpuid would be (DESIGN 3, "else patched cpuid sites").
//!
//! Only code of files is looked through, when it is mapped. The two bytes of a cpuid may also be data, or the middle of another instruction;
//! they are replaced only where the code is proven to have a cpuid: decoding from the beginning of the function, which the module's table for
//! unwinding tells ([`crate::functions`]), arrives there. In modules without such a table (Go,
//! assembler) decoding from many places before it must arrive there, and find that eax is prepared. Each replacement is an event, so that
//! replay has the same code without having to prove anything. Code that a program generates (a virtual machine's) isn't seen.

use crate::capture::Call;
use crate::cut::decode::{decode, MAX_INSN};
use crate::engine::{Engine, ENGINE, NONE};
use crate::functions::Functions;
use crate::guard;
use crate::hash;
use crate::memory::{map, Region};
use crate::patch;
use crate::sys;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::event::Kind;
use reprise_abi::session::{
    region_flags, SearchedCode, FLAG_CPUID_FAULTING, FLAG_CPUID_REPLACED, MAX_SEARCHED_SITES,
};
use reprise_abi::syscalls::nr;

/// Most sites of a process.
const MAX_SITES: usize = 2048;
/// The instruction.
const CPUID: [u8; 2] = [0x0f, 0xa2];
/// What stands in its place.
const UD2: [u8; 2] = [0x0f, 0x0b];
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
    remember(pc) && patch::write_code(pc, &UD2)
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
        look_through::<E>(t, &r);
    }
}

/// Looks through the code that a call has mapped, or made executable.
pub fn after_call<E: Engine>(t: &mut Block, c: &Call, result: i64) {
    let mut at = match c.nr {
        nr::MMAP => result as u64,
        nr::MPROTECT => c.args[0],
        _ => return,
    };
    if !needed::<E>() || sys::is_error(result) || c.args[2] as u32 & PROT_EXEC == 0 {
        return;
    }
    let end = at.saturating_add(c.args[1]);
    while let Some(r) = map().at(at).filter(|_| at < end) {
        at = r.end;
        look_through::<E>(t, &r);
    }
}

fn look_through<E: Engine>(t: &mut Block, r: &Region) {
    let code = r.prot & PROT_EXEC != 0
        && r.flags & region_flags::FILE != 0
        && r.flags & (region_flags::SHARED | region_flags::VDSO) == 0;
    if !code {
        return;
    }
    let logged = E::LIVE && ENGINE.load(Relaxed) != NONE;
    let mut found = Found::default();
    // Only the holder of the baton may use what the session's processes share.
    let searched = if logged { Searched::of(r) } else { None };
    if !searched.as_ref().is_some_and(|s| s.tell(r, &mut found)) {
        search(r, &mut found);
        if let Some(s) = searched {
            s.remember(r, &found);
        }
    }
    if found.len == 0 {
        return;
    }
    // Once for all of them: to make a page writable costs more than all the rest.
    let opened = sys::call(nr::MPROTECT, &[r.start, r.end - r.start, 3]) == 0;
    for pc in &found.sites[..found.len] {
        if opened && remember(*pc) && guard::write_bytes(*pc, &UD2) && logged {
            crate::serial::events::plain(Kind::Patch, t.slot, patch::CPUID, 0, &[*pc, 0]);
        }
    }
    sys::call(nr::MPROTECT, &[r.start, r.end - r.start, r.prot as u64]);
}

/// Most cpuid instructions that are replaced in one mapping.
const MAX_FOUND: usize = 512;

/// Addresses of cpuid instructions.
struct Found {
    sites: [u64; MAX_FOUND],
    len: usize,
}

impl Default for Found {
    fn default() -> Found {
        Found {
            sites: [0; MAX_FOUND],
            len: 0,
        }
    }
}

impl Found {
    fn add(&mut self, pc: u64) {
        if let Some(s) = self.sites.get_mut(self.len) {
            *s = pc;
            self.len += 1;
        }
    }
}

/// Finds the cpuid instructions of a mapping.
fn search(r: &Region, found: &mut Found) {
    let functions = Functions::around(r);
    let mut way = Way::default();
    let mut at = r.start;
    while let Some(pc) = find(at, r.end) {
        at = pc + 1;
        let proven = match &functions {
            Some(f) => has_instruction(f, &mut way, pc),
            None => converges(r.start, pc),
        };
        if proven {
            found.add(pc);
        }
    }
}

/// The session's place for what was found in a piece of code. All programs of a tree begin with the same loader and the same libraries.
struct Searched {
    hash: u64,
    place: &'static SearchedCode,
}

impl Searched {
    /// The place of this code: its own, or one that is free.
    fn of(r: &Region) -> Option<Searched> {
        let len = (r.end - r.start) as usize;
        // SAFETY: guarded.
        let hash = guard::guarded(|| unsafe { hash::bytes(len as u64, r.start, len) })?.max(1);
        let place = session().searched.iter().find(|s| {
            let its = s.hash.load(Relaxed);
            its == hash || its == 0
        })?;
        Some(Searched { hash, place })
    }

    /// What is known of the code; false when nothing is.
    fn tell(&self, r: &Region, found: &mut Found) -> bool {
        let known = self.place.hash.load(Relaxed) == self.hash;
        if known {
            let n = self.place.len.load(Relaxed) as usize;
            let addresses = self.place.sites.iter().take(n);
            let addresses = addresses.map(|s| r.start + s.load(Relaxed) as u64);
            // Every process can scribble over the session.
            for pc in addresses.filter(|pc| pc + CPUID.len() as u64 <= r.end) {
                found.add(pc);
            }
        }
        known
    }

    fn remember(&self, r: &Region, found: &Found) {
        let fit = found.len <= MAX_SEARCHED_SITES && r.end - r.start <= u32::MAX as u64;
        if !fit || self.place.hash.load(Relaxed) != 0 {
            return;
        }
        for (to, pc) in self.place.sites.iter().zip(&found.sites[..found.len]) {
            to.store((pc - r.start) as u32, Relaxed);
        }
        self.place.len.store(found.len as u32, Relaxed);
        self.place.hash.store(self.hash, Relaxed);
    }
}

/// The next place in `from..to` that has the bytes of a cpuid.
fn find(from: u64, to: u64) -> Option<u64> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let mut at = from;
    guard::guarded(|| {
        while at + 1 < to {
            // Eight places at a time, where none of them has the second byte.
            while at + 9 <= to {
                // SAFETY: guarded, and inside the mapping.
                let word = unsafe { core::ptr::read_unaligned((at + 1) as *const u64) };
                let x = word ^ (ONES * CPUID[1] as u64);
                if x.wrapping_sub(ONES) & !x & HIGHS != 0 {
                    break;
                }
                at += 8;
            }
            for _ in 0..8 {
                if at + 1 >= to {
                    return None;
                }
                // SAFETY: as above.
                if unsafe { core::ptr::read_unaligned(at as *const [u8; 2]) } == CPUID {
                    return Some(at);
                }
                at += 1;
            }
        }
        None
    })
    .flatten()
}

/// The address after the instruction at `pc`, and whether it writes eax.
fn step(pc: u64) -> Option<(u64, bool)> {
    let mut code = [0u8; MAX_INSN];
    let mut n = MAX_INSN;
    // The last instruction of a mapping may be shorter than the longest.
    while n > 0 && !guard::read_bytes(pc, &mut code[..n]) {
        n -= 1;
    }
    let i = decode(pc, &code[..n])?;
    const RAX: u8 = 0;
    Some((i.end(), i.writes(RAX)))
}

/// Where a function was decoded up to: the next candidate in it goes on from there.
#[derive(Default)]
struct Way {
    function: u64,
    at: u64,
}

/// Does decoding from the function's beginning arrive at `pc`?
fn has_instruction(functions: &Functions, way: &mut Way, pc: u64) -> bool {
    let Some(function) = functions.function_of(pc) else {
        return false;
    };
    if way.function != function || way.at > pc {
        *way = Way {
            function,
            at: function,
        };
    }
    while way.at < pc {
        match step(way.at) {
            Some((next, _)) => way.at = next,
            // Not code as far as that: the next candidate begins anew.
            None => way.at = u64::MAX,
        }
    }
    way.at == pc
}

/// Does decoding arrive at `pc`, wherever before it one begins, and prepare eax on the way?
fn converges(from: u64, pc: u64) -> bool {
    const FARTHEST: u64 = 96;
    const NEAREST: u64 = 48;
    let mut prepared = false;
    for back in NEAREST..FARTHEST {
        let Some(mut at) = pc.checked_sub(back).filter(|a| *a >= from) else {
            return false;
        };
        while at < pc {
            match step(at) {
                Some((next, writes)) => {
                    at = next;
                    prepared |= writes;
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
