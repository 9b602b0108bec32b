//! Which pages of a large stretch of memory are there. Sanitizers map shadows of tens of terabytes and touch little of them, so what
//! this costs must follow the pages that are there, not the address space: PAGEMAP_SCAN (Linux 6.7) skips what has no page tables. Its
//! descriptor is opened for the one scan and closed before the gate ends. Where it can't be had, [`crate::machine::present`] looks at
//! every page, at about a second for 16 TiB.

use crate::machine::sys;
use reprise_abi::layout::PAGE;
use reprise_abi::pagemap::{category, PageRange, ScanArgument, PAGEMAP_SCAN};

/// Stretches of this many bytes or more are worth a scan.
pub const LARGE: u64 = 1 << 30;
/// Ranges that one scan gives back. (Above 512, kernels up to 6.18 leave `walk_end` stale.)
const RANGES: usize = 256;

const HELD: u64 = category::PRESENT | category::SWAPPED;

/// Which of the pages that are in memory or on a swap device are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// All of them.
    Held,
    /// Those of the process's own: of a file that is mapped privately, the copies.
    Own,
}

/// The descriptor by which pages are found, open until this is dropped.
pub struct Scanner {
    fd: u64,
}

impl Drop for Scanner {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

/// Calls `f` for each page of `start..end` that is in memory or on a swap device, in order. Where the kernel can't scan, says up to where
/// that was done.
pub fn each_held(start: u64, end: u64, f: &mut impl FnMut(u64)) -> Result<(), u64> {
    Scanner::open()
        .ok_or(start)?
        .each(Which::Held, start, end, f)
}

impl Scanner {
    /// `None` where the kernel has no list of pages, or keeps it to itself.
    pub fn open() -> Option<Scanner> {
        const O_CLOEXEC: u64 = 0o2_000_000;
        const AT_FDCWD: u64 = -100i64 as u64;
        let path = c"/proc/thread-self/pagemap".as_ptr() as u64;
        let fd = sys::open_at(&[AT_FDCWD, path, O_CLOEXEC, 0]);
        (!sys::is_error(fd)).then_some(Scanner { fd: fd as u64 })
    }

    /// Calls `f` for each of these pages of `start..end`, in order. Where the kernel can't scan, says up to where that was done.
    pub fn each(
        &self,
        which: Which,
        start: u64,
        end: u64,
        f: &mut impl FnMut(u64),
    ) -> Result<(), u64> {
        scan(self.fd, which, start, end, f)
    }
}

fn scan(fd: u64, which: Which, start: u64, end: u64, f: &mut impl FnMut(u64)) -> Result<(), u64> {
    each_range(fd, which, start, end, &mut |from, to| {
        for page in (from..to).step_by(PAGE as usize) {
            f(page);
        }
    })
}

/// Calls `f` for each range of these pages in `start..end`, in order: its start and its end. `fd` is /proc/PID/pagemap of this process or another one. Where the kernel can't scan, says up to where that
/// was done.
pub fn each_range(
    fd: u64,
    which: Which,
    start: u64,
    end: u64,
    f: &mut impl FnMut(u64, u64),
) -> Result<(), u64> {
    let not_of_files = match which {
        Which::Held => 0,
        Which::Own => category::FILE,
    };
    let mut ranges = [PageRange::default(); RANGES];
    let mut at = start;
    loop {
        let mut argument = ScanArgument {
            size: core::mem::size_of::<ScanArgument>() as u64,
            start: at,
            end,
            vec: ranges.as_mut_ptr() as u64,
            vec_len: RANGES as u64,
            category_inverted: not_of_files,
            category_mask: not_of_files,
            category_anyof_mask: HELD,
            return_mask: HELD,
            ..ScanArgument::default()
        };
        let to = &mut argument as *mut ScanArgument as u64;
        let n = sys::ioctl(fd, PAGEMAP_SCAN, to);
        if !(0..=RANGES as i64).contains(&n) {
            return Err(at);
        }
        for r in &ranges[..n as usize] {
            // By address; `f` changes no mapping.
            f(r.start, r.end);
            at = r.end;
        }
        if (n as usize) < RANGES || at >= end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn large_and_small_stretches_show_the_pages_that_were_touched() {
        for len in [64 * PAGE, 8 << 40] {
            let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;
            let at = sys::mmap(0, len, sys::PROT_RW, flags, u64::MAX, 0) as u64;
            assert!(!sys::is_error(at as i64));
            // No huge pages: one touch is one page.
            sys::madvise(at, len, 15);
            let touched: Vec<u64> = [0, 1, 5, len / PAGE / 2, len / PAGE - 1]
                .iter()
                .map(|k| at + k * PAGE)
                .collect();
            for page in &touched {
                // SAFETY: mapped above.
                unsafe { (*page as *mut u8).write_volatile(1) };
            }
            let mut seen = Vec::new();
            each_held(at, at + len, &mut |p| seen.push(p)).unwrap();
            assert_eq!(seen, touched);
            sys::munmap(at, len);
        }
    }

    #[test]
    fn copies_are_told_from_pages_of_a_file() {
        let name = c"pages".as_ptr() as u64;
        let fd = sys::memfd_create(name, 0) as u64;
        let len = 16 * PAGE;
        assert_eq!(sys::ftruncate(fd, len), 0);
        let at = sys::mmap(0, len, sys::PROT_RW, sys::MAP_PRIVATE, fd, 0) as u64;
        assert!(!sys::is_error(at as i64));
        // Some are looked at, two are written to.
        for n in 0..8 {
            // SAFETY: mapped above.
            unsafe { ((at + n * PAGE) as *const u8).read_volatile() };
        }
        for n in [2, 5] {
            // SAFETY: as above.
            unsafe { ((at + n * PAGE) as *mut u8).write_volatile(1) };
        }
        let (mut held, mut own) = (Vec::new(), Vec::new());
        let scanner = Scanner::open().unwrap();
        let all = |which, v: &mut Vec<u64>| scanner.each(which, at, at + len, &mut |p| v.push(p));
        all(Which::Held, &mut held).unwrap();
        all(Which::Own, &mut own).unwrap();
        assert!(held.len() >= 8);
        assert_eq!(own, [at + 2 * PAGE, at + 5 * PAGE]);
        drop(scanner);
        sys::munmap(at, len);
        sys::close(fd);
    }

    #[test]
    fn more_ranges_than_one_scan_gives_back() {
        let len = LARGE;
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE;
        let at = sys::mmap(0, len, sys::PROT_RW, flags, u64::MAX, 0) as u64;
        sys::madvise(at, len, 15);
        let touched: Vec<u64> = (0..3 * RANGES as u64).map(|k| at + 2 * k * PAGE).collect();
        for page in &touched {
            // SAFETY: mapped above.
            unsafe { (*page as *mut u8).write_volatile(1) };
        }
        let mut seen = Vec::new();
        each_held(at, at + len, &mut |p| seen.push(p)).unwrap();
        assert_eq!(seen, touched);
        sys::munmap(at, len);
    }
}
