//! Where Reprise lies in the address space of a recorded or replayed program.
//!
//! Everything of ours lies inside one reservation at a fixed address that was free in every program tried
//! (dynamic, static, PIE, Go, Java, node). The same addresses are used in record and in replay,
//! so that nothing the program can see depends on which of the two it lives in.
//!
//! Sanitizers divide the address space among themselves and end the program when something lies where they want their
//! shadows, or where they let nothing be. What each of them leaves to programs, by its sources (gcc 12 to 14, LLVM 14 to 19):
//!
//! | sanitizer | places that a program may use (in TiB of address space, hexadecimal) |
//! |---|---|
//! | address | all above 0x10.01 but its heap, at 0x60 to 0x64 or 0x50 to 0x54 |
//! | thread | below 0x00.80; 0x55.00 to 0x56.80 (where PIE programs are); above 0x7e.80 |
//! | memory | below 0x01.00; 0x51.00 to 0x60.00; above 0x70.00 (heap at 0x70 to 0x74) |
//! | data flow | below 0x01.00; 0x51.00 to 0x60.00; above 0x70.00 |
//!
//! (0x55.00 stands for the address 0x5500_0000_0000.) The kernel loads PIE programs at 0x5555_5555_4000 and above, with
//! randomisation too; their brk areas lie above them. So what is below that and not below 0x5500_0000_0000 suits all.

/// Start of the reservation.
pub const RESERVATION: u64 = 0x5500_0000_0000;
/// Where the kernel loads PIE programs, or above (two thirds of the address space, `ELF_ET_DYN_BASE`).
pub const LOWEST_PIE: u64 = 0x5555_5555_4000;
/// End of the reservation (exclusive).
pub const RESERVATION_END: u64 = RESERVATION + 0x10_0000_0000;

/// The runtime's image (text, read-only data, data).
pub const IMAGE_BASE: u64 = RESERVATION;
/// Largest image accepted, in bytes.
pub const IMAGE_MAX: u64 = 16 << 20;

/// The [`Session`](crate::session::Session) and its slots.
pub const SESSION_BASE: u64 = RESERVATION + 0x1000_0000;

/// The event ring. It is mapped twice, one after the other, so that any stretch of it up to its size is contiguous.
pub const RING_BASE: u64 = RESERVATION + 0x2000_0000;
/// Size of the event ring in bytes (a power of two).
pub const RING_SIZE: u64 = 8 << 20;

/// Replay only: the plan by which the runtime builds the recorded address space.
pub const STAGE_BASE: u64 = RESERVATION + 0x3000_0000;
/// Largest plan, in bytes.
pub const STAGE_MAX: u64 = 0xd000_0000;

/// One block for each thread: its gate stack, its signal stack, its scratch memory.
pub const BLOCKS_BASE: u64 = RESERVATION + 0x1_0000_0000;
/// Distance between two threads' blocks in bytes (address space; memory is used only as touched).
pub const BLOCK_STRIDE: u64 = 512 << 10;
/// The most threads a session can have at one time.
pub const MAX_SLOTS: usize = 4096;

/// Where the runtime maps memory for itself on demand (large scratch buffers, tables).
pub const ARENA_BASE: u64 = RESERVATION + 0x2_0000_0000;

/// Where a replay that looks for races keeps who accessed what: apart, so that all else lies where it lay in the recording.
pub const SHADOW_BASE: u64 = RESERVATION + 0x3_0000_0000;

/// What the runtime of a program that is recorded in epochs maps between two copies of it: never where the kernel chooses, since a copy that hasn't got it may have memory of the program's there, which the program
/// takes over.
pub const EPOCHS_BASE: u64 = RESERVATION + 0x9_0000_0000;
/// Logs of two epochs, ...
pub const EPOCH_LOGS: [u64; 2] = [EPOCHS_BASE, EPOCHS_BASE + EPOCH_LOG_MAX];
/// ... and most bytes of each.
pub const EPOCH_LOG_MAX: u64 = 0x1000_0000;
/// Sets of pages that were written in two epochs, ...
pub const EPOCH_SETS: [u64; 2] = [
    EPOCHS_BASE + 0x2000_0000,
    EPOCHS_BASE + 0x2000_0000 + EPOCH_SET_MAX,
];
/// ... and most bytes of each.
pub const EPOCH_SET_MAX: u64 = 0x100_0000;
/// Output that the program holds, and what of it couldn't be written yet, ...
pub const EPOCH_OUTPUT: u64 = EPOCHS_BASE + 0x2800_0000;
/// ... and most bytes of both.
pub const EPOCH_OUTPUT_MAX: u64 = 0x800_0000;
/// The list of a copy's mappings, ...
pub const EPOCH_MAPPINGS: u64 = EPOCHS_BASE + 0x3000_0000;
/// ... and most bytes of it.
pub const EPOCH_MAPPINGS_MAX: u64 = 0xf00_0000;
/// What a program and a copy of it tell each other while that is made: a page.
pub const EPOCH_RENDEZVOUS: u64 = EPOCHS_BASE + 0x3f00_0000;
/// End of it all (exclusive).
pub const EPOCHS_END: u64 = EPOCHS_BASE + 0x4000_0000;

/// First address that user space cannot have.
pub const USER_END: u64 = 0x7fff_ffff_f000;
/// Bytes in a page.
pub const PAGE: u64 = 4096;

const _: () = assert!(RESERVATION_END < LOWEST_PIE);
const _: () = assert!(RING_SIZE.is_power_of_two());
const _: () = assert!(RING_BASE + 2 * RING_SIZE <= STAGE_BASE);
const _: () = assert!(STAGE_BASE + STAGE_MAX <= BLOCKS_BASE);
const _: () = assert!(BLOCKS_BASE + MAX_SLOTS as u64 * BLOCK_STRIDE <= ARENA_BASE);
const _: () = assert!(ARENA_BASE < SHADOW_BASE && SHADOW_BASE < EPOCHS_BASE);
const _: () = assert!(EPOCH_SETS[1] + EPOCH_SET_MAX <= EPOCH_OUTPUT);
const _: () = assert!(EPOCH_OUTPUT + EPOCH_OUTPUT_MAX <= EPOCH_MAPPINGS);
const _: () = assert!(EPOCH_MAPPINGS + EPOCH_MAPPINGS_MAX <= EPOCH_RENDEZVOUS);
const _: () = assert!(EPOCHS_END <= crate::listing::LISTING_BASE);
