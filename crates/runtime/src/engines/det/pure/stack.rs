//! Where a program's stack begins under `--pure`: the kernel puts it below the strings of arguments and environment, so that their lengths would move every
//! local variable. It begins a fixed distance below the stack's end instead.

use crate::machine::guard;
use crate::machine::sys;
use crate::memory;
use reprise_abi::session::region_flags;

/// That distance; where the strings take more, a multiple of it.
const DISTANCE: u64 = 256 << 10;
/// Words of arguments, environment and auxiliary vector, at most.
const MOST_WORDS: u64 = 1 << 18;

/// Moves the words that a program finds on its stack at its first instruction; the strings that they point to stay. The stack pointer.
pub fn settle(from: u64) -> u64 {
    let stack = |r: &&memory::Region| r.flags & region_flags::STACK != 0;
    let Some(end) = memory::map().regions().iter().find(stack).map(|r| r.end) else {
        return from;
    };
    let Some(words) = words(from) else {
        return from;
    };
    let len = words * 8;
    let lowest = (from - len) & !15;
    let to = end - (end - lowest).next_multiple_of(DISTANCE);
    // Below it: nothing overlaps.
    if to + len > from {
        return from;
    }
    for i in 0..words {
        let word = guard::read::<u64>(from + 8 * i).unwrap_or(0);
        if !guard::write(to + 8 * i, &word) {
            sys::complain(&["reprise: --pure: the stack can't be moved: its addresses depend on the environment\n"]);
            return from;
        }
    }
    to
}

/// How many there are: the number of arguments, these, the environment, the auxiliary vector, each with its end.
fn words(sp: u64) -> Option<u64> {
    let word = |i: u64| guard::read::<u64>(sp + 8 * i);
    let mut i = word(0)? + 2;
    while word(i)? != 0 {
        i += 1;
        if i > MOST_WORDS {
            return None;
        }
    }
    i += 1;
    while word(i)? != 0 {
        i += 2;
        if i > MOST_WORDS {
            return None;
        }
    }
    Some(i + 2)
}
