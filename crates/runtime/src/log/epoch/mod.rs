//! The log of an epoch, as the copy has it that runs the epoch again (DoublePlay 5.2.1, 5.2.2; Respec 4.1): what each thread of the leader has logged
//! since the copy was made, and where it stood at the end.
//!
//! It lies in memory that both processes have: mapped before the copy is made, filled when the epoch is over, out of the rings of the leader's threads,
//! where the agent has left it. So a leader pays nothing for it while it runs. An epoch in which a thread has logged more than its ring holds can't be run again.
//!
//! Behind it is room for what the copy does, as slices: another copy, made at the same stop, runs the epoch by these alone ([`slices_become_ring`]).
//!
//! In the copy one thread runs at a time, so each may use what is kept of it here without a lock.

mod left;
mod outlets;
mod part;
mod slices;

pub use left::*;
pub use outlets::*;
pub use part::{operations, Due, End, Next, Part};
pub use slices::*;

use crate::machine::{guard, sys};
use crate::thread::rings::ring_of;
use crate::thread::session;
use crate::thread::Frame;
use core::mem::offset_of;
use core::sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering::*};
use outlets::OUTLETS;
use reprise_abi::epoch::Why;
use reprise_abi::event::Kind;
use reprise_abi::layout::{EPOCH_LOGS, EPOCH_LOG_MAX, RING_BASE, STAGE_BASE};

/// Most slots of which an epoch may have threads: those with the lowest numbers.
pub const MOST_SLOTS: usize = 64;
/// Most bytes of an epoch's log, of all threads together.
pub const MOST_BYTES: u64 = 64 << 20;
/// Bytes before them.
const HEAD_LEN: u64 = (size_of::<Log>() as u64 + 4095) & !4095;
/// Bytes of it all (address space; memory is used as touched).
const LEN: u64 = STACKS_AT + 2 * STACK;
/// Where the slices are, ...
const SLICES_AT: u64 = HEAD_LEN + MOST_BYTES;
/// ... and most bytes of them: they lie in a ring that nobody empties meanwhile.
const MOST_SLICES: u64 = 64 << 20;
/// Where output lies that is [held](super::held), ...
const HELD_AT: u64 = SLICES_AT + MOST_SLICES;
/// ... and most bytes of it.
pub const MOST_HELD: u64 = 16 << 20;
/// Where the copies' first threads have their stacks, which are to be where the program has no memory, ...
const STACKS_AT: u64 = HELD_AT + MOST_HELD;
/// ... and the bytes of each.
const STACK: u64 = 64 << 10;

const _: () = assert!(LEN <= EPOCH_LOG_MAX);
const _: () = assert!(MOST_SLICES.is_power_of_two() && RING_BASE + MOST_SLICES <= STAGE_BASE);

/// The epoch isn't over.
pub const OPEN: u32 = 0;
/// It is, and the copy is to run it.
pub const RUN: u32 = 1;
/// The copy has come to its end.
pub const DONE: u32 = 2;
/// The copy has done something else than the leader.
pub const UNLIKE: u32 = 3;
/// The copy has met something that it can't do.
pub const LEFT_OUT: u32 = 4;
/// The copy that has the slices to run by is to run them.
pub const READ: u32 = 5;
/// The copy has come to what the program had come to.
pub const SAME: u32 = 6;
/// The copy has made the same calls, and has other memory or vector registers than the program.
pub const OTHER: u32 = 7;

/// The beginning of the log.
#[repr(C)]
struct Log {
    state: AtomicU32,
    why: AtomicU32,
    slot: AtomicU32,
    event: AtomicU64,
    /// A thread of the copy has left the log: [`RACED`], or [`COMPUTED`].
    left: AtomicU32,
    /// Nobody goes on: all who wait for their turns leave the log, too.
    all_leave: AtomicU32,
    /// The copy has run for long: who has left the log comes to its end soon.
    is_long: AtomicU32,
    /// Processor time of the leader when it began, until it is over; then how much the leader has used since, in nanoseconds.
    time: AtomicI64,
    /// The stamp whose turn it is.
    stamp: AtomicU64,
    /// Threads of the copy that are there.
    come: AtomicU32,
    /// Bytes of slices that are written.
    slices: AtomicU64,
    /// Bytes of output that is held.
    held: AtomicU64,
    /// Descriptors with low numbers to which output of the program's threads is held, a bit each.
    outlets: [AtomicU64; OUTLETS / 64],
    /// The program has closed descriptors in the epoch.
    closes: AtomicU32,
    parts: [Part; MOST_SLOTS],
}

/// Where the log of the open epoch is; 0: there is none.
static LOG: AtomicU64 = AtomicU64::new(0);
/// As above, of the epoch before, which a copy runs while the open one goes on.
static PREVIOUS: AtomicU64 = AtomicU64::new(0);

fn log() -> &'static Log {
    // SAFETY: asked for only while there is one.
    unsafe { &*(LOG.load(Relaxed) as *const Log) }
}

fn previous() -> Option<&'static Log> {
    let at = PREVIOUS.load(Relaxed) as *const Log;
    // SAFETY: mapped for as long as it is said to be.
    unsafe { at.as_ref() }
}

/// Is there a log?
pub fn is_open() -> bool {
    LOG.load(Relaxed) != 0
}

/// The leader: begins another log, in which `stamp` is the first to be drawn. What is open is forgotten, or the [previous](previous_state) one from now on if
/// it `goes_on`. False: there is no memory for it.
pub fn begin(stamp: u64, goes_on: bool) -> bool {
    if goes_on {
        forget_previous();
        PREVIOUS.store(LOG.swap(0, Relaxed), Relaxed);
    }
    forget();
    let before = PREVIOUS.load(Relaxed);
    let at = EPOCH_LOGS.into_iter().find(|at| *at != before);
    let Some(at) = at.filter(|at| sys::map_shared(*at, LEN)) else {
        return false;
    };
    LOG.store(at, Relaxed);
    log().stamp.store(stamp, Relaxed);
    log().time.store(processor_time(), Relaxed);
    true
}

/// Processor time of all threads of this process, in nanoseconds.
pub fn processor_time() -> i64 {
    const CLOCK_PROCESS_CPUTIME_ID: u64 = 2;
    sys::clock(CLOCK_PROCESS_CPUTIME_ID).ns()
}

/// Processor time that the leader has used in the epoch, which is over, in nanoseconds.
pub fn time_of_leader() -> i64 {
    log().time.load(Relaxed)
}

/// As [`time_of_leader`], of the epoch before.
pub fn previous_time_of_leader() -> i64 {
    previous().map_or(0, |log| log.time.load(Relaxed))
}

/// The log is of no use any more.
pub fn forget() {
    unmap(&LOG);
}

/// That of the epoch before isn't, either.
pub fn forget_previous() {
    unmap(&PREVIOUS);
}

fn unmap(log: &AtomicU64) {
    let at = log.swap(0, Relaxed);
    if at != 0 {
        sys::munmap(at, LEN);
    }
}

/// What the log of the open epoch says.
pub fn state() -> u32 {
    log().state.load(Acquire)
}

/// What the log of the epoch before says.
#[inline]
pub fn previous_state() -> u32 {
    previous().map_or(OPEN, |log| log.state.load(Acquire))
}

/// As [`previous_state`], for a thread that stays in its call: while it looks, all may stand, and the epoch before be forgotten.
pub fn previous_state_so_far() -> u32 {
    let state = state_of_previous().and_then(|at| guard::read_word(at, 4));
    fence(Acquire);
    state.map_or(OPEN, |state| state as u32)
}

/// Waits a moment for it to say something else than `state`.
pub fn await_previous(state: u32) {
    if let Some(at) = state_of_previous() {
        // Of memory that is no more the kernel says so at once.
        wait_a_moment(at, state);
    }
}

/// Where the log of the epoch before has its state.
fn state_of_previous() -> Option<u64> {
    let at = PREVIOUS.load(Relaxed);
    (at != 0).then_some(at + offset_of!(Log, state) as u64)
}

/// A copy of the program at the end of the epoch before: what the copy that has run that has come to, and if it is something else what, and where.
pub fn judges(difference: Option<(u64, u64)>) {
    let Some(log) = previous() else { return };
    let (what, at) = difference.unwrap_or_default();
    log.why.store(what as u32, Relaxed);
    log.event.store(at, Relaxed);
    say_in(log, if difference.is_some() { OTHER } else { SAME });
}

/// As [`reason`], of the epoch before; or what was [judged](judges): what, 0, and where.
pub fn previous_reason() -> [u64; 3] {
    previous().map_or([0; 3], reason_in)
}

/// The program can't take over what the copy of the open epoch has come to, or of the one `before`.
pub fn is_not_taken_over(before: bool) {
    let log = if before { previous() } else { Some(log()) };
    if let Some(log) = log {
        log.why.store(Why::NotTakenOver as u32, Relaxed);
    }
}

/// What is kept of the thread of slot `i`, where an epoch can have it.
#[allow(clippy::mut_from_ref)]
pub fn part(i: u32) -> Option<&'static mut Part> {
    let parts = log().parts.as_ptr() as *mut Part;
    // SAFETY: the leader's while it stands, in the copy the thread's that runs.
    ((i as usize) < MOST_SLOTS).then(|| unsafe { &mut *parts.add(i as usize) })
}

fn parts() -> impl Iterator<Item = &'static mut Part> {
    (0..MOST_SLOTS as u32).filter_map(part).filter(|p| p.used)
}

/// The leader: a thread of slot `i`, which stands like this, is there when the epoch begins. False: that slot is too high.
pub fn has_thread(i: u32, now: &End) -> bool {
    let Some(p) = part(i) else {
        return false;
    };
    p.used = true;
    (p.before, p.unlogged) = (now.quiet, now.unlogged);
    p.has_logged = now.has_logged;
    p.begun = ring_of(i).0.position.load(Relaxed);
    p.begins = [now.frame.rip, now.frame.rsp];
    true
}

/// The leader: threads may come to be in all other slots.
pub fn others_may_begin() {
    for i in 0..MOST_SLOTS as u32 {
        if let Some(p) = part(i).filter(|p| !p.used) {
            p.begun = ring_of(i).0.position.load(Relaxed);
        }
    }
}

/// A copy: another thread begins in this slot, which has logged something in the epoch. False: it hasn't.
pub fn is_born(i: u32) -> bool {
    let Some(p) = part(i).filter(|p| p.used) else {
        return false;
    };
    p.done = false;
    true
}

/// Where a thread of the copy has come to, of the epoch before or of the open one: its registers, if they are others than the program's.
pub fn other_registers(i: u32, before: bool) -> Option<Frame> {
    let part = parts_of(before).get(i as usize)?;
    (part.other_registers != 0).then_some(part.came)
}

/// The leader: takes what the threads have logged. `ends`: where that of a slot stands; `None`: it isn't there any more. `None`: it is too much.
pub fn take(ends: impl Fn(u32) -> Option<End>) -> Option<()> {
    let used = processor_time() - log().time.load(Relaxed);
    log().time.store(used, Relaxed);
    let mut to = LOG.load(Relaxed) + HEAD_LEN;
    let limit = LOG.load(Relaxed) + LEN;
    for i in 0..MOST_SLOTS as u32 {
        let (ring, base, size) = ring_of(i);
        let Some(p) = part(i) else { continue };
        let len = ring.position.load(Relaxed).wrapping_sub(p.begun);
        if !p.used && len == 0 {
            continue;
        }
        p.is_new = !p.used;
        p.used = true;
        let end = ends(i);
        p.is_over = end.is_none();
        p.ends = end.unwrap_or_default();
        if len > size || to + len > limit {
            return None;
        }
        (p.at, p.end) = (to, to + len);
        for at in (p.begun..p.begun + len).step_by(8) {
            // SAFETY: a word of the ring at a multiple of 8 never wraps; there is room for it, as looked at above.
            unsafe { *(to as *mut u64) = *((base + (at & (size - 1))) as *const u64) };
            to += 8;
        }
    }
    Some(())
}

/// The parts of the open epoch, or of the one `before`.
fn parts_of(before: bool) -> &'static [Part] {
    match before {
        true => previous().map_or(&[], |log| &log.parts),
        false => &log().parts,
    }
}

/// Have threads begun or ended in the epoch, or in the one `before`?
pub fn has_births(before: bool) -> bool {
    parts_of(before)
        .iter()
        .any(|p| p.used && (p.is_new || p.is_over))
}

/// Was the thread of slot `i` there when the epoch began, or the one `before`?
pub fn was_there(i: u32, before: bool) -> bool {
    parts_of(before)
        .get(i as usize)
        .is_some_and(|p| p.used && !p.is_new)
}

/// The log says this from now on.
fn say(state: u32) {
    say_in(log(), state);
}

fn say_in(log: &Log, state: u32) {
    log.state.store(state, Release);
    sys::futex_wake_all(log.state.as_ptr());
}

fn wait_a_moment(word: u64, value: u32) {
    const LOOK_AGAIN: i64 = 5_000_000;
    let until = sys::Timespec::from_ns(sys::monotonic().ns() + LOOK_AGAIN);
    sys::futex_wait(word as *mut u32, value, Some(&until));
}

/// The leader: the copy is to run the epoch.
pub fn run() {
    say(RUN);
}

/// The leader: the copy that has the slices is to run the epoch by them.
pub fn read() {
    for p in parts() {
        p.done = false;
    }
    log().come.store(0, Relaxed);
    say(READ);
}

/// Waits until it says something else than `state`, or `is_over`; what it says then.
pub fn await_change(state: u32, is_over: impl Fn() -> bool) -> u32 {
    await_change_in(log(), state, is_over)
}

/// As [`await_change`], of the log of the epoch before.
pub fn await_change_of_previous(state: u32, is_over: impl Fn() -> bool) -> u32 {
    previous().map_or(OPEN, |log| await_change_in(log, state, is_over))
}

fn await_change_in(log: &Log, state: u32, is_over: impl Fn() -> bool) -> u32 {
    loop {
        let now = log.state.load(Acquire);
        if now != state {
            return now;
        }
        if is_over() {
            // It may have said something before.
            return log.state.load(Acquire);
        }
        wait_a_moment(log.state.as_ptr() as u64, state);
    }
}

/// Why the copy has come to no end, in which slot's thread, and what was next there.
pub fn reason() -> [u64; 3] {
    match is_open() {
        true => reason_in(log()),
        false => [0; 3],
    }
}

fn reason_in(log: &Log) -> [u64; 3] {
    [
        log.why.load(Relaxed).into(),
        log.slot.load(Relaxed).into(),
        log.event.load(Relaxed),
    ]
}

/// The leader: has the thread of slot `i` stood here when the epoch began, and done nothing since?
pub fn begins_at(i: u32, frame: &Frame) -> bool {
    let (ring, _, _) = ring_of(i);
    let here = [frame.rip, frame.rsp];
    let is_here = |p: &Part| p.begins == here && ring.position.load(Relaxed) == p.begun;
    is_open() && part(i).is_some_and(|p| is_here(p))
}

/// The leader: does the thread of slot `i` log so much in this epoch that it has to end?
pub fn is_long(i: u32) -> bool {
    let (ring, _, size) = ring_of(i);
    is_open()
        && part(i).is_some_and(|p| ring.position.load(Relaxed).wrapping_sub(p.begun) > size / 2)
}

/// The leader: has the thread of slot `i` logged its share of what an epoch can have? What a copy does is written with more words, above all where it has left the log.
pub fn is_full(i: u32) -> bool {
    const SHARES: u64 = MOST_SLICES / 128;
    let (ring, _, _) = ring_of(i);
    let threads = u64::from(session().live_threads.load(Relaxed)).max(1);
    is_open()
        && part(i)
            .is_some_and(|p| ring.position.load(Relaxed).wrapping_sub(p.begun) > SHARES / threads)
}

/// The copy ends without coming to the epoch's end, because of the thread of slot `i`.
pub fn fails(i: u32, why: Why) -> ! {
    end_failed(notes(i, why))
}

/// Keeps what the thread of slot `i` had next when this came to be; why it was.
fn notes(i: u32, mut why: Why) -> Why {
    log().slot.store(i, Relaxed);
    if let Some(p) = part(i).filter(|p| p.at != 0) {
        let what = match p.peek() {
            Next::End => p.missed,
            Next::Entry(e) => 1 << 8 | e.kind as u64,
            Next::Event(e) => {
                if e.kind == Kind::Signal {
                    // The leader's thread did as much because of it.
                    why = Why::Signal;
                }
                u64::from(e.header.kind) | u64::from(e.header.detail) << 32
            }
        };
        log().event.store(what, Relaxed);
    }
    log().why.store(why as u32, Relaxed);
    why
}

/// As [`fails`], since the copy comes to no end.
pub fn fails_in_all() -> ! {
    end_failed(Why::Stuck)
}

/// As [`fails`], of the copy that runs by slices: the number of the event that was next.
pub fn fails_at(i: u32, why: Why, event: u64) -> ! {
    log().slot.store(i, Relaxed);
    log().event.store(event, Relaxed);
    end_failed(why)
}

fn end_failed(why: Why) -> ! {
    log().why.store(why as u32, Relaxed);
    say(if why.is_left_out() { LEFT_OUT } else { UNLIKE });
    sys::exit_group(125)
}

/// The thread of slot `i` of the copy is there; is it the last one?
pub fn comes(i: u32) -> bool {
    if let Some(p) = part(i) {
        p.unlogged_at = p.place();
    }
    log().come.fetch_add(1, AcqRel) + 1 == parts().filter(|p| !p.is_new).count() as u32
}

/// A thread of the copy has come to its end.
pub fn comes_to_end(i: u32) {
    if let Some(p) = part(i) {
        p.done = true;
    }
    if all_have_come_to_end() {
        say(DONE);
    }
}

/// Have all threads of the copy come to their ends?
pub fn all_have_come_to_end() -> bool {
    parts().all(|p| p.done)
}

/// Have all threads of the copy come to their ends, or wait there, but the one of slot `i`?
pub fn others_are_at_end(i: u32) -> bool {
    (0..MOST_SLOTS as u32)
        .filter(|n| *n != i)
        .filter_map(part)
        .all(|p| !p.used || p.done || p.waits)
}

/// Has this stamp of the thread of slot `i` its turn? When threads have left the log, it has when nothing of others that counts comes before it.
pub fn is_turn_of(i: u32, stamp: u64) -> bool {
    if !has_left() {
        return log().stamp.load(Relaxed) == stamp;
    }
    (0..MOST_SLOTS as u32)
        .filter(|n| *n != i)
        .filter_map(part)
        .filter(|p| p.used)
        .all(|p| p.next_kept().is_none_or(|other| other > stamp))
}

/// Its turn is over.
pub fn pass_stamp(stamp: u64) {
    log().stamp.store(stamp + 1, Relaxed);
}
