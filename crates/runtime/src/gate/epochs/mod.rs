//! Epochs: what the threads do between two times that all of them stand. At its end the copy that was made at its beginning runs it again, one thread at a time, by the log
//! of what the program did (DoublePlay 5.2.2, Respec 4.4); where it comes to is compared with where the program stands: memory by what either has written, and the registers of all
//! threads ([`came`]).
//!
//! The test (`record --test-epochs`) does this while the program stands. What differs is counted, and told of the first time. The program goes on as it is.
//! With `record --test-slices` that copy writes what it does, as slices, and another copy, made at the same time, runs the epoch by these and is compared in the
//! same way: a recording of the epoch, and its replay.
//!
//! A [leader](crate::gate::leader) stands for it only where it has to, and is [`ahead`] else.

pub mod ahead;
pub mod back;
mod came;
pub mod output;
pub mod slices;
pub mod worth;

use crate::gate::copy::{self, Task};
use crate::gate::stand;
use crate::log::epoch::{self, End};
use crate::machine::sys;
use crate::memory::written;
use crate::thread::blocks::{block_of, in_use_here};
use crate::thread::rings::head;
use crate::thread::{session, standing, Block};
use came::{compare, Came, Difference};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::epoch::{self as differs, Why};
use reprise_abi::session::{FLAG_EPOCHS, FLAG_FLIP_SLICES, FLAG_TEST_EPOCHS, FLAG_TEST_SLICES};

/// A copy that has come to no end after so many ns, and [`TIMES`] what the program has used of processors, never does.
const PATIENCE: i64 = 20_000_000_000;
/// One processor may be all that there is, and others want it, too.
const TIMES: i64 = 8;

/// Process id of the copy that is to run the open epoch; 0: none is open.
static COPY: AtomicU32 = AtomicU32::new(0);
/// As above, of a copy of the program as it was when the epoch began, which stays as it is: the **keeper**. It compares, too, what the copy of the epoch before has come to.
static KEEPER: AtomicU32 = AtomicU32::new(0);
/// As above, of the copy that is to run it by slices; 0: there is none.
static READER: AtomicU32 = AtomicU32::new(0);

/// Which epoch: the open one, or the one before, which a copy runs meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The open one.
    Open,
    /// The one before.
    Before,
}

/// Are epochs run again?
#[inline(always)]
pub fn are_made() -> bool {
    let flags = session().flags;
    flags & FLAG_EPOCHS != 0 || standing::is_tested() && flags & FLAG_TEST_EPOCHS != 0
}

/// In a child that fork(2) made: the copy is its parent's.
pub fn after_fork() {
    COPY.store(0, Relaxed);
    KEEPER.store(0, Relaxed);
    READER.store(0, Relaxed);
    epoch::forget();
    ahead::after_fork();
    output::after_fork();
}

/// All stand for this request: the open epoch is over, and another one begins.
pub fn test(t: &mut Block, request: u32) {
    ends(request);
    begin(t, request, false);
}

/// Is it a [leader](crate::gate::leader) whose epochs these are? Otherwise they are the test's.
fn is_led() -> bool {
    session().flags & FLAG_EPOCHS != 0
}

/// That copy, if there is one, is of no use any more.
fn ends_copy(copy: &AtomicU32) {
    let pid = copy.swap(0, Relaxed);
    if pid != 0 {
        copy::end(pid);
    }
}

/// All stand for this request: the open epoch is over. Has its copy come to the program's state? (`false` also where there was none.)
pub fn ends(request: u32) -> bool {
    let pid = COPY.swap(0, Relaxed);
    let reader = READER.swap(0, Relaxed);
    let is_same = pid != 0 && end(pid, reader, request);
    for pid in [pid, reader].into_iter().filter(|pid| *pid != 0) {
        copy::end(pid);
    }
    if is_same {
        ends_copy(&KEEPER);
    }
    is_same
}

/// The slots of this process's threads.
fn threads(number: u32) -> impl Iterator<Item = u32> {
    let here = move |i: &u32| in_use_here(*i).is_some() && block_of(*i).number == number;
    (0..session().slots_used.load(Acquire)).filter(here)
}

/// All stand for this request, or stay in their calls: does nobody stay?
pub fn all_are_free(t: &Block, request: u32) -> bool {
    is_free(t.slot, request) && all_others_are_free(t, request)
}

/// As [`all_are_free`], when all have gone back.
pub fn all_can_be_free(t: &Block, request: u32) -> bool {
    let can_be = |i: u32| stand::can_be_free(i, request) || stand::is_unmade(block_of(i));
    threads(t.number).all(can_be)
}

/// As [`all_are_free`], while the calling thread runs.
pub fn all_others_are_free(t: &Block, request: u32) -> bool {
    let mut others = threads(t.number).filter(|i| *i != t.slot);
    others.all(|i| is_free(i, request))
}

fn is_free(i: u32, request: u32) -> bool {
    stand::is_free(i, request) || stand::is_unmade(block_of(i))
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
    back::begins(goes_on);
    output::begins(goes_on);
    if is_led() {
        ends_copy(&KEEPER);
        let keeper = copy::make(t, request, Task::Keeps);
        if sys::is_error(keeper) {
            ends_copy(&COPY);
            epoch::forget();
            return false;
        }
        KEEPER.store(keeper as u32, Relaxed);
    }
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
    let recovers = is_led();
    let Some(came) = runs(pid, number, epoch::RUN, recovers, request) else {
        return left_out(epoch::reason()[0]);
    };
    let difference = came.difference;
    let is_done = epoch::state() == epoch::DONE;
    if recovers && is_done && !came.is_taken_over && (difference.is_some() || epoch::has_left()) {
        epoch::is_not_taken_over(false);
    }
    s.slices_bytes.fetch_add(epoch::slices_len(), Relaxed);
    if epoch::has_left() && difference.is_none() {
        s.epochs_in_code.fetch_add(1, Relaxed);
        return came.is_taken_over;
    }
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
    if epoch::has_births(false) {
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
    let came = runs(reader, number, epoch::READ, false, request);
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

/// Counts what a copy came to, and keeps the first difference.
fn tell(difference: Option<Difference>, counts: [&AtomicU64; 2], first: [&AtomicU64; 2]) {
    let Some(difference) = difference else {
        counts[0].fetch_add(1, Relaxed);
        return;
    };
    keep_first(difference, first);
    counts[1].fetch_add(1, Relaxed);
}

fn keep_first((what, at): Difference, first: [&AtomicU64; 2]) {
    if first[0].compare_exchange(0, what, Relaxed, Relaxed).is_ok() {
        first[1].store(at, Relaxed);
    }
}

/// A copy has left the log, for this reason.
fn way([why, slot, event]: [u64; 3]) -> Difference {
    (differs::OTHER_WAY + why, event << 16 | slot)
}

/// A copy runs the epoch, as the log has said by this `state`: what it comes to, which the program takes over where it `recovers`. `None`: it can't run it.
fn runs(pid: u32, number: u32, state: u32, recovers: bool, request: u32) -> Option<Came> {
    let until = sys::monotonic().ns() + PATIENCE + TIMES * epoch::time_of_leader();
    let is_late = || sys::monotonic().ns() > until;
    let state = epoch::await_change(state, || is_late() || copy::has_ended(pid));
    Some(match state {
        epoch::LEFT_OUT => return None,
        epoch::DONE if recovers && epoch::has_left() => Came {
            difference: epoch::has_raced(false).then(|| way(epoch::reason())),
            is_taken_over: back::to_what_copy_has(number, Which::Open, [pid; 2], request),
        },
        epoch::DONE => compare(pid, number, recovers, false),
        epoch::UNLIKE => {
            let (what, at) = way(epoch::reason());
            Came::elsewhere(what, at)
        }
        _ if is_late() => Came::elsewhere(differs::LATE, 0),
        _ => {
            let how = copy::how_it_ended(pid).flatten();
            Came::elsewhere(differs::ENDED, how.unwrap_or(0))
        }
    })
}
