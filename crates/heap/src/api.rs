//! malloc and its family, ready to be called from hooks. Addresses are numbers, 0 is NULL; the hook sets errno.

use crate::chunk::{chunk_of, key, set_word, slab_of, word, Slab};
use crate::classes::{aligned_class, class_of, divides, BY_GRAINS, CLASS, GRAIN};
use crate::classes::{SMALL_MAX, TABLE_MAX};
use crate::own::Heap;
use crate::registry::{Registry, PLACES};
use crate::{large, remote, Source, Thread, DOUBLE_FREE, INVALID_POINTER};

/// errno: there is no memory.
pub const ENOMEM: u32 = 12;
/// errno: an alignment that is none.
pub const EINVAL: u32 = 22;

/// malloc(3). 0: ENOMEM.
#[inline(always)]
pub fn malloc<S: Source>(t: &mut S::Thread, source: &mut S, size: u64) -> u64 {
    if size <= TABLE_MAX && t.heap() != 0 {
        let class = BY_GRAINS[size.div_ceil(GRAIN) as usize] as usize;
        // SAFETY: the calling thread's heap.
        let p = unsafe { pop(t.heap(), class) };
        if p != 0 {
            return p;
        }
    }
    malloc_slow(t, source, size).0
}

/// calloc(3). 0: ENOMEM.
#[inline(always)]
pub fn calloc<S: Source>(t: &mut S::Thread, source: &mut S, count: u64, size: u64) -> u64 {
    let Some(bytes) = count.checked_mul(size) else {
        return 0;
    };
    if bytes <= SMALL_MAX && t.heap() != 0 {
        // SAFETY: the calling thread's heap.
        let p = unsafe { pop(t.heap(), class_of(bytes)) };
        if p != 0 {
            // SAFETY: a block of at least so many bytes.
            unsafe { core::ptr::write_bytes(p as *mut u8, 0, bytes as usize) };
            return p;
        }
    }
    let (p, zero) = malloc_slow(t, source, bytes);
    if p != 0 {
        // The first two words were a free block's.
        let dirty = if zero { bytes.min(16) } else { bytes };
        // SAFETY: likewise.
        unsafe { core::ptr::write_bytes(p as *mut u8, 0, dirty as usize) };
    }
    p
}

/// free(3).
#[inline(always)]
pub fn free<S: Source>(t: &mut S::Thread, source: &mut S, p: u64) {
    if p == 0 {
        return;
    }
    let Some((slab, offset)) = find(t, source, p) else {
        large::free(t, source, cache(t), p);
        return;
    };
    // SAFETY: the slab of an address in a known chunk. Of one that is another thread's, nothing is read that changes.
    unsafe {
        if !divides((*slab).magic, offset) {
            source.corrupt(t, INVALID_POINTER);
        }
        if (*slab).heap != t.heap() {
            remote::free(t, source, slab, p);
            return;
        }
        if offset >= (*slab).carved as u64 {
            source.corrupt(t, INVALID_POINTER);
        }
        if word(p + 8) == key(p) {
            source.corrupt(t, DOUBLE_FREE);
        }
        set_word(p, (*slab).free);
        set_word(p + 8, key(p));
        (*slab).free = p;
        let used = (*slab).used - 1;
        (*slab).used = used;
        if used == (*slab).slow_at {
            Heap::at(t.heap()).settle(t, source, slab);
        }
    }
}

/// realloc(3). 0: the block was freed, when `size` is 0 and `p` is not; ENOMEM otherwise, and the block is as it was.
pub fn realloc<S: Source>(t: &mut S::Thread, source: &mut S, p: u64, size: u64) -> u64 {
    if p == 0 {
        return malloc(t, source, size);
    }
    if size == 0 {
        free(t, source, p);
        return 0;
    }
    let (usable, in_slab) = extent(t, source, p);
    let shrinks = size <= usable;
    let stays_small = in_slab || size <= SMALL_MAX;
    if stays_small && shrinks && (size >= usable / 2 || usable <= 2 * GRAIN) {
        return p;
    }
    if !stays_small {
        if size > large::SIZE_MAX {
            return 0;
        }
        if let Some(resized) = large::resize(t, source, p, size) {
            return resized;
        }
    }
    let new = malloc(t, source, size);
    if new == 0 {
        return if shrinks { p } else { 0 };
    }
    // SAFETY: two blocks of the program with at least so many bytes each.
    unsafe {
        core::ptr::copy_nonoverlapping(p as *const u8, new as *mut u8, usable.min(size) as usize)
    };
    free(t, source, p);
    new
}

/// memalign(3), and aligned_alloc(3) of glibc before 2.38: an alignment that is no power of two is rounded up to one.
///
/// # Errors
/// [`EINVAL`] when there is no such power, [`ENOMEM`].
pub fn memalign<S: Source>(
    t: &mut S::Thread,
    source: &mut S,
    align: u64,
    size: u64,
) -> Result<u64, u32> {
    let Some(align) = align.checked_next_power_of_two() else {
        return Err(EINVAL);
    };
    let p = match aligned_class(size.max(1), align) {
        _ if align <= GRAIN => malloc(t, source, size),
        Some(class) => take(t, source, class).0,
        None => take_large(t, source, size.max(1), align).0,
    };
    if p == 0 {
        return Err(ENOMEM);
    }
    Ok(p)
}

/// posix_memalign(3).
///
/// # Errors
/// [`EINVAL`] for an alignment that is no power of two, or smaller than a pointer; [`ENOMEM`].
pub fn posix_memalign<S: Source>(
    t: &mut S::Thread,
    source: &mut S,
    align: u64,
    size: u64,
) -> Result<u64, u32> {
    if align < 8 || !align.is_power_of_two() {
        return Err(EINVAL);
    }
    memalign(t, source, align, size)
}

/// malloc_usable_size(3).
pub fn usable_size<S: Source>(t: &mut S::Thread, source: &mut S, p: u64) -> u64 {
    if p == 0 {
        return 0;
    }
    extent(t, source, p).0
}

/// Did this address come from here, as far as can be told without a fault?
pub fn owns(registry: &Registry, p: u64) -> bool {
    p != 0 && registry.knows(chunk_of(p))
}

/// Makes a heap the calling thread's: that of the place with the number of its slot, or of the next one that is nobody's. Called by
/// the first malloc of a thread; `false`: there is no memory.
#[cold]
#[inline(never)]
pub fn begin<S: Source>(t: &mut S::Thread, source: &mut S) -> bool {
    S::claims(t, |t, first| claim(t, source, first))
}

fn claim<S: Source>(t: &mut S::Thread, source: &mut S, first: u32) -> bool {
    use core::sync::atomic::Ordering::Relaxed;
    let registry = source.registry();
    for n in (0..PLACES as u32).map(|i| first.wrapping_add(i) % PLACES as u32) {
        let place = registry.place(n);
        if !S::taken(t, place.object(), || registry.claim(n)) {
            continue;
        }
        let there = place.heap.load(Relaxed);
        if there != 0 {
            t.set_heap(there);
            // SAFETY: claimed.
            unsafe { Heap::at(there) }.drain(t, source);
            return true;
        }
        if let Some(new) = Heap::create(t, source, n) {
            place.heap.store(new.address(), Relaxed);
            t.set_heap(new.address());
            return true;
        }
        S::ordered(t, place.object(), || place.leave());
        return false;
    }
    false
}

/// The calling thread ends: its heap is left to the next thread of its place. Not for a vfork child, whose heap is its parent's; a
/// process that ends or execs needs none of this.
pub fn end<S: Source>(t: &mut S::Thread, source: &mut S) {
    if t.heap() == 0 {
        return;
    }
    remote::flush_all(t, source);
    // SAFETY: the calling thread's own.
    let heap = unsafe { Heap::at(t.heap()) };
    heap.drain(t, source);
    heap.shrink(t, source);
    t.set_heap(0);
    remote::leave(t, source, heap, 0);
}

/// Before a new process starts: the heap of its only thread. In a copy of the memory, or in the same one while the parent waits
/// (vfork), that is the parent's; where both run on in one memory, the child gets one of its own.
pub fn inherit<T: Thread>(parent: &T, child: &mut T, shares_memory: bool, parent_waits: bool) {
    child.set_heap(match shares_memory && !parent_waits {
        true => 0,
        false => parent.heap(),
    });
}

/// In a process that was forked (not in a vfork child, which shares its parent's memory, and its parent's heap): the calling thread's
/// block has the heap of the thread that forked. All other threads are gone.
pub fn forked<T: Thread>(t: &mut T, registry: &Registry) {
    use core::sync::atomic::Ordering::Relaxed;
    for place in registry.used_places() {
        let there = place.heap.load(Relaxed);
        let stays = there != 0 && there == t.heap();
        place.reset(stays);
        if there != 0 && !stays {
            // SAFETY: there is no other thread.
            unsafe { Heap::at(there) }.abandoned = true;
        }
    }
    if t.heap() != 0 {
        // What was on the way to others stays there; what others had sent is lost, as it may differ in a replay.
        // SAFETY: the calling thread's own.
        unsafe { Heap::at(t.heap()) }.outboxes.forget();
    }
}

/// Takes a free block of a class from its current slab; 0: there is none.
///
/// # Safety
/// The heap must be the calling thread's.
#[inline(always)]
unsafe fn pop(heap: u64, class: usize) -> u64 {
    // SAFETY: as the caller says; a current slab is one, and its free blocks are its own.
    unsafe {
        let slab = *(*(heap as *const Heap)).current.get_unchecked(class) as *mut Slab;
        let p = (*slab).free;
        if p != 0 {
            (*slab).free = word(p);
            (*slab).used += 1;
            set_word(p + 8, 0);
        }
        p
    }
}

/// The slab of a block, and the offset in it; `None`: it is a large one, if any. Ends the program for a pointer that can't be a block's.
#[inline(always)]
fn find<S: Source>(t: &mut S::Thread, source: &mut S, p: u64) -> Option<(*mut Slab, u64)> {
    if !source.registry().knows(chunk_of(p)) {
        source.corrupt(t, INVALID_POINTER);
    }
    // SAFETY: the chunk is known.
    unsafe { slab_of(p) }
}

/// Usable bytes of a block, and whether it lies in a slab.
fn extent<S: Source>(t: &mut S::Thread, source: &mut S, p: u64) -> (u64, bool) {
    let Some((slab, offset)) = find(t, source, p) else {
        match large::usable_size(p) {
            Some(usable) => return (usable, false),
            None => source.corrupt(t, INVALID_POINTER),
        }
    };
    // SAFETY: as in `free`.
    unsafe {
        if !divides((*slab).magic, offset) {
            source.corrupt(t, INVALID_POINTER);
        }
        if word(p + 8) == key(p) {
            source.corrupt(t, DOUBLE_FREE);
        }
        ((*slab).size as u64, true)
    }
}

fn cache(t: &impl Thread) -> Option<&'static mut large::Cache> {
    // SAFETY: the calling thread's own heap.
    (t.heap() != 0).then(|| unsafe { &mut Heap::at(t.heap()).large })
}

/// A block, and whether it is all zero but for its first two words. 0: there is no memory.
#[cold]
#[inline(never)]
fn malloc_slow<S: Source>(t: &mut S::Thread, source: &mut S, size: u64) -> (u64, bool) {
    if size > SMALL_MAX {
        return take_large(t, source, size, GRAIN);
    }
    take(t, source, class_of(size))
}

/// As [`malloc_slow`], of a class.
fn take<S: Source>(t: &mut S::Thread, source: &mut S, class: usize) -> (u64, bool) {
    debug_assert!(class < CLASS.len());
    if t.heap() == 0 && !begin(t, source) {
        return (0, false);
    }
    // SAFETY: the calling thread's own heap.
    unsafe {
        match Heap::at(t.heap()).refill(t, source, class) {
            Some(fresh) => (pop(t.heap(), class), fresh),
            None => (0, false),
        }
    }
}

fn take_large<S: Source>(t: &mut S::Thread, source: &mut S, size: u64, align: u64) -> (u64, bool) {
    if t.heap() == 0 && !begin(t, source) {
        return (0, false);
    }
    large::allocate(t, source, cache(t), size, align).unwrap_or((0, false))
}
