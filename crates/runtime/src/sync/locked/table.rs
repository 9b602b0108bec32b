//! A table of the runtime's own that only grows.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// A table of the runtime's own, filled from the front by one thread at a time and read by all.
pub struct Table<T> {
    at: AtomicU64,
    len: AtomicUsize,
    _of: core::marker::PhantomData<fn() -> T>,
}

impl<T: Copy> Table<T> {
    /// An empty one.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Table<T> {
        Table {
            at: AtomicU64::new(0),
            len: AtomicUsize::new(0),
            _of: core::marker::PhantomData,
        }
    }

    /// Takes its memory, if it has none: where that lies must not depend on what is found when.
    pub fn reserve(&self, capacity: usize) -> Option<()> {
        if self.at.load(Relaxed) == 0 {
            let bytes = capacity * core::mem::size_of::<T>();
            self.at
                .store(crate::memory::scratch::arena(bytes as u64)?, Release);
        }
        Some(())
    }

    /// Adds an item, if there is room for it beside `capacity` ones.
    pub fn push(&self, capacity: usize, item: T) -> Option<()> {
        self.reserve(capacity)?;
        let n = self.len.load(Relaxed);
        if n == capacity {
            return None;
        }
        // SAFETY: inside the table, and nobody looks there yet.
        unsafe { (self.at.load(Relaxed) as *mut T).add(n).write(item) };
        self.len.store(n + 1, Release);
        Some(())
    }

    /// What is in it.
    pub fn all(&self) -> &[T] {
        let n = self.len.load(Acquire);
        if n == 0 {
            return &[];
        }
        // SAFETY: that many were written, and don't change.
        unsafe { core::slice::from_raw_parts(self.at.load(Acquire) as *const T, n) }
    }

    /// Forgets what is in it.
    pub fn clear(&self) {
        self.len.store(0, Relaxed);
    }
}
