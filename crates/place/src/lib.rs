//! Places: an instruction in the middle of code, where a slice ends or a signal came, named by the state in which the thread reached it.
//!
//! There is no instruction counter, so the state names the place. What is here is pure logic over registers and
//! memory, without system calls, on top of [`reprise_code`]; the caller plants breakpoints, handles signals and maps stubs.
//!
//! Record: [`walk::Walk`] takes an interrupted thread to a place that can be patched and says how visits of that place
//! differ; [`name::Name`] is what is logged. Replay: [`reprise_code::patchable::classify`] says how to patch the place,
//! [`stub::Stub`] is the machine code that lets visits pass that can't be the one, [`check`] judges the others.
//!
//! | module | subject |
//! |---|---|
//! | [`machine`] | what is read of a stopped thread |
//! | [`step`] | where a thread goes next |
//! | [`stub`] | the stub's machine code |
//! | [`trace`] | the loop that a place lies in |
//! | [`choose`] | which words tell two visits apart |
//! | [`walk`] | record: from the interrupt to the place |
//! | [`name`] | the name of a state, as bytes and as text |
//! | [`check`] | replay: is this the named state |

#![cfg_attr(not(test), no_std)]

#[cfg(test)]
extern crate std;

pub mod check;
pub mod choose;
pub mod machine;
pub mod name;
pub mod step;
pub mod stub;
pub mod trace;
pub mod walk;

#[cfg(test)]
mod live;
