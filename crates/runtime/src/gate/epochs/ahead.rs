//! A leader is ahead (DoublePlay 3): when its epoch ends the copy for the next one is made at once, and the program goes on, while the copy of the one that is over runs. The
//! new copy, which has what the program had come to, compares ([`judge`]). It is the [leader](crate::gate::leader) who keeps the program from doing what can't be taken back
//! before the news is good. What another copy came to the program goes back to ([`settle`]; 5.2.4).

use super::came::compare;
use super::{
    back, begin, ends_copy as ends, keep_first, left_out, tell, threads, way, Which, COPY, KEEPER,
    PATIENCE, TIMES,
};
use crate::gate::{copy, stand};
use crate::log::epoch::{self, End};
use crate::machine::sys;
use crate::memory::written;
use crate::thread::blocks::in_use_here;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::epoch::{self as differs, Why};

/// Process id of the copy that runs the epoch before, while the program is ahead; 0: there is none.
static BEHIND: AtomicU32 = AtomicU32::new(0);
/// The [keeper](super::KEEPER) of the epoch before; 0: there is none.
static KEEPER_BEFORE: AtomicU32 = AtomicU32::new(0);

/// In a child that fork(2) made: the copy is its parent's.
pub fn after_fork() {
    BEHIND.store(0, Relaxed);
    KEEPER_BEFORE.store(0, Relaxed);
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
    match epoch::previous_state_so_far() {
        epoch::SAME => Before::Good,
        epoch::OTHER => Before::Other,
        epoch::RUN | epoch::DONE => {
            let judge = KEEPER.load(Relaxed);
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
    let state = epoch::previous_state_so_far();
    if matches!(state, epoch::RUN | epoch::DONE) {
        epoch::await_previous(state);
    }
}

/// All stand for this request: the open epoch is over, its copy is to run it, and the next one begins. Otherwise which epoch can't be recorded.
pub fn goes_ahead(t: &mut Block, request: u32) -> Result<(), Which> {
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
        left_out(why);
        return Err(Which::Open);
    }
    epoch::run();
    BEHIND.store(COPY.swap(0, Relaxed), Relaxed);
    KEEPER_BEFORE.store(KEEPER.swap(0, Relaxed), Relaxed);
    if !begin(t, request, true) {
        return Err(Which::Before);
    }
    session().epochs_ahead.fetch_add(1, Relaxed);
    Ok(())
}

/// A copy of the program as it was at the end of the epoch before, until the program `has_ended`: what the copy came to that has run that. (If that ends otherwise, the program knows, and ends this one.)
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
        epoch::judges(match epoch::had_left() {
            true => Some(way(epoch::previous_reason())),
            false => compare(behind, t.number, false, true).difference,
        });
    }
}

/// All stand for this request: what has become of the epoch before, which is waited for, and of which nothing is left open then but its slices ([`epoch::previous_slices`]), if it can be
/// recorded. The program goes back to its end where that is [another one](Before::Other); the open epoch is none then.
pub fn settle(t: &Block, request: u32) -> Before {
    let pid = BEHIND.load(Relaxed);
    let until = sys::monotonic().ns() + PATIENCE + TIMES * epoch::previous_time_of_leader();
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
            tells_end(pid);
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
        let copies = [pid, KEEPER.load(Relaxed)];
        if !back::to_what_copy_has(t.number, Which::Before, copies, request) {
            epoch::is_not_taken_over(true);
            return Before::Lost;
        }
        s.epochs_recovered.fetch_add(1, Relaxed);
        ends(&COPY);
        ends(&KEEPER);
    }
    ends(&BEHIND);
    ends(&KEEPER_BEFORE);
    came
}

/// Keeps how the copy behind, or the one that compares, has ended, where it has and hasn't said why, if that is the first difference.
fn tells_end(pid: u32) {
    if !matches!(epoch::previous_state(), epoch::RUN | epoch::DONE) {
        return;
    }
    let ended = |pid| copy::how_it_ended(pid).flatten();
    let how = ended(pid).or_else(|| ended(KEEPER.load(Relaxed)));
    let what = match how {
        Some(how) => (differs::ENDED, how),
        None => (differs::LATE, 0),
    };
    let s = session();
    keep_first(what, [&s.epoch_difference, &s.epoch_difference_at]);
}

/// Nothing comes of that epoch, nor of the open one: the program goes back to its beginning, if it can.
pub fn goes_back(t: &Block, of: Which, request: u32) -> Result<(), back::Lasts> {
    let keeper = match of {
        Which::Open => &KEEPER,
        Which::Before => &KEEPER_BEFORE,
    };
    let is_back = back::to_beginning(t, of, keeper.load(Relaxed), request);
    for copy in [&COPY, &BEHIND, &KEEPER, &KEEPER_BEFORE] {
        ends(copy);
    }
    is_back
}
