//! What is read of a stopped thread, beside its memory.

use reprise_abi::layout::{RESERVATION, RESERVATION_END};
use reprise_code::memory::Memory;

/// The low 128 bits of vector registers 0 to 15, low word first.
pub type Xmm = [[u64; 2]; 16];

/// The significands of the x87 registers, st(0) first.
pub type X87 = [u64; 8];

/// A stopped thread, without the registers that are in [`Regs`](reprise_code::regs::Regs).
pub trait Machine: Memory {
    /// The vector registers that a stub can compare.
    fn xmm(&self) -> Xmm;

    /// The x87 registers, as far as a stub can compare them.
    fn x87(&self) -> X87 {
        [0; 8]
    }

    /// A hash of the canonical XSAVE image: x87, MXCSR, all vector and mask registers.
    fn extended(&self) -> u64;

    /// Reads memory to compare it, as [`read_some`](Memory::read_some) does, in a shape that a recording and its replay have in common.
    fn compared(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.read_some(addr, buf)
    }

    /// Reads code as [`read_some`](Memory::read_some) does, in a shape that a recording and its replay have in common.
    fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.read_some(addr, buf)
    }

    /// Is this address code of ours: the runtime, a stub, a rewritten system call site's landing? The default knows the
    /// reservation only; stub pages near code are the caller's to add.
    fn is_ours(&self, pc: u64) -> bool {
        (RESERVATION..RESERVATION_END).contains(&pc)
    }
}
