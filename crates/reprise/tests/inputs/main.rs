//! Inputs by reference: files that are read again by a replay.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod hard;
mod mapped;
mod outsiders;
mod read;
