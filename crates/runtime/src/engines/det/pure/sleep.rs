//! Sleeps and time limits under `--pure`. The program's time jumps to their end when nobody else can go on and nothing outside is waited for: no child, no
//! timer, no call that waits in the kernel. Else they take the kernel's time, too, since what comes from outside has to have its chance.

use super::super::idle;
use super::super::token::{self, state};
use super::clock;
use crate::common::plain;
use crate::engine::waits::Wait;
use crate::engines::det::Det;
use crate::isolate::split;
use crate::machine::guard;
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use reprise_abi::effect::{Effect, Timeout};
use reprise_abi::syscalls::{self, nr};

const EAGAIN: i64 = -11;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const ETIMEDOUT: i64 = -110;
/// Times of `CLOCK_REALTIME` are later than this, those of `CLOCK_MONOTONIC` earlier.
const BETWEEN_NS: i64 = clock::DAY_NS as i64 / 2;

/// The program has set a timer.
static TIMERS: AtomicBool = AtomicBool::new(false);

/// It sets one.
pub fn sets_timer() {
    TIMERS.store(true, Relaxed);
}

/// Can something come from outside that the program waits for?
pub fn outside_is_awaited() -> bool {
    let waits = || split::in_force() && token::all_in(state::OUTSIDE).next().is_some();
    TIMERS.load(Relaxed) || waits() || has_children()
}

fn has_children() -> bool {
    const ECHILD: i64 = -10;
    /// WNOHANG, WEXITED, WNOWAIT
    const LOOK: u64 = 1 | 4 | 0x0100_0000;
    sys::waitid(0, 0, 0, LOOK, 0) != ECHILD
}

/// A time that the program gives, in ns; or why it is none.
fn time(at: u64) -> Result<i64, i64> {
    let t = guard::read::<Timespec>(at).ok_or(EFAULT)?;
    match t.sec < 0 || !(0..1_000_000_000).contains(&t.nsec) {
        true => Err(EINVAL),
        false => Ok(t.ns()),
    }
}

/// When it is so late on one of the program's clocks, in the program's time. Which clock it is, the time itself says.
fn of_any_clock(ns: i64) -> u64 {
    clock::of_monotonic(clock::in_monotonic(ns, ns > BETWEEN_NS))
}

/// nanosleep(2) and clock_nanosleep(2) of the program's only thread.
pub fn nanosleep(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
    const TIMER_ABSTIME: u64 = 1;
    let (wanted, absolute) = match c.nr {
        nr::NANOSLEEP => (0, false),
        _ => (2, c.args[1] & TIMER_ABSTIME != 0),
    };
    let ns = match time(c.args[wanted]) {
        Ok(ns) => ns,
        Err(e) => return e,
    };
    let until = match absolute {
        true => of_any_clock(ns),
        false => t.det().pure.clock.now().saturating_add(ns as u64),
    };
    if !idle::signal_waits(t) && !outside_is_awaited() {
        t.det().pure.clock.pass(until);
        return 0;
    }
    let left = Timespec::from_ns(clock::left(t, until) as i64);
    c.local[wanted] = &left as *const Timespec as u64;
    if absolute {
        // What is left is told of relative sleeps only.
        (c.local[1], c.local[3]) = (0, 0);
    }
    let r = plain::syscall::<Det>(t, c);
    if r == 0 {
        t.det().pure.clock.pass(until);
    }
    r
}

/// Waits of the program's only thread on a word, until `until` of the program's time.
pub fn wait(t: &mut Block, word: &AtomicU32, value: u32, until: u64, shared: bool) -> Wait {
    if word.load(SeqCst) != value {
        return Wait::Changed;
    }
    if idle::signal_waits(t) {
        return Wait::Signal;
    }
    if shared || outside_is_awaited() {
        let end = Timespec::from_ns(clock::in_kernel(t, until));
        match sys::futex_wait(word.as_ptr(), value, Some(&end)) {
            ETIMEDOUT => {}
            EAGAIN => return Wait::Changed,
            _ if idle::signal_waits(t) => return Wait::Signal,
            _ => return Wait::Woken,
        }
    }
    t.det().pure.clock.pass(until);
    Wait::TimedOut
}

/// futex(2) of the program's only thread, where it waits with a time limit; `None`: it doesn't.
pub fn futex(t: &mut Block, c: &mut Call, _frame: &Frame) -> Option<i64> {
    const WAIT: u32 = 0;
    const WAIT_BITSET: u32 = 9;
    const PRIVATE: u64 = 128;
    const REALTIME: u64 = 256;
    let command = crate::memory::futex::command(c);
    if !matches!(command, WAIT | WAIT_BITSET) || c.args[3] == 0 {
        return None;
    }
    let ns = match time(c.args[3]) {
        Ok(ns) => ns,
        Err(e) => return Some(e),
    };
    let until = match command {
        WAIT => t.det().pure.clock.now().saturating_add(ns as u64),
        _ => clock::of_monotonic(clock::in_monotonic(ns, c.args[1] & REALTIME != 0)),
    };
    let Some(word) = guard::read::<u32>(c.args[0]) else {
        return Some(EFAULT);
    };
    if word != c.args[2] as u32 {
        return Some(EAGAIN);
    }
    let private = c.args[1] & PRIVATE != 0;
    if private && !idle::signal_waits(t) && !outside_is_awaited() {
        t.det().pure.clock.pass(until);
        return Some(ETIMEDOUT);
    }
    let end = Timespec::from_ns(match command {
        WAIT => ns,
        _ => clock::in_kernel(t, until),
    });
    c.local[3] = &end as *const Timespec as u64;
    c.local[1] &= !REALTIME;
    let r = plain::syscall::<Det>(t, c);
    if r == ETIMEDOUT {
        t.det().pure.clock.pass(until);
    }
    Some(r)
}

/// timer_settime(2), timerfd_settime(2): the kernel's timers run in the kernel's time. `room` gets what it is told.
pub fn settime(t: &mut Block, c: &mut Call, room: &mut [u64; 4]) {
    /// TIMER_ABSTIME, TFD_TIMER_ABSTIME
    const ABSOLUTE: u64 = 1;
    sets_timer();
    let Some(wanted) = guard::read::<[u64; 4]>(c.args[2]) else {
        return;
    };
    if c.args[1] & ABSOLUTE == 0 || wanted[2..] == [0; 2] {
        return;
    }
    let ns = Timespec {
        sec: wanted[2] as i64,
        nsec: wanted[3] as i64,
    }
    .ns();
    // One that is over already is so now.
    let left = clock::left(t, of_any_clock(ns)).max(1);
    *room = [
        wanted[0],
        wanted[1],
        left / 1_000_000_000,
        left % 1_000_000_000,
    ];
    c.local[1] &= !ABSOLUTE;
    c.local[2] = room.as_ptr() as u64;
}

/// How long a call waits at most that is given a time for that, in ns.
pub fn limit_of(c: &Call) -> Option<u64> {
    let ms = |ms: u64| (ms as i32 > 0).then_some(ms as u32 as u64 * 1_000_000);
    let timespec = |at: u64| time(at).ok().map(|ns| ns as u64);
    if !matches!(
        c.effect,
        Effect::Polls | Effect::PollsSet(_) | Effect::TakesSignal
    ) {
        return None;
    }
    match syscalls::timeout(c.nr) {
        Timeout::Ms(n) => ms(c.arg(n)),
        Timeout::Timeval(n) => {
            let at = c.arg(n);
            let limit = guard::read::<[u64; 2]>(at).filter(|_| at != 0)?;
            Some(limit[0] * 1_000_000_000 + limit[1] * 1000)
        }
        Timeout::Timespec(n) => timespec(c.arg(n)),
        Timeout::None | Timeout::Until(_) => None,
    }
}

/// Did a call with such a limit return because it was over?
pub fn is_over(c: &Call, result: i64) -> bool {
    match c.effect {
        Effect::TakesSignal => result == EAGAIN,
        _ => result == 0,
    }
}
