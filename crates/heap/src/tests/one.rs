//! One thread: what blocks are, and that the same calls give the same addresses.

use super::{fill, has, is_zero};
use crate::api;
use crate::classes::SMALL_MAX;
use crate::own::Heap;
use crate::testing::{Log, Thread, World};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

#[derive(Clone, Debug)]
enum Call {
    Malloc(u64),
    Calloc(u64, u64),
    Memalign(u32, u64),
    Realloc(usize, u64),
    Free(usize),
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0u64..300,
        4 => 0u64..5000,
        2 => 0u64..SMALL_MAX + 4096,
        1 => 0u64..3 << 20,
        1 => prop::sample::select(std::vec![0, 16, 17, 256, 257, 1024, 1025, SMALL_MAX, SMALL_MAX + 1, 1 << 20]),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => size().prop_map(Call::Malloc),
        2 => (1u64..4, size()).prop_map(|(n, s)| Call::Calloc(n, s)),
        1 => (0u32..22, size()).prop_map(|(p, s)| Call::Memalign(p, s)),
        2 => (any::<usize>(), size()).prop_map(|(i, s)| Call::Realloc(i, s)),
        4 => any::<usize>().prop_map(Call::Free),
    ]
}

struct Live {
    address: u64,
    size: u64,
    seed: u64,
}

/// A program that checks what it gets, and its addresses relative to its memory's base.
struct Program {
    thread: Thread,
    base: u64,
    live: Vec<Live>,
    extents: BTreeMap<u64, u64>,
    addresses: Vec<u64>,
}

impl Program {
    fn got(&mut self, address: u64, size: u64) {
        assert_ne!(address, 0, "{size} bytes");
        let usable = self.thread.usable(address);
        assert!(address % 16 == 0 && usable >= size && usable > 0);
        let before = self.extents.range(..address + usable).next_back();
        if let Some((&other, &end)) = before {
            assert!(end <= address, "{address:x} lies in {other:x}..{end:x}");
        }
        self.extents.insert(address, address + usable);
        let seed = self.addresses.len() as u64;
        fill(address, usable, seed);
        self.addresses.push(address - self.base);
        self.live.push(Live {
            address,
            size: usable,
            seed,
        });
    }

    fn lose(&mut self, i: usize) -> Live {
        let i = i % self.live.len();
        let l = self.live.swap_remove(i);
        self.extents.remove(&l.address);
        l
    }

    fn make(&mut self, call: &Call) {
        match *call {
            Call::Malloc(size) => {
                let p = self.thread.malloc(size);
                self.got(p, size);
            }
            Call::Calloc(count, size) => {
                let p = self.thread.calloc(count, size);
                assert!(is_zero(p, count * size));
                self.got(p, count * size);
            }
            Call::Memalign(power, size) => {
                let p = self.thread.memalign(1 << power, size).unwrap();
                assert_eq!(p % (1 << power), 0);
                self.got(p, size);
            }
            _ if self.live.is_empty() => {}
            Call::Realloc(i, size) => {
                let l = self.lose(i);
                let p = self.thread.realloc(l.address, size);
                if size == 0 {
                    assert_eq!(p, 0);
                    return;
                }
                assert!(has(p, l.size.min(size), l.size, l.seed));
                self.got(p, size);
            }
            Call::Free(i) => {
                let l = self.lose(i);
                assert!(has(l.address, l.size, l.size, l.seed));
                self.thread.free(l.address);
            }
        }
    }
}

fn run(calls: &[Call]) -> Vec<u64> {
    let world = World::new(1, Log::default());
    let mut p = Program {
        thread: world.thread(0),
        base: world.base,
        live: Vec::new(),
        extents: BTreeMap::new(),
        addresses: Vec::new(),
    };
    calls.iter().for_each(|c| p.make(c));
    while !p.live.is_empty() {
        p.make(&Call::Free(0));
    }
    p.thread.end();
    let heap = world.registry.place(0).heap.load(Relaxed);
    if heap != 0 {
        // SAFETY: its thread has ended.
        let chunks = unsafe { Heap::at(heap) }.chunks();
        assert!(chunks <= 2, "its home and another");
    }
    world.end();
    p.addresses
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn blocks_are_apart_aligned_and_keep_their_contents(calls in prop::collection::vec(call(), 1..400)) {
        let once = run(&calls);
        prop_assert_eq!(once, run(&calls), "the same calls, other addresses");
    }
}

fn one() -> Thread {
    World::new(1, Log::default()).thread(0)
}

#[test]
fn malloc_of_nothing_is_a_block() {
    let mut t = one();
    let (a, b) = (t.malloc(0), t.malloc(0));
    assert!(a != 0 && b != 0 && a != b);
    t.free(a);
    t.free(b);
    t.free(0);
    assert_eq!(t.usable(0), 0);
}

#[test]
fn impossible_sizes_fail() {
    let mut t = one();
    let p = t.malloc(100);
    for size in [1 << 63, u64::MAX, u64::MAX - 4096, (1 << 63) + 1, 1 << 62] {
        assert_eq!(t.malloc(size), 0);
        assert_eq!(t.calloc(1, size), 0);
        assert_eq!(t.realloc(p, size), 0);
        assert_eq!(t.memalign(64, size), Err(api::ENOMEM));
        assert_eq!(t.memalign(1 << 30, size), Err(api::ENOMEM));
    }
    assert_eq!(t.calloc(1 << 32, 1 << 32), 0);
    assert_eq!(t.memalign(1 << 63, 1), Err(api::ENOMEM));
    assert_eq!(t.memalign((1 << 63) + 1, 1), Err(api::EINVAL));
    for (align, error) in [(0, api::EINVAL), (4, api::EINVAL), (24, api::EINVAL)] {
        let r = api::posix_memalign(&mut t.block, &mut t.memory, align, 1);
        assert_eq!(r, Err(error));
    }
    t.free(p);
}

#[test]
fn without_memory_calls_fail_and_blocks_stay() {
    let mut t = one();
    t.memory.fails = true;
    assert_eq!(t.malloc(1), 0, "no first chunk");
    t.memory.fails = false;
    let (small, large) = (t.malloc(1000), t.malloc(1 << 20));
    fill(small, 1000, 1);
    fill(large, 1 << 20, 2);
    t.memory.fails = true;
    assert_eq!((t.malloc(4 << 20), t.calloc(4, 1 << 20)), (0, 0));
    assert_eq!(
        (t.realloc(small, 4 << 20), t.realloc(large, 8 << 20)),
        (0, 0)
    );
    while t.malloc(5000) != 0 {}
    assert_eq!(t.realloc(large, 5000), large, "what gets smaller can stay");
    assert!(has(small, 1000, 1000, 1) && has(large, 5000, 1 << 20, 2));
    t.memory.fails = false;
    assert_ne!(t.malloc(5000), 0);
}

#[test]
fn every_alignment_up_to_a_gigabyte() {
    for power in 0..=30 {
        let mut t = one();
        for size in [0, 33, 300_000] {
            let p = t.memalign(1 << power, size).unwrap();
            assert!(p % (1 << power) == 0 && t.usable(p) >= size);
            fill(p, size, power);
            t.free(p);
        }
    }
    assert_eq!(
        one().memalign(24, 1).unwrap() % 32,
        0,
        "rounded up as in glibc"
    );
}

#[test]
fn calloc_is_zero_however_its_memory_was_used() {
    let mut t = one();
    for size in [
        1,
        24,
        100,
        1024,
        1025,
        5000,
        70_000,
        SMALL_MAX,
        300_000,
        2 << 20,
    ] {
        for _ in 0..3 {
            let blocks: Vec<u64> = (0..10).map(|_| t.calloc(1, size)).collect();
            for &p in &blocks {
                assert!(is_zero(p, size), "{size}");
                fill(p, size, 77);
            }
            blocks.iter().for_each(|&p| t.free(p));
        }
    }
}

#[test]
fn growing_by_little_seldom_moves_a_large_block() {
    let mut t = one();
    let mut p = t.malloc(1 << 20);
    fill(p, 1 << 20, 5);
    let (mut size, mut calls) = (1 << 20, 0);
    while size < 64 << 20 {
        size += 4096;
        let before = t.memory.mapped;
        p = t.realloc(p, size);
        calls += (t.memory.mapped != before) as u32;
    }
    assert!(calls < 64, "{calls} calls for {} steps", (63 << 20) / 4096);
    assert!(has(p, 1 << 20, 1 << 20, 5));
    p = t.realloc(p, 1 << 20);
    assert!(
        t.memory.mapped < 4 << 20,
        "what it no longer needs goes back"
    );
    p = t.realloc(p, 100);
    assert!(has(p, 100, 1 << 20, 5));
}

#[test]
fn memory_goes_back() {
    let mut t = one();
    for size in [16, 100, 1000, 10_000, 200_000, 1 << 20] {
        let blocks: Vec<u64> = (0..(200 << 20) / size).map(|_| t.malloc(size)).collect();
        assert!(t.memory.mapped >= 200 << 20);
        blocks.iter().for_each(|&p| t.free(p));
        // A span that is partly used, the chunks and the large blocks that are kept.
        let most = (32 + 9 + 33) << 20;
        assert!(
            t.memory.mapped <= most,
            "{size}: {} MiB",
            t.memory.mapped >> 20
        );
    }
    t.end();
}

#[test]
fn a_queue_of_blocks_needs_no_more_than_its_length() {
    let mut t = one();
    let mut queue = std::collections::VecDeque::new();
    for i in 0..300_000u64 {
        queue.push_back(t.malloc(i * 7919 % 3000));
        if queue.len() > 1000 {
            t.free(queue.pop_front().unwrap());
        }
    }
    assert!(t.memory.mapped <= 5 << 20, "{} for 1.5 MB", t.memory.mapped);
}
