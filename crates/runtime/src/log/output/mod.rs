//! Replay shows what the program wrote to its standard output and error, by whatever call the bytes went there.
//!
//! Which descriptors these are is followed through dup, close, fork and exec ([`table`]). What can't be followed, the recording finds out:
//! descriptors that come from somewhere else (messages, other processes, files that are opened) are looked at when they come, and what
//! leads to the same file as an output is one, which the event says ([`Tag::Stream`]). Bytes that never passed through the program's memory
//! are caught on their way ([`moved`]), and are in the event, too ([`Tag::Sent`]).
//!
//! Both sides count: a recording by what descriptors lead to, a replay by what it has written again.

pub mod mapped;
pub mod moved;
pub mod table;

use crate::log::ring::Reader;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture;
use crate::memory::capture::{Call, Msghdr};
use crate::memory::opening::Opening;
use crate::thread::{current, session, Block, Current};
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::effect::{Effect, OpenFlags, Opened, Opening as Opens};
use reprise_abi::event::{section_len, Tag};
use reprise_abi::inputs::{moves, Reference, REFERENCE_LEN};
use reprise_abi::session::{MODE_RECORD, MODE_REPLAY};
use reprise_abi::spec::Mem;
use reprise_abi::syscalls::nr;
use table::{get, set, CLOSED_BY_EXEC, FOLLOWED};

/// Descriptors of one call that are said to be outputs; a message with more of them leaves the others unknown.
const MOST_ADOPTED: usize = 16;

/// What is known of a call's outputs beside what its arguments say, until its event is written or has been read.
#[derive(Default)]
pub struct Noted {
    /// Record: where the bytes are that the kernel moved to an output, and how many.
    moved: Cell<(u64, usize)>,
    /// Record: a reference to them instead, when it isn't zeros.
    referred: Cell<[u64; 4]>,
    /// Record: the output that the call wrote to, where a replay can't follow that.
    told: Cell<u64>,
    /// Record: how many bytes it wrote to which output.
    count: Cell<(u8, u64)>,
    /// Record: how many new descriptors are outputs, and which.
    adopted: Cell<usize>,
    list: Cell<[(u32, u8); MOST_ADOPTED]>,
    /// The last such descriptor, plus 1.
    latest: Cell<u64>,
    /// Replay: what the call wrote is shown already.
    shown: Cell<bool>,
}

impl Block {
    /// What is known of the outputs of the call that the thread makes.
    #[inline(always)]
    pub fn noted(&self) -> &'static Noted {
        noted(self.as_current())
    }
}

#[inline(always)]
fn noted(t: Current) -> &'static Noted {
    // SAFETY: the area is this room's own; filled when the block was made. Only the thread itself looks at it, and changes its cells.
    unsafe { &*t.noted().at::<Noted>() }
}

impl Noted {
    /// Does an event have to say more than the call's own outputs?
    pub fn is_empty(&self) -> bool {
        self.told.get() == 0 && self.adopted.get() == 0
    }

    /// Bytes of the sections that [`Noted::each`] tells of.
    pub fn sections_len(&self, c: &Call, result: i64) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut sum = 0;
        self.each(c, result, |_, _, _, len| sum += section_len(len));
        sum
    }

    /// Calls `f` with each section that the event of the call is to have: (tag, address, where its bytes are, how many).
    pub fn each(&self, c: &Call, result: i64, mut f: impl FnMut(Tag, u64, u64, usize)) {
        if self.is_empty() {
            return;
        }
        let stream = self.told.get();
        if stream != 0 && moves(c.nr) {
            match self.referred.as_ptr() {
                // SAFETY: the cell is the thread's own.
                words if unsafe { (*words)[0] } != 0 => {
                    f(Tag::SentReference, stream, words as u64, REFERENCE_LEN)
                }
                _ => {
                    let (at, len) = self.moved.get();
                    f(Tag::Sent, stream, at, len);
                }
            }
        } else if stream != 0 && result > 0 {
            each_written(c, result as u64, &mut |at, len| {
                f(Tag::Sent, stream, at, len as usize)
            });
        }
        for (fd, entry) in &self.list.get()[..self.adopted.get()] {
            f(Tag::Stream, *fd as u64 | (*entry as u64) << 32, 0, 0);
        }
    }

    /// What the call moved to an output is in a copy.
    pub fn refers(&self, reference: Option<Reference>) {
        self.moved.set((0, 0));
        self.referred.set(reference.map_or([0; 4], |r| r.words()));
    }

    /// The event is written: what it says counts now.
    pub fn is_logged(&self) {
        let (stream, bytes) = self.count.take();
        if stream != 0 {
            count(stream, bytes);
        }
        if !self.is_empty() {
            self.moved.take();
            self.referred.take();
            self.told.take();
            self.adopted.take();
        }
    }
}

/// At the start of the first program 1 and 2 are the output; a later one begins with what its process had open.
pub fn start(t: &mut Block, first: bool) {
    table::start(t, first);
    let s = session();
    if !first || s.mode != MODE_RECORD {
        return;
    }
    for (fd, words) in [1, 2].into_iter().zip(&s.outputs) {
        let place = crate::memory::identity::stat_of(fd).map_or([0; 3], |stat| place_of(&stat));
        for (to, word) in words.iter().zip(place) {
            to.store(word, Relaxed);
        }
    }
}

/// What a file is known by: device, inode, and the device that it is.
fn place_of(stat: &[u64; 18]) -> [u64; 3] {
    [stat[0], stat[1], stat[5]]
}

/// Record: the output that a file is, 0 when it is none. Where both outputs are one file it is the first.
///
/// The null device is none: everybody who opens it writes to the same file, and nobody reads that.
pub fn led_to(stat: &[u64; 18]) -> u8 {
    if reprise_abi::session::is_memory_device(stat[3], stat[5]) {
        return 0;
    }
    let place = place_of(stat);
    let is_same = |words: &[core::sync::atomic::AtomicU64; 3]| {
        words.iter().zip(place).all(|(w, p)| w.load(Relaxed) == p)
    };
    let found = session().outputs.iter().position(is_same);
    found.map_or(0, |i| i as u8 + 1)
}

/// The descriptor that a call writes to.
fn written(c: &Call) -> Option<u64> {
    c.effect.written().map(|fd| c.arg(fd))
}

/// The stream that a call writes to, 0 when it doesn't.
pub fn written_by(c: &Call) -> u8 {
    written(c).map_or(0, get)
}

/// Is this descriptor one of the program's output?
pub fn is_stream(fd: u64) -> bool {
    get(fd) != 0
}

/// Record: looks at a call that was made, before its event is written: what went to an output, and which new descriptors are outputs.
pub fn look(t: &Block, c: &Call, r: i64) {
    if sys::is_error(r) {
        return;
    }
    if let Some(fd) = written(c) {
        if r > 0 {
            note_written(t, c, fd, r as u64);
        }
        return;
    }
    match c.effect {
        Effect::OpensFile(_) => {
            let flags = Opening::of(c).and_then(|o| o.flags);
            if flags.is_some_and(is_for_writing) {
                note_new(t, r as u64);
            }
        }
        Effect::Opens(Opened::Foreign) => note_new(t, r as u64),
        Effect::Receives(_) => note_messages(t, c, r as u64),
        Effect::Unshares if c.args[0] & table::CLONE_FILES != 0 => table::apart(),
        Effect::ClosesRange(_, _, flags) if c.arg(flags) & CLOSE_RANGE_UNSHARE != 0 => {
            table::apart()
        }
        _ => {}
    }
}

/// As [`look`], of a call whose output is [held](super::held): it isn't written yet.
pub fn look_at_held(t: &Block, c: &Call, r: i64) {
    look(t, c, r);
    t.noted().count.take();
}

/// So many bytes that were held are written to this descriptor now.
pub fn is_written(fd: u64, bytes: u64) {
    let stream = mapped::output_behind(fd);
    if stream != 0 {
        count(stream, bytes);
    }
}

fn is_for_writing(flags: u64) -> bool {
    const O_ACCMODE: u64 = 3;
    const O_PATH: u64 = 0o10000000;
    flags & O_ACCMODE != 0 && flags & O_PATH == 0
}

#[inline]
fn note_written(t: &Block, c: &Call, fd: u64, result: u64) {
    let stream = mapped::output_behind(fd);
    if stream == 0 {
        return;
    }
    let bytes = match c.mem[1] {
        Mem::MmsghdrIn(_) => {
            let mut sum = 0;
            each_written(c, result, &mut |_, len| sum += len);
            sum
        }
        _ => result,
    };
    t.noted().count.set((stream, bytes));
    if moves(c.nr) || !table::is_followed(fd) {
        t.noted().told.set(stream as u64);
    }
}

/// The program has a new descriptor, and nobody knows of what.
fn note_new(t: &Block, fd: u64) {
    let stream = mapped::output_behind(fd);
    let n = t.noted().adopted.get();
    if stream == 0 || n == MOST_ADOPTED {
        return;
    }
    const F_GETFD: u64 = 1;
    let closed = sys::fcntl(fd, F_GETFD) & 1 != 0;
    let entry = stream | if closed { CLOSED_BY_EXEC } else { 0 };
    let mut list = t.noted().list.get();
    list[n] = (fd as u32, entry);
    t.noted().list.set(list);
    t.noted().adopted.set(n + 1);
    adopt(t.as_current(), fd, entry);
}

/// Descriptors that came with the call's messages, which are `result`, or one.
fn note_messages(t: &Block, c: &Call, result: u64) {
    match c.mem[1] {
        Mem::MsghdrOut => note_message(t, c.local[1]),
        Mem::MmsghdrOut(_) => {
            for k in 0..result {
                note_message(t, c.local[1] + k * capture::MMSG_SIZE);
            }
        }
        _ => {}
    }
}

/// Descriptors that came with a message.
fn note_message(t: &Block, message: u64) {
    const SOL_SOCKET: u32 = 1;
    const SCM_RIGHTS: u32 = 1;
    const HEAD: u64 = 16;
    let Some(m) = guard::read::<Msghdr>(message) else {
        return;
    };
    let (mut at, end) = (m.control, m.control.saturating_add(m.control_len));
    while m.control != 0 && at + HEAD <= end {
        let Some((len, level, kind)) = guard::read::<(u64, u32, u32)>(at) else {
            return;
        };
        if len < HEAD || len > end - at {
            return;
        }
        if level == SOL_SOCKET && kind == SCM_RIGHTS {
            for k in 0..(len - HEAD) / 4 {
                if let Some(fd) = guard::read::<u32>(at + HEAD + 4 * k) {
                    note_new(t, fd as u64);
                }
            }
        }
        at += len.next_multiple_of(8);
    }
}

/// A new descriptor is this output.
fn adopt(t: Current, fd: u64, entry: u8) {
    set(fd, entry);
    noted(t).latest.set(fd + 1);
}

/// Replay: a section of an event that tells of outputs; false when it is another one.
pub fn take_section(r: &mut Reader, address: u64, len: usize, tag: Tag) -> bool {
    match tag {
        Tag::Sent => {
            if shows_sent() {
                r.pieces(len, |at, n| show_sent(address, at, n));
            } else {
                r.skip(len.div_ceil(8) * 8);
            }
            true
        }
        Tag::Stream => {
            adopt(current(), address as u32 as u64, (address >> 32) as u8);
            r.skip(len.div_ceil(8) * 8);
            true
        }
        _ => false,
    }
}

/// Replay: what the event says was sent to an output is all that is shown of its call. Is it to be shown?
pub fn shows_sent() -> bool {
    noted(current()).shown.set(true);
    session().mode == MODE_REPLAY && is_shown()
}

/// Shows `len` bytes that were sent to `output`.
pub fn show_sent(output: u64, at: u64, len: u64) {
    let stream = output.clamp(1, 2);
    count(stream as u8, write_all(stream, at, len));
}

/// In a diversion: writes what a call writes, if that goes to the output; the number of bytes.
pub fn divert(c: &Call) -> Option<i64> {
    let stream = written_by(c);
    if stream == 0 {
        return None;
    }
    let bytes = match c.mem[1] {
        Mem::IovecIn(n) => (0..c.args[n as usize].min(1024))
            .filter_map(|k| guard::read::<[u64; 2]>(c.args[1] + k * 16))
            .map(|[_, len]| len)
            .sum(),
        _ => c.args[2],
    };
    emit(c, stream, bytes);
    Some(bytes as i64)
}

const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const CLOSE_RANGE_UNSHARE: u64 = 2;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// The mark of a descriptor that was made with these open(2) flags.
fn cloexec(flags: u64) -> u8 {
    const O_CLOEXEC: u64 = 0o2000000;
    if flags & O_CLOEXEC != 0 {
        CLOSED_BY_EXEC
    } else {
        0
    }
}

/// Looks at a call that was made: writes in a replay what it wrote, follows what it did to descriptors.
pub fn follow(c: &Call, result: i64) {
    let noted = noted(current());
    let shown = noted.shown.take();
    let latest = noted.latest.take();
    if sys::is_error(result) {
        return;
    }
    // What the recording has looked at is known better than by its name.
    let opened = |stream: u8| {
        if latest != result as u64 + 1 {
            set(result as u64, stream);
        }
    };
    let a = c.args;
    match c.effect {
        Effect::Duplicates(from) => set(result as u64, get(c.arg(from))),
        Effect::Replaces(r) => {
            let (from, onto) = (c.arg(r.from), c.arg(r.onto));
            if from as u32 != onto as u32 {
                set(onto, get(from) | r.flags.map_or(0, |n| cloexec(c.arg(n))));
            }
        }
        _ if c.nr == nr::FCNTL => match a[1] {
            F_DUPFD => set(result as u64, get(a[0])),
            F_DUPFD_CLOEXEC => set(result as u64, get(a[0]) | CLOSED_BY_EXEC),
            F_SETFD => set(
                a[0],
                get(a[0]) | if a[2] & 1 != 0 { CLOSED_BY_EXEC } else { 0 },
            ),
            _ => {}
        },
        Effect::Closes(fd) => set(c.arg(fd), 0),
        Effect::ClosesRange(..) => {
            if a[2] & CLOSE_RANGE_UNSHARE != 0 {
                table::unshare(current());
            }
            let closes = a[2] & CLOSE_RANGE_CLOEXEC == 0;
            for fd in a[0] as u32 as u64..=(a[1] as u32 as u64).min(FOLLOWED as u64 - 1) {
                set(fd, if closes { 0 } else { get(fd) | CLOSED_BY_EXEC });
            }
        }
        Effect::Unshares if a[0] & table::CLONE_FILES != 0 => table::unshare(current()),
        Effect::OpensFile(Opens {
            path: Some(path),
            flags: OpenFlags::In(flags),
            ..
        }) => opened(stream_of_path(c.arg(path)) | cloexec(c.arg(flags))),
        Effect::OpensFile(_) | Effect::Opens(Opened::Foreign) => opened(0),
        // Their result is no descriptor, and what they have told of is new.
        Effect::Opens(Opened::Pipe(_) | Opened::SocketPair(_)) => {}
        Effect::Opens(_) => set(result as u64, 0),
        _ => {
            // Bytes that the kernel moved are in the event, if they went to an output.
            if shown || session().mode != MODE_REPLAY || moves(c.nr) {
                return;
            }
            let stream = written_by(c);
            if stream != 0 && is_shown() && table::is_known(current()) {
                count(stream, emit(c, stream, result as u64));
            }
        }
    }
}

/// The stream that a path names, by one of the names that every Linux program can use for it.
fn stream_of_path(path: u64) -> u8 {
    const NAMES: [(&[u8], u64); 6] = [
        (b"/dev/stdout\0", 1),
        (b"/dev/stderr\0", 2),
        (b"/dev/fd/1\0", 1),
        (b"/dev/fd/2\0", 2),
        (b"/proc/self/fd/1\0", 1),
        (b"/proc/self/fd/2\0", 2),
    ];
    let mut b = [0u8; 16];
    NAMES
        .iter()
        .find(|(name, _)| {
            guard::read_bytes(path, &mut b[..name.len()]) && b[..name.len()] == **name
        })
        .map_or(0, |(_, fd)| get(*fd))
}

/// Is this process's output wanted?
pub fn is_shown() -> bool {
    match session().only {
        0 => true,
        birth => crate::thread::process::entry().birth.load(Relaxed) + 1 == birth,
    }
}

/// So many bytes went to an output.
#[inline]
pub fn count(stream: u8, bytes: u64) {
    if let Some(sum) = session()
        .output_bytes
        .get((stream as usize).wrapping_sub(1))
    {
        sum.fetch_add(bytes, Relaxed);
    }
}

/// Calls `f` with each stretch of the program's memory that a call wrote: the first `result` bytes, or messages.
pub(super) fn each_written(c: &Call, result: u64, f: &mut impl FnMut(u64, u64)) {
    let mut left = result;
    let mut put = |at: u64, len: u64| {
        let n = len.min(left);
        left -= n;
        if n > 0 {
            f(at, n);
        }
    };
    match c.mem[1] {
        Mem::IovecIn(n) => {
            capture::iovecs(c.args[1], c.args[n as usize], usize::MAX, &mut |at, n| {
                put(at, n as u64)
            })
        }
        Mem::MsghdrIn => message(c.args[1], &mut put),
        Mem::MmsghdrIn(_) => {
            for k in 0..result {
                let at = c.args[1] + k * capture::MMSG_SIZE;
                let mut left = guard::read::<u32>(at + capture::MMSG_LEN).unwrap_or(0) as u64;
                message(at, &mut |at, len| {
                    let n = len.min(left);
                    left -= n;
                    if n > 0 {
                        f(at, n);
                    }
                });
            }
        }
        _ => put(c.args[1], result),
    }
}

/// The data of a message.
fn message(at: u64, f: &mut impl FnMut(u64, u64)) {
    if let Some(m) = guard::read::<Msghdr>(at) {
        capture::iovecs(m.iov, m.iov_len, usize::MAX, &mut |at, n| f(at, n as u64));
    }
}

/// Writes to an output what a call wrote; how many bytes.
fn emit(c: &Call, stream: u8, result: u64) -> u64 {
    let mut sum = 0;
    each_written(c, result, &mut |at, n| {
        sum += write_all(stream as u64, at, n)
    });
    sum
}

/// Writes to one of the replay's own outputs; how many bytes could be written.
fn write_all(to: u64, mut at: u64, len: u64) -> u64 {
    let mut left = len;
    while left > 0 {
        let w = sys::write(to, at, left);
        if w == -4 || w == -11 {
            continue;
        }
        if w <= 0 {
            break;
        }
        at += w as u64;
        left -= w as u64;
    }
    len - left
}
