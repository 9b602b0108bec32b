//! Scratch memory of a thread: what the kernel reads and writes while the thread does not hold the baton (DESIGN 3).

use crate::guard;
use crate::sys;
use crate::thread::{block_address, Block, SCRATCH, SCRATCH_LEN};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::layout::ARENA_BASE;
use reprise_abi::order::ORDER_BASE;

/// The most scratch memory one call can get, in bytes; larger transfers are made in part, as a short read or write.
pub const MAX_SCRATCH: usize = 64 << 20;

static ARENA_NEXT: AtomicU64 = AtomicU64::new(ARENA_BASE);

/// Takes address space for the runtime's own use; never given back.
pub fn arena(len: u64) -> Option<u64> {
    let len = (len + 4095) & !4095;
    // A guard page stays unmapped behind every piece.
    let at = ARENA_NEXT.fetch_add(len + 4096, Relaxed);
    (at + len < ORDER_BASE && sys::map_own(at, len)).then_some(at)
}

/// A bump allocator over a thread's scratch memory, for one call.
pub struct Scratch {
    next: u64,
    end: u64,
}

impl Scratch {
    /// Scratch memory for a call that needs `want` bytes (less may be given: see [`MAX_SCRATCH`]).
    pub fn new(t: &mut Block, want: usize) -> Scratch {
        let own = block_address(t.slot) + SCRATCH;
        if want as u64 + 64 <= SCRATCH_LEN {
            return Scratch {
                next: own,
                end: own + SCRATCH_LEN,
            };
        }
        let want = want.min(MAX_SCRATCH) as u64 + 4096;
        if t.big_scratch.1 < want {
            let len = want.next_power_of_two();
            if let Some(at) = arena(len) {
                if t.big_scratch.1 != 0 {
                    sys::call(
                        reprise_abi::syscalls::nr::MUNMAP,
                        &[t.big_scratch.0, t.big_scratch.1],
                    );
                }
                t.big_scratch = (at, len);
            }
        }
        if t.big_scratch.1 == 0 {
            return Scratch {
                next: own,
                end: own + SCRATCH_LEN,
            };
        }
        Scratch {
            next: t.big_scratch.0,
            end: t.big_scratch.0 + t.big_scratch.1,
        }
    }

    /// Takes exactly `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<u64> {
        let at = self.next;
        let len = (len as u64 + 15) & !15;
        if len > self.end - at {
            return None;
        }
        self.next += len;
        Some(at)
    }

    /// Takes `len` bytes or as many as there are.
    pub fn take_most(&mut self, len: usize) -> Option<(u64, usize)> {
        let n = len.min((self.end - self.next) as usize & !15);
        if n == 0 && len > 0 {
            return None;
        }
        self.take(n).map(|a| (a, n))
    }

    /// Copies program memory in; on failure the errno as a negative number.
    pub fn copy_in(&mut self, from: u64, len: usize) -> Result<u64, i64> {
        let at = self.take(len).ok_or(-12i64)?;
        // SAFETY: scratch is ours; the program's side is guarded.
        guard::guarded(|| unsafe { guard::copy(at, from, len) }).ok_or(-14i64)?;
        Ok(at)
    }
}
