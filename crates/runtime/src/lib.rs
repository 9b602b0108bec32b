//! The runtime: it runs inside the recorded or replayed program, before its first instruction, without a libc.
//!
//! Control enters it at **gates**: system calls (dispatched or rewritten, [`gate`]), non-deterministic instructions
//! ([`gate::instruction`]), signals ([`signal`]), thread starts ([`gate::clone`]), synchronisation ([`sync`]). What a gate does is the choice of an
//! [`engine`]: one of [`engines`]. It is built for `x86_64-unknown-none`, so that it uses no vector registers, and is linked into an image by
//! `src/image.rs`. On the host only its logic is built, for unit tests.
//!
//! The rooms, from the ground up; each imports only those above it in this list (`crates/tidy` looks):
//!
//! | room | subject |
//! |---|---|
//! | [`machine`] | kernel and processor |
//! | [`thread`] | who runs: threads, processes, which engine is in force |
//! | [`signal`] | which signal, when |
//! | [`memory`] | the program's address space, and what a call reads and writes of it |
//! | [`log`] | how an event gets out, or in |
//! | [`code`] | the program's instructions |
//! | [`races`] | who looks for races |
//! | [`engine`] | the seam between gates and engines |
//! | [`heap`] | what the allocator of the program's memory asks of the runtime |
//! | [`gate`] | what is done at a gate, whatever the engine |
//! | [`sync`] | gates of synchronisation |
//! | [`isolate`] | private memory: threads as processes, and commits |
//! | [`common`] | what several engines have in common |
//! | [`entry`] | where control comes in |
//! | [`engines`] | none, serial, order, det; sketch for a test |
//!
//! What knows them all is the crate's root: [`dispatch`] runs an expression with the engine in force as a type.
#![cfg_attr(not(test), no_std)]
// Linux x86-64 only: addresses, registers and words are 64 bits wide.
#![allow(clippy::missing_safety_doc)]

#[cfg(test)]
extern crate std;

pub mod code;
pub mod common;
mod dispatch;
pub mod engine;
pub mod engines;
pub mod entry;
pub mod gate;
pub mod heap;
pub mod isolate;
pub mod log;
pub mod machine;
pub mod memory;
pub mod races;
pub mod signal;
pub mod sync;
pub mod thread;
