//! What a replay with a rebuilt program (`replay --with`) is told of it: where things are now, and where they were in the recording.
//!
//! It lies at [`REBUILT_BASE`], mapped by the plan ([`crate::stage`]): a [`Rebuilt`], then `len` times a [`Moved`].

use crate::layout::RESERVATION;

/// Where it is mapped.
pub const REBUILT_BASE: u64 = RESERVATION + 0x1_9000_0000;
/// Most entries.
pub const MAX_MOVED: usize = 1 << 16;
/// The option of prctl(2) by which a program prints without a system call (`include/reprise.h`).
pub const PRINT: u64 = 0x5250_5250;

/// The head.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Rebuilt {
    /// Where the recorded program was; nothing if this image is not of that program.
    pub was: [u64; 2],
    /// Where the rebuilt one is.
    pub is: [u64; 2],
    /// Entries.
    pub len: u64,
}

/// A variable, or a stretch of a section, of the rebuilt program. Entries are in the order of their addresses, and none overlaps another.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Its first address.
    pub start: u64,
    /// Behind its last one.
    pub end: u64,
    /// Its first address in the recording.
    pub was: u64,
}

const _: () = assert!(core::mem::size_of::<Rebuilt>() == 40 && core::mem::size_of::<Moved>() == 24);
const _: () = assert!(
    REBUILT_BASE
        >= crate::layout::BLOCKS_BASE
            + crate::layout::MAX_SLOTS as u64 * crate::layout::BLOCK_STRIDE
        && REBUILT_BASE + 40 + 24 * MAX_MOVED as u64 <= crate::layout::ARENA_BASE
);
