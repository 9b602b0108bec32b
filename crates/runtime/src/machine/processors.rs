//! The processors that the process may use (sched_getaffinity(2)).

use crate::machine::sys;
use core::mem::size_of_val;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many processors this process may use.
pub fn processors() -> u32 {
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    let known = KNOWN.load(Relaxed);
    if known != 0 {
        return known;
    }
    let mut mask = [0u64; 128];
    let size = size_of_val(&mask);
    sys::sched_getaffinity(0, size as u64, mask.as_mut_ptr() as u64);
    let n = mask.iter().map(|w| w.count_ones()).sum::<u32>().max(1);
    KNOWN.store(n, Relaxed);
    n
}
