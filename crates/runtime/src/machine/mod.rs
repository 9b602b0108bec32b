//! The kernel and the processor, and nothing of ours: system calls as instructions, the program's memory read and written with care, hashes, ELF's
//! structures.
//!
//! **Invariant:** nothing here knows a thread, a session or an engine.

pub mod asm;
pub mod frame;
pub mod guard;
pub mod guarded;
pub mod own_calls;
pub mod page_scan;
pub mod present;
pub mod proc_name;
pub mod processors;
pub mod split_mix;
pub mod sys;

pub use reprise_abi::hash;
