//! Threads of a copy that have left the log go on without it (DoublePlay 5.2.4, in the middle of an epoch).
//!
//! A race decides what a thread does next: which lock it takes, how often it looks, whether it makes a call. A copy that runs the epoch again comes to such a place and can't go by
//! the log from there. Nothing of that is wrong: what the copy does is an execution of the program as good as the leader's, if only those who watch the program have seen the same of it. So the
//! thread goes on, makes its operations as under `record --hooks`, in no order that was there before, and the program takes over what the copy comes to.
//!
//! **What counts** of the log is what was seen outside, or stays with the kernel ([`lasts`]): each such call has to be made with the same arguments, in the order in which the leader's threads made
//! them, and gets what the kernel has answered; and the same threads begin and end. A copy that comes to anything else ends, and nothing comes of the epoch.
//! Calls of which nothing stays are made anew. What the kernel would say of another process than of the program is taken from the log, where the thread has asked for the same there.
//!
//! **The end** of such a thread is a gate or hooked function at which nothing that counts is left of anybody's log, after about as many of them as the leader's thread came to; or a call that
//! isn't made yet.

use super::follow::{await_until, fails, part, rest, sleeps_until, wait_until};
use super::{cut, hooked, told};
use crate::common::time_left::TimeLeft;
use crate::engine::waits::{Deadline, Wait};
use crate::gate::{leader, stand};
use crate::log::epoch;
use crate::log::events;
use crate::log::held;
use crate::machine::{guard, sys};
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::of_file::OfFile;
use crate::thread::{process, session, Block, Entered, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::effect::{Effect, Told};
use reprise_abi::epoch::Why;
use reprise_abi::event::{Event, Instruction, Kind};
use reprise_abi::futex::{
    FUTEX_CLOCK_REALTIME, FUTEX_PRIVATE_FLAG, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAKE,
    FUTEX_WAKE_BITSET,
};
use reprise_abi::session::FLAG_EPOCHS;
use reprise_abi::syscalls::{self, asks_alike, lasts, nr};

/// Does the program take over what a copy comes to without its log?
#[inline]
pub fn is_allowed() -> bool {
    session().flags & FLAG_EPOCHS != 0
}

/// Has the thread left the log?
#[inline]
pub fn has(t: &Block) -> bool {
    part(t).has_left()
}

/// The thread goes on without the log. Where nobody takes over what the copy comes to, that ends it.
pub fn leaves(t: &Block, why: Why) {
    if !is_allowed() {
        fails(t, why);
    }
    epoch::leaves(t.slot, why);
}

/// Nobody goes on. All who wait for their turns are to leave the log; false: they were told before, or nobody takes over what the copy comes to.
pub fn all_leave(t: &Block) -> bool {
    let may = is_allowed();
    if may && !epoch::has_left() {
        epoch::leaves(t.slot, Why::Stuck);
    }
    may && epoch::all_leave()
}

/// A thread has waited by looking for a whole slice. If threads have left the log, others need not have come to what it waits for where theirs say.
pub fn one_waits_by_looking() {
    if epoch::has_left() {
        epoch::all_leave();
    }
}

/// Is this the event of that call, with the same arguments?
pub fn is_of(e: &Event, c: &Call, hash: u64) -> bool {
    let same = asks_alike(c.nr, &c.args, c.nargs, |i| e.arg(i));
    e.header.detail == c.nr as u32 && same && e.header.input_hash == hash
}

/// Can output of this call be held? The program has held some for the same descriptor in this epoch.
pub fn is_held(c: &Call) -> bool {
    held::target(c).is_some_and(|target| epoch::is_outlet(target.fd))
}

/// What the call writes is kept until the epoch is good: so many bytes.
pub fn holds(t: &Block, c: &Call) -> i64 {
    let Some(target) = held::target(c) else {
        fails(t, Why::Input)
    };
    if !held::keeps(c, &target) {
        fails(t, Why::Long);
    }
    target.len as i64
}

/// A call of which nothing stays. It is made anew, unless the log has the kernel's answer.
pub fn call(t: &mut Block, c: &Call, hash: u64) -> i64 {
    if is_held(c) {
        let len = holds(t, c);
        events::call(t, Kind::Syscall, c, len, 0, hash);
        return len;
    }
    let is_it = |e: &Event| e.kind == Kind::Syscall && is_of(e, c, hash);
    let own = match c.effect {
        Effect::Tells(Told::ThreadId) => Some(t.slot().visible_tid.load(Relaxed)),
        Effect::Tells(Told::ProcessId) => Some(process::visible_pid()),
        _ => None,
    };
    if let Some(id) = own {
        return computed(t, c, id.into());
    }
    if let (false, Some(e)) = (is_told_alike(c), part(t).goes_to_call(is_it)) {
        super::follow::apply(t, &e);
        told::call(t, c, &e, false);
        return e.header.value;
    }
    if c.effect == Effect::Sleeps {
        return takes_time(t, c, hash);
    }
    if !is_told_alike(c) {
        fails(t, Why::Input);
    }
    // SAFETY: the program's own call, which changes nothing but its memory.
    let r = unsafe { sys::syscall6(c.nr, c.local) };
    events::call(t, Kind::Syscall, c, r, 0, hash);
    r
}

/// The thread sleeps for a time, and others go on meanwhile: what it waits for may be theirs to do.
fn takes_time(t: &mut Block, c: &Call, hash: u64) -> i64 {
    let deadline = TimeLeft::of(c, 0).deadline;
    let until = move |c: &Call| match deadline {
        0 => time_of_clock(c).is_none_or(|[now, then]| now >= then),
        then => sys::monotonic().ns() >= then,
    };
    let call = *c;
    if deadline == 0 && time_of_clock(c).is_none() {
        // No time at all, or one that the kernel refuses.
        // SAFETY: the program's own call, which changes nothing but its memory.
        let r = unsafe { sys::syscall6(c.nr, c.local) };
        events::call(t, Kind::Syscall, c, r, 0, hash);
        return r;
    }
    told::enters(t, c, hash);
    let slot = t.slot;
    part(t).waits = part(t).next_kept().is_none();
    while !sleeps_until(t, || until(&call) || is_over(slot)) {}
    part(t).waits = false;
    if !until(c) {
        // It sleeps on when the program goes on.
        let frame = stand::gate_frame(t);
        rest(
            t,
            &frame,
            Some(Entered {
                deadline,
                ..Entered::now(hash)
            }),
        );
    }
    told::ends_call(t, c, 0);
    0
}

/// Of a sleep until a moment of some clock: that clock now, and the moment. `None`: it isn't one.
fn time_of_clock(c: &Call) -> Option<[i64; 2]> {
    const TIMER_ABSTIME: u64 = 1;
    if c.nr == nr::NANOSLEEP || c.args[1] & TIMER_ABSTIME == 0 {
        return None;
    }
    let then = moment(c.args[2])?;
    Some([sys::clock(c.args[0]).ns(), then])
}

/// The moment that the timespec at this address names, in nanoseconds. `None`: the kernel would refuse it.
fn moment(address: u64) -> Option<i64> {
    const NS: i64 = 1_000_000_000;
    let [sec, ns] = guard::read::<[i64; 2]>(address)?;
    let is_one = sec >= 0 && (0..NS).contains(&ns);
    is_one.then(|| sec.saturating_mul(NS).saturating_add(ns))
}

/// Does the kernel tell a copy of the program the same as the program?
fn is_told_alike(c: &Call) -> bool {
    match c.effect {
        // Others than these are clocks of a process or a thread.
        Effect::Tells(Told::Clock | Told::Resolution) => {
            !matches!(c.args[0] as u32 as i32, 2 | 3 | ..0)
        }
        Effect::Tells(what) => matches!(
            what,
            Told::TimeOfDay | Told::Seconds | Told::Random | Told::Machine
        ),
        Effect::Other => true,
        _ => false,
    }
}

/// A call that the runtime has answered by itself.
pub fn computed(t: &Block, c: &Call, result: i64) -> i64 {
    events::call_with(t, c, result, 0, 0, &[]);
    result
}

/// A call that shapes memory of nobody's file. Where the kernel chooses the place it is that which the program's thread has got, if it has made the same call and nothing is there.
pub fn shapes_memory(t: &Block, c: &Call) -> i64 {
    let is_it = |e: &Event| e.kind == Kind::Syscall && is_of(e, c, 0);
    let known = place_of(c).and_then(|_| part(t).goes_to_call(is_it));
    let known = known.map(|e| e.header.value as u64);
    let free = place_of(c).and_then(|len| {
        let known = known.filter(|at| reserves(*at, len));
        known.or_else(|| nobodys_place(len))
    });
    if let Some(at) = free.filter(|at| memory::redo(c, *at as i64, &OfFile::default(), 0)) {
        return computed(t, c, at as i64);
    }
    let mut done = memory::perform(c);
    events::call_with(t, c, done.result, 0, 0, done.section().as_slice());
    done.result
}

/// How many bytes it maps, if it is for the kernel to say where.
fn place_of(c: &Call) -> Option<u64> {
    let fixed = c.args[3] & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    (c.effect == Effect::Maps && !fixed).then(|| memory::up(c.args[1]))
}

/// Nothing is mapped there: it is kept free for this thread.
fn reserves(at: u64, len: u64) -> bool {
    maps_nothing(at, len, sys::MAP_FIXED_NOREPLACE) == Some(at)
}

/// Nothing is mapped there, nor is it now: mremap(2) wants the place of what grows to be free.
fn is_free(at: u64, len: u64) -> bool {
    let is = reserves(at, len);
    if is {
        sys::munmap(at, len);
    }
    is
}

/// Maps so many bytes without access: where.
fn maps_nothing(at: u64, len: u64, flags: u64) -> Option<u64> {
    let flags = flags | sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;
    let r = sys::mmap(at, len, sys::PROT_NONE, flags, u64::MAX, 0);
    (!sys::is_error(r)).then_some(r as u64)
}

/// A place at which nothing is mapped, nor will be by those who go by the log.
fn nobodys_place(len: u64) -> Option<u64> {
    const MOST: usize = 64;
    let mut hint = 0;
    for _ in 0..MOST {
        let at = maps_nothing(hint, len, 0)?;
        match epoch::will_be_mapped(at, len) {
            None => return Some(at),
            Some(taken) => {
                sys::munmap(at, len);
                hint = taken.saturating_sub(len);
            }
        }
    }
    None
}

/// A thread that goes by the log is about to map memory where the program's thread has got it: is there nothing of threads that have left?
pub fn has_room(t: &Block, c: &Call) -> bool {
    let is_it = |e: &Event| e.kind == Kind::Syscall && is_of(e, c, 0);
    let next = part(t).due_event().filter(is_it);
    let Some(at) = next.map(|e| e.header.value).filter(|r| !sys::is_error(*r)) else {
        return true;
    };
    let (at, [old, _, new, ..]) = (at as u64, c.args);
    match (c.effect, place_of(c)) {
        (_, Some(len)) => reserves(at, len),
        (Effect::Remaps, _) if at != old => is_free(at, memory::up(new)),
        (Effect::Remaps, _) => {
            let (end, new) = (old + memory::up(c.args[1]), old + memory::up(new));
            new <= end || is_free(end, new - end)
        }
        _ => true,
    }
}

/// sched_yield(2): others go on at the end of the gate.
pub fn yields(t: &Block, c: &Call) -> i64 {
    session().slice_over.store(1, Relaxed);
    computed(t, c, 0)
}

/// futex(2). Who sleeps goes on when somebody has woken it.
pub fn futex(t: &mut Block, c: &Call) -> i64 {
    const EAGAIN: i64 = -11;
    const EFAULT: i64 = -14;
    let (address, value) = (c.args[0], c.args[2] as u32);
    match operation(c) {
        FUTEX_WAKE | FUTEX_WAKE_BITSET => {
            let woken = wakes(c);
            computed(t, c, woken)
        }
        FUTEX_WAIT | FUTEX_WAIT_BITSET => match (guard::read::<u32>(address), limit_of_wait(c)) {
            (None, _) => computed(t, c, EFAULT),
            (Some(now), _) if now != value => computed(t, c, EAGAIN),
            (_, Ok(limit)) => sleeps(t, c, limit),
            (_, Err(AtOnce)) => {
                // SAFETY: the program's own call, which changes nothing.
                let r = unsafe { sys::syscall6(c.nr, c.local) };
                computed(t, c, r)
            }
        },
        _ => fails(t, Why::Input),
    }
}

/// A limit that is over, or that the kernel refuses: it says so at once.
struct AtOnce;

/// Until when a call of futex(2) waits at most: by this clock, in nanoseconds.
fn limit_of_wait(c: &Call) -> Result<Option<(u64, i64)>, AtOnce> {
    const CLOCK_REALTIME: u64 = 0;
    const CLOCK_MONOTONIC: u64 = 1;
    if c.args[3] == 0 {
        return Ok(None);
    }
    if operation(c) == FUTEX_WAIT {
        let deadline = Some(TimeLeft::of(c, 0).deadline).filter(|then| *then != 0);
        return deadline
            .map(|then| Some((CLOCK_MONOTONIC, then)))
            .ok_or(AtOnce);
    }
    let clock = match c.args[1] as u32 & FUTEX_CLOCK_REALTIME {
        0 => CLOCK_MONOTONIC,
        _ => CLOCK_REALTIME,
    };
    let is_ahead = |then: &i64| sys::clock(clock).ns() < *then;
    let then = moment(c.args[3]).filter(is_ahead).ok_or(AtOnce)?;
    Ok(Some((clock, then)))
}

/// futex(2) with FUTEX_WAKE or its like: those of the sleepers who have left the log. How many.
pub fn wakes(c: &Call) -> i64 {
    let mut woken = 0;
    if let FUTEX_WAKE | FUTEX_WAKE_BITSET = operation(c) {
        while woken < i64::from(c.args[2] as u32) && epoch::wakes_sleeper(c.args[0]) {
            woken += 1;
        }
    }
    woken
}

/// Which of its operations a call of futex(2) asks for.
fn operation(c: &Call) -> u32 {
    c.args[1] as u32 & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)
}

/// It sleeps, until that moment of that clock at most.
fn sleeps(t: &mut Block, c: &Call, limit: Option<(u64, i64)>) -> i64 {
    const ETIMEDOUT: i64 = -110;
    told::enters(t, c, 0);
    let p = part(t);
    (p.sleeps_at, p.waits) = (c.args[0], p.next_kept().is_none());
    let slot = t.slot;
    // At the end it is as if it had been woken for nothing (futex(2)): it looks again when the program goes on.
    let is_due = || is_woken(slot) || is_over(slot);
    let is_late = |(clock, then)| sys::clock(clock).ns() >= then;
    match limit {
        None => await_until(t, is_due),
        Some(limit) => while !sleeps_until(t, || is_due() || is_late(limit)) {},
    }
    let result = if is_due() { 0 } else { ETIMEDOUT };
    part(t).waits = false;
    part(t).sleeps_at = 0;
    told::ends_call(t, c, result);
    result
}

fn is_woken(slot: u32) -> bool {
    epoch::part(slot).is_some_and(|p| p.sleeps_at == 0)
}

/// Have all others come to their ends, or wait, and nothing that counts is left?
fn is_over(slot: u32) -> bool {
    epoch::nothing_is_kept() && epoch::others_are_at_end(slot)
}

/// The thread sleeps in a hooked function.
pub fn wait(
    t: &mut Block,
    word: &AtomicU32,
    value: u32,
    deadline: Option<&Deadline>,
    shared: bool,
) -> Wait {
    if word.load(Relaxed) != value {
        return Wait::Changed;
    }
    cut::record::abandon(t);
    told::enters(t, &hooked::as_call(word, value, shared), 0);
    goes_on_waiting(t, word, value, deadline)
}

/// It has said so.
pub fn goes_on_waiting(
    t: &mut Block,
    word: &AtomicU32,
    value: u32,
    deadline: Option<&Deadline>,
) -> Wait {
    let (slot, made) = (t.slot, epoch::operations());
    let is_late = || deadline.is_some_and(|d| !d.looks && d.is_over());
    let looks = deadline.is_some_and(|d| d.looks);
    let is_due = || {
        word.load(Relaxed) != value
            || looks && epoch::operations() != made
            || is_late()
            || is_over(slot)
    };
    let p = part(t);
    // Who has yet to come to something that counts isn't at its end.
    p.waits = p.next_kept().is_none();
    while !wait_until(t, is_due) {
        if all_leave(t) {
            continue;
        }
        if looks || deadline.is_none() {
            fails(t, Why::Stuck);
        }
        // Nobody wakes it, but its time will be over.
        sys::nap();
    }
    part(t).waits = false;
    match word.load(Relaxed) == value {
        false => told::wakes(t, Wait::Woken, 0),
        true if looks || is_late() => told::wakes(t, Wait::TimedOut, 0),
        // It stands where the function begins.
        true => told::wakes(t, Wait::Signal, 0),
    }
}

/// An instruction asks the machine.
pub fn instruction(t: &Block, which: Instruction) -> (u64, u64) {
    let (value, aux) = super::record::ask_clock(t, which);
    told::plain(t, Kind::Instruction, which as u32, value as i64, &[aux]);
    (value, aux)
}

/// The program is about to make a call: does the thread come to its end before it?
pub fn ends_before(t: &mut Block, frame: &Frame) -> bool {
    let number = frame.rax as u32 as u64;
    let is_commit = leader::calls::ends_before(t, frame);
    match part(t).next_kept() {
        None if lasts(number) || is_commit => true,
        // One of the others may wait by looking for what comes behind it.
        None => {
            let sleeps = syscalls::effect(number) == Effect::Sleeps;
            sleeps && epoch::nothing_is_kept() && part(t).has_gone_on() && others_are_at_end(t)
        }
        Some(_) if is_commit => fails(t, Why::Life),
        Some(_) => false,
    }
}

/// The end of a gate or of a hooked function: is it the thread's end?
///
/// All come to their ends together: as long as one of them isn't at such a place, the others go on now and then, since it may wait for them by looking.
pub fn is_at_end(t: &mut Block, frame: &Frame) -> bool {
    let may_end = t.deferred || part(t).has_gone_on() && epoch::nothing_is_kept();
    if !may_end {
        return false;
    }
    cut::record::abandon(t);
    if part(t).hook_ends && !t.deferred {
        told::hook_ended(t, frame);
        t.cut().hooks.restart();
        // It is said.
        part(t).hook_ends = false;
    }
    t.deferred || others_are_at_end(t)
}

fn others_are_at_end(t: &mut Block) -> bool {
    let slot = t.slot;
    if epoch::others_are_at_end(slot) {
        return true;
    }
    part(t).waits = true;
    super::follow::interrupt(t);
    super::follow::goes_on();
    part(t).waits = false;
    epoch::others_are_at_end(slot)
}
