//! Memory of the detector: blocks of powers of two, in the runtime's own address space, where the program sees nothing of them.

use crate::memory::scratch::shadow_arena;
use crate::thread::panic;

/// The smallest block is `1 << SMALLEST` bytes.
const SMALLEST: u32 = 6;
/// The largest.
const LARGEST: u32 = 22;
/// Address space is taken in pieces of this size.
const PIECE: u64 = 64 << 20;

/// The pool. All zero is an empty one.
#[derive(Default)]
pub struct Pool {
    /// The first free block of each size; its first word leads to the next one.
    free: [u64; (LARGEST + 1) as usize],
    next: u64,
    end: u64,
}

fn size_of(bytes: usize) -> u32 {
    bytes
        .next_power_of_two()
        .trailing_zeros()
        .clamp(SMALLEST, u32::MAX)
}

impl Pool {
    /// A block of at least so many bytes, all zero.
    pub fn take(&mut self, bytes: usize) -> u64 {
        let size = size_of(bytes);
        if size > LARGEST {
            panic::give_up("races: a table is full");
        }
        let at = self.free[size as usize];
        if at != 0 {
            // SAFETY: a free block of ours.
            unsafe {
                self.free[size as usize] = *(at as *const u64);
                core::ptr::write_bytes(at as *mut u8, 0, 1 << size);
            }
            return at;
        }
        let len = 1u64 << size;
        if self.end - self.next < len {
            let Some(piece) = shadow_arena(PIECE) else {
                panic::give_up("races: no memory for what was accessed by whom");
            };
            (self.next, self.end) = (piece, piece + PIECE);
        }
        let at = self.next;
        self.next += len;
        at
    }

    /// A block goes back; `bytes` as it was taken.
    pub fn give(&mut self, at: u64, bytes: usize) {
        let size = size_of(bytes) as usize;
        // SAFETY: a block of ours that nobody uses any more.
        unsafe { *(at as *mut u64) = self.free[size] };
        self.free[size] = at;
    }
}
