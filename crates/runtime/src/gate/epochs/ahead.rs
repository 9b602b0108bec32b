//! A leader is ahead (DoublePlay 3): when its epoch ends the copy for the next one is made at once, and the program goes on, while the copy of the one that is over runs. The
//! new copy, which has what the program had come to, compares ([`judge`]). It is the [leader](crate::gate::leader) who keeps the program from doing what can't be taken back
//! before the news is good. What another copy came to the program goes back to ([`settle`]; 5.2.4).

use super::came::compare;
use super::{begin, left_out, tell, threads, COPY, PATIENCE};
use crate::gate::{copy, stand};
use crate::log::epoch::{self, End};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{self, compared, transfer, written};
use crate::thread::blocks::in_use_here;
use crate::thread::{session, Block, VECTORS_LEN};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::epoch::Why;
use reprise_abi::syscalls::{self, nr};

/// Process id of the copy that runs the epoch before, while the program is ahead; 0: there is none.
static BEHIND: AtomicU32 = AtomicU32::new(0);
/// Memory that the program has mapped while it was ahead of what was known to be wrong: it has to be unmapped when it goes back. Address and length of each.
static MAPPED: [[AtomicU64; 2]; MOST_MAPPED] =
    [const { [const { AtomicU64::new(0) }; 2] }; MOST_MAPPED];
static MAPPINGS: AtomicU32 = AtomicU32::new(0);
const MOST_MAPPED: usize = 32;

/// In a child that fork(2) made: the copy is its parent's.
pub fn after_fork() {
    BEHIND.store(0, Relaxed);
    epoch::forget_previous();
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
    looked.is_some() && taken && threads_back && transfer::takes_over_tables(pid)
}

/// The program is ahead of an epoch whose copy has come to something else, and maps memory in the middle of a hooked function, where it can't stand.
pub fn has_mapped(at: u64, len: u64) {
    let n = MAPPINGS.fetch_add(1, Relaxed) as usize;
    if let Some([to_at, to_len]) = MAPPED.get(n) {
        to_at.store(at, Relaxed);
        to_len.store(len, Relaxed);
    }
}
