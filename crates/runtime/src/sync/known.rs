//! What a thread knows of atomic words: the value that it saw, or put there, last (`order`).
//!
//! A load that finds this value again tells the thread nothing new. It needs no place among the others' operations, since the thread could have
//! made it right after it learnt the value; so it is quiet, and a replay takes the value from here.

use crate::thread::Block;

/// How many words a thread remembers: a power of two.
const WORDS: usize = 256;
/// The size of a word is told in its tag above the address.
pub const SIZE_SHIFT: u32 = 56;
/// Where a word is remembered: the highest bits of the product of its address with this, ...
pub const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// ... which are left when so many are shifted out.
pub const PLACE_SHIFT: u32 = 64 - WORDS.trailing_zeros();

/// A cache of words' values, by address and size.
#[derive(Clone, Copy)]
pub struct Known {
    pub(crate) tags: [u64; WORDS],
    pub(crate) values: [u64; WORDS],
}

impl Block {
    /// What the thread knows of atomic words.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub fn known(&self) -> &mut Known {
        // SAFETY: the area is this room's own; plain words.
        unsafe { self.known.get::<Known>() }
    }
}

impl Default for Known {
    fn default() -> Known {
        Known {
            tags: [0; WORDS],
            values: [0; WORDS],
        }
    }
}

fn place(address: u64) -> usize {
    (address.wrapping_mul(FACTOR) >> PLACE_SHIFT) as usize % WORDS
}

fn tag(address: u64, size: usize) -> u64 {
    address ^ (size as u64) << SIZE_SHIFT
}

impl Known {
    /// The value of the word at this address, if it is known.
    #[inline(always)]
    pub fn get(&self, address: u64, size: usize) -> Option<u64> {
        let i = place(address);
        (self.tags[i] == tag(address, size)).then_some(self.values[i])
    }

    /// From now on this is known of the word.
    #[inline(always)]
    pub fn put(&mut self, address: u64, size: usize, value: u64) {
        let i = place(address);
        self.tags[i] = tag(address, size);
        self.values[i] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_word_is_known() {
        let mut k = Known::default();
        assert_eq!(k.get(0x1000, 4), None);
        k.put(0x1000, 4, 7);
        k.put(0x1000, 4, 8);
        assert_eq!(k.get(0x1000, 4), Some(8));
        // Another size is another word, at the same place of the cache.
        assert_eq!(k.get(0x1000, 8), None);
        k.put(0x1000, 8, 9);
        assert_eq!(k.get(0x1000, 4), None);
        assert_eq!(k.get(0x1000, 8), Some(9));
    }
}
