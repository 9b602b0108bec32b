//! Inputs by reference: what a program reads of a file is in its event not as bytes, but as a place in a copy of that file, which the agent keeps
//! (DoublePlay 5.1 and Samsara 6.3 log no reads of disks either).
//!
//! The table in shared memory has a row for each version of a file that may be referred to. The agent fills rows; the runtime looks them up by what
//! fstat(2) says, so that a file that changed is found in none. A thread *promises* a reference before it reads, and takes the promise back when it
//! logs bytes: whoever is about to change a file waits until all that was promised of it is kept.

use crate::hash;
use crate::session::{Session, FILE_STAMP};
use crate::syscalls::nr;
use core::sync::atomic::{AtomicU32, AtomicU64};

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
}

/// The table.
#[repr(C, align(4096))]
pub struct Inputs {
    /// Not 0: whatever is read is logged by its bytes (`record --inputs copy`).
    pub copies: AtomicU32,
    /// One more than the highest row that was ever used.
    pub used: AtomicU32,
    _pad: [AtomicU64; 7],
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

/// Can the event of this call refer to a file? Calls that read from a descriptor into memory, and do nothing else.
#[inline]
pub fn can_refer(number: u64) -> bool {
    matches!(
        number,
        nr::READ | nr::PREAD64 | nr::READV | nr::PREADV | nr::PREADV2
    )
}

/// Bytes of a reference in a section [`Tag::Reference`](crate::event::Tag::Reference), whose address is where the program has the bytes.
pub const REFERENCE_LEN: usize = 32;

/// [`Reference::hash`]: nobody could say what the program had read there.
pub const UNKNOWN_HASH: u64 = 0;

/// The bit of [`Reference::number`] that says that the copy is known not to be what the program read.
pub const INEXACT: u64 = 1 << 63;

/// A part of a file that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Number of the file's version, maybe with [`INEXACT`].
    pub number: u64,
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// [`hash_of`] these bytes, as the program has them.
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
        let bytes: &[u8; REFERENCE_LEN] = bytes.try_into().ok()?;
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_le_bytes(w)
        };
        let it = Reference::of_words([word(0), word(1), word(2), word(3)]);
        let end = it.offset.checked_add(it.len)?;
        (end <= i64::MAX as u64 && it.len <= crate::event::MAX_EVENT as u64).then_some(it)
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

/// Bytes that are hashed at a time, so that whoever copies them can hash them on the way.
pub const PIECE: usize = 256 << 10;

/// The hash of what was read: of one piece after the other; never [`UNKNOWN_HASH`].
pub struct PieceHash(u64);

impl PieceHash {
    /// Of nothing.
    #[allow(clippy::new_without_default)]
    pub fn new() -> PieceHash {
        PieceHash(0)
    }

    /// The next piece: of [`PIECE`] bytes, only the last may be shorter.
    ///
    /// # Safety
    /// The bytes must be readable, or the caller survives that they are not.
    #[inline]
    pub unsafe fn add(&mut self, address: u64, len: usize) {
        // SAFETY: as the caller says.
        self.0 = unsafe { hash::bytes(self.0, address, len) };
    }

    /// The hash.
    pub fn finish(self) -> u64 {
        self.0.max(1)
    }
}

/// The hash of these bytes.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut h = PieceHash::new();
    for piece in bytes.chunks(PIECE) {
        // SAFETY: a slice is readable.
        unsafe { h.add(piece.as_ptr() as u64, piece.len()) };
    }
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
    fn pieces_are_told_apart() {
        let mut bytes = std::vec![7u8; 2 * PIECE + 100];
        let whole = hash_of(&bytes);
        assert_eq!(whole, hash_of(&bytes));
        assert_ne!(whole, hash_of(&bytes[1..]));
        for at in [0, PIECE - 1, PIECE, 2 * PIECE + 99] {
            bytes[at] ^= 1;
            assert_ne!(whole, hash_of(&bytes), "byte {at}");
            bytes[at] ^= 1;
        }
        assert_ne!(hash_of(&[]), UNKNOWN_HASH);
    }
}
