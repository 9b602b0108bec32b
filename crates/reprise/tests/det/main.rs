//! `reprise run`: the engine `det`.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod basics;
mod guests;
mod memory;
mod outside;
mod owned;
mod processes;
mod programs;
mod pure;
mod record;
mod report;
mod spins;
mod streams;
mod suite;
mod switches;
