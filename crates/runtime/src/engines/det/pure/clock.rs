//! The program's time under `--pure`, in ns since it began: every thread has its own, which goes on by a fixed step with every gate, and by what it sleeps. Where
//! threads meet, in turns, they take the farthest one's time for theirs; a round takes 20 µs of it ([`crate::engines::det::idle`]). So what a thread reads in a
//! phase depends on its own past and on the rounds before, and on no other thread; and who learns something from another one reads no earlier time than
//! that one did.

use super::super::{idle, turns};
use super::on;
use crate::machine::sys;
use crate::thread::{current, Block};

/// What a gate takes.
const STEP_NS: u64 = 1000;
/// When the program begins, on the clocks that say what day it is: 2020-01-01, 00:00:00 UTC.
pub const DAY_NS: u64 = 1_577_836_800 * 1_000_000_000;
/// When it begins, on those that say how long the machine has been running.
pub const UP_NS: u64 = 1_000_000_000_000;
/// A thread that reads the clock so often may be waiting for another one: it has a turn.
const READS_FOR_A_TURN: u32 = 64;

/// A thread's time.
#[derive(Default)]
pub struct Clock {
    now: u64,
    /// What of it the thread has used up itself.
    own: u64,
    /// How often it was read since the thread's last turn.
    reads: u32,
}

impl Clock {
    /// It stands there.
    pub fn set(&mut self, now: u64) {
        self.now = now;
    }

    /// In ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// A gate.
    pub fn step(&mut self) {
        self.now += STEP_NS;
        self.own += STEP_NS;
    }

    /// It is so late at least.
    pub fn pass(&mut self, until: u64) {
        self.now = self.now.max(until);
    }
}

/// The clocks of clock_gettime(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Day,
    Tai,
    Up,
    OfProcess,
    OfThread,
}

fn which(clock: u32) -> Option<Which> {
    Some(match clock {
        0 | 5 | 8 => Which::Day,
        1 | 4 | 6 | 7 | 9 => Which::Up,
        2 => Which::OfProcess,
        3 => Which::OfThread,
        11 => Which::Tai,
        _ => return None,
    })
}

/// What this clock shows to the thread, in ns; `None`: there is none with this number, or it is another process's.
pub fn read(t: &mut Block, clock: u32) -> Option<u64> {
    const TAI_NS: u64 = 37_000_000_000;
    let which = which(clock)?;
    let c = &mut t.det().pure.clock;
    c.step();
    c.reads += 1;
    if c.reads >= READS_FOR_A_TURN {
        c.reads = 0;
        turns::within(t, |_| {});
    }
    let c = &t.det().pure.clock;
    Some(match which {
        Which::Day => DAY_NS + c.now,
        Which::Tai => DAY_NS + TAI_NS + c.now,
        Which::Up => UP_NS + c.now,
        Which::OfProcess => c.now,
        Which::OfThread => c.own,
    })
}

/// The time stamp counter: of a processor of 1 GHz.
pub fn counter(t: &mut Block) -> u64 {
    read(t, 1).unwrap_or(0)
}

/// In a turn: the program's time is the thread's, and the other way round.
#[inline(always)]
pub fn meet(t: &mut Block) {
    if on() {
        let now = idle::meet(t.det().pure.clock.now);
        t.det().pure.clock.now = now;
        t.det().pure.clock.reads = 0;
    }
}

/// A phase begins.
#[inline(always)]
pub fn phase_begins(t: &mut Block) {
    if on() {
        t.det().pure.clock.pass(idle::now());
    }
}

/// `CLOCK_MONOTONIC` as the program sees it.
pub fn monotonic() -> i64 {
    match on() {
        true => (UP_NS + current().program_time()) as i64,
        false => sys::monotonic().ns(),
    }
}

/// A time in ns of `CLOCK_REALTIME`, if it is one of that clock's, in ns of `CLOCK_MONOTONIC`, both as the program sees them.
pub fn in_monotonic(ns: i64, realtime: bool) -> i64 {
    match (on(), realtime) {
        (_, false) => ns,
        (false, true) => sys::in_monotonic(ns, true),
        (true, true) => ns
            .saturating_sub(DAY_NS as i64)
            .saturating_add(UP_NS as i64),
    }
}

/// The program's time at `ns` of its own `CLOCK_MONOTONIC`.
pub fn of_monotonic(ns: i64) -> u64 {
    ns.saturating_sub(UP_NS as i64).max(0) as u64
}

/// How long that is from now, in ns.
pub fn left(t: &Block, until: u64) -> u64 {
    until.saturating_sub(t.det().pure.clock.now)
}

/// The kernel's `CLOCK_MONOTONIC` when it is so late for the program, were both to go on alike.
pub fn in_kernel(t: &Block, until: u64) -> i64 {
    sys::monotonic()
        .ns()
        .saturating_add_unsigned(left(t, until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_only_goes_on() {
        let mut c = Clock::default();
        c.step();
        assert_eq!((c.now(), c.own), (1000, 1000));
        c.pass(5000);
        c.pass(3000);
        assert_eq!((c.now(), c.own), (5000, 1000));
    }

    #[test]
    fn clocks_by_number() {
        assert_eq!(which(7), Some(Which::Up));
        assert_eq!(which(10), None);
        assert_eq!(which(-6i32 as u32), None);
    }
}
