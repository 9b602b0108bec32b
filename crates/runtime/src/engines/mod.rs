//! The engines, peers: each decides in what order the program's threads go on, and what is logged of it.
//!
//! **Invariant:** no engine names another one, and nobody but the crate's root names an engine.

pub mod det;
pub mod none;
pub mod order;
pub mod serial;
#[cfg(feature = "sketch")]
pub mod sketch;
