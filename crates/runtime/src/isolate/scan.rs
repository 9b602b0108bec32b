//! Which pages of the views are copies: those that the kernel holds in memory of the process's own (DThreads finds them by a fault for each;
//! FACTS, "Page tracking").

use super::views::{self, Extent};
use crate::panic;
use crate::sys;
use reprise_abi::layout::PAGE;
use reprise_abi::syscalls::nr;

const PAGEMAP_SCAN: u64 = 0xc060_6610;
const FILE: u64 = 1 << 2;
/// PAGE_IS_PRESENT | PAGE_IS_SWAPPED
const HELD: u64 = 1 << 3 | 1 << 4;
/// Ranges that one scan gives back. (Above 512, kernels up to 6.18 leave `walk_end` stale.)
const RANGES: usize = 128;
/// Views that are no further apart are scanned at once.
const NEAR: u64 = 1 << 30;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRange {
    start: u64,
    end: u64,
    categories: u64,
}

/// Calls `f` with the address of each page of the views that is a copy, and its offset in the backing; in order.
///
/// The descriptor is there for the scan only: no other thread makes one meanwhile, since descriptors are made in turns, and the first turn begins
/// when all have scanned.
pub fn each_copy(f: &mut impl FnMut(u64, u64)) {
    const O_CLOEXEC: u64 = 0o2_000_000;
    const AT_FDCWD: u64 = -100i64 as u64;
    let path = c"/proc/self/pagemap".as_ptr() as u64;
    let fd = sys::call(nr::OPENAT, &[AT_FDCWD, path, O_CLOEXEC, 0]);
    if sys::is_error(fd) {
        panic::give_up("det: /proc/self/pagemap can't be opened");
    }
    let all = views::all();
    let mut first = 0;
    while first < all.len() {
        let mut last = first;
        while last + 1 < all.len() && all[last + 1].start - all[last].end < NEAR {
            last += 1;
        }
        cluster(fd as u64, &all[first..=last], f);
        first = last + 1;
    }
    sys::call(nr::CLOSE, &[fd as u64]);
}

/// Scans from the first of these views to the last one.
fn cluster(fd: u64, views: &[Extent], f: &mut impl FnMut(u64, u64)) {
    let mut ranges = [PageRange::default(); RANGES];
    let (mut at, end) = (views[0].start, views[views.len() - 1].end);
    let mut n = 0;
    loop {
        let mut argument = ScanArgument {
            size: core::mem::size_of::<ScanArgument>() as u64,
            start: at,
            end,
            vec: ranges.as_mut_ptr() as u64,
            vec_len: RANGES as u64,
            category_inverted: FILE,
            category_mask: FILE,
            category_anyof_mask: HELD,
            return_mask: HELD,
            ..ScanArgument::default()
        };
        let to = &mut argument as *mut ScanArgument as u64;
        let found = sys::call(nr::IOCTL, &[fd, PAGEMAP_SCAN, to]);
        if !(0..=RANGES as i64).contains(&found) {
            panic::give_up("det: this kernel has no PAGEMAP_SCAN (Linux 6.7 or newer is needed)");
        }
        for r in &ranges[..found as usize] {
            for page in (r.start..r.end).step_by(PAGE as usize) {
                while n < views.len() && views[n].end <= page {
                    n += 1;
                }
                if n < views.len() && views[n].start <= page {
                    f(page, views[n].offset + (page - views[n].start));
                }
            }
            at = r.end;
        }
        if (found as usize) < RANGES || at >= end {
            return;
        }
    }
}
