//! The list of all operations of a replay, slot by slot, which a replay with a rebuilt program ([`crate::rebuilt`]) follows.
//!
//! The log of the `order` engine tells of most operations only that there were some. A replay of the recorded program itself makes them all again:
//! it writes down, of each, what it is and which address it is made on. The next replay, with a rebuilt program, takes that list for what its
//! threads are to do, and knows objects by the addresses that are in it.
//!
//! It is memory of its own, mapped by the plans ([`crate::stage`]) of both replays: a [`Listing`], then chunks of [`CHUNK_WORDS`] words, of which the
//! first says which chunk of the slot comes next.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::layout::{MAX_SLOTS, RESERVATION};

/// Where it is mapped.
pub const LISTING_BASE: u64 = RESERVATION + 0xa_0000_0000;
/// Its bytes (address space; memory is used only as touched).
pub const LISTING_LEN: u64 = 1 << 30;
/// Words of a chunk.
pub const CHUNK_WORDS: usize = 1024;
/// Bytes of a chunk.
pub const CHUNK: u64 = CHUNK_WORDS as u64 * 8;
/// Most chunks; their numbers begin with 1.
pub const MAX_CHUNKS: u32 = ((LISTING_LEN - HEAD) / CHUNK) as u32 - 1;
const HEAD: u64 = core::mem::size_of::<Listing>() as u64;

/// A slot's place in its list.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Place {
    /// Its first chunk, 0 for none.
    pub first: AtomicU32,
    /// The chunk where it goes on, ...
    pub chunk: AtomicU32,
    /// ... and the word in it.
    pub word: AtomicU32,
    _pad: AtomicU32,
}

/// The head.
#[repr(C, align(4096))]
pub struct Listing {
    /// Chunks that are used.
    pub chunks: AtomicU32,
    /// Not 0: the runtime knows of the list.
    pub known: AtomicU32,
    /// Where in the rebuilt program's own code the thread was that left the recorded path, or where that code called what it was in; 0: nowhere.
    pub caller: AtomicU64,
    /// The slots' places.
    pub places: [Place; MAX_SLOTS],
}

/// Where a chunk lies, counted from the head's first byte.
pub const fn chunk_offset(number: u32) -> u64 {
    HEAD + (number as u64 - 1) * CHUNK
}

/// [`Item::what`]: the inputs of a system call that hold addresses; the address is a hash of them.
pub const CALL: u8 = 0xff;
const ADDRESS_BITS: u32 = 56;

/// What a thread did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// The number of the operation's [`EntryKind`](crate::order::EntryKind), or [`CALL`].
    pub what: u8,
    /// The address of its object, 0 if it has none.
    pub address: u64,
}

impl Item {
    /// As a word, which is never 0.
    pub fn to_word(self) -> u64 {
        // A kind is never the highest number.
        let what = match self.what {
            CALL => CALL,
            kind => kind + 1,
        };
        (what as u64) << ADDRESS_BITS | self.address & ((1 << ADDRESS_BITS) - 1)
    }

    /// From a word; `None`: there is nothing more.
    pub fn from_word(word: u64) -> Option<Item> {
        let what = match (word >> ADDRESS_BITS) as u8 {
            0 => return None,
            CALL => CALL,
            n => n - 1,
        };
        Some(Item {
            what,
            address: word & ((1 << ADDRESS_BITS) - 1),
        })
    }
}

/// A word of the list.
pub type Word = AtomicU64;

const _: () = assert!(core::mem::size_of::<Place>() == 16 && HEAD % 4096 == 0);
const _: () = assert!(
    LISTING_BASE >= crate::layout::SHADOW_BASE
        && LISTING_BASE + LISTING_LEN <= crate::order::ORDER_BASE
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_was_done() {
        for what in [0, 1, 8, CALL] {
            let item = Item {
                what,
                address: 0x7fff_ffff_fff8,
            };
            assert_eq!(Item::from_word(item.to_word()), Some(item));
            assert_ne!(Item { what, address: 0 }.to_word(), 0);
        }
        assert_eq!(Item::from_word(0), None);
    }
}
