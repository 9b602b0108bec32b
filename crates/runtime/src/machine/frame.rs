//! The program's registers at a gate.

use crate::machine::hash;
use reprise_code::regs::Regs;

/// The program's registers at a gate, in the order in which the hook pushes them.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub rip: u64,
}

const _: () = assert!(core::mem::size_of::<Frame>() == 144);

impl Frame {
    /// Which registers have other values there: a bit for each, in the order in which they lie here.
    pub fn differs_from(&self, other: &Frame) -> u64 {
        // SAFETY: plain words.
        let words = |f: &Frame| unsafe { *(f as *const Frame as *const [u64; 18]) };
        let both = words(self).into_iter().zip(words(other));
        both.enumerate()
            .filter(|(_, (one, two))| one != two)
            .fold(0, |bits, (i, _)| bits | 1 << i)
    }

    /// The arguments of the system call at this gate.
    #[inline(always)]
    pub fn args(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }
}

/// Hash of the general registers.
pub fn frame_hash(f: &Frame) -> u64 {
    // SAFETY: a frame is 18 plain words.
    unsafe { hash::bytes(3, f as *const Frame as u64, core::mem::size_of::<Frame>()) }
}

/// From a gate's frame. Before it came there the gate has put rax elsewhere.
pub fn regs_of(f: &Frame, rax: u64, fs_base: u64) -> Regs {
    Regs {
        gpr: [
            rax, f.rcx, f.rdx, f.rbx, f.rsp, f.rbp, f.rsi, f.rdi, f.r8, f.r9, f.r10, f.r11, f.r12,
            f.r13, f.r14, f.r15,
        ],
        rip: f.rip,
        rflags: f.rflags,
        fs_base,
        gs_base: 0,
    }
}
