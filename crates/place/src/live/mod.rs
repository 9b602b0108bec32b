//! Tests on live code: programs in memory that really run into walks, patches and stubs.
//!
//! [`Child`] is another process under ptrace; [`harness`] runs code in this one, with a SIGTRAP handler for a kernel;
//! [`rehearse`] records a cut and replays it, [`scenes`] are what it rehearses; [`strangers`] are programs that weren't written for it.

mod child;
mod harness;
mod properties;
mod rehearse;
mod scenes;
mod strangers;

pub use child::Child;

use crate::machine::{Machine, Xmm};
use reprise_code::memory::Memory;

/// No memory, no vectors.
pub struct Nothing;

impl Memory for Nothing {
    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

impl Machine for Nothing {
    fn xmm(&self) -> Xmm {
        [[0; 2]; 16]
    }

    fn extended(&self) -> u64 {
        0
    }
}
