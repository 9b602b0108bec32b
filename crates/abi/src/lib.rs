//! What the runtime inside the program, the agent beside it and the tools after it agree on.
//!
//! - [`layout`]: where things lie in the address space of a recorded or replayed program;
//! - [`session`]: the shared memory between the runtime and its agent or replay driver;
//! - [`ring`]: the byte ring in it, through which events flow; [`news`]: which rings of many have something new;
//! - [`schedule`]: the lists in it that say who runs and who waits, their lock, and the baton; [`owed`]: what is to be done for the dead;
//! - [`rounds`]: the phases and turns of `det`, who has the token, and how it goes on;
//! - [`inputs`]: the files of which a recording keeps copies, to refer to them; [`hash`]: of memory, and of what was read;
//! - [`pagemap`]: how the kernel is asked for pages;
//! - [`pace`]: how far a replay goes that a debugger drives;
//! - [`conflicts`]: what `run --det-report` leaves behind;
//! - [`races`]: what a replay that looks for data races leaves behind;
//! - [`engine`]: the table of engines, and what each can;
//! - [`event`]: the vocabulary of events, as bytes;
//! - [`spec`]: the language in which one system call is described;
//! - [`effect`]: what calls do besides, to descriptors, files, memory and processes;
//! - [`syscalls`]: the table of all x86-64 system calls, with its sub-tables
//!   ([`ioctl`], [`fcntl`], [`prctl`], [`futex`], [`sockopt`]).
//!
//! `no_std`, no dependencies: it is linked into the runtime as well as into the tools.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod atomic;
pub mod attached;
pub mod conflicts;
pub mod det;
pub mod effect;
pub mod engine;
pub mod epoch;
pub mod event;
pub mod fcntl;
pub mod filters;
pub mod futex;
pub mod hash;
pub mod hooks;
pub mod inputs;
#[cfg(test)]
mod interleave;
pub mod ioctl;
pub mod layout;
pub mod learned;
pub mod listing;
pub mod mapped;
pub mod memo;
pub mod names;
pub mod news;
pub mod notes;
pub mod order;
pub mod owed;
pub mod pace;
pub mod pagemap;
pub mod prctl;
pub mod races;
pub mod rebuilt;
pub mod ring;
pub mod rounds;
pub mod schedule;
pub mod seccomp;
pub mod session;
pub mod sockopt;
pub mod spec;
pub mod stage;
pub mod syscalls;
pub mod total;
pub mod waits;
