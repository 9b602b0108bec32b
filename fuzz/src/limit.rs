//! No allocation of the targets has a reason to be large: one that is ends the run, and the fuzzer keeps the input.

use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes that are too many for one allocation. Inputs and what is made of them come to less than a tenth.
const LARGEST: usize = 64 << 20;

/// The system's allocator up to there.
struct Limited;

// SAFETY: all calls are passed on unchanged, or end the process.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        System.alloc(layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        System.alloc_zeroed(layout)
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        System.dealloc(p, layout)
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check(size);
        System.realloc(p, layout, size)
    }
}

#[global_allocator]
static ALLOCATOR: Limited = Limited;

fn check(size: usize) {
    if size > LARGEST {
        // Nothing is allocated for this: the text is there, and abort(3) is a signal, which libFuzzer catches.
        std::process::abort();
    }
}
