//! Functions whose plain loads are recorded as values, since a replay once left its path there (Castor 3.8): in the session, and in a
//! divergence's report, where they are proposed.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// Most functions in a list.
pub const MAX_LEARNED: usize = 128;

/// A function of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionId {
    /// The first 8 bytes of the module's build id, little-endian.
    pub module: u64,
    /// Where the function begins, from the module's lowest address.
    pub offset: u64,
}

/// A list of functions, filled from the front.
#[repr(C)]
pub struct Functions {
    len: AtomicU64,
    list: [[AtomicU64; 3]; MAX_LEARNED],
}

impl Functions {
    /// Adds one, unless it is there or there is no room. `at` is its address in this run, or 0.
    pub fn add(&self, f: FunctionId, at: u64) {
        let n = self.len.load(Relaxed) as usize;
        if n < MAX_LEARNED && !self.all().any(|(g, _)| g == f) {
            self.list[n][0].store(f.module, Relaxed);
            self.list[n][1].store(f.offset, Relaxed);
            self.list[n][2].store(at, Relaxed);
            self.len.store(n as u64 + 1, Release);
        }
    }

    /// All of them, with their addresses.
    pub fn all(&self) -> impl Iterator<Item = (FunctionId, u64)> + '_ {
        let n = self.len.load(Acquire) as usize;
        self.list[..n.min(MAX_LEARNED)]
            .iter()
            .map(|[module, offset, at]| {
                let f = FunctionId {
                    module: module.load(Relaxed),
                    offset: offset.load(Relaxed),
                };
                (f, at.load(Relaxed))
            })
    }
}
