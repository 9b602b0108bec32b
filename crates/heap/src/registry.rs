//! The heaps of one memory: their places, and which addresses belong to them.
//!
//! A heap has a **place**, a number that it keeps. Of the threads that run one *owns* a place; when it ends, the next thread that comes
//! to this place goes on with its heap. Places are claimed and left under the order of their queue, so a replay claims the same ones.

use crate::CHUNK;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::layout::MAX_SLOTS;

/// The most heaps: as many as there are threads at a time.
pub const PLACES: usize = MAX_SLOTS;
/// Bits of a program's addresses.
const ADDRESS_BITS: u32 = 47;
/// The most chunks that fit into them.
const CHUNKS: u64 = (1 << ADDRESS_BITS) / CHUNK;

/// Where blocks wait that other threads freed.
#[repr(C, align(64))]
pub struct Place {
    /// Blocks that come back, the last first; linked by their first words.
    returned: AtomicU64,
    /// Address of the heap, 0: none yet.
    pub heap: AtomicU64,
    /// Not 0: a thread owns it.
    owned: AtomicU32,
}

/// Everything that the heaps of one memory share. All zero in a new memory; a fork copies it.
#[repr(C)]
pub struct Registry {
    /// Places from this one on were never claimed.
    unused: AtomicU32,
    places: [Place; PLACES],
    /// One bit for each chunk: it is one of ours, or a large block starts in it.
    known: [AtomicU64; (CHUNKS / 64) as usize],
}

/// Bytes of a registry. Few of its pages are ever touched.
pub const REGISTRY_LEN: u64 = core::mem::size_of::<Registry>() as u64;

impl Registry {
    /// The registry in this memory.
    ///
    /// # Safety
    /// [`REGISTRY_LEN`] bytes of zeros at a page's start that stay for ever, private to the process and copied by a fork.
    pub unsafe fn at(address: u64) -> &'static Registry {
        // SAFETY: as the caller says; zeros are a valid registry.
        unsafe { &*(address as *const Registry) }
    }

    /// The place with this number.
    #[inline]
    pub fn place(&self, n: u32) -> &Place {
        &self.places[n as usize % PLACES]
    }

    /// All places that were ever claimed, and maybe others.
    pub fn used_places(&self) -> &[Place] {
        &self.places[..PLACES.min(self.unused.load(Relaxed) as usize)]
    }

    /// Makes a place the caller's own, if it is nobody's.
    pub fn claim(&self, n: u32) -> bool {
        self.unused.fetch_max(n % PLACES as u32 + 1, Relaxed);
        self.place(n).claim()
    }

    /// Is there a chunk, or the start of a large block, at `chunk`?
    #[inline(always)]
    pub fn knows(&self, chunk: u64) -> bool {
        let i = chunk / CHUNK;
        i < CHUNKS && self.known[(i / 64) as usize].load(Relaxed) >> (i % 64) & 1 != 0
    }

    /// Notes that there is one.
    pub fn add(&self, chunk: u64) {
        let i = chunk / CHUNK;
        assert!(i < CHUNKS, "no address of a program");
        self.known[(i / 64) as usize].fetch_or(1 << (i % 64), Relaxed);
    }

    /// Notes that there is none any more.
    pub fn remove(&self, chunk: u64) {
        let i = chunk / CHUNK;
        self.known[(i / 64) as usize].fetch_and(!(1 << (i % 64)), Relaxed);
    }
}

impl Place {
    /// The object by which operations on this place are ordered.
    pub fn object(&self) -> u64 {
        self as *const Place as u64
    }

    /// Makes it the caller's own, if it is nobody's.
    fn claim(&self) -> bool {
        self.owned.compare_exchange(0, 1, SeqCst, Relaxed).is_ok()
    }

    /// Leaves the place, unless there are blocks to take back first: those.
    pub fn leave(&self) -> u64 {
        loop {
            let chain = self.take();
            if chain != 0 {
                return chain;
            }
            self.owned.store(0, SeqCst);
            // Without an order between threads, a block may have come in between, by someone who still saw an owner.
            if self.returned.load(SeqCst) == 0 || !self.claim() {
                return 0;
            }
        }
    }

    /// Takes all blocks that came back.
    pub fn take(&self) -> u64 {
        if self.returned.load(Relaxed) == 0 {
            return 0;
        }
        self.returned.swap(0, SeqCst)
    }

    /// Puts a chain of blocks here. When nobody owns the place, it is the caller's then, with these blocks to take back (not 0).
    ///
    /// # Safety
    /// `last` must be the last of the chain, and all of it free blocks of this place's heap.
    pub unsafe fn put(&self, first: u64, last: u64) -> u64 {
        let mut head = self.returned.load(Relaxed);
        loop {
            // SAFETY: as the caller says.
            unsafe { crate::chunk::set_word(last, head) };
            match self
                .returned
                .compare_exchange_weak(head, first, SeqCst, Relaxed)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if self.owned.load(SeqCst) == 0 && self.claim() {
            let chain = self.take();
            if chain == 0 {
                // Only without an order: another thread was faster.
                return self.leave();
            }
            return chain;
        }
        0
    }

    /// After a fork: no thread is here in this memory. The heap that was is forgotten, unless it is to stay.
    pub fn reset(&self, stay: bool) {
        self.returned.store(0, Relaxed);
        if !stay {
            self.heap.store(0, Relaxed);
        }
        self.owned.store(stay as u32, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn chunks_are_known_until_they_are_removed() {
        let r = testing::registry();
        for at in [CHUNK, 3 * CHUNK, (1 << ADDRESS_BITS) - CHUNK] {
            assert!(!r.knows(at));
            r.add(at);
            assert!(r.knows(at) && !r.knows(at - CHUNK));
            r.remove(at);
            assert!(!r.knows(at));
        }
        assert!(!r.knows(1 << ADDRESS_BITS) && !r.knows(!(CHUNK - 1)));
    }

    #[test]
    fn a_place_has_one_owner() {
        let r = testing::registry();
        let mut blocks = [[0u64; 2]; 3];
        let at: [u64; 3] = core::array::from_fn(|i| &raw mut blocks[i] as u64);
        assert!(r.place(5).claim() && !r.place(5).claim());
        // SAFETY: blocks of this test.
        unsafe {
            assert_eq!(r.place(5).put(at[0], at[0]), 0);
            assert_eq!(r.place(5).put(at[1], at[1]), 0);
            assert_eq!(
                r.place(5).leave(),
                at[1],
                "not left while there is something"
            );
            assert_eq!(crate::chunk::word(at[1]), at[0]);
            assert_eq!(r.place(5).leave(), 0);
            assert_eq!(r.place(5).put(at[2], at[2]), at[2], "claimed by the giver");
        }
        assert!(!r.place(5).claim());
    }
}
