//! Output of a leader's threads is held until its epoch is good (Respec 4.2): the thread is told that all of it was written, and goes on ([`held`]). What is written then is what the copy has kept,
//! since that is what the recording has.
//!
//! **What is held** are bytes for a file, a pipe, a terminal or a network connection, where the program can be told the truth: it may write there, somebody reads, and no limit is near. Nothing is held for
//! what the program itself may read at once (a pipe of its own, a local socket): an epoch ends before such a call.
//!
//! **What sees it.** A call that could notice that output isn't there yet ends the epoch first ([`is_seen_by`]). So does the agent, after a while.
//!
//! **Writing** never waits while all stand, since one of those may be needed for somebody to read: what can't be written yet is left over, and its own writers wait ([`is_left_over`]).
//! An error is told to the program when it writes there again, or closes the descriptor ([`told_error`]).

mod place;
mod writing;

pub use writing::told_error;

use crate::log::epoch;
use crate::log::held::{self, How, Target};
use crate::log::output::{self, mapped};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::opening::Opening;
use crate::thread::session;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use place::{
    flags_of, is_connection, is_read, is_read_here, poll, writes_at_ease, Kind, Place, AT_FDCWD,
};
use reprise_abi::effect::Effect;
use reprise_abi::layout::{EPOCH_OUTPUT, EPOCH_OUTPUT_MAX};
use reprise_abi::spec::{Mem, Print, Speculation};
use reprise_abi::syscalls::{self, nr};
use writing::{has_error, writes};

/// What two epochs hold is kept here, as the program has written it, ...
const OWN: [u64; 2] = [EPOCH_OUTPUT, EPOCH_OUTPUT + epoch::MOST_HELD];
/// ... and what is left over here: what was written, and where, as [`held::put`] lays it out, in its order; ...
const LEFT: u64 = EPOCH_OUTPUT + 2 * epoch::MOST_HELD;
/// ... at most so many bytes.
const MOST_LEFT: u64 = EPOCH_OUTPUT_MAX - 2 * epoch::MOST_HELD;

/// Most different files to which output is held at a time; with more everything sees it.
const MOST_FILES: usize = 16;

/// Which of the two is the open epoch's.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// Bytes in each.
static HELD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Bytes that are left over.
static LEFT_LEN: AtomicU64 = AtomicU64::new(0);
/// There is memory for it all.
static IS_MAPPED: AtomicBool = AtomicBool::new(false);
/// Files to which output is held or left over ([`Place::key`]); 0: none.
static FILES: [AtomicU64; MOST_FILES] = [const { AtomicU64::new(0) }; MOST_FILES];
/// Kinds of them, a bit each; [`MANY`]: some of them aren't in the list.
static KINDS: AtomicU32 = AtomicU32::new(0);
const MANY: u32 = 1 << 31;
/// Somebody changes one of these.
static LOCK: AtomicBool = AtomicBool::new(false);

struct Locked;

fn lock() -> Locked {
    while LOCK.swap(true, Acquire) {
        sys::sched_yield();
    }
    Locked
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCK.store(false, Release);
    }
}

/// Is any output held, or left over?
#[inline(always)]
pub fn is_held() -> bool {
    session().epoch_holds.load(Relaxed) != 0
}

/// Is so much held in the open epoch that it is to end?
pub fn is_much() -> bool {
    held_in(false) > epoch::MOST_HELD / 2
}

fn which(before: bool) -> usize {
    OPEN.load(Relaxed) as usize ^ usize::from(before)
}

fn held_in(before: bool) -> u64 {
    HELD[which(before)].load(Relaxed)
}

/// What the call writes, if it can be held: where it writes to that is possible, nobody in the program can be waiting for it, and nothing would keep it from being written.
pub fn may_be_held(c: &Call) -> Option<Target> {
    let target = held::target(c)?;
    let fd = target.fd;
    if fd as u32 as u64 != fd || has_error(fd) || target.len == 0 {
        return None;
    }
    let place = Place::of(fd)?;
    let can = match (place.kind, target.how) {
        // Memory would have it at once.
        (Kind::File, How::Own | How::At(_)) => {
            writes_at_ease(fd, true) && mapped::number_of(fd) == 0
        }
        (Kind::Pipe | Kind::Device, How::Own) => writes_at_ease(fd, false) && is_read(fd),
        (Kind::Null, How::Own) => writes_at_ease(fd, false),
        (Kind::Socket, How::Own | How::Sent(_)) => is_connection(fd) && is_read(fd),
        _ => false,
    };
    let is_own = || place.kind == Kind::Pipe && is_read_here(place);
    (can && !is_own() && held::is_readable(c, &target)).then_some(target)
}

/// The thread is told that this was written.
pub fn holds(c: &Call, target: &Target) -> bool {
    let Some(place) = Place::of(target.fd) else {
        return false;
    };
    let _locked = lock();
    if !IS_MAPPED.load(Relaxed) {
        if !sys::map_own(EPOCH_OUTPUT, EPOCH_OUTPUT_MAX) {
            return false;
        }
        IS_MAPPED.store(true, Relaxed);
    }
    let (len, room) = (held_in(false), held::room(target));
    let at = OWN[which(false)] + len;
    let fits = len + room <= epoch::MOST_HELD;
    if !fits || !epoch::has_outlet(target.fd) || !held::put(at, c, target) {
        return false;
    }
    HELD[which(false)].store(len + room, Relaxed);
    place.note();
    let s = session();
    s.epoch_holds.store(1, Relaxed);
    s.outputs_held.fetch_add(1, Relaxed);
    true
}

/// Could this call notice that output which is held isn't there yet?
pub fn is_seen_by(c: &Call) -> bool {
    if !is_held() {
        return false;
    }
    if syscalls::speculation(c.nr) != Speculation::Asks || !asks(c) {
        return true;
    }
    let Some(row) = syscalls::lookup(c.nr) else {
        return true;
    };
    let is_fd = |n: usize| row.args[n].print == Print::Fd;
    (0..c.nargs).any(|n| match c.mem[n] {
        // Relative to the descriptor in front of it, if there is one.
        Mem::Path => {
            let dir = n.checked_sub(1).filter(|n| is_fd(*n));
            Place::named(dir.map_or(AT_FDCWD, |n| c.args[n]), c.args[n])
                .is_some_and(Place::is_written)
        }
        _ => is_fd(n) && Place::of(c.arg(n as u8)).is_some_and(Place::is_written),
    })
}

/// Of a call that may only ask: does it, as it is made here?
fn asks(c: &Call) -> bool {
    const O_CREAT: u64 = 0o100;
    const O_TRUNC: u64 = 0o1000;
    const TCGETS: u64 = 0x5401;
    const F_DUPFD_CLOEXEC: u64 = 1030;
    // F_DUPFD, F_GETFD, F_SETFD, F_GETFL and F_SETFL.
    const FLAGS: u64 = 4;
    match c.effect {
        Effect::OpensFile(_) => Opening::of(c)
            .and_then(|o| o.flags)
            .is_some_and(|flags| flags & (O_CREAT | O_TRUNC) == 0),
        Effect::Commands(_) if c.nr == nr::FCNTL => {
            c.args[1] <= FLAGS || c.args[1] == F_DUPFD_CLOEXEC
        }
        Effect::Commands(_) => c.args[1] == TCGETS,
        // Whether others can be read from or written to may depend on it.
        Effect::Polls => false,
        _ => true,
    }
}

/// In a child that fork(2) made: what is held is its parent's.
pub fn after_fork() {
    for word in [&HELD[0], &HELD[1], &LEFT_LEN] {
        word.store(0, Relaxed);
    }
    KINDS.store(0, Relaxed);
}

/// Another epoch begins; what is open is the one before then, if it `goes_on`.
pub fn begins(goes_on: bool) {
    if goes_on {
        OPEN.fetch_xor(1, Relaxed);
    }
    HELD[which(false)].store(0, Relaxed);
    notes_rest();
}

/// The open epoch is none any more, since the program goes back to its beginning; or the one `before` isn't, either.
pub fn forgets(before: bool) {
    HELD[which(false)].store(0, Relaxed);
    if before {
        HELD[which(true)].store(0, Relaxed);
    }
    notes_rest();
}

/// The open epoch, or the one `before`, is good, and is in the recording: what its copy has kept is written, as far as that is possible now. All stand.
pub fn releases(before: bool) {
    HELD[which(before)].store(0, Relaxed);
    leaves(epoch::held(before));
    pushes();
}

/// Nothing more is recorded: what the program has written itself is.
pub fn releases_own() {
    for before in [true, false] {
        let len = HELD[which(before)].swap(0, Relaxed);
        // SAFETY: put down there, and nobody writes there while all stand.
        leaves(unsafe {
            core::slice::from_raw_parts(OWN[which(before)] as *const u8, len as usize)
        });
    }
    writes_rest();
}

/// Puts it behind what is left over.
fn leaves(bytes: &[u8]) {
    if bytes.is_empty() {
        return notes_rest();
    }
    let mut all = bytes;
    while let Some((target, _)) = held::first(&mut all) {
        output::is_written(target.fd, target.len);
    }
    while LEFT_LEN.load(Relaxed) + bytes.len() as u64 > MOST_LEFT {
        // Nobody writes to a descriptor for which something is left over: two epochs' output at most has come here.
        writes_rest();
    }
    let locked = lock();
    let len = LEFT_LEN.load(Relaxed);
    // SAFETY: room for it; there is nobody else who holds the lock.
    let to = unsafe { core::slice::from_raw_parts_mut((LEFT + len) as *mut u8, bytes.len()) };
    to.copy_from_slice(bytes);
    LEFT_LEN.store(len + bytes.len() as u64, Relaxed);
    drop(locked);
    notes_rest();
}

/// Says whether anything is held or left over, and forgets to which files where nothing is.
fn notes_rest() {
    let words = [&HELD[0], &HELD[1], &LEFT_LEN];
    let rest = words.iter().any(|w| w.load(Relaxed) != 0);
    session().epoch_holds.store(rest.into(), Relaxed);
    if !rest {
        KINDS.store(0, Relaxed);
        FILES.iter().for_each(|f| f.store(0, Relaxed));
    }
}

/// Is anything left over, for this descriptor or any?
pub fn is_left_over(fd: Option<u64>) -> bool {
    if LEFT_LEN.load(Relaxed) == 0 {
        return false;
    }
    let _locked = lock();
    let mut all = left();
    while let Some((target, bytes)) = held::first(&mut all) {
        if !bytes.is_empty() && fd.is_none_or(|fd| fd == target.fd) {
            return true;
        }
    }
    false
}

/// What is left over. The caller has the lock.
fn left() -> &'static [u8] {
    // SAFETY: put down there.
    unsafe { core::slice::from_raw_parts(LEFT as *const u8, LEFT_LEN.load(Relaxed) as usize) }
}

/// Waits a moment for what is left over for this descriptor, or for any, to be written.
pub fn awaits_room(fd: Option<u64>) {
    const MOMENT_MS: u64 = 5;
    match fd {
        Some(fd) => {
            poll(fd, MOMENT_MS);
        }
        None => sys::nap(),
    }
}

/// Can the caller not wait until there is room?
pub fn is_impatient(c: &Call, fd: u64) -> bool {
    const O_NONBLOCK: u64 = 0o4000;
    c.is_told_not_to_wait() || flags_of(fd).is_some_and(|flags| flags & O_NONBLOCK != 0)
}

/// Writes what is left over, as far as nobody has to wait for that.
pub fn pushes() {
    if LEFT_LEN.load(Relaxed) == 0 {
        return;
    }
    let _locked = lock();
    let (mut all, mut rest) = (left(), 0);
    // Descriptors that take nothing more now; who has more of them has to wait.
    let mut full = [u64::MAX; MOST_FILES];
    let mut n = 0;
    while let Some((target, bytes)) = held::first(&mut all) {
        if bytes.is_empty() {
            continue;
        }
        let known = n == MOST_FILES || full[..n].contains(&target.fd);
        let done = if known { 0 } else { writes(&target, bytes) };
        if done == bytes.len() {
            continue;
        }
        if !known {
            full[n] = target.fd;
            n += 1;
        }
        rest += held::shift(LEFT + rest, &target, &bytes[done..], done as u64);
    }
    LEFT_LEN.store(rest, Relaxed);
    notes_rest();
}

/// As [`pushes`], to the end.
pub fn writes_rest() {
    pushes();
    while LEFT_LEN.load(Relaxed) != 0 {
        sys::nap();
        pushes();
    }
}
