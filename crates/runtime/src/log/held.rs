//! Output that is held until its epoch is good (Respec 4.2): the program is told that all of it was written, and goes on; the copy that runs the epoch says what it was, and the program writes that when
//! the copy has come to the end.
//!
//! So what others see is what the recording has, whatever a race has come to in the program meanwhile. It lies behind the slices in the log of the epoch, which both have.

use super::epoch;
use super::output::each_written;
use crate::machine::guard;
use crate::memory::capture::{Call, Msghdr};
use core::cell::Cell;
use reprise_abi::effect::{Effect, Position};
use reprise_abi::layout::PAGE;
use reprise_abi::spec::Mem;

/// Bytes of one call that are held at most; more are written when the epochs before are good.
pub const MOST_OF_CALL: u64 = epoch::MOST_HELD / 16;

/// Where in its file output goes, or how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// To where the file's position is.
    Own,
    /// To this place.
    At(u64),
    /// Into a socket, with these flags of send(2).
    Sent(u64),
}

/// What a call writes where.
#[derive(Clone, Copy)]
pub struct Target {
    /// The descriptor.
    pub fd: u64,
    /// Where behind it.
    pub how: How,
    /// Bytes.
    pub len: u64,
}

/// What this call writes, if that can be held: bytes, to one descriptor, and nothing else.
pub fn target(c: &Call) -> Option<Target> {
    const MSG_DONTWAIT: u64 = 0x40;
    const MSG_NOSIGNAL: u64 = 0x4000;
    let (fd, how) = match c.effect {
        Effect::Writes(fd, Position::Own) => (fd, How::Own),
        Effect::Writes(fd, Position::At(at)) => (fd, How::At(c.arg(at))),
        // Without flags, of which each is a wish of its own.
        Effect::Writes(fd, Position::AtOrOwn(at)) if c.args[c.nargs - 1] == 0 => match c.arg(at) {
            u64::MAX => (fd, How::Own),
            at => (fd, How::At(at)),
        },
        Effect::Sends(fd) => (fd, How::Sent(flags_of_send(c)?)),
        _ => return None,
    };
    if let How::Sent(flags) = how {
        if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) != 0 {
            return None;
        }
    }
    let len = match c.mem[1] {
        Mem::In(_) => c.args[2],
        _ => sum(c),
    };
    (len <= MOST_OF_CALL).then_some(Target {
        fd: c.arg(fd),
        how,
        len,
    })
}

/// Bytes of all its parts.
fn sum(c: &Call) -> u64 {
    let len = Cell::new(0u64);
    each_written(c, u64::MAX, &mut |_, n| {
        len.set(len.get().saturating_add(n))
    });
    len.get()
}

/// Can all of it be read?
pub fn is_readable(c: &Call, target: &Target) -> bool {
    let good = Cell::new(true);
    each_written(c, target.len, &mut |at, n| {
        let (first, last) = (at & !(PAGE - 1), at.saturating_add(n - 1));
        let there = |page: u64| guard::read::<u8>(page.max(at)).is_some();
        good.set(good.get() && (first..=last).step_by(PAGE as usize).all(there));
    });
    good.get()
}

/// The flags of a call that sends one message to the socket's peer, without descriptors or anything else beside it.
fn flags_of_send(c: &Call) -> Option<u64> {
    match c.mem[1] {
        Mem::MsghdrIn => {
            let m = guard::read::<Msghdr>(c.args[1])?;
            (m.name == 0 && m.control_len == 0).then_some(c.args[2] as u32 as u64)
        }
        Mem::In(_) if c.nargs == 6 => (c.args[4] == 0).then_some(c.args[3] as u32 as u64),
        _ => None,
    }
}

/// Words before the bytes of a call: descriptor and how, offset or flags, length.
const HEAD: usize = 3;
const OWN: u64 = 0;
const AT: u64 = 1;
const SENT: u64 = 2;

/// Bytes that it takes to [put] this down.
pub fn room(target: &Target) -> u64 {
    8 * HEAD as u64 + target.len.next_multiple_of(8)
}

/// Puts down there what the call writes, and where; there is [room] for it. False: it can't be read.
pub fn put(at: u64, c: &Call, target: &Target) -> bool {
    put_head(at, target);
    let (to, good) = (Cell::new(at + 8 * HEAD as u64), Cell::new(true));
    each_written(c, target.len, &mut |from, n| {
        // SAFETY: as above; the program's side is guarded.
        let copied = guard::guarded(|| unsafe { guard::copy(to.get(), from, n as usize) });
        good.set(good.get() && copied.is_some());
        to.set(to.get() + n);
    });
    good.get()
}

fn put_head(at: u64, target: &Target) {
    let (how, word) = match target.how {
        How::Own => (OWN, 0),
        How::At(offset) => (AT, offset),
        How::Sent(flags) => (SENT, flags),
    };
    // SAFETY: room for it, which is the caller's.
    unsafe { *(at as *mut [u64; HEAD]) = [target.fd | how << 32, word, target.len] };
}

/// The copy has come to a call whose output is held: this is what is written when the epoch is good. False: it can't be kept.
pub fn keeps(c: &Call, target: &Target) -> bool {
    let room = room(target);
    let at = epoch::room_for_held(room);
    let kept = at.is_some_and(|at| put(at, c, target));
    if kept {
        epoch::is_held(room);
    }
    kept
}

/// Puts down there what is left to be written of a call, of which `done` bytes are; it may lie a little behind that. How much room it takes.
pub fn shift(at: u64, target: &Target, rest: &[u8], done: u64) -> u64 {
    let left = Target {
        how: match target.how {
            How::At(offset) => How::At(offset + done),
            how => how,
        },
        len: rest.len() as u64,
        ..*target
    };
    put_head(at, &left);
    // SAFETY: its room is where it was put down before, or in front of that.
    unsafe { core::ptr::copy(rest.as_ptr(), (at + 8 * HEAD as u64) as *mut u8, rest.len()) };
    room(&left)
}

/// Takes the first of what was kept out of `held`.
pub fn first<'a>(held: &mut &'a [u8]) -> Option<(Target, &'a [u8])> {
    let word = |n: usize| -> Option<u64> {
        let bytes = held.get(8 * n..8 * n + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (to, at, len) = (word(0)?, word(1)?, word(2)?);
    let how = match to >> 32 {
        OWN => How::Own,
        AT => How::At(at),
        _ => How::Sent(at),
    };
    let bytes = held.get(8 * HEAD..)?.get(..len as usize)?;
    let behind = 8 * HEAD + len.next_multiple_of(8) as usize;
    *held = held.get(behind..).unwrap_or_default();
    let fd = to & u64::from(u32::MAX);
    Some((Target { fd, how, len }, bytes))
}
