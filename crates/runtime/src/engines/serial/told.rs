//! What a copy writes that runs an epoch again ([`super::follow`]): its slices, in the words of a recording with hooks ([`super::hooked`]), so that a replay needs
//! nothing else of the epoch (DoublePlay 5.2.3).
//!
//! Who waits has said so before: by the beginning of its call, or by a yield; and says it when it goes on, before it does anything else. What happens in between is other threads'.
//! A wait for the turn of an operation is a yield at a [point](super::hooked).

use crate::engine::waits::Wait;
use crate::gate::copy;
use crate::log::epoch;
use crate::log::events::{self, header};
use crate::log::ring::Writer;
use crate::memory::capture::Call;
use crate::thread::{Block, Frame};
use reprise_abi::event::{
    section_len, Event, EventHeader, Instruction, Kind, ENDS_AT_FAULT, ENDS_IN_CODE,
    ENDS_UNDER_MASK, FLAG_HELD, YIELD_AT_EPOCH_END, YIELD_AT_FAULT, YIELD_FOR_TURN,
};
use reprise_abi::syscalls::nr;

const EINTR: i64 = -4;
const ETIMEDOUT: i64 = -110;

/// An event without sections.
pub fn plain(t: &Block, kind: Kind, detail: u32, value: i64, args: &[u64]) {
    if copy::writes_slices() {
        events::plain(kind, t.slot, detail, value, args);
    }
}

/// The thread waits for its turn at this point in a hooked function.
pub fn gives_way(t: &Block, point: i64) {
    plain(t, Kind::Yield, YIELD_FOR_TURN, point, &[]);
}

/// It waits where it faults.
pub fn gives_way_at_fault(t: &Block) {
    plain(t, Kind::Yield, YIELD_AT_FAULT, 0, &[]);
}

/// It waits at the end of a gate.
pub fn gives_way_at_gate(t: &Block) {
    plain(t, Kind::Yield, 0, 0, &[]);
}

/// It goes on after either, or at the epoch's begin.
pub fn goes_on(t: &Block) {
    plain(t, Kind::Resume, 0, 0, &[]);
}

/// An operation is told something that memory doesn't say.
pub fn answers(t: &Block, point: i64, answer: u64) {
    let which = Instruction::HookAnswered as u32;
    plain(t, Kind::Instruction, which, point, &[answer]);
}

/// An instruction has brought what the event says.
pub fn instruction(t: &Block, which: Instruction, e: &Event) {
    plain(
        t,
        Kind::Instruction,
        which as u32,
        e.header.value,
        &[e.arg(0)],
    );
}

/// A hooked function has ended where the thread is to rest.
pub fn hook_ended(t: &Block, frame: &Frame) {
    let which = Instruction::HookEnded as u32;
    let calls = t.cut().hooks.calls();
    plain(t, Kind::Instruction, which, calls, &[frame.rip]);
}

/// The thread has come to the epoch's end.
pub fn ends(t: &Block) {
    plain(t, Kind::Yield, YIELD_AT_EPOCH_END, t.deferred.into(), &[]);
    are_so_far();
}

/// As [`ends`], at the end of a call whose signal mask is still in force.
pub fn ends_under_mask(t: &Block) {
    plain(t, Kind::Yield, YIELD_AT_EPOCH_END, ENDS_UNDER_MASK, &[]);
    are_so_far();
}

/// As [`ends`], in the middle of the program's code.
pub fn ends_in_code(t: &Block, where_it_faults: bool) {
    let how = match where_it_faults {
        true => ENDS_AT_FAULT,
        false => ENDS_IN_CODE,
    };
    plain(t, Kind::Yield, YIELD_AT_EPOCH_END, how, &[]);
    are_so_far();
}

/// The thread begins.
pub fn starts(t: &Block, e: &Event) {
    plain(t, Kind::ThreadStart, e.header.detail, e.header.value, &[]);
}

/// It ends.
pub fn exits(t: &Block, e: &Event) {
    plain(t, Kind::ThreadExit, e.header.detail, e.header.value, &[]);
    are_so_far();
}

/// All slices may be there.
fn are_so_far() {
    if copy::writes_slices() {
        epoch::slices_end();
    }
}

/// A call begins that waits, of the program's or in a hooked function.
pub fn enters(t: &Block, c: &Call, hash: u64) {
    if copy::writes_slices() {
        let h = EventHeader {
            detail: c.nr as u32,
            input_hash: hash,
            ..header(Kind::Enter, t.slot, c.nargs, 0)
        };
        let mut w = Writer::begin(&h);
        w.put_words(&c.args[..c.nargs]);
        w.finish();
    }
}

/// A signal ends a wait, and nobody knows which.
pub const SOME_SIGNAL: u32 = 64;

/// A wait in a hooked function is over, by a handler's `signal` if that isn't 0.
pub fn wakes(t: &mut Block, how: Wait, signal: u32) -> Wait {
    t.cut().hooks.signal = signal;
    let result = match how {
        Wait::TimedOut => ETIMEDOUT,
        Wait::Signal => EINTR,
        Wait::Woken | Wait::Changed => 0,
    };
    plain(
        t,
        Kind::Exit,
        nr::FUTEX as u32,
        result,
        &[u64::from(signal)],
    );
    how
}

/// A call is over whose beginning was written, with this result and nothing else.
pub fn ends_call(t: &Block, c: &Call, result: i64) {
    plain(t, Kind::Exit, c.nr as u32, result, &[]);
}

/// A call of the program's is over, with what the leader's event says; `entered`: its beginning was written.
pub fn call(t: &Block, c: &Call, e: &Event, entered: bool) {
    if !copy::writes_slices() {
        return;
    }
    let (kind, args) = match entered {
        true => (Kind::Exit, &[][..]),
        false => (Kind::Syscall, &c.args[..c.nargs]),
    };
    let sections = e.sections().map(|s| section_len(s.bytes.len())).sum();
    let h = EventHeader {
        detail: c.nr as u32,
        flags: e.header.flags & !FLAG_HELD,
        value: e.header.value,
        input_hash: e.header.input_hash,
        ..header(kind, t.slot, args.len(), sections)
    };
    let mut w = Writer::begin(&h);
    w.put_words(args);
    for s in e.sections() {
        w.put_section(
            s.tag as u32,
            s.address,
            s.bytes.as_ptr() as u64,
            s.bytes.len(),
        );
    }
    w.finish();
}
