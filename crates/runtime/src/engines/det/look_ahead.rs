//! Whether a thread that gives a mutex back is about to take one again (DThreads 5, lock ownership, with a bound on how often a lock is taken again).
//!
//! A thread that keeps its turn while it computes holds up all others; one that ends its turn between two locks that follow each other at once pays a round
//! for each pair. Which of the two it is no clock may say, since the order of turns would depend on it. But it follows from the code: if there is a way from the
//! unlock back to an earlier call of a hooked function that has a few instructions, no loop of its own and no other call in it, the thread keeps its turn. Calls of functions by
//! which it prints count for nothing ([`super::io_turns`]).

use super::{io_turns, stdio};
use crate::machine::guard::{self, Program};
use crate::memory::map;
use crate::sync::hook;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_code::decode::{Flow, Insn};

/// Most instructions that are looked at.
const STEPS: usize = 64;
/// Most ways that are left to be looked at.
const WAYS: usize = 16;
/// A place is looked at so often at most: where a function is called for the first time, its name is not resolved yet.
const TRIES: u64 = 8;
/// Places that are remembered.
const PLACES: usize = 256;

/// What is known of places: the address, above how often it was looked at, and whether it is near. Changed in turns only.
static KNOWN: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
const NEAR: u64 = 1;
const TRY: u64 = 1 << 1;
const TRIES_MASK: u64 = 0xff << 1;
const PLACE_SHIFT: u32 = 12;

/// In a turn: is it a few instructions from the code that a function of libc returns to here to the next call of one, again and again?
pub fn is_near(place: u64) -> bool {
    let word = &KNOWN[place as usize / 4 % PLACES];
    let mut known = word.load(Relaxed);
    if known >> PLACE_SHIFT != place {
        known = place << PLACE_SHIFT;
    }
    if known & NEAR == 0 && known & TRIES_MASK < TRIES * TRY {
        known += TRY;
        known |= leads_back(place) as u64;
        word.store(known, Relaxed);
    }
    known & NEAR != 0
}

/// Is there such a way from this place?
fn leads_back(place: u64) -> bool {
    // Elsewhere are stubs: whether one stands in the place of a system call depends on how often that was made, and interrupted.
    let Some(code) = map().at(place) else {
        return false;
    };
    let is_here = |to: u64| (code.start..code.end).contains(&to);
    let (mut ways, mut open) = ([0; WAYS], 1);
    let (mut seen, mut steps) = ([0; STEPS], 0);
    ways[0] = place;
    while open != 0 {
        open -= 1;
        let mut at = ways[open];
        loop {
            if steps == STEPS {
                return false;
            }
            // Ways meet again, or it is a loop: this one goes on no further.
            if seen[..steps].contains(&at) {
                break;
            }
            seen[steps] = at;
            steps += 1;
            let Some(i) = Insn::at(at, &Program) else {
                break;
            };
            match i.flow {
                Flow::Next => at = i.end(),
                Flow::Jump(to) if is_here(to) => at = to,
                Flow::Branch(_, to) => {
                    if open < WAYS {
                        ways[open] = to;
                        open += 1;
                    }
                    at = i.end();
                }
                Flow::Call(_) | Flow::CallIndirect => {
                    let function = match i.flow {
                        Flow::Call(to) => behind_table(to),
                        _ => target_of(&i),
                    };
                    if at < place && is_hooked(function) {
                        return true;
                    }
                    if !io_turns::on() || !function.is_some_and(stdio::is_print) {
                        break;
                    }
                    at = i.end();
                }
                _ => break,
            }
        }
    }
    false
}

/// Where an instruction that names its target's place leads to.
fn target_of(i: &Insn) -> Option<u64> {
    guard::read(i.rip_target()?)
}

/// A function that is called through a table of its module's.
fn behind_table(to: u64) -> Option<u64> {
    let mut at = to;
    // endbr64 comes before the jump, where there is one.
    for _ in 0..2 {
        let i = Insn::at(at, &Program)?;
        match i.flow {
            Flow::JumpIndirect => return target_of(&i),
            Flow::Next => at = i.end(),
            _ => return None,
        }
    }
    None
}

/// Is this the entry of a function of libc that is replaced by the runtime's?
fn is_hooked(entry: Option<u64>) -> bool {
    const JUMP: u8 = 0xe9;
    entry.is_some_and(|e| {
        guard::read::<u8>(e) == Some(JUMP) && map().at(e).is_some_and(|r| hook::is_libc(&r))
    })
}
