//! The allocator beside glibc's: processor time and memory of a few patterns, each run in a process of its own, in turns.
//!
//!     cargo bench -p reprise-heap --bench heap -- [PATTERN...]
//!
//! "ordered" is the allocator under an order that takes a lock for each ordered operation, as an engine does.
#![allow(clippy::print_stdout)]

use reprise_heap::registry::{Registry, REGISTRY_LEN};
use reprise_heap::{api, Order, Source, Thread, CHUNK};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::hint::black_box;
use std::marker::PhantomData;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Runs of each pattern with each allocator.
const RUNS: usize = 5;

static REGISTRY: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);
thread_local!(static BLOCK: Cell<*mut Block> = const { Cell::new(std::ptr::null_mut()) });

/// A thread.
struct Block {
    heap: u64,
    slot: u32,
}

impl Thread for Block {
    #[inline(always)]
    fn heap(&self) -> u64 {
        self.heap
    }

    #[inline(always)]
    fn set_heap(&mut self, heap: u64) {
        self.heap = heap;
    }
}

fn pages(at: u64, len: u64, fixed: bool) -> u64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let fixed = if fixed { libc::MAP_FIXED_NOREPLACE } else { 0 };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory that replaces nothing.
    unsafe { libc::mmap(at as *mut _, len as usize, prot, flags | fixed, -1, 0) as u64 }
}

/// Memory at addresses that only go up, under an order.
struct Memory<H>(PhantomData<H>);

/// How operations are ordered.
trait How {
    fn ordered<R>(address: u64, operation: impl FnOnce() -> R) -> R;
}

impl<H: How> Order for Memory<H> {
    type Thread = Block;

    #[inline(always)]
    fn ordered<R>(_t: &mut Block, address: u64, operation: impl FnOnce() -> R) -> R {
        H::ordered(address, operation)
    }

    #[inline(always)]
    fn claims<R>(t: &mut Block, search: impl FnOnce(&mut Block, u32) -> R) -> R {
        let first = t.slot;
        search(t, first)
    }
}
static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000_0000);

impl<H: How> Source for Memory<H> {
    #[inline(always)]
    fn registry(&self) -> &'static Registry {
        // SAFETY: made at the start.
        unsafe { Registry::at(REGISTRY.load(Relaxed)) }
    }

    fn map(&mut self, _t: &mut Block, len: u64) -> Option<u64> {
        let at = NEXT.fetch_add(len.next_multiple_of(CHUNK), Relaxed);
        (pages(at, len, true) == at).then_some(at)
    }

    fn unmap(&mut self, _t: &mut Block, address: u64, len: u64) {
        // SAFETY: mapped above.
        unsafe { libc::munmap(address as *mut _, len as usize) };
    }

    fn remap(&mut self, _t: &mut Block, address: u64, len: u64, new: u64) -> Option<u64> {
        // SAFETY: mapped above; the rest of the last chunk is nobody's.
        unsafe {
            if new <= len.next_multiple_of(CHUNK) {
                let there = libc::mremap(address as *mut _, len as usize, new as usize, 0);
                return (there != libc::MAP_FAILED).then_some(address);
            }
            let to = NEXT.fetch_add(new.next_multiple_of(CHUNK), Relaxed);
            let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let to = to as *mut c_void;
            let there = libc::mremap(address as *mut _, len as usize, new as usize, how, to);
            (there != libc::MAP_FAILED).then_some(there as u64)
        }
    }

    fn corrupt(&mut self, _t: &mut Block, what: &str) -> ! {
        panic!("{what}")
    }
}

/// An order that costs what one costs: a lock and a count for each operation.
struct Locked;
static LOCKS: [AtomicBool; 64] = [const { AtomicBool::new(false) }; 64];
static COUNT: AtomicU64 = AtomicU64::new(0);

impl How for Locked {
    fn ordered<R>(address: u64, operation: impl FnOnce() -> R) -> R {
        let lock = &LOCKS[address as usize / 64 % 64];
        while lock.swap(true, Acquire) {
            std::hint::spin_loop();
        }
        let r = operation();
        COUNT.store(COUNT.load(Relaxed) + 1, Relaxed);
        lock.store(false, Release);
        r
    }
}

/// No order at all.
struct Unordered;

impl How for Unordered {
    #[inline(always)]
    fn ordered<R>(_address: u64, operation: impl FnOnce() -> R) -> R {
        operation()
    }
}

#[inline(always)]
fn block() -> &'static mut Block {
    let at = BLOCK.with(Cell::get);
    // SAFETY: the thread's own.
    unsafe { &mut *(if at.is_null() { new_block() } else { at }) }
}

/// Out of the way of what is measured.
#[cold]
#[inline(never)]
fn new_block() -> *mut Block {
    let at = Box::into_raw(Box::new(Block {
        heap: 0,
        slot: THREADS.fetch_add(1, Relaxed),
    }));
    BLOCK.with(|b| b.set(at));
    at
}

trait Allocator: 'static {
    fn malloc(size: u64) -> u64;
    fn calloc(size: u64) -> u64;
    fn realloc(p: u64, size: u64) -> u64;
    fn free(p: u64);
}

struct Glibc;
impl Allocator for Glibc {
    #[inline(always)]
    fn malloc(size: u64) -> u64 {
        // SAFETY: as in C, here and below.
        black_box(unsafe { libc::malloc(size as usize) as u64 })
    }
    #[inline(always)]
    fn calloc(size: u64) -> u64 {
        // SAFETY: likewise.
        black_box(unsafe { libc::calloc(1, size as usize) as u64 })
    }
    #[inline(always)]
    fn realloc(p: u64, size: u64) -> u64 {
        // SAFETY: likewise.
        black_box(unsafe { libc::realloc(p as *mut _, size as usize) as u64 })
    }
    #[inline(always)]
    fn free(p: u64) {
        // SAFETY: likewise.
        unsafe { libc::free(p as *mut _) }
    }
}

struct Ours<O>(O);
impl<O: How + 'static> Allocator for Ours<O> {
    #[inline(never)]
    fn malloc(size: u64) -> u64 {
        black_box(api::malloc(block(), &mut Memory::<O>(PhantomData), size))
    }
    #[inline(never)]
    fn calloc(size: u64) -> u64 {
        black_box(api::calloc(block(), &mut Memory::<O>(PhantomData), 1, size))
    }
    #[inline(never)]
    fn realloc(p: u64, size: u64) -> u64 {
        black_box(api::realloc(
            block(),
            &mut Memory::<O>(PhantomData),
            p,
            size,
        ))
    }
    #[inline(never)]
    fn free(p: u64) {
        api::free(block(), &mut Memory::<O>(PhantomData), p)
    }
}

struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
    /// Small sizes often, large ones seldom.
    fn size(&mut self, bits: u64) -> u64 {
        let bits = 4 + self.below(bits - 3);
        (1 << bits) - self.below(1 << (bits - 1))
    }
}

fn touch(p: u64, size: u64) {
    for at in (0..size).step_by(4096) {
        // SAFETY: a block of that size.
        unsafe { *((p + at) as *mut u8) = 1 };
    }
}

/// malloc and free in turns: one block.
fn pair<A: Allocator>() -> u64 {
    for _ in 0..10_000_000 {
        A::free(A::malloc(64));
    }
    10_000_000
}

/// A stack of blocks that grows and shrinks.
fn lifo<A: Allocator>() -> u64 {
    let mut stack = Vec::with_capacity(1000);
    for _ in 0..5_000 {
        stack.extend((0..1000).map(|i| A::malloc(16 + i % 8 * 16)));
        while let Some(p) = stack.pop() {
            A::free(p);
        }
    }
    5_000_000
}

/// A queue of a thousand blocks.
fn fifo<A: Allocator>() -> u64 {
    let mut queue = VecDeque::with_capacity(1001);
    for i in 0..5_000_000 {
        queue.push_back(A::malloc(16 + i % 8 * 16));
        if queue.len() > 1000 {
            A::free(queue.pop_front().unwrap());
        }
    }
    5_000_000
}

fn replace<A: Allocator>(live: usize, bits: u64, n: u64) -> u64 {
    let mut random = Random(1);
    let mut blocks = vec![0; live];
    for _ in 0..n {
        let i = random.below(live as u64) as usize;
        A::free(blocks[i]);
        let size = random.size(bits);
        blocks[i] = A::malloc(size);
        touch(blocks[i], size);
    }
    n
}

/// 20,000 blocks of up to 512 bytes, replaced at random.
fn random_small<A: Allocator>() -> u64 {
    replace::<A>(20_000, 9, 5_000_000)
}

/// 5,000 blocks of up to 32 KiB.
fn random_medium<A: Allocator>() -> u64 {
    replace::<A>(5_000, 15, 1_000_000)
}

/// 40 blocks of up to 4 MiB.
fn random_large<A: Allocator>() -> u64 {
    replace::<A>(40, 22, 20_000)
}

/// A million blocks that stay, of a few sizes.
fn grow<A: Allocator>() -> u64 {
    let mut random = Random(1);
    for _ in 0..1_000_000 {
        let size = random.below(100);
        touch(A::malloc(size), 1);
    }
    1_000_000
}

/// Vectors that grow by doubling, several at a time.
fn vectors<A: Allocator>() -> u64 {
    for i in 0..5_000 {
        let mut all = [(); 4].map(|()| A::malloc(32));
        for bits in 6..(8 + i % 9) {
            all = all.map(|p| A::realloc(p, 1 << bits));
        }
        all.into_iter().for_each(A::free);
    }
    120_000
}

/// Zeroed blocks of up to 64 KiB.
fn zeroed<A: Allocator>() -> u64 {
    let mut random = Random(1);
    let mut queue = VecDeque::new();
    for _ in 0..300_000 {
        let size = random.size(16);
        queue.push_back(A::calloc(size));
        if queue.len() > 100 {
            A::free(queue.pop_front().unwrap());
        }
    }
    300_000
}

/// One thread makes blocks, another frees them.
fn handed<A: Allocator>() -> u64 {
    const N: u64 = 5_000_000;
    const RING: usize = 4096;
    struct Shared {
        ring: Vec<AtomicU64>,
        put: AtomicUsize,
        got: AtomicUsize,
    }
    let s: &Shared = Box::leak(Box::new(Shared {
        ring: (0..RING).map(|_| AtomicU64::new(0)).collect(),
        put: AtomicUsize::new(0),
        got: AtomicUsize::new(0),
    }));
    let consumer = std::thread::spawn(move || {
        A::free(A::malloc(1));
        let mut i = 0;
        while i < N as usize {
            let put = s.put.load(Acquire);
            if put == i {
                std::thread::yield_now();
            }
            while i < put {
                A::free(s.ring[i % RING].load(Relaxed));
                i += 1;
            }
            s.got.store(i, Release);
        }
    });
    for i in 0..N as usize {
        while i - s.got.load(Acquire) == RING {
            std::thread::yield_now();
        }
        let p = A::malloc(16 + i as u64 % 8 * 16);
        touch(p, 1);
        s.ring[i % RING].store(p, Relaxed);
        s.put.store(i + 1, Release);
    }
    consumer.join().unwrap();
    N
}

const PATTERNS: [&str; 10] = [
    "pair",
    "lifo",
    "fifo",
    "random-small",
    "random-medium",
    "random-large",
    "grow",
    "vectors",
    "zeroed",
    "handed",
];

/// Nanoseconds for each block, and KiB of memory that it took at most.
fn measure<A: Allocator>(pattern: &str) -> (f64, u64) {
    A::free(A::malloc(1));
    let run = match pattern {
        "pair" => pair::<A>,
        "lifo" => lifo::<A>,
        "fifo" => fifo::<A>,
        "random-small" => random_small::<A>,
        "random-medium" => random_medium::<A>,
        "random-large" => random_large::<A>,
        "grow" => grow::<A>,
        "vectors" => vectors::<A>,
        "zeroed" => zeroed::<A>,
        "handed" => handed::<A>,
        _ => panic!("no pattern {pattern}"),
    };
    let before = peak();
    let start = cpu_time();
    let n = run();
    ((cpu_time() - start) / n as f64, peak() - before)
}

/// Nanoseconds of processor time so far, of all threads: other programs don't count.
fn cpu_time() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: as in C.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// VmHWM.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn one(allocator: &str, pattern: &str) {
    REGISTRY.store(pages(0, REGISTRY_LEN, false), Relaxed);
    let (time, memory) = match allocator {
        "glibc" => measure::<Glibc>(pattern),
        "ours" => measure::<Ours<Unordered>>(pattern),
        _ => measure::<Ours<Locked>>(pattern),
    };
    println!("{time} {memory} {}", COUNT.load(Relaxed));
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [what, allocator, pattern] = &args[..] {
        if what == "one" {
            return one(allocator, pattern);
        }
    }
    let names: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    println!("pattern          glibc ns   ours    ordered   ratio  ratio ordered   glibc MiB  ours MiB   operations");
    for pattern in PATTERNS {
        if !names.is_empty() && !names.iter().any(|n| *n == pattern) {
            continue;
        }
        let mut results = [const { (Vec::new(), Vec::new(), Vec::new()) }; 3];
        for _ in 0..RUNS {
            for (i, allocator) in ["glibc", "ours", "ordered"].iter().enumerate() {
                let me = std::env::current_exe().unwrap();
                let out = Command::new(me).args(["one", allocator, pattern]).output();
                let out = out.unwrap();
                assert!(out.status.success(), "{out:?}");
                let text = String::from_utf8(out.stdout).unwrap();
                let mut n = text.split_whitespace().map(|w| w.parse::<f64>().unwrap());
                results[i].0.push(n.next().unwrap());
                results[i].1.push(n.next().unwrap() / 1024.0);
                results[i].2.push(n.next().unwrap());
            }
        }
        let [glibc, ours, ordered] = results.map(|(t, m, c)| (median(t), median(m), median(c)));
        println!(
            "{pattern:15} {:9.1} {:6.1} {:10.1} {:7.2} {:14.2} {:11.1} {:9.1} {:12}",
            glibc.0,
            ours.0,
            ordered.0,
            ours.0 / glibc.0,
            ordered.0 / glibc.0,
            glibc.1,
            ours.1,
            ordered.2
        );
    }
}
