//! Record: reads of files whose bytes need not be logged, because the agent keeps a copy of the file ([`reprise_abi::inputs`]).
//!
//! Which files these are the agent says, when a descriptor has brought many bytes. From then on fstat(2) is asked before each read: who finds the row
//! of just this version of the file *promises* to refer to it, reads, and looks whether the descriptor's position tells where the bytes came from.
//! If not, or if the call did anything else than to fill the program's buffers from the file, the promise is taken back, and the bytes are logged.
//!
//! Where the agent has a lease that keeps everybody from changing the file while its row is open, a descriptor that was looked at once need not be looked at again
//! ([`crate::log::followed`]); and where nothing but reads moved its position, a read begins where the one before ended. What it comes to is compared after each.
//! (Of a read of 16 KiB from the page cache fstat(2) is a third, and each lseek(2) an eighth.)
//!
//! **Invariant:** whoever is about to open such a file for writing waits here first until all that was promised of it is kept. Others than the recorded programs
//! wait for the agent's lease; where there can be none, the hash in the event tells.

use crate::log::followed::{self, Followed, Looking};
use crate::log::seeks::{self, Since};
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::{self, Call};
use crate::memory::opening::Opening;
use crate::memory::{identity, input_rows, kept};
use crate::thread::{request, session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::effect::{Effect, Position};
use reprise_abi::inputs::{
    can_refer, input_state, inputs, RangeHash, Reference, REFERENCE_LEN, UNKNOWN_HASH,
};
use reprise_abi::session::{request as requests, MODE_RECORD};
use reprise_abi::spec::{Mem, Syscall};
use reprise_abi::syscalls::{self, nr};

/// Shorter reads are logged by their bytes: to refer to them costs as much.
const LEAST: u64 = 4096;

/// What a thread has promised; zeros: nothing.
#[derive(Clone, Copy, Default)]
pub struct Promise {
    /// The row plus 1.
    row: u32,
    /// The file's number in the trace.
    number: u32,
    /// Where the read begins, ...
    offset: u64,
    /// ... as the position says, if nobody has moved it since.
    since: Since,
    /// It is a read at the descriptor's position.
    by_position: bool,
    /// The read was made, and is as it should be.
    holds: bool,
}

impl Block {
    /// What the thread has promised of the read that it makes.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn promise(&self) -> &mut Promise {
        // SAFETY: the area is this room's own, and the thread the calling one; zeros are a promise of nothing.
        unsafe { self.reads.get::<Promise>() }
    }
}

/// May this read be one to refer to, as far as can be told at once? `asked`: the bytes that it wants.
#[inline]
pub fn concerns(number: u64, fd: u64, asked: u64) -> bool {
    asked >= LEAST
        && syscalls::lookup(number).is_some_and(Syscall::reads_one_buffer)
        && followed::get(fd).is_some_and(|it| it.is_due(asked))
        && inputs(session()).copies.load(Relaxed) == 0
}

/// A read of a descriptor was made, and is logged by its bytes.
#[inline]
pub fn count(number: u64, fd: u64, bytes: i64) {
    if bytes >= LEAST as i64 && can_refer(number) {
        if let Some(it) = followed::get(fd) {
            it.count(bytes);
        }
    }
}

/// A call is about to be made.
#[inline]
pub fn before(t: &Block, c: &Call) {
    match c.effect {
        Effect::Reads(..) => before_read(t, c),
        Effect::OpensFile(_) | Effect::TruncatesNamed(_) => before_change(c),
        _ => {}
    }
}

fn before_read(t: &Block, c: &Call) {
    take_back(t);
    let fd = c.args[0];
    let asked = match c.mem[1] {
        Mem::Out { .. } => c.args[2],
        _ => {
            let mut sum = 0u64;
            capture::iovecs(c.args[1], c.args[2], usize::MAX, &mut |_, len| {
                sum += len as u64
            });
            sum
        }
    };
    let s = session();
    if asked < LEAST || s.mode != MODE_RECORD || s.recording_lost.load(Relaxed) != 0 {
        return;
    }
    let due = followed::get(fd).filter(|it| it.is_due(asked));
    if let Some(followed) = due.filter(|_| inputs(s).copies.load(Relaxed) == 0) {
        promise(t, c, fd, followed);
    }
}

/// Promises to refer to what this read will bring, where all that has to be known of its descriptor is known.
#[inline]
pub fn promise_known(t: &Block, number: u64, args: &[u64; 6]) -> bool {
    take_back(t);
    let fd = args[0];
    let at = match syscalls::effect(number) {
        Effect::Reads(_, Position::Own) => None,
        Effect::Reads(_, Position::At(offset)) => Some(args[offset as usize]),
        _ => return false,
    };
    let lost = session().recording_lost.load(Relaxed) != 0;
    let Some(followed) = followed::get(fd).filter(|_| !lost) else {
        return false;
    };
    let since = Since::now();
    let offset = match at {
        None => followed.position(),
        Some(at) => Some(at).filter(|at| *at <= i64::MAX as u64),
    };
    let Some((offset, row)) = offset.and_then(|o| Some((o, known_row(t, followed)?))) else {
        return false;
    };
    *t.promise() = Promise {
        row: row as u32 + 1,
        number: inputs(session()).files[row].number.load(Relaxed),
        offset,
        since,
        by_position: at.is_none(),
        holds: false,
    };
    true
}

/// The row of a descriptor's file, where both are known, and nobody can change the file while the row is open: a reference to it is promised.
#[inline]
fn known_row(t: &Block, followed: &Followed) -> Option<usize> {
    let (row, number) = followed.file(t)?;
    let it = inputs(session()).files.get(row)?;
    input_rows::promise(it, |it| input_rows::is_leased(it, number)).then_some(row)
}

#[cold]
fn promise(t: &Block, c: &Call, fd: u64, followed: &Followed) {
    // What flags of preadv2(2) do is not looked into.
    if c.nr == nr::PREADV2 && c.args[5] as u32 != 0 {
        return;
    }
    let row = known_row(t, followed).or_else(|| {
        let looking = followed.look();
        let stat = stat_of_input(fd, followed)?;
        promise_version(fd, followed, looking, &stat)
    });
    let Some(row) = row else {
        return;
    };
    let it = &inputs(session()).files[row];
    let by_position = c.is_at_own_position();
    let since = Since::now();
    let offset = match by_position {
        true => followed.position().or_else(|| position(fd)),
        false => Some(c.args[3]).filter(|at| *at <= i64::MAX as u64),
    };
    let Some(offset) = offset else {
        input_rows::take_back(it);
        return;
    };
    *t.promise() = Promise {
        row: row as u32 + 1,
        number: it.number.load(Relaxed),
        offset,
        since,
        by_position,
        holds: false,
    };
}

fn stat_of_input(fd: u64, followed: &Followed) -> Option<[u64; 18]> {
    let stat = identity::stat_of(fd).filter(|stat| identity::identity(stat) != 0);
    if stat.is_none() {
        followed.never();
    }
    stat
}

/// Promises a reference to the file as it is now: its row.
fn promise_version(
    fd: u64,
    followed: &Followed,
    looking: Looking,
    stat: &[u64; 18],
) -> Option<usize> {
    let stamp = kept::stamp_of(stat);
    let row = find(&stamp, followed).or_else(|| {
        let is_worthwhile = followed.is_worthwhile(stat[kept::SIZE]);
        is_worthwhile.then(|| ask(fd, followed, &stamp)).flatten()
    })?;
    let it = &inputs(session()).files[row];
    let promised = input_rows::promise(it, |it| input_rows::is_open_version(it, &stamp));
    if promised {
        followed.found(looking, row, it.number.load(Relaxed));
    }
    promised.then_some(row)
}

/// A promise of what a call moves from a file to an output, past the program's memory (sendfile(2)).
pub struct Sent {
    row: usize,
    number: u64,
    source: u64,
    /// The descriptor's own position is where it begins.
    by_position: bool,
    offset: u64,
    since: Since,
}

impl Sent {
    /// Of `len` bytes that a call is about to move: where they begin, and whether that is the descriptor's own position. None where they are to be looked at.
    pub fn promise(
        source: u64,
        stat: &[u64; 18],
        (by_position, offset): (bool, u64),
        since: Since,
        len: u64,
    ) -> Option<Sent> {
        let s = session();
        let followed = followed::get(source)?;
        let looking = followed.look();
        let is_due = len >= LEAST && followed.is_due(len);
        if !is_due || inputs(s).copies.load(Relaxed) != 0 || s.recording_lost.load(Relaxed) != 0 {
            return None;
        }
        if identity::identity(stat) == 0 {
            followed.never();
            return None;
        }
        let row = promise_version(source, followed, looking, stat)?;
        Some(Sent {
            row,
            number: inputs(s).files[row].number.load(Relaxed).into(),
            source,
            by_position,
            offset,
            since,
        })
    }

    /// The call has returned `r`: the reference that its event is to have. The agent says what the bytes hash as.
    pub fn moved(self, r: i64) -> Option<Reference> {
        let end = self.offset.checked_add(r as u64);
        let is_told = || position(self.source) == end && self.since.is_quiet();
        let holds = r > 0 && (!self.by_position || is_told());
        if !holds {
            input_rows::take_back(&inputs(session()).files[self.row]);
            return None;
        }
        Some(Reference {
            number: self.number,
            offset: self.offset,
            len: r as u64,
            hash: UNKNOWN_HASH,
        })
    }
}

fn position(fd: u64) -> Option<u64> {
    const SEEK_CUR: u64 = 1;
    u64::try_from(sys::lseek(fd, 0, SEEK_CUR)).ok()
}

/// The row of this version of a file.
fn find(stamp: &kept::Stamp, followed: &Followed) -> Option<usize> {
    let is_it = |row: &usize| {
        let it = inputs(session()).files.get(*row);
        it.is_some_and(|it| input_rows::is_open_version(it, stamp))
    };
    let last = followed.last_row().filter(is_it);
    last.or_else(|| input_rows::find(stamp))
}

/// Asks the agent about a descriptor.
fn ask(fd: u64, followed: &Followed, stamp: &kept::Stamp) -> Option<usize> {
    const EINVAL: u32 = 22;
    let row = input_rows::ask(fd, stamp, false);
    match row {
        Err(EINVAL) => followed.never(),
        Err(_) => followed.not_now(),
        Ok(_) => {}
    }
    row.ok()
}

/// The call has returned `r`.
#[inline]
pub fn after(t: &Block, c: &Call, r: i64) {
    if t.promise().row != 0 {
        made(t, c.nr, &c.local, r);
    } else {
        count(c.nr, c.args[0], r);
    }
}

/// The read, by its number and local arguments, of which something was promised has returned `r`.
#[inline]
pub fn made(t: &Block, number: u64, args: &[u64; 6], r: i64) {
    let (it, fd) = (t.promise(), args[0]);
    let end = it.offset.checked_add(r as u64);
    // The position says where the bytes came from only if nobody else has moved it.
    let mut as_told = true;
    if it.by_position {
        let now = position(fd);
        as_told = now == end;
        if let (Some(followed), Some(now)) = (followed::get(fd), now) {
            // (What was not read moved nothing.)
            followed.moved_to(now, as_told || r < 0);
        }
    }
    it.holds = r >= LEAST as i64
        && as_told
        && (!it.by_position
            || it.since.is_quiet()
            || seeks::is_from(number, args, it.offset, r as u64));
    if !it.holds {
        take_back(t);
    }
}

/// Is the call that was made one to refer to?
#[inline]
pub fn is_referred(t: &Block) -> bool {
    t.promise().holds
}

/// A promise that isn't kept.
#[inline]
pub fn take_back(t: &Block) {
    let it = core::mem::take(t.promise());
    if let Some(row) = (it.row as usize).checked_sub(1) {
        input_rows::take_back(&inputs(session()).files[row]);
    }
}

/// What the event of a read is to say in the place of its bytes.
pub struct Referred {
    number: u64,
    offset: u64,
}

impl Referred {
    /// Bytes of each section.
    pub const LEN: usize = REFERENCE_LEN;

    /// Of the call that the thread has made, whose outputs are `bytes` in all; the promise counts as kept. None where bytes are to be logged.
    pub fn of(t: &Block, result: i64, bytes: usize) -> Option<Referred> {
        let it = *t.promise();
        if !it.holds || bytes as i64 != result {
            take_back(t);
            return None;
        }
        *t.promise() = Promise::default();
        Some(Referred {
            number: it.number as u64,
            offset: it.offset,
        })
    }

    /// The words for the next `len` bytes, which the program has at `local`.
    pub fn next(&mut self, local: u64, len: usize) -> [u64; 4] {
        let offset = self.offset;
        self.offset += len as u64;
        let sum = guard::guarded(|| {
            let mut h = RangeHash::new(offset);
            // SAFETY: guarded.
            unsafe { h.add(local, len) };
            h.finish()
        });
        Reference {
            number: self.number,
            offset,
            len: len as u64,
            // Somebody unmapped it meanwhile: nobody will see what was there.
            hash: sum.unwrap_or(UNKNOWN_HASH),
        }
        .words()
    }
}

/// A file may be opened for writing, or lose its content: what was read of it is kept first.
#[cold]
fn before_change(c: &Call) {
    const O_ACCMODE: u64 = 3;
    const O_TRUNC: u64 = 0o1000;
    const AT_FDCWD: u64 = -100i64 as u64;
    if inputs(session()).used.load(Acquire) == 0 || session().mode != MODE_RECORD {
        return;
    }
    let (dir, path, flags) = match (c.effect, Opening::of(c)) {
        (Effect::TruncatesNamed(path), _) => (AT_FDCWD, c.local[path as usize], O_TRUNC),
        (_, Some(o)) => match o.path {
            Some(path) => (o.dir, path, o.flags.unwrap_or(O_TRUNC)),
            None => return,
        },
        _ => return,
    };
    if flags & (O_ACCMODE | O_TRUNC) == 0 {
        return;
    }
    let mut stat = [0u64; 18];
    if sys::newfstatat(dir, path, stat.as_mut_ptr() as u64, 0) != 0 {
        return;
    }
    for (row, it) in input_rows::all().iter().enumerate() {
        let same = it.stamp[0].load(Relaxed) == stat[0] && it.stamp[1].load(Relaxed) == stat[1];
        if same && it.state.load(SeqCst) == input_state::OPEN {
            request::ask(requests::SETTLE, &[row as u64]);
        }
    }
}
