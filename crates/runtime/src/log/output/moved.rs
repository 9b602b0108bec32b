//! Record: bytes that the kernel moves to an output without their passing through the program's memory (sendfile(2), splice(2), tee(2),
//! copy_file_range(2)). They are looked at on their way, so that a replay can show them.
//!
//! First the source is looked at without taking anything: a file at its position, a pipe by tee(2), a socket by peeking. Then the program's
//! own call is made, for no more bytes than were seen; it has all the errors, waits and short results that it has natively. A file that the agent keeps a copy of
//! need not be looked at: the event refers to it ([`inputs`]). What says something else each time it is
//! read (/proc, /dev/urandom) is read once and written. What can't be looked at is moved unseen: the count of the bytes tells on it.

use super::led_to;
use crate::log::inputs::{self, Sent};
use crate::log::output::mapped::{FICLONE, FICLONERANGE};
use crate::log::seeks::Since;
use crate::machine::asm::rt_blocking;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::identity::stat_of;
use crate::memory::scratch::Scratch;
use crate::thread::{current, session};
use reprise_abi::effect::{Effect, Movement};
use reprise_abi::inputs::moves;
use reprise_abi::session::MODE_RECORD;
use reprise_abi::syscalls::nr;

/// Most bytes that one call moves; the program sees a short result.
const MOST: u64 = 64 << 20;
/// Most of what has no length, and of pipes and sockets.
const PIECE: u64 = 64 << 10;
/// As much as a pipe takes that takes anything at all.
const PIPE_BUF: u64 = 4096;

const SPLICE_F_NONBLOCK: u64 = 2;
const SPLICE_FLAGS: u64 = 15;
const O_ACCMODE: i64 = 3;
const O_RDONLY: i64 = 0;
const O_WRONLY: i64 = 1;
const O_NONBLOCK: i64 = 0o4000;
const O_APPEND: i64 = 0o2000;
const O_CLOEXEC: u64 = 0o2000000;
const F_GETFL: u64 = 3;
const SEEK_CUR: u64 = 1;
const EAGAIN: i64 = -11;

const S_IFMT: u64 = 0o170000;
const S_IFIFO: u64 = 0o010000;
const S_IFCHR: u64 = 0o020000;
const S_IFREG: u64 = 0o100000;
const S_IFSOCK: u64 = 0o140000;

/// Such a call.
struct Move<'a> {
    c: &'a Call,
    moves: Movement,
    source: u64,
    /// Where the offset in the source is, 0: it is the descriptor's own.
    offset: u64,
    out: u64,
    /// Is there an offset of the output's?
    out_offset: bool,
    flags: u64,
}

impl<'a> Move<'a> {
    fn of(c: &'a Call) -> Option<Move<'a>> {
        let Effect::Moves(moves) = c.effect else {
            return None;
        };
        let a = |n: u8| c.local[n as usize];
        Some(Move {
            c,
            moves,
            source: a(moves.from),
            offset: moves.from_offset.map_or(0, a),
            out: a(moves.to),
            out_offset: moves.to_offset.is_some_and(|n| a(n) != 0),
            flags: moves.flags.map_or(0, a),
        })
    }

    /// Does the call wait for something to come, and fail at once for no other reason? The modes are those of the source and the output.
    fn waits(&self, source: u64, out: u64) -> bool {
        let to_pipe = out & S_IFMT == S_IFIFO;
        let can_wait = match (source & S_IFMT, self.moves.leaves) {
            _ if !self.takes_pipes() => false,
            (S_IFIFO, false) => true,
            (S_IFIFO, true) | (S_IFSOCK, false) => to_pipe,
            _ => false,
        };
        let is_at_once = self.offset != 0
            || self.out_offset
            || self.wanted() == 0
            || self.flags & SPLICE_F_NONBLOCK != 0
            || self.flags & !SPLICE_FLAGS != 0;
        let flags = |fd: u64| sys::fcntl(fd, F_GETFL);
        let is_readable = |flags: i64| flags & O_ACCMODE != O_WRONLY && flags & O_NONBLOCK == 0;
        can_wait
            && !is_at_once
            && is_readable(flags(self.source))
            && flags(self.out) & O_ACCMODE != O_RDONLY
    }

    /// The program's call, for `len` bytes.
    fn perform(&self, len: u64) -> i64 {
        let mut args = self.c.local;
        args[self.moves.len as usize] = len;
        blocking(self.c.nr, &args)
    }

    fn wanted(&self) -> u64 {
        self.c.local[self.moves.len as usize]
    }

    /// Is it copy_file_range(2), for which both are files?
    fn is_between_files(&self) -> bool {
        self.moves.to_offset.is_some() && !self.takes_pipes()
    }

    /// Is it one of the calls for pipes, splice(2) and tee(2)?
    fn takes_pipes(&self) -> bool {
        self.moves.flags.is_some()
    }

    fn unseen(&self) -> i64 {
        note(0, 0);
        self.perform(self.wanted())
    }

    /// From what has a position.
    fn of_file(&self, stat: &[u64; 18]) -> i64 {
        let since = Since::now();
        let position = match self.offset {
            0 => sys::lseek(self.source, 0, SEEK_CUR),
            at => guard::read::<i64>(at).unwrap_or(-1),
        };
        // st_size
        let is_stable = stat[3] & S_IFMT == S_IFREG && stat[6] > 0;
        let there = match is_stable {
            true => stat[6].saturating_sub(position as u64).min(MOST),
            false => PIECE,
        };
        let want = self.wanted().min(there);
        if position < 0 || want == 0 {
            return self.unseen();
        }
        if is_stable {
            let at = (self.offset == 0, position as u64);
            if let Some(sent) = Sent::promise(self.source, stat, at, since, want) {
                let r = self.perform(want);
                super::noted(current()).refers(sent.moved(r));
                return r;
            }
        }
        let Some(buffer) = buffer(want) else {
            return self.unseen();
        };
        let n = sys::pread64(self.source, buffer, want, position as u64);
        if n <= 0 {
            return self.unseen();
        }
        if is_stable || self.out_offset || self.is_between_files() {
            let r = noted(self.perform(n as u64), buffer);
            inputs::count(self.c.nr, self.source, r);
            return r;
        }
        self.write(buffer, n as u64, position)
    }

    /// Writes what was read, which can't be read again; only as much of it is taken from the source as was written.
    fn write(&self, buffer: u64, n: u64, position: i64) -> i64 {
        if sys::fcntl(self.out, F_GETFL) & O_APPEND != 0 {
            // The kernel has a word to say to that.
            return self.unseen();
        }
        let mut n = n;
        if self.flags & SPLICE_F_NONBLOCK != 0 {
            if !is_ready(self.out, POLLOUT) {
                return EAGAIN;
            }
            n = n.min(PIPE_BUF);
        }
        let r = blocking(nr::WRITE, &[self.out, buffer, n, 0, 0, 0]);
        if r > 0 {
            match self.offset {
                0 => {
                    sys::lseek(self.source, r as u64, SEEK_CUR);
                }
                at => {
                    guard::write(at, &(position + r));
                }
            }
        }
        noted(r, buffer)
    }

    fn of_pipe(&self) -> i64 {
        let want = self.wanted().min(PIECE);
        let Some(buffer) = buffer(want) else {
            return self.unseen();
        };
        match peek_pipe(self.source, buffer, want) {
            n if n > 0 => noted(self.perform(n as u64), buffer),
            _ => self.unseen(),
        }
    }

    fn of_socket(&self) -> i64 {
        const MSG_PEEK: u64 = 2;
        const MSG_DONTWAIT: u64 = 0x40;
        let want = self.wanted().min(PIECE);
        let Some(buffer) = buffer(want) else {
            return self.unseen();
        };
        let n = sys::recvfrom(self.source, buffer, want, MSG_PEEK | MSG_DONTWAIT, 0, 0);
        match n {
            n if n > 0 => noted(self.perform(n as u64), buffer),
            _ => self.unseen(),
        }
    }
}

/// Makes a call that moves bytes to an output; `None` when this is none.
#[inline]
pub fn make(c: &Call) -> Option<i64> {
    match session().mode == MODE_RECORD {
        true if moves(c.nr) => make_move(c),
        true if c.nr == nr::IOCTL && matches!(c.args[1], FICLONE | FICLONERANGE) => {
            refuse_clone(c.args[0])
        }
        _ => None,
    }
}

/// The extents of another file become an output's (ioctl_ficlone(2)): as many bytes as that has, which nobody has seen. The program is told that this file
/// system can't do that, as most can't, and copies.
#[cold]
fn refuse_clone(output: u64) -> Option<i64> {
    const EOPNOTSUPP: i64 = -95;
    (led_to(&stat_of(output)?) != 0).then_some(EOPNOTSUPP)
}

#[cold]
fn make_move(c: &Call) -> Option<i64> {
    if let Some(r) = await_source(c) {
        return Some(r);
    }
    let m = Move::of(c)?;
    if led_to(&stat_of(m.out)?) == 0 {
        return None;
    }
    let stat = stat_of(m.source)?;
    Some(match stat[3] & S_IFMT {
        S_IFIFO if m.takes_pipes() => m.of_pipe(),
        S_IFSOCK if m.takes_pipes() && !m.moves.leaves => m.of_socket(),
        S_IFREG | S_IFCHR if !m.moves.leaves => m.of_file(&stat),
        _ => m.unseen(),
    })
}

/// Waits until a call that moves bytes to an output finds something to move, as it would itself. What it ends with, if that is by a signal.
pub fn await_source(c: &Call) -> Option<i64> {
    let m = Move::of(c)?;
    let out = stat_of(m.out)?;
    if led_to(&out) == 0 || !m.waits(stat_of(m.source)?[3], out[3]) {
        return None;
    }
    let mut fds = pollfd(m.source, POLLIN);
    let at = fds.as_mut_ptr() as u64;
    let r = blocking(nr::POLL, &[at, 1, u64::MAX, 0, 0, 0]);
    (r < 0).then_some(r)
}

const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;

/// A `struct pollfd`.
fn pollfd(fd: u64, events: u32) -> [u32; 2] {
    [fd as u32, events]
}

fn is_ready(fd: u64, events: u32) -> bool {
    let mut fds = pollfd(fd, events);
    sys::poll(fds.as_mut_ptr() as u64, 1, 0) == 1
}

fn blocking(number: u64, args: &[u64; 6]) -> i64 {
    let pending = current().slot().signal_pending.as_ptr();
    // SAFETY: the program's own call, or one with memory of ours; the pending word belongs to the session.
    unsafe { rt_blocking(number, args, pending) }
}

/// Memory for bytes on their way. The small arguments of the call may lie in what every thread has.
fn buffer(len: u64) -> Option<u64> {
    let mut scratch = Scratch::large(current(), len as usize)?;
    scratch.take(len as usize, 0)
}

/// What was moved, if anything was, was this.
fn noted(r: i64, buffer: u64) -> i64 {
    if r > 0 {
        note(buffer, r as usize);
    }
    r
}

fn note(buffer: u64, len: usize) {
    super::noted(current()).moved.set((buffer, len));
}

/// Copies what a pipe holds without taking it: through a pipe of ours, which is gone at once. How many bytes, or an error.
fn peek_pipe(source: u64, buffer: u64, want: u64) -> i64 {
    let mut pair = [0u32; 2];
    let made = sys::pipe2(pair.as_mut_ptr() as u64, O_CLOEXEC | O_NONBLOCK as u64);
    if made < 0 {
        return made;
    }
    let [from, to] = pair.map(u64::from);
    let mut n = sys::tee(source, to, want, SPLICE_F_NONBLOCK);
    let mut done = 0;
    while done < n {
        let r = sys::read(from, buffer + done as u64, (n - done) as u64);
        if r <= 0 {
            n = done;
            break;
        }
        done += r;
    }
    sys::close(from);
    sys::close(to);
    n
}
