//! Gates of synchronisation: what orders threads without a system call. libc's functions ([`hook`] leads the program's calls to [`libc`]), locked
//! instructions ([`locked`]) and loops that wait ([`spin`]).

pub mod hook;
pub mod known;
pub mod libc;
pub mod locked;
pub mod spin;

use reprise_abi::layout::{RESERVATION, RESERVATION_END};

/// Is this address in the runtime, or in code of it that was copied elsewhere?
pub fn in_runtime(pc: u64) -> bool {
    (RESERVATION..RESERVATION_END).contains(&pc) || hook::fast::is_inside(pc)
}
