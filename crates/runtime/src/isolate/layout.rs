//! Where the shared memory of the engine lies, and how large its parts are.

use reprise_abi::conflicts::Stand;
use reprise_abi::layout::{LOWEST_PIE, MAX_SLOTS, PAGE, RESERVATION_END, SHADOW_BASE};
use reprise_abi::order::ORDER_BASE;

/// The backing, mapped shared.
pub const MIRROR: u64 = RESERVATION_END;
/// Bytes of the backing.
pub const BACKING: u64 = 0x20_0000_0000;
/// The backing, mapped privately and without access: views are pieces of this mapping, moved to where the program wants them. So nobody
/// needs a descriptor of the backing, which the program could see or close.
pub const RESERVE: u64 = MIRROR + BACKING;

/// Where the arena ends ([`crate::memory::scratch::arena`]).
pub const ARENA_END: u64 = DET_BASE;
/// Shared memory of the engine: its state first.
pub const DET_BASE: u64 = SHADOW_BASE;
/// All of it.
pub const DET_LEN: u64 = ORDER_BASE - SHADOW_BASE;
/// More of it.
pub const REST_BASE: u64 = DET_BASE + (16 << 20);
/// Signals to the process that wait ([`super::shared_signals`]).
pub const QUEUE_BASE: u64 = DET_BASE + (24 << 20);
/// Whether a child of fork(2) has its copy of the memory ([`super::apart`]).
pub const COPIED: u64 = QUEUE_BASE + (4 << 20);
/// The table of views.
pub const VIEWS: u64 = DET_BASE + (32 << 20);
/// What else the engine keeps, as images of streams, ...
pub const STREAMS: u64 = DET_BASE + (40 << 20);
/// ... and bytes of that.
pub const STREAMS_LEN: u64 = PAGES - STREAMS;
/// What is known of each page of the backing.
pub const PAGES: u64 = DET_BASE + (64 << 20);
/// How many threads have a copy of each page of the backing.
pub const HOLDERS: u64 = PAGES + BACKING / PAGE * 16;
/// Lists of pages, two for each slot.
pub const LISTS: u64 = DET_BASE + (4 << 30);
/// Pages in a list, at most.
pub const LIST_MAX: usize = 1 << 18;
/// What was committed in a round, and of whom: for `run --det-report` ([`super::conflicts`]).
pub const COMMITTED: u64 = DET_BASE + (1 << 30);
/// Bytes of that.
pub const COMMITTED_LEN: u64 = 2 << 30;
/// Where each slot's thread was when it committed.
pub const STANDS: u64 = COMMITTED + COMMITTED_LEN;
/// Beside each list, where in the backing its pages are, by number.
pub const PLACES: u64 = LISTS + (MAX_SLOTS * 2 * LIST_MAX * 8) as u64;
/// Pages as they were at the beginning of the phase.
pub const TWINS: u64 = PLACES + (MAX_SLOTS * 2 * LIST_MAX * 4) as u64;
/// How many at most.
pub const TWINS_MAX: u32 = ((DET_BASE + DET_LEN - TWINS) / PAGE) as u32;

const _: () = assert!(BACKING / PAGE <= u32::MAX as u64);
const _: () = assert!(RESERVE + BACKING <= LOWEST_PIE);
const _: () = assert!(HOLDERS + BACKING / PAGE * 2 <= COMMITTED);
const _: () = assert!(STANDS + (MAX_SLOTS * core::mem::size_of::<Stand>()) as u64 <= LISTS);
const _: () = assert!(TWINS < DET_BASE + DET_LEN);
