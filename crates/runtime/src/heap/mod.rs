//! The program's memory as the allocator ([`reprise_heap`]) knows it: its threads, where memory comes from, who orders.
//!
//! Memory comes by calls that shape the address space, which every engine orders: they are made here in the program's name, and logged as its own.

use crate::dispatch::with_engine;
use crate::engine::order::Order;
use crate::engine::Engine;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::Block;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::syscalls::{self, nr};
use reprise_heap::registry::{Registry, REGISTRY_LEN};
use reprise_heap::{api, Source, CHUNK};

const SIGABRT: u32 = 6;

/// Where the registry of all heaps lies; 0: not made yet.
static REGISTRY: AtomicU64 = AtomicU64::new(0);

/// Makes what all heaps share, before the first of them. False: there is no memory for it.
pub fn prepare() -> bool {
    if REGISTRY.load(Acquire) == 0 {
        let Some(at) = crate::memory::scratch::table(REGISTRY_LEN) else {
            return false;
        };
        REGISTRY.store(at, Release);
    }
    true
}

/// What all heaps share: where it lies, and its bytes.
pub fn table() -> (u64, u64) {
    (REGISTRY.load(Relaxed), REGISTRY_LEN)
}

#[inline(always)]
fn registry() -> &'static Registry {
    // SAFETY: made by `prepare`, never unmapped; all zero is a registry without heaps.
    unsafe { &*(REGISTRY.load(Relaxed) as *const Registry) }
}

impl reprise_heap::Thread for Block {
    #[inline(always)]
    fn heap(&self) -> u64 {
        self.heap
    }

    #[inline(always)]
    fn set_heap(&mut self, heap: u64) {
        self.heap = heap;
    }
}

/// Memory from the kernel, by calls in the program's name; threads are in the order of `O`.
pub struct Calls<O>(PhantomData<O>);

impl<O> Calls<O> {
    /// They, in that order.
    #[inline(always)]
    pub fn in_order() -> Calls<O> {
        Calls(PhantomData)
    }
}

impl<O: Order> reprise_heap::Order for Calls<O> {
    type Thread = Block;

    #[inline(always)]
    fn ordered<R>(t: &mut Block, object: u64, operation: impl FnOnce() -> R) -> R {
        O::ordered(t, object, operation)
    }

    #[inline(always)]
    fn taken<R>(t: &mut Block, object: u64, operation: impl FnOnce() -> R) -> R {
        O::taken(t, object, operation)
    }

    #[inline(always)]
    fn claims<R>(t: &mut Block, search: impl FnOnce(&mut Block, u32) -> R) -> R {
        O::claims(t, search)
    }
}

fn call(t: &mut Block, number: u64, args: [u64; 6]) -> i64 {
    let mut c = Call::new(number, args, syscalls::lookup(number));
    with_engine!(E => E::address_space(t, &mut c))
}

impl<O: Order> Source for Calls<O> {
    #[inline(always)]
    fn registry(&self) -> &'static Registry {
        registry()
    }

    fn map(&mut self, t: &mut Block, len: u64) -> Option<u64> {
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS;
        let room = len.checked_add(CHUNK)?;
        with_engine!(E => E::with_new_memory(t, |t| {
            let at = call(t, nr::MMAP, [0, room, sys::PROT_RW, flags, u64::MAX, 0]);
            if sys::is_error(at) {
                return None;
            }
            // Of the room one place is at a multiple of the chunk; what lies around it goes back.
            let at = at as u64;
            let start = at.next_multiple_of(CHUNK);
            self.unmap(t, at, start - at);
            self.unmap(t, start + len, at + room - (start + len));
            Some(start)
        }))
    }

    fn unmap(&mut self, t: &mut Block, address: u64, len: u64) {
        if len != 0 {
            call(t, nr::MUNMAP, [address, len, 0, 0, 0, 0]);
        }
    }

    fn remap(&mut self, t: &mut Block, address: u64, len: u64, new_len: u64) -> Option<u64> {
        // In its place or not at all: another place need not be at a multiple of the chunk.
        let r = call(t, nr::MREMAP, [address, len, new_len, 0, 0, 0]);
        (r == address as i64).then_some(address)
    }

    fn corrupt(&mut self, t: &mut Block, what: &str) -> ! {
        for text in [what, "\n"] {
            sys::write(2, text.as_ptr() as u64, text.len() as u64);
        }
        with_engine!(E => E::process_dies(t, SIGABRT));
        kernel::die_now(SIGABRT)
    }
}

/// Is this address in memory of the allocator? Not for all of large blocks.
pub fn has(address: u64) -> bool {
    REGISTRY.load(Relaxed) != 0 && api::owns(registry(), address)
}

/// In the copy of a memory that fork(2) made.
pub fn after_fork(t: &mut Block) {
    if REGISTRY.load(Relaxed) != 0 {
        api::forked(t, registry());
    }
}
