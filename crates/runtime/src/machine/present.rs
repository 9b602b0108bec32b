//! Which pages of the program hold something: those that the kernel has in memory, and those that it has moved to a swap device.

use crate::machine::page_scan::{self, LARGE};
use crate::machine::proc_name::ProcName;
use crate::machine::sys;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;

/// Pages that are asked for at a time.
const BATCH: usize = 1024;
/// Bits of /proc/self/pagemap.
const IN_MEMORY: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FILE_OR_SHARED: u64 = 1 << 61;

/// How absent pages are told from others, while nothing else of the program runs.
pub struct Presence {
    /// Pages may be on a swap device, where mincore(2) doesn't see them.
    swap: bool,
}

impl Presence {
    /// Asks whether anything is swapped out.
    pub fn now() -> Presence {
        // struct sysinfo: totalswap and freeswap are words 8 and 9.
        let mut info = [0u64; 14];
        let known = sys::sysinfo(info.as_mut_ptr() as u64) == 0;
        Presence {
            swap: !known || info[8] != info[9],
        }
    }

    /// Calls `f` for each page of `start..end` that is present, in order. Pages of which that can't be known are passed as
    /// well: those of files, and where swap is in use shared ones.
    pub fn each(&self, start: u64, end: u64, flags: u32, mut f: impl FnMut(u64)) {
        let file = flags & region_flags::FILE != 0;
        let shared = flags & region_flags::SHARED != 0;
        if file || (shared && self.swap) {
            return (start..end).step_by(PAGE as usize).for_each(f);
        }
        let mut start = start;
        if !shared && end.saturating_sub(start) >= LARGE {
            match page_scan::each_held(start, end, &mut f) {
                Ok(()) => return,
                Err(reached) => start = reached,
            }
        }
        if self.swap {
            let read = pagemap(start, end, |page, e| {
                if e & (IN_MEMORY | SWAPPED) != 0 {
                    f(page);
                }
            });
            if !read {
                (start..end).step_by(PAGE as usize).for_each(f);
            }
            return;
        }
        let mut there = [1u8; BATCH];
        let mut at = start;
        while at < end {
            let n = ((end - at) / PAGE).clamp(1, BATCH as u64);
            let known = sys::mincore(at, n * PAGE, there.as_mut_ptr() as u64) == 0;
            for k in 0..n {
                if !known || there[k as usize] & 1 != 0 {
                    f(at + k * PAGE);
                }
            }
            at += n * PAGE;
        }
    }
}

/// Calls `f` for each page of a private mapping that is no longer the file's; false when that can't be known.
pub fn each_written(start: u64, end: u64, mut f: impl FnMut(u64)) -> bool {
    pagemap(start, end, |page, e| {
        if is_held(e) {
            f(page);
        }
    })
}

/// Calls `f` with each page of a private mapping that is no longer the file's in this process alone, or in that with this id alone. False when that can't be known.
pub fn each_of_one(pid: u32, start: u64, end: u64, mut f: impl FnMut(u64)) -> bool {
    let step = BATCH as u64 * PAGE;
    (start..end).step_by(step as usize).all(|at| {
        let until = end.min(at + step);
        let mut mine = [false; BATCH];
        let number = |page: u64| ((page - at) / PAGE) as usize;
        pagemap(at, until, |page, e| mine[number(page)] = is_held(e))
            && pagemap_of(Some(pid), at, until, |page, e| {
                if is_held(e) != mine[number(page)] {
                    f(page);
                }
            })
    })
}

/// Does the entry say that the page is in memory, or was swapped out, and is none of a file?
fn is_held(e: u64) -> bool {
    e & SWAPPED != 0 || e & (IN_MEMORY | FILE_OR_SHARED) == IN_MEMORY
}

/// Calls `f` with each page of `start..end` that is in memory, or was swapped out, and is mapped by one process alone: this one, or that with this id. False
/// when that can't be known.
pub fn each_alone(pid: Option<u32>, start: u64, end: u64, mut f: impl FnMut(u64)) -> bool {
    const ALONE: u64 = 1 << 56;
    pagemap_of(pid, start, end, |page, e| {
        if is_held(e) && e & (ALONE | SWAPPED) != 0 {
            f(page);
        }
    })
}

/// Calls `f` with each page and its entry in its pagemap; false when that can't be read from its beginning on.
fn pagemap(start: u64, end: u64, f: impl FnMut(u64, u64)) -> bool {
    pagemap_of(None, start, end, f)
}

/// As [`pagemap`], of the process with this id.
fn pagemap_of(pid: Option<u32>, start: u64, end: u64, mut f: impl FnMut(u64, u64)) -> bool {
    const O_CLOEXEC: u64 = 0o2000000;
    let name = ProcName::of(pid, b"pagemap");
    let fd = sys::open_at(&[u64::MAX, name.address(), O_CLOEXEC]);
    if fd < 0 {
        return false;
    }
    let mut entries = [0u64; BATCH];
    let mut at = start;
    while at < end {
        let n = ((end - at) / PAGE).clamp(1, BATCH as u64);
        let to = entries.as_mut_ptr() as u64;
        let read = sys::pread64(fd as u64, to, n * 8, at / PAGE * 8);
        if read != n as i64 * 8 {
            break;
        }
        for (page, e) in (at..end).step_by(PAGE as usize).zip(&entries[..n as usize]) {
            f(page, *e);
        }
        at += n * PAGE;
    }
    sys::close(fd as u64);
    at >= end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn mincore_and_pagemap_agree() {
        const PAGES: u64 = 3000;
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;
        let start = sys::mmap(0, PAGES * PAGE, sys::PROT_RW, flags, u64::MAX, 0) as u64;
        let touched: Vec<u64> = [0, 7, 1023, 1024, 2047, 2999]
            .map(|k| start + k * PAGE)
            .into();
        for page in &touched {
            // SAFETY: just mapped.
            unsafe { *(*page as *mut u64) = 1 };
        }
        for swap in [false, true] {
            let mut found = Vec::new();
            Presence { swap }.each(start, start + PAGES * PAGE, 0, |page| found.push(page));
            assert_eq!(found, touched, "swap: {swap}");
        }
        let mut written = Vec::new();
        assert!(each_written(start, start + PAGES * PAGE, |page| written.push(page)));
        assert_eq!(written, touched);
        sys::munmap(start, PAGES * PAGE);
    }
}
