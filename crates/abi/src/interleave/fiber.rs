//! Threads of a schedule: stacks of their own on one thread of the kernel's, changed in a few nanoseconds. One that is never gone on with
//! is a thread that was killed.

use core::arch::global_asm;
use std::boxed::Box;
use std::vec;

/// Bytes of a stack.
const STACK: usize = 128 * 1024;

global_asm!(
    ".globl reprise_interleave_switch",
    "reprise_interleave_switch:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".globl reprise_interleave_first",
    "reprise_interleave_first:",
    "mov rdi, r12",
    "call r13",
    "ud2",
);

extern "C" {
    fn reprise_interleave_switch(save: *mut usize, to: usize);
    fn reprise_interleave_first();
}

/// A stack, and where whoever runs on it stopped.
pub struct Fiber {
    stack: Box<[u8]>,
    at: usize,
}

impl Fiber {
    /// One that nothing runs on.
    pub fn new() -> Fiber {
        Fiber {
            stack: vec![0; STACK].into_boxed_slice(),
            at: 0,
        }
    }

    /// The next [`switch`] to it calls `f(argument)`, which must not return.
    pub fn begins(&mut self, f: extern "C" fn(usize), argument: usize) {
        let top = (self.stack.as_mut_ptr() as usize + STACK) & !15;
        // What `reprise_interleave_switch` takes from a stack, from the bottom up, and the end of the calls.
        let first = reprise_interleave_first as *const () as usize;
        let words = [0, 0, f as usize, argument, 0, 0, first, 0];
        // The stack is aligned where `reprise_interleave_first` begins.
        let at = top - 8 * (words.len() + 1);
        // SAFETY: inside of the stack, on which nothing runs.
        unsafe { (at as *mut [usize; 8]).write(words) };
        self.at = at;
    }

    /// Where it goes on.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Where [`switch`] is to save where it stops.
    pub fn save(&mut self) -> *mut usize {
        &mut self.at
    }
}

/// Stops here, leaves in `save` where, and goes on at `to`.
///
/// # Safety
/// `to` is where a fiber stopped that has not gone on since, or is to begin.
pub unsafe fn switch(save: *mut usize, to: usize) {
    // SAFETY: as asked for.
    unsafe { reprise_interleave_switch(save, to) };
}
