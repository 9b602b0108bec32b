//! Where in code certain instructions are. Their bytes may also be data, or lie in the middle of others: decoding from the beginning of the
//! function, which the module's table for unwinding tells ([`crate::code::functions`]), says what they are.

use crate::code::functions::Functions;
use crate::machine::guard;
use reprise_place::decode::{decode, Insn, MAX_INSN};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The next place in `from..to` that has these two bytes.
pub fn find(from: u64, to: u64, bytes: [u8; 2]) -> Option<u64> {
    let [first, second] = bytes.map(|b| ONES * b as u64);
    let mut at = from;
    guard::guarded(|| {
        while at + 1 < to {
            // Eight places at a time, where none of them has both.
            while at + 9 <= to {
                // SAFETY: guarded, and inside the mapping.
                let (one, next) = unsafe {
                    (
                        core::ptr::read_unaligned(at as *const u64),
                        core::ptr::read_unaligned((at + 1) as *const u64),
                    )
                };
                let x = (one ^ first) | (next ^ second);
                if x.wrapping_sub(ONES) & !x & HIGHS != 0 {
                    break;
                }
                at += 8;
            }
            for _ in 0..8 {
                if at + 1 >= to {
                    return None;
                }
                // SAFETY: as above.
                if unsafe { core::ptr::read_unaligned(at as *const [u8; 2]) } == bytes {
                    return Some(at);
                }
                at += 1;
            }
        }
        None
    })
    .flatten()
}

/// The instruction at `pc`.
pub fn instruction(pc: u64) -> Option<Insn> {
    let mut code = [0u8; MAX_INSN];
    let mut n = MAX_INSN;
    // The last instruction of a mapping may be shorter than the longest.
    while n > 0 && !guard::read_bytes(pc, &mut code[..n]) {
        n -= 1;
    }
    decode(pc, &code[..n])
}

/// Where a function was decoded up to: the next place in it goes on from there.
#[derive(Default)]
pub struct Way {
    function: u64,
    at: u64,
}

/// Does decoding from the function's beginning arrive at `pc`? `None` where that can't be said: outside functions, behind what is no code, and
/// where what lies before `pc` are prefixes of what lies there.
pub fn is_instruction(functions: &Functions, way: &mut Way, pc: u64) -> Option<bool> {
    let function = functions.function_of(pc)?;
    if way.function != function || way.at > pc {
        *way = Way {
            function,
            at: function,
        };
    }
    while way.at < pc {
        match instruction(way.at) {
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
pub fn arrives(start: u64, pc: u64) -> Option<bool> {
    let mut at = start;
    while at < pc {
        at = instruction(at)?.end();
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
