//! What `reprise run --det-report` found: writes of two threads to the same memory between the same two synchronisation points, with names.

use crate::mappings::Mappings;
use crate::stacks::{words, Registers, Unwinder};
use reprise_abi::conflicts::{self as abi, MAX_CONFLICTS, MAX_MAPS};
use reprise_launch::maps::Maps;
use reprise_launch::SharedSession;
use std::sync::atomic::Ordering::*;

/// Where one of the two was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writer {
    /// The thread, as they were made; the first is 0.
    pub thread: u32,
    /// Where it was when its stretch ended, the innermost function first.
    pub stack: Vec<String>,
}

/// Memory that two threads have written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// Its first byte.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The variable that lies there, where symbols tell.
    pub variable: Option<String>,
    /// How often that was so, with both threads at the same places.
    pub times: u64,
    /// The one whose bytes are lost; the one whose bytes stay.
    pub threads: [Writer; 2],
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Conflicts about the program's memory, in the order in which they were found.
    pub conflicts: Vec<Conflict>,
    /// Of ld.so's and libc's own memory, and of tables that they fill, there were so many: it is theirs to know that these do no harm.
    pub of_libc: usize,
    /// So many more there was no room for.
    pub more: u64,
}

/// The conflicts of a program that has ended.
pub fn read(shared: &SharedSession) -> Found {
    let Some(area) = shared.conflicts() else {
        return Found::default();
    };
    let found = (area.found.load(Acquire) as usize).min(MAX_CONFLICTS);
    let len = (area.maps_len.load(Relaxed) as usize).min(MAX_MAPS);
    let maps = Mappings::of_process(&Maps::from_text(&area.maps[..len]));
    let mut unwinder = Unwinder::new(&maps);
    let mut named = |c: &abi::Conflict| {
        let address = c.address.load(Relaxed);
        Conflict {
            address,
            len: c.len.load(Relaxed),
            variable: maps.variable(address),
            times: c.times.load(Relaxed),
            threads: [0, 1].map(|i| writer(&c.threads[i], &mut unwinder)),
        }
    };
    let all = area.list[..found].iter().map(&mut named);
    let (of_libc, conflicts): (Vec<_>, Vec<_>) = all.partition(|c| maps.is_of_libc(c.address));
    Found {
        conflicts,
        of_libc: of_libc.len(),
        more: area.more.load(Relaxed),
    }
}

fn writer(s: &abi::Stand, unwinder: &mut Unwinder) -> Writer {
    let stack = words(&s.stack, &s.stack_len);
    Writer {
        thread: s.thread.load(Relaxed),
        stack: unwinder.stack(Registers::of(&s.registers), &stack),
    }
}
