//! Inputs by reference: what a program reads of a file is in its event not as bytes, but as a place in a copy of that file, which the agent keeps
//! (DoublePlay 5.1 and Samsara 6.3 log no reads of disks either).
//!
//! The table in shared memory has a row for each version of a file that may be referred to. The agent fills rows; the runtime looks them up by what
//! fstat(2) says, so that a file that changed is found in none. A thread *promises* a reference before it reads, and takes the promise back when it
//! logs bytes: whoever is about to change a file waits until all that was promised of it is kept.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::effect::Effect;
use crate::event::Tag;
use crate::hash;
use crate::session::{Session, FILE_STAMP};
use crate::syscalls;
use core::ops::Range;

/// Most files that can be referred to at one time.
pub const MAX_INPUTS: usize = 256;

/// States of an [`Input`].
pub mod input_state {
    /// The row is not used.
    pub const FREE: u32 = 0;
    /// It can be referred to.
    pub const OPEN: u32 = 1;
    /// Nobody may refer to it any more.
    pub const CLOSED: u32 = 2;
}

/// A version of a file.
#[repr(C, align(64))]
pub struct Input {
    /// What tells it, as in [`KnownFile`](crate::session::KnownFile).
    pub stamp: [AtomicU64; FILE_STAMP],
    /// One of [`input_state`].
    pub state: AtomicU32,
    /// Its number in the trace, from 1.
    pub number: AtomicU32,
    /// References that threads have logged, or are about to.
    pub promised: AtomicU64,
    /// Not 0: mappings may refer to it, too ([`crate::mapped`]).
    pub mappable: AtomicU32,
    /// Not 0: the kernel lets nobody change the file before the row is closed (fcntl(2), "Leases").
    pub leased: AtomicU32,
}

/// The table.
#[repr(C, align(4096))]
pub struct Inputs {
    /// Not 0: whatever is read is logged by its bytes (`record --inputs copy`).
    pub copies: AtomicU32,
    /// One more than the highest row that was ever used.
    pub used: AtomicU32,
    /// Calls of lseek(2) that have begun and ended, of sessions with several threads: while one is made, or between two, a position says nothing about where
    /// another thread's bytes came from.
    pub seeks_begun: AtomicU64,
    /// See [`Inputs::seeks_begun`].
    pub seeks_ended: AtomicU64,
    _pad: [AtomicU64; 5],
    /// The rows.
    pub files: [Input; MAX_INPUTS],
}

/// How the name of a copy begins, among the contents of a trace; its number follows.
pub const FILE_PREFIX: &str = "input.";

/// Where the table is, from the session's beginning on.
pub const INPUTS_OFFSET: usize =
    (crate::owed::OWED_OFFSET + crate::owed::OWED_LEN).next_multiple_of(4096);
/// Bytes of the table.
pub const INPUTS_LEN: usize = core::mem::size_of::<Inputs>();

/// The table of a session.
pub fn inputs(session: &Session) -> &Inputs {
    let at = session as *const Session as usize + INPUTS_OFFSET;
    // SAFETY: a session's memory has it there; it is only atomics.
    unsafe { &*(at as *const Inputs) }
}

/// Can the event of this call refer to a file?
#[inline]
pub fn can_refer(number: u64) -> bool {
    match syscalls::effect(number) {
        Effect::Reads(..) => true,
        Effect::Moves(m) => !m.leaves,
        _ => false,
    }
}

/// Does this call read from a descriptor into memory, and do nothing else?
#[inline]
pub fn reads(number: u64) -> bool {
    matches!(syscalls::effect(number), Effect::Reads(..))
}

/// Does the kernel move bytes from one descriptor to another by this call, past the program's memory?
#[inline]
pub fn moves(number: u64) -> bool {
    matches!(syscalls::effect(number), Effect::Moves(_))
}

/// Bytes of a reference in a section: [`Tag::Reference`], whose address is where the program has the bytes, or [`Tag::SentReference`].
pub const REFERENCE_LEN: usize = 32;

/// [`Reference::hash`]: nobody could say what the program had read there. Where the program never had the bytes (sendfile(2)) the agent puts in what
/// the copy hashes as.
pub const UNKNOWN_HASH: u64 = 0;

/// The bit of [`Reference::number`] that says that the copy is known not to be what the program read.
pub const INEXACT: u64 = 1 << 63;

/// Is a section with this tag a reference?
#[inline]
pub fn is_reference(tag: Tag) -> bool {
    matches!(tag, Tag::Reference | Tag::SentReference)
}

/// A part of a file that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Number of the file's version, maybe with [`INEXACT`].
    pub number: u64,
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// [`hash_of`] these bytes, as the program has them; or [`UNKNOWN_HASH`].
    pub hash: u64,
}

impl Reference {
    /// In words, as in a section.
    pub fn words(&self) -> [u64; 4] {
        [self.number, self.offset, self.len, self.hash]
    }

    /// From the words of a section.
    pub fn of_words([number, offset, len, hash]: [u64; 4]) -> Reference {
        Reference {
            number,
            offset,
            len,
            hash,
        }
    }

    /// From the bytes of a section; none when they are none, or lead beyond all files.
    pub fn parse(bytes: &[u8]) -> Option<Reference> {
        Reference::of_bytes(bytes).filter(|it| it.len <= crate::event::MAX_EVENT as u64)
    }

    /// As [`Reference::parse`], of any length that files have.
    pub fn of_bytes(bytes: &[u8]) -> Option<Reference> {
        let bytes: &[u8; REFERENCE_LEN] = bytes.try_into().ok()?;
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_le_bytes(w)
        };
        let it = Reference::of_words([word(0), word(1), word(2), word(3)]);
        let end = it.offset.checked_add(it.len)?;
        (end <= i64::MAX as u64).then_some(it)
    }

    /// The number of the file's version.
    pub fn file(&self) -> u64 {
        self.number & !INEXACT
    }

    /// Is the copy known not to be what the program read?
    pub fn is_inexact(&self) -> bool {
        self.number & INEXACT != 0
    }
}

/// A file's blocks: each is hashed by itself. Whoever knows their hashes needs none of the bytes.
pub const BLOCK: u64 = 16 << 10;

/// Bytes that are best copied and hashed at a time: what was just copied is in the processor's cache. Some blocks.
pub const PIECE: u64 = 16 * BLOCK;

/// The parts of `offset..end` that lie between multiples of `unit`.
pub fn cut(offset: u64, end: u64, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let next = move |at: u64| (at / unit).saturating_add(1).saturating_mul(unit).min(end);
    let mut at = offset;
    core::iter::from_fn(move || {
        let part = at..next(at);
        at = part.end;
        (part.start < part.end).then_some(part)
    })
}

/// The hash of a range of a file: of the hashes of its blocks, the first and the last as far as they are in it. Never [`UNKNOWN_HASH`].
pub struct RangeHash {
    at: u64,
    sum: u64,
}

impl RangeHash {
    /// Of no bytes, at `offset` of the file.
    pub fn new(offset: u64) -> RangeHash {
        RangeHash { at: offset, sum: 0 }
    }

    /// The next bytes. They end with a block, or are the last.
    ///
    /// # Safety
    /// The bytes must be readable, or the caller survives that they are not.
    #[inline]
    pub unsafe fn add(&mut self, address: u64, len: usize) {
        let begin = self.at;
        for part in cut(begin, begin + len as u64, BLOCK) {
            let (from, len) = (address + (part.start - begin), part.end - part.start);
            // SAFETY: as the caller says.
            self.add_block(unsafe { hash::long(from, len as usize) }, len);
        }
    }

    /// The next block, or a part of it, `len` bytes that hash as `sum`.
    #[inline]
    pub fn add_block(&mut self, sum: u64, len: u64) {
        self.sum = hash::words(self.sum, &[sum]);
        self.at += len;
    }

    /// The hash.
    pub fn finish(self) -> u64 {
        self.sum.max(1)
    }
}

/// The hash of a block, or a part of it.
pub fn block_hash(bytes: &[u8]) -> u64 {
    // SAFETY: a slice is readable.
    unsafe { hash::long(bytes.as_ptr() as u64, bytes.len()) }
}

/// The hash of these bytes, which are at `offset` of a file.
pub fn hash_of(offset: u64, bytes: &[u8]) -> u64 {
    let mut h = RangeHash::new(offset);
    // SAFETY: a slice is readable.
    unsafe { h.add(bytes.as_ptr() as u64, bytes.len()) };
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_come_back() {
        let it = Reference {
            number: 7 | INEXACT,
            offset: 4096,
            len: 65536,
            hash: 0x1234,
        };
        let bytes: std::vec::Vec<u8> = it.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(Reference::parse(&bytes), Some(it));
        assert!(it.is_inexact());
        assert_eq!(it.file(), 7);
        assert_eq!(Reference::parse(&bytes[1..]), None);
        let beyond = Reference {
            offset: u64::MAX,
            ..it
        };
        let bytes: std::vec::Vec<u8> = beyond
            .words()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        assert_eq!(Reference::parse(&bytes), None);
    }

    #[test]
    fn blocks_are_told_apart() {
        const LEN: usize = 2 * BLOCK as usize + 100;
        let mut bytes = std::vec![7u8; LEN];
        let whole = hash_of(0, &bytes);
        assert_eq!(whole, hash_of(0, &bytes));
        assert_ne!(whole, hash_of(0, &bytes[1..]));
        for at in [0, BLOCK as usize - 1, BLOCK as usize, LEN - 1] {
            bytes[at] ^= 1;
            assert_ne!(whole, hash_of(0, &bytes), "byte {at}");
            bytes[at] ^= 1;
        }
        // Two blocks in the other order.
        let other: std::vec::Vec<u8> = (0..LEN).map(|i| (i / BLOCK as usize) as u8).collect();
        let (first, rest) = other.split_at(BLOCK as usize);
        let (second, last) = rest.split_at(BLOCK as usize);
        assert_ne!(
            hash_of(0, &other),
            hash_of(0, &[second, first, last].concat())
        );
        assert_ne!(hash_of(0, &[]), UNKNOWN_HASH);
    }

    #[test]
    fn hashes_of_blocks_do_for_their_bytes() {
        let bytes: std::vec::Vec<u8> = (0..100_000u64).map(|i| ((i * i) >> 3) as u8).collect();
        for (offset, end) in [
            (0, 100_000),
            (5, 99_999),
            (16_384, 32_768),
            (20_000, 21_000),
        ] {
            let mut h = RangeHash::new(offset as u64);
            for part in cut(offset as u64, end as u64, BLOCK) {
                let bytes = &bytes[part.start as usize..part.end as usize];
                h.add_block(block_hash(bytes), bytes.len() as u64);
            }
            assert_eq!(h.finish(), hash_of(offset as u64, &bytes[offset..end]));
            let mut h = RangeHash::new(offset as u64);
            for part in cut(offset as u64, end as u64, 2 * BLOCK) {
                let bytes = &bytes[part.start as usize..part.end as usize];
                // SAFETY: a slice is readable.
                unsafe { h.add(bytes.as_ptr() as u64, bytes.len()) };
            }
            assert_eq!(h.finish(), hash_of(offset as u64, &bytes[offset..end]));
        }
    }
}
