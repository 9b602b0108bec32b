//! A test switch (`record --test-without`): functions that are neither replaced nor searched for instructions, so that nothing orders them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Most functions of all classes that can be left out.
const MAX: usize = 128;

static LIST: [AtomicU64; MAX] = [const { AtomicU64::new(0) }; MAX];
static LEN: AtomicUsize = AtomicUsize::new(0);

/// The function at this address is left out.
pub fn add(function: u64) {
    let n = LEN.load(Relaxed);
    if let Some(place) = LIST.get(n) {
        place.store(function, Relaxed);
        LEN.store(n + 1, Release);
    }
}

/// Is the function at this address left out?
pub fn holds(function: u64) -> bool {
    let known = &LIST[..LEN.load(Acquire)];
    known.iter().any(|f| f.load(Relaxed) == function)
}
