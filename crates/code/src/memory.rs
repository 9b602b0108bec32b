//! What is read of a program: its code, its modules, its stack.

use reprise_abi::layout::PAGE;

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
