//! A thread's heap: its current slabs, the others that have free blocks, its chunks.
//!
//! Only the owner of its place changes a heap, and what it does depends on the heap and on what it is asked for, nothing else.

use crate::chunk::{find_run, slab_of, slab_start, Chunk, Slab};
use crate::chunk::{ALL_FREE, FULL, HEAP_OFFSET, NEVER, PRISTINE, UNITS};
use crate::classes::{CARVED_TOGETHER, CLASS, CLASSES};
use crate::{large, remote, Source, CHUNK};
use core::mem::size_of;

/// The most chunks that are mapped at once.
const SPAN_MAX: u64 = 32;
/// Chunks without blocks that a heap keeps, if it has not four times as many others.
const EMPTY_KEPT: u32 = 8;
/// Chunks without blocks that stay with a heap whose thread has ended.
const EMPTY_LEFT: u32 = 1;
/// Largest slab of which a class keeps one that is empty.
const KEPT_SLAB: u32 = 16 << 10;
/// Chunks that are looked at for one that fits well.
const LOOKS: u32 = 8;
/// Lists of chunks, by the power of two of their longest run of free units; the last is that of chunks without blocks.
const BINS: usize = 8;

/// The current slab of a class that has none.
static NONE: Slab = Slab::NONE;

fn none() -> u64 {
    &raw const NONE as u64
}

#[derive(Clone, Copy)]
struct List {
    first: u64,
    last: u64,
}

/// A thread's heap. It lies in its own first chunk.
pub struct Heap {
    /// Addresses of the slabs that blocks are taken from, one for each class. They are in no list.
    pub current: [u64; CLASSES],
    /// Number of its place.
    pub place: u32,
    /// It was another thread's when this process was forked: nobody takes blocks back any more.
    pub abandoned: bool,
    /// Slabs with used and free blocks, for each class.
    partial: [List; CLASSES],
    /// Chunks with free units.
    bins: [u64; BINS],
    /// Chunks that are mapped and not made yet.
    span: (u64, u64),
    chunks: u32,
    empty: u32,
    /// Blocks on their way to other heaps.
    pub outboxes: remote::Outboxes,
    /// Large blocks that may serve again.
    pub large: large::Cache,
}

const _: () = assert!(HEAP_OFFSET as usize + size_of::<Heap>() <= 2 * 4096);

fn bin(longest: u32) -> Option<usize> {
    match longest {
        0 => None,
        n if n == UNITS as u32 - 1 => Some(BINS - 1),
        n => Some(n.ilog2() as usize),
    }
}

fn slab(address: u64) -> &'static mut Slab {
    // SAFETY: addresses of slabs come from `Chunk::take` and are dropped in `Chunk::give`; the owner alone follows them.
    unsafe { &mut *(address as *mut Slab) }
}

fn chunk(address: u64) -> &'static mut Chunk {
    // SAFETY: likewise, of chunks that the heap has.
    unsafe { &mut *((address & !(CHUNK - 1)) as *mut Chunk) }
}

impl Heap {
    /// The heap at this address.
    ///
    /// # Safety
    /// It must be a heap's address, and the caller own its place or only read.
    #[inline(always)]
    pub unsafe fn at(address: u64) -> &'static mut Heap {
        // SAFETY: as the caller says.
        unsafe { &mut *(address as *mut Heap) }
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self as *const Heap as u64
    }

    /// A new heap, in a chunk of its own.
    pub fn create<S: Source>(
        t: &mut S::Thread,
        source: &mut S,
        place: u32,
    ) -> Option<&'static mut Heap> {
        let base = source.map(t, CHUNK)?;
        let address = base + HEAP_OFFSET;
        // SAFETY: fresh memory; zeros are a valid heap.
        let heap = unsafe {
            Chunk::make(base, address);
            Heap::at(address)
        };
        source.registry().add(base);
        heap.place = place;
        heap.current = [none(); CLASSES];
        heap.chunks = 1;
        heap.bin_in(chunk(base));
        Some(heap)
    }

    /// Sees to it that the current slab of a class has a free block. Whether its first is memory as it was mapped, but for the first
    /// two words; `None`: there is no memory.
    #[cold]
    #[inline(never)]
    pub fn refill<S: Source>(
        &mut self,
        t: &mut S::Thread,
        source: &mut S,
        class: usize,
    ) -> Option<bool> {
        let current = slab(self.current[class]);
        if current.free != 0 {
            return Some(false);
        }
        if let Some(fresh) = carved(current) {
            return Some(fresh);
        }
        if self.next_partial(class) {
            return Some(false);
        }
        // Here, and nowhere else, blocks come back that others freed: a place in the program's own course.
        self.drain(t, source);
        if slab(self.current[class]).free != 0 || self.next_partial(class) {
            return Some(false);
        }
        let new = self.new_slab(t, source, class)?;
        self.set_current(class, new);
        carved(slab(new))
    }

    /// Takes back what other threads freed.
    pub fn drain<S: Source>(&mut self, t: &mut S::Thread, source: &mut S) {
        let place = source.registry().place(self.place);
        let chain = S::taken(t, place.object(), || place.take());
        self.absorb(t, source, chain);
    }

    /// Takes back a chain of blocks.
    pub fn absorb<S: Source>(&mut self, t: &mut S::Thread, source: &mut S, chain: u64) {
        let mut p = chain;
        while p != 0 {
            // SAFETY: a free block of this heap.
            let (next, found) = unsafe { (crate::chunk::word(p), slab_of(p)) };
            let Some((found, _)) = found else {
                source.corrupt(t, crate::INVALID_POINTER);
            };
            let s = slab(found as u64);
            // SAFETY: likewise; it has its key.
            unsafe { crate::chunk::set_word(p, s.free) };
            s.free = p;
            s.used -= 1;
            if s.used == s.slow_at {
                self.settle(t, source, found);
            }
            p = next;
        }
    }

    /// After a free that left as many used blocks as the slab said: finds its new state.
    #[cold]
    #[inline(never)]
    pub fn settle<S: Source>(&mut self, t: &mut S::Thread, source: &mut S, address: *mut Slab) {
        let address = address as u64;
        let s = slab(address);
        let was_full = s.flags & FULL != 0;
        s.flags &= !FULL;
        s.slow_at = 0;
        if s.used > 0 {
            self.push_partial(address);
            return;
        }
        let list = self.partial[s.class as usize];
        let others = if was_full { 0 } else { address };
        if list.first == others && list.last == others && s.end <= KEPT_SLAB {
            if was_full {
                self.push_partial(address);
            }
            return;
        }
        if !was_full {
            self.unlink_partial(address);
        }
        self.release(address);
        self.trim(t, source, EMPTY_KEPT.max(self.chunks / 4));
    }

    /// Returns chunks without blocks to the system until no more than `keep` are left.
    fn trim<S: Source>(&mut self, t: &mut S::Thread, source: &mut S, keep: u32) {
        let home = self.address() & !(CHUNK - 1);
        while self.empty > keep {
            let mut at = self.bins[BINS - 1];
            if at == home {
                at = chunk(at).next;
            }
            if at == 0 {
                return;
            }
            self.bin_out(chunk(at));
            self.chunks -= 1;
            source.registry().remove(at);
            source.unmap(t, at, CHUNK);
        }
    }

    /// Before its thread leaves it: gives up whatever is kept for speed.
    pub fn shrink<S: Source>(&mut self, t: &mut S::Thread, source: &mut S) {
        self.large.clear(t, source);
        for class in 0..CLASSES {
            let current = self.current[class];
            if current != none() && slab(current).used == 0 {
                self.current[class] = none();
                self.release(current);
            }
            let mut at = self.partial[class].first;
            while at != 0 {
                let next = slab(at).next;
                if slab(at).used == 0 {
                    self.unlink_partial(at);
                    self.release(at);
                }
                at = next;
            }
        }
        self.trim(t, source, EMPTY_LEFT);
    }

    /// Chunks that it has.
    #[cfg(test)]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Blocks of its current slabs and of those in lists that are not free.
    #[cfg(test)]
    pub fn used_blocks(&self) -> u32 {
        let mut used = self.current.iter().map(|&s| slab(s).used).sum();
        for list in &self.partial {
            let mut at = list.first;
            while at != 0 {
                used += slab(at).used;
                at = slab(at).next;
            }
        }
        used
    }

    fn set_current(&mut self, class: usize, new: u64) {
        let old = self.current[class];
        if old != none() {
            let s = slab(old);
            debug_assert!(s.used == s.capacity as u32 && s.carved == s.end);
            s.flags |= FULL;
            s.slow_at = s.capacity as u32 - 1;
        }
        slab(new).slow_at = NEVER;
        self.current[class] = new;
    }

    /// Makes a slab the current one that has free blocks: the first of the list.
    fn next_partial(&mut self, class: usize) -> bool {
        let first = self.partial[class].first;
        if first == 0 {
            return false;
        }
        self.unlink_partial(first);
        self.set_current(class, first);
        true
    }

    /// Small blocks: a slab that has just got a free block comes last, so that it has many when its turn comes. Larger ones: it comes
    /// first, so that few slabs are used, and others get empty.
    fn push_partial(&mut self, address: u64) {
        let s = slab(address);
        let list = &mut self.partial[s.class as usize];
        if s.size <= CARVED_TOGETHER {
            (s.prev, s.next) = (list.last, 0);
        } else {
            (s.prev, s.next) = (0, list.first);
        }
        match s.prev {
            0 => list.first = address,
            prev => slab(prev).next = address,
        }
        match s.next {
            0 => list.last = address,
            next => slab(next).prev = address,
        }
    }

    fn unlink_partial(&mut self, address: u64) {
        let (class, next, prev) = {
            let s = slab(address);
            (s.class as usize, s.next, s.prev)
        };
        let list = &mut self.partial[class];
        match prev {
            0 => list.first = next,
            prev => slab(prev).next = next,
        }
        match next {
            0 => list.last = prev,
            next => slab(next).prev = prev,
        }
    }

    fn new_slab<S: Source>(
        &mut self,
        t: &mut S::Thread,
        source: &mut S,
        class: usize,
    ) -> Option<u64> {
        let units = CLASS[class].units as u32;
        let c = match self.find_chunk(units) {
            Some(found) => found,
            None => self.new_chunk(t, source)?,
        };
        let start = find_run(c.free, units)?;
        self.bin_out(c);
        let new = c.take(start, class) as u64;
        self.bin_in(c);
        Some(new)
    }

    fn release(&mut self, address: u64) {
        let c = chunk(address);
        self.bin_out(c);
        c.give(address);
        self.bin_in(c);
    }

    /// A chunk with a run of so many units, rather one that has no longer runs.
    fn find_chunk(&self, units: u32) -> Option<&'static mut Chunk> {
        let lowest = units.ilog2() as usize;
        let mut at = self.bins[lowest];
        for _ in 0..LOOKS {
            if at == 0 {
                break;
            }
            if chunk(at).longest >= units {
                return Some(chunk(at));
            }
            at = chunk(at).next;
        }
        let longer = &self.bins[lowest + 1..];
        longer.iter().find(|&&c| c != 0).map(|&c| chunk(c))
    }

    fn new_chunk<S: Source>(
        &mut self,
        t: &mut S::Thread,
        source: &mut S,
    ) -> Option<&'static mut Chunk> {
        if self.span.0 == self.span.1 {
            let len = (self.chunks as u64 / 2).clamp(1, SPAN_MAX) * CHUNK;
            let mapped = source.map(t, len).map(|at| (at, at + len));
            self.span = match mapped {
                Some(span) => span,
                None if len > CHUNK => {
                    let at = source.map(t, CHUNK)?;
                    (at, at + CHUNK)
                }
                None => return None,
            };
        }
        let base = self.span.0;
        self.span.0 += CHUNK;
        // SAFETY: mapped above, or with an earlier chunk.
        let c = unsafe { Chunk::make(base, self.address()) };
        source.registry().add(base);
        self.chunks += 1;
        self.bin_in(c);
        Some(c)
    }

    fn bin_in(&mut self, c: &mut Chunk) {
        let Some(i) = bin(c.longest) else { return };
        self.empty += (c.free == ALL_FREE) as u32;
        let address = c as *mut Chunk as u64;
        (c.prev, c.next) = (0, self.bins[i]);
        if c.next != 0 {
            chunk(c.next).prev = address;
        }
        self.bins[i] = address;
    }

    fn bin_out(&mut self, c: &mut Chunk) {
        let Some(i) = bin(c.longest) else { return };
        self.empty -= (c.free == ALL_FREE) as u32;
        match c.prev {
            0 => self.bins[i] = c.next,
            prev => chunk(prev).next = c.next,
        }
        if c.next != 0 {
            chunk(c.next).prev = c.prev;
        }
    }
}

/// Carves more blocks: is the first of them memory as it was mapped? `None`: there is no room.
fn carved(s: &mut Slab) -> Option<bool> {
    let start = slab_start(s as *const Slab as u64);
    s.carve(start)
        .then_some(s.flags & PRISTINE != 0 && s.size > CARVED_TOGETHER)
}
