//! The log of an epoch, as the copy has it that runs the epoch again (DoublePlay 5.2.1, 5.2.2; Respec 4.1): what each thread of the leader has logged
//! since the copy was made, and where it stood at the end.
//!
//! It lies in memory that both processes have: mapped before the copy is made, filled when the epoch is over, out of the rings of the leader's threads,
//! where the agent has left it. So a leader pays nothing for it while it runs. An epoch in which a thread has logged more than its ring holds can't be run again.
//!
//! Behind it is room for what the copy does, as slices: another copy, made at the same stop, runs the epoch by these alone ([`slices_become_ring`]).
//!
//! In the copy one thread runs at a time, so each may use what is kept of it here without a lock.

use crate::log::ring;
use crate::machine::{guard, sys};
use crate::thread::rings::ring_of;
use crate::thread::session;
use crate::thread::Frame;
use core::mem::offset_of;
use core::sync::atomic::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::epoch::Why;
use reprise_abi::event::{Event, EventHeader, Kind, FLAG_HELD, FLAG_RESTARTED, HEADER_LEN};
use reprise_abi::layout::{EPOCH_LOGS, EPOCH_LOG_MAX, RING_BASE, RING_SIZE};
use reprise_abi::order::{Entry, EntryKind, ENTRY_LEN};
use reprise_abi::syscalls::{self, nr};

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
const MOST_SLICES: u64 = RING_SIZE;
/// Where output lies that is [held](super::held), ...
const HELD_AT: u64 = SLICES_AT + MOST_SLICES;
/// ... and most bytes of it.
pub const MOST_HELD: u64 = 16 << 20;
/// Where the copies' first threads have their stacks, which are to be where the program has no memory, ...
const STACKS_AT: u64 = HELD_AT + MOST_HELD;
/// ... and the bytes of each.
const STACK: u64 = 64 << 10;

const _: () = assert!(LEN <= EPOCH_LOG_MAX);

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

/// A thread of the copy has come to something else than the leader's thread.
const RACED: u32 = 1;
/// Where the leader's thread stood the log doesn't say, and the copy's has come to another place behind the same log.
const COMPUTED: u32 = 2;

/// Descriptors below this can have output that is held.
const OUTLETS: usize = 1024;

/// Where a thread of the leader stood when the epoch ended.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct End {
    /// Its general registers.
    pub frame: Frame,
    /// It was in a call whose beginning is logged.
    pub in_call: bool,
    /// It was in the middle of the program's code: of that place the log has no name.
    pub in_code: bool,
    /// It has stood there before, and done nothing since.
    pub again: bool,
    /// Quiet operations since the last entry.
    pub quiet: u32,
    /// Calls of hooked functions since then that left nothing in the log.
    pub unlogged: u64,
    /// The hooked function in which it stood, and which is called anew, has left something in the log.
    pub has_logged: bool,
}

/// A thread's part of the log.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Part {
    /// There is such a thread.
    pub used: bool,
    /// It begins in the epoch.
    is_new: bool,
    /// The last thread that had the slot has ended in the epoch.
    is_over: bool,
    /// It has come to its end.
    pub done: bool,
    /// It waits where the leader's thread has waited to the end.
    pub waits: bool,
    /// The next entry's quiet operations are counted.
    looked: bool,
    /// Quiet operations to be made before the next entry.
    quiet: u32,
    /// Quiet operations that the leader's thread had made before the epoch, and not logged.
    before: u32,
    /// Hooked functions called since something of the thread was last logged that left nothing there, ...
    pub unlogged: u64,
    /// ... and where the log was.
    pub unlogged_at: u64,
    /// The function that it is in has left something in the log of the epoch before.
    has_logged: bool,
    /// In the function in which it is it waits for others, who wake it before the epoch ends.
    pub is_woken: bool,
    /// Its general registers where it has come to its end, ...
    came: Frame,
    /// ... and which of them are others than the leader's, as [`Frame::differs_from`] says.
    other_registers: u64,
    /// In what the last place differs from the end, at which its part of the log was used up.
    missed: u64,
    /// How often in a row a hooked function has ended only to be called anew.
    anew: u32,
    /// How often it was looked whether it has come to its end, since its part of the log is used up.
    looks: u32,
    /// What it does ends a hooked function, not a gate.
    pub hook_ends: bool,
    /// It has left the log, and goes on without it, ...
    left: bool,
    /// ... for about so many operations and events as it had left of it.
    goes_on_for: u64,
    /// The word of a futex at which it sleeps since then; 0: it doesn't.
    pub sleeps_at: u64,
    /// Its [next event that counts](Part::next_kept), as found from a place in the log on.
    kept: Option<Kept>,
    /// A stamp of the call that it has made, which has not had its turn yet, plus 1; 0: none.
    pub owes: u64,
    /// Where the ring of the leader's thread was when the epoch began, ...
    begun: u64,
    /// ... and where it stood: instruction and stack pointer.
    begins: [u64; 2],
    /// Where the thread is in the log, ...
    at: u64,
    /// ... and where its part ends: addresses.
    end: u64,
    /// Where it is to come to.
    pub ends: End,
}

/// An event of a thread's part that counts also when threads have left the log.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Kept {
    /// Where it was looked for.
    from: u64,
    /// Where it is; 0: there is none.
    at: u64,
    /// When it was, among all of them.
    stamp: u64,
}

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

/// As [`slices`], of the epoch before.
pub fn previous_slices() -> &'static [u8] {
    previous().map_or(&[], |log| slices_in(log))
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

/// The leader: has the thread of slot `i` logged its share of what an epoch can have? What a copy does is written with more words.
pub fn is_full(i: u32) -> bool {
    const SHARES: u64 = MOST_SLICES / 16;
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

/// In a copy: the session's ring is where the slices are from now on; `holds` them, or is empty. False: it can't be.
pub fn slices_become_ring(holds: bool) -> bool {
    const MAYMOVE_FIXED: u64 = 3;
    let from = LOG.load(Relaxed) + SLICES_AT;
    if sys::is_error(sys::mremap(
        from,
        RING_SIZE,
        RING_SIZE,
        MAYMOVE_FIXED,
        RING_BASE,
    )) {
        return false;
    }
    ring::holds_only(if holds { slices_len() } else { 0 }, holds);
    true
}

/// The end of the stack of a copy's first thread, whether that copy `reads` slices or not.
pub fn stack_end(reads: bool) -> u64 {
    LOG.load(Relaxed) + STACKS_AT + STACK * (1 + u64::from(reads))
}

/// In the copy that writes them: the slices end here, so far.
pub fn slices_end() {
    log().slices.store(ring::position(), Relaxed);
}

/// The slices, when they are all there.
pub fn slices() -> &'static [u8] {
    slices_in(log())
}

fn slices_in(log: &'static Log) -> &'static [u8] {
    let at = log as *const Log as u64 + SLICES_AT;
    let len = log.slices.load(Relaxed).min(MOST_SLICES);
    // SAFETY: mapped for as long as the log is; nobody writes there any more.
    unsafe { core::slice::from_raw_parts(at as *const u8, len as usize) }
}

/// The leader: output to this descriptor is held. False: it can't be.
pub fn has_outlet(fd: u64) -> bool {
    let can = is_open() && fd < OUTLETS as u64;
    if can {
        log().outlets[fd as usize / 64].fetch_or(1 << (fd % 64), Relaxed);
    }
    can
}

/// The leader: a descriptor is closed in the epoch.
pub fn has_closed() {
    if is_open() {
        log().closes.store(1, Relaxed);
    }
}

/// In a copy: may a thread that has left the log write to this descriptor? It is one to which the program has written, and no other one meanwhile.
pub fn is_outlet(fd: u64) -> bool {
    let log = log();
    fd < OUTLETS as u64
        && log.closes.load(Relaxed) == 0
        && log.outlets[fd as usize / 64].load(Relaxed) & 1 << (fd % 64) != 0
}

/// In a copy: where so many bytes more are kept that are held. `None`: there is no room.
pub fn room_for_held(len: u64) -> Option<u64> {
    let used = log().held.load(Relaxed);
    (used + len <= MOST_HELD).then(|| LOG.load(Relaxed) + HELD_AT + used)
}

/// They are there.
pub fn is_held(len: u64) {
    log().held.fetch_add(len, Relaxed);
}

/// What a copy has kept of the output of the open epoch, or of the one `before`.
pub fn held(before: bool) -> &'static [u8] {
    let log = match before {
        true => previous(),
        false => is_open().then(log),
    };
    let Some(log) = log else { return &[] };
    let len = log.held.load(Relaxed).min(MOST_HELD);
    // SAFETY: mapped for as long as the log is; nobody writes there any more when it is asked for.
    unsafe {
        core::slice::from_raw_parts(
            (log as *const Log as u64 + HELD_AT) as *const u8,
            len as usize,
        )
    }
}

/// Bytes of the slices.
pub fn slices_len() -> u64 {
    slices().len() as u64
}

/// The leader, for a test: the first event behind the middle that another thread has written than the one before it changes places with that, unless both only say
/// that their threads have come to the end, which they may in any order. False: there is none.
pub fn flip_slices() -> bool {
    let (base, len) = (LOG.load(Relaxed) + SLICES_AT, slices_len());
    let header = |at: u64| -> Option<EventHeader> {
        // SAFETY: within the slices.
        let bytes = || unsafe { *((base + at) as *const [u8; HEADER_LEN]) };
        let there = at + HEADER_LEN as u64 <= len;
        there.then(|| EventHeader::parse(&bytes()).ok()).flatten()
    };
    let mut at = 0;
    while let Some(one) = header(at) {
        let behind = at + u64::from(one.len);
        let Some(two) = header(behind) else {
            return false;
        };
        let matters = !(one.is_end_of_epoch() && two.is_end_of_epoch());
        if behind > len / 2 && one.slot != two.slot && matters {
            let words = |at: u64, len: u32| {
                // SAFETY: as above, of both events; nobody reads them now.
                unsafe {
                    core::slice::from_raw_parts_mut((base + at) as *mut u64, len as usize / 8)
                }
            };
            words(at, one.len + two.len).rotate_left(one.len as usize / 8);
            return true;
        }
        at = behind;
    }
    false
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

/// The copy: the thread of slot `i` goes on without its log, for this reason.
pub fn leaves(i: u32, why: Why) {
    if log().left.swap(RACED, Relaxed) != RACED {
        notes(i, why);
    }
    leaves_part(i);
}

/// As [`leaves`], of a thread that has used up its part: the leader's has [computed](End::in_code) since then.
pub fn ends_elsewhere(i: u32) {
    let _ = log().left.compare_exchange(0, COMPUTED, Relaxed, Relaxed);
    leaves_part(i);
}

fn leaves_part(i: u32) {
    if let Some(p) = part(i).filter(|p| !p.left) {
        p.left = true;
        p.goes_on_for = p.count_rest();
    }
}

/// Nobody goes on: all who wait for their turns are to leave the log, too. False: they were told before.
pub fn all_leave() -> bool {
    log().all_leave.swap(1, Relaxed) == 0
}

/// Are all who wait for their turns to leave the log?
pub fn are_to_leave() -> bool {
    log().all_leave.load(Relaxed) != 0
}

/// May the thread of slot `i` of the copy be where the leader's has computed to the end of the epoch? Asked by another thread.
pub fn may_compute_to_end(i: u32) -> bool {
    part(i).is_some_and(|p| p.ends.in_code && p.at + ENTRY_LEN as u64 > p.end)
}

/// The copy has run for long.
pub fn hurries() {
    if is_open() {
        log().is_long.store(1, Relaxed);
    }
}

/// Has a thread of the copy left the log?
pub fn has_left() -> bool {
    log().left.load(Relaxed) != 0
}

/// Has one come to something else than the leader's thread, in the epoch before or in the open one?
pub fn has_raced(before: bool) -> bool {
    let log = if before { previous() } else { Some(log()) };
    log.is_some_and(|log| log.left.load(Relaxed) == RACED)
}

/// As [`has_left`], in the epoch before.
pub fn had_left() -> bool {
    previous().is_some_and(|log| log.left.load(Relaxed) != 0)
}

/// Where in this stretch a thread that goes by the log will map memory: the lowest such address. `None`: nowhere.
pub fn will_be_mapped(at: u64, len: u64) -> Option<u64> {
    let is_there = |(start, end): &(u64, u64)| *start < at + len && at < *end;
    let mapped = parts()
        .filter(|p| !p.left)
        .flat_map(|p| p.rest().filter_map(|e| mapped_by(&e)));
    mapped.filter(is_there).map(|(start, _)| start).min()
}

/// Where the call of this event has got memory.
fn mapped_by(e: &Event) -> Option<(u64, u64)> {
    let len = match u64::from(e.header.detail) {
        nr::MMAP => e.arg(1),
        nr::MREMAP => e.arg(2),
        _ => return None,
    };
    let start = e.header.value as u64;
    let has_got = e.kind == Kind::Syscall && !sys::is_error(e.header.value);
    has_got.then_some((start, start.saturating_add(len)))
}

/// Have the threads of the copy nothing left in their parts that counts?
pub fn nothing_is_kept() -> bool {
    parts().all(|p| p.next_kept().is_none())
}

/// One of the threads of the copy that sleep at this word goes on. False: there is none.
pub fn wakes_sleeper(address: u64) -> bool {
    let sleeper = parts().find(|p| p.sleeps_at == address);
    sleeper.map(|p| p.sleeps_at = 0).is_some()
}

/// Its turn is over.
pub fn pass_stamp(stamp: u64) {
    log().stamp.store(stamp + 1, Relaxed);
}

/// Operations and events that all threads of the copy have used up.
static OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// Changes whenever a thread of the copy goes on in its log.
pub fn operations() -> u64 {
    OPERATIONS.load(Relaxed)
}

fn another_operation() {
    OPERATIONS.store(operations() + 1, Relaxed);
}

/// What a thread has logged next.
pub enum Next {
    /// An operation of synchronisation.
    Entry(Entry),
    /// Something else.
    Event(Event<'static>),
    /// Nothing more in this epoch.
    End,
}

fn word(at: u64) -> u64 {
    // SAFETY: within the log, as its callers have looked at.
    unsafe { *(at as *const u64) }
}

impl Part {
    /// What comes next. Hashes of the leader's state, which it takes now and then, are passed over.
    pub fn peek(&mut self) -> Next {
        loop {
            if self.at + ENTRY_LEN as u64 > self.end {
                return Next::End;
            }
            if let Some(e) = Entry::from_words([word(self.at), word(self.at + 8)]) {
                return Next::Entry(e);
            }
            let len = (self.end - self.at) as usize;
            // SAFETY: what is left of the part.
            let left = unsafe { core::slice::from_raw_parts(self.at as *const u8, len) };
            match Event::parse(left) {
                Err(_) => return Next::End,
                Ok(e) if e.kind == Kind::Hash => self.consume(&e),
                Ok(e) => return Next::Event(e),
            }
        }
    }

    /// Has the thread left the log?
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// The thread, which has left the log, comes to the end of a gate or of a hooked function: has it gone on for as long as the leader's thread did?
    pub fn has_gone_on(&mut self) -> bool {
        self.goes_on_for = self.goes_on_for.saturating_sub(1);
        self.goes_on_for == 0 || log().is_long.load(Relaxed) != 0
    }

    /// Operations and events that it has left of its part.
    fn count_rest(&self) -> u64 {
        let (mut at, mut n) = (self.at, u64::from(self.ends.quiet) + self.ends.unlogged);
        while let Some((len, _)) = self.at_place(at) {
            let entry = Entry::from_words([word(at), word(at + 8)]);
            n += 1 + entry.map_or(0, |e| u64::from(e.quiet));
            at += len;
        }
        n
    }

    /// The stamp of the thread's next event that counts also when threads have left the log: of a call of which something stays, of a thread's begin or end.
    pub fn next_kept(&mut self) -> Option<u64> {
        let known = self
            .kept
            .filter(|k| k.from <= self.at && (k.at == 0 || self.at <= k.at));
        let kept = known.unwrap_or_else(|| self.find_kept());
        self.kept = Some(kept);
        (kept.at != 0).then_some(kept.stamp)
    }

    /// What isn't kept is passed over. False: there is nothing more.
    pub fn goes_to_kept(&mut self) -> bool {
        self.next_kept();
        let Some(kept) = self.kept.filter(|k| k.at != 0) else {
            return false;
        };
        self.at = kept.at;
        true
    }

    /// The call that the thread asks for, as it has asked for it somewhere before the next event that counts: `is_it`. It is used up, and what comes before it.
    pub fn goes_to_call(&mut self, is_it: impl Fn(&Event) -> bool) -> Option<Event<'static>> {
        self.next_kept();
        let limit = self.kept.filter(|k| k.at != 0).map_or(self.end, |k| k.at);
        let mut at = self.at;
        while at < limit {
            let (len, event) = self.at_place(at)?;
            at += len;
            if let Some(e) = event.filter(&is_it) {
                self.at = at;
                return Some(e);
            }
        }
        None
    }

    /// The events that are left of the part.
    fn rest(&self) -> impl Iterator<Item = Event<'static>> + use<'_> {
        let mut at = self.at;
        let next = move || {
            let (len, event) = self.at_place(at)?;
            at += len;
            Some(event)
        };
        core::iter::from_fn(next).flatten()
    }

    fn find_kept(&self) -> Kept {
        let (from, mut at) = (self.at, self.at);
        while let Some((len, event)) = self.at_place(at) {
            if let Some(stamp) = event.and_then(|e| self.stamp_of_kept(&e, at + len)) {
                return Kept { from, at, stamp };
            }
            at += len;
        }
        Kept {
            from,
            ..Kept::default()
        }
    }

    /// What is at this place of the part: its length, and the event, if it is one.
    fn at_place(&self, at: u64) -> Option<(u64, Option<Event<'static>>)> {
        if at + ENTRY_LEN as u64 > self.end {
            return None;
        }
        if Entry::from_words([word(at), word(at + 8)]).is_some() {
            return Some((ENTRY_LEN as u64, None));
        }
        // SAFETY: what is left of the part.
        let left =
            unsafe { core::slice::from_raw_parts(at as *const u8, (self.end - at) as usize) };
        let e = Event::parse(left).ok()?;
        Some((e.header.len.into(), Some(e)))
    }

    /// The stamp of this event, if it counts; behind it is `next`.
    fn stamp_of_kept(&self, e: &Event, next: u64) -> Option<u64> {
        let number = u64::from(e.header.detail);
        let args = || syscalls::lookup(number).map_or(6, |call| call.args.len());
        let is_made = |e: &Event| e.header.flags & (FLAG_RESTARTED | FLAG_HELD) == 0;
        match e.kind {
            Kind::ThreadStart => Some(e.arg(0)),
            Kind::ThreadExit => Some(e.arg(1)),
            Kind::Exit if syscalls::lasts(number) && is_made(e) => Some(e.arg(0)),
            Kind::Syscall if syscalls::lasts(number) && is_made(e) => Some(e.arg(args())),
            // One that hasn't come to an end is where the thread ends.
            Kind::Enter if syscalls::lasts(number) => {
                let (mut at, mut end) = (next, None);
                while let (None, Some((len, event))) = (end, self.at_place(at)) {
                    (at, end) = (at + len, event);
                }
                let counts = end.is_none_or(|e| e.kind == Kind::Exit && is_made(&e));
                counts.then(|| e.arg(args()))
            }
            _ => None,
        }
    }

    /// The event that came next is used up.
    pub fn consume(&mut self, e: &Event) {
        another_operation();
        self.at += u64::from(e.header.len);
    }

    /// What comes next, when the quiet operations before it are counted.
    fn look(&mut self) -> Next {
        let next = self.peek();
        let quiet = match &next {
            Next::Entry(e) => e.quiet,
            Next::End => self.ends.quiet,
            // What is quiet before an event has an entry.
            Next::Event(_) => return next,
        };
        if !core::mem::replace(&mut self.looked, true) {
            self.quiet = quiet.saturating_sub(core::mem::take(&mut self.before));
        }
        next
    }

    /// What the thread's next operation is in the log.
    pub fn due(&mut self) -> Due {
        loop {
            let entry = match self.look() {
                Next::Entry(e) => Some(e),
                Next::End => None,
                Next::Event(_) => return Due::Event,
            };
            if self.quiet != 0 {
                return Due::Quiet;
            }
            match entry {
                None => return Due::End,
                Some(e) if e.kind == EntryKind::Quiet => self.skip_entry(),
                Some(e) => return Due::Entry(e),
            }
        }
    }

    /// The event that comes next, behind all that is quiet before it.
    pub fn due_event(&mut self) -> Option<Event<'static>> {
        match (self.due(), self.peek()) {
            (Due::Event, Next::Event(e)) => Some(e),
            _ => None,
        }
    }

    /// That operation was made.
    pub fn made(&mut self) {
        another_operation();
        match self.quiet {
            0 => self.skip_entry(),
            n => self.quiet = n - 1,
        }
    }

    fn skip_entry(&mut self) {
        self.at += ENTRY_LEN as u64;
        self.looked = false;
    }

    /// Where the thread is in its log: it changes with each operation and each event.
    fn place(&mut self) -> u64 {
        self.look();
        self.at << 24 | u64::from(self.quiet) & 0xff_ffff
    }

    /// A hooked function begins.
    pub fn enters(&mut self) {
        let now = self.place();
        if self.unlogged_at != now {
            (self.unlogged_at, self.unlogged) = (now, 0);
        }
    }

    /// It ends; `returns`: it isn't called anew.
    pub fn leaves(&mut self, returns: bool) {
        let now = self.place();
        self.anew = if returns || self.unlogged_at != now {
            0
        } else {
            self.anew + 1
        };
        let has_logged = returns && core::mem::take(&mut self.has_logged);
        if self.unlogged_at != now || has_logged {
            (self.unlogged_at, self.unlogged) = (now, 0);
        } else if returns {
            self.unlogged = self.unlogged.wrapping_add(1);
        }
    }

    /// Has the thread come to where the leader's has computed to the end of the epoch?
    pub fn computes_to_end(&mut self) -> bool {
        self.ends.in_code && !self.done && self.is_at_end()
    }

    /// Is the thread where its part ends, as far as the log says?
    pub fn is_at_end(&mut self) -> bool {
        self.due() == Due::End
    }

    /// The thread is at the end of a gate or of a hooked function, with these registers. Is that where the leader's thread stood when the epoch ended? How far it has come in its
    /// log and in its hooked functions says so; what else is in its registers may be another thing, if threads race.
    pub fn ends_at(&mut self, frame: &Frame) -> bool {
        if !self.is_at_end() || self.ends.in_call {
            return false;
        }
        let (ends, calls) = (self.ends.unlogged, self.unlogged_calls());
        if ends == calls && self.stands_with(frame) {
            return true;
        }
        let others = self.ends.frame.differs_from(frame);
        self.missed = others | (ends & 0xff) << 24 | (calls & 0xff) << 32;
        false
    }

    /// As [`Part::ends_at`], of a thread in a call whose beginning is the last thing in its log.
    pub fn ends_in_call(&mut self, frame: &Frame) -> bool {
        self.ends.in_call && self.stands_with(frame)
    }

    /// Notes the registers with which the thread stands, if the leader's thread stood at the same place.
    fn stands_with(&mut self, frame: &Frame) -> bool {
        let ends = &self.ends.frame;
        if (ends.rip, ends.rsp) != (frame.rip, frame.rsp) {
            return false;
        }
        (self.came, self.other_registers) = (*frame, ends.differs_from(frame));
        true
    }

    /// The thread isn't at its end, and has nothing left in the log: has it gone on so long that it must have come by?
    pub fn is_looked_for_too_long(&mut self) -> bool {
        const MOST: u32 = 1 << 20;
        const MOST_ANEW: u32 = 1000;
        self.looks += 1;
        self.looks > MOST
            || self.looks > 1000 && self.ends.unlogged < self.unlogged_calls()
            || self.anew > MOST_ANEW
    }

    /// Hooked functions that it has called since, and that left nothing in the log.
    pub fn unlogged_calls(&mut self) -> u64 {
        match self.place() {
            now if self.unlogged_at == now => self.unlogged,
            _ => 0,
        }
    }
}

/// What a thread's next operation is in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// One that is only counted.
    Quiet,
    /// This one, which comes after one of another thread.
    Entry(Entry),
    /// None: the thread has come to its end.
    End,
    /// None: an event comes first.
    Event,
}
