//! The program's instructions: where they are, what they are found to be, and what is put in their place.
//!
//! **Invariant:** bytes are changed only in what is proven to be code.

pub mod elf;
pub mod frames;
pub mod functions;
pub mod live_code;
pub mod modules;
pub mod patch;
pub mod reached;
pub mod replaced;
pub mod resolver;
pub mod searched;
pub mod seek;
