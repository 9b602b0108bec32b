//! Where threads meet: a thread that comes to a gate waits until nobody runs the program's code any more. Then those that have come have a **turn** each, in
//! whatever order they get it; they go on when nobody is left who waits for one. It is as with a lock for one writer or many readers: who runs reads, who has a
//! turn writes, and writers go first. Who waits for another thread, or in the kernel, holds up nobody.

use crate::engine::order::{Order, Runs};
use crate::engine::waits::{self, Deadline, Wait};
use crate::isolate::phases::{Phases, Whereabouts};
use crate::isolate::{call, commit, members, pages, split};
use crate::machine::sys;
use crate::thread::Block;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use reprise_abi::layout::MAX_SLOTS;

/// How many threads run, how many have come and had no turn, the slot of who has one, plus 1; and the number of the phase.
static MEETING: AtomicU64 = AtomicU64::new(0);
const RUNS: u64 = 1;
const COMES: u64 = 1 << 13;
const TURN: u64 = 1 << 26;
const ROUND: u64 = 1 << 39;
const _: () = assert!((MAX_SLOTS as u64) < COMES);

/// Where a thread is, by slot; else it waits on the word at this address.
static SEATS: [AtomicU64; MAX_SLOTS] = [const { AtomicU64::new(GONE) }; MAX_SLOTS];
pub const GONE: u64 = 0;
const AT_WORK: u64 = 1;
const IN_KERNEL: u64 = 2;

/// Grows when there is something to look at: who waits sleeps on it.
static NEWS: AtomicU32 = AtomicU32::new(0);

/// Whoever waits looks again.
pub fn news() {
    NEWS.fetch_add(1, SeqCst);
    sys::futex_wake_all(NEWS.as_ptr());
}

/// Where the thread of this slot is.
pub fn seat(slot: u32) -> &'static AtomicU64 {
    &SEATS[slot as usize]
}

/// Waits until the meeting can be changed in this way, and does it; `then` gets what it was before.
fn change(slot: u32, how: impl Fn(u64) -> Option<u64>, then: fn(u64)) {
    let changed = || MEETING.fetch_update(SeqCst, SeqCst, &how).map(then);
    call::attend(slot, &NEWS, i64::MAX, || changed().is_ok());
}

/// The program's only thread is about to have others beside it.
pub fn start(slot: u32) {
    members::start(slot);
    seat(slot).store(AT_WORK, SeqCst);
    MEETING.store(ROUND + RUNS, SeqCst);
}

/// In a turn: a thread is about to be made on this slot.
pub fn enrol(slot: u32) {
    members::begins(slot);
    seat(slot).store(AT_WORK, SeqCst);
}

/// Has the thread a turn?
pub fn in_turn(t: &Block) -> bool {
    MEETING.load(SeqCst) % ROUND / TURN == u64::from(t.slot) + 1
}

/// The thread comes to a gate: it has a turn, and commits.
pub fn begin(t: &mut Block) {
    if split::in_force() && !in_turn(t) {
        commit::prepare(t);
        take_turn(t, RUNS, commit::commit);
    }
}

/// `ran`: [`RUNS`], of a thread that did. Those that have had their turns mustn't go on in between: what it has written is compared with what all saw before.
fn take_turn(t: &mut Block, ran: u64, sees: fn(&mut Block)) {
    let turn = TURN * (u64::from(t.slot) + 1);
    let free = |m: u64| m % COMES == 0 && m % ROUND < TURN;
    MEETING.fetch_add(COMES - ran, SeqCst);
    news();
    change(t.slot, |m| free(m).then(|| m - COMES + turn), |_| {});
    sees(t);
}

/// The turn is over: what was written in it is common, and this is where the thread is now.
pub fn leave(t: &mut Block, at: u64) {
    commit::commit_again(t);
    if at == GONE {
        commit::end(t);
    }
    seat(t.slot).store(at, SeqCst);
    MEETING.fetch_sub(TURN * (u64::from(t.slot) + 1), SeqCst);
    news();
}

/// When nobody waits for a turn any more the thread runs.
pub fn go_on(t: &mut Block, sees: fn(&mut Block)) {
    let begins = |m| if m % COMES == 0 { ROUND } else { 0 };
    let next = |m| (m % ROUND < COMES).then(|| m + RUNS + begins(m));
    change(t.slot, next, |m| {
        (m % COMES == 0).then(pages::phase_begins);
    });
    sees(t);
}

/// The turn ends, if there is one.
pub fn end(t: &mut Block) {
    if in_turn(t) {
        leave(t, AT_WORK);
        go_on(t, commit::refresh);
    }
}

/// Does something in a turn.
pub fn within<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> R {
    let nested = in_turn(t);
    begin(t);
    let r = f(t);
    if !nested {
        end(t);
    }
    r
}

/// In a turn: the thread makes a call that waits in the kernel, and touches no memory of the program.
pub fn outside<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> R {
    leave(t, IN_KERNEL);
    let r = f(t);
    seat(t.slot).store(AT_WORK, SeqCst);
    take_turn(t, 0, commit::refresh);
    r
}

/// In a turn: waits on the word at this address, at most until `end` (CLOCK_MONOTONIC, ns).
pub fn wait(t: &mut Block, word: u64, end: Option<i64>) -> Wait {
    let (slot, end, mut how) = (t.slot, end.unwrap_or(i64::MAX), Wait::Woken);
    leave(t, word);
    call::attend(slot, &NEWS, end, || {
        if t.pending.first(t.mask).is_some() && recall(slot, word) {
            how = Wait::Signal;
        } else if sys::monotonic().ns() >= end && recall(slot, word) {
            how = Wait::TimedOut;
        }
        seat(slot).load(SeqCst) != word
    });
    take_turn(t, 0, commit::refresh);
    how
}

/// A thread that waits on this word waits no more; whether it did.
fn recall(slot: u32, word: u64) -> bool {
    let recalled = seat(slot).compare_exchange(word, AT_WORK, SeqCst, SeqCst);
    if recalled.is_ok() {
        news();
    }
    recalled.is_ok()
}

/// In a turn: wakes up to `n` that wait on the word at this address; how many they were.
pub fn wake(address: u64, n: u32) -> u32 {
    let woken = members::slots().filter(|s| recall(*s, address));
    woken.take(n as usize).count() as u32
}

/// What private views of memory, and processes that look like one, are told.
pub struct AtMeeting;

impl Phases for AtMeeting {
    fn round(&self) -> u32 {
        (MEETING.load(SeqCst) / ROUND) as u32
    }
    fn whereabouts(&self, slot: u32) -> Whereabouts {
        match seat(slot).load(SeqCst) {
            GONE => Whereabouts::Gone,
            AT_WORK => Whereabouts::AtWork,
            IN_KERNEL => Whereabouts::InKernel,
            _ => Whereabouts::Waits,
        }
    }
    fn rouse(&self, _slot: u32) {
        news();
    }
    fn recall(&self, slot: u32, _how: Wait) {
        recall(slot, seat(slot).load(SeqCst));
    }
}

/// Hooked functions, locked instructions, and what heaps have of each other, are done in a turn as a whole.
pub struct AtGates;

impl Order for AtGates {
    const REPLAYS: bool = false;
    fn faulted_in_stub(t: &mut Block, _number: Option<u32>) {
        end(t);
    }
    fn faulted(t: &mut Block) {
        end(t);
    }
    fn enters(t: &mut Block) {
        begin(t);
    }
    fn leaves(t: &mut Block, _returns: bool) {
        end(t);
    }
    fn passed(_t: &mut Block, _object: &Runs) {}
    fn passed_among(_t: &mut Block, _object: &Runs) {}
    fn ordered<R>(t: &mut Block, _address: u64, operation: impl FnOnce() -> R) -> R {
        within(t, |_| operation())
    }
    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        if !in_turn(t) {
            return waits::in_kernel(t, word, value, deadline, shared, || {}, |_| false);
        }
        let end = deadline.map(|d| sys::in_monotonic(d.at.ns(), d.realtime));
        wait(t, word.as_ptr() as u64, end)
    }
    fn wake(t: &mut Block, address: *const u32, n: u32, shared: bool) {
        match in_turn(t) {
            true => drop(wake(address as u64, n)),
            false => waits::wake(address, n, shared),
        }
    }
    fn pause(t: &mut Block) {
        end(t);
        begin(t);
    }
}
