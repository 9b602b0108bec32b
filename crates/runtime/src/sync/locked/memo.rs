//! What was found in code in earlier recordings ([`reprise_abi::memo`]).
//!
//! The same code has the same units, wherever it lies: they are kept by their distance from its beginning. What else a search depends on is in
//! the key, or keeps it from being used: a test's switches, and learned loads.

use super::learned::Learned;
use super::table::Table;
use super::units::{How, Unit};
use crate::machine::guard::{self, Program};
use crate::machine::hash;
use crate::memory::Region;
use crate::thread::in_force;
use crate::thread::session;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::memo::{Memo, MEMO_BASE};
use reprise_code::elf::Module;

/// Words of a unit.
const WORDS: usize = 3;

/// The place of a piece of code in what is known.
pub struct Known<'a> {
    key: u64,
    code: &'a Region,
}

fn memo() -> &'static Memo {
    // SAFETY: the launcher maps it for this engine; it is only atomics.
    unsafe { &*(MEMO_BASE as *const Memo) }
}

impl<'a> Known<'a> {
    /// That of a mapping of code; `None`: what is found there depends on more than the code.
    pub fn of(code: &'a Region, module: &Module) -> Option<Known<'a>> {
        let usual = (in_force::orders_synchronisation() || in_force::has_private_views())
            && !crate::thread::in_force::looks_for_races()
            && session().unhooked == 0
            && Learned::of(module).is_none();
        // Tables of jumps, and what libc tells debuggers of itself, lie outside of the code.
        let build = module.build_id(&Program).filter(|_| usual)?;
        let begins = (code.start..code.end).contains(&session().entry);
        let engine = (in_force::has_private_views() as u64) << 1;
        let seed = build ^ (code.start - module.base).rotate_left(20) ^ begins as u64 ^ engine;
        let len = (code.end - code.start) as usize;
        // SAFETY: guarded.
        let key = guard::guarded(|| unsafe { hash::bytes(seed, code.start, len) })?;
        Some(Known {
            key: key.max(1),
            code,
        })
    }

    /// Fills the table with the units that were found earlier. False: it has not been searched yet.
    pub fn recall(&self, units: &Table<Unit>, capacity: usize) -> bool {
        let Some(words) = memo().find(self.key) else {
            return false;
        };
        let mut last = self.code.start;
        for w in words.chunks_exact(WORDS) {
            let fitting = self.unit(w).filter(|u| u.start >= last);
            let Some(u) = fitting.filter(|u| units.push(capacity, *u).is_some()) else {
                // It is not what was kept.
                units.clear();
                return false;
            };
            last = u.end;
        }
        true
    }

    fn unit(&self, words: &[AtomicU64]) -> Option<Unit> {
        let [place, skips, marks] = [0, 1, 2].map(|i| words[i].load(Relaxed));
        let at = |distance: u64| Some(self.code.start + distance).filter(|a| *a <= self.code.end);
        let (start, end) = (at(place & u32::MAX as u64)?, at(place >> 32)?);
        Some(Unit {
            start,
            end: Some(end).filter(|end| start < *end)?,
            how: How::of(marks as u8)?,
            skips: match skips {
                0 => 0,
                n => at(n - 1)?,
            },
            ordered: (marks >> 32) as u16,
            valued: (marks >> 48) as u16,
            waits: 0,
        })
    }

    /// These units were found: the next one needs no search.
    pub fn keep(&self, units: &[Unit]) {
        let words = units.iter().flat_map(|u| {
            let distance = |a: u64| a - self.code.start;
            [
                distance(u.start) | distance(u.end) << 32,
                match u.skips {
                    0 => 0,
                    a => distance(a) + 1,
                },
                u.how as u64 | (u.ordered as u64) << 32 | (u.valued as u64) << 48,
            ]
        });
        memo().add(self.key, WORDS * units.len(), words);
    }
}
