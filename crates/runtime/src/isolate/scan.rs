//! Which pages of the views are copies: those that the kernel holds in memory of the process's own (DThreads finds them by a fault for each;
//! FACTS, "Page tracking").

use super::owned;
use super::views::{self, Extent};
use crate::machine::page_scan::{Scanner, Which};
use crate::thread::panic;

/// Views that are no further apart are scanned at once: what lies between them costs less than another call. A page that is there costs 10 ns, written or not.
const NEAR: u64 = 1 << 17;

/// Calls `f` with the address of each page of the views that is a copy, and not the slot's thread's own; in order.
///
/// The descriptor is there for the scan only. Should the program make one meanwhile, it may get another number than it would have: so scans are made in
/// turns, or before the first turn of a round, while nobody makes descriptors.
pub fn each_copy(slot: u32, f: &mut impl FnMut(u64)) {
    let scanner = open();
    let all = views::all();
    let mut first = 0;
    while first < all.len() {
        let mut last = first;
        while last + 1 < all.len() && all[last + 1].start - all[last].end < NEAR {
            last += 1;
        }
        let views = &all[first..=last];
        owned::each_other(slot, views[0].start, all[last].end, |start, end| {
            cluster(&scanner, views, start, end, f);
        });
        first = last + 1;
    }
}

/// Calls `f` with the address of each page there that is the process's own; in order.
pub fn each_own(start: u64, end: u64, f: &mut impl FnMut(u64)) {
    if open().each(Which::Own, start, end, f).is_err() {
        no_scan();
    }
}

fn open() -> Scanner {
    Scanner::open().unwrap_or_else(|| {
        panic::give_up("det: /proc/thread-self/pagemap can't be opened");
    })
}

fn no_scan() -> ! {
    panic::give_up("det: this kernel has no PAGEMAP_SCAN (Linux 6.7 or newer is needed)")
}

/// Scans from `start` to `end`, where these views are.
fn cluster(scanner: &Scanner, views: &[Extent], start: u64, end: u64, f: &mut impl FnMut(u64)) {
    let mut n = 0;
    let found = scanner.each(Which::Own, start, end, &mut |page| {
        while n < views.len() && views[n].end <= page {
            n += 1;
        }
        if n < views.len() && views[n].start <= page {
            f(page);
        }
    });
    if found.is_err() {
        no_scan();
    }
}
