//! Going back: all threads come to stand where they stood at the end of an epoch, with the memory that a copy has, in place: process, descriptors and threads stay what they are. To the end of the epoch before,
//! with what its copy came to there (DoublePlay 5.2.4); or to the beginning of an epoch that can't be run again, to go on from there with one thread at a time (Respec 3: at last an
//! epoch is run serially, and that run is the one that counts).
//!
//! Mappings are made what they were ([`as_then`]), threads that were made since then end. Of calls whose effects others can see it is noted that one was made: who has made one doesn't go back
//! to where it was before that.

use super::came::has_vectors_of;
use super::{threads, Which};
use crate::gate::{leader, stand};
use crate::log::epoch;
use crate::memory::{as_then, compared, transfer, written};
use crate::thread::Block;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// The first call of an epoch that can't be taken back: its number, plus 1; 0: there was none. Of the open epoch, and of the one before.
static LASTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Which of them is the open one's.
static OPEN: AtomicUsize = AtomicUsize::new(0);

fn lasts(of: Which) -> &'static AtomicU64 {
    let open = OPEN.load(Relaxed);
    match of {
        Which::Open => &LASTS[open],
        Which::Before => &LASTS[1 - open],
    }
}

/// Another epoch begins; what is open is the one before then, if it `goes_on`.
pub fn begins(goes_on: bool) {
    if goes_on {
        OPEN.fetch_xor(1, Relaxed);
    } else {
        lasts(Which::Before).store(0, Relaxed);
    }
    lasts(Which::Open).store(0, Relaxed);
}

/// The program makes a call that can't be taken back.
#[inline]
pub fn does_what_lasts(number: u64) {
    let lasts = lasts(Which::Open);
    if lasts.load(Relaxed) == 0 {
        lasts.store(number + 1, Relaxed);
    }
}

/// To the end of that epoch, with what its copy has come to, the first of these processes; the other one is a copy of the program as it was there, or of the open epoch the first again. Where a thread has
/// left the log all stand where the copy's do. False: it can't be.
pub fn to_what_copy_has(number: u32, of: Which, [pid, then]: [u32; 2], request: u32) -> bool {
    let is_before = of == Which::Before;
    let has_left = match is_before {
        true => epoch::had_left(),
        false => epoch::has_left(),
    };
    // Where the thread's registers are: a form in a copy, and what is other there. Where one has left the log, others may have got other heaps.
    let form_of = |i: u32| match has_left {
        true => (Some(pid), None),
        false => (
            is_before.then_some(then),
            epoch::other_registers(i, is_before),
        ),
    };
    let can_stand = |i: u32| {
        let (form, other) = form_of(i);
        form.is_none_or(|form| stand::can_go_back(i, request, form))
            && other.is_none_or(|frame| stand::can_have_registers(i, &frame))
    };
    let stands = |i: u32| {
        let (form, other) = form_of(i);
        form.is_none_or(|form| stand::goes_back(i, request, form))
            && other.is_none_or(|frame| stand::has_registers(i, &frame))
    };
    if epoch::has_raced(is_before) {
        leader::races();
    }
    // Nothing is changed before all of it is known to be possible. (Of the open epoch what was written is read already.)
    (!is_before || written::read())
        && threads(number).all(can_stand)
        && as_then::takes_over(if has_left { pid } else { then })
        && threads(number).all(stands)
        && has_memory_of(pid, has_left)
        && threads(number).all(|i| has_vectors_of(pid, i))
}

/// The program can't go back, since it has made a call: its number, plus 1; 0: for another reason.
pub struct Lasts(pub u64);

/// Has the program done nothing in that epoch, nor since, that can't be taken back, and is no thread in its call?
pub fn can_go(t: &Block, of: Which, request: u32) -> Result<(), Lasts> {
    let is_before = of == Which::Before;
    let epochs = [Some(Which::Open), is_before.then_some(Which::Before)];
    let made = epochs.into_iter().flatten();
    match made
        .map(|one| lasts(one).load(Relaxed))
        .find(|made| *made != 0)
    {
        Some(made) => Err(Lasts(made)),
        None => step(super::all_can_be_free(t, request)),
    }
}

fn step(is_made: bool) -> Result<(), Lasts> {
    is_made.then_some(()).ok_or(Lasts(0))
}

/// To the beginning of that epoch, at which process `then`, a copy of the program, was made.
pub fn to_beginning(t: &Block, of: Which, then: u32, request: u32) -> Result<(), Lasts> {
    can_go(t, of, request)?;
    let was_there = |i: &u32| epoch::was_there(*i, of == Which::Before);
    // Nothing is changed before what can be wanting is there.
    let can_stand = |i: u32| stand::can_go_back(i, request, then);
    step(then != 0 && threads(t.number).filter(was_there).all(can_stand))?;
    step(written::read() && as_then::takes_over(then))?;
    let takes_up = |i: u32| stand::goes_back(i, request, then) && has_vectors_of(then, i);
    step(threads(t.number).filter(was_there).all(takes_up))?;
    step(has_memory_of(then, false))?;
    threads(t.number)
        .filter(|i| !was_there(i))
        .for_each(stand::unmakes);
    Ok(())
}

/// The program takes over all memory of that process, a copy of it; what it has written itself was read before. Where the copy `has_left` the log it may have given back other pages than the
/// program.
fn has_memory_of(pid: u32, has_left: bool) -> bool {
    let mut taken = true;
    let mut takes = |page| taken = taken && transfer::take_over(pid, page).is_some();
    let written = [written::pages_before(), written::pages()];
    let known = compared::compare(pid, written, &mut takes).is_some()
        && (!has_left || compared::each_of_one(pid, &mut takes));
    known && taken && transfer::takes_over_tables(pid)
}
