//! Where in the program's code certain bytes are. Whether an instruction begins there is said by [`reprise_code::sweep`].

use crate::machine::guard::{self, Program};
use reprise_code::decode::Insn;

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
    Insn::at(pc, &Program)
}
