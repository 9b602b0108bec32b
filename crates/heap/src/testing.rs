//! What the tests of the heap run on: threads, memory, and orders that are recorded and replayed.

use crate::registry::{Place, Registry, REGISTRY_LEN};
use crate::{api, Order, Source, CHUNK};
use std::boxed::Box;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex};
use std::vec::Vec;

fn pages(len: u64) -> u64 {
    // SAFETY: new memory, at no given place.
    let at = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            len as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert!(at != libc::MAP_FAILED);
    at as u64
}

/// Zeros at a multiple of a chunk.
pub fn aligned(len: u64) -> u64 {
    pages(len + CHUNK).next_multiple_of(CHUNK)
}

/// A new registry.
pub fn registry() -> &'static Registry {
    // SAFETY: fresh zeros that stay.
    unsafe { Registry::at(pages(REGISTRY_LEN)) }
}

/// Address space of one thread of a world.
const SHARE: u64 = 8 << 30;

/// A memory with its threads: all that two runs of the same program don't share.
pub struct World {
    /// Its registry.
    pub registry: &'static Registry,
    /// Where its memory starts: addresses are compared relative to it.
    pub base: u64,
    /// What is ordered in it.
    pub log: Log,
    threads: u64,
}

impl World {
    /// A world for so many threads, whose order is this.
    pub fn new(threads: u64, log: Log) -> &'static World {
        Box::leak(Box::new(World {
            registry: registry(),
            // The same alignments in every world.
            base: pages((threads + 1) * SHARE).next_multiple_of(SHARE),
            log,
            threads,
        }))
    }

    /// Gives its memory back.
    pub fn end(&self) {
        let share = (self.threads * SHARE) as usize;
        let registry = self.registry as *const Registry as *mut _;
        // SAFETY: nobody uses it any more.
        unsafe {
            libc::munmap(self.base as *mut _, share);
            libc::munmap(registry, REGISTRY_LEN as usize);
        }
    }

    /// Thread number `i`.
    pub fn thread(&'static self, i: u64) -> Thread {
        assert!(i < self.threads);
        let block = Block {
            heap: 0,
            slot: i as u32,
            world: self,
        };
        let base = self.base + i * SHARE;
        Thread {
            block,
            memory: Memory {
                world: self,
                next: base,
                end: base + SHARE,
                mapped: 0,
                fails: false,
            },
        }
    }
}

/// What is known of a thread.
pub struct Block {
    /// Address of its heap.
    pub heap: u64,
    slot: u32,
    /// Orders find their log here.
    world: &'static World,
}

impl crate::Thread for Block {
    fn heap(&self) -> u64 {
        self.heap
    }

    fn set_heap(&mut self, heap: u64) {
        self.heap = heap;
    }
}

/// A thread of the program.
pub struct Thread {
    /// Its block.
    pub block: Block,
    /// Its memory.
    pub memory: Memory,
}

impl Thread {
    /// malloc(3).
    pub fn malloc(&mut self, size: u64) -> u64 {
        api::malloc(&mut self.block, &mut self.memory, size)
    }

    /// calloc(3).
    pub fn calloc(&mut self, count: u64, size: u64) -> u64 {
        api::calloc(&mut self.block, &mut self.memory, count, size)
    }

    /// free(3).
    pub fn free(&mut self, p: u64) {
        api::free(&mut self.block, &mut self.memory, p)
    }

    /// realloc(3).
    pub fn realloc(&mut self, p: u64, size: u64) -> u64 {
        api::realloc(&mut self.block, &mut self.memory, p, size)
    }

    /// memalign(3).
    pub fn memalign(&mut self, align: u64, size: u64) -> Result<u64, u32> {
        api::memalign(&mut self.block, &mut self.memory, align, size)
    }

    /// malloc_usable_size(3).
    pub fn usable(&mut self, p: u64) -> u64 {
        api::usable_size(&mut self.block, &mut self.memory, p)
    }

    /// The thread ends.
    pub fn end(&mut self) {
        api::end(&mut self.block, &mut self.memory)
    }
}

/// Every thread maps in a part of its own, one piece after another, so that the order of calls doesn't matter.
pub struct Memory {
    world: &'static World,
    next: u64,
    end: u64,
    /// Bytes that are mapped.
    pub mapped: i64,
    /// There is no more memory.
    pub fails: bool,
}

impl Memory {
    /// An address of this memory that was not mapped yet.
    pub fn base_of_nothing(&self) -> u64 {
        self.end - CHUNK + 4096
    }
}

impl Source for Memory {
    fn registry(&self) -> &'static Registry {
        self.world.registry
    }

    fn map(&mut self, _t: &mut Block, len: u64) -> Option<u64> {
        let (at, next) = (self.next, self.next.checked_add(len)?);
        if self.fails || next > self.end {
            return None;
        }
        self.next = next.next_multiple_of(CHUNK);
        self.mapped += len as i64;
        Some(at)
    }

    fn unmap(&mut self, _t: &mut Block, address: u64, len: u64) {
        assert!(address % 4096 == 0 && len % 4096 == 0 && len > 0);
        self.mapped -= len as i64;
        // A use of it would fault.
        // SAFETY: memory of this world that its owner gives up.
        unsafe { libc::mprotect(address as *mut _, len as usize, libc::PROT_NONE) };
        // SAFETY: likewise.
        unsafe { libc::madvise(address as *mut _, len as usize, libc::MADV_DONTNEED) };
    }

    fn remap(&mut self, t: &mut Block, address: u64, len: u64, new_len: u64) -> Option<u64> {
        if new_len <= len {
            if new_len < len {
                self.unmap(t, address + new_len, len - new_len);
            }
            return Some(address);
        }
        // Every second time in its place, as far as that goes.
        if (address + len).next_multiple_of(CHUNK) >= address + new_len && new_len % 8192 == 0 {
            // SAFETY: the rest of the last chunk is nobody's.
            unsafe {
                let (from, more) = ((address + len) as *mut _, (new_len - len) as usize);
                libc::mprotect(from, more, libc::PROT_READ | libc::PROT_WRITE);
            }
            self.mapped += (new_len - len) as i64;
            return Some(address);
        }
        let to = self.map(t, new_len)?;
        // SAFETY: both are there.
        unsafe {
            core::ptr::copy_nonoverlapping(address as *const u8, to as *mut u8, len as usize)
        };
        self.unmap(t, address, len);
        Some(to)
    }

    fn corrupt(&mut self, _t: &mut Block, what: &str) -> ! {
        panic!("{what}")
    }
}

/// The order of operations in a world.
#[derive(Default)]
pub struct Log {
    /// (place, thread) of every operation that was made: taken from what replays.
    made: Mutex<Vec<(u64, u32)>>,
    /// Replay: who makes the operations on each place, in turn.
    wanted: Option<Vec<Vec<u32>>>,
    /// Replay: how many were made on each place.
    due: Mutex<Vec<usize>>,
    turn: Condvar,
    /// Operations, in all.
    pub operations: AtomicU64,
}

impl Log {
    /// One that replays what another recorded.
    pub fn replaying(recorded: &Log) -> Log {
        let made = recorded.made.lock().unwrap();
        let places = made.iter().map(|m| m.0 + 1).max().unwrap_or(0) as usize;
        let mut wanted = std::vec![Vec::new(); places];
        for &(place, thread) in made.iter() {
            wanted[place as usize].push(thread);
        }
        Log {
            wanted: Some(wanted),
            due: Mutex::new(std::vec![0; places]),
            ..Log::default()
        }
    }

    /// Was all of it replayed?
    pub fn is_done(&self) -> bool {
        let due = self.due.lock().unwrap();
        let wanted = self.wanted.as_ref().unwrap();
        wanted.iter().zip(due.iter()).all(|(w, d)| w.len() == *d)
    }
}

/// Records, or replays, the order of operations on each object.
impl Order for Memory {
    type Thread = Block;

    fn ordered<R>(t: &mut Block, address: u64, operation: impl FnOnce() -> R) -> R {
        let world = t.world;
        let first = world.registry.place(0) as *const Place as u64;
        let place = (address - first) / core::mem::size_of::<Place>() as u64;
        let log = &world.log;
        log.operations.fetch_add(1, Relaxed);
        let Some(wanted) = &log.wanted else {
            let mut made = log.made.lock().unwrap();
            made.push((place, t.slot));
            return operation();
        };
        let mine = |due: &mut Vec<usize>| {
            let next = wanted[place as usize].get(due[place as usize]);
            *next.expect("more operations than recorded") == t.slot
        };
        let due = log.due.lock().unwrap();
        let mut due = log.turn.wait_while(due, |d| !mine(d)).unwrap();
        due[place as usize] += 1;
        let r = operation();
        drop(due);
        log.turn.notify_all();
        r
    }

    fn claims<R>(t: &mut Block, search: impl FnOnce(&mut Block, u32) -> R) -> R {
        let first = t.slot;
        search(t, first)
    }
}

/// Memory whose threads are in no order.
pub struct Unordered<'a>(pub &'a mut Memory);

impl Order for Unordered<'_> {
    type Thread = Block;

    fn ordered<R>(_t: &mut Block, _object: u64, operation: impl FnOnce() -> R) -> R {
        operation()
    }

    fn claims<R>(t: &mut Block, search: impl FnOnce(&mut Block, u32) -> R) -> R {
        Memory::claims(t, search)
    }
}

impl Source for Unordered<'_> {
    fn registry(&self) -> &'static Registry {
        self.0.registry()
    }

    fn map(&mut self, t: &mut Block, len: u64) -> Option<u64> {
        self.0.map(t, len)
    }

    fn unmap(&mut self, t: &mut Block, address: u64, len: u64) {
        self.0.unmap(t, address, len);
    }

    fn remap(&mut self, t: &mut Block, address: u64, len: u64, new_len: u64) -> Option<u64> {
        self.0.remap(t, address, len, new_len)
    }

    fn corrupt(&mut self, t: &mut Block, what: &str) -> ! {
        self.0.corrupt(t, what)
    }
}
