//! Code whose plain loads are recorded as values, since a replay once left its path there (Castor 3.8): in the session, and, as proposals,
//! in what a replay leaves behind.

use crate::atomic::{AtomicU64, Ordering::*};

/// Most entries of a list.
pub const MAX_LEARNED: usize = 512;

/// Code of a module: all loads of a function, or one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// The first 8 bytes of the module's build id, little-endian.
    pub module: u64,
    /// Where the function begins, from the module's lowest address.
    pub function: u64,
    /// Where the load is; 0 for all of the function's.
    pub load: u64,
}

/// A list of such code, filled from the front.
#[repr(C)]
pub struct CodeList {
    len: AtomicU64,
    list: [[AtomicU64; 4]; MAX_LEARNED],
}

impl CodeList {
    /// Adds one, unless it is there or there is no room. `at` is its address in this run, or 0.
    pub fn add(&self, c: Code, at: u64) {
        let n = self.len.load(Relaxed) as usize;
        if n < MAX_LEARNED && !self.all().any(|(other, _)| other == c) {
            let words = [c.module, c.function, c.load, at];
            for (to, word) in self.list[n].iter().zip(words) {
                to.store(word, Relaxed);
            }
            self.len.store(n as u64 + 1, Release);
        }
    }

    /// All of them, with their addresses.
    pub fn all(&self) -> impl Iterator<Item = (Code, u64)> + '_ {
        let n = self.len.load(Acquire) as usize;
        self.list[..n.min(MAX_LEARNED)].iter().map(|words| {
            let [module, function, load, at] = [0, 1, 2, 3].map(|i| words[i].load(Relaxed));
            let c = Code {
                module,
                function,
                load,
            };
            (c, at)
        })
    }
}
