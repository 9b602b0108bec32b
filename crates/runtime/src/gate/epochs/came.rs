//! What a copy has come to at the end of its epoch, against what the program has, or another copy of the program (DoublePlay 5.2.2, 5.2.4).

use super::threads;
use crate::gate::stand;
use crate::log::epoch;
use crate::machine::guard;
use crate::memory::{compared, transfer, written};
use crate::signal::frame::same_vectors;
use crate::thread::blocks::in_use_here;
use crate::thread::{session, slot, VECTORS_LEN};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::*;
use reprise_abi::epoch as differs;
use reprise_abi::layout::PAGE;

/// The kind of a difference, and where.
pub type Difference = (u64, u64);

/// What a copy came to.
pub struct Came {
    /// What is different, if anything is.
    pub difference: Option<Difference>,
    /// The program has that now, too.
    pub is_taken_over: bool,
}

impl Came {
    /// It has come to something else than to compare.
    pub fn elsewhere(what: u64, at: u64) -> Came {
        Came {
            difference: Some((what, at)),
            is_taken_over: false,
        }
    }
}

/// The copy has come to the end of all its threads, of the open epoch or of the one before: what differs first. A program that `recovers` takes it over: what
/// the copy did is the recording, and nothing else was seen outside (DoublePlay 5.2.4).
pub fn compare(pid: u32, number: u32, recovers: bool, is_before: bool) -> Came {
    let (mut first, mut is_same) = (None, true);
    let looked = compared::compare(pid, [written::pages(), &[]], |page| {
        first = first.or_else(|| difference(pid, page).map(|at| (differs::MEMORY, at)));
        is_same = false;
    });
    if looked.is_none() {
        return Came::elsewhere(differs::MEMORY, 0);
    }
    let has_other = |i: &u32| epoch::other_registers(*i, is_before).is_some();
    let other_registers = || threads(number).find(has_other);
    let other_vectors = || threads(number).find(|i| !has_same_vectors(pid, *i));
    let difference = first
        .or_else(|| other_registers().map(|i| (differs::REGISTERS, i.into())))
        .or_else(|| other_vectors().map(|i| (differs::VECTORS, i.into())));
    let is_taken_over = recovers
        && match difference {
            Some(_) => takes_over(pid, number, is_before),
            // Marks at most.
            None => is_same || takes_over_memory(pid),
        };
    Came {
        difference,
        is_taken_over,
    }
}

/// The program takes over what that copy has. False: it can't; then nothing is changed, as far as that can be known before.
fn takes_over(pid: u32, number: u32, is_before: bool) -> bool {
    let other_registers = |i: u32| epoch::other_registers(i, is_before);
    let can_have = |i| other_registers(i).is_none_or(|frame| stand::can_have_registers(i, &frame));
    let has = |i| other_registers(i).is_none_or(|frame| stand::has_registers(i, &frame));
    threads(number).all(can_have)
        && transfer::takes_over_tables(pid)
        && takes_over_memory(pid)
        && threads(number).all(|i| has(i) && has_vectors_of(pid, i))
}

/// The thread of slot `i` takes over the vector registers that it has in that process, a copy.
pub fn has_vectors_of(pid: u32, i: u32) -> bool {
    let at = stand::vectors(i);
    transfer::get(pid, at, at, VECTORS_LEN).is_some()
}

fn takes_over_memory(pid: u32) -> bool {
    let mut taken = true;
    let looked = compared::compare(pid, [written::pages(), &[]], |page| {
        taken = taken && transfer::take_over(pid, page).is_some();
    });
    looked.is_some() && taken
}

/// Where a page differs first, but for marks of waiters.
fn difference(pid: u32, page: u64) -> Option<u64> {
    const WORDS: usize = PAGE as usize / 4;
    let other = UnsafeCell::new([0u32; WORDS]);
    let Some(()) = transfer::get(pid, other.get() as u64, page, PAGE) else {
        return Some(page);
    };
    let other = other.into_inner();
    let Some(own) = guard::read::<[u32; WORDS]>(page) else {
        return Some(page);
    };
    let at = |n: usize| page + 4 * n as u64;
    (0..WORDS)
        .find(|n| own[*n] != other[*n] && !is_mark(at(*n), [own[*n], other[*n]]))
        .map(at)
}

/// Is what differs here only whether the owner of a mutex ([`crate::sync::libc::mutex`]) is to look for others when it unlocks it? That depends on whether somebody
/// came while another one had it, not on who had it when; and somebody who waits says so again when all go on.
fn is_mark(at: u64, states: [u32; 2]) -> bool {
    const TAKEN: u32 = 1;
    const WAITED_FOR: u32 = 2;
    /// Where a mutex has its owner.
    const OWNER: u64 = 8;
    let is_locked = states == [TAKEN, WAITED_FOR] || states == [WAITED_FOR, TAKEN];
    let owner = guard::read::<u32>(at + OWNER);
    is_locked
        && (0..session().slots_used.load(Relaxed))
            .filter(|i| in_use_here(*i).is_some())
            .any(|i| Some(slot(i).visible_tid.load(Relaxed)) == owner)
}

fn has_same_vectors(pid: u32, i: u32) -> bool {
    let mine = stand::vectors(i);
    same_vectors(mine, |at, here, len| {
        transfer::get(pid, here, at, len).is_some()
    })
}
