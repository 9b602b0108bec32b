//! The program's own code, over [`reprise_code`]: whose it is, what was found in it, and what is put in its place.
//!
//! **Invariant:** bytes are changed only in what is proven to be code.

pub mod functions;
pub mod live_code;
pub mod modules;
pub mod patch;
pub mod reached;
pub mod replaced;
pub mod resolver;
pub mod searched;
pub mod seek;
