//! Pointers that are no blocks, and blocks that are freed twice.

use crate::testing::{Log, Thread, World};
use crate::{CHUNK, DOUBLE_FREE, INVALID_POINTER};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::string::String;

fn message(f: impl FnOnce()) -> String {
    let e = catch_unwind(AssertUnwindSafe(f)).expect_err("not detected");
    let text = e.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| String::from(*e.downcast_ref::<&str>().unwrap()))
}

fn two() -> (Thread, Thread) {
    let world = World::new(2, Log::default());
    (world.thread(0), world.thread(1))
}

#[test]
fn pointers_that_are_no_blocks() {
    let (mut t, mut other) = two();
    let local = 0u64;
    let (small, large) = (t.malloc(100), t.malloc(1 << 20));
    let aligned = t.memalign(1 << 21, 1 << 21).unwrap();
    let home = small & !(CHUNK - 1);
    let wrong = [
        1,
        16,
        u64::MAX,
        1 << 47,
        &local as *const u64 as u64,
        small + 1,
        small + 8,
        small + 16,
        // Not carved, in no slab, the heap's own.
        small + 112 * 64,
        home + CHUNK - 16,
        home,
        home + 64,
        home + 5000,
        large + 16,
        large + CHUNK,
        large - 16,
        aligned + 16,
        aligned + CHUNK,
        aligned - CHUNK + 64,
        t.memory.base_of_nothing(),
    ];
    for p in wrong {
        assert_eq!(message(|| t.free(p)), INVALID_POINTER, "{p:x}");
        assert_eq!(message(|| _ = t.realloc(p, 50)), INVALID_POINTER, "{p:x}");
        // Another thread can't know how much of a slab is carved.
        if p != small + 112 * 64 {
            assert_eq!(message(|| other.free(p)), INVALID_POINTER, "{p:x}");
        }
    }
    for p in [small, large, aligned] {
        t.free(p);
    }
}

#[test]
fn blocks_freed_twice() {
    let (mut t, mut other) = two();
    other.malloc(1);
    for size in [0, 100, 1000, 5000, 1 << 20] {
        let (a, b) = (t.malloc(size), t.malloc(size));
        t.free(a);
        assert_eq!(message(|| t.free(a)), DOUBLE_FREE);
        assert_eq!(message(|| other.free(a)), DOUBLE_FREE);
        t.free(b);
        assert_eq!(message(|| t.free(a)), DOUBLE_FREE);
        // A large one is the other thread's when it has freed it.
        let c = t.malloc(size);
        other.free(c);
        assert_eq!(message(|| t.free(c)), DOUBLE_FREE);
        assert_eq!(message(|| other.free(c)), DOUBLE_FREE);
    }
    let p = t.malloc(100);
    t.free(p);
    assert_eq!(message(|| _ = t.realloc(p, 5000)), DOUBLE_FREE);
    assert_eq!(message(|| _ = t.usable(p)), DOUBLE_FREE);
}

#[test]
fn blocks_freed_twice_whose_memory_went_back() {
    let (mut t, _) = two();
    let p = t.malloc(64 << 20);
    t.free(p);
    assert_eq!(message(|| t.free(p)), INVALID_POINTER);
    let (p, q) = (t.malloc(200_000), t.malloc(200_000));
    t.free(p);
    t.free(q);
    assert_eq!(message(|| t.free(p)), INVALID_POINTER);
}

#[test]
fn what_a_block_holds_is_not_mistaken_for_a_free_one() {
    let (mut t, _) = two();
    let p = t.malloc(100);
    t.free(p);
    // SAFETY: the memory is there.
    let old = unsafe { *(p as *const [u64; 12]) };
    let (first, second) = (t.malloc(100), t.malloc(100));
    assert_eq!(first, p);
    // SAFETY: a block of the test.
    unsafe { *(second as *mut [u64; 12]) = old };
    t.free(second);
    t.free(first);
}
