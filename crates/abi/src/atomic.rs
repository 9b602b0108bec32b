//! The atomics of shared memory: the processor's. In this crate's own tests each access is a step of a schedule (`interleave`).

pub use core::sync::atomic::Ordering;

#[cfg(test)]
pub use crate::interleave::words::{AtomicU32, AtomicU64, AtomicU8};
#[cfg(not(test))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, AtomicU8};
