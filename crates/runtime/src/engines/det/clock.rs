//! Time limits that the program computes from a clock: "5 ms from now" is a time of the clock that it has read just before.
//!
//! When exactly it was read differs from run to run, and so does the limit; but how long the program wants to wait does not. So each thread
//! remembers its last reading of a clock, with the program's time ([`super::idle`]) at which it was made. A limit counts from there.

use super::idle;
use crate::isolate::split;
use crate::machine::guard;
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use crate::thread::Block;
use reprise_abi::syscalls::nr;

/// A limit that is farther than this from the thread's last reading was not computed from that. How far it is follows from the program alone, as how
/// long ago the reading was would not: on a busy machine the program's time passes slowly.
const FARTHEST_NS: i64 = 10_000_000_000;

/// A time of one of the program's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Nanoseconds.
    pub ns: i64,
    /// Of `CLOCK_REALTIME`; else of `CLOCK_MONOTONIC`.
    pub realtime: bool,
}

/// A thread's last reading of a clock.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    ns: i64,
    /// The program's time.
    at: u64,
}

/// Of each clock.
#[derive(Default)]
pub struct Readings {
    realtime: Reading,
    monotonic: Reading,
}

impl Readings {
    fn of(&mut self, realtime: bool) -> &mut Reading {
        match realtime {
            true => &mut self.realtime,
            false => &mut self.monotonic,
        }
    }
}

/// The thread has read a clock by this call.
pub fn was_read(t: &mut Block, c: &Call, result: i64) {
    if result != 0 {
        return;
    }
    let (realtime, ns) = match (c.nr, c.args[0]) {
        (nr::CLOCK_GETTIME, clock @ (0 | 1)) => {
            let ns = guard::read::<Timespec>(c.args[1]).map(|t| t.ns());
            (clock == 0, ns)
        }
        (nr::GETTIMEOFDAY, at) => {
            // struct timeval
            let ns = guard::read::<[i64; 2]>(at).map(|[s, us]| (s * 1_000_000 + us) * 1000);
            (true, ns)
        }
        _ => return,
    };
    if let Some(ns) = ns {
        // It begins with the first thread.
        let at = if split::in_force() { idle::now() } else { 0 };
        *t.det().clocks.of(realtime) = Reading { ns, at };
    }
}

/// In a turn: the thread waits at most until then.
pub fn limit(t: &mut Block, end: Moment) {
    let not_before = sys::in_monotonic(end.ns, end.realtime);
    let read = *t.det().clocks.of(end.realtime);
    let wanted = end.ns.saturating_sub(read.ns);
    match read.ns != 0 && (0..FARTHEST_NS).contains(&wanted) {
        true => idle::limit_at(t, not_before, read.at.saturating_add(wanted as u64)),
        false => idle::limit(t, not_before),
    }
}
