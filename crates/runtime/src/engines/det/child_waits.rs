//! Waiting for a child that another thread-process has ([`children`]).
//!
//! When a child ends is not the program's to say. A thread that waits for one does as one that waits for its own: it lets others go on for some rounds, and
//! then all wait for the child, until that takes too long ([`turns::outside_for_child`]).

use super::calls::{idle, interrupted};
use super::{token, turns};
use crate::isolate::{children, ending};
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use crate::thread::Block;

/// How often a child is looked after while all wait for it, in ns.
const LOOK_NS: i64 = 500_000;

/// wait4(2) or waitid(2), in a turn, for children that another thread-process may have.
pub fn wait(t: &mut Block, c: &mut Call) -> i64 {
    /// So many rounds others go on first.
    const ROUNDS: u32 = 16;
    if children::only_asks(c) {
        return children::ask(t, c).unwrap_or(0);
    }
    // A child that has ended already is not told of before: when it did is not the program's to say.
    for _ in 0..ROUNDS {
        if t.pending.first(t.mask).is_some() {
            return interrupted(t, c);
        }
        turns::give_way(t);
    }
    let begun = sys::monotonic().ns();
    loop {
        if let Some(r) = children::ask(t, c) {
            token::idles(false);
            return r;
        }
        if t.pending.first(t.mask).is_some() {
            return interrupted(t, c);
        }
        if sys::monotonic().ns() - begun < super::spin::for_child() {
            pause(LOOK_NS);
            ending::look_after_threads();
        } else {
            // It may need another thread.
            pause(idle(t) as i64 * 1_000_000);
            turns::give_way(t);
        }
    }
}

fn pause(ns: i64) {
    let time = Timespec::from_ns(ns);
    if ns != 0 {
        sys::nanosleep(&time as *const Timespec as u64, 0);
    }
}
