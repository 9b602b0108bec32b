//! All that is to be ordered in a mapping of code.

use super::learned::{Learned, Loads};
use super::memo::Known;
use super::missed;
use super::table::Table;
use super::thread_id::ThreadId;
use super::units::{Function, How, Unit, Waits, Work, PAUSE};
use crate::code::functions::{self, Functions};
use crate::code::patch;
use crate::code::seek;
use crate::machine::guard;
use crate::memory::scratch;
use crate::memory::Region;
use crate::sync::hook::left_out;
use crate::thread::session;
use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::hooks;
use reprise_code::decode::Flow;
use reprise_code::sweep::{self, Way};

/// Most units of one module.
const MAX_UNITS: usize = 1 << 16;
/// Most functions of one module that have units.
const MAX_FUNCTIONS: usize = MAX_UNITS;
/// Most words of one module.
const MAX_WORDS: usize = 1 << 14;

/// Bytes of code that [`Near`] takes together.
const STRETCH: u64 = 16;

/// The units of the module that is being looked at.
pub static UNITS: Table<Unit> = Table::new();
/// The numbers of its functions that have sites by themselves.
static FUNCTIONS: Table<u32> = Table::new();
/// The words that the module's instructions change in one step, by their addresses.
static WORDS: Table<u64> = Table::new();

/// Finds the units of a mapping.
pub fn find(code: &Region) -> Option<()> {
    UNITS.clear();
    WORDS.clear();
    FUNCTIONS.clear();
    with_work(|work| find_in(code, work))
}

fn find_in(code: &Region, work: &mut Work) -> Option<()> {
    // All of it, and in this order, whether it is needed or not; the memory for the work comes first.
    UNITS.reserve(MAX_UNITS)?;
    WORDS.reserve(MAX_WORDS)?;
    FUNCTIONS.reserve(MAX_FUNCTIONS)?;
    let functions = functions::around(code)?;
    let known = Known::of(code, &functions.module);
    if known.as_ref().is_some_and(|k| k.recall(&UNITS, MAX_UNITS)) {
        return Some(());
    }
    let missed_before = session().counters.locked_missed.load(Relaxed);
    search(code, &functions, work)?;
    let is_whole = session().counters.locked_missed.load(Relaxed) == missed_before;
    known
        .filter(|_| is_whole)
        .into_iter()
        .for_each(|k| k.keep(UNITS.all()));
    Some(())
}

fn search(code: &Region, functions: &Functions, work: &mut Work) -> Option<()> {
    // SAFETY: guarded, and the mapping is there.
    let bytes = unsafe {
        core::slice::from_raw_parts(code.start as *const u8, (code.end - code.start) as usize)
    };
    // In ld.so a thread says that it resolves a name: whether it does depends on who called the function first, which nobody orders.
    let own_memory_is_private = (code.start..code.end).contains(&session().entry);
    let thread_id = ThreadId::of(&functions.module)
        .filter(|_| !hooks::holds(session().unhooked, hooks::THREAD_ID));
    let learned = Learned::of(&functions.module);
    let function = |i: u64| {
        let (start, len) = functions.function(i)?;
        let offset = start.checked_sub(code.start)?;
        let f = Function {
            own_memory_is_private,
            thread_id,
            learned: learned.map_or(Loads::None, |l| l.loads(start)),
            waits: Waits::Nowhere,
            start,
            code: bytes.get(offset as usize..(offset + len) as usize)?,
        };
        (!is_replaced(&f) && !left_out::holds(start)).then_some(f)
    };
    let all = || (0..functions.count()).filter_map(|i| Some((i as u32, function(i)?)));
    guard::guarded(|| {
        for (i, f) in all() {
            if f.has_sites(note_word) && FUNCTIONS.push(MAX_FUNCTIONS, i).is_none() {
                missed(1);
            }
        }
        let words = Words::of_table();
        let mut with_sites = FUNCTIONS.all().iter().peekable();
        for (i, f) in all() {
            if with_sites.next_if_eq(&&i).is_some() || words.are_named_in(&f) {
                add_units(&f, code, &|address| words.hold(address), work);
            }
        }
        avoid_jumps_from_elsewhere(code, bytes);
    })
}

/// Finds the units of the places of a mapping at which threads give way ([`crate::sync::spin`]): those where decoding from the beginning of a function
/// arrives.
pub fn find_waits(code: &Region, waits: Waits) -> Option<()> {
    UNITS.clear();
    with_work(|work| find_waits_in(code, waits, work))
}

fn find_waits_in(code: &Region, waits: Waits, work: &mut Work) -> Option<()> {
    UNITS.reserve(MAX_UNITS)?;
    let functions = functions::around(code)?;
    // SAFETY: guarded, and the mapping is there.
    let bytes = unsafe {
        core::slice::from_raw_parts(code.start as *const u8, (code.end - code.start) as usize)
    };
    let mut way = Way::default();
    // Returns the end of the function that the place lies in.
    let mut look = |pc: u64| -> Option<u64> {
        if sweep::is_instruction(&functions, &mut way, pc) != Some(true) {
            return None;
        }
        let (start, end) = (functions.function_of(pc)?, functions.end_of(pc)?);
        let offset = start.checked_sub(code.start)? as usize;
        let f = Function {
            own_memory_is_private: false,
            thread_id: None,
            learned: Loads::None,
            waits,
            start,
            code: bytes.get(offset..offset + (end - start) as usize)?,
        };
        if !is_replaced(&f) {
            add_units(&f, code, &|_| false, work);
        }
        Some(end)
    };
    guard::guarded(|| {
        match waits {
            Waits::Nowhere => {}
            Waits::At(pc) => {
                look(pc);
            }
            Waits::AtPauses => {
                let mut at = code.start;
                while let Some(pc) = seek::find(at, code.end, PAUSE) {
                    at = look(pc).unwrap_or(pc + 1);
                }
            }
        }
        avoid_jumps_from_elsewhere(code, bytes);
    })
}

/// Has functions looked at, in memory for one thread at a time. `None`: there is none for it, or as `look` says.
fn with_work<R>(look: impl FnOnce(&mut Work) -> Option<R>) -> Option<R> {
    static WORK: AtomicU64 = AtomicU64::new(0);
    if WORK.load(Relaxed) == 0 {
        WORK.store(scratch::arena(size_of::<Work>() as u64)?, Relaxed);
    }
    // SAFETY: it is that long, filled with zeros, and nobody else looks at functions meanwhile.
    look(unsafe { &mut *(WORK.load(Relaxed) as *mut Work) })
}

/// An address that threads share is remembered.
fn note_word(address: u64) {
    WORDS.push(MAX_WORDS, address);
}

/// The words of a module that threads share, in the order of their addresses.
struct Words {
    list: &'static [u64],
}

impl Words {
    fn of_table() -> Words {
        let all = WORDS.all();
        // SAFETY: the table is this thread's own for now.
        let list = unsafe { core::slice::from_raw_parts_mut(all.as_ptr() as *mut u64, all.len()) };
        list.sort_unstable();
        Words { list: WORDS.all() }
    }

    fn hold(&self, address: u64) -> bool {
        self.list.binary_search(&address).is_ok()
    }

    /// Does a function load or store one of them?
    fn are_named_in(&self, f: &Function) -> bool {
        let (Some(first), Some(last)) = (self.list.first(), self.list.last()) else {
            return false;
        };
        f.names_words(*first, *last, |address| self.hold(address))
    }
}

/// Is all of this function replaced by a hook?
fn is_replaced(f: &Function) -> bool {
    if crate::races::watch::is_replaced(f.code) {
        return true;
    }
    f.code.first() == Some(&0xe9)
        && f.insn(f.start)
            .is_some_and(|i| matches!(i.flow, Flow::Jump(to) if patch::is_stub(to)))
}

fn add_units(f: &Function, code: &Region, words: &dyn Fn(u64) -> bool, work: &mut Work) {
    let table = |base: u64, k: u64| {
        let d = guard::read::<i32>(base + 4 * k)?;
        let target = base.wrapping_add(d as i64 as u64);
        (code.start..code.end).contains(&target).then_some(target)
    };
    for u in f.units(words, table, work) {
        if UNITS.push(MAX_UNITS, *u).is_none() {
            missed(1);
        }
    }
}

/// Where units are, roughly: a bit for some stretches of code each. Most addresses are told from all units by one look.
struct Near(&'static [AtomicU64; 1024]);

impl Near {
    fn of(units: &[Unit]) -> Near {
        static BITS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
        BITS.iter().for_each(|w| w.store(0, Relaxed));
        for u in units {
            for stretch in u.start / STRETCH..=u.end / STRETCH {
                let (word, bit) = Near::place(stretch);
                BITS[word].store(BITS[word].load(Relaxed) | bit, Relaxed);
            }
        }
        Near(&BITS)
    }

    fn place(stretch: u64) -> (usize, u64) {
        ((stretch / 64 % 1024) as usize, 1 << (stretch % 64))
    }

    /// False: no unit holds this address.
    #[inline(always)]
    fn has(&self, pc: u64) -> bool {
        let (word, bit) = Near::place(pc / STRETCH);
        self.0[word].load(Relaxed) & bit != 0
    }
}

/// Parts of a function lie elsewhere, and jump back into it: such jumps are long. What merely looks like one counts, too.
fn avoid_jumps_from_elsewhere(code: &Region, bytes: &[u8]) {
    let list = UNITS.all();
    if list.is_empty() {
        return;
    }
    // SAFETY: the table is this thread's own for now.
    let units = unsafe { core::slice::from_raw_parts_mut(list.as_ptr() as *mut Unit, list.len()) };
    let near = Near::of(units);
    let mut last = 0;
    for (at, w) in bytes.windows(5).enumerate() {
        let long = matches!(w[0], 0xe8 | 0xe9) || (w[0] & 0xf0 == 0x80 && last == 0x0f);
        last = w[0];
        if !long {
            continue;
        }
        let d = i32::from_le_bytes([w[1], w[2], w[3], w[4]]);
        let from = code.start + at as u64;
        let target = (from + 5).wrapping_add(d as i64 as u64);
        if !near.has(target) {
            continue;
        }
        let i = units.partition_point(|u| u.start < target);
        let Some(u) = i.checked_sub(1).map(|i| &mut units[i]) else {
            continue;
        };
        if u.is_broken_by(target) && !(u.start..u.end).contains(&from) {
            u.how = How::Trap;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_in_a_unit_is_near_and_most_others_are_not() {
        const CODE: u64 = 0x7fff_f7d0_0000;
        let unit = |n: u64| Unit {
            start: CODE + n * 0x1003,
            end: CODE + n * 0x1003 + 5 + n % 40,
            ..Unit::default()
        };
        let units: std::vec::Vec<Unit> = (0..256).map(unit).collect();
        let near = Near::of(&units);
        let holds = |pc: u64| units.iter().any(|u| u.start < pc && pc < u.end);
        let all = CODE..CODE + 256 * 0x1003;
        assert!(all.clone().all(|pc| near.has(pc) || !holds(pc)));
        let strangers = all.clone().filter(|pc| near.has(*pc) && !holds(*pc));
        assert!(strangers.count() < (all.end - all.start) as usize / 32);
    }
}
