//! fork(2) from a program whose threads are processes: the child gets a memory of its own, a copy of what the program's is at that moment, and is
//! a process with one thread, as before the [split].
//!
//! The copy is made by the child, before anything else, while the thread that made it has its turn and waits: nobody changes the backing meanwhile.

use super::layout::*;
use super::{children, outside, proxy, split, views};
use crate::machine::guard;
use crate::machine::sys::{self, *};
use crate::memory;
use crate::memory::scratch;
use crate::thread::panic;
use crate::thread::{block_address, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::layout::*;
use reprise_abi::syscalls::nr;

const MAYMOVE_FIXED: u64 = 3;
/// Pages that one mincore(2) is asked for.
const CHUNK: u64 = 1024;

/// The child leaves the memory that the program's threads share.
pub fn leave(t: &mut Block) {
    split::each_shared(&mut |start, end| own_copy(start, end - start, start));
    let (first, next) = (split::arena_at(), scratch::arena_next());
    own_copy(first, next - first, first);
    sys::munmap(next, ARENA_END - next);
    blocks(t.slot);
    for e in views::all() {
        view(e);
    }
    views::start(VIEWS);
    has_copied().store(1, SeqCst);
    sys::futex_wake(has_copied().as_ptr(), 1);
    for (at, len) in [(MIRROR, BACKING), (RESERVE, BACKING), (DET_BASE, DET_LEN)] {
        sys::munmap(at, len);
    }
    split::undo();
    outside::undo();
    children::undo();
}

/// Set by a child when it has its copy of the memory.
fn has_copied() -> &'static AtomicU32 {
    // SAFETY: mapped by the split, and shared with the child until it has left; only an atomic.
    unsafe { &*(COPIED as *const AtomicU32) }
}

/// In the parent's turn: a child is about to be made.
pub fn begins() {
    has_copied().store(0, SeqCst);
}

/// In the parent's turn: waits until the child `pid` has its copy, or has died.
pub fn wait_for_copy(pid: u64) {
    const LOOK_NS: i64 = 10_000_000;
    while has_copied().load(SeqCst) == 0 && !has_ended(pid) {
        let end = Timespec::from_ns(sys::monotonic().ns() + LOOK_NS);
        sys::futex_wait(has_copied().as_ptr(), 0, Some(&end));
    }
}

fn has_ended(pid: u64) -> bool {
    const P_PID: u64 = 1;
    // WNOHANG, WEXITED, WNOWAIT, __WALL
    const FLAGS: u64 = 1 | 4 | 0x0100_0000 | 0x4000_0000;
    let mut info = [0u64; 16];
    let to = info.as_mut_ptr() as u64;
    let r = proxy::by_first(nr::WAITID, &[P_PID, pid, to, FLAGS, 0, 0]);
    // SAFETY: words of ours, to which the kernel has written.
    r != 0 || unsafe { core::ptr::read_volatile(&info[0]) } != 0
}

fn must(ok: bool) {
    if !ok {
        panic::give_up("det: no room for the memory of a new process");
    }
}

fn room(len: u64) -> u64 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    let at = sys::mmap(0, len, PROT_RW, flags, u64::MAX, 0);
    must(!is_error(at));
    at as u64
}

/// What is at `from` becomes private memory at `start`.
fn own_copy(start: u64, len: u64, from: u64) {
    if len == 0 {
        return;
    }
    let new = room(len);
    each_cached(from, len, &mut |page| {
        // SAFETY: pages of ours, of the same size.
        unsafe { guard::copy(new + (page - from), page, PAGE as usize) };
    });
    let moved = sys::mremap(new, len, len, MAYMOVE_FIXED, start);
    must(moved == start as i64);
}

/// Of the blocks only the calling thread's is needed, on which this runs.
fn blocks(slot: u32) {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    let (mine, end) = (block_address(slot), block_address(MAX_SLOTS as u32));
    for (from, to) in [(BLOCKS_BASE, mine), (mine + BLOCK_STRIDE, end)] {
        if from < to {
            let args = [from, to - from, PROT_RW, flags, u64::MAX, 0];
            must(sys::call(nr::MMAP, &args) == from as i64);
        }
    }
    split::replace_stack(mine, BLOCK_STRIDE, room(BLOCK_STRIDE));
}

/// A view becomes private memory, with the protection that each of its parts has.
fn view(e: &views::Extent) {
    own_copy(e.start, e.end - e.start, MIRROR + e.offset);
    let map = memory::map();
    let parts = map
        .regions()
        .iter()
        .filter(|r| r.start < e.end && r.end > e.start);
    for r in parts {
        let (from, to) = (r.start.max(e.start), r.end.min(e.end));
        if r.prot as u64 != PROT_RW {
            sys::mprotect(from, to - from, r.prot as u64);
        }
    }
}

/// Calls `f` with each page of shared memory that there is something in.
fn each_cached(start: u64, len: u64, f: &mut impl FnMut(u64)) {
    let end = start + len;
    let mut at = start;
    while at < end {
        let pages = ((end - at) / PAGE).min(CHUNK);
        let mut there = [0u8; CHUNK as usize];
        let r = sys::mincore(at, pages * PAGE, there.as_mut_ptr() as u64);
        for n in (0..pages).filter(|n| r != 0 || there[*n as usize] & 1 != 0) {
            f(at + n * PAGE);
        }
        at += pages * PAGE;
    }
}
