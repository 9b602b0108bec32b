//! Functions by the entries for unwinding themselves (`.eh_frame`; "Linux Standard Base", 10.6.1), where no table leads to them: statically linked
//! programs have the entries in memory, but no header that says where. The first common entry is known by its bytes, which every compiler
//! writes the same; from there on each entry leads to the next.

use crate::memory::Memory;
use core::ops::Range;

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

/// Calls `function` with beginning and end of each function in `code` that entries in the memory `within` tell of.
pub fn each<M: Memory + ?Sized>(
    memory: &M,
    within: Range<u64>,
    code: Range<u64>,
    mut function: impl FnMut(u64, u64),
) {
    if let Some(first) = first_common(memory, &within) {
        follow(memory, first, within.end, &code, &mut function);
    }
}

fn first_common<M: Memory + ?Sized>(memory: &M, within: &Range<u64>) -> Option<u64> {
    let mut at = within.start;
    while at.checked_add(COMMON.len() as u64)? < within.end {
        // One word tells most places apart.
        if memory.word(at)? == 0x14 && bytes(memory, at)? == COMMON {
            return Some(at);
        }
        at += STEP;
    }
    None
}

fn follow<M: Memory + ?Sized>(
    memory: &M,
    first: u64,
    end: u64,
    code: &Range<u64>,
    function: &mut impl FnMut(u64, u64),
) {
    let mut at = first;
    for _ in 0..MAX_ENTRIES {
        if at.checked_add(16).is_none_or(|behind| behind > end) {
            return;
        }
        let Some(words) = bytes::<16, M>(memory, at) else {
            return;
        };
        let word = |n: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| words[4 * n + i]));
        let [len, back, begins, size] = [0, 1, 2, 3].map(word);
        if len == 0 || len > MAX_ENTRY {
            return;
        }
        // Of a common entry this is 0; others say how far before this place theirs begins.
        if back != 0 && u64::from(back) <= at + 4 - first {
            let start = (at + 8).wrapping_add(begins as i32 as u64);
            let stop = start.saturating_add(size.into());
            if size != 0 && start >= code.start && stop <= code.end {
                function(start, stop);
            }
        }
        at = at.saturating_add(4 + u64::from(len));
    }
}

fn bytes<const N: usize, M: Memory + ?Sized>(memory: &M, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory.read(at, &mut bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const AT: u64 = 0x40_0000;
    const CODE: Range<u64> = 0x41_0000..0x42_0000;

    struct Section(Vec<u8>);

    impl Memory for Section {
        fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
            let from = addr.checked_sub(AT).map(|at| at as usize);
            let found = from.and_then(|at| self.0.get(at..at.checked_add(buf.len())?));
            found.map(|b| buf.copy_from_slice(b)).is_some()
        }
    }

    impl Section {
        /// Something else, and a common entry.
        fn new() -> Section {
            let mut bytes = std::vec![0x14, 0, 0, 0, 0, 0, 0, 1];
            bytes.extend(COMMON);
            bytes.resize(8 + 4 + 0x14, 0);
            Section(bytes)
        }

        /// An entry for a function.
        fn describe(&mut self, start: u64, len: u32) {
            let at = AT + self.0.len() as u64;
            let begins = start.wrapping_sub(at + 8) as u32;
            let back = self.0.len() as u32 + 4 - 8;
            for word in [0x14, back, begins, len, 0, 0] {
                self.0.extend(word.to_le_bytes());
            }
        }

        fn functions(&self) -> Vec<(u64, u64)> {
            let (mut found, end) = (Vec::new(), AT + self.0.len() as u64);
            each(self, AT..end, CODE, |start, stop| found.push((start, stop)));
            found
        }
    }

    #[test]
    fn functions_of_entries_behind_a_common_one() {
        let mut section = Section::new();
        section.describe(CODE.start + 16, 100);
        // Outside of the code, and without bytes.
        section.describe(CODE.end - 8, 100);
        section.describe(CODE.start + 200, 0);
        section.describe(CODE.start + 300, 1);
        // What ends the section.
        section.0.extend([0; 4]);
        section.describe(CODE.start + 400, 1);
        let at = |from: u64, len: u64| (CODE.start + from, CODE.start + from + len);
        assert_eq!(section.functions(), [at(16, 100), at(300, 1)]);
        section.0[8 + 9] = b'P';
        assert_eq!(section.functions(), [], "no common entry that is known");
    }

    #[test]
    fn an_entry_longer_than_the_section_ends_it() {
        let mut section = Section::new();
        section.describe(CODE.start, 4);
        let last = section.0.len();
        section.describe(CODE.start + 16, 4);
        section.0[last..last + 4].copy_from_slice(&(MAX_ENTRY + 1).to_le_bytes());
        assert_eq!(section.functions(), [(CODE.start, CODE.start + 4)]);
    }
}
