//! Replay: what the program read of a file, from the copy that is in the trace ([`reprise_abi::inputs`]).
//!
//! The kernel reads the copy into the program's memory, as it did with the file itself; the hash in the event is compared with what came.

use crate::machine::guard;
use crate::machine::sys;
use crate::memory::files;
use crate::memory::scratch::Scratch;
use crate::signal::kernel;
use crate::thread::current;
use core::sync::atomic::{AtomicI32, Ordering::*};
use reprise_abi::inputs::{cut, RangeHash, Reference, PIECE, UNKNOWN_HASH};
use reprise_abi::syscalls::nr;

const EINTR: i64 = -4;

/// Files that stay open, by their numbers.
const KEPT_OPEN: usize = 128;
/// This process's descriptors plus 1 of the copies.
static OPEN: [AtomicI32; KEPT_OPEN] = [const { AtomicI32::new(0) }; KEPT_OPEN];

/// Writes what was read to `at`; false when the trace does not have it.
pub fn read(r: &Reference, at: u64) -> bool {
    let number = r.file();
    let kept = OPEN.get(number as usize);
    let known = kept.map_or(0, |k| k.load(Relaxed));
    // What is known may be a descriptor of the process that was frozen where the trace begins now: another file is here under its number, or none.
    let judges = r.hash != UNKNOWN_HASH && !r.is_inexact();
    if known != 0 && judges && copy(known as u64 - 1, r, at) {
        return true;
    }
    let Ok(fd) = u64::try_from(open(number)) else {
        return false;
    };
    let is_right = copy(fd, r, at);
    // Another thread may have opened it at the same time.
    let keeps = |k: &AtomicI32| {
        let mine = fd as i32 + 1;
        is_right && k.compare_exchange(known, mine, Relaxed, Relaxed).is_ok()
    };
    if !kept.is_some_and(keeps) {
        sys::close(fd);
    }
    is_right
}

/// Calls `f` with the parts of what was read, one after the other; false when the trace does not have it.
pub fn each_piece(r: &Reference, f: impl FnMut(u64, u64)) -> bool {
    let buffer =
        Scratch::large(current(), PIECE as usize).and_then(|mut s| s.take(PIECE as usize, 0));
    let Some(buffer) = buffer else {
        return false;
    };
    // The driver's signal would cut short what `f` writes.
    kernel::block_everything();
    let fd = u64::try_from(files::open_input(r.file()));
    let done = fd.is_ok_and(|fd| {
        let done = copy_pieces(fd, r, |_| buffer, f);
        sys::close(fd);
        done
    });
    kernel::block_all();
    done
}

fn open(number: u64) -> i64 {
    // The driver's signal would cut the call short.
    kernel::block_everything();
    let fd = files::open_input(number);
    kernel::block_all();
    fd
}

fn copy(fd: u64, r: &Reference, at: u64) -> bool {
    copy_pieces(fd, r, |offset| at + (offset - r.offset), |_, _| {})
}

/// Piece by piece, each to where `place` says, and then to `f`: what was just written is still in the processor's cache when it is hashed.
fn copy_pieces(
    fd: u64,
    r: &Reference,
    place: impl Fn(u64) -> u64,
    mut f: impl FnMut(u64, u64),
) -> bool {
    let mut hash = RangeHash::new(r.offset);
    for piece in cut(r.offset, r.offset + r.len, PIECE) {
        let (to, len) = (place(piece.start), piece.end - piece.start);
        let mut there = 0;
        while there < len {
            let args = [fd, to + there, len - there, piece.start + there];
            match sys::call(nr::PREAD64, &args) {
                n @ 1.. => there += n as u64,
                // By the driver's signal. (To block it for each read would cost a tenth of the read.)
                EINTR => {}
                _ if r.hash == UNKNOWN_HASH => return true,
                _ => return false,
            }
        }
        // SAFETY: guarded.
        if guard::guarded(|| unsafe { hash.add(to, len as usize) }).is_none() {
            return r.hash == UNKNOWN_HASH;
        }
        f(to, len);
    }
    r.hash == UNKNOWN_HASH || r.is_inexact() || hash.finish() == r.hash
}
