//! The registers of a thread, as a name holds them.

/// Number of general registers.
pub const GPRS: usize = 16;
/// Index of rax in [`Regs::gpr`]: registers are numbered as the processor encodes them.
pub const RAX: usize = 0;
/// Index of rcx.
pub const RCX: usize = 1;
/// Index of rsp.
pub const RSP: usize = 4;
/// Index of rsi.
pub const RSI: usize = 6;
/// Index of rdi.
pub const RDI: usize = 7;

/// The bits of MXCSR that every processor with SSE2 has, but for bit 17 of AMD's.
pub const MXCSR_BITS: u32 = 0xffff;

/// Carry flag.
pub const CF: u64 = 1;
/// Parity flag.
pub const PF: u64 = 1 << 2;
/// Zero flag.
pub const ZF: u64 = 1 << 6;
/// Sign flag.
pub const SF: u64 = 1 << 7;
/// Direction flag.
pub const DF: u64 = 1 << 10;
/// Overflow flag.
pub const OF: u64 = 1 << 11;
/// The flags that belong to a program's state: CF PF AF ZF SF DF OF, NT, AC and ID. TF, RF, IF and IOPL don't.
pub const FLAGS: u64 = CF | PF | 1 << 4 | ZF | SF | DF | OF | 1 << 14 | 1 << 18 | 1 << 21;

/// Names of the general registers, in order of [`Regs::gpr`].
pub const NAMES: [&str; GPRS] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Number of words in `ucontext_t`'s `gregs`.
pub const GREGS: usize = 23;
/// Place of each general register in `gregs` (sys/ucontext.h: REG_R8 is 0, REG_RSP is 15).
const GREG_OF: [usize; GPRS] = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
const GREG_RIP: usize = 16;
const GREG_EFL: usize = 17;

/// General registers, program counter, flags and segment bases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Regs {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
    pub gpr: [u64; GPRS],
    /// Program counter.
    pub rip: u64,
    /// Flags; only those in [`FLAGS`] count.
    pub rflags: u64,
    /// Base of `%fs`.
    pub fs_base: u64,
    /// Base of `%gs` as the program sees it.
    pub gs_base: u64,
}

const _: () = assert!(core::mem::size_of::<Regs>() == 160);

impl Regs {
    /// From the `gregs` of a signal frame; the bases aren't there.
    pub fn from_gregs(gregs: &[u64; GREGS], fs_base: u64, gs_base: u64) -> Regs {
        let mut gpr = [0; GPRS];
        for (value, at) in gpr.iter_mut().zip(GREG_OF) {
            *value = gregs[at];
        }
        Regs {
            gpr,
            rip: gregs[GREG_RIP],
            rflags: gregs[GREG_EFL],
            fs_base,
            gs_base,
        }
    }
    /// Writes general registers, program counter and flags into the `gregs` of a signal frame.
    pub fn to_gregs(&self, gregs: &mut [u64; GREGS]) {
        for (value, at) in self.gpr.iter().zip(GREG_OF) {
            gregs[at] = *value;
        }
        gregs[GREG_RIP] = self.rip;
        gregs[GREG_EFL] = self.rflags;
    }

    /// Stack pointer.
    pub fn rsp(&self) -> u64 {
        self.gpr[RSP]
    }

    /// The same state: all registers, and those flags that count.
    pub fn same(&self, other: &Regs) -> bool {
        self.gpr == other.gpr
            && self.rip == other.rip
            && (self.rflags ^ other.rflags) & FLAGS == 0
            && self.fs_base == other.fs_base
            && self.gs_base == other.gs_base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gregs_have_the_order_of_ucontext() {
        let mut gregs = [0; GREGS];
        let order = [
            (libc::REG_RAX, 0),
            (libc::REG_RCX, 1),
            (libc::REG_RDX, 2),
            (libc::REG_RBX, 3),
            (libc::REG_RSP, 4),
            (libc::REG_RBP, 5),
            (libc::REG_RSI, 6),
            (libc::REG_RDI, 7),
            (libc::REG_R8, 8),
            (libc::REG_R9, 9),
            (libc::REG_R10, 10),
            (libc::REG_R11, 11),
            (libc::REG_R12, 12),
            (libc::REG_R13, 13),
            (libc::REG_R14, 14),
            (libc::REG_R15, 15),
            (libc::REG_RIP, 16),
            (libc::REG_EFL, 17),
        ];
        for (at, value) in order {
            gregs[at as usize] = 100 + value as u64;
        }
        let regs = Regs::from_gregs(&gregs, 1, 2);
        for i in 0..GPRS {
            assert_eq!(regs.gpr[i], 100 + i as u64);
        }
        assert_eq!(
            (regs.rip, regs.rflags, regs.fs_base, regs.gs_base),
            (116, 117, 1, 2)
        );
        let mut back = [0; GREGS];
        regs.to_gregs(&mut back);
        assert_eq!(back, gregs);
    }

    #[test]
    fn flags_of_the_tracer_do_not_count() {
        let a = Regs::default();
        let mut b = a;
        b.rflags = 1 << 16 | 1 << 9 | 1 << 8;
        assert!(a.same(&b));
        b.rflags |= ZF;
        assert!(!a.same(&b));
    }
}
