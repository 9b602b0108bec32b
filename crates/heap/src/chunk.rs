//! Chunks: pieces of [`CHUNK`] bytes and alignment, cut into units, of which runs become slabs of blocks of one size.
//!
//! All that is known of a chunk and its slabs lies in its first unit, found from the address of any block by a mask. Blocks carry no
//! header; only a free one holds something: the link to the next, and its [`key`].

use crate::classes::{Class, CARVED_TOGETHER, CLASS};
use crate::{CHUNK, UNIT};
use core::mem::{offset_of, size_of};
use reprise_abi::layout::PAGE;

/// Units of a chunk, the first of which holds the chunk's own data.
pub const UNITS: usize = (CHUNK / UNIT) as usize;
/// In [`Chunk::first`], of the chunk's own unit: this is no chunk but the start of a large block.
pub const LARGE: u8 = 0xff;
/// Units that a chunk without slabs has free.
pub const ALL_FREE: u64 = !1;

/// In [`Slab::slow_at`]: frees are never slow.
pub const NEVER: u32 = u32::MAX;
/// Flag of a slab: its memory is as it was mapped, where no block was carved yet.
pub const PRISTINE: u8 = 1;
/// Flag of a slab: none of its blocks is free, and it is in no list.
pub const FULL: u8 = 2;

/// A run of units with blocks of one size.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Slab {
    /// First free block, 0: none.
    pub free: u64,
    /// Blocks that the program has, or that are on their way back from another thread.
    pub used: u32,
    /// A free that leaves as many used needs more than the short way.
    pub slow_at: u32,
    /// Address of the heap.
    pub heap: u64,
    /// See [`crate::classes::divides`].
    pub magic: u64,
    /// Bytes that blocks were made of so far.
    pub carved: u32,
    /// Bytes of all blocks.
    pub end: u32,
    /// Bytes of a block.
    pub size: u32,
    /// Blocks that there is room for.
    pub capacity: u16,
    /// Class.
    pub class: u8,
    /// [`PRISTINE`], [`FULL`].
    pub flags: u8,
    /// Neighbours in the list of its class, 0: none.
    pub next: u64,
    /// See `next`.
    pub prev: u64,
}

/// What lies at a chunk's start.
#[repr(C)]
pub struct Chunk {
    /// For each unit: the first unit of the slab that it belongs to, 0: none. Of the first: [`LARGE`] or 0.
    pub first: [u8; UNITS],
    /// The slabs, by their first unit (from 1 on).
    pub slabs: [Slab; UNITS - 1],
    /// Address of the heap.
    pub heap: u64,
    /// Units that are in no slab.
    pub free: u64,
    /// Units that never were in one.
    pub fresh: u64,
    /// Length of the longest run of free units.
    pub longest: u32,
    _pad: u32,
    /// Neighbours in the list of chunks with as long runs, 0: none.
    pub next: u64,
    /// See `next`.
    pub prev: u64,
}

/// Where a heap's own data lies in its first chunk.
pub const HEAP_OFFSET: u64 = size_of::<Chunk>() as u64;

const _: () = {
    assert!(size_of::<Slab>() == 64);
    assert!(offset_of!(Chunk, slabs) == 64);
    assert!(offset_of!(Chunk, heap) == PAGE as usize);
    assert!(UNITS == 64);
};

/// What the second word of the free block at this address holds.
#[inline(always)]
pub const fn key(block: u64) -> u64 {
    block ^ 0x9d3f_61c2_a857_0eb4
}

/// Reads a word.
///
/// # Safety
/// The address must be readable, and nobody write to it meanwhile.
#[inline(always)]
pub unsafe fn word(address: u64) -> u64 {
    // SAFETY: as the caller says.
    unsafe { *(address as *const u64) }
}

/// Writes a word.
///
/// # Safety
/// The address must be writable, and nobody else use it meanwhile.
#[inline(always)]
pub unsafe fn set_word(address: u64, value: u64) {
    // SAFETY: as the caller says.
    unsafe { *(address as *mut u64) = value }
}

/// The address of the chunk, or of the large block's header, that the block at `p` (not 0) belongs to. No block starts where a chunk
/// does, unless it is a large one, whose header is in the chunk before.
#[inline(always)]
pub const fn chunk_of(p: u64) -> u64 {
    (p - 1) & !(CHUNK - 1)
}

/// The slab of the block at `p`, and the offset of `p` in it. `None`: there is no slab.
///
/// # Safety
/// The chunk of `p` must be one ([`crate::registry::Registry::knows`]).
#[inline(always)]
pub unsafe fn slab_of(p: u64) -> Option<(*mut Slab, u64)> {
    let chunk = chunk_of(p);
    let unit = p / UNIT % UNITS as u64;
    // SAFETY: as the caller says. The byte doesn't change as long as there are blocks in the unit.
    let first = unsafe { *((chunk + unit) as *const u8) } as u64;
    if first.wrapping_sub(1) >= UNITS as u64 - 1 {
        return None;
    }
    Some((
        (chunk + first * size_of::<Slab>() as u64) as *mut Slab,
        p - chunk - first * UNIT,
    ))
}

/// Address of a slab's first block.
pub fn slab_start(slab: u64) -> u64 {
    let chunk = slab & !(CHUNK - 1);
    chunk + (slab - chunk) / size_of::<Slab>() as u64 * UNIT
}

/// The lowest run of `n` units (1 to 63) among these.
pub fn find_run(free: u64, n: u32) -> Option<u32> {
    let (mut starts, mut have) = (free, 1);
    while have < n && starts != 0 {
        let more = have.min(n - have);
        starts &= starts >> more;
        have += more;
    }
    (starts != 0).then(|| starts.trailing_zeros())
}

/// Length of the longest run.
pub fn longest_run(mut free: u64) -> u32 {
    let mut n = 0;
    while free != 0 {
        free &= free << 1;
        n += 1;
    }
    n
}

/// As many ones as a run has units, at its place.
fn run_mask(start: u32, n: u32) -> u64 {
    ((1u64 << n) - 1) << start
}

impl Slab {
    /// A slab that has nothing and never gets anything: the current one of a class that has no other.
    pub const NONE: Slab = Slab {
        free: 0,
        used: 0,
        slow_at: NEVER,
        heap: 0,
        magic: 0,
        carved: 0,
        end: 0,
        size: 0,
        capacity: 0,
        class: 0,
        flags: 0,
        next: 0,
        prev: 0,
    };

    /// Makes blocks of memory that was none yet, when no block is free: to the end of a page, so that no page is touched before it is
    /// needed. Is there a free one now?
    pub fn carve(&mut self, start: u64) -> bool {
        if self.carved == self.end {
            return false;
        }
        let n = if self.size <= CARVED_TOGETHER {
            let to_page_end = PAGE as u32 - self.carved % PAGE as u32;
            let left = (self.end - self.carved) / self.size;
            to_page_end.div_ceil(self.size).min(left)
        } else {
            1
        };
        let first = start + self.carved as u64;
        let mut at = first;
        for i in 0..n {
            let next = if i + 1 < n { at + self.size as u64 } else { 0 };
            // SAFETY: memory of this slab that no block has yet.
            unsafe {
                set_word(at, next);
                set_word(at + 8, key(at));
            }
            at = next;
        }
        self.free = first;
        self.carved += n * self.size;
        true
    }
}

impl Chunk {
    /// Makes fresh memory a chunk of a heap.
    ///
    /// # Safety
    /// `address` must be [`CHUNK`] bytes of zeros, aligned as much, that nobody uses.
    pub unsafe fn make(address: u64, heap: u64) -> &'static mut Chunk {
        // SAFETY: as the caller says; zeros are a valid chunk.
        let chunk = unsafe { &mut *(address as *mut Chunk) };
        chunk.heap = heap;
        chunk.free = ALL_FREE;
        chunk.fresh = ALL_FREE;
        chunk.longest = UNITS as u32 - 1;
        chunk
    }

    /// Makes a slab of the run that starts at unit `start`.
    pub fn take(&mut self, start: u32, class: usize) -> *mut Slab {
        let Class {
            magic,
            size,
            capacity,
            units,
        } = CLASS[class];
        let mask = run_mask(start, units as u32);
        debug_assert!(self.free & mask == mask && start > 0);
        let pristine = self.fresh & mask == mask;
        self.free &= !mask;
        self.fresh &= !mask;
        self.longest = longest_run(self.free);
        let run = start as usize..start as usize + units as usize;
        self.first[run].fill(start as u8);
        let slab = &mut self.slabs[start as usize - 1];
        *slab = Slab {
            heap: self.heap,
            magic,
            end: size * capacity as u32,
            size,
            capacity,
            class: class as u8,
            flags: if pristine { PRISTINE } else { 0 },
            ..Slab::NONE
        };
        slab
    }

    /// Takes the run of a slab back.
    pub fn give(&mut self, slab: u64) {
        let start = ((slab - self as *const Chunk as u64) / size_of::<Slab>() as u64) as u32;
        let class = self.slabs[start as usize - 1].class as usize;
        let units = CLASS[class].units as u32;
        let run = start as usize..(start + units) as usize;
        self.first[run].fill(0);
        self.free |= run_mask(start, units);
        self.longest = longest_run(self.free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_found_as_by_counting(free: u64, sparse: u64, n in 1u32..64) {
            for free in [free, free | sparse, free & sparse, !0, ALL_FREE, 0] {
                let fits = |s: u32| s + n <= 64 && (s..s + n).all(|i| free >> i & 1 == 1);
                prop_assert_eq!(find_run(free, n), (0..64).find(|&s| fits(s)));
                prop_assert_eq!(find_run(free, n).is_some(), longest_run(free) >= n);
            }
        }
    }

    #[test]
    fn blocks_at_the_edges_of_units_find_their_slab() {
        let memory = crate::testing::aligned(2 * CHUNK);
        // SAFETY: fresh zeros of this test.
        let chunk = unsafe { Chunk::make(memory, 7) };
        let class = crate::classes::class_of(256 << 10);
        let slab = chunk.take(48, class);
        let start = memory + 48 * UNIT;
        assert_eq!(slab_start(slab as u64), start);
        // SAFETY: the chunk is one.
        unsafe {
            assert_eq!(slab_of(start), Some((slab, 0)));
            assert_eq!(slab_of(start + UNIT - 1), Some((slab, UNIT - 1)));
            assert_eq!(slab_of(start + UNIT), Some((slab, UNIT)));
            assert_eq!(slab_of(memory + CHUNK - 1), Some((slab, 16 * UNIT - 1)));
            assert_eq!(slab_of(start - 1), None);
            assert_eq!(slab_of(memory + CHUNK), None, "belongs to the first unit");
            assert_eq!(slab_of(memory + 100), None);
        }
        assert_eq!((chunk.longest, chunk.free >> 48), (47, 0));
        chunk.give(slab as u64);
        assert_eq!((chunk.longest, chunk.free), (63, ALL_FREE));
        assert_eq!(chunk.fresh, ALL_FREE & !(0xffff << 48));
    }
}
