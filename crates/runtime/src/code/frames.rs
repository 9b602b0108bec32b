//! Functions by the entries for unwinding themselves (`.eh_frame`; "Linux Standard Base", 10.6.1), where no table leads to them: statically linked
//! programs have the entries in memory, but no header that says where. The first common entry is known by its bytes, which every compiler
//! writes the same; from there on each entry leads to the next.

use crate::code::elf::Module;
use crate::machine::guard;
use crate::machine::guard::Program;
use crate::memory::{self, Region};

/// What a common entry of C code begins with: its length, that it is one, version 1, "zR", code by 1, data by -8, the return address is column
/// 16, one byte of augmentation, addresses relative to their own places in 32 bits.
const COMMON: [u8; 17] = [
    0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 0x10, 1, 0x1b,
];
/// Alignment of the section.
const STEP: u64 = 8;
/// Most entries that are followed.
const MAX_ENTRIES: usize = 1 << 20;
/// Longest entry that is believed.
const MAX_ENTRY: u32 = 1 << 16;

/// Calls `function` with beginning and end of each function of the module that lies in `code`.
pub fn each(module: &Module, code: &Region, mut function: impl FnMut(u64, u64)) {
    let holds =
        |r: &Region| !r.is_executable() && !r.is_writable() && module.holds(&Program, r.start);
    for r in memory::each().filter(holds) {
        if let Some(first) = first_common(&r) {
            follow(first, r.end, code, &mut function);
        }
    }
}

fn first_common(r: &Region) -> Option<u64> {
    let mut at = r.start;
    while at + (COMMON.len() as u64) < r.end {
        // One word tells most places apart.
        if guard::read::<u64>(at)? == 0x14 && guard::read::<[u8; COMMON.len()]>(at)? == COMMON {
            return Some(at);
        }
        at += STEP;
    }
    None
}

fn follow(first: u64, end: u64, code: &Region, function: &mut impl FnMut(u64, u64)) {
    let mut at = first;
    for _ in 0..MAX_ENTRIES {
        if at + 16 > end {
            return;
        }
        let Some([len, back, begins, bytes]) = guard::read::<[u32; 4]>(at) else {
            return;
        };
        if len == 0 || len > MAX_ENTRY {
            return;
        }
        // Of a common entry this is 0; others say how far before this place theirs begins.
        if back != 0 && u64::from(back) <= at + 4 - first {
            let start = (at + 8).wrapping_add(begins as i32 as u64);
            let stop = start.saturating_add(bytes.into());
            if bytes != 0 && start >= code.start && stop <= code.end {
                function(start, stop);
            }
        }
        at += 4 + u64::from(len);
    }
}
