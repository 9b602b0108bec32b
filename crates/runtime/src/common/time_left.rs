//! Calls with a time limit that are made once more after a signal of the runtime's own: they wait no longer in all than the program has said.
//!
//! Limits that are points in time need nothing. The others say how long, and the kernel keeps to itself until when that is; here the point in time is kept, and what is
//! left until then is put in the place of the limit. select(2), pselect6(2), ppoll(2) and recvmmsg(2) count down where the program has the limit: so it is put there.

use crate::machine::guard;
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use reprise_abi::effect::{Effect, Timeout};
use reprise_abi::futex::{self, Fourth};
use reprise_abi::spec::Mem;
use reprise_abi::syscalls::{self, nr};

/// How a call says how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// An int of milliseconds; negative: for ever.
    Milliseconds(usize),
    /// A pointer to a timespec; null: for ever.
    Timespec(usize),
    /// The same of one that the kernel counts down.
    CountedTimespec(usize),
    /// A pointer to a timeval that the kernel counts down; null: for ever.
    CountedTimeval(usize),
}

const US: i64 = 1_000;
const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

fn limit(c: &Call) -> Option<Limit> {
    const TIMER_ABSTIME: u64 = 1;
    Some(match (syscalls::timeout(c.nr), c.effect) {
        (Timeout::Ms(i), _) => Limit::Milliseconds(i.into()),
        (Timeout::Timespec(i), _) if is_only_read(c, i) => Limit::Timespec(i.into()),
        (Timeout::Timespec(i), _) => Limit::CountedTimespec(i.into()),
        (Timeout::Timeval(i), _) => Limit::CountedTimeval(i.into()),
        (_, Effect::Sleeps) if c.nr == nr::NANOSLEEP => Limit::Timespec(0),
        (_, Effect::Sleeps) if c.args[1] & TIMER_ABSTIME == 0 => Limit::Timespec(2),
        (_, Effect::Futex) if is_relative(c) => Limit::Timespec(3),
        _ => return None,
    })
}

/// Does the kernel leave this argument's memory as it is?
fn is_only_read(c: &Call, argument: u8) -> bool {
    matches!(c.mem[argument as usize], Mem::In(_))
}

/// Is the time that futex(2) is given one from now?
fn is_relative(c: &Call) -> bool {
    let modifiers = (futex::FUTEX_PRIVATE_FLAG | futex::FUTEX_CLOCK_REALTIME) as u64;
    let operation = futex::OPERATIONS.get((c.args[1] & !modifiers) as usize);
    operation.is_some_and(|o| o.fourth == Fourth::Relative)
}

/// Where a sleep says how much of it was left.
fn rest_of_sleep(c: &Call) -> Option<u64> {
    let at = match c.effect {
        Effect::Sleeps if c.nr == nr::NANOSLEEP => c.args[1],
        Effect::Sleeps => c.args[3],
        _ => 0,
    };
    (at != 0).then_some(at)
}

impl Limit {
    /// How long that is from the call's beginning, in ns; None: for ever, or the kernel will refuse it.
    fn length(self, c: &Call) -> Option<i64> {
        let of = |[sec, part]: [i64; 2], parts: i64| {
            let ns = sec
                .checked_mul(SECOND)?
                .checked_add(part.checked_mul(parts)?)?;
            (ns > 0).then_some(ns)
        };
        match self {
            Limit::Milliseconds(i) => {
                let ms = c.args[i] as i32;
                (ms > 0).then_some(ms as i64 * MS)
            }
            Limit::Timespec(i) | Limit::CountedTimespec(i) => {
                of(guard::read(c.args[i]).filter(|_| c.args[i] != 0)?, 1)
            }
            Limit::CountedTimeval(i) => of(guard::read(c.args[i]).filter(|_| c.args[i] != 0)?, US),
        }
    }
}

/// What is known of a call that may be made more than once.
#[derive(Default)]
pub struct TimeLeft {
    /// Until when it waits, in nanoseconds of CLOCK_MONOTONIC; 0: it needs nothing.
    pub deadline: i64,
    /// What the program has where a sleep says how much of it was left.
    rest: Option<(u64, [u64; 2])>,
    /// The limit of a call that is made again.
    left: Timespec,
}

impl TimeLeft {
    /// The call is about to be made; `deadline`: it was made first in another life of the thread, and waits until then; 0: it wasn't.
    pub fn of(c: &Call, deadline: i64) -> TimeLeft {
        let Some(limit) = limit(c) else {
            return TimeLeft::default();
        };
        let from_here = || limit.length(c)?.checked_add(sys::monotonic().ns());
        let deadline = match deadline {
            0 => from_here().unwrap_or(0),
            then => then,
        };
        if deadline == 0 {
            return TimeLeft::default();
        }
        TimeLeft {
            deadline,
            rest: rest_of_sleep(c).and_then(|at| Some((at, guard::read(at)?))),
            ..TimeLeft::default()
        }
    }

    /// A signal of the runtime's own has ended the call: what the kernel says of that is taken back.
    pub fn interrupted(&self) {
        if let Some((at, was)) = self.rest {
            guard::write(at, &was);
        }
    }

    /// The call is about to be made once more. `self` has to stay where it is until it was.
    pub fn again(&mut self, c: &mut Call) {
        let (true, Some(limit)) = (self.deadline != 0, limit(c)) else {
            return;
        };
        let left = (self.deadline - sys::monotonic().ns()).max(0);
        let [sec, ns] = [left / SECOND, left % SECOND];
        match limit {
            Limit::Milliseconds(i) => c.local[i] = ((left + MS - 1) / MS) as u64,
            Limit::Timespec(i) => {
                self.left = Timespec::from_ns(left);
                c.local[i] = &self.left as *const Timespec as u64;
            }
            Limit::CountedTimespec(i) => {
                guard::write(c.local[i], &[sec, ns]);
            }
            Limit::CountedTimeval(i) => {
                guard::write(c.local[i], &[sec, ns / US]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::syscalls::lookup;

    fn call(number: u64, args: [u64; 6]) -> Call {
        Call::new(number, args, lookup(number))
    }

    #[test]
    fn what_is_left_of_milliseconds_is_rounded_up() {
        let mut c = call(nr::POLL, [0, 0, 1000, 0, 0, 0]);
        let mut left = TimeLeft::of(&c, sys::monotonic().ns() + 600 * MS - 1);
        left.again(&mut c);
        assert!((590..=600).contains(&c.local[2]), "{}", c.local[2]);
        // The limit is over.
        let mut left = TimeLeft::of(&c, 1);
        left.again(&mut c);
        assert_eq!(c.local[2], 0);
    }

    #[test]
    fn for_ever_stays_for_ever() {
        let mut c = call(nr::EPOLL_WAIT, [0, 0, 1, u64::MAX, 0, 0]);
        let mut left = TimeLeft::of(&c, 0);
        left.again(&mut c);
        assert_eq!((left.deadline, c.local[3]), (0, u64::MAX));
    }

    #[test]
    fn points_in_time_are_left_alone() {
        const ABSOLUTE: u64 = 1;
        assert_eq!(
            limit(&call(nr::CLOCK_NANOSLEEP, [0, ABSOLUTE, 1, 0, 0, 0])),
            None
        );
        const WAIT_BITSET: u64 = 9 | 128;
        assert_eq!(limit(&call(nr::FUTEX, [0, WAIT_BITSET, 0, 1, 0, 0])), None);
    }
}
