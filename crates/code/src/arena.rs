//! The only heap of the runtime: a small arena that is filled once and never freed.
//!
//! The instruction decoder builds its tables (about 400 KB) on first use and allocates nothing afterwards; see the test.
//! [`warm_up`] builds them at a moment of the caller's choice. Nothing else in the runtime may allocate.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the arena.
pub const ARENA_LEN: usize = 1 << 20;

/// Memory handed out front to back.
#[repr(C, align(64))]
pub struct Arena {
    memory: UnsafeCell<[u8; ARENA_LEN]>,
    used: AtomicUsize,
}

// SAFETY: every byte of `memory` is handed out at most once, by an atomic step of `used`.
unsafe impl Sync for Arena {}

impl Arena {
    /// An empty arena.
    #[allow(clippy::new_without_default)] // a value of this size is for statics only
    pub const fn new() -> Arena {
        Arena {
            memory: UnsafeCell::new([0; ARENA_LEN]),
            used: AtomicUsize::new(0),
        }
    }

    /// Bytes handed out so far.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

// SAFETY: `alloc` returns null or a range of its own, aligned as asked; nothing is ever reused.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.memory.get() as usize;
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let Some(start) = (base + used).checked_add(layout.align() - 1) else {
                return core::ptr::null_mut();
            };
            let start = (start & !(layout.align() - 1)) - base;
            let Some(end) = start.checked_add(layout.size()) else {
                return core::ptr::null_mut();
            };
            if end > ARENA_LEN {
                return core::ptr::null_mut();
            }
            match self
                .used
                .compare_exchange_weak(used, end, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return (base + start) as *mut u8,
                Err(now) => used = now,
            }
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// Builds the decoder's tables (under a millisecond), so that the first cut doesn't have to.
pub fn warm_up() {
    let _ = crate::decode::decode(0, &[0x90]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_aligned_disjoint_memory_until_it_is_full() {
        let arena: Box<Arena> = {
            // SAFETY: an arena is valid as zeros.
            unsafe { Box::from_raw(std::alloc::alloc_zeroed(Layout::new::<Arena>()).cast()) }
        };
        let mut end = 0;
        for align in [1usize, 8, 64, 4, 16] {
            let layout = Layout::from_size_align(100, align).unwrap();
            // SAFETY: the layout is not empty.
            let p = unsafe { arena.alloc(layout) } as usize;
            assert_eq!(p % align, 0);
            assert!(p >= end);
            end = p + 100;
        }
        assert!(arena.used() >= 500);
        // SAFETY: as above.
        unsafe {
            assert!(arena
                .alloc(Layout::from_size_align(ARENA_LEN, 1).unwrap())
                .is_null());
            assert!(!arena
                .alloc(Layout::from_size_align(ARENA_LEN - arena.used(), 1).unwrap())
                .is_null());
            assert!(arena
                .alloc(Layout::from_size_align(1, 1).unwrap())
                .is_null());
        }
    }

    /// Counts what this thread allocates.
    struct Counting;

    std::thread_local! {
        static ALLOCATED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    // SAFETY: all work is the system allocator's.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let _ = ALLOCATED.try_with(|a| a.set(a.get() + layout.size()));
            std::alloc::System.alloc(layout)
        }

        unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
            std::alloc::System.dealloc(p, layout)
        }
    }

    #[global_allocator]
    static COUNTING: Counting = Counting;

    #[test]
    fn the_decoder_allocates_only_its_tables() {
        warm_up();
        let before = ALLOCATED.with(|a| a.get());
        for byte in 0..=255u8 {
            let mut code = [0x11u8; 15];
            code[0] = byte;
            let _ = crate::decode::decode(0x1000, &code);
            code[0] = 0x0f;
            code[1] = byte;
            let _ = crate::decode::decode(0x1000, &code);
            code[..4].copy_from_slice(&[0x62, 0xf1, 0x7c, 0x48]);
            code[4] = byte;
            let _ = crate::decode::decode(0x1000, &code);
        }
        assert_eq!(ALLOCATED.with(|a| a.get()) - before, 0);
    }
}
