//! What `reprise run --det-report` leaves behind: writes of two threads to the same memory between the same two synchronisation points.
//!
//! It is memory that the program and `reprise` share, where a replay would have its plan ([`STAGE_BASE`]).

use crate::atomic::{AtomicU32, AtomicU64};
use crate::layout::{STAGE_BASE, STAGE_MAX};
use crate::races::REGISTERS;

/// Where it is mapped.
pub const CONFLICTS_BASE: u64 = STAGE_BASE;
/// Bytes that are mapped.
pub const CONFLICTS_LEN: u64 = core::mem::size_of::<Conflicts>().next_multiple_of(4096) as u64;
/// Most conflicts that are told of, each once.
pub const MAX_CONFLICTS: usize = 64;
/// Most bytes of a stack that are copied.
pub const MAX_STACK: usize = 16 << 10;
/// Most bytes of /proc/self/maps.
pub const MAX_MAPS: usize = 2 << 20;

/// Where a thread was when what it had written became everybody's: at the synchronisation point that ended its stretch.
#[repr(C)]
pub struct Stand {
    /// The thread, as they were made; the first is 0.
    pub thread: AtomicU32,
    /// The round of turns in which that was so.
    pub round: AtomicU32,
    /// See [`REGISTERS`]; all of them 0 when they are not known.
    pub registers: [AtomicU64; REGISTERS],
    /// Bytes of the stack, from the stack pointer on.
    pub stack_len: AtomicU64,
    /// The stack.
    pub stack: [AtomicU64; MAX_STACK / 8],
}

/// Memory that two threads have written.
#[repr(C)]
pub struct Conflict {
    /// Its first byte.
    pub address: AtomicU64,
    /// Bytes.
    pub len: AtomicU64,
    /// How often that was so, with both threads at the same places.
    pub times: AtomicU64,
    /// The thread that came first in the order of turns, whose bytes are lost; the other one.
    pub threads: [Stand; 2],
}

/// All of it.
#[repr(C)]
pub struct Conflicts {
    /// How many there are in `list`.
    pub found: AtomicU32,
    /// Bytes of `maps`.
    pub maps_len: AtomicU32,
    /// Conflicts for which there was no room.
    pub more: AtomicU64,
    /// Conflicts, in the order in which they were found.
    pub list: [Conflict; MAX_CONFLICTS],
    /// What was mapped where when the last one was found.
    pub maps: [u8; MAX_MAPS],
}

const _: () = assert!(CONFLICTS_LEN <= STAGE_MAX);
