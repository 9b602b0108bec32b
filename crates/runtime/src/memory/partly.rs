//! Calls that shape memory and fail in the middle: what they had done by then stays done. madvise(2) and mprotect(2) go from mapping to mapping
//! up to the first that they may not change; mmap(2) and mremap(2) to a fixed place first take away what is there, and mremap, since Linux 6.17,
//! moves one mapping after the other.
//!
//! Where a call stops depends on limits, locks and files that a replay has not. So a recording finds out how far it got, by asking the kernel
//! for less and less of the same, which changes nothing any more, and writes it into the call's event ([`Tag::Partly`]); a replay does that much.

use crate::machine::sys::{self, *};
use crate::memory::capture::Call;
use crate::memory::moved;
use crate::memory::{self, advice_matters, map, up};
use reprise_abi::effect::Effect;
use reprise_abi::layout::PAGE;

#[allow(unused_imports)] // For the documentation.
use reprise_abi::event::Tag;

const ENOMEM: i64 = -12;
const MREMAP_FIXED: u64 = 2;
const MADV_DONTNEED: u64 = 4;
const MADV_COLD: u64 = 20;

/// What a failed mmap(2) or mremap(2) had done: what was at the place that it was to go to is gone.
const TARGET_GONE: u64 = 1;
/// mremap(2): what was to be cut off is gone.
const TAIL_GONE: u64 = 2;

/// Record: what a call that failed has changed nevertheless, in one word: 0 for nothing, for mprotect(2) and madvise(2) how many bytes from
/// its beginning, for others bits, and how many bytes were moved.
pub fn of(c: &Call, result: i64) -> u64 {
    if !sys::is_error(result) {
        return 0;
    }
    let a = &c.args;
    match c.effect {
        Effect::Protects => reached(a[0], up(a[1]), |len| sys::mprotect(a[0], len, a[2]) == 0),
        // Holes are passed over.
        Effect::Advises if advice_matters(a[2]) && result == ENOMEM => up(a[1]),
        Effect::Advises if advice_matters(a[2]) => {
            // To drop pages again would drop what other threads have stored meanwhile; this stops at the same mappings.
            let advice = match a[2] {
                MADV_DONTNEED => MADV_COLD,
                same => same,
            };
            reached(a[0], up(a[1]), |len| {
                matches!(sys::madvise(a[0], len, advice), 0 | ENOMEM)
            })
        }
        Effect::Maps if a[3] & MAP_FIXED != 0 && !memory::is_ours(a[0], a[1]) => {
            gone(a[0], up(a[1])) as u64 * TARGET_GONE
        }
        Effect::Remaps if a[3] & MREMAP_FIXED != 0 => {
            let (old, new) = (up(a[1]), up(a[2]));
            let mut word = gone(a[4], new) as u64 * TARGET_GONE;
            if old > new {
                word |= gone(a[0] + new, old - new) as u64 * TAIL_GONE;
            }
            word | moved_bytes(a[0], old.min(new))
        }
        _ => 0,
    }
}

/// How many of `len` bytes at `start` a call did that stops at the first mapping that it can't change; it has failed for all of them.
fn reached(start: u64, len: u64, does: impl Fn(u64) -> bool) -> u64 {
    if start % PAGE != 0 || memory::is_ours(start, len) {
        return 0;
    }
    let (mut done, mut fails) = (0, len / PAGE);
    while fails - done > 1 {
        let middle = done + (fails - done) / 2;
        match does(middle * PAGE) {
            true => done = middle,
            false => fails = middle,
        }
    }
    done * PAGE
}

fn is_mapped(page: u64) -> bool {
    let mut v = 0u8;
    sys::mincore(page, PAGE, &mut v as *mut u8 as u64) != ENOMEM
}

/// Was there something, and is it there no more? It goes as a whole or not at all.
fn gone(start: u64, len: u64) -> bool {
    let first = map().after(start).map(|r| r.start.max(start));
    first.is_some_and(|page| page < start.saturating_add(len) && !is_mapped(page))
}

/// How many bytes from `start` on are no longer there, of what was.
fn moved_bytes(start: u64, len: u64) -> u64 {
    let mut at = start;
    while let Some(r) = map().after(at).filter(|r| r.start < start + len) {
        let (first, end) = (r.start.max(at), r.end.min(start + len));
        if is_mapped(first) {
            break;
        }
        let (mut away, mut there) = (first, end);
        while there - away > PAGE {
            let middle = away + (there - away) / PAGE / 2 * PAGE;
            match is_mapped(middle) {
                true => there = middle,
                false => away = middle,
            }
        }
        at = there;
        if there < end {
            break;
        }
    }
    at - start
}

/// The map after a call that had done this much; in a replay the kernel is asked for it first.
pub fn follow(c: &Call, word: u64, live: bool) {
    let a = &c.args;
    if word == 0 || memory::is_ours(a[0], word & !(PAGE - 1)) {
        return;
    }
    match c.effect {
        Effect::Protects | Effect::Advises => {
            if !live {
                sys::call(c.nr, &[a[0], word, a[2]]);
            }
            memory::changed(c, word, live);
        }
        Effect::Maps => take_away(a[0], up(a[1]), live),
        Effect::Remaps => {
            let (old, new) = (up(a[1]), up(a[2]));
            if word & TARGET_GONE != 0 {
                take_away(a[4], new, live);
            }
            if word & TAIL_GONE != 0 {
                take_away(a[0] + new, old - new, live);
            }
            let moved = word & !(PAGE - 1);
            if moved != 0 {
                let same = [a[0], moved, moved, a[3], a[4]];
                let done = live || moved::again(&same, a[4]);
                if done {
                    moved::follow(&same, a[4]);
                }
            }
        }
        _ => {}
    }
}

fn take_away(start: u64, len: u64, live: bool) {
    if !live {
        sys::munmap(start, len);
    }
    memory::forget(start, len);
}
