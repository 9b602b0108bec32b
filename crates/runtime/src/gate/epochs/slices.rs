//! A copy that runs an epoch again ends the slices of threads that wait by looking at memory (DoublePlay 5.2.2: spin locks live on in slices that are preempted): it has no agent that would. Its
//! first thread, which is none of the program's, sees who keeps the baton while others want it, and asks for an end ([`asks`]).
//!
//! A thread that computes is left alone for about as long as an epoch lasts: one that ends its slice where it has to wait costs least.

use crate::log::epoch::{self, processor_time};
use crate::machine::sys;
use crate::thread::signals::{send_own, Siginfo};
use crate::thread::{session, slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::layout::MAX_SLOTS;

/// `si_code` of the signal that asks for the end of a slice.
const ENDS: i32 = -4713;
/// A slice that others wait for ends after so much processor time, in nanoseconds, ...
const SLICE: i64 = 10_000_000;
/// ... or after so often what it costs to end one in the middle of code, but not later than this; ...
const CUT_COST: i64 = 20;
const LONGEST: i64 = 100_000_000;
/// ... and that of a thread that did nothing but wait when its last one was ended after so much.
const SLICE_OF_WAITING: i64 = 4_000_000;
/// A copy that has run for so much processor time longer than the program, in nanoseconds, comes to an end soon, where it isn't the log that says which.
const LONG: i64 = 1_000_000_000;
/// After so much it has come to no end.
const TOO_LONG: i64 = 5_000_000_000;
/// So often it is looked, in nanoseconds.
const LOOK: sys::Timespec = sys::Timespec {
    sec: 0,
    nsec: 2_000_000,
};

/// Does this signal ask for that?
pub fn asks(info: &Siginfo) -> bool {
    info.code() == ENDS
}

/// Looks at the slices of this process until all threads have come to their ends, or the program is over.
pub fn attends(parent: u64) {
    let s = session();
    let (mut seen, mut since) = (0, 0);
    // The program has taken so long on several processors.
    let leader = epoch::time_of_leader();
    while sys::getppid() as u64 == parent && !epoch::all_have_come_to_end() {
        sys::nanosleep(&LOOK as *const sys::Timespec as u64, 0);
        let holder = s.baton.load(Acquire);
        let generation = s.baton_generation.load(Acquire);
        let now = processor_time();
        if now > LONG + leader {
            epoch::hurries();
        }
        if now > TOO_LONG + 2 * leader {
            epoch::fails_in_all();
        }
        if generation != seen {
            (seen, since) = (generation, now);
        }
        let of_thread = (1..=MAX_SLOTS as u32).contains(&holder);
        let is_wanted =
            || s.ready_count.load(Relaxed) != 0 || epoch::may_compute_to_end(holder - 1);
        if !of_thread || !is_wanted() {
            continue;
        }
        let holder = slot(holder - 1);
        let after = match holder.cut_spins.load(Relaxed) {
            0 => (CUT_COST * s.counters.last_cut_ns.load(Relaxed) as i64).clamp(SLICE, LONGEST),
            _ => SLICE_OF_WAITING,
        };
        // Who was asked, and waits for a breakpoint, is told that time passes.
        if holder.cut_waiting.load(Relaxed) != 0 || now - since > after {
            holder.cut_generation.store(generation, Relaxed);
            send_own(sys::getpid() as u64, holder.kernel_tid.load(Relaxed), ENDS);
        }
    }
}

/// Does somebody want that the holder's slice ends at the next gate, or end of a hooked function?
pub fn is_over(t: &Block) -> bool {
    let s = session();
    s.slice_over.load(Relaxed) != 0
        && s.ready_count.load(Relaxed) != 0
        && s.baton.load(Relaxed) == t.slot + 1
}
