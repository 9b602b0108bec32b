//! Hashes of a copy's blocks: what was hashed once, when it was copied, is not read again to compare what a program has with it.

use reprise_abi::inputs::{block_hash, cut, BLOCK};
use std::ops::Range;

/// Hashes of a file's blocks, as far as they are known.
pub struct Blocks {
    /// The file's length.
    len: u64,
    /// By number; 0: not known.
    sums: Vec<u64>,
}

impl Blocks {
    /// Of a file of so many bytes; none is known.
    pub fn new(len: u64) -> Blocks {
        Blocks {
            len,
            sums: Vec::new(),
        }
    }

    /// Of a file of so many bytes, from [`Blocks::all`].
    pub fn of(len: u64, sums: Vec<u64>) -> Blocks {
        Blocks { len, sums }
    }

    /// How many blocks a file of so many bytes has.
    pub fn count(len: u64) -> u64 {
        len.div_ceil(BLOCK)
    }

    fn is_block(&self, part: &Range<u64>) -> bool {
        part.start % BLOCK == 0 && part.end == (part.start + BLOCK).min(self.len)
    }

    /// The hash of `part`, if it is a block whose hash is known.
    pub fn get(&self, part: &Range<u64>) -> Option<u64> {
        let sum = *self.sums.get((part.start / BLOCK) as usize)?;
        (sum != 0 && self.is_block(part)).then_some(sum)
    }

    /// Are the hashes of all parts of `range` known?
    pub fn knows(&self, range: Range<u64>) -> bool {
        cut(range.start, range.end, BLOCK).all(|part| self.get(&part).is_some())
    }

    /// `part` hashes as `sum`: worth knowing if it is a block.
    pub fn set(&mut self, part: &Range<u64>, sum: u64) {
        if self.is_block(part) {
            let n = (part.start / BLOCK) as usize;
            if self.sums.len() <= n {
                self.sums.resize(n + 1, 0);
            }
            self.sums[n] = sum;
        }
    }

    /// The hash of `part`, whose bytes these are.
    pub fn hash(&mut self, part: &Range<u64>, bytes: &[u8]) -> u64 {
        self.get(part).unwrap_or_else(|| {
            let sum = block_hash(bytes);
            self.set(part, sum);
            sum
        })
    }

    /// What is in `range` is not there any more.
    pub fn forget(&mut self, range: Range<u64>) {
        let blocks = (range.start / BLOCK) as usize..range.end.div_ceil(BLOCK) as usize;
        let known = self.sums.iter_mut().take(blocks.end).skip(blocks.start);
        known.for_each(|sum| *sum = 0);
    }

    /// How many blocks are not known.
    pub fn count_unknown(&self) -> u64 {
        let known = self.sums.iter().filter(|sum| **sum != 0).count();
        Blocks::count(self.len).saturating_sub(known as u64)
    }

    /// Blocks that are not known.
    pub fn unknown(&self) -> Vec<Range<u64>> {
        let all = cut(0, self.len, BLOCK);
        all.filter(|part| self.get(part).is_none()).collect()
    }

    /// The hashes of all blocks; none if some are not known.
    pub fn all(&self) -> Option<&[u64]> {
        let all = self.sums.len() as u64 == Blocks::count(self.len);
        (all && !self.sums.contains(&0)).then_some(&self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_are_known() {
        let bytes: Vec<u8> = (0..50_000u32).map(|i| (i / 7) as u8).collect();
        let mut blocks = Blocks::new(50_000);
        let hash = |blocks: &mut Blocks, range: Range<u64>| {
            let part = &bytes[range.start as usize..range.end as usize];
            assert_eq!(blocks.hash(&range, part), block_hash(part));
        };
        hash(&mut blocks, 0..BLOCK);
        hash(&mut blocks, BLOCK..BLOCK + 100);
        assert!(blocks.knows(0..BLOCK));
        assert!(!blocks.knows(0..BLOCK - 1));
        assert!(!blocks.knows(BLOCK..BLOCK + 100));
        assert_eq!(blocks.unknown().len(), 3);
        assert_eq!(blocks.count_unknown(), 3);
        assert_eq!(blocks.all(), None);
        for part in cut(0, 50_000, BLOCK) {
            hash(&mut blocks, part);
        }
        // The last is shorter.
        assert!(blocks.knows(0..50_000));
        assert!(!blocks.knows(0..49_999));
        let again = Blocks::of(50_000, blocks.all().unwrap().to_vec());
        assert!(again.knows(BLOCK..50_000));
        blocks.forget(BLOCK + 5..BLOCK + 6);
        assert_eq!(blocks.unknown().first(), Some(&(BLOCK..2 * BLOCK)));
    }
}
