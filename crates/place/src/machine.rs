//! What is read of a stopped thread and its memory.

use reprise_abi::layout::{PAGE, RESERVATION, RESERVATION_END};

/// Memory that may or may not be there.
///
/// Where the runtime has planted a breakpoint or a patch, the bytes read are the program's own.
pub trait Memory {
    /// Fills `buf` from `addr`; false when any byte of it can't be read (`buf` is then unspecified). Never faults.
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool;

    /// The word at `addr`.
    fn word(&self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(addr, &mut bytes)
            .then(|| u64::from_le_bytes(bytes))
    }

    /// The half word at `addr`.
    fn half(&self, addr: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(addr, &mut bytes)
            .then(|| u32::from_le_bytes(bytes))
    }

    /// Reads as much as can be read of `buf`, which must not span more than two pages; how much it was.
    fn read_some(&self, addr: u64, buf: &mut [u8]) -> usize {
        if self.read(addr, buf) {
            return buf.len();
        }
        let to_page_end = (PAGE - addr % PAGE) as usize;
        if to_page_end < buf.len() && self.read(addr, &mut buf[..to_page_end]) {
            return to_page_end;
        }
        0
    }
}

/// The low 128 bits of vector registers 0 to 15, low word first.
pub type Xmm = [[u64; 2]; 16];

/// The significands of the x87 registers, st(0) first.
pub type X87 = [u64; 8];

/// A stopped thread, without the registers that are in [`Regs`](super::regs::Regs).
pub trait Machine: Memory {
    /// The vector registers that a stub can compare.
    fn xmm(&self) -> Xmm;

    /// The x87 registers, as far as a stub can compare them.
    fn x87(&self) -> X87 {
        [0; 8]
    }

    /// A hash of the canonical XSAVE image: x87, MXCSR, all vector and mask registers.
    fn extended(&self) -> u64;

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
