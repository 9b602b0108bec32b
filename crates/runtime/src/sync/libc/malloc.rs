//! `malloc` and its family, by the runtime's own allocator ([`crate::heap`]), whose addresses depend on nothing but what is recorded.
//!
//! **Order.** A thread has a heap of its own; blocks that others give back come under [`Order::ordered`]. Memory comes by calls that shape the
//! address space, which every engine orders: they are made here in the program's name, and logged as its own.

use super::errno;
use crate::dispatch::with_engine;
use crate::engine::order::Order;
use crate::engine::Engine;
use crate::heap::api::ENOMEM;
use crate::heap::chunk::chunk_of;
use crate::heap::registry::{Registry, REGISTRY_LEN};
use crate::heap::{api, Source, CHUNK};
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::races;
use crate::signal::kernel;
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::syscalls::{self, nr};

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

/// Memory from the kernel, by calls in the program's name.
struct Calls;

fn call(t: &mut Block, number: u64, args: [u64; 6]) -> i64 {
    let mut c = Call::new(number, args, syscalls::lookup(number));
    with_engine!(E => E::address_space(t, &mut c))
}

impl Source for Calls {
    fn registry(&self) -> &'static Registry {
        // SAFETY: made by `prepare`, never unmapped; all zero is a registry without heaps.
        unsafe { &*(REGISTRY.load(Relaxed) as *const Registry) }
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

/// An address, or none for lack of memory.
fn memory<O: Order>(t: &mut Block, address: u64) -> Done {
    if address == 0 {
        errno::set(t, ENOMEM);
    }
    Done::value(begins::<O>(t, address))
}

/// A block begins to be used, for a replay that looks for races; its address.
#[inline(always)]
fn begins<O: Order>(t: &mut Block, address: u64) -> u64 {
    if O::REPLAYS && crate::thread::in_force::looks_for_races() && address != 0 {
        races::allocated(address, api::usable_size(t, &mut Calls, address));
    }
    address
}

/// It is given back.
#[inline(always)]
fn ends<O: Order>(t: &mut Block, f: &Frame, address: u64) {
    if O::REPLAYS && crate::thread::in_force::looks_for_races() && address != 0 {
        let size = api::usable_size(t, &mut Calls, address);
        races::frees(t, f, address, size);
    }
}

/// `malloc(size)`
pub fn malloc<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let p = api::malloc::<O, _>(t, &mut Calls, f.rdi);
    memory::<O>(t, p)
}

/// `calloc(count, size)`
pub fn calloc<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let p = api::calloc::<O, _>(t, &mut Calls, f.rdi, f.rsi);
    memory::<O>(t, p)
}

/// `realloc(block, size)`. No memory and no block are told apart by the size, as glibc does.
pub fn realloc<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    ends::<O>(t, f, f.rdi);
    let p = api::realloc::<O, _>(t, &mut Calls, f.rdi, f.rsi);
    if p == 0 && f.rdi != 0 && f.rsi == 0 {
        return Done::value(0);
    }
    memory::<O>(t, p)
}

/// `free(block)`
pub fn free<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    ends::<O>(t, f, f.rdi);
    api::free::<O, _>(t, &mut Calls, f.rdi);
    Done::value(0)
}

/// `memalign(alignment, size)`, `aligned_alloc(alignment, size)`
pub fn memalign<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    match api::memalign::<O, _>(t, &mut Calls, f.rdi, f.rsi) {
        Ok(p) => Done::value(begins::<O>(t, p)),
        Err(e) => {
            errno::set(t, e);
            Done::value(0)
        }
    }
}

/// `posix_memalign(place, alignment, size)`
pub fn posix_memalign<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    match api::posix_memalign::<O, _>(t, &mut Calls, f.rsi, f.rdx) {
        Ok(p) => {
            begins::<O>(t, p);
            // SAFETY: the program's pointer: a fault is the program's.
            unsafe { core::ptr::write_volatile(f.rdi as *mut u64, p) };
            Done::value(0)
        }
        Err(e) => Done::errno(e),
    }
}

/// `valloc(size)`
pub fn valloc<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    f.rsi = f.rdi;
    f.rdi = reprise_abi::layout::PAGE;
    memalign::<O>(t, f)
}

/// `malloc_usable_size(block)`
pub fn usable_size<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    Done::value(api::usable_size(t, &mut Calls, f.rdi))
}

/// Is this address in memory of the allocator? Not for all of large blocks.
pub fn has(address: u64) -> bool {
    let made = REGISTRY.load(Relaxed) != 0;
    made && address != 0 && Calls.registry().knows(chunk_of(address))
}

/// In the copy of a memory that fork(2) made.
pub fn after_fork(t: &mut Block) {
    if REGISTRY.load(Relaxed) != 0 {
        api::forked(t, &mut Calls);
    }
}

/// The calling thread ends: what it has of others' goes back.
pub fn thread_ends<O: Order>(t: &mut Block) {
    if t.heap != 0 {
        api::end::<O, _>(t, &mut Calls);
    }
}
