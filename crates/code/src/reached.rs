//! Code that is reached from where a module's code begins: its entry, what runs at its start and end, and the functions that it exports, and
//! from there by direct calls, jumps and branches. For modules, or parts of them, that have no table of functions for unwinding: programs in
//! Go, assembler, statically linked programs without exceptions. What is reached is code; of the rest nothing is known.

use crate::decode::{Flow, Insn};
use crate::elf::Module;
use crate::memory::Memory;
use core::ops::Range;

/// Most instructions that are followed in one mapping: some 50 ms.
const MAX_STEPS: usize = 1 << 19;
/// Most places that wait to be followed.
pub const MAX_WAITING: usize = 1 << 16;
/// Most exported symbols that are looked at.
const MAX_EXPORTS: u64 = 1 << 16;
/// Longest code that is followed, in bytes.
pub const MAX_CODE: u64 = 256 << 20;

const INIT: u64 = 12;
const FINI: u64 = 13;

/// The walk through one mapping of code.
pub struct Walk<'a, M: ?Sized> {
    memory: &'a M,
    start: u64,
    end: u64,
    /// A bit for each byte: an instruction that was reached begins there.
    seen: &'a mut [u8],
    waiting: &'a mut [u64],
    waits: usize,
}

impl<'a, M: Memory + ?Sized> Walk<'a, M> {
    /// Walks from where the code of the module begins, inside of `code`, which has at most [`MAX_CODE`] bytes. `seen` has a bit for each of
    /// them, all zero, and `waiting` room for the places that wait, [`MAX_WAITING`]: with less of either, less is reached.
    pub fn of(
        memory: &'a M,
        module: &Module,
        code: Range<u64>,
        seen: &'a mut [u8],
        waiting: &'a mut [u64],
    ) -> Walk<'a, M> {
        let mut walk = Walk {
            memory,
            start: code.start,
            end: code.end,
            seen,
            waiting,
            waits: 0,
        };
        if let Some(entry) = module.entry(memory) {
            walk.begin_at(entry);
        }
        for tag in [INIT, FINI] {
            if let Some(function) = module.dynamic(memory, tag) {
                walk.begin_at(module.place(function));
            }
        }
        if let Some(exports) = module.exports(memory) {
            exports.each_function(memory, MAX_EXPORTS, |function| walk.begin_at(function));
        }
        walk.run();
        walk
    }

    fn begin_at(&mut self, at: u64) {
        if !(self.start..self.end).contains(&at) || self.is_reached(at) {
            return;
        }
        if let Some(place) = self.waiting.get_mut(self.waits) {
            *place = at;
            self.waits += 1;
        }
    }

    /// Does an instruction that is reached begin here?
    pub fn is_reached(&self, at: u64) -> bool {
        let n = at.wrapping_sub(self.start) as usize;
        self.seen.get(n / 8).is_some_and(|b| b & 1 << (n % 8) != 0)
    }

    /// Follows all that waits.
    fn run(&mut self) {
        let mut steps = 0;
        while let Some(waits) = self.waits.checked_sub(1) {
            self.waits = waits;
            let mut at = self.waiting[waits];
            while (self.start..self.end).contains(&at) && !self.is_reached(at) {
                steps += 1;
                if steps > MAX_STEPS {
                    return;
                }
                let Some(i) = Insn::at(at, self.memory) else {
                    break;
                };
                let n = (at - self.start) as usize;
                let Some(byte) = self.seen.get_mut(n / 8) else {
                    break;
                };
                *byte |= 1 << (n % 8);
                match i.flow {
                    Flow::Branch(_, to) | Flow::Call(to) => self.begin_at(to),
                    Flow::Jump(to) => {
                        self.begin_at(to);
                        break;
                    }
                    Flow::JumpIndirect | Flow::Return | Flow::Odd => break,
                    // Behind an instruction that no control passes there may be anything.
                    Flow::Gate if matches!(i.bytes(), [0x0f, 0x0b] | [0xcc] | [0xf4]) => break,
                    Flow::Next | Flow::Repeat | Flow::CallIndirect | Flow::Gate => {}
                }
                at = i.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const AT: u64 = 0x40_0000;
    const CODE: usize = 0x1000;

    struct File(Vec<u8>);

    impl Memory for File {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let from = addr.checked_sub(AT).map(|at| at as usize);
            let found = from.and_then(|at| self.0.get(at..at.checked_add(buf.len())?));
            found.map(|b| buf.copy_from_slice(b)).is_some()
        }
    }

    /// A module whose entry is the first byte of this code.
    fn module(code: &[u8]) -> (File, Module) {
        let mut file = std::vec![0; CODE];
        let mut put = |at: usize, word: u64| file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(0, u32::from_le_bytes(*b"\x7fELF").into());
        put(24, CODE as u64);
        put(32, 64);
        put(56, 1);
        // One segment to be loaded, at 0.
        put(64, crate::elf::LOAD.into());
        put(64 + 40, 0x2000);
        file.extend(code);
        file.resize(0x2000, 0xcc);
        let file = File(file);
        let module = Module::at(&file, AT).expect("a module");
        (file, module)
    }

    /// Which offsets are reached, with so much room.
    fn reached(code: &[u8], seen: usize, waiting: usize) -> Vec<u64> {
        let (file, module) = module(code);
        let start = AT + CODE as u64;
        let (mut seen, mut waiting) = (std::vec![0; seen], std::vec![0; waiting]);
        let range = start..start + code.len() as u64;
        let walk = Walk::of(&file, &module, range, &mut seen, &mut waiting);
        let all = 0..code.len() as u64;
        all.filter(|n| walk.is_reached(start + n)).collect()
    }

    /// jne to 7; jmp to 13; a cpuid and a nop that nothing leads to; 7: call 13; nop; 13: ret
    const CODE_WITH_A_HOLE: [u8; 14] = [
        0x75, 0x05, 0xeb, 0x09, 0x0f, 0xa2, 0x90, 0xe8, 0x01, 0x00, 0x00, 0x00, 0x90, 0xc3,
    ];

    #[test]
    fn only_what_control_flow_leads_to() {
        let all = reached(&CODE_WITH_A_HOLE, 2, 8);
        // jne at 0 to 7, jmp at 2 to 13, call at 7 to 13, nop at 12.
        assert_eq!(all, [0, 2, 7, 12, 13]);
    }

    #[test]
    fn less_room_reaches_less() {
        assert_eq!(reached(&CODE_WITH_A_HOLE, 2, 0), []);
        assert_eq!(reached(&CODE_WITH_A_HOLE, 1, 8), [0, 2, 7]);
    }
}
