//! System calls of threads that are processes: made in turns, so that what they do to each other (files, pipes, descriptors) has an
//! order that follows from the program (DThreads 4.5 leaves that to the kernel).
//!
//! A call that waits for a descriptor is tried in each turn: whether it waits then follows from what the program's own threads have done. Where
//! the world outside decides, the run depends on it. Sleeps are waits with a time limit. Other calls that wait are made outside of the ring, beside other
//! threads.

use super::clock::{self as readings, Moment};
use super::idle::{self, Limit};
use super::io_turns;
use super::log;
use super::pure::{self, clock};
use super::wait::Word;
use super::Det;
use super::{child_waits, polled, signal_calls, token, turns, wait};
use crate::common::plain;
use crate::engine::waits::Wait;
use crate::engine::RESTART;
use crate::isolate::members::member;
use crate::isolate::{
    children, one_process, outside, shared_signals, signal_descriptors, signals, split,
};
use crate::log::events;
use crate::machine::guard;
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use crate::memory::scratch::Scratch;
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::signals::{ACTIONS, SA_RESTART};
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::SeqCst;
use reprise_abi::det::question;
use reprise_abi::effect::{Effect, Opened, Receiver, Timeout, Told};
use reprise_abi::spec::{Blocking, Restart};
use reprise_abi::syscalls::{self, nr};

const EINTR: i64 = -4;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const EAGAIN: i64 = -11;
const ETIMEDOUT: i64 = -110;
const EINPROGRESS: i64 = -115;
const MSG_DONTWAIT: u64 = 0x40;
const TIMER_ABSTIME: u64 = 1;
const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;
/// While nobody can do anything but wait for descriptors, a turn takes that long.
const IDLE_MS: u64 = 5;

/// A system call whose result and outputs come from the kernel.
pub fn given(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    if !split::in_force() {
        let r = log::ask::ask(t, c, frame);
        readings::was_read(t, c, r);
        return r;
    }
    if t.saved_mask.is_some() {
        // A call that waits with another mask: signals may come from now on, and not only when it is made.
        kernel::sync_mask(t);
    }
    match c.effect {
        Effect::Tells(Told::ProcessId) => return process::visible_pid() as i64,
        Effect::Tells(Told::Clock | Told::TimeOfDay) => {
            let r = log::ask::ask(t, c, frame);
            readings::was_read(t, c, r);
            return r;
        }
        Effect::Tells(Told::Seconds | Told::ThreadId) => return log::ask::ask(t, c, frame),
        Effect::Signals(sent) if sent.to == Receiver::ThreadOf => {
            return turns::within_earnest(t, |t| {
                let signal = c.arg(sent.signal) as u32;
                match signals::address_thread(c) {
                    Some(s) if shared_signals::waits_for(s, signal) => {
                        shared_signals::hand_over(s, c)
                    }
                    Some(s) => signal_calls::send_to(t, s, signal, |t| log::ask::ask(t, c, frame)),
                    None => log::ask::ask(t, c, frame),
                }
            })
        }
        Effect::Opens(Opened::Signals) => {
            return turns::within_earnest(t, |t| {
                let r = log::ask::ask(t, c, frame);
                if !sys::is_error(r) {
                    signal_descriptors::made(t, c.args[1]);
                }
                r
            })
        }
        Effect::TellsPending => return turns::within(t, |t| signal_calls::pending(t, c, frame)),
        _ => {}
    }
    if one_process::is_for_all(c) {
        return turns::within_earnest(t, |t| {
            let hash = log::ask::hash_of(t, c);
            if log::replays() && log::follows(t) {
                return log::ask::result(t, c, hash);
            }
            let r = one_process::make(t, c, plain::syscall::<Det>);
            log::ask::done(t, c, r, hash)
        });
    }
    // Who is recorded has children and timers as the kernel has them.
    if is_timers(c) && !log::follows(t) {
        return turns::within_earnest(t, |t| {
            outside::timers(t, c).unwrap_or_else(|| log::ask::ask(t, c, frame))
        });
    }
    if token::live() <= 1 {
        return signal_calls::alone(t, c, frame).unwrap_or_else(|| log::ask::ask(t, c, frame));
    }
    if shared_signals::is_for_us(c) {
        return turns::within_earnest(t, |t| signal_calls::send(t, c, frame));
    }
    match c.blocking {
        Blocking::Never | Blocking::Rarely => {
            io_turns::call(t, c, |t, c| match polled::opens_fifo(c) {
                true => beside(t, c, frame),
                false => log::ask::ask(t, c, frame),
            })
        }
        Blocking::Fd(n) => {
            io_turns::call(t, c, |t, c| on_descriptor(t, c, c.args[n as usize], frame))
        }
        Blocking::Always => turns::within(t, |t| waits(t, c, frame)),
    }
}

fn is_timers(c: &Call) -> bool {
    matches!(
        c.effect,
        Effect::MakesTimer
            | Effect::SetsTimer(None)
            | Effect::TellsTimer
            | Effect::DeletesTimer
            | Effect::SetsIntervalTimer
            | Effect::TellsIntervalTimer
    )
}

/// A call that may wait for a descriptor, in a turn.
fn on_descriptor(t: &mut Block, c: &mut Call, fd: u64, frame: &Frame) -> i64 {
    let make =
        |t: &mut Block, c: &mut Call| signal_descriptors::with(t, |t| log::ask::ask(t, c, frame));
    if never_waits(t, c, fd) {
        return make(t, c);
    }
    if matches!(c.nr, nr::WRITE | nr::SENDTO) && c.args[2] > ATOMIC {
        let hash = c.input_hash();
        if let Some(r) = written_in_parts(t, c) {
            return log::ask::done(t, c, r, hash);
        }
    }
    let limit = limit_of(t, c, fd);
    match until_ready(t, fd, events_of(c), limit.as_ref()) {
        Ready::Yes => make(t, c),
        Ready::Late => match c.effect {
            Effect::Puts(_) | Effect::Takes(_) => ETIMEDOUT,
            Effect::Notifies(_) => EINPROGRESS,
            _ => EAGAIN,
        },
        // signal(7): no call with a time limit is made again.
        Ready::Signal if limit.is_some() => EINTR,
        Ready::Signal => interrupted(t, c),
    }
}

/// How long a call waits for a descriptor at most, where that was said: with the call, or for the socket. Never, if the time is none:
/// then the kernel says so.
fn limit_of(t: &mut Block, c: &Call, fd: u64) -> Option<Limit> {
    const NONE: i64 = -1;
    let ns = log::told(t, question::LEFT, |_| ns_of_limit(c, fd).unwrap_or(NONE));
    (ns != NONE).then(|| Limit::new(ns as u64))
}

/// As [`limit_of`], in ns.
fn ns_of_limit(c: &Call, fd: u64) -> Option<i64> {
    const SOL_SOCKET: u64 = 1;
    const SO_RCVTIMEO: u64 = 20;
    const SO_SNDTIMEO: u64 = 21;
    const SECOND: u64 = 1_000_000_000;
    if let Timeout::Until(at) = syscalls::timeout(c.nr) {
        let end = time(c.arg(at)).ok()?;
        let left = clock::in_monotonic(end, true) - clock::monotonic();
        return Some(left.max(0));
    }
    let option = match events_of(c) {
        POLLOUT => SO_SNDTIMEO,
        _ => SO_RCVTIMEO,
    };
    // struct timeval
    let (mut limit, mut len) = ([0u64; 2], 16u32);
    let (to, to_len) = (limit.as_mut_ptr() as u64, &mut len as *mut u32 as u64);
    let r = sys::getsockopt(fd, SOL_SOCKET, option, to, to_len);
    (r == 0 && limit != [0, 0]).then(|| (limit[0] * SECOND + limit[1] * 1000) as i64)
}

/// What a call that a signal has interrupted while it waited returns.
pub fn interrupted(t: &mut Block, c: &Call) -> i64 {
    let restarts = |signal: u32| ACTIONS.get(signal).flags & SA_RESTART != 0;
    let ask = |t: &mut Block| {
        let signal = t.pending.first(t.mask).map_or(0, |s| s.signal());
        (signal != 0 && restarts(signal)).into()
    };
    match c.restart == Restart::Handler && log::told(t, question::RESTARTS, ask) != 0 {
        true => RESTART,
        false => EINTR,
    }
}

/// Was it said, once and for all or for this call, that it is not to wait?
fn never_waits(t: &mut Block, c: &Call, fd: u64) -> bool {
    const F_GETFL: u64 = 3;
    const O_NONBLOCK: i64 = 0o4000;
    if c.is_told_not_to_wait() {
        return true;
    }
    let flags = log::told(t, question::FLAGS, |_| sys::fcntl(fd, F_GETFL));
    flags < 0 || flags & O_NONBLOCK != 0
}

/// So many bytes a pipe takes at once when poll(2) says that it can be written to (PIPE_BUF).
const ATOMIC: u64 = 4096;

/// write(2) and send(2) of more than fits into a pipe or a stream's buffer: each turn writes what fits. `None`: this descriptor isn't one of these.
fn written_in_parts(t: &mut Block, c: &Call) -> Option<i64> {
    const RWF_NOWAIT: u64 = 8;
    let (fd, from, len) = (c.args[0], c.local[1], c.args[2]);
    let limit = limit_of(t, c, fd);
    let mut done = 0;
    let part = |done: u64| {
        let rest = [from + done, len - done];
        match c.nr {
            nr::SENDTO => {
                let flags = c.args[3] | MSG_DONTWAIT;
                let to = [c.local[4], c.local[5]];
                sys::sendto(fd, rest[0], rest[1], flags, to[0], to[1])
            }
            _ => {
                let at = &rest as *const _ as u64;
                sys::pwritev2(fd, at, 1, u64::MAX, 0, RWF_NOWAIT)
            }
        }
    };
    while done < len {
        match log::told(t, question::WRITTEN, |_| part(done)) {
            n if n > 0 => done += n as u64,
            EAGAIN if log::signal_waits(t) => match done {
                0 => return Some(interrupted(t, c)),
                _ => break,
            },
            EAGAIN => {
                if let Ready::Late = until_ready(t, fd, POLLOUT, limit.as_ref()) {
                    return Some(if done == 0 { EAGAIN } else { done as i64 });
                }
            }
            _ if done != 0 => break,
            // No such thing here, or an error that the call itself tells of as it should (and sends SIGPIPE for it).
            _ => return None,
        }
    }
    Some(done as i64)
}

/// A call that may wait for anything, in a turn.
fn waits(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    if let Some(n) = timeout_of(c) {
        return polled(t, c, n, frame);
    }
    if let Some(n) = time_of(c) {
        return polled_for_time(t, c, n, frame);
    }
    if let Some(r) = polled::make(t, c, frame) {
        return r;
    }
    match c.effect {
        Effect::Pauses => signal_calls::pause(t),
        Effect::Sleeps if c.nr == nr::NANOSLEEP => sleep(t, c.args[0], c.args[1]),
        Effect::Sleeps if (c.args[0] as u32) < 2 || pure::on() => match c.args[1] {
            TIMER_ABSTIME => sleep_until(t, c.args[2], matches!(c.args[0], 0 | 8)),
            _ => sleep(t, c.args[2], c.args[3]),
        },
        Effect::TakesSignal => signal_calls::wait(t, c, frame),
        Effect::AwaitsChild if !log::follows(t) && !children::are_own(t, c) => {
            turns::in_earnest(t);
            child_waits::wait(t, c)
        }
        // Asks only.
        Effect::AwaitsChild if c.is_told_not_to_wait() => log::ask::ask(t, c, frame),
        _ => beside(t, c, frame),
    }
}

/// A call that waits in the kernel: the thread makes it beside all others. The kernel sees scratch memory.
fn beside(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
    let mut scratch = Scratch::new(t, c.scratch_needed());
    if let Err(e) = c.localise(&mut scratch) {
        return e;
    }
    let hash = log::ask::hash_of(t, c);
    let r = loop {
        let r = match c.effect {
            Effect::AwaitsChild => turns::outside_for_child(t, |t| {
                let r = plain::syscall::<Det>(t, c);
                (r, !matches!(r, RESTART | EINTR))
            }),
            _ => turns::outside(t, |t| plain::syscall::<Det>(t, c)),
        };
        // In a turn again: what came of it is what others see.
        let Some(r) = r else {
            return log::ask::result(t, c, hash);
        };
        if member(t.slot).called.swap(0, SeqCst) == 0 || r != EINTR {
            break r;
        }
        if t.pending.first(t.mask).is_some() {
            break interrupted(t, c);
        }
    };
    log::ask::done(t, c, r, hash);
    if r != RESTART {
        events::copy_out(c, r);
    }
    r
}

/// A time that the program gives, or why it is none.
fn time(at: u64) -> Result<i64, i64> {
    let t = guard::read::<Timespec>(at).ok_or(EFAULT)?;
    match t.sec < 0 || !(0..1_000_000_000).contains(&t.nsec) {
        true => Err(EINVAL),
        false => Ok(t.ns()),
    }
}

/// nanosleep(2): `left` gets what is left of it when a signal comes.
fn sleep(t: &mut Block, wanted: u64, left: u64) -> i64 {
    let ns = match time(wanted) {
        Ok(ns) => ns,
        Err(e) => return e,
    };
    let end = clock::monotonic().saturating_add(ns);
    match wait::wait_for(t, Word::NONE, ns as u64) {
        Wait::Signal => {
            let ask = |_: &mut Block| (end - clock::monotonic()).max(0);
            let rest = Timespec::from_ns(log::told(t, question::LEFT, ask));
            if left != 0 && !guard::write(left, &rest) {
                return EFAULT;
            }
            EINTR
        }
        _ => 0,
    }
}

/// clock_nanosleep(2) with TIMER_ABSTIME.
fn sleep_until(t: &mut Block, end: u64, realtime: bool) -> i64 {
    match time(end) {
        Err(e) => e,
        Ok(ns) => match wait::wait(t, Word::NONE, Some(Moment { ns, realtime })) {
            Wait::Signal => EINTR,
            _ => 0,
        },
    }
}

fn events_of(c: &Call) -> u32 {
    match c.effect.waits_for_room() {
        true => POLLOUT,
        false => POLLIN,
    }
}

/// How a wait for a descriptor ended.
enum Ready {
    /// It is ready, or is none that ever will be.
    Yes,
    /// A signal came instead.
    Signal,
    /// Its time was over.
    Late,
}

/// In turns: waits until a descriptor is ready.
fn until_ready(t: &mut Block, fd: u64, events: u32, limit: Option<&Limit>) -> Ready {
    let mut wait = 0;
    let mut first = io_turns::patience_ms(t);
    loop {
        let ready = log::decide(t, question::READY, |t| {
            let mut asked = [fd as u32, events];
            let to = asked.as_mut_ptr() as u64;
            let ms = core::mem::take(&mut first).max(wait);
            let r = signal_descriptors::with(t, |_| sys::poll(to, 1, ms));
            r != 0 && r != EINTR
        });
        let ended = match () {
            _ if ready => Some(Ready::Yes),
            _ if log::signal_waits(t) => Some(Ready::Signal),
            _ => limit
                .is_some_and(|l| l.is_over(t, wait != 0))
                .then_some(Ready::Late),
        };
        if let Some(ended) = ended {
            token::idles(false);
            return ended;
        }
        wait = idle(t);
        turns::give_way(t);
    }
}

/// A turn was of no use: how many ms the next one may take.
pub fn idle(t: &mut Block) -> u64 {
    if !token::idles(true) {
        return 0;
    }
    idle::idles(t);
    IDLE_MS
}

/// Which argument says how many ms the call waits.
fn timeout_of(c: &Call) -> Option<usize> {
    match syscalls::timeout(c.nr) {
        Timeout::Ms(n) => Some(n as usize),
        _ => None,
    }
}

/// Waits for several descriptors, in turns.
fn polled(t: &mut Block, c: &mut Call, n: usize, _frame: &Frame) -> i64 {
    let wanted = c.local[n] as i32;
    let limit = (wanted > 0).then(|| Limit::new(wanted as u64 * 1_000_000));
    c.local[n] = 0;
    let mut waited = false;
    let hash = log::ask::hash_of(t, c);
    loop {
        let mut r = 0;
        let answers = log::decide(t, question::READY, |t| {
            r = signal_descriptors::with(t, |t| plain::syscall::<Det>(t, c));
            r != 0
        });
        if answers {
            r = log::ask::done(t, c, r, hash);
        }
        if r == RESTART && waited {
            r = interrupted(t, c);
        }
        let idle_before = c.local[n] != 0;
        if r != 0
            || limit
                .as_ref()
                .map_or(wanted == 0, |l| l.is_over(t, idle_before))
        {
            token::idles(false);
            return match r {
                // It has written that nothing is ready.
                0 => log::ask::done(t, c, 0, hash),
                _ => r,
            };
        }
        c.local[n] = idle(t);
        turns::give_way(t);
        waited = true;
    }
}

/// Which argument says where a time is, for which the call waits for several descriptors; and whether that is a `struct timeval`.
fn time_of(c: &Call) -> Option<(usize, bool)> {
    if !matches!(c.effect, Effect::Polls | Effect::PollsSet(_)) {
        return None;
    }
    match syscalls::timeout(c.nr) {
        Timeout::Timeval(n) => Some((n as usize, true)),
        Timeout::Timespec(n) => Some((n as usize, false)),
        _ => None,
    }
}

/// As [`polled`]. What the call writes to its sets when nothing is ready is not to be seen before its time is over.
fn polled_for_time(t: &mut Block, c: &mut Call, place: (usize, bool), frame: &Frame) -> i64 {
    let (n, in_us) = place;
    let ns_of = |w: [u64; 2]| {
        let part = if in_us { w[1].checked_mul(1000)? } else { w[1] };
        let fits = part < 1_000_000_000 || in_us;
        let ns = w[0].checked_mul(1_000_000_000)?.checked_add(part)?;
        (fits && ns < i64::MAX as u64).then_some(ns)
    };
    let limit = match c.args[n] {
        0 => None,
        at => match guard::read::<[u64; 2]>(at).and_then(ns_of) {
            Some(ns) => Some(Limit::new(ns)),
            // The kernel says what is wrong with it.
            None => return log::ask::ask(t, c, frame),
        },
    };
    let hash = log::ask::hash_of(t, c);
    let (mut waited, mut first) = (0, true);
    // Words of the runtime's, where the mask was replaced.
    let before = (c.local, c.mem);
    loop {
        (c.local, c.mem) = before;
        let mut scratch = Scratch::new(t, c.scratch_needed());
        if let Err(e) = c.localise(&mut scratch) {
            return e;
        }
        let mut time = [
            waited / 1000,
            waited % 1000 * if in_us { 1000 } else { 1_000_000 },
        ];
        c.local[n] = time.as_mut_ptr() as u64;
        let mut r = 0;
        let answers = log::decide(t, question::READY, |t| {
            r = signal_descriptors::with(t, |t| plain::syscall::<Det>(t, c));
            r != 0
        });
        if answers && log::replays() {
            return log::ask::result(t, c, hash);
        }
        if r == RESTART && !first {
            r = interrupted(t, c);
        }
        if r != 0 || limit.as_ref().is_some_and(|l| l.is_over(t, waited != 0)) {
            token::idles(false);
            if log::replays() {
                return log::ask::result(t, c, hash);
            }
            let left = limit.as_ref().map_or(0, Limit::left);
            let part = left % 1_000_000_000;
            time = [left / 1_000_000_000, if in_us { part / 1000 } else { part }];
            c.local[n] = if c.args[n] == 0 {
                0
            } else {
                time.as_ptr() as u64
            };
            log::ask::done(t, c, r, hash);
            if r != RESTART {
                events::copy_out(c, r);
            }
            return r;
        }
        first = false;
        waited = idle(t);
        turns::give_way(t);
    }
}
