//! What a process that was killed left in shared memory.
//!
//! A process that is killed in the middle of its code (SIGKILL, a signal that nothing handles) has written to shared memory since
//! its last gate, and no event tells how far it came. So every other process, when it holds the baton for the first time after such
//! a death, logs what its shared memory holds, and replay puts that there. Between the death and that moment only processes have run
//! that did the same.

use crate::log::events;
use crate::log::ring::{Reader, Writer};
use crate::machine::sys;
use crate::memory;
use crate::thread::message;
use crate::thread::{current, session};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::event::{section_len, EventHeader, Kind, Tag};
use reprise_abi::notes;
use reprise_abi::session::region_flags;

/// Most bytes of shared memory that a process logs after a death.
const MOST: u64 = 256 << 20;
/// Bytes in an event.
const PIECE: u64 = 1 << 20;
const WRITE: u32 = 2;

/// The losses of the session that this memory has seen to.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Record: a program that begins has no shared memory yet.
pub fn start() {
    SEEN.store(session().losses.load(Acquire), Relaxed);
}

/// Record: the calling thread holds the baton again. Logs what shared memory holds, if somebody may have been killed while writing
/// to it.
#[inline]
pub fn look() {
    let losses = session().losses.load(Acquire);
    if SEEN.load(Relaxed) != losses {
        SEEN.store(losses, Relaxed);
        log_shared();
    }
}

#[cold]
fn log_shared() {
    let mut left = MOST;
    for r in memory::map().regions() {
        if r.flags & region_flags::SHARED == 0 || r.prot == 0 {
            continue;
        }
        if r.end - r.start > left {
            message::note(notes::KILLED_WHILE_SHARING);
            continue;
        }
        left -= r.end - r.start;
        let mut at = r.start;
        while at < r.end {
            let len = (r.end - at).min(PIECE);
            let h = events::header(
                Kind::Shared,
                current().slot_number(),
                0,
                section_len(len as usize),
            );
            let mut w = Writer::begin(&h);
            w.put_section(Tag::Output as u32, at, at, len as usize);
            w.finish();
            at += len;
        }
    }
}

/// Replay: puts into shared memory what it held.
pub fn redo(h: EventHeader) {
    let mut r = Reader::begin(h);
    while let Some((address, len, tag)) = r.section() {
        let prot = memory::map().at(address).map_or(0, |region| region.prot);
        if tag != Tag::Output as u32 || prot == 0 {
            r.skip(len.div_ceil(8) * 8);
            continue;
        }
        if prot & WRITE == 0 {
            protect(address, len, prot | WRITE);
        }
        r.to_program(address, len);
        if prot & WRITE == 0 {
            protect(address, len, prot);
        }
    }
    r.finish();
}

fn protect(address: u64, len: usize, prot: u32) {
    sys::mprotect(address, len as u64, prot as u64);
}
