//! What `reprise races` and the runtime in its replays tell each other.
//!
//! It lies in the session's own ring ([`RING_BASE`]), which a replay of the `order` engine has no use for: its threads have rings of their own.
//!
//! There are two replays, both in total order, so that they are the same to the instruction. The first finds pairs of accesses, and knows
//! each by its number among all accesses of the run. The second stops at those numbers and copies the stacks.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::layout::{RING_BASE, RING_SIZE};

/// Where it is mapped.
pub const RACES_BASE: u64 = RING_BASE;
/// Most races that are told of.
pub const MAX_RACES: usize = 32;
/// Most bytes of a stack that are copied.
pub const MAX_STACK: usize = 96 << 10;
/// Registers of a [`Stop`]: rbx, rbp, rsp, r12, r13, r14, r15, rip, as they are after the access.
pub const REGISTERS: usize = 8;

/// What an access is: [`Access::how`].
pub mod how {
    /// It changes the memory; otherwise it reads it.
    pub const WRITES: u32 = 1;
    /// It is atomic: two of these don't race.
    pub const ATOMIC: u32 = 2;
    /// The memory is given back (free(3)), which is a write of all of it.
    pub const FREES: u32 = 4;
}

/// One access to memory.
#[repr(C)]
#[derive(Default, Debug)]
pub struct Access {
    /// Its number among all accesses of the replay, from 1 on.
    pub number: AtomicU64,
    /// Address of its first byte, where that is known.
    pub address: AtomicU64,
    /// Bytes.
    pub size: AtomicU64,
    /// Where the program goes on after it.
    pub pc: AtomicU64,
    /// Bits of [`how`].
    pub how: AtomicU32,
    /// The thread, counted by their beginnings; the first is 0.
    pub thread: AtomicU32,
    /// The thread's slot.
    pub slot: AtomicU32,
    /// The thread's id in the recording.
    pub tid: AtomicU32,
    /// Events of the slot before it, and entries of synchronisation.
    pub events: AtomicU64,
}

/// Two accesses that nothing orders.
#[repr(C)]
#[derive(Default, Debug)]
pub struct Race {
    /// The first one, as far as the first replay knows it: number, pc, how, thread.
    pub earlier: Access,
    /// The one that found it.
    pub later: Access,
}

/// An access whose stack is wanted.
#[repr(C)]
pub struct Stop {
    /// Its number; filled by the driver, in ascending order.
    pub number: AtomicU64,
    /// 1 when the rest is filled.
    pub taken: AtomicU32,
    _pad: AtomicU32,
    /// The access.
    pub access: Access,
    /// See [`REGISTERS`].
    pub registers: [AtomicU64; REGISTERS],
    /// Bytes of the stack, from the stack pointer on.
    pub stack_len: AtomicU64,
    /// The stack.
    pub stack: [AtomicU64; MAX_STACK / 8],
}

/// All of it.
#[repr(C)]
pub struct Races {
    /// Modules that `reprise cc --races` built.
    pub modules: AtomicU32,
    /// How many races there are in `list`.
    pub found: AtomicU32,
    /// How many are looked for before the replay ends, at least 1; [`MAX_RACES`] for as many as there is room for. 0 in the second replay.
    pub wanted: AtomicU32,
    /// How many stops there are.
    pub stops_len: AtomicU32,
    /// Accesses that were seen.
    pub accesses: AtomicU64,
    /// The races.
    pub list: [Race; MAX_RACES],
    /// Where the second replay stops.
    pub stops: [Stop; 2 * MAX_RACES],
}

const _: () = assert!(core::mem::size_of::<Races>() as u64 <= RING_SIZE);
