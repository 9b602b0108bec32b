//! The runtime: it runs inside the recorded or replayed program, before its first instruction, without a libc.
//!
//! Control enters it at **gates**: system calls (dispatched or rewritten, [`gate`]), non-deterministic instructions
//! ([`instruction`]), signals ([`signal`]), thread starts ([`clone`]). What a gate does is the choice of an [`engine`]:
//! [`none`], or [`serial`] recording or replaying. It is built for `x86_64-unknown-none`, so that it uses no vector
//! registers, and is linked into an image by `src/image.rs`. On the host only its logic is built, for unit tests.
#![cfg_attr(not(test), no_std)]
// Linux x86-64 only: addresses, registers and words are 64 bits wide.
#![allow(clippy::missing_safety_doc)]

#[cfg(test)]
extern crate std;

pub mod address_limit;
pub mod asm;
pub mod attach;
pub mod attended;
pub mod capture;
pub mod clock;
pub mod clone;
pub mod cpuid;
pub mod cut;
pub mod debugger;
pub mod det;
pub mod diversion;
pub mod elf;
pub mod engine;
pub mod exec;
pub mod files;
pub mod frames;
pub mod functions;
pub mod gate;
pub mod guard;
pub mod hash;
pub mod heap;
pub mod hook;
pub mod instruction;
pub mod isolate;
pub mod kept;
pub mod limits;
pub mod live_code;
pub mod lock_memory;
pub mod locked;
pub mod mapped;
pub mod memory;
pub mod memory_file;
pub mod message;
pub mod modules;
pub mod moved;
pub mod namespace;
pub mod none;
pub mod order;
pub mod output;
pub mod page_scan;
pub mod panic;
pub mod partly;
pub mod patch;
pub mod populated;
pub mod present;
pub mod process;
pub mod processor;
pub mod ptrace;
pub mod races;
pub mod reached;
pub mod rebuilt;
pub mod regions;
pub mod replaced;
pub mod request;
pub mod resolver;
pub mod ring;
pub mod robust;
pub mod scratch;
pub mod searched;
pub mod seccomp;
pub mod seek;
pub mod serial;
pub mod shm;
pub mod signal;
pub mod spin;
pub mod stand;
pub mod start;
pub mod sync;
pub mod sys;
pub mod thread;
pub mod track;
