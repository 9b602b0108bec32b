//! System calls, clocks and calls that shape the address space: asked of the kernel and logged, or answered from the log.

use super::{follows, records, replays};
use crate::common::apply::{apply, cannot_map, trace_ended};
use crate::common::make::NOT_MADE;
use crate::common::plain;
use crate::common::report::{diverge, Actual};
use crate::engine::{Engine, RESTART};
use crate::engines::det::Det;
use crate::gate::instruction;
use crate::log::busy;
use crate::log::events;
use crate::log::inputs;
use crate::log::output;
use crate::log::output::mapped;
use crate::log::ring::{self, Reader};
use crate::log::seeks;
use crate::machine::sys::{self, is_error};
use crate::memory::capture::Call;
use crate::memory::futex::changed_word;
use crate::memory::of_file::OfFile;
use crate::memory::{self, by_reference, shm};
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::rings::ring_of;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{
    EventHeader, Instruction, Kind, ProcessEnd, Tag, FILE_NUMBER_SHIFT, FLAG_RESTARTED,
};
use reprise_abi::order::CLOSED_GONE;
use reprise_abi::session::divergence_kind as kinds;
use reprise_abi::syscalls::nr;

/// Of what a call reads, where there is a log.
pub fn hash_of(t: &Block, c: &Call) -> u64 {
    match follows(t) {
        true => c.input_hash(),
        false => 0,
    }
}

/// Asks the kernel.
pub fn ask(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
    if !follows(t) {
        return plain::syscall::<Det>(t, c);
    }
    let hash = c.input_hash();
    let ends = crate::gate::signals::ends_us(t, c, process::visible_pid());
    if let Some(signal) = ends {
        // It will not come back.
        match replays() {
            true => drop(answered(t, c, hash)),
            false => events::call(t, Kind::Syscall, c, 0, 0, hash),
        }
        dies(t, signal);
    }
    if replays() {
        return result(t, c, hash);
    }
    c.shorten();
    inputs::before(t, c);
    let (number, args) = (c.nr, c.local);
    let r = seeks::around(number, &args, || plain::syscall::<Det>(t, c));
    inputs::after(t, c, r);
    note(t, c, r, hash);
    r
}

/// Logs what came of a call that the kernel was asked for.
pub fn note(t: &mut Block, c: &Call, r: i64, hash: u64) {
    match r {
        RESTART => events::call(t, Kind::Syscall, c, NOT_MADE, FLAG_RESTARTED, hash),
        _ if c.nr == nr::FUTEX && !is_error(r) => {
            let word = changed_word(c).map(|w| (Tag::Output, w, w, 4));
            events::call_with(t, c, r, 0, hash, word.as_slice());
        }
        _ => {
            let of_file = mapped::look(c, r, true);
            output::look(t, c, r);
            events::call_noted(t, Kind::Syscall, c, r, 0, hash, of_file.as_ref());
            output::follow(c, r);
        }
    }
}

/// A call that was made in another way than by [`ask`] has this result; a replay's comes from the log.
pub fn done(t: &mut Block, c: &Call, r: i64, hash: u64) -> i64 {
    if !follows(t) {
        return r;
    }
    if replays() {
        return result(t, c, hash);
    }
    note(t, c, r, hash);
    r
}

/// What the recording has of this call.
pub fn result(t: &mut Block, c: &Call, hash: u64) -> i64 {
    let (r, h, file) = answered(t, c, hash);
    if h.flags & FLAG_RESTARTED != 0 {
        return RESTART;
    }
    output::follow(c, r);
    let number = h.flags >> FILE_NUMBER_SHIFT;
    if number != 0 {
        mapped::redo(c, r, number, file.offset, file.hash);
    }
    r
}

/// The process ends by this signal.
pub fn dies(t: &mut Block, signal: u32) -> ! {
    <Det as Engine>::process_dies(t, signal);
    kernel::die_now(signal)
}

/// The thread's next event, which must be this one.
pub fn expect(t: &Block, kind: Kind, detail: u32, hash: u64) -> EventHeader {
    let actual = Actual {
        detail,
        input_hash: hash,
        ..Actual::of(kind)
    };
    next(t, &actual)
}

fn next(t: &Block, actual: &Actual) -> EventHeader {
    let Some(h) = ring::peek() else { ended(t) };
    if h.kind != actual.kind as u8 || h.detail != actual.detail {
        diverge(t, kinds::EVENT, Some(&h), actual);
    }
    h
}

/// Nothing more was recorded of the thread. If its process was killed, the driver does that when the others have come as far.
fn ended(t: &Block) -> ! {
    let (ring, ..) = ring_of(t.slot);
    while ring.closed.load(SeqCst) == CLOSED_GONE {
        let never = 0u32;
        sys::futex_wait(&never, 0, None);
    }
    trace_ended()
}

/// The program is somewhere else than where the recording had a signal.
pub fn diverges(t: &Block, h: &EventHeader, pc: u64) -> ! {
    let actual = Actual {
        detail: h.detail,
        value: pc as i64,
        ..Actual::of(Kind::Signal)
    };
    diverge(t, kinds::ARGUMENT, Some(h), &actual)
}

fn answered(t: &mut Block, c: &Call, hash: u64) -> (i64, EventHeader, OfFile) {
    let actual = Actual::of_call(c, hash);
    let h = next(t, &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    if args[..c.nargs] != c.args[..c.nargs] || h.input_hash != hash {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    let file = apply(r);
    (h.value, h, file)
}

/// A non-deterministic instruction.
pub fn instruction(t: &mut Block, which: Instruction) -> (u64, u64) {
    if replays() {
        let h = expect(t, Kind::Instruction, which as u32, 0);
        let args = super::take(h);
        return (h.value as u64, args[0]);
    }
    let (value, _) = instruction::read_clock(which);
    // As getcpu(2) says.
    let aux = crate::gate::processor::first_allowed().into();
    if records(t) {
        events::plain(
            Kind::Instruction,
            t.slot,
            which as u32,
            value as i64,
            &[aux],
        );
    }
    (value, aux)
}

/// mmap(2) and its kin: which address it is, is the kernel's to say.
pub fn shape(t: &mut Block, c: &Call) -> i64 {
    if !follows(t) {
        return memory::perform(c).result;
    }
    if replays() {
        let (r, h, file) = answered(t, c, 0);
        if !memory::redo(c, r, &file, h.flags >> FILE_NUMBER_SHIFT) {
            cannot_map(ring::event_number() - 1);
        }
        return r;
    }
    let mut done = memory::perform(c);
    match done.file {
        Some(fd) => {
            let shown = by_reference::shown(c, fd);
            memory::remember_file(c, done.result, shown.number);
            let flags = shown.number << FILE_NUMBER_SHIFT;
            events::call_with(t, c, done.result, flags, 0, &[shown.section()]);
        }
        None => events::call_with(t, c, done.result, 0, 0, done.section().as_slice()),
    }
    done.result
}

/// shmat(2) and shmdt(2).
pub fn attach(t: &mut Block, c: &Call) -> i64 {
    if !replays() {
        return crate::common::segment::record(t, c);
    }
    if c.nr == nr::SHMDT {
        return shape(t, c);
    }
    let actual = Actual::of_call(c, 0);
    let h = next(t, &actual);
    let mut r = Reader::begin(h);
    r.args();
    let at = h.value as u64;
    let size = r.section().map_or(0, |(size, ..)| size);
    let attached =
        is_error(h.value) || shm::attach_again(c, at, h.flags >> FILE_NUMBER_SHIFT, size);
    if !attached {
        cannot_map(ring::event_number());
    }
    apply(r);
    if !is_error(h.value) {
        shm::finish_attach(c, at, size);
    }
    h.value
}

/// The process is about to end with this wait status: nothing more comes of it.
pub fn ends(t: &mut Block, status: u32) {
    if !follows(t) {
        return;
    }
    if replays() {
        // The driver ends who has done all that was recorded: not this one, which ends by itself.
        busy::to_the_end(t);
        let h = expect(t, Kind::ProcessEnd, ProcessEnd::Told as u32, 0);
        super::take(h);
        return;
    }
    let pid = process::visible_pid() as u64;
    let how = ProcessEnd::Told as u32;
    events::plain(Kind::ProcessEnd, t.slot, how, status as i64, &[pid]);
}
