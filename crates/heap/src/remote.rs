//! Blocks that go back to the heap of another thread.
//!
//! The freeing thread collects them in an outbox, one for each heap, and puts a batch at a time into the queue of the heap's place; the
//! owner takes the whole queue when a class has nothing free. Both are operations on one object, the place, under [`Order`](crate::Order): what lies in
//! the queue when the owner looks is decided by their order alone. When a batch is sent depends only on what its thread freed before. So
//! in a replay the owner finds the same blocks, linked in the same way, and gives out the same addresses afterwards.
//!
//! A batch of [`BATCH`] blocks costs one ordered operation, and up to [`BATCH_BYTES`] stay behind in the outbox of a thread that
//! frees nothing more. The end of a thread sends all.
//!
//! Where nobody owns the place (its thread has ended), the sender owns it for the moment and takes the blocks back itself.

use crate::chunk::{key, set_word, word, Slab};
use crate::own::Heap;
use crate::{Source, Thread, DOUBLE_FREE};

/// The most heaps that a thread collects blocks for at a time.
const OUTBOXES: usize = 8;
/// Blocks of a batch.
pub const BATCH: u32 = 64;
/// Bytes after which a batch is sent, however few blocks it has.
pub const BATCH_BYTES: u32 = 64 << 10;

#[derive(Clone, Copy)]
struct Outbox {
    /// Address of the heap that the blocks belong to.
    heap: u64,
    first: u64,
    last: u64,
    blocks: u32,
    bytes: u32,
}

/// What a thread has to send. All zero when there is nothing.
pub struct Outboxes([Outbox; OUTBOXES]);

const NOTHING: Outbox = Outbox {
    heap: 0,
    first: 0,
    last: 0,
    blocks: 0,
    bytes: 0,
};

impl Outboxes {
    /// Forgets what there is.
    pub fn forget(&mut self) {
        self.0 = [NOTHING; OUTBOXES];
    }
}

/// Frees a block of another thread's heap.
///
/// # Safety
/// `p` must be a multiple of the block size from the start of this slab.
#[cold]
#[inline(never)]
pub unsafe fn free<S: Source>(t: &mut S::Thread, source: &mut S, slab: *mut Slab, p: u64) {
    // SAFETY: the slab of a block that the program still has: what is read of it does not change.
    let (heap, size) = unsafe { ((*slab).heap, (*slab).size) };
    // SAFETY: a block that the program gives back.
    unsafe {
        if word(p + 8) == key(p) {
            source.corrupt(t, DOUBLE_FREE);
        }
        set_word(p + 8, key(p));
    }
    // SAFETY: only read, and changed by nobody while there are other threads.
    let to = unsafe { Heap::at(heap) };
    if to.abandoned {
        return;
    }
    if t.heap() == 0 {
        send(t, source, heap, p, p);
        return;
    }
    // SAFETY: the calling thread's own heap.
    let mine = unsafe { Heap::at(t.heap()) };
    let i = to.place as usize % OUTBOXES;
    if mine.outboxes.0[i].heap != heap {
        flush(t, source, i);
        mine.outboxes.0[i].heap = heap;
    }
    let o = &mut mine.outboxes.0[i];
    // SAFETY: the block is free.
    unsafe { set_word(p, o.first) };
    if o.blocks == 0 {
        o.last = p;
    }
    o.first = p;
    o.blocks += 1;
    o.bytes += size;
    if o.blocks == BATCH || o.bytes >= BATCH_BYTES {
        flush(t, source, i);
    }
}

/// Sends everything.
pub fn flush_all<S: Source>(t: &mut S::Thread, source: &mut S) {
    for i in 0..OUTBOXES {
        flush(t, source, i);
    }
}

fn flush<S: Source>(t: &mut S::Thread, source: &mut S, i: usize) {
    // SAFETY: the calling thread's own heap.
    let mine = unsafe { Heap::at(t.heap()) };
    let o = core::mem::replace(&mut mine.outboxes.0[i], NOTHING);
    if o.blocks != 0 {
        send(t, source, o.heap, o.first, o.last);
    }
}

/// Puts a chain of blocks into their heap's queue.
fn send<S: Source>(t: &mut S::Thread, source: &mut S, heap: u64, first: u64, last: u64) {
    // SAFETY: its number doesn't change.
    let n = unsafe { Heap::at(heap).place };
    let place = source.registry().place(n);
    // SAFETY: the blocks are of this heap, and free.
    let chain = S::ordered(t, place.object(), || unsafe { place.put(first, last) });
    if chain != 0 {
        // SAFETY: the place is now the caller's.
        leave(t, source, unsafe { Heap::at(heap) }, chain);
    }
}

/// Leaves a heap that the caller owns, after taking back this chain and whatever has come meanwhile.
pub fn leave<S: Source>(t: &mut S::Thread, source: &mut S, heap: &mut Heap, chain: u64) {
    let place = source.registry().place(heap.place);
    let mut chain = chain;
    loop {
        heap.absorb(t, source, chain);
        chain = S::ordered(t, place.object(), || place.leave());
        if chain == 0 {
            return;
        }
    }
}
