//! The write-tracking fallback: a call or ioctl that the table doesn't know is made while the baton is held, and whatever
//! memory changed is logged (DESIGN 3).
//!
//! Nobody else runs meanwhile, so everything that differs afterwards was written by the call: the pages that the program
//! can write are hashed before and after it. That needs no kernel feature and finds what lies behind any chain of pointers;
//! it costs a pass over memory, which a call that nobody knows is rare enough to be worth.

use crate::machine::hash;
use crate::memory;
use crate::memory::scratch::arena;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use reprise_abi::layout::PAGE;

/// Hashes of the program's pages before an unknown call, in order of addresses.
pub struct Snapshot {
    /// (page, hash), and behind `capacity` of them room for as many pages that changed.
    table: *mut [u64; 2],
    len: usize,
    capacity: usize,
}

/// Table and capacity are kept for the next unknown call; only the holder of the baton uses them.
static TABLE: AtomicU64 = AtomicU64::new(0);
static CAPACITY: AtomicU64 = AtomicU64::new(0);
/// A thread is inside an unknown call with the table: another one that comes meanwhile needs its own.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// In the copy of a memory that fork(2) made nobody is inside an unknown call.
pub fn after_fork() {
    IN_USE.store(false, Relaxed);
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        IN_USE.store(false, Relaxed);
    }
}

/// Pages that may appear between two passes: what one call can touch at most, and what is left over.
const SLACK: u64 = 65_536;

fn page_hash(page: u64) -> u64 {
    let h = crate::machine::guard::guarded(|| {
        // SAFETY: guarded.
        unsafe {
            if hash::is_zero_page(page) {
                0
            } else {
                hash::bytes(page, page, PAGE as usize)
            }
        }
    });
    h.unwrap_or(0)
}

impl Snapshot {
    /// Hashes everything that the program can write. `None` when there is no memory for the table.
    pub fn take() -> Option<Snapshot> {
        let mut pages = 0u64;
        memory::each_writable_page(|_| pages += 1);
        let shared = !IN_USE.swap(true, Relaxed);
        if !shared || CAPACITY.load(Relaxed) < pages + SLACK {
            let capacity = (pages + SLACK).next_power_of_two();
            TABLE.store(arena(capacity * 32)?, Relaxed);
            CAPACITY.store(capacity, Relaxed);
        }
        let table = TABLE.load(Relaxed) as *mut [u64; 2];
        let mut s = Snapshot {
            table,
            len: 0,
            capacity: CAPACITY.load(Relaxed) as usize,
        };
        memory::each_writable_page(|page| {
            if s.len < s.capacity {
                // SAFETY: inside the table.
                unsafe { s.table.add(s.len).write([page, page_hash(page)]) };
                s.len += 1;
            }
        });
        Some(s)
    }

    /// The pages that differ now; a page that was absent before counts as one of zeros.
    pub fn changed(&self) -> &[[u64; 2]] {
        // SAFETY: `len` entries were written; the second half is as large as the first.
        let (before, after) = unsafe {
            (
                core::slice::from_raw_parts(self.table, self.len),
                self.table.add(self.capacity),
            )
        };
        let (mut i, mut n) = (0, 0);
        memory::each_writable_page(|page| {
            while i < before.len() && before[i][0] < page {
                i += 1;
            }
            let old = before.get(i).filter(|b| b[0] == page).map_or(0, |b| b[1]);
            if page_hash(page) != old && n < self.capacity {
                // SAFETY: inside the second half.
                unsafe { after.add(n).write([page, 0]) };
                n += 1;
            }
        });
        // SAFETY: `n` entries were written.
        unsafe { core::slice::from_raw_parts(after, n) }
    }
}
