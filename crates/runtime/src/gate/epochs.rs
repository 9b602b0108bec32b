//! The test of epochs (`record --test-epochs`; DoublePlay 5.2.2, Respec 4.4): what the threads do between two times that all of them stand is an epoch.
//! At its end the copy that was made at its beginning runs it again, one thread at a time, by the log of what the program did; where it comes to is compared
//! with where the program stands: memory by what either has written, and the registers of all threads.
//!
//! With `record --test-slices` that copy writes what it does, as slices, and another copy, made at the same time, runs the epoch by these and is compared in the
//! same way: a recording of the epoch, and its replay.
//!
//! All this happens while the program stands. What differs is counted, and told of the first time. The program goes on as it is.
//!
//! A leader ([`leader`](crate::gate::leader)) need not stand for it. When its epoch ends the next copy is made at once, and the program goes on with the next epoch, *ahead* of what is
//! known to be good; the copy of the one before runs meanwhile. The next copy, which has what the program had come to, compares. It is the leader who keeps the program
//! from doing what can't be taken back before that. What another copy came to the program goes back to ([`settle`]).

use crate::gate::copy::{self, Task};
use crate::gate::stand;
use crate::log::epoch::{self, End};
use crate::machine::{guard, sys};
use crate::memory::capture::Call;
use crate::memory::{self, compared, transfer, written};
use crate::signal::frame::same_vectors;
use crate::thread::blocks::{block_of, in_use_here};
use crate::thread::rings::head;
use crate::thread::{session, slot, standing, Block, VECTORS_LEN};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::epoch::{self as differs, Why};
use reprise_abi::layout::PAGE;
use reprise_abi::session::{FLAG_EPOCHS, FLAG_FLIP_SLICES, FLAG_TEST_EPOCHS, FLAG_TEST_SLICES};
use reprise_abi::syscalls::{self, nr};

/// A copy that has come to no end after so many ns never does.
const PATIENCE: i64 = 20_000_000_000;

/// Process id of the copy that is to run the open epoch; 0: none is open.
static COPY: AtomicU32 = AtomicU32::new(0);
/// As above, of the copy that is to run it by slices; 0: there is none.
static READER: AtomicU32 = AtomicU32::new(0);

/// Are epochs run again?
#[inline(always)]
pub fn are_made() -> bool {
    let flags = session().flags;
    flags & FLAG_EPOCHS != 0 || standing::is_tested() && flags & FLAG_TEST_EPOCHS != 0
}

/// As above, of the copy that runs the epoch before, while the program is ahead; 0: there is none.
static BEHIND: AtomicU32 = AtomicU32::new(0);
/// Memory that the program has mapped while it was ahead of what was known to be wrong: it has to be unmapped when it goes back. Address and length of each.
static MAPPED: [[AtomicU64; 2]; MOST_MAPPED] =
    [const { [const { AtomicU64::new(0) }; 2] }; MOST_MAPPED];
static MAPPINGS: AtomicU32 = AtomicU32::new(0);
const MOST_MAPPED: usize = 32;

/// In a child that fork(2) made: the copy is its parent's.
pub fn after_fork() {
    COPY.store(0, Relaxed);
    READER.store(0, Relaxed);
    BEHIND.store(0, Relaxed);
    epoch::forget();
    epoch::forget_previous();
}

/// All stand for this request: the open epoch is over, and another one begins.
pub fn test(t: &mut Block, request: u32) {
    ends(request);
    begin(t, request, false);
}

/// All stand for this request: the open epoch is over. Has its copy come to the program's state? (`false` also where there was none.)
pub fn ends(request: u32) -> bool {
    let pid = COPY.swap(0, Relaxed);
    let reader = READER.swap(0, Relaxed);
    let is_same = pid != 0 && end(pid, reader, request);
    for pid in [pid, reader].into_iter().filter(|pid| *pid != 0) {
        copy::end(pid);
    }
    is_same
}

/// The slots of this process's threads.
fn threads(number: u32) -> impl Iterator<Item = u32> {
    let here = move |i: &u32| in_use_here(*i).is_some() && block_of(*i).number == number;
    (0..session().slots_used.load(Acquire)).filter(here)
}

/// All stand for this request: an epoch begins; it `goes_on` where the copy of the one before is to run that meanwhile. False: none begins.
pub fn begin(t: &mut Block, request: u32, goes_on: bool) -> bool {
    if !goes_on {
        written::lose();
    }
    if !epoch::begin(head().stamp.0.load(SeqCst), goes_on) {
        return false;
    }
    let known = threads(t.number).all(|i| {
        let now = stand::place_of(i, request);
        now.is_some_and(|now| epoch::has_thread(i, &now))
    });
    if !known {
        left_out(Why::Life as u64);
        epoch::forget();
        return false;
    }
    epoch::others_may_begin();
    let pid = copy::make(t, request, Task::Follows);
    if sys::is_error(pid) {
        epoch::forget();
        return false;
    }
    COPY.store(pid as u32, Relaxed);
    if session().flags & FLAG_TEST_SLICES != 0 {
        let reader = copy::make(t, request, Task::Reads);
        READER.store(
            if sys::is_error(reader) {
                0
            } else {
                reader as u32
            },
            Relaxed,
        );
    }
    written::begin();
    true
}

/// The epoch before, as far as it is known while the program is ahead of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Its copy runs, or is compared.
    Unknown,
    /// It is recorded, or there is none.
    Good,
    /// Its copy has come to something else, to which the program can go back.
    Other,
    /// It can't be recorded.
    Lost,
}

/// Is it not known whether the epoch before is good? Then nothing may be done that can't be taken back.
#[inline(always)]
pub fn is_ahead() -> bool {
    BEHIND.load(Relaxed) != 0 && epoch::previous_state() != epoch::SAME
}

/// What is known of the epoch before.
pub fn before() -> Before {
    let pid = BEHIND.load(Relaxed);
    if pid == 0 {
        return Before::Good;
    }
    match epoch::previous_state() {
        epoch::SAME => Before::Good,
        epoch::OTHER => Before::Other,
        epoch::RUN | epoch::DONE => {
            let judge = COPY.load(Relaxed);
            match copy::has_ended(pid) || judge != 0 && copy::has_ended(judge) {
                true => Before::Lost,
                false => Before::Unknown,
            }
        }
        _ => Before::Lost,
    }
}

/// Waits a moment for [`before`] to be another one than [`Before::Unknown`].
pub fn await_news() {
    let state = epoch::previous_state();
    if matches!(state, epoch::RUN | epoch::DONE) {
        epoch::await_previous(state);
    }
}

/// All stand for this request: the open epoch is over, its copy is to run it, and the next one begins. False: that can't be.
pub fn goes_ahead(t: &mut Block, request: u32) -> bool {
    let place = |i: u32| -> Option<End> {
        in_use_here(i)?;
        stand::place_of(i, request)
    };
    let known = threads(t.number).all(|i| epoch::part(i).is_some() && place(i).is_some());
    let is_known = written::read();
    let why = match known {
        true if is_known && epoch::take(place).is_some() => None,
        true => Some(0),
        false => Some(Why::Life as u64),
    };
    if let Some(why) = why {
        end_copies();
        return left_out(why);
    }
    epoch::run();
    BEHIND.store(COPY.swap(0, Relaxed), Relaxed);
    let begun = begin(t, request, true);
    match begun {
        true => session().epochs_ahead.fetch_add(1, Relaxed),
        false => {
            end_copies();
            0
        }
    };
    begun
}

/// A copy of the program as it was at the end of the epoch before, which is to run the next one, until the program `has_ended`: what the copy came to that has run the one
/// before. (If that ends otherwise, the program knows, and ends this one.)
pub fn judge(t: &Block, has_ended: impl Fn() -> bool) {
    let behind = BEHIND.swap(0, Relaxed);
    if behind == 0 {
        return;
    }
    let mut state = epoch::RUN;
    while state == epoch::RUN && !has_ended() {
        state = epoch::await_change_of_previous(state, &has_ended);
    }
    if state == epoch::DONE {
        epoch::judges(compare(behind, t.number, false, true).difference);
    }
}

/// All stand for this request: what has become of the epoch before, which is waited for, and of which nothing is left open then but its slices ([`epoch::previous_slices`]), if it can be
/// recorded. The program goes back to its end where that is [another one](Before::Other); the open epoch is none then.
pub fn settle(t: &Block, request: u32) -> Before {
    let pid = BEHIND.load(Relaxed);
    let until = sys::monotonic().ns() + PATIENCE;
    let mut came = before();
    while came == Before::Unknown {
        if sys::monotonic().ns() > until {
            came = Before::Lost;
            break;
        }
        await_news();
        came = before();
    }
    if pid == 0 {
        return came;
    }
    let s = session();
    let [what, _, at] = epoch::previous_reason();
    let difference = match came {
        Before::Good => None,
        Before::Other => Some((what, at)),
        _ => {
            end_copies();
            left_out(what);
            return Before::Lost;
        }
    };
    tell(
        difference,
        [&s.epochs_same, &s.epochs_unlike],
        [&s.epoch_difference, &s.epoch_difference_at],
    );
    if came == Before::Other {
        let is_back = goes_back(t, pid, request);
        if !is_back {
            end_copies();
            return Before::Lost;
        }
        s.epochs_recovered.fetch_add(1, Relaxed);
        copy::end(COPY.swap(0, Relaxed));
    }
    copy::end(BEHIND.swap(0, Relaxed));
    came
}

/// Nothing comes of the open epoch, nor of the one before.
fn end_copies() {
    for pid in [&COPY, &BEHIND].map(|copy| copy.swap(0, Relaxed)) {
        if pid != 0 {
            copy::end(pid);
        }
    }
}

/// All threads come to stand where they stood at the end of the epoch before, with the memory and the vector registers that its copy, process `pid`, has come to (DoublePlay 5.2.4). What they have done since
/// was nothing but to compute.
fn goes_back(t: &Block, pid: u32, request: u32) -> bool {
    let then = COPY.load(Relaxed);
    if !written::read() {
        return false;
    }
    let mappings = MAPPINGS.swap(0, Relaxed) as usize;
    if mappings > MOST_MAPPED {
        return false;
    }
    for [at, len] in &MAPPED[..mappings] {
        let args = [at.load(Relaxed), len.load(Relaxed), 0, 0, 0, 0];
        memory::perform(&Call::new(nr::MUNMAP, args, syscalls::lookup(nr::MUNMAP)));
    }
    let mut taken = true;
    let looked = compared::compare(pid, [written::pages_before(), written::pages()], |page| {
        taken = taken && transfer::take_over(pid, page).is_some();
    });
    let threads_back = threads(t.number).all(|i| {
        let at = stand::vectors(i);
        let others = epoch::other_registers(i, true);
        stand::goes_back(i, request, then)
            && others.is_none_or(|frame| stand::has_registers(i, &frame))
            && transfer::get(pid, at, at, VECTORS_LEN).is_some()
    });
    looked.is_some() && taken && threads_back
}

/// The program is ahead of an epoch whose copy has come to something else, and maps memory in the middle of a hooked function, where it can't stand.
pub fn has_mapped(at: u64, len: u64) {
    let n = MAPPINGS.fetch_add(1, Relaxed) as usize;
    if let Some([to_at, to_len]) = MAPPED.get(n) {
        to_at.store(at, Relaxed);
        to_len.store(len, Relaxed);
    }
}

/// The epoch is over: the copy runs it. Has it come to the program's state?
fn end(pid: u32, reader: u32, request: u32) -> bool {
    let s = session();
    let number = crate::thread::process::number();
    // A thread that has come meanwhile may have no room for a part, or be about to begin.
    let known =
        threads(number).all(|i| epoch::part(i).is_some() && stand::place_of(i, request).is_some());
    let place = |i: u32| -> Option<End> {
        in_use_here(i)?;
        stand::place_of(i, request)
    };
    // Before anything is read that the copy, too, has.
    let is_known = written::read();
    if !known {
        return left_out(Why::Life as u64);
    }
    if !is_known || epoch::take(place).is_none() {
        return left_out(0);
    }
    epoch::run();
    let recovers = s.flags & FLAG_EPOCHS != 0;
    let Some(came) = runs(pid, number, epoch::RUN, recovers) else {
        return left_out(epoch::reason()[0]);
    };
    let difference = came.difference;
    s.slices_bytes.fetch_add(epoch::slices_len(), Relaxed);
    tell(
        difference,
        [&s.epochs_same, &s.epochs_unlike],
        [&s.epoch_difference, &s.epoch_difference_at],
    );
    if difference.is_some() {
        s.epochs_recovered
            .fetch_add(came.is_taken_over.into(), Relaxed);
        return came.is_taken_over;
    }
    if epoch::has_births() {
        s.epochs_with_births.fetch_add(1, Relaxed);
    }
    if reader == 0 {
        return true;
    }
    if s.flags & FLAG_FLIP_SLICES != 0 && !epoch::flip_slices() {
        // One thread alone: nothing can change places.
        return true;
    }
    epoch::read();
    // Nothing is left out here: what a copy can't do isn't in the slices.
    let came = runs(reader, number, epoch::READ, false);
    let difference = came.map_or(Some((differs::ENDED, 0)), |came| came.difference);
    tell(
        difference,
        [&s.slices_same, &s.slices_unlike],
        [&s.slice_difference, &s.slice_difference_at],
    );
    difference.is_none()
}

/// The epoch can't be run again, for this reason.
fn left_out(why: u64) -> bool {
    let s = session();
    s.epochs_left_out.fetch_add(1, Relaxed);
    if let Some(n) = s.epochs_left_out_by.get(why as usize) {
        n.fetch_add(1, Relaxed);
    }
    false
}

/// What a copy came to: the kind of a difference, and where.
type Difference = (u64, u64);

/// Counts what a copy came to, and keeps the first difference.
fn tell(difference: Option<Difference>, counts: [&AtomicU64; 2], first: [&AtomicU64; 2]) {
    let Some((what, at)) = difference else {
        counts[0].fetch_add(1, Relaxed);
        return;
    };
    if first[0].compare_exchange(0, what, Relaxed, Relaxed).is_ok() {
        first[1].store(at, Relaxed);
    }
    counts[1].fetch_add(1, Relaxed);
}

/// What a copy came to.
struct Came {
    /// What is different, if anything is.
    difference: Option<Difference>,
    /// The program has that now, too.
    is_taken_over: bool,
}

impl Came {
    fn elsewhere(what: u64, at: u64) -> Came {
        Came {
            difference: Some((what, at)),
            is_taken_over: false,
        }
    }
}

/// A copy runs the epoch, as the log has said by this `state`: what it comes to, which the program takes over where it `recovers`. `None`: it can't run it.
fn runs(pid: u32, number: u32, state: u32, recovers: bool) -> Option<Came> {
    let until = sys::monotonic().ns() + PATIENCE;
    let is_late = || sys::monotonic().ns() > until;
    let state = epoch::await_change(state, || is_late() || copy::has_ended(pid));
    Some(match state {
        epoch::LEFT_OUT => return None,
        epoch::DONE => compare(pid, number, recovers, false),
        epoch::UNLIKE => {
            let [why, slot, event] = epoch::reason();
            Came::elsewhere(differs::OTHER_WAY + why, event << 16 | slot)
        }
        _ if is_late() => Came::elsewhere(differs::LATE, 0),
        _ => {
            let how = copy::how_it_ended(pid).flatten();
            Came::elsewhere(differs::ENDED, how.unwrap_or(0))
        }
    })
}

/// The copy has come to the end of all its threads, of the open epoch or of the one before: what differs first. A program that `recovers` takes it over: what
/// the copy did is the recording, and nothing else was seen outside (DoublePlay 5.2.4).
fn compare(pid: u32, number: u32, recovers: bool, is_before: bool) -> Came {
    let (mut first, mut taken) = (None, recovers);
    let looked = compared::compare(pid, [written::pages(), &[]], |page| {
        first = first.or_else(|| difference(pid, page).map(|at| (differs::MEMORY, at)));
        taken = taken && transfer::take_over(pid, page).is_some();
    });
    if looked.is_none() {
        return Came::elsewhere(differs::MEMORY, 0);
    }
    for i in threads(number) {
        if let Some(frame) = epoch::other_registers(i, is_before) {
            first = first.or(Some((differs::REGISTERS, i.into())));
            taken = taken && stand::has_registers(i, &frame);
        }
    }
    for i in threads(number).filter(|i| !has_same_vectors(pid, *i)) {
        first = first.or(Some((differs::VECTORS, i.into())));
        let at = stand::vectors(i);
        taken = taken && transfer::get(pid, at, at, VECTORS_LEN).is_some();
    }
    Came {
        difference: first,
        is_taken_over: taken,
    }
}

/// Where a page differs first, but for marks of waiters.
fn difference(pid: u32, page: u64) -> Option<u64> {
    const WORDS: usize = PAGE as usize / 4;
    let other = UnsafeCell::new([0u32; WORDS]);
    let Some(()) = transfer::get(pid, other.get() as u64, page, PAGE) else {
        return Some(page);
    };
    let other = other.into_inner();
    let Some(own) = guard::read::<[u32; WORDS]>(page) else {
        return Some(page);
    };
    let at = |n: usize| page + 4 * n as u64;
    (0..WORDS)
        .find(|n| own[*n] != other[*n] && !is_mark(at(*n), [own[*n], other[*n]]))
        .map(at)
}

/// Is what differs here only whether the owner of a mutex ([`crate::sync::libc::mutex`]) is to look for others when it unlocks it? That depends on whether somebody
/// came while another one had it, not on who had it when; and somebody who waits says so again when all go on.
fn is_mark(at: u64, states: [u32; 2]) -> bool {
    const TAKEN: u32 = 1;
    const WAITED_FOR: u32 = 2;
    /// Where a mutex has its owner.
    const OWNER: u64 = 8;
    let is_locked = states == [TAKEN, WAITED_FOR] || states == [WAITED_FOR, TAKEN];
    let owner = guard::read::<u32>(at + OWNER);
    is_locked
        && (0..session().slots_used.load(Relaxed))
            .filter(|i| in_use_here(*i).is_some())
            .any(|i| Some(slot(i).visible_tid.load(Relaxed)) == owner)
}

fn has_same_vectors(pid: u32, i: u32) -> bool {
    let mine = stand::vectors(i);
    same_vectors(mine, |at, here, len| {
        transfer::get(pid, here, at, len).is_some()
    })
}
