//! How far the first thread's stack has grown: the kernel extends its mapping downward as it is touched, and tells nobody.
//!
//! What is mapped further below is another mapping, of the program's or of ours: where the stack may grow by more than the room that it has (its limit was raised while the
//! program ran), only what is mapped without a gap belongs to it.

use crate::machine::sys;
use crate::memory::{stack_limit, Region};
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;

/// Bytes that are looked at with one mincore(2).
const STRETCH: u64 = 1 << 20;

/// The first byte of a region that is mapped now.
pub fn first_mapped(r: &Region) -> u64 {
    match r.flags & region_flags::STACK {
        0 => r.start,
        _ => {
            let least = r.end.saturating_sub(stack_limit()) & !(PAGE - 1);
            lowest(r.start, least, are_mapped)
        }
    }
}

/// Are all of these pages mapped? At most a [`STRETCH`].
fn are_mapped(start: u64, end: u64) -> bool {
    let mut there = [0u8; (STRETCH / PAGE) as usize];
    sys::mincore(start, end - start, there.as_mut_ptr() as u64) == 0
}

/// From where on everything is mapped up to `known`, not below `least`.
fn lowest(known: u64, least: u64, are_mapped: impl Fn(u64, u64) -> bool) -> u64 {
    let mut low = known;
    let below = |low: u64, by: u64| low.saturating_sub(by).max(least);
    // Mostly it has not grown.
    if low <= least || !are_mapped(below(low, PAGE), low) {
        return low;
    }
    loop {
        let next = below(low, STRETCH);
        if next >= low {
            return low;
        }
        if !are_mapped(next, low) {
            let mut not = next;
            while low - not > PAGE {
                let middle = (not + (low - not) / 2) & !(PAGE - 1);
                match are_mapped(middle, low) {
                    true => low = middle,
                    false => not = middle,
                }
            }
            return low;
        }
        low = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = 0x7fff_f000_0000;

    /// Pages are mapped from `from` on, and further below, behind a gap.
    fn with_a_neighbour(from: u64) -> impl Fn(u64, u64) -> bool {
        move |start, end| start >= from || (end <= from - 128 * PAGE && start >= from - (1 << 30))
    }

    #[test]
    fn what_lies_below_a_gap_is_no_stack() {
        for grown in [0, 1, 2, 3, 31, 255, 256, 257, 5000] {
            let from = TOP - grown * PAGE;
            let found = lowest(TOP, TOP - (1 << 30), with_a_neighbour(from));
            assert_eq!(found, from, "{grown} pages");
        }
    }

    #[test]
    fn it_is_no_larger_than_its_limit() {
        let found = lowest(TOP, TOP - 300 * PAGE, with_a_neighbour(TOP - 5000 * PAGE));
        assert_eq!(found, TOP - 300 * PAGE);
        assert_eq!(lowest(TOP, TOP + PAGE, |_, _| true), TOP);
    }
}
