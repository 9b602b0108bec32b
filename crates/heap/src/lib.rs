//! The deterministic allocator: what malloc and its family lead to under engines that let threads run freely, and under `serial` when
//! that is to run what such an engine has run (DESIGN 5).
//!
//! glibc's reads some of its state without any lock, and shares arenas between threads: in a replay other addresses would come out. Here
//! every thread has a heap of its own, and an address depends on three things only:
//!
//! 1. what the thread asked for and freed before: a heap is changed by its owner alone, without looking at anything else;
//! 2. where the system mapped memory: [`Source`], which the engine makes ordered and logged;
//! 3. which blocks other threads had freed when the owner looked: [`remote`], ordered by the heap's place ([`Order`]).
//!
//! - [`classes`]: sizes of small blocks. [`chunk`]: the memory they lie in, and what is known of it.
//! - [`own`]: a thread's heap. [`registry`]: all heaps of a memory, their places.
//! - [`large`]: blocks with a mapping of their own. [`remote`]: blocks that go back to another thread's heap.
//! - [`api`]: what hooks call.
//!
//! **Where things lie.** Chunks, with the heaps and all that is known of blocks, are private memory of the program, mapped by the source.
//! The registry is private memory of the runtime. So a fork copies everything. In the child the heap of the thread that
//! forked goes on ([`api::forked`]); those of other threads may have been in the middle of a change, and are given up: their blocks can
//! be used and freed, but serve no more.
//!
//! **What is detected.** A pointer that is no block's start, and a block that is freed while it is free, are reported as glibc does.
//! The second is known by the [`chunk::key`] in the block's second word; a program that writes there first is not caught.
//!
//! **Costs.** malloc and free of the thread's own small blocks pop and push a list, without a locked instruction. A block of another thread
//! costs a link, and one ordered operation for [`remote::BATCH`] of them; a slab that is used up costs one.
//!
//! **What it needs.** [`Thread`], [`Order`] and [`Source`], which are the runtime's; by itself it makes no system call and knows no engine.

#![cfg_attr(not(test), no_std)]

#[cfg(test)]
extern crate std;

pub mod api;
pub mod chunk;
pub mod classes;
pub mod large;
pub mod own;
pub mod registry;
pub mod remote;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

/// Size and alignment of a chunk, and the least that is asked of the system.
pub const CHUNK: u64 = 1 << 20;
/// Unit of slabs.
pub const UNIT: u64 = 16 << 10;

/// What glibc says of a pointer that is no block.
pub const INVALID_POINTER: &str = "free(): invalid pointer";
/// What glibc says of a block that is free already.
pub const DOUBLE_FREE: &str = "free(): double free detected";

/// A thread of the program.
pub trait Thread {
    /// Address of its heap; 0: it has none yet.
    fn heap(&self) -> u64;
    /// Its heap is this one from now on.
    fn set_heap(&mut self, heap: u64);
}

/// Who orders what threads do to each other's heaps. A replay makes these operations in the order in which they were recorded.
pub trait Order {
    /// A thread, as whoever orders knows it.
    type Thread: Thread;
    /// Makes a short operation on the object at this address, one thread at a time.
    fn ordered<R>(t: &mut Self::Thread, object: u64, operation: impl FnOnce() -> R) -> R;
    /// As [`Order::ordered`], where the thread takes what others have left for it, and leaves nothing for them.
    #[inline(always)]
    fn taken<R>(t: &mut Self::Thread, object: u64, operation: impl FnOnce() -> R) -> R {
        Self::ordered(t, object, operation)
    }
    /// Searches for a place for the calling thread's heap, from the number on that `search` is given.
    fn claims<R>(t: &mut Self::Thread, search: impl FnOnce(&mut Self::Thread, u32) -> R) -> R;
}

/// Where memory comes from. An engine makes each of these calls, but the first and the last, an operation on the address space, ordered
/// and logged as the program's own mmap and munmap; in a replay the same addresses come out.
pub trait Source: Order {
    /// The registry of this memory.
    fn registry(&self) -> &'static registry::Registry;
    /// Private memory, all zero, readable and writable, at a multiple of [`CHUNK`]; `len` is one of pages. `None`: there is none.
    fn map(&mut self, t: &mut Self::Thread, len: u64) -> Option<u64>;
    /// Returns memory, or pages of it, to the system.
    fn unmap(&mut self, t: &mut Self::Thread, address: u64, len: u64);
    /// Makes what was mapped at `address` longer or shorter, keeping its contents: in its place, or at another multiple of [`CHUNK`].
    /// New bytes are zero. `None`: it can't, and nothing has changed.
    fn remap(&mut self, t: &mut Self::Thread, address: u64, len: u64, new_len: u64) -> Option<u64>;
    /// Ends the program, which misused its memory, as abort(3) does, with this message.
    fn corrupt(&mut self, t: &mut Self::Thread, what: &str) -> !;
}
