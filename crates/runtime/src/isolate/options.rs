//! What `reprise run` was asked for: optimisations that are left out, and delays at gates, by which tests show that the run depends on neither.

use crate::machine::sys;
use crate::thread::session;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::det::Optimisation;

/// Is this optimisation in force?
#[inline(always)]
pub fn has(optimisation: Optimisation) -> bool {
    session().det_without & optimisation.bit == 0
}

/// One more of what a counter counts.
#[inline(always)]
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Numbers drawn so far.
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// A test switch (`run --delays`): at some gates the thread does nothing for a time, or lets others have its processor, as a busy machine would
/// have it. What is drawn depends on the seed, and on who comes first.
#[inline(always)]
pub fn delay() {
    match session().det_delays {
        0 => {}
        seed => delay_by(seed),
    }
}

/// Is this a test, in which what is taken for granted is looked at?
pub fn disturbs() -> bool {
    session().det_delays != 0
}

#[cold]
fn delay_by(seed: u64) {
    /// One of so many delays is a long one.
    const LONG: u64 = 64;
    const LONG_NS: i64 = 300_000;
    let n = DRAWN.fetch_add(1, Relaxed);
    let drawn = drawn(seed, n);
    match drawn % LONG {
        0 => {
            let end = sys::Timespec::from_ns(sys::monotonic().ns() + LONG_NS);
            let never = 0u32;
            sys::futex_wait(&never, 0, Some(&end));
        }
        1..=8 => {
            sys::sched_yield();
        }
        _ => (0..drawn >> 32 & 0xfff).for_each(|_| core::hint::spin_loop()),
    }
}

/// The nth number of a seed (splitmix64).
fn drawn(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_differ() {
        let all: BTreeSet<_> = (0..1000).map(|n| drawn(7, n)).collect();
        assert_eq!(all.len(), 1000);
        assert_ne!(drawn(7, 0), drawn(8, 0));
    }
}
