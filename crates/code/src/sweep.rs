//! Linear sweep: which instructions decoding from the beginning of a function arrives at. Bytes may also be data, or lie in the middle of
//! others; the module's table for unwinding ([`crate::functions`]) says where functions begin.

use crate::decode::Insn;
use crate::functions::Functions;
use crate::memory::Memory;

/// Where a function was decoded up to: the next place in it goes on from there.
#[derive(Default)]
pub struct Way {
    function: u64,
    at: u64,
}

/// Does decoding from the function's beginning arrive at `pc`? `None` where that can't be said: outside functions, behind what is no code, and
/// where what lies before `pc` are prefixes of what lies there.
pub fn is_instruction<M: Memory>(functions: &Functions<M>, way: &mut Way, pc: u64) -> Option<bool> {
    let function = functions.function_of(pc)?;
    if way.function != function || way.at > pc {
        *way = Way {
            function,
            at: function,
        };
    }
    while way.at < pc {
        match Insn::at(way.at, &functions.memory) {
            Some(i) if i.end() > pc => {
                let before = &i.bytes()[..(pc - way.at) as usize];
                return if before.iter().all(|b| is_prefix(*b)) {
                    None
                } else {
                    Some(false)
                };
            }
            Some(i) => way.at = i.end(),
            // Not code as far as that: the next place begins anew.
            None => {
                way.at = u64::MAX;
                return None;
            }
        }
    }
    Some(way.at == pc)
}

/// Does decoding from `start`, where a function begins, arrive at `pc`? `None` where there is no code on the way.
pub fn arrives<M: Memory + ?Sized>(memory: &M, start: u64, pc: u64) -> Option<bool> {
    let mut at = start;
    while at < pc {
        at = Insn::at(at, memory)?.end();
    }
    Some(at == pc)
}

/// Prefixes of instructions (Intel SDM 2, 2.1.1, 2.2.1).
fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const AT: u64 = 0x40_0000;

    struct Code(Vec<u8>);

    impl Memory for Code {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let from = addr.checked_sub(AT).map(|at| at as usize);
            let found = from.and_then(|at| self.0.get(at..at.checked_add(buf.len())?));
            found.map(|b| buf.copy_from_slice(b)).is_some()
        }

        /// Its end is not that of a page.
        fn read_some(&self, addr: u64, buf: &mut [u8]) -> usize {
            (0..=buf.len())
                .rev()
                .find(|n| self.read(addr, &mut buf[..*n]))
                .unwrap_or(0)
        }
    }

    #[test]
    fn what_looks_like_an_instruction_in_another_one_is_none() {
        // mov $0xa20f,%eax, with the bytes of a cpuid; cpuid; what is no instruction; cpuid
        let code = [0xb8, 0x0f, 0xa2, 0, 0, 0x0f, 0xa2, 0x06, 0x0f, 0xa2];
        let memory = Code(code.to_vec());
        assert_eq!(arrives(&memory, AT, AT + 1), Some(false));
        assert_eq!(arrives(&memory, AT, AT + 5), Some(true));
        assert_eq!(arrives(&memory, AT, AT + 8), None);
    }
}
