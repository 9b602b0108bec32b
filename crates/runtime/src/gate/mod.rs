//! What is done at a gate, whatever the engine: system calls that the runtime answers by itself, instructions whose results differ from run to run,
//! the making of threads and processes, exec, filters. Where control comes in is in [`crate::entry`].

pub mod attach;
pub mod clock;
pub mod clone;
pub mod copy;
pub mod cpuid;
pub mod diversion;
pub mod epochs;
pub mod exec;
pub mod instruction;
pub mod leader;
pub mod processor;
pub mod ptrace;
pub mod robust;
pub mod seccomp;
pub mod signals;
pub mod stand;
pub mod tested_copies;

use crate::machine::sys;
use reprise_abi::layout::{IMAGE_BASE, IMAGE_MAX};

/// Lets all system calls outside of the runtime's image trap.
pub fn arm_dispatch() {
    const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
    sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, IMAGE_BASE, IMAGE_MAX, 0);
}
