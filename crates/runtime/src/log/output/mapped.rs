//! Files that are written while they are mapped.
//!
//! What the program writes to a file by a system call shows in its mappings of the file. Replay makes no such call, so the
//! recording notes which of them wrote to a mapped file, and replay does the write again on its own copy of it
//! ([`crate::memory::files`]): from the program's memory where the bytes came from there, else by the file's content afterwards.

use crate::log::followed;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::by_reference::{is_in_parts, may_be_mapped};
use crate::memory::capture::Call;
use crate::memory::files;
use crate::memory::identity::{identity, stat_of};
use crate::memory::kept;
use crate::memory::of_file::Note;
use crate::memory::opening::Opening;
use crate::signal::kernel;
use crate::thread::session;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};
use reprise_abi::effect::Effect;
use reprise_abi::event::Tag;
use reprise_abi::spec::Mem;
use reprise_abi::syscalls::{self, nr};

const O_TRUNC: u64 = 0o1000;
const O_APPEND: i64 = 0o2000;
const RWF_APPEND: u64 = 0x10;
const SEEK_CUR: u64 = 1;
const F_GETFL: u64 = 3;
/// ioctl_ficlone(2): the whole content of another file becomes that of this one.
pub const FICLONE: u64 = 0x4004_9409;
/// The same of a part of it.
pub const FICLONERANGE: u64 = 0x4020_940d;

/// Descriptors whose file is remembered; for others the kernel is asked each time.
const REMEMBERED: usize = 4096;
/// Not known: the kernel is asked.
const UNKNOWN: u16 = 0;
/// Number 0: no file that was ever mapped.
const NEVER_MAPPED: u16 = 1;
/// The part of what is known that is the file's number plus one.
const NUMBER: u16 = (1 << OUTPUT_SHIFT) - 1;
/// Above it: the output that the file is.
const OUTPUT_SHIFT: u32 = 14;
const _: () = assert!(reprise_abi::session::MAX_SHARED_FILES < NUMBER as usize);
/// For each descriptor what is known of its file, or [`UNKNOWN`].
static FILE: [AtomicU16; REMEMBERED] = [const { AtomicU16::new(UNKNOWN) }; REMEMBERED];

/// How many files had numbers when this process last asked the kernel about descriptors.
static ASKED_AT: AtomicU32 = AtomicU32::new(0);

/// A file that has got its number meanwhile may be behind any descriptor.
fn forget_all_if_files_are_new() {
    let known = session().files_known.load(Relaxed);
    if ASKED_AT.load(Relaxed) != known {
        ASKED_AT.store(known, Relaxed);
        for f in &FILE {
            f.store(UNKNOWN, Relaxed);
        }
    }
}

/// Is there anything that [`look`] has to see of this call?
pub fn concerns(number: u64) -> bool {
    number == nr::IOCTL
        || matches!(
            syscalls::effect(number),
            Effect::Closes(_)
                | Effect::ClosesRange(..)
                | Effect::Replaces(_)
                | Effect::Writes(..)
                | Effect::Moves(_)
                | Effect::Truncates(_)
                | Effect::TruncatesNamed(_)
                | Effect::Allocates(_)
                | Effect::OpensFile(_)
        )
}

/// The number of a descriptor's file, 0 for one that was never mapped.
pub fn number_of(fd: u64) -> u32 {
    forget_all_if_files_are_new();
    ((known(fd) & NUMBER) - NEVER_MAPPED) as u32
}

/// The output that a descriptor leads to, 0 when it is none ([`super::led_to`]).
#[inline]
pub fn output_behind(fd: u64) -> u8 {
    (known(fd) >> OUTPUT_SHIFT) as u8
}

/// The same of a descriptor about which a write's event need say nothing: its file was never mapped, and a replay knows the output.
#[inline]
pub fn plain_output(fd: u64) -> Option<u8> {
    let known = known(fd);
    let stream = (known >> OUTPUT_SHIFT) as u8;
    let plain = known & NUMBER == NEVER_MAPPED && (stream == 0 || super::table::is_followed(fd));
    plain.then_some(stream)
}

/// What is known of a descriptor's file, by now.
#[inline]
fn known(fd: u64) -> u16 {
    forget_all_if_files_are_new();
    let kept = FILE
        .get(fd as u32 as usize)
        .filter(|_| super::table::is_one());
    match kept.map_or(UNKNOWN, |f| f.load(Relaxed)) {
        UNKNOWN => ask(fd, kept),
        n => n,
    }
}

#[cold]
fn ask(fd: u64, kept: Option<&AtomicU16>) -> u16 {
    let Some(stat) = stat_of(fd) else {
        return NEVER_MAPPED;
    };
    let number = match identity(&stat) {
        0 => 0,
        i => kept::known_file(i),
    };
    let found = (NEVER_MAPPED + number as u16) | ((super::led_to(&stat) as u16) << OUTPUT_SHIFT);
    if let Some(f) = kept {
        f.store(found, Relaxed);
    }
    found
}

fn forget(first: u64, last: u64) {
    followed::forget(first, last);
    let end = (last as u32 as usize).min(REMEMBERED - 1);
    for f in FILE.iter().take(end + 1).skip(first as u32 as usize) {
        f.store(UNKNOWN, Relaxed);
    }
}

/// How a call changed a file.
enum Change {
    /// It wrote from the program's memory.
    Bytes,
    /// It changed the length, or freed what was between.
    Shape,
    /// It wrote what came from elsewhere.
    Content,
}

/// Record: looks at a call that is over. `later`: others ran meanwhile, so the program's memory may hold other bytes by now.
#[inline]
pub fn look(c: &Call, r: i64, later: bool) -> Option<Note> {
    let a = &c.args;
    if let Some((first, last)) = c.closed() {
        forget(first, last);
        return None;
    }
    if matches!(c.effect, Effect::OpensFile(_)) && r >= 0 {
        // Whoever closed the one before may not have said so yet.
        followed::forget(r as u64, r as u64);
    }
    let (fd, change) = match c.effect {
        Effect::Writes(fd, _) if r > 0 => (c.arg(fd), Change::Bytes),
        Effect::Truncates(fd) if r == 0 => (c.arg(fd), Change::Shape),
        Effect::Allocates(fd) if r == 0 => (
            c.arg(fd),
            if is_memory_mode(a[1]) {
                Change::Shape
            } else {
                Change::Content
            },
        ),
        Effect::OpensFile(_) if r >= 0 && truncates(c) => (r as u64, Change::Shape),
        Effect::TruncatesNamed(path) if r == 0 => return look_at_path(c.local[path as usize]),
        Effect::Moves(m) if r > 0 && !m.leaves => (c.arg(m.to), Change::Content),
        _ if c.nr == nr::IOCTL && r == 0 && matches!(a[1], FICLONE | FICLONERANGE) => {
            (a[0], Change::Content)
        }
        _ => return None,
    };
    match number_of(fd) {
        0 => None,
        n => note(c, r, fd, n, change, later),
    }
}

/// Modes of fallocate(2) that files in memory know as well: allocating, with or without the length, and making holes.
fn is_memory_mode(mode: u64) -> bool {
    matches!(mode as u32, 0 | 1 | 3)
}

fn truncates(c: &Call) -> bool {
    Opening::of(c)
        .and_then(|o| o.flags)
        .is_some_and(|flags| flags & O_TRUNC != 0)
}

#[cold]
fn look_at_path(path: u64) -> Option<Note> {
    let mut stat = [0u64; 18];
    let r = sys::stat(path, stat.as_mut_ptr() as u64);
    let number = match identity(&stat) {
        i if r == 0 && i != 0 => kept::known_file(i),
        _ => 0,
    };
    may_be_mapped(number).then(|| Note::shape(number))
}

impl Note {
    fn shape(number: u32) -> Note {
        Note {
            number,
            tag: Tag::Offset,
            address: 0,
            hash: [0; 16],
        }
    }
}

#[cold]
fn note(c: &Call, r: i64, fd: u64, number: u32, change: Change, later: bool) -> Option<Note> {
    if !may_be_mapped(number) {
        return None;
    }
    let offset = match change {
        Change::Shape => return Some(Note::shape(number)),
        // A replay's copy of a file has to be whole before anything is written to it.
        Change::Bytes if !later && !is_in_parts(number) => offset_of(c, r, fd),
        _ => None,
    };
    Some(match offset {
        Some(address) => Note {
            address,
            ..Note::shape(number)
        },
        None => {
            let kept = kept::keep_changed(fd);
            Note {
                number,
                tag: Tag::File,
                address: kept.len,
                hash: kept.hash,
            }
        }
    })
}

/// Where in the file a write began.
fn offset_of(c: &Call, r: i64, fd: u64) -> Option<u64> {
    if c.nr == nr::PWRITEV2 && c.args[5] & RWF_APPEND != 0 {
        return None;
    }
    if c.is_at_own_position() {
        let end = sys::lseek(fd, 0, SEEK_CUR);
        return (end >= r).then(|| (end - r) as u64);
    }
    // On Linux, pwrite(2) appends to a file that was opened for appending, whatever the offset.
    if sys::fcntl(fd, F_GETFL) & O_APPEND != 0 {
        return None;
    }
    Some(c.args[3])
}

/// Replay: does again what the call did to the file. `hash` is the file's content afterwards, where the event says it.
pub fn redo(c: &Call, r: i64, number: u32, offset: u64, hash: Option<[u8; 16]>) {
    let Some(fd) = files::copy(number) else {
        return;
    };
    let a = &c.args;
    if let Some(hash) = hash {
        files::renew(number, fd, &hash);
        return;
    }
    match c.effect {
        Effect::TruncatesNamed(_) | Effect::Truncates(_) => {
            sys::ftruncate(fd, a[1]);
        }
        Effect::Allocates(_) => {
            // The driver's signal would cut it short.
            kernel::block_everything();
            sys::fallocate(fd, a[1], a[2], a[3]);
            kernel::block_all();
        }
        Effect::OpensFile(_) => {
            sys::ftruncate(fd, 0);
        }
        _ => write_again(c, r as u64, fd, offset),
    }
}

fn write_again(c: &Call, bytes: u64, fd: u64, offset: u64) {
    let (mut at, mut left) = (offset, bytes);
    let mut put = |mut from: u64, len: u64| {
        let mut n = len.min(left);
        left -= n;
        while n > 0 {
            let done = sys::pwrite64(fd, from, n, at);
            if done <= 0 {
                return;
            }
            (from, at, n) = (from + done as u64, at + done as u64, n - done as u64);
        }
    };
    match c.mem[1] {
        Mem::IovecIn(n) => {
            for k in 0..c.args[n as usize].min(1024) {
                if let Some([base, len]) = guard::read::<[u64; 2]>(c.args[1] + k * 16) {
                    put(base, len);
                }
            }
        }
        _ => put(c.args[1], bytes),
    }
}
