//! The end of the time with one thread (DThreads 5, single-threaded mode): until the first pthread_create(3) memory is what it is
//! natively, and costs nothing. Then everything that the program can write becomes a view, and everything that the runtime can write becomes
//! shared, before the first thread-process is made.

use super::layout::*;
use super::maps::Maps;
use super::options;
use super::views;
use crate::machine::guard;
use crate::machine::page_scan;
use crate::machine::sys::{self, *};
use crate::memory::regions::Region;
use crate::memory::{self, scratch};
use crate::sync::{hook, locked};
use crate::thread::blocks;
use crate::thread::in_force;
use crate::thread::panic;
use crate::thread::{block_address, current, Block};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::det::ISOLATION;
use reprise_abi::layout::*;
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::nr;

/// Most stretches of the runtime's own memory.
const MAX_OWN: usize = 128;
const MAYMOVE_FIXED: u64 = 3;
/// Below the program's stack this much stays free, as the kernel keeps it.
const STACK_GAP: u64 = 1 << 20;

/// What the runtime shares beside its blocks and the arena to come: first bytes and ends.
static SHARED: [[AtomicU64; 2]; MAX_OWN] = [const { [const { AtomicU64::new(0) }; 2] }; MAX_OWN];
/// Where the arena began that was still to come.
static ARENA_AT: AtomicU64 = AtomicU64::new(0);

/// Is the calling thread one of those? Not in a process of vfork(2), which runs in the memory of one of them.
pub fn in_force() -> bool {
    in_force::threads_are_processes() && !current().is_apart()
}

/// Calls `f` with each stretch of the runtime's memory that was made shared, but for blocks and what is in the arena since.
pub fn each_shared(f: &mut impl FnMut(u64, u64)) {
    for [start, end] in &SHARED {
        let (start, end) = (start.load(Relaxed), end.load(Relaxed));
        let is_block = (BLOCKS_BASE..block_address(MAX_SLOTS as u32)).contains(&start);
        if end != 0 && !is_block {
            f(start, end);
        }
    }
}

/// Where the arena begins that was asked for since.
pub fn arena_at() -> u64 {
    ARENA_AT.load(Relaxed)
}

/// In a process that has left the shared memory: it may split again.
pub fn undo() {
    in_force::SPLIT.store(false, Relaxed);
    SHARED.iter().for_each(|s| s[1].store(0, Relaxed));
}

/// Of a program that others have become, too: those that are started are looked at before.
const NO_LIBC: &str = "det: threads without a glibc whose functions can be found have no order (is the program linked statically, or written in Go?)";

/// Makes this process the first of several that share what they are.
pub fn split(t: &mut Block) {
    if !hook::has_libc() {
        panic::give_up(NO_LIBC);
    }
    locked::before_processes();
    map_backing();
    share_own(t);
    in_force::SPLIT.store(true, Relaxed);
    grow_stack();
    views::each_to_convert(0, USER_END, &mut |r| {
        views::convert(r);
    });
}

fn must(r: i64, at: u64) {
    if r != at as i64 {
        panic::give_up("det: no room for the memory that threads share");
    }
}

fn map_backing() {
    const MFD_CLOEXEC: u64 = 1;
    let fd = sys::memfd_create(c"reprise-det".as_ptr() as u64, MFD_CLOEXEC);
    if is_error(fd) || sys::ftruncate(fd as u64, BACKING) != 0 {
        panic::give_up("det: the memory that threads share can't be made");
    }
    let views = match options::has(ISOLATION) {
        true => MAP_PRIVATE,
        false => MAP_SHARED,
    };
    for (at, prot, flags) in [
        (MIRROR, PROT_RW, MAP_SHARED),
        (RESERVE, sys::PROT_NONE, views),
    ] {
        let flags = flags | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
        let args = [at, BACKING, prot, flags, fd as u64, 0];
        must(sys::call(nr::MMAP, &args), at);
    }
    sys::close(fd as u64);
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    let args = [DET_BASE, DET_LEN, PROT_RW, flags, u64::MAX, 0];
    must(sys::call(nr::MMAP, &args), DET_BASE);
    views::start(VIEWS);
}

/// Stretches of private memory of the runtime's that can be written.
struct Own {
    list: [(u64, u64); MAX_OWN],
    len: usize,
}

impl Own {
    fn find() -> Own {
        let mut own = Own {
            list: [(0, 0); MAX_OWN],
            len: 0,
        };
        let maps = Maps::open();
        let (mut text, mut held) = ([0u8; 4096], 0);
        loop {
            let (to, room) = (text[held..].as_mut_ptr() as u64, text.len() - held);
            let n = maps.read(to, room);
            if n == 0 {
                break;
            }
            held += n;
            let mut begin = 0;
            while let Some(n) = text[begin..held].iter().position(|b| *b == b'\n') {
                own.line(&text[begin..begin + n]);
                begin += n + 1;
            }
            if begin == 0 && held == text.len() {
                // A line longer than that is none of ours.
                begin = held;
            }
            text.copy_within(begin..held, 0);
            held -= begin;
        }
        own
    }

    /// A line of /proc/self/maps: `start-end rw-p ...`.
    fn line(&mut self, line: &[u8]) {
        let mut fields = line.splitn(3, |b| matches!(b, b'-' | b' '));
        let (Some(start), Some(end)) = (fields.next(), fields.next()) else {
            return;
        };
        let rest = fields.next().unwrap_or(b"");
        let (start, end) = (number(start), number(end));
        let ours = start >= RESERVATION && end <= RESERVATION_END;
        if !ours || !rest.starts_with(b"rw") || rest.get(3) != Some(&b'p') {
            return;
        }
        if self.len == MAX_OWN {
            panic::give_up("det: too many mappings of the runtime's");
        }
        self.list[self.len] = (start, end);
        self.len += 1;
    }
}

/// Where the data of the runtime's image ends that isn't zero at first.
fn data_end() -> u64 {
    extern "C" {
        static __bss_start: u8;
    }
    &raw const __bss_start as u64
}

fn up(n: u64) -> u64 {
    n.next_multiple_of(PAGE)
}

fn number(hex: &[u8]) -> u64 {
    hex.iter().fold(0, |n, b| {
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            b'a'..=b'f' => b - b'a' + 10,
            _ => 0,
        };
        n << 4 | digit as u64
    })
}

/// The runtime's data, blocks and tables become shared, at their places.
fn share_own(t: &mut Block) {
    let own = Own::find();
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    for (n, (start, end)) in own.list[..own.len].iter().copied().enumerate() {
        SHARED[n][0].store(start, Relaxed);
        SHARED[n][1].store(end, Relaxed);
        let len = end - start;
        let new = sys::mmap(0, len, PROT_RW, flags, u64::MAX, 0);
        if is_error(new) {
            panic::give_up("det: no room for the memory that threads share");
        }
        let new = new as u64;
        let here = &own as *const Own as u64;
        if (start..end).contains(&here) {
            replace_stack(start, len, new);
            continue;
        }
        // SAFETY: pages of ours, of the same size.
        let mut copy = |p| unsafe { guard::copy(new + (p - start), p, PAGE as usize) };
        // Of the image's data, what was never touched isn't zero; behind it, it is.
        let data = (start..end).contains(&data_end());
        let from = if data { up(data_end()) } else { start };
        (start..from).step_by(PAGE as usize).for_each(&mut copy);
        let copied = page_scan::each_held(from, end, &mut copy);
        if copied.is_err() {
            panic::give_up("det: this kernel has no PAGEMAP_SCAN (Linux 6.7 or newer is needed)");
        }
        let moved = sys::mremap(new, len, len, MAYMOVE_FIXED, start);
        must(moved, start);
    }
    // Blocks of all threads to come, and what the runtime will ask for.
    let flags = flags | MAP_FIXED;
    let (mine, next) = (block_address(t.slot), block_address(t.slot + 1));
    let blocks_end = block_address(MAX_SLOTS as u32);
    let arena = scratch::arena_next();
    ARENA_AT.store(arena, Relaxed);
    for (start, end) in [(BLOCKS_BASE, mine), (next, blocks_end), (arena, ARENA_END)] {
        if start < end {
            let args = [start, end - start, PROT_RW, flags, u64::MAX, 0];
            must(sys::call(nr::MMAP, &args), start);
        }
    }
    blocks::all_blocks_are_mapped();
}

/// The stretch in which the stack lies on which this runs: copied and replaced without a word being written to it in between.
pub fn replace_stack(start: u64, len: u64, new: u64) {
    let moved: i64;
    // SAFETY: the copy is complete when it takes the place; everything in between is in registers.
    unsafe {
        asm!(
            "rep movsb",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov rdx, r13",
            "syscall",
            inout("rdi") new => _,
            inout("rsi") start => _,
            inout("rcx") len => _,
            inlateout("rax") nr::MREMAP => moved,
            out("rdx") _,
            in("r12") new,
            in("r13") len,
            in("r10") MAYMOVE_FIXED,
            in("r8") start,
            lateout("r11") _,
            options(nostack)
        );
    }
    must(moved, start);
}

/// The stack of the first thread grows no more: it gets all the room that it may ever have.
fn grow_stack() {
    let map = memory::map();
    let stack = |r: &&Region| r.flags & region_flags::STACK != 0;
    let Some(r) = map.regions().iter().find(stack).copied() else {
        return;
    };
    let below = map.regions().iter().rev().find(|o| o.end <= r.start);
    let lowest = below.map_or(0, |o| o.end + STACK_GAP);
    let wanted = (r.end - memory::stack_limit()) & !(PAGE - 1);
    let start = wanted.max(lowest).min(r.start);
    map.insert(Region {
        start,
        flags: r.flags & !region_flags::STACK,
        ..r
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let mut own = Own {
            list: [(0, 0); MAX_OWN],
            len: 0,
        };
        own.line(b"550000100000-550000200000 rw-p 00000000 00:00 0 ");
        own.line(b"550000200000-550000300000 r--p 00000000 00:00 0 ");
        own.line(b"550000300000-550000400000 rw-s 00000000 00:00 0 ");
        own.line(b"555555554000-555555555000 rw-p 00000000 00:00 0   [heap]");
        assert_eq!(own.list[..own.len], [(0x5500_0010_0000, 0x5500_0020_0000)]);
    }
}
