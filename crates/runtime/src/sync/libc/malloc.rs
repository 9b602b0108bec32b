//! `malloc` and its family, by the runtime's own allocator ([`reprise_heap`]), whose addresses depend on nothing but what is recorded.
//!
//! **Order.** A thread has a heap of its own; blocks that others give back come under [`Order::ordered`], memory by [`Calls`].

use super::errno;
use crate::engine::order::Order;
use crate::heap::Calls;
use crate::races;
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use reprise_heap::api::{self, ENOMEM};

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
        races::allocated(
            address,
            api::usable_size(t, &mut Calls::<O>::in_order(), address),
        );
    }
    address
}

/// It is given back.
#[inline(always)]
fn ends<O: Order>(t: &mut Block, f: &Frame, address: u64) {
    if O::REPLAYS && crate::thread::in_force::looks_for_races() && address != 0 {
        let size = api::usable_size(t, &mut Calls::<O>::in_order(), address);
        races::frees(t, f, address, size);
    }
}

/// `malloc(size)`
pub fn malloc<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let p = api::malloc(t, &mut Calls::<O>::in_order(), f.rdi);
    memory::<O>(t, p)
}

/// `calloc(count, size)`
pub fn calloc<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let p = api::calloc(t, &mut Calls::<O>::in_order(), f.rdi, f.rsi);
    memory::<O>(t, p)
}

/// `realloc(block, size)`. No memory and no block are told apart by the size, as glibc does.
pub fn realloc<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    ends::<O>(t, f, f.rdi);
    let p = api::realloc(t, &mut Calls::<O>::in_order(), f.rdi, f.rsi);
    if p == 0 && f.rdi != 0 && f.rsi == 0 {
        return Done::value(0);
    }
    memory::<O>(t, p)
}

/// `free(block)`
pub fn free<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    ends::<O>(t, f, f.rdi);
    api::free(t, &mut Calls::<O>::in_order(), f.rdi);
    Done::value(0)
}

/// `memalign(alignment, size)`, `aligned_alloc(alignment, size)`
pub fn memalign<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    match api::memalign(t, &mut Calls::<O>::in_order(), f.rdi, f.rsi) {
        Ok(p) => Done::value(begins::<O>(t, p)),
        Err(e) => {
            errno::set(t, e);
            Done::value(0)
        }
    }
}

/// `posix_memalign(place, alignment, size)`
pub fn posix_memalign<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    match api::posix_memalign(t, &mut Calls::<O>::in_order(), f.rsi, f.rdx) {
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
    Done::value(api::usable_size(t, &mut Calls::<O>::in_order(), f.rdi))
}

/// The calling thread ends: what it has of others' goes back.
pub fn thread_ends<O: Order>(t: &mut Block) {
    if t.heap != 0 {
        api::end(t, &mut Calls::<O>::in_order());
    }
}
