//! The short road of recording: calls with at most one plain buffer, made by the only thread, or never waiting.
//!
//! Most calls of most programs are of this kind (read, write, lseek, close, getpid). They need no scratch memory and no list of inputs and
//! outputs, so one look at their shape, one guarded access to the program's memory and one pass over the ring will do.
//! The events are byte for byte those of the long road ([`super::record`]), which takes over where anything is out of the ordinary.

use super::baton;
use crate::log::inputs::{self, Referred};
use crate::log::output;
use crate::log::output::mapped;
use crate::log::ring;
use crate::log::seeks;
use crate::machine::asm::rt_blocking;
use crate::machine::{guard, hash, sys};
use crate::memory::capture;
use crate::memory::capture::Call;
use crate::thread::{session, Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::effect::{Effect, Opened, Told};
use reprise_abi::event::{section_len, EventHeader, Kind, Tag, HEADER_LEN, SECTION_LEN};
use reprise_abi::spec::{Blocking, Mem, Replay, Size, Syscall, Width};
use reprise_abi::syscalls;

/// What the kernel does with the one buffer of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Buffer {
    None,
    /// It is read.
    In,
    /// As many bytes as the result says are written to it.
    Out,
}

/// What the short road needs to know of a call, packed so that it can be kept in an atomic word.
#[derive(Clone, Copy)]
struct Shape(u32);

const UNKNOWN: u32 = 0;
const LONG: u32 = 1;
const SHORT: u32 = 2;
const WAITS: u32 = 4;
/// It writes to a descriptor.
const WRITES: u32 = 8;
const BUFFER_SHIFT: u32 = 4;
const ARG_SHIFT: u32 = 8;
const LEN_SHIFT: u32 = 12;
const NARGS_SHIFT: u32 = 16;

/// Longer events take the long road, which waits for room piece by piece.
const LONGEST: usize = 64 << 10;

impl Shape {
    fn of(number: u64) -> Shape {
        static SHAPES: [AtomicU32; syscalls::LIMIT] =
            [const { AtomicU32::new(UNKNOWN) }; syscalls::LIMIT];
        let Some(shape) = SHAPES.get(number as usize) else {
            return Shape(LONG);
        };
        match shape.load(Relaxed) {
            UNKNOWN => {
                let found = syscalls::lookup(number)
                    .and_then(Shape::find)
                    .unwrap_or(LONG);
                shape.store(found, Relaxed);
                Shape(found)
            }
            known => Shape(known),
        }
    }

    /// The shape of a call that may take the short road.
    #[cold]
    fn find(d: &'static Syscall) -> Option<u32> {
        let number = d.nr as u64;
        // Answered or changed by the runtime before an engine sees them.
        let special = matches!(
            d.effect,
            Effect::Affinity
                | Effect::Tells(Told::Processor)
                | Effect::LocksAll
                | Effect::UnlocksAll
                | Effect::Segments
                | Effect::Opens(Opened::Foreign)
                | Effect::Unshares
                | Effect::Moves(_)
        ) || d.mask.is_some()
            || crate::gate::signals::sends_signal(number)
            || (mapped::concerns(number) && !d.writes_one_buffer());
        if special || d.replay != Replay::Emulate || !capture::is_plain(d) {
            return None;
        }
        let mut shape = SHORT | (d.args.len() as u32) << NARGS_SHIFT;
        if d.blocking != Blocking::Never {
            shape |= WAITS;
        }
        if d.writes_one_buffer() {
            shape |= WRITES;
        }
        for (i, a) in d.args.iter().enumerate() {
            let (buffer, len) = match a.mem {
                Mem::None => continue,
                Mem::In(Size::Arg(n)) => (Buffer::In, n),
                Mem::Out {
                    cap: Size::Arg(n),
                    used: Size::Result,
                } => (Buffer::Out, n),
                _ => return None,
            };
            let second = shape >> BUFFER_SHIFT & 3 != 0;
            if second || d.args[len as usize].width != Width::Full {
                return None;
            }
            shape |= (buffer as u32) << BUFFER_SHIFT
                | (i as u32) << ARG_SHIFT
                | (len as u32) << LEN_SHIFT;
        }
        Some(shape)
    }

    fn buffer(self) -> Buffer {
        match self.0 >> BUFFER_SHIFT & 3 {
            0 => Buffer::None,
            1 => Buffer::In,
            _ => Buffer::Out,
        }
    }

    fn arg(self) -> usize {
        (self.0 >> ARG_SHIFT & 7) as usize
    }

    fn len(self) -> usize {
        (self.0 >> LEN_SHIFT & 7) as usize
    }

    fn nargs(self) -> usize {
        (self.0 >> NARGS_SHIFT & 7) as usize
    }
}

/// A call made on the short road.
pub enum Made {
    /// Not at all: it is none for this road.
    Not,
    /// Made and logged.
    Logged(i64),
    /// Made; the long road judges and logs it.
    Unlogged(i64),
}

/// Makes the call at a gate and logs it, if that can be done in short.
#[inline]
pub fn call(t: &mut Block, frame: &Frame) -> Made {
    let number = frame.rax as u32 as u64;
    let shape = Shape::of(number);
    let s = session();
    if shape.0 & SHORT == 0 || s.forget_syscall != 0 || super::writes::are_tested() {
        return Made::Not;
    }
    if shape.0 & WAITS != 0 && !baton::alone() {
        return Made::Not;
    }
    let args = frame.args();
    if shape.buffer() == Buffer::Out && args[shape.len()] > capture::MAX_DIRECT {
        return Made::Not;
    }
    let referred = inputs::concerns(number, args[0], args[shape.len()]);
    if referred && !inputs::promise_known(t, number, &args) {
        return Made::Not;
    }
    let result = seeks::around(number, &args, || match shape.0 & WAITS {
        // SAFETY: the program's own call, with its own arguments.
        0 => unsafe { sys::syscall6(number, args) },
        // SAFETY: as above; the pending word belongs to the session.
        _ => unsafe { rt_blocking(number, &args, t.slot().signal_pending.as_ptr()) },
    });
    match referred {
        true => inputs::made(t, number, &args, result),
        false => inputs::count(number, args[0], result),
    }
    // Interrupted, not made, or a bad pointer: what that means is for the long road to say.
    // So is a write of which more is to be said than that, and a read that may have written more than it says.
    let written = match shape.0 & WRITES {
        0 => Some(0),
        _ => mapped::plain_output(frame.rdi),
    };
    if matches!(result, -4 | -512 | -14)
        || written.is_none()
        || (shape.buffer() == Buffer::Out
            && result > 0
            && (capture::zeroes_the_rest(
                number,
                args[0],
                args[shape.arg()],
                args[shape.len()],
                result,
            ) || capture::may_be_torn(
                args[shape.arg()],
                result as usize,
                args[shape.len()] as usize,
            )))
    {
        return Made::Unlogged(result);
    }
    let at = args[shape.arg()];
    let room = capture::buffer_len(args[shape.len()]);
    // What becomes a section, and how much of it; inputs are hashed as a whole.
    let (tag, shown) = match shape.buffer() {
        Buffer::In if at != 0 => (Tag::Input, capture::preview_len(number, room)),
        Buffer::Out if at != 0 && result > 0 => (Tag::Output, Some(room.min(result as usize))),
        _ => (Tag::Output, None),
    };
    // A reference takes the place of the bytes.
    let (tag, shown) = match referred && inputs::is_referred(t) {
        true => (Tag::Reference, Some(Referred::LEN)),
        false => (tag, shown),
    };
    let section = shown.map_or(0, section_len);
    let shown = shown.unwrap_or(0);
    let nargs = shape.nargs();
    let head = HEADER_LEN + 8 * nargs;
    let len = head + section;
    if len > LONGEST {
        return Made::Unlogged(result);
    }
    let Some(place) = ring::in_place(len) else {
        return Made::Unlogged(result);
    };
    let words = place as *mut u64;
    // SAFETY: `len` bytes of the ring from `place` on are ours to write, and `len` is a multiple of 8.
    unsafe {
        for (i, a) in args.iter().enumerate().take(nargs) {
            words.add(HEADER_LEN / 8 + i).write(*a);
        }
        if section != 0 {
            // Padding, where there is any.
            words.add(len / 8 - 1).write(0);
            words.add(head / 8).write(at);
            let tagged = shown as u64 | (tag as u64) << 32;
            words.add(head / 8 + 1).write(tagged);
        }
    }
    let mut input_hash = 0;
    if tag == Tag::Reference {
        let referred = Referred::of(t, result, result as usize);
        // (It holds: nobody else takes it back.)
        let reference = referred.map_or([0; 4], |mut it| it.next(at, result as usize));
        // SAFETY: the section has room for the words.
        unsafe { ((place + (head + SECTION_LEN) as u64) as *mut [u64; 4]).write(reference) };
    } else if shown > 0 || tag == Tag::Input {
        // SAFETY: the ring's side is ours, the program's is guarded.
        let done = guard::guarded(|| unsafe {
            if tag == Tag::Input {
                input_hash = hash::input(0, at, room);
            }
            guard::copy(place + (head + SECTION_LEN) as u64, at, shown);
        });
        if done.is_none() && tag == Tag::Input {
            input_hash = capture::FAULTED_INPUT;
        }
    }
    let header = EventHeader {
        len: len as u32,
        kind: Kind::Syscall as u8,
        nargs: nargs as u8,
        slot: t.slot as u16,
        detail: number as u32,
        value: result,
        input_hash,
        ..EventHeader::default()
    };
    // SAFETY: as above.
    unsafe { (words as *mut EventHeader).write(header) };
    ring::publish(len);
    if let Some(stream @ 1..) = written {
        output::count(stream, result.max(0) as u64);
    }
    Made::Logged(result)
}

/// The long road's view of a call that was begun on the short one.
pub fn long(frame: &Frame) -> Call {
    let number = frame.rax as u32 as u64;
    let args = frame.args();
    Call::new(number, args, syscalls::lookup(number))
}
