//! Which pages of the program hold something: those that the kernel has in memory, and those that it has moved to a swap device.

use crate::machine::page_scan::{self, Which, LARGE};
use crate::machine::proc_name::ProcName;
use crate::machine::sys;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;

/// Pages that are asked for at a time.
const BATCH: usize = 1024;
/// So many are read for one, since what is asked for next is often near.
const NEXT: usize = 64;
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

/// Can this process ask which of its pages hold what? Not where it has become another user, isn't dumpable (prctl(2)), or sees no /proc.
pub fn can_be_known() -> bool {
    Pagemap::open(None).is_some()
}

/// Is this page in memory, as far as mincore(2) sees it?
pub fn is_in_memory(page: u64) -> bool {
    let mut there = 0u8;
    sys::mincore(page, PAGE, &mut there as *mut u8 as u64) == 0 && there & 1 != 0
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
    let [Some(mine), Some(theirs)] = [None, Some(pid)].map(Pagemap::open) else {
        return false;
    };
    let (mut known, mut told) = (true, true);
    for (one, other) in [(&mine, &theirs), (&theirs, &mine)] {
        let mut other = Entries::of(other, end);
        known &= one.each(start, end, |page, e| {
            if is_held(e) {
                match other.at(page) {
                    Some(e) if !is_held(e) => f(page),
                    there => told &= there.is_some(),
                }
            }
        });
    }
    known && told
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
fn pagemap_of(pid: Option<u32>, start: u64, end: u64, f: impl FnMut(u64, u64)) -> bool {
    Pagemap::open(pid).is_some_and(|map| map.each(start, end, f))
}

/// /proc/PID/pagemap, open until this is dropped.
struct Pagemap {
    fd: u64,
}

impl Drop for Pagemap {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

impl Pagemap {
    /// Of this process, or of that with this id.
    fn open(pid: Option<u32>) -> Option<Pagemap> {
        const O_CLOEXEC: u64 = 0o2000000;
        let name = ProcName::of(pid, b"pagemap");
        let fd = sys::open_at(&[u64::MAX, name.address(), O_CLOEXEC]);
        (fd >= 0).then_some(Pagemap { fd: fd as u64 })
    }

    /// Calls `f` with each page of `start..end` that is there, and its entry, in order; with others, too, where the kernel doesn't tell which are. False when that can't be known.
    fn each(&self, start: u64, end: u64, mut f: impl FnMut(u64, u64)) -> bool {
        /// Of as much as this it is asked first which pages are there.
        const SCANNED: u64 = 8 << 20;
        let mut known = true;
        let mut reached = start;
        if end.saturating_sub(start) >= SCANNED {
            let mut reads = |from, to| known = known && self.reads(from, to, &mut f);
            match page_scan::each_range(self.fd, Which::Held, start, end, &mut reads) {
                Ok(()) => return known,
                Err(at) => reached = at,
            }
        }
        known && self.reads(reached, end, &mut f)
    }

    /// Calls `f` with each page of `start..end` and its entry; false when that can't be read.
    fn reads(&self, start: u64, end: u64, f: &mut impl FnMut(u64, u64)) -> bool {
        let mut entries = [0u64; BATCH];
        let mut at = start;
        while at < end {
            let n = ((end - at) / PAGE).clamp(1, BATCH as u64);
            if !self.read(at, &mut entries[..n as usize]) {
                return false;
            }
            for (page, e) in (at..end).step_by(PAGE as usize).zip(&entries[..n as usize]) {
                f(page, *e);
            }
            at += n * PAGE;
        }
        true
    }

    /// The entries of the pages from this one on.
    fn read(&self, page: u64, entries: &mut [u64]) -> bool {
        let len = size_of_val(entries) as u64;
        let to = entries.as_mut_ptr() as u64;
        sys::pread64(self.fd, to, len, page / PAGE * 8) == len as i64
    }
}

/// Single entries, asked for in order, up to `end`.
struct Entries<'a> {
    map: &'a Pagemap,
    end: u64,
    /// Those from this page on are known.
    from: u64,
    known: usize,
    entries: [u64; NEXT],
}

impl Entries<'_> {
    fn of(map: &Pagemap, end: u64) -> Entries<'_> {
        Entries {
            map,
            end,
            from: 0,
            known: 0,
            entries: [0; NEXT],
        }
    }

    fn at(&mut self, page: u64) -> Option<u64> {
        let mut n = (page.wrapping_sub(self.from) / PAGE) as usize;
        if n >= self.known {
            let count = ((self.end - page) / PAGE).clamp(1, NEXT as u64) as usize;
            (self.known, self.from) = (0, page);
            let there = self.map.read(page, &mut self.entries[..count]);
            there.then_some(())?;
            (self.known, n) = (count, 0);
        }
        Some(self.entries[n])
    }
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
        // Of a large stretch it is asked first which pages are there; both ways tell the same.
        let large = 64 << 20;
        let at = sys::mmap(0, large, sys::PROT_RW, flags, u64::MAX, 0) as u64;
        sys::madvise(at, large, 15);
        let there = [0, 5, 6, 7000, large / PAGE - 1].map(|k| at + k * PAGE);
        for page in &there {
            // SAFETY: just mapped.
            unsafe { *(*page as *mut u64) = 1 };
        }
        let mut found = Vec::new();
        assert!(each_written(at, at + large, |page| found.push(page)));
        assert_eq!(found, there);
        let (map, mut found) = (Pagemap::open(None).unwrap(), Vec::new());
        let mut f = |page, e| {
            if is_held(e) {
                found.push(page);
            }
        };
        assert!(map.reads(at, at + large, &mut f));
        assert_eq!(found, there);
        let mut entries = Entries::of(&map, at + large);
        let held = |k: u64| entries.at(at + k * PAGE).map(is_held);
        assert_eq!(
            [0, 1, 5, 6999, 7000, large / PAGE - 1].map(held),
            [true, false, true, false, true, true].map(Some)
        );
        drop(map);
        sys::munmap(at, large);
        let mut written = Vec::new();
        assert!(each_written(start, start + PAGES * PAGE, |page| written.push(page)));
        assert_eq!(written, touched);
        sys::munmap(start, PAGES * PAGE);
    }
}
