//! Large blocks: each has a mapping of its own, which begins with a header.
//!
//! They belong to no heap: whoever frees one unmaps it, or keeps it in the cache of its own heap. So nothing has to be ordered between
//! threads, besides the address-space calls themselves.

use crate::chunk::LARGE;
use crate::{Source, CHUNK, DOUBLE_FREE, INVALID_POINTER};
use reprise_abi::layout::PAGE;

/// Bytes before the block, where no greater alignment is asked for.
const HEADER: u64 = 128;
/// Mappings that a heap keeps.
const CACHED: usize = 16;
/// Bytes of them, in all.
const CACHED_BYTES: u64 = 32 << 20;
/// Largest one.
const CACHED_BLOCK: u64 = 16 << 20;
/// No larger block is ever asked for, PTRDIFF_MAX.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// What a mapping starts with. In place of a chunk's table of units: [`LARGE`], then zeros.
#[repr(C)]
struct Header {
    mark: [u8; 64],
    /// Bytes of the mapping.
    len: u64,
    /// Where the block is.
    block: u64,
    /// In a cache, not the program's.
    cached: bool,
}

const _: () = assert!(core::mem::size_of::<Header>() as u64 <= HEADER);

/// Mappings that may serve again, the oldest first.
pub struct Cache {
    held: [u64; CACHED],
    count: usize,
    bytes: u64,
}

fn header(base: u64) -> &'static mut Header {
    // SAFETY: callers come from a known chunk that is marked, or made it; a block's header is used by who has the block.
    unsafe { &mut *(base as *mut Header) }
}

/// The mapping of the large block at `p`, whose chunk is known and has no slab there. `None`: there is no such block.
fn of(p: u64) -> Option<&'static mut Header> {
    let h = header(crate::chunk::chunk_of(p));
    (h.mark[0] == LARGE && h.block == p).then_some(h)
}

impl Header {
    fn base(&self) -> u64 {
        self as *const Header as u64
    }

    fn usable(&self) -> u64 {
        self.base() + self.len - self.block
    }

    /// Bytes of a mapping that has the block at the same place, with so many bytes.
    fn need(&self, size: u64) -> u64 {
        (self.block - self.base() + size).next_multiple_of(PAGE)
    }
}

/// A block of `size` bytes (at most [`SIZE_MAX`]) at a multiple of `align`, and whether it is all zero.
pub fn allocate<S: Source>(
    t: &mut S::Thread,
    source: &mut S,
    cache: Option<&mut Cache>,
    size: u64,
    align: u64,
) -> Option<(u64, bool)> {
    if size > SIZE_MAX || align > SIZE_MAX {
        return None;
    }
    if align <= HEADER {
        let len = (HEADER + size).next_multiple_of(PAGE);
        if let Some(base) = cache.and_then(|c| c.take(t, source, len)) {
            header(base).cached = false;
            return Some((header(base).block, false));
        }
        let base = source.map(t, len)?;
        return Some((begin(source, base, len, base + HEADER), true));
    }
    if align < CHUNK {
        let len = (align + size).next_multiple_of(PAGE);
        let base = source.map(t, len)?;
        return Some((begin(source, base, len, base + align), true));
    }
    // The header is a chunk before the block; what is mapped around them goes back.
    let len = CHUNK + size.next_multiple_of(PAGE);
    let all = len.checked_add(align)?;
    let mapped = source.map(t, all)?;
    let block = (mapped + CHUNK).next_multiple_of(align);
    let base = block - CHUNK;
    for (from, to) in [(mapped, base), (base + len, mapped + all)] {
        if from < to {
            source.unmap(t, from, to - from);
        }
    }
    Some((begin(source, base, len, block), true))
}

fn begin<S: Source>(source: &S, base: u64, len: u64, block: u64) -> u64 {
    let h = header(base);
    h.mark[0] = LARGE;
    h.len = len;
    h.block = block;
    h.cached = false;
    source.registry().add(base);
    block
}

fn end<S: Source>(t: &mut S::Thread, source: &mut S, base: u64) {
    let len = header(base).len;
    source.registry().remove(base);
    source.unmap(t, base, len);
}

/// Frees the large block at `p`.
pub fn free<S: Source>(t: &mut S::Thread, source: &mut S, cache: Option<&mut Cache>, p: u64) {
    let Some(h) = of(p) else {
        source.corrupt(t, INVALID_POINTER);
    };
    if h.cached {
        source.corrupt(t, DOUBLE_FREE);
    }
    let base = h.base();
    match cache {
        Some(cache) if h.len <= CACHED_BLOCK && p == base + HEADER => {
            h.cached = true;
            cache.put(t, source, base);
        }
        _ => end(t, source, base),
    }
}

/// Bytes that the program may use of the large block at `p`; `None`: there is none.
pub fn usable_size(p: u64) -> Option<u64> {
    of(p).filter(|h| !h.cached).map(|h| h.usable())
}

/// Gives the large block at `p` another size, keeping its contents: its new address. `None`: the caller has to copy.
pub fn resize<S: Source>(t: &mut S::Thread, source: &mut S, p: u64, size: u64) -> Option<u64> {
    let h = of(p)?;
    let (base, len, offset) = (h.base(), h.len, p - h.base());
    let need = h.need(size);
    let wanted = if need > len {
        // Room for more of the same: fewer calls, and pages that are not used cost nothing.
        need.max((len + len / 8).next_multiple_of(PAGE))
    } else if need > len / 4 * 3 {
        return Some(p);
    } else {
        need
    };
    source.registry().remove(base);
    for new in [wanted, need] {
        if let Some(now) = source.remap(t, base, len, new) {
            return Some(begin(source, now, new, now + offset));
        }
    }
    source.registry().add(base);
    (need <= len).then_some(p)
}

impl Cache {
    /// A mapping of at least `len` bytes: one that is not much longer, or else one that is made longer, as its pages are there.
    fn take<S: Source>(&mut self, t: &mut S::Thread, source: &mut S, len: u64) -> Option<u64> {
        let lens = self.held[..self.count].iter().map(|&base| header(base).len);
        let best = |from: u64, to: u64| {
            let fits = move |l: &(usize, u64)| (from..to).contains(&l.1);
            lens.clone().enumerate().filter(fits)
        };
        if let Some((i, _)) = best(len, len + len / 2).min_by_key(|l| l.1) {
            return Some(self.remove(i));
        }
        let (i, shorter) = best(len / 2, len).max_by_key(|l| l.1)?;
        let base = self.remove(i);
        source.registry().remove(base);
        let Some(now) = source.remap(t, base, shorter, len) else {
            source.unmap(t, base, shorter);
            return None;
        };
        begin(source, now, len, now + HEADER);
        Some(now)
    }

    fn remove(&mut self, i: usize) -> u64 {
        let base = self.held[i];
        self.held.copy_within(i + 1..self.count, i);
        self.count -= 1;
        self.bytes -= header(base).len;
        base
    }

    fn put<S: Source>(&mut self, t: &mut S::Thread, source: &mut S, base: u64) {
        let len = header(base).len;
        while self.count == CACHED || self.bytes + len > CACHED_BYTES {
            let oldest = self.remove(0);
            end(t, source, oldest);
        }
        self.held[self.count] = base;
        self.count += 1;
        self.bytes += len;
    }

    /// Returns all.
    pub fn clear<S: Source>(&mut self, t: &mut S::Thread, source: &mut S) {
        while self.count > 0 {
            let oldest = self.remove(0);
            end(t, source, oldest);
        }
    }
}
