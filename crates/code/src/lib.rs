//! Machine code as data: what its instructions are, where they begin, whose functions they belong to, and how one can be patched.
//!
//! Pure logic over memory that may or may not be there ([`memory::Memory`]), without system calls. The caller reads, plants patches and
//! maps stubs. Nothing that is read is trusted: every read may fail, every walk has a limit.
//!
//! | module | subject |
//! |---|---|
//! | [`memory`] | what is read |
//! | [`arena`] | the memory of the decoder's tables |
//! | [`regs`] | the registers of a thread |
//! | [`decode`] | one instruction |
//! | [`length`] | where an instruction ends, by tables |
//! | [`elf`] | a loaded module |
//! | [`functions`] | its functions, by the table for unwinding |
//! | [`entries`] | its functions, by the entries for unwinding, where there is no table |
//! | [`sweep`] | what decoding from a function's beginning arrives at |
//! | [`reached`] | what control flow reaches from where a module begins |
//! | [`call_site`] | the forms in which a `syscall` becomes a jump |
//! | [`resolver`] | the stubs in ld.so's resolver |
//! | [`patchable`] | can an instruction be patched, and where may its stub lie |

#![cfg_attr(not(test), no_std)]

#[cfg(test)]
extern crate std;

pub mod arena;
pub mod call_site;
pub mod decode;
pub mod elf;
pub mod entries;
pub mod functions;
pub mod length;
pub mod memory;
pub mod patchable;
pub mod reached;
pub mod regs;
pub mod resolver;
pub mod sweep;
