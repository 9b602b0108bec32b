//! The code in the place of a locked instruction under `det`: the instruction is made in a turn of the thread ([`crate::engines::det::turns`]), on memory as it
//! is for all then. Loads and stores around it need nothing: what others see of them, they see in turns.

use super::*;

impl Stub {
    /// One instruction; whether control can come out behind it.
    pub(super) fn in_turn(&mut self, i: &Insn) -> Option<bool> {
        if Operation::of(i).is_none() {
            self.note(i.pc, self.len, false)?;
            return self.plain(i);
        }
        let entry = self.len;
        self.save(AX, RAX)?;
        self.call(enter::begin_turn())?;
        self.load(AX, RAX)?;
        self.note(i.pc, entry, false)?;
        self.copy(i)?;
        self.save(AX, RAX)?;
        self.call(enter::end_turn())?;
        self.load(AX, RAX)?;
        Some(true)
    }

    /// The runtime is asked, and comes back behind this; rax is lost.
    fn call(&mut self, way: u64) -> Option<()> {
        // lea rax, [behind]
        self.put(&[0x48, 0x8d, 0x05])?;
        let at = self.len;
        self.put(&[0; 4])?;
        self.save(AX, RESUME)?;
        self.far_jump(way)?;
        let d = (self.len - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&d.to_le_bytes());
        Some(())
    }
}
