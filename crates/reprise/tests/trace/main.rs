//! Traces: their parts, those of earlier builds, damaged and changed ones, packs, divergences.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod badinput;
mod corpus;
mod divergence;
mod mutations;
mod packs_encrypted;
mod packs_redacted;
mod packs_signed;
mod parts;
