//! What comes from outside of the program, and time: how threads that left the ring come back into it without another thread's doing.
//!
//! Who makes a call that waits in the kernel leaves the ring, and **notifies** when the call is over; so does a waiting thread to which a signal came. Notices
//! are heard at the end of a round. When the ring is empty it **rests**, and whoever notifies sets it going again. When the world answers is the world's
//! business: a run depends on it as on all input.
//!
//! **The program's time** is counted in rounds, so that a time limit runs out in the same round always; when nobody else can go on, it jumps to the first
//! limit. But none runs out before it does so by the kernel's clock: the thread whose limit it is waits for that, in its turn or while the ring rests. So the
//! program's own clocks agree with what it waited for.

use super::pure::{self, clock};
use super::token::{self, member, state, why};
use super::{deadlock, log, shared_word};
use crate::isolate::layout::REST_BASE;
use crate::isolate::{ending, members, outside};
use crate::machine::sys;
use crate::thread::signals::{bit, ACTIONS, IGNORE, SIGNALS, SYNCHRONOUS};
use crate::thread::{current, Block, Current};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::det::question;
use reprise_abi::rounds::Rest;

/// The program's time that a round takes.
const ROUND_NS: u64 = 20_000;
/// libc's own signals: for cancellation, and for changes of ids.
const OF_LIBC: u64 = bit(32) | bit(33);

/// What all threads share.
#[repr(C)]
struct State {
    rest: Rest,
    /// The program's time.
    now: AtomicU64,
    /// The first limit of a thread that waits, or an earlier time.
    first: AtomicU64,
}

fn all() -> &'static State {
    // SAFETY: mapped before there is a second thread; zero at first; only atomics.
    unsafe { &*(REST_BASE as *const State) }
}

/// At the end of a round: those that have notified, and those whose time is over, get turns; whether there are any.
pub fn comes_back() -> bool {
    let s = all();
    let mut any = false;
    log::world::point();
    if log::replays() {
        while let Some(slot) = log::world::next_to_come() {
            token::recall(slot, why::SIGNAL);
            any = true;
        }
    } else if let Some(notified) = s.rest.take() {
        // In the order in which they were made: which slot a thread has depends on when the kernel was done with the one before.
        let all = || {
            let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 != 0);
            let words = notified.iter().enumerate().filter(|(_, word)| **word != 0);
            words.flat_map(move |(n, word)| bits(*word).map(move |bit| n as u32 * 64 + bit))
        };
        let index = members::number_of;
        let mut from = 0;
        while let Some(slot) = all()
            .filter(|s| index(*s) >= from)
            .min_by_key(|s| index(*s))
        {
            from = index(slot) + 1;
            let m = member(slot);
            if matches!(m.state.load(SeqCst), state::WAITS | state::OUTSIDE) {
                log::world::comes_back(slot);
                token::recall(slot, why::SIGNAL);
                any = true;
            }
        }
        any |= outside::distribute();
    }
    if any || token::nobody_in_ring() {
        return any;
    }
    let passed = match pure::on() && token::round_was_idle() {
        // How long the world takes is not the program's to know.
        true => 0,
        false => ROUND_NS,
    };
    let now = s.now.fetch_add(passed, Relaxed) + passed;
    if now < s.first.load(Relaxed) || s.first.load(Relaxed) == 0 {
        return false;
    }
    match first_limited() {
        Some(slot) if member(slot).deadline.load(Relaxed) <= now => {
            token::recall(slot, why::TIMED_OUT);
            true
        }
        other => {
            let first = other.map_or(0, |slot| member(slot).deadline.load(Relaxed));
            s.first.store(first, Relaxed);
            false
        }
    }
}

/// At the end of a turn of the ring's only thread: nobody comes back. Another round is over.
pub fn round_without_others() -> bool {
    let s = all();
    let first = s.first.load(Relaxed);
    let passed = match pure::on() && token::round_was_idle() {
        true => 0,
        false => ROUND_NS,
    };
    let now = s.now.load(Relaxed) + passed;
    let disturbs = log::world::disturbs(|| s.rest.is_notified());
    if disturbs || first != 0 && now >= first {
        return false;
    }
    s.now.store(now, Relaxed);
    true
}

/// Who waits until the earliest time.
fn first_limited() -> Option<u32> {
    let limited = |slot: &u32| member(*slot).deadline.load(Relaxed) != 0;
    let all = token::all_in(state::WAITS).chain(token::all_in(state::OUTSIDE));
    all.filter(limited).min_by_key(|slot| {
        let m = member(*slot);
        (m.deadline.load(Relaxed), m.since.load(Relaxed))
    })
}

/// The time of `slot` is over: so is the program's.
fn jump(slot: u32) {
    let s = all();
    s.now
        .fetch_max(member(slot).deadline.load(Relaxed), Relaxed);
    token::recall(slot, why::TIMED_OUT);
}

/// The ring is empty: it rests until somebody notifies, or until a time is over; or nothing will ever happen. True: it goes on already.
pub fn rest() -> bool {
    let s = all();
    let first = first_limited();
    if log::replays() && (first.is_some() || waits_for_the_world()) {
        if let Some(slot) = log::world::ends_rest() {
            jump(slot);
        }
        return true;
    }
    if let Some(slot) = first {
        if is_over(slot) {
            log::world::is_late(slot);
            jump(slot);
            return true;
        }
    } else if !waits_for_the_world() {
        deadlock::report();
    }
    s.rest.begins()
}

/// Can something from outside set the program going? A call of a thread that waits in the kernel, or a signal: a thread waits for any, or there is
/// a handler for one.
fn waits_for_the_world() -> bool {
    let for_any = |slot: u32| member(slot).word.load(Relaxed) == 0 || shared_word::waits(slot);
    if token::all_in(state::OUTSIDE).next().is_some() || token::all_in(state::WAITS).any(for_any) {
        return true;
    }
    (1..=SIGNALS as u32)
        .filter(|s| bit(*s) & (SYNCHRONOUS | OF_LIBC) == 0)
        .any(|s| ACTIONS.get(s).handler > IGNORE)
}

/// The thread of this slot, which left the ring, wants to be in it again.
pub fn notify(slot: u32) {
    if log::replays() {
        // The log says who comes back.
        return;
    }
    if all().rest.notify(slot) {
        token::next();
    }
}

/// Something has come that is to be looked at when the round ends ([`super::outside`]).
pub fn notify_for_nobody() {
    if all().rest.notify_for_nobody() {
        token::next();
    }
}

/// Has the thread of this slot notified, and is not in the ring yet?
pub fn has_notified(slot: u32) -> bool {
    all().rest.has_notified(slot)
}

/// In a turn, before the thread leaves the ring: notices that came too late mean nothing.
pub fn forget_notice(slot: u32) {
    all().rest.forget(slot);
}

/// Does a signal wait that the thread doesn't block, or waits for?
pub fn signal_waits(t: &Block) -> bool {
    waits_for(t.as_current())
}

fn waits_for(t: Current) -> bool {
    let waits_for = match crate::thread::in_force::threads_are_processes() {
        true => members::member(t.slot_number()).sigwait.load(Relaxed),
        false => 0,
    };
    t.pending().first(t.mask() & !waits_for).is_some()
}

/// Who waits looks whether it can come back: a signal has come, or its time is over and nobody else can go on.
pub fn look(slot: u32) {
    let (s, m) = (all(), member(slot));
    if !matches!(m.state.load(SeqCst), state::WAITS | state::OUTSIDE) || log::replays() {
        return;
    }
    if waits_for(current()) || shared_word::has_changed(m) {
        return notify(slot);
    }
    let over = || is_over(slot);
    let first = || m.deadline.load(Relaxed) != 0 && first_limited() == Some(slot);
    if s.rest.is_on() && first() && over() && s.rest.ends() {
        // Nobody but who ended the rest changes anything.
        if first_limited() == Some(slot) {
            log::world::is_late(slot);
            jump(slot);
        }
        token::next();
    }
}

/// Does the thread of this slot wait for the phase's end? It is to have a turn in this round, or wants to come back into the ring.
pub fn waits_for_phase(slot: u32) -> bool {
    let m = member(slot);
    let over = || m.deadline.load(Relaxed) != 0 && is_over_in_kernel(slot);
    match m.state.load(SeqCst) {
        // A new thread waits for its first phase.
        state::ARRIVED | state::DONE | state::RUNS | state::AT_IO | state::IO_DONE => true,
        state::WAITS | state::OUTSIDE => has_notified(slot) || over(),
        _ => false,
    }
}

/// Until when, by the kernel's monotonic clock, who waits may sleep before it looks again.
pub fn late(slot: u32) -> i64 {
    let m = member(slot);
    let limited = m.deadline.load(Relaxed) != 0;
    let end = match m.not_before.load(Relaxed) as i64 {
        at if limited && at > sys::monotonic().ns() => at,
        _ => i64::MAX / 2,
    };
    match shared_word::waits(slot) {
        true => end.min(sys::monotonic().ns() + shared_word::LOOK_NS),
        false => end,
    }
}

/// In a turn: the thread waits at most until `not_before`, by the kernel's monotonic clock.
pub fn limit(t: &mut Block, not_before: i64) {
    let ask = |_: &mut Block| (not_before - clock::monotonic()).max(0);
    let left = log::told(t, question::LEFT, ask) as u64;
    let not_before = sys::monotonic().ns().saturating_add_unsigned(left);
    limit_to(t, not_before, left);
}

/// As [`limit`], for so many ns: where these follow from the program alone, so does when they are over.
pub fn limit_for(t: &mut Block, ns: u64) {
    let end = sys::monotonic().ns().saturating_add_unsigned(ns);
    limit_to(t, end, ns);
}

/// As [`limit`], for so many rounds: by the kernel's clock they may be over at once.
pub fn limit_to_rounds(t: &mut Block, rounds: u64) {
    limit_to(t, 0, rounds * ROUND_NS);
}

/// As [`limit`], until this time of the program's.
pub fn limit_at(t: &mut Block, not_before: i64, deadline: u64) {
    limit_to_time(t, not_before, deadline);
}

fn limit_to(t: &mut Block, not_before: i64, left: u64) {
    let deadline = all().now.load(Relaxed).saturating_add(left);
    limit_to_time(t, not_before, deadline);
}

fn limit_to_time(t: &mut Block, not_before: i64, deadline: u64) {
    let (s, m) = (all(), member(t.slot));
    clock::meet(t);
    let deadline = deadline.max(1);
    m.not_before.store(not_before.max(0) as u64, Relaxed);
    m.deadline.store(deadline, Relaxed);
    let first = s.first.load(Relaxed);
    if first == 0 || deadline < first {
        s.first.store(deadline, Relaxed);
    }
}

/// A time limit of a thread that stays in the ring.
pub struct Limit {
    /// In the program's time.
    program: u64,
    /// By the kernel's clock.
    real: i64,
}

impl Limit {
    /// So many ns from now.
    pub fn new(ns: u64) -> Limit {
        Limit {
            program: all().now.load(Relaxed).saturating_add(ns),
            real: sys::monotonic().ns().saturating_add_unsigned(ns),
        }
    }

    /// How many ns of the program's time are left of it.
    pub fn left(&self) -> u64 {
        self.program.saturating_sub(all().now.load(Relaxed))
    }

    /// Has it run out? `idle`: nobody can go on but for the world. In a turn.
    pub fn is_over(&self, t: &mut Block, idle: bool) -> bool {
        let s = all();
        if s.now.load(Relaxed) < self.program {
            let is_over = |_: &mut Block| sys::monotonic().ns() >= self.real;
            if !idle || !log::decide(t, question::OVER, is_over) {
                return false;
            }
            s.now.fetch_max(self.program, Relaxed);
        }
        wait_until(self.real);
        true
    }
}

/// In a turn, while nobody can go on but for the world: a limit of a thread that waits may have run out.
pub fn idles(t: &mut Block) {
    if let Some(slot) = first_limited() {
        if log::decide(t, question::OVER, |_| is_over_in_kernel(slot)) {
            jump(slot);
        }
    }
}

/// In a turn, after a time limit has run out: by the kernel's clock, too.
pub fn wait_out(slot: u32) {
    wait_until(member(slot).not_before.load(Relaxed) as i64);
}

/// Is the limit of this slot's thread over by the kernel's clock?
fn is_over_in_kernel(slot: u32) -> bool {
    member(slot).not_before.load(Relaxed) as i64 <= sys::monotonic().ns()
}

/// May it run out, now that nobody else can go on?
fn is_over(slot: u32) -> bool {
    is_over_in_kernel(slot) || pure::on() && !pure::sleep::outside_is_awaited()
}

/// The program's time.
pub fn now() -> u64 {
    all().now.load(Relaxed)
}

/// In a turn: the later one of the program's time and of this one is the program's time from now on.
pub fn meet(time: u64) -> u64 {
    all().now.fetch_max(time, Relaxed).max(time)
}

fn wait_until(end: i64) {
    if pure::on() || log::replays() {
        return;
    }
    while sys::monotonic().ns() < end {
        let never = 0u32;
        sys::futex_wait(&never, 0, Some(&sys::Timespec::from_ns(end)));
        ending::look_after_threads();
    }
}
