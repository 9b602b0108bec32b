//! Which of a process's descriptors are outputs, followed through what the program does to them.
//!
//! A table here stands for the kernel's: most processes have one, which all their threads share. A process in its parent's memory
//! (vfork(2)) has its own, and so has a thread that was made without CLONE_FILES, or that has taken leave of the others (unshare(2)).
//! A table belongs to whoever runs on it: one on which no thread runs is free.
//!
//! Processes that share a table, but no memory, can't be followed: there the recording looks at each descriptor that is written to.

use crate::thread::blocks;
use crate::thread::{current, session, Block, Current};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::*};

/// Descriptors that are followed; what is written to others is looked at while recording.
pub const FOLLOWED: usize = reprise_abi::session::FOLLOWED_STREAMS;
/// In this bit of a descriptor's stream: it is closed by an exec.
pub const CLOSED_BY_EXEC: u8 = 0x80;
/// clone(2), unshare(2): the table of descriptors.
pub const CLONE_FILES: u64 = 0x400;
/// The most tables in one memory; who would need another one goes on with the one it has.
const MAX_TABLES: usize = 96;

/// One table. It is changed by the threads that have it, one descriptor at a time, as the kernel's is.
struct Table {
    /// By descriptor: 1, 2: it is the stream that was 1 or 2 at the start; perhaps with [`CLOSED_BY_EXEC`].
    streams: [AtomicU8; FOLLOWED],
    /// A process with another memory has it, too.
    is_shared_out: AtomicBool,
}

impl Table {
    const fn new() -> Table {
        Table {
            streams: [const { AtomicU8::new(0) }; FOLLOWED],
            is_shared_out: AtomicBool::new(false),
        }
    }
}

static POOL: [Table; MAX_TABLES] = [const { Table::new() }; MAX_TABLES];
/// Somebody looks for a free table.
static LOOKING: AtomicBool = AtomicBool::new(false);
/// There is or was more than one table in this memory.
static SEVERAL: AtomicBool = AtomicBool::new(false);

fn of(t: Current) -> &'static Table {
    &POOL[(t.table().get() as usize).min(MAX_TABLES - 1)]
}

/// The stream behind a descriptor, 0 when it is something else.
pub fn get(fd: u64) -> u8 {
    let streams = &of(current()).streams;
    let stream = streams.get(fd as u32 as usize);
    stream.map_or(0, |s| s.load(Relaxed)) & !CLOSED_BY_EXEC
}

/// Says what a descriptor is now.
pub fn set(fd: u64, v: u8) {
    let streams = &of(current()).streams;
    if let Some(s) = streams.get(fd as u32 as usize) {
        // Most are nothing, and stay so: a page that is only read costs no copy after a fork.
        if s.load(Relaxed) != v {
            s.store(v, Relaxed);
        }
    }
}

/// Does a replay know what this descriptor is?
pub fn is_followed(fd: u64) -> bool {
    (fd as u32 as usize) < FOLLOWED && is_known(current())
}

/// Does a replay know the descriptors of this thread?
pub fn is_known(t: Current) -> bool {
    !of(t).is_shared_out.load(Relaxed)
}

/// Do all threads in this memory have one table, which nobody else has?
pub fn is_one() -> bool {
    !SEVERAL.load(Relaxed) && crate::thread::process::only_one_in_memory()
}

/// The first thread of a program: see [`super::start`].
pub fn start(t: &mut Block, first: bool) {
    t.table.set(0);
    let streams = &of(t.as_current()).streams;
    if first {
        streams[1].store(1, Relaxed);
        streams[2].store(2, Relaxed);
        return;
    }
    for (to, from) in streams.iter().zip(&session().streams) {
        let v = from.load(Relaxed);
        if v != 0 {
            to.store(v, Relaxed);
        }
    }
}

/// Leaves what is open behind for the program that the process becomes.
pub fn hand_over() {
    for (to, from) in session().streams.iter().zip(&of(current()).streams) {
        let from = from.load(Relaxed);
        let kept = if from & CLOSED_BY_EXEC != 0 { 0 } else { from };
        to.store(kept, Relaxed);
    }
}

/// A new thread, made with these flags of clone(2), gets its table; `in_own_memory`: it begins with a copy of its parent's memory.
pub fn inherit(t: &Block, new: &mut Block, flags: u64, in_own_memory: bool) {
    new.table.set(t.table.get());
    match (flags & CLONE_FILES != 0, in_own_memory) {
        (false, false) => copy(t.as_current(), new.slot, &new.table),
        (true, true) => of(t.as_current()).is_shared_out.store(true, Relaxed),
        _ => {}
    }
}

/// unshare(2): the thread goes on with a copy of its table.
pub fn unshare(t: Current) {
    let (old, slot) = (t.table().get(), t.slot_number());
    let others = |i: u32| i != slot && is_used_by(i, old);
    if (0..session().slots_used.load(Relaxed)).any(others) {
        copy(t, slot, t.table());
    }
}

/// Record: threads of this memory may have several tables from now on.
pub fn apart() {
    SEVERAL.store(true, Relaxed);
}

/// In the copy of a memory that fork(2) made nobody else has a table.
pub fn after_fork() {
    LOOKING.store(false, Relaxed);
}

fn is_used_by(slot: u32, table: u64) -> bool {
    blocks::in_use_here(slot).is_some() && blocks::block_of(slot).table.get() == table
}

/// The thread of slot `to`, whose table is to be another one, gets a copy of the thread's.
fn copy(from: Current, to: u32, table: &Cell<u64>) {
    SEVERAL.store(true, Relaxed);
    while LOOKING.swap(true, Acquire) {
        core::hint::spin_loop();
    }
    let used = |table: u64| {
        (0..session().slots_used.load(Relaxed)).any(|i| i != to && is_used_by(i, table))
    };
    let free = (0..MAX_TABLES as u64).find(|i| *i != from.table().get() && !used(*i));
    if let Some(i) = free {
        let (old, new) = (of(from), &POOL[i as usize]);
        table.set(i);
        for (to, from) in new.streams.iter().zip(&old.streams) {
            to.store(from.load(Relaxed), Relaxed);
        }
        new.is_shared_out.store(false, Relaxed);
    }
    LOOKING.store(false, Release);
}
