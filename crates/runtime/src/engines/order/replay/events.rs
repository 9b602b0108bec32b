//! A thread's events, in its own order, and the turns of a call's stamps.

use super::entries::look;
use super::life::header;
use super::objects::ordered_call;
use crate::common::apply::{apply, apply_at, cannot_map};
use crate::common::rebuilt;
use crate::common::report::{diverge, Actual};
use crate::engines::order::{cut, listing, trail, turns};
use crate::log::output;
use crate::log::ring::{self, Reader};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::of_file::OfFile;
use crate::memory::space;
use crate::memory::{files, shm};
use crate::races;
use crate::thread::Block;
use reprise_abi::event::{EventHeader, Kind, FILE_NUMBER_SHIFT};
use reprise_abi::inputs::reads;
use reprise_abi::session::divergence_kind as kinds;
use reprise_abi::syscalls::used;

/// The header of the thread's next event. More operations before it than recorded are a divergence.
pub(super) fn next_event(t: &mut Block, actual: &Actual) -> EventHeader {
    cut::replay::must_be_found(t);
    if look(t).is_some() {
        // What was recorded is an entry, of which a report has no place.
        diverge(t, kinds::EVENT, None, actual);
    }
    header(t)
}

/// Takes the next event, which must be of one of these kinds.
pub(in crate::engines::order) fn expect(
    t: &mut Block,
    wanted: &[Kind],
    actual: &Actual,
) -> EventHeader {
    let h = next_event(t, actual);
    if !wanted.iter().any(|k| *k as u8 == h.kind) || h.detail != actual.detail {
        diverge(t, kinds::EVENT, Some(&h), actual);
    }
    h
}

/// Takes the second event of a call whose first is `begun`: what is left of it to be read, and the stamp of the call's end.
pub(in crate::engines::order) fn expect_exit(
    t: &mut Block,
    begun: Actual,
) -> (EventHeader, Reader, u64) {
    let actual = Actual {
        kind: Kind::Exit,
        ..begun
    };
    let h = expect(t, &[Kind::Exit], &actual);
    let mut r = Reader::begin(h);
    let ends = r.args()[0];
    (h, r, ends)
}

/// Waits for the turn of a stamp of a call. Other processes may have had copies made of files that are mapped here.
fn begin_turn(t: &mut Block, stamp: u64) {
    turns::wait_for_stamp(t, stamp);
    files::catch_up();
}

/// A call's events, up to its result. `at_turn` is what happens while the beginning of the call has its turn, and `at_end` while its end
/// has it. The first stamp is left in the block.
pub(in crate::engines::order) fn replay_call(
    t: &mut Block,
    c: &Call,
    hash: u64,
    at_turn: impl FnOnce(&mut Block, &EventHeader) -> i64,
    at_end: impl FnOnce(&mut Block, &EventHeader, &OfFile),
) -> (i64, EventHeader, OfFile) {
    let actual = Actual::of_call(c, hash);
    let h = expect(t, &[Kind::Syscall, Kind::Enter], &actual);
    trail::at_call(t);
    let mut r = Reader::begin(h);
    let args = r.args();
    let stamps = (h.nargs as usize).saturating_sub(c.nargs);
    let ends_now = h.kind == Kind::Syscall as u8;
    let stamps_fit = if ends_now {
        stamps == 1 || stamps == 2
    } else {
        stamps == 1
    };
    let same = same_arguments(c, &args) && listing::same_inputs(t, c, h.input_hash, hash);
    if !same || !stamps_fit {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    let begins = args[c.nargs];
    t.logging.stamps[0] = begins;
    begin_turn(t, begins);
    if crate::thread::in_force::looks_for_races() {
        races::calls::begins(t, c);
    }
    let done = at_turn(t, &h);
    if done != h.value && ends_now {
        let actual = Actual {
            value: done,
            ..actual
        };
        diverge(t, kinds::STATE, Some(&h), &actual);
    }
    let (h, r, ends) = if ends_now {
        let ends = args[c.nargs + stamps - 1];
        if stamps == 2 {
            turns::pass_stamp(begins);
        }
        (h, r, ends)
    } else {
        r.finish();
        turns::pass_stamp(begins);
        expect_exit(t, actual)
    };
    let apply = |r| apply_at(r, |address| rebuilt::place(c, &args, address));
    let file = if ends == begins {
        apply(r)
    } else if refers(c, &h) {
        // In the recording others went on while the kernel read the file.
        let file = apply(r);
        begin_turn(t, ends);
        file
    } else {
        begin_turn(t, ends);
        apply(r)
    };
    if file.lost {
        diverge(t, kinds::ARGUMENT, Some(&h), &Actual::of_call(c, hash));
    }
    at_end(t, &h, &file);
    // In the order in which they wrote: what is shown is what was seen.
    output::follow(c, h.value);
    call_ends(t, c, h.value);
    turns::pass_stamp(ends);
    (h.value, h, file)
}

/// Is what the call read in a copy of a file? Then its event is shorter than that.
fn refers(c: &Call, h: &EventHeader) -> bool {
    reads(c.nr) && i64::from(h.len) < h.value
}

/// A call's result is there.
fn call_ends(t: &Block, c: &Call, result: i64) {
    if crate::thread::in_force::looks_for_races() {
        races::calls::ends(t, c, result);
    }
}

/// A call that changes a word and never waits: what it changes is there before the turn of its beginning is over.
pub(super) fn change_at_once(t: &mut Block, c: &Call, word: u64) -> i64 {
    let (h, ends) = ordered_call(t, word, |t| {
        let actual = Actual::of_call(c, 0);
        let h = expect(t, &[Kind::Syscall], &actual);
        trail::at_call(t);
        let mut r = Reader::begin(h);
        let args = r.args();
        let same = same_arguments(c, &args) && listing::same_inputs(t, c, h.input_hash, 0);
        if !same || h.nargs as usize != c.nargs + 2 {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        let [begins, ends] = [args[c.nargs], args[c.nargs + 1]];
        begin_turn(t, begins);
        if crate::thread::in_force::looks_for_races() {
            races::calls::begins(t, c);
        }
        if apply_at(r, |address| rebuilt::place(c, &args, address)).lost {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        turns::pass_stamp(begins);
        (h, ends)
    });
    begin_turn(t, ends);
    call_ends(t, c, h.value);
    turns::pass_stamp(ends);
    h.value
}

/// shmat(2): the segment must be there before its content can be written.
pub(super) fn attach(t: &mut Block, c: &Call) -> i64 {
    let actual = Actual::of_call(c, 0);
    let h = expect(t, &[Kind::Syscall], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    if args[..c.nargs] != c.args[..c.nargs] || h.nargs as usize != c.nargs + 2 {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    let [begins, ends] = [args[c.nargs], args[c.nargs + 1]];
    turns::take(t, begins);
    begin_turn(t, ends);
    if sys::is_error(h.value) {
        r.finish();
    } else {
        let at = h.value as u64;
        let size = r.section().map_or(0, |(size, ..)| size);
        if !shm::attach_again(c, at, h.flags >> FILE_NUMBER_SHIFT, size) {
            cannot_map(ring::event_number());
        }
        apply(r);
        shm::finish_attach(c, at, size);
        let _lock = space::lock();
        crate::common::rewriting::replay_with_code::<super::Replay>(t);
    }
    turns::pass_stamp(ends);
    h.value
}

/// As [`replay_call`], when nothing happens but what the log says.
pub(super) fn answer(t: &mut Block, c: &Call, hash: u64) -> (i64, EventHeader, OfFile) {
    replay_call(t, c, hash, |_, h| h.value, |_, _, _| {})
}

/// A simple event of the thread's own: its header and its argument words.
pub(super) fn plain(t: &mut Block, kind: Kind, detail: Option<u32>) -> (EventHeader, [u64; 8]) {
    let mut actual = Actual {
        detail: detail.unwrap_or(0),
        ..Actual::of(kind)
    };
    if detail.is_none() {
        actual.detail = next_event(t, &actual).detail;
    }
    let h = expect(t, &[kind], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    r.finish();
    (h, args)
}

/// Are these the arguments of the recorded call, as far as it reads them?
#[inline]
pub fn same_arguments(c: &Call, was: &[u64]) -> bool {
    was[..c.nargs] == c.args[..c.nargs] || alike(c, was)
}

#[cold]
fn alike(c: &Call, was: &[u64]) -> bool {
    let mut all = c.args;
    all[..c.nargs].copy_from_slice(&was[..c.nargs]);
    let used = used(c.nr, &c.args);
    let same = |i: usize| used & 1 << i == 0 || all[i] == c.args[i];
    (0..c.nargs).all(same) || rebuilt::same_arguments(c, &all)
}
