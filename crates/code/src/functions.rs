//! The functions of a loaded file, as its table for unwinding tells them (`.eh_frame_hdr`; System V ABI, and "Linux Standard Base", 10.6.2).
//!
//! Code has no marks of where its instructions begin, and between functions there may be anything. What decoding reaches from the
//! beginning of a function is an instruction.

use crate::elf;
use crate::memory::Memory;

/// The table of a module.
pub struct Functions<M> {
    /// The module.
    pub module: elf::Module,
    /// Where it lies.
    pub memory: M,
    /// Address of `.eh_frame_hdr`.
    header: u64,
    count: u64,
}

impl<M: Memory> Functions<M> {
    /// Those of the module whose ELF header lies at `at`, if `code` is its code.
    pub fn at(memory: M, at: u64, code: u64) -> Option<Functions<M>> {
        let module = elf::Module::at(&memory, at)?;
        if !module.holds(&memory, code) {
            return None;
        }
        let (header, _) = module.segment(&memory, elf::EH_FRAME)?;
        // Version 1; pointers as every linker writes them: relative, of 32 bits, in a sorted table.
        if memory.half(header)? != u32::from_le_bytes([1, 0x1b, 0x03, 0x3b]) {
            return None;
        }
        let count = memory.half(header.wrapping_add(8))?;
        Some(Functions {
            module,
            memory,
            header,
            count: count as u64,
        })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Beginning and bytes of function `i`, in the order of their addresses.
    pub fn function(&self, i: u64) -> Option<(u64, u64)> {
        let (start, entry) = self.entry(i)?;
        // Length, place of the common part, beginning; then how many bytes the function has.
        let len = self.memory.half(entry.wrapping_add(12))?;
        Some((start, len as u64))
    }

    /// Beginning of function `i`, and the entry that describes it.
    fn entry(&self, i: u64) -> Option<(u64, u64)> {
        let word = self.memory.word(self.header.wrapping_add(12 + 8 * i))?;
        let place = |relative: u32| self.header.wrapping_add(relative as i32 as u64);
        Some((place(word as u32), place((word >> 32) as u32)))
    }

    /// The function that `pc` lies in: its beginning.
    pub fn function_of(&self, pc: u64) -> Option<u64> {
        self.extent_of(pc).map(|(start, _)| start)
    }

    /// The function that `pc` lies in: its end.
    pub fn end_of(&self, pc: u64) -> Option<u64> {
        self.extent_of(pc)
            .map(|(start, len)| start.wrapping_add(len))
    }

    fn extent_of(&self, pc: u64) -> Option<(u64, u64)> {
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.entry(middle)?.0 <= pc {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (start, len) = self.function(low)?;
        let is_inside = pc.checked_sub(start).is_some_and(|from| from < len);
        is_inside.then_some((start, len))
    }
}
