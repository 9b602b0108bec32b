//! The code in front of an instruction at which a thread that waits gives way ([`crate::sync::spin`]): it counts how often the thread comes here, and asks the
//! runtime when it has come as often as the runtime wanted. A recording's and a replay's are the same bytes.

use super::*;
use crate::sync::spin;

/// Offset in the thread's block.
const LEFT: usize = offset_of!(Block, looks) + offset_of!(spin::Looks, left);

impl Stub {
    /// One instruction; whether control can come out behind it.
    pub(super) fn waits(&mut self, i: &Insn) -> Option<bool> {
        let entry = self.len;
        self.save(CX, RCX)?;
        // Neither `lea` nor `jrcxz` touches the flags.
        self.load(CX, LEFT)?;
        self.put(&[0x48, 0x8d, 0x49, 0xff])?;
        self.save(CX, LEFT)?;
        self.put(&[0xe3, 0])?;
        let asks = self.len;
        self.load(CX, RCX)?;
        self.put(&[0xeb, 0])?;
        let goes = self.len;
        self.bytes[asks - 1] = (self.len - asks) as u8;
        // lea rcx, [behind]; the runtime comes back there.
        self.put(&[0x48, 0x8d, 0x0d])?;
        let at = self.len;
        self.put(&[0; 4])?;
        self.save(CX, RESUME)?;
        self.load(CX, RCX)?;
        self.far_jump(spin::gate())?;
        let d = (self.len - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&d.to_le_bytes());
        self.bytes[goes - 1] = (self.len - goes) as u8;
        self.note(i.pc, entry, false)?;
        self.plain(i)
    }
}
