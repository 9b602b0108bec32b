//! Replay: what the program read of a file, from the copy that is in the trace ([`reprise_abi::inputs`]).
//!
//! The kernel reads the copy into the program's memory, as it did with the file itself; the hash in the event is compared with what came.

use crate::machine::guard;
use crate::machine::sys;
use crate::memory::files;
use crate::signal::kernel;
use core::sync::atomic::{AtomicI32, Ordering::*};
use reprise_abi::inputs::{PieceHash, Reference, PIECE, UNKNOWN_HASH};
use reprise_abi::syscalls::nr;

/// Files that stay open, by their numbers.
const KEPT_OPEN: usize = 128;
/// This process's descriptors plus 1 of the copies.
static OPEN: [AtomicI32; KEPT_OPEN] = [const { AtomicI32::new(0) }; KEPT_OPEN];

/// Writes what was read to `at`; false when the trace does not have it.
pub fn read(r: &Reference, at: u64) -> bool {
    // The driver's signal would cut these calls short.
    kernel::block_everything();
    let done = read_undisturbed(r, at);
    kernel::block_all();
    done
}

fn read_undisturbed(r: &Reference, at: u64) -> bool {
    let number = r.file();
    let kept = OPEN.get(number as usize);
    let known = kept.map_or(0, |k| k.load(Relaxed));
    // What is known may be a descriptor of the process that was frozen where the trace begins now: another file is here under its number, or none.
    let judges = r.hash != UNKNOWN_HASH && !r.is_inexact();
    if known != 0 && judges && copy(known as u64 - 1, r, at) {
        return true;
    }
    let Ok(fd) = u64::try_from(files::open_input(number)) else {
        return false;
    };
    let is_right = copy(fd, r, at);
    // Another thread may have opened it at the same time.
    let keeps = |k: &AtomicI32| {
        let mine = fd as i32 + 1;
        is_right && k.compare_exchange(known, mine, Relaxed, Relaxed).is_ok()
    };
    if !kept.is_some_and(keeps) {
        sys::call(nr::CLOSE, &[fd]);
    }
    is_right
}

/// Piece by piece: what was just written is still in the processor's cache when it is hashed.
fn copy(fd: u64, r: &Reference, at: u64) -> bool {
    let (mut hash, mut done) = (PieceHash::new(), 0);
    while done < r.len {
        let piece = (r.len - done).min(PIECE as u64);
        let mut there = 0;
        while there < piece {
            let to = [
                fd,
                at + done + there,
                piece - there,
                r.offset + done + there,
            ];
            match sys::call(nr::PREAD64, &to) {
                n @ 1.. => there += n as u64,
                _ if r.hash == UNKNOWN_HASH => return true,
                _ => return false,
            }
        }
        // SAFETY: guarded.
        if guard::guarded(|| unsafe { hash.add(at + done, piece as usize) }).is_none() {
            return r.hash == UNKNOWN_HASH;
        }
        done += piece;
    }
    r.hash == UNKNOWN_HASH || r.is_inexact() || hash.finish() == r.hash
}
