//! Rounds and the token (DThreads 4.2.1): a **phase**, in which all threads run the program's code at once on what they saw when it began,
//! then a **turn** for each of them, one after the other.
//!
//! The phase ends when every thread of the **ring** has come to a synchronisation point. Then the turns are given in the ring's order, and
//! when all are over, the next phase begins, for all at once. Who waits for somebody (a mutex, a condition, a join) leaves the ring in its turn; who
//! wakes it puts it at the ring's end, and its operation goes on in a turn of the same round. So the order of everything that threads
//! do to each other follows from the program alone.
//!
//! Input and output that is no synchronisation has turns of its own within the phase ([`super::io_turns`]): when nobody runs any more, those that have come to
//! such a place, a **batch**, have theirs, in the ring's order, and go on with the phase together.
//!
//! The ring is changed by the thread whose turn it is; in a phase by the one that has its lead ([`super::retained`]); by the last one to arrive before the
//! first turn; and while it rests, by whoever ends that ([`super::idle`]).

use super::spin::{FIRST_LOOK_AT_ALL_NS, FIRST_LOOK_NS};
use crate::isolate::call::LOOK_AROUND_NS;
use crate::isolate::layout::DET_BASE;
use crate::isolate::{ending, members, pages, proxy, space};
use crate::machine::processors::processors;
use crate::machine::sys::{self, Timespec};
use crate::thread::session;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::layout::MAX_SLOTS;

/// Rounds of looking before a thread sleeps: a futex wake to another processor costs more than that.
const SPINS: u32 = 2000;
/// As many, of a thread of the ring, as long as each of them can have a processor: the others come to the end of their phases, too.
const SPINS_IN_RING: u32 = 20_000;

/// What a slot's thread is doing.
pub mod state {
    #![allow(missing_docs)]
    pub const NOBODY: u32 = 0;
    /// It runs the program's code.
    pub const RUNS: u32 = 1;
    /// It has come to a synchronisation point, and waits for its turn.
    pub const ARRIVED: u32 = 2;
    /// It has had its turn.
    pub const DONE: u32 = 3;
    /// It is not in the ring: another thread has to wake it.
    pub const WAITS: u32 = 4;
    /// It is not in the ring: it waits for what is outside of the program, as in a call that the kernel makes.
    pub const OUTSIDE: u32 = 5;
    /// It has come to a place of input or output, and waits for its turn, or has it.
    pub const AT_IO: u32 = 6;
    /// It has had that turn: it goes on with its phase when all of the batch have had theirs.
    pub const IO_DONE: u32 = 7;
}

/// Why a thread came back into the ring.
pub mod why {
    #![allow(missing_docs)]
    pub const WOKEN: u32 = 0;
    /// It has waited long enough.
    pub const TIMED_OUT: u32 = 1;
    /// A signal is to be delivered.
    pub const SIGNAL: u32 = 2;
}

/// Whether a thread waits for a child of the program ([`super::turns::outside_for_child`]).
pub mod child {
    #![allow(missing_docs)]
    pub const NONE: u32 = 0;
    /// It comes back where the program alone says, and all others wait for it there.
    pub const IN_ORDER: u32 = 1;
    /// They no longer do.
    pub const ANY_TIME: u32 = 2;
    /// Somebody is about to say so.
    pub const TAKEN: u32 = 3;
}

/// One thread.
#[repr(C, align(64))]
pub struct Member {
    /// One of [`state`].
    pub state: AtomicU32,
    /// It sleeps, on this word.
    sleeping: AtomicU32,
    /// What it waits for: the address of a word, 0 nothing.
    pub word: AtomicU64,
    /// Which wake-ups are for it (FUTEX_WAIT_BITSET).
    pub bits: AtomicU32,
    /// What the word was, where others than the program's threads may change it ([`super::shared_word`]).
    pub outer: AtomicU64,
    /// Its number among all waits: who came first is woken first.
    pub since: AtomicU64,
    /// When it has waited long enough, in ns of the program's time ([`super::idle`]); 0: never.
    pub deadline: AtomicU64,
    /// That in ns of the kernel's monotonic clock: no time limit runs out before.
    pub not_before: AtomicU64,
    /// One of [`why`].
    pub why: AtomicU32,
    /// Signals that have come to it.
    pub signals: AtomicU32,
    /// The round in which it was made.
    pub born: AtomicU32,
    /// It is asked where it is ([`super::spin`]).
    pub asked: AtomicU32,
    /// Where it was when somebody looked after it.
    pub seen_at: AtomicU64,
    /// One of [`child`].
    pub child: AtomicU32,
}

/// What all threads share.
#[repr(C)]
struct State {
    /// Number of the round, from 1 on.
    round: AtomicU32,
    /// Whose turn it is: the slot, plus 1.
    turn: AtomicU32,
    /// Threads of the ring that have not arrived yet.
    running: AtomicU32,
    /// Threads that have come to a place of input or output since the last batch was over, ...
    asking: AtomicU32,
    /// ... and how many batches there were.
    batches: AtomicU32,
    /// Threads of the program.
    live: AtomicU32,
    /// Waits that there ever were.
    waits: AtomicU64,
    /// Turns in which a thread found that it still can't go on, since anybody could.
    idle: AtomicU32,
    /// Who looks after the threads that run, in this round: the slot, plus 1; of those who wait for the phase's end (second), and of others (first).
    watchers: [AtomicU32; 2],
    ring_len: UnsafeCell<usize>,
    ring: UnsafeCell<[u16; MAX_SLOTS]>,
    members: [Member; MAX_SLOTS],
}

const _: () = assert!(core::mem::size_of::<State>() < 16 << 20);

fn all() -> &'static State {
    // SAFETY: mapped before there is a second thread; zero at first. The cells are changed as said above.
    unsafe { &*(DET_BASE as *const State) }
}

/// The thread of this slot.
pub fn member(slot: u32) -> &'static Member {
    &all().members[slot as usize % MAX_SLOTS]
}

#[allow(clippy::mut_from_ref)]
fn ring() -> (&'static mut usize, &'static mut [u16; MAX_SLOTS]) {
    let s = all();
    // SAFETY: as said at the head of the file.
    unsafe { (&mut *s.ring_len.get(), &mut *s.ring.get()) }
}

fn in_ring() -> impl Iterator<Item = u32> {
    let (len, list) = ring();
    let len = *len;
    list[..len].iter().map(|s| *s as u32)
}

fn join_ring(slot: u32) {
    let (len, list) = ring();
    list[*len] = slot as u16;
    *len += 1;
}

/// Is the ring empty?
pub fn nobody_in_ring() -> bool {
    *ring().0 == 0
}

/// Is this the only thread of the ring?
pub fn is_alone_in_ring(slot: u32) -> bool {
    let (len, list) = ring();
    *len == 1 && list[0] as u32 == slot
}

/// In its turn: the thread of this slot is the ring's first from now on.
pub fn put_first(slot: u32) {
    let (len, list) = ring();
    if let Some(n) = list[..*len].iter().position(|s| *s as u32 == slot) {
        list[..=n].rotate_right(1);
    }
}

fn leave_ring(slot: u32) {
    let (len, list) = ring();
    if let Some(n) = list[..*len].iter().position(|s| *s as u32 == slot) {
        list.copy_within(n + 1..*len, n);
        *len -= 1;
    }
}

/// Are several threads in the ring, and is none left that looks after them while it waits? Who waits in the kernel can't.
pub fn nobody_looks() -> bool {
    let len = *ring().0;
    len > 1 && (len == live() as usize || all_in(state::WAITS).next().is_none())
}

/// Is this the first thread of the ring?
pub fn is_first_in_ring(slot: u32) -> bool {
    let (len, list) = ring();
    *len != 0 && list[0] as u32 == slot
}

/// Number of the round.
pub fn round() -> u32 {
    all().round.load(SeqCst)
}

/// Threads of the program that have not ended.
pub fn live() -> u32 {
    all().live.load(SeqCst)
}

/// The program's only thread is the first one of the ring.
pub fn start(slot: u32) {
    let s = all();
    s.round.store(1, SeqCst);
    s.running.store(0, SeqCst);
    *ring().0 = 0;
    pages::phase_begins();
    enrol(slot);
    members::start(slot);
    // It doesn't wait for its first phase.
    member(slot).born.store(0, SeqCst);
    s.running.store(1, SeqCst);
}

/// In a turn: a new thread. It runs from the next phase on.
pub fn enrol(slot: u32) {
    let (s, m) = (all(), member(slot));
    s.live.fetch_add(1, SeqCst);
    m.word.store(0, Relaxed);
    m.sleeping.store(0, Relaxed);
    m.born.store(s.round.load(Relaxed), Relaxed);
    m.deadline.store(0, Relaxed);
    m.asked.store(0, Relaxed);
    m.child.store(child::NONE, Relaxed);
    members::begins(slot);
    m.state.store(state::RUNS, SeqCst);
    join_ring(slot);
}

/// In a phase, of the thread that has its lead ([`super::retained`]): a new thread. It runs from now on.
pub fn enrol_at_once(slot: u32) {
    enrol(slot);
    member(slot).born.store(round() - 1, Relaxed);
    all().running.fetch_add(1, SeqCst);
}

/// One that was enrolled so could not be made.
pub fn retire_at_once(slot: u32) {
    retire(slot);
    all().running.fetch_sub(1, SeqCst);
}

/// In its turn: the thread ends. It still has to [`pass`].
pub fn retire(slot: u32) {
    all().live.fetch_sub(1, SeqCst);
    leave_ring(slot);
    member(slot).state.store(state::NOBODY, SeqCst);
}

/// The thread has come to a synchronisation point. Then it has to [`wait_for_turn`].
pub fn arrive(slot: u32) {
    member(slot).state.store(state::ARRIVED, SeqCst);
    if all().running.fetch_sub(1, SeqCst) == 1 {
        next();
    }
}

/// The thread has come to a place of input or output. Then it has to [`wait_for_turn`], and to [`pass`], and if it is done then, to
/// [`wait_for_batch`].
pub fn arrive_for_io(slot: u32) {
    let s = all();
    s.asking.fetch_add(1, SeqCst);
    member(slot).state.store(state::AT_IO, SeqCst);
    if s.running.fetch_sub(1, SeqCst) == 1 {
        next();
    }
}

/// Nobody runs: the next one of the batch has its turn, or all of it go on with their phase. False: there is no batch.
fn next_of_batch() -> bool {
    let s = all();
    if s.asking.load(SeqCst) == 0 {
        return false;
    }
    let is_in = |slot: &u32, wanted| member(*slot).state.load(SeqCst) == wanted;
    if let Some(slot) = in_ring().find(|slot| is_in(slot, state::AT_IO)) {
        s.turn.store(slot + 1, SeqCst);
        rouse(slot);
        return true;
    }
    s.asking.store(0, SeqCst);
    let (mut told, mut n) = ([0u64; MAX_SLOTS / 64], 0);
    for slot in in_ring().filter(|slot| is_in(slot, state::IO_DONE)) {
        member(slot).state.store(state::RUNS, SeqCst);
        told[slot as usize / 64] |= 1 << (slot % 64);
        n += 1;
    }
    // All have become real turns.
    if n == 0 {
        return false;
    }
    s.turn.store(0, SeqCst);
    s.running.store(n, SeqCst);
    crate::isolate::options::delay();
    s.batches.fetch_add(1, SeqCst);
    rouse_all(&told);
    true
}

/// How many batches there were.
pub fn batches() -> u32 {
    all().batches.load(SeqCst)
}

/// Waits until all of the batch have had their turns, before which there were so many batches.
pub fn wait_for_batch(slot: u32, before: u32) {
    until(slot, || all().batches.load(SeqCst) != before);
}

/// The thread's turn is over; `state` says how it goes on.
pub fn pass(slot: u32, how: u32) {
    if how != state::NOBODY {
        member(slot).state.store(how, SeqCst);
    }
    if matches!(how, state::WAITS | state::OUTSIDE) {
        leave_ring(slot);
    }
    next();
}

/// The next turn, or the next phase.
pub fn next() {
    let s = all();
    if next_of_batch() {
        return;
    }
    super::streams::flush();
    loop {
        let found = in_ring().find(|slot| member(*slot).state.load(SeqCst) == state::ARRIVED);
        if let Some(slot) = found {
            s.turn.store(slot + 1, SeqCst);
            return rouse(slot);
        }
        s.turn.store(0, SeqCst);
        if super::idle::comes_back() {
            continue;
        }
        if *ring().0 != 0 {
            return begin_phase();
        }
        if s.live.load(SeqCst) == 0 || !super::idle::rest() {
            return;
        }
    }
}

fn begin_phase() {
    let s = all();
    let (len, _) = ring();
    pages::phase_begins();
    s.watchers.iter().for_each(|w| w.store(0, Relaxed));
    s.running.store(*len as u32, SeqCst);
    // Who is told may have gone on, and arrived, before all are.
    let mut told = [0u64; MAX_SLOTS / 64];
    for slot in in_ring() {
        member(slot).state.store(state::RUNS, SeqCst);
        told[slot as usize / 64] |= 1 << (slot % 64);
    }
    crate::isolate::options::delay();
    crate::isolate::options::count(&session().counters.det_rounds);
    s.round.fetch_add(1, SeqCst);
    rouse_all(&told);
}

/// All threads of this set, by slot, look again.
fn rouse_all(set: &[u64; MAX_SLOTS / 64]) {
    for (n, word) in set.iter().enumerate() {
        let mut word = *word;
        while word != 0 {
            rouse(n as u32 * 64 + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

/// Threads that have not come to the end of the phase; and the one whose turn it is, which may run the program's code in it.
pub fn running() -> impl Iterator<Item = u32> {
    let (turn, round) = (all().turn.load(SeqCst), round());
    let begun = move |slot: &u32| member(*slot).born.load(Relaxed) != round;
    all_in(state::RUNS).filter(begun).chain(turn.checked_sub(1))
}

/// The thread whose turn it is waits for a child, and has been doing so for too long: the others go on.
pub fn pass_over_child_waiter() {
    let Some(slot) = all().turn.load(SeqCst).checked_sub(1) else {
        return;
    };
    let m = member(slot);
    let taken = m
        .child
        .compare_exchange(child::IN_ORDER, child::TAKEN, SeqCst, SeqCst);
    if taken.is_ok() {
        // Its turn is the caller's to end now.
        pass(slot, state::OUTSIDE);
        m.child.store(child::ANY_TIME, SeqCst);
    }
}

/// The thread of this slot waits for a child no more; whether others still wait for it, if it has a turn.
pub fn child_has_come(slot: u32) -> bool {
    let m = member(slot);
    let own = m
        .child
        .compare_exchange(child::IN_ORDER, child::NONE, SeqCst, SeqCst);
    if own.is_err() {
        while m.child.load(SeqCst) == child::TAKEN {
            sys::sched_yield();
        }
        m.child.store(child::NONE, SeqCst);
    }
    own.is_ok()
}

/// Is it the turn of this slot's thread?
pub fn has_turn(slot: u32) -> bool {
    all().turn.load(SeqCst) == slot + 1
}

/// Threads in this state.
pub fn all_in(wanted: u32) -> impl Iterator<Item = u32> {
    let used = session().slots_used.load(Relaxed);
    (0..used).filter(move |slot| member(*slot).state.load(SeqCst) == wanted)
}

/// In a turn: the thread of this slot, which is not in the ring, gets a turn in this round. `reason`: one of [`why`].
pub fn recall(slot: u32, reason: u32) {
    let m = member(slot);
    m.word.store(0, Relaxed);
    m.deadline.store(0, Relaxed);
    m.why.store(reason, Relaxed);
    m.state.store(state::ARRIVED, SeqCst);
    join_ring(slot);
}

/// The number of a wait that begins.
pub fn wait_number() -> u64 {
    all().waits.fetch_add(1, Relaxed)
}

/// Waits for the thread's turn.
pub fn wait_for_turn(slot: u32) {
    until(slot, || all().turn.load(SeqCst) == slot + 1);
}

/// Waits for the end of round `round`.
pub fn wait_for_phase(slot: u32, round: u32) {
    until(slot, || all().round.load(SeqCst) != round);
}

/// Notes that a turn was of no use, or was of use; whether all threads' turns lately were of none.
pub fn idles(useless: bool) -> bool {
    let s = all();
    if !useless {
        s.idle.store(0, Relaxed);
        return false;
    }
    s.idle.fetch_add(1, Relaxed) as usize > 2 * *ring().0
}

/// Was no turn of the last round of any use?
pub fn round_was_idle() -> bool {
    all().idle.load(Relaxed) as usize >= (*ring().0).max(1)
}

/// What a waiting thread knows of the phase that others make last.
#[derive(Default)]
struct Watch {
    round: u32,
    since: i64,
    next: i64,
}

impl Watch {
    /// Looks after those who run, if that is due; when to look around again.
    fn until(&mut self, slot: u32) -> i64 {
        let (s, now) = (all(), sys::monotonic().ns());
        // What came after a batch is as good as a phase.
        let round = round().wrapping_add(batches());
        let wanted = super::idle::waits_for_phase(slot);
        let runs = match wanted {
            true => s.running.load(SeqCst) != 0 || s.turn.load(SeqCst) != 0,
            // Several may wait for each other.
            false => s.running.load(SeqCst) > 1,
        };
        if !runs {
            self.since = 0;
        } else if self.since == 0 || self.round != round {
            let watcher = &s.watchers[wanted as usize];
            let first = watcher.compare_exchange(0, slot + 1, SeqCst, SeqCst);
            if first.is_ok() || first == Err(slot + 1) {
                (self.round, self.since) = (round, now);
                self.next = now
                    + if wanted {
                        FIRST_LOOK_NS
                    } else {
                        FIRST_LOOK_AT_ALL_NS
                    };
            }
        } else if now >= self.next {
            self.next = now + super::spin::look_after_runners(now - self.since, wanted);
        }
        match self.since {
            0 => now + LOOK_AROUND_NS,
            _ => self.next.min(now + LOOK_AROUND_NS),
        }
    }

    /// The thread goes on, perhaps as one that has to be looked after: another one does that from now on.
    fn end(&self, slot: u32) {
        for watcher in &all().watchers {
            let _ = watcher.compare_exchange(slot + 1, 0, SeqCst, SeqCst);
        }
    }
}

/// Is it worth it for the thread of this slot to look for longer before it sleeps?
fn may_look_on(slot: u32) -> bool {
    let waits = matches!(
        member(slot).state.load(Relaxed),
        state::WAITS | state::OUTSIDE
    );
    !waits && *ring().0 <= processors() as usize
}

fn until(slot: u32, what: impl Fn() -> bool) {
    for n in 1..=SPINS_IN_RING {
        if what() {
            return space::follow(slot);
        }
        core::hint::spin_loop();
        if n % SPINS == 0 {
            if !may_look_on(slot) {
                break;
            }
            proxy::serve(slot);
            // Others may want the processor.
            sys::sched_yield();
        }
    }
    let m = member(slot);
    let mut watch = Watch::default();
    while !what() {
        space::follow(slot);
        proxy::serve(slot);
        m.sleeping.store(1, SeqCst);
        super::idle::look(slot);
        if !what() && !space::is_behind(slot) {
            let late = super::idle::late(slot).min(watch.until(slot));
            // A signal that came after the look has changed the word.
            sys::futex_wait(m.sleeping.as_ptr(), 1, Some(&Timespec::from_ns(late)));
            ending::look_after_threads();
        }
        m.sleeping.store(0, SeqCst);
    }
    watch.end(slot);
    space::follow(slot);
}

/// A signal has come to the thread of this slot, in whose handler this is: it looks whether it has to wait still.
pub fn signalled(slot: u32) {
    let m = member(slot);
    m.signals.fetch_add(1, SeqCst);
    m.sleeping.store(0, SeqCst);
}

/// The thread of this slot, if it sleeps, looks again.
pub fn rouse(slot: u32) {
    let m = member(slot);
    if m.sleeping.swap(0, SeqCst) != 0 {
        sys::futex_wake(m.sleeping.as_ptr(), 1);
    }
}
