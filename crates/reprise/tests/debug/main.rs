//! `reprise replay -d`: gdb on a recording, forward and backward.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod calls;
mod checkpoints;
mod dap;
mod expected;
mod kept;
mod languages;
mod on_disk;
mod order;
mod processes;
mod programs;
mod rr;
mod scripts;
mod session;
mod travel;
