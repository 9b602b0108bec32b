//! What ld.so's resolver leaves on the stack, and in registers.
//!
//! The first call of a function goes through the resolver, which saves the vector registers below the caller's frame, by one of three
//! instructions, whichever the processor seems to have. What they leave there is not the program's alone:
//!
//! - `xsavec` leaves out what is not *in use*, so that older bytes stay there, and both it and `xsave` say what is in use: registers
//!   that are all zero (SSE's, the upper halves of AVX, masks) may count as used or not, and on AMD's processors an interrupt can change that;
//! - `fxsave`, of programs that are shown no XSAVE (`--cpu baseline`), writes where x87 was last on some processors, and leaves bytes alone
//!   that others write;
//! - all of them write which bits of MXCSR the processor has.
//!
//! So a jump stands in the place of the instruction, to a stub that clears the area first, and afterwards writes the same on all
//! processors: that everything is there, that x87 was nowhere, and the bits of MXCSR that all have. What follows from that is also what is in use when
//! the resolver has loaded the registers again. Upper halves that are in use cost Intel's processors much in code of SSE (30 times in a loop over exp(3), where
//! nothing puts them out of use again), so of these it is said that they are there only if they aren't all zero.
//!
//! The registers that the stub changes are those that the resolver has saved before and loads after it.
//!
//! Of threads that call a function for the first time at about the same moment, one goes through the resolver, or several do: that is in no order,
//! and natively nobody can tell, since what the resolver changes is dead when a function begins: the flags, r10 and r11. But they are in the state of
//! the next system call. So jumps stand at its beginning and its end, too, to stubs that keep them (below the caller's frame) and put them back.

use crate::call_site::STUB;
use crate::regs::MXCSR_BITS;

/// Bytes of an instruction that saves.
pub const LEN: usize = 5;
/// What the resolver begins with: `push %rbx; mov %rsp,%rbx; and $-64,%rsp`.
pub const ENTRY: [u8; 8] = [0x53, 0x48, 0x89, 0xe3, 0x48, 0x83, 0xe4, 0xc0];
/// What it ends with, but for the jump to what it found, in r11: `mov %rbx,%rsp; mov (%rsp),%rbx; add $0x18,%rsp`.
pub const EXIT: [u8; 11] = [
    0x48, 0x89, 0xdc, 0x48, 0x8b, 0x1c, 0x24, 0x48, 0x83, 0xc4, 0x18,
];
/// That jump, `jmp *%r11`, which may have a prefix.
pub const LEAVES: [u8; 3] = [0x41, 0xff, 0xe3];
/// Bytes of the instruction that saves, with what follows it.
pub const SITE: usize = LEN + NEXT.len();
/// What follows it: `mov 0x10(%rbx),%rsi; mov 0x8(%rbx),%rdi`.
const NEXT: [u8; 8] = [0x48, 0x8b, 0x73, 0x10, 0x48, 0x8b, 0x7b, 0x08];
/// How the resolver saves the vector registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Save {
    /// `fxsave`
    Fxsave,
    /// `xsave`
    Xsave,
    /// `xsavec`
    Xsavec,
}

impl Save {
    /// All ways.
    pub const ALL: [Save; 3] = [Save::Fxsave, Save::Xsave, Save::Xsavec];

    /// The instruction, with its operand `0x40(%rsp)`.
    pub fn code(self) -> [u8; LEN] {
        match self {
            Save::Fxsave => [0x0f, 0xae, 0x44, 0x24, 0x40],
            Save::Xsave => [0x0f, 0xae, 0x64, 0x24, 0x40],
            Save::Xsavec => [0x0f, 0xc7, 0x64, 0x24, 0x40],
        }
    }

    /// The instruction and what follows it.
    pub fn site(self) -> [u8; SITE] {
        let mut site = [0; SITE];
        site[..LEN].copy_from_slice(&self.code());
        site[LEN..].copy_from_slice(&NEXT);
        site
    }

    /// Where it saves the upper halves of AVX-512's registers, from the stack pointer on. `standard`: where that is in the form that isn't compacted, from
    /// where the area begins, as cpuid says.
    pub fn upper_of_512(self, standard: Option<u32>) -> Option<u32> {
        /// Behind what comes first, the upper halves of AVX, and the masks.
        const COMPACTED: u32 = AREA + AFTER_HEADER + 256 + 64;
        match self {
            Save::Fxsave => None,
            Save::Xsavec => Some(COMPACTED),
            Save::Xsave => standard.filter(|at| *at != 0).map(|at| AREA + at),
        }
    }

    /// The code in its place, without the jump back. `kept`: words below the caller's frame that stay as they are. `upper_of_512`: where those are.
    pub fn stub(self, kept: u8, upper_of_512: Option<u32>) -> Stub {
        let mut stub = Stub::new(LEN);
        // lea 0x40(%rsp),%rdi
        stub.put(&[0x48, 0x8d, 0x7c, 0x24, 0x40]);
        // mov %ebx,%ecx; sub %edi,%ecx; shr $3,%ecx: up to the caller's frame
        stub.put(&[0x89, 0xd9, 0x29, 0xf9, 0xc1, 0xe9, 0x03]);
        if kept != 0 {
            // sub $kept,%ecx
            stub.put(&[0x83, 0xe9, kept]);
        }
        if self != Save::Fxsave {
            // xchg %eax,%esi: what is to be saved
            stub.put(&[0x96]);
        }
        // xor %eax,%eax; rep stosq
        stub.put(&[0x31, 0xc0, 0xf3, 0x48, 0xab]);
        if self == Save::Xsavec {
            // movl $0x1f80,0x58(%rsp): MXCSR, should SSE be left out
            stub.put(&[0xc7, 0x44, 0x24, 0x58, 0x80, 0x1f, 0x00, 0x00]);
        }
        if self != Save::Fxsave {
            // xchg %eax,%esi
            stub.put(&[0x96]);
        }
        stub.put(&self.code());
        match self {
            Save::Fxsave => {
                // mov %ax,0x46(%rsp); mov %rax,0x48(%rsp); mov %rax,0x50(%rsp): the last instruction of x87 and its operand
                stub.put(&[0x66, 0x89, 0x44, 0x24, 0x46]);
                stub.put(&[0x48, 0x89, 0x44, 0x24, 0x48]);
                stub.put(&[0x48, 0x89, 0x44, 0x24, 0x50]);
            }
            Save::Xsave => {
                // xor %ecx,%ecx; mov %eax,%esi; xgetbv; and %eax,%esi: what was asked for and can be there
                stub.put(&[0x31, 0xc9, 0x89, 0xc6, 0x0f, 0x01, 0xd0, 0x21, 0xc6]);
            }
            // mov 0x248(%rsp),%esi: the same, in XCOMP_BV
            Save::Xsavec => stub.put(&[0x8b, 0xb4, 0x24, 0x48, 0x02, 0x00, 0x00]),
        }
        if self != Save::Fxsave {
            stub.leave_out_upper_halves(upper_of_512);
            // mov %esi,0x240(%rsp): all of that is in XSTATE_BV
            stub.put(&[0x89, 0xb4, 0x24, 0x40, 0x02, 0x00, 0x00]);
        }
        // movl $0xffff,0x5c(%rsp): the bits of MXCSR
        stub.put(&[0xc7, 0x44, 0x24, 0x5c]);
        stub.put(&MXCSR_BITS.to_le_bytes());
        stub
    }
}

/// Where the resolver saves, from its stack pointer; and what of that comes before the components that not all processors have.
const AREA: u32 = 0x40;
const AFTER_HEADER: u32 = 576;
/// Bytes of the room for a stub.
pub const RESOLVER_STUB: u64 = 2 * STUB;
/// Most bytes of a stub: with the jump back it has to fit into [`RESOLVER_STUB`].
const MOST_STUB: usize = RESOLVER_STUB as usize - 5;

/// The code in the place of some instructions.
pub struct Stub {
    code: [u8; MOST_STUB],
    len: usize,
    /// Bytes of the instructions: what comes then is next.
    pub replaces: usize,
}

impl Stub {
    fn new(replaces: usize) -> Stub {
        Stub {
            code: [0; MOST_STUB],
            len: 0,
            replaces,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.code[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Takes upper halves that are all zero out of the components in esi. Changes rax, rcx, rdi.
    fn leave_out_upper_halves(&mut self, upper_of_512: Option<u32>) {
        /// Those of AVX and AVX-512; and of MPX, which come between where there are any.
        const AVX: u8 = 1 << 2;
        const AVX_512: u8 = 1 << 6;
        const MPX: u8 = 3 << 3;
        let avx = (AREA + AFTER_HEADER, 32, AVX);
        let avx_512 = upper_of_512.map(|at| (at, 64, AVX_512));
        let mut ends = [0; 3];
        // test $MPX,%sil; jnz
        self.put(&[0x40, 0xf6, 0xc6, MPX, 0x75, 0]);
        ends[0] = self.len;
        // xor %eax,%eax
        self.put(&[0x31, 0xc0]);
        for (n, (at, words, bit)) in [avx].into_iter().chain(avx_512).enumerate() {
            // test $bit,%sil; jz
            self.put(&[0x40, 0xf6, 0xc6, bit, 0x74, 0]);
            ends[n + 1] = self.len;
            // lea at(%rsp),%rdi; mov $words,%ecx; repe scasq
            self.put(&[0x48, 0x8d, 0xbc, 0x24]);
            self.put(&at.to_le_bytes());
            self.put(&[0xb9, words, 0, 0, 0, 0xf3, 0x48, 0xaf]);
            // jne over; and $~bit,%esi
            self.put(&[0x75, 3, 0x83, 0xe6, !bit]);
        }
        for end in ends.into_iter().filter(|end| *end != 0) {
            self.code[end - 1] = (self.len - end) as u8;
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.code[..self.len]
    }
}

/// Words that the stub of the [`ENTRY`] keeps: the flags, r10, r11.
pub const KEPT: u8 = 3;

/// In the place of [`ENTRY`].
pub fn entry() -> Stub {
    let mut stub = Stub::new(ENTRY.len());
    // push %rbx; mov %rsp,%rbx
    stub.put(&ENTRY[..4]);
    // push %rax; lahf; seto %al; xchg %rax,(%rsp): those flags that instructions compute
    stub.put(&[0x50, 0x9f, 0x0f, 0x90, 0xc0, 0x48, 0x87, 0x04, 0x24]);
    // push %r10; push %r11
    stub.put(&[0x41, 0x52, 0x41, 0x53]);
    // and $-64,%rsp
    stub.put(&ENTRY[4..]);
    stub
}

/// In the place of [`EXIT`] and the jump.
pub fn exit() -> Stub {
    let mut stub = Stub::new(EXIT.len());
    // mov %r11,0x10(%rbx): where the number of the relocation was, lies what was found
    stub.put(&[0x4c, 0x89, 0x5b, 0x10]);
    // lea -0x18(%rbx),%rsp; pop %r11; pop %r10
    stub.put(&[0x48, 0x8d, 0x63, 0xe8, 0x41, 0x5b, 0x41, 0x5a]);
    // xchg %rax,(%rsp); add $0x7f,%al: overflows if it did; sahf; pop %rax
    stub.put(&[0x48, 0x87, 0x04, 0x24, 0x04, 0x7f, 0x9e, 0x58]);
    // pop %rbx; lea 8(%rsp),%rsp; ret
    stub.put(&[0x5b, 0x48, 0x8d, 0x64, 0x24, 0x08, 0xc3]);
    stub
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stub_has_its_instruction_and_fits() {
        for (save, kept) in Save::ALL.into_iter().flat_map(|s| [(s, 0), (s, KEPT)]) {
            let stub = save.stub(kept, Some(0x1000));
            let with = stub.bytes().windows(LEN).filter(|w| *w == save.code());
            assert_eq!(with.count(), 1, "{save:?}");
            assert!(stub.bytes().len() + 5 <= RESOLVER_STUB as usize);
        }
    }

    /// The stub of `fxsave` run on a stack of its own: what it leaves there is the same whatever was there before, and what x87 did last.
    #[test]
    fn fxsave_leaves_the_same_everywhere() {
        let mut code = Save::Fxsave.stub(0, None).bytes().to_vec();
        code.push(0xc3);
        // SAFETY: a page of our own.
        let page = unsafe {
            let page = mmap(4096);
            core::ptr::copy_nonoverlapping(code.as_ptr(), page, code.len());
            page
        };
        let mut seen = std::vec::Vec::new();
        for (fill, steps) in [(0u8, 0), (0xff, 3)] {
            #[repr(align(16))]
            struct Frame([u8; 1024]);
            let mut frame = Frame([fill; 1024]);
            let at = frame.0.as_mut_ptr() as u64;
            for _ in 0..steps {
                // Leaves a last instruction and operand behind.
                // SAFETY: pushes and pops a value of ours.
                unsafe {
                    core::arch::asm!("fld dword ptr [{0}]", "fstp dword ptr [{0}]", in(reg) &mut 1f32)
                };
            }
            // `call` leaves the return address where the stack pointer points to.
            // SAFETY: the code writes between its stack pointer + 0x40 and rbx.
            unsafe {
                core::arch::asm!(
                    "xchg rbx, r8", "mov r9, rsp", "mov rsp, r10", "call r11", "mov rsp, r9", "xchg rbx, r8",
                    inout("r8") at + 16 + 0x40 + 512 => _, out("r9") _, in("r10") at + 24, in("r11") page,
                    out("rax") _, out("rcx") _, out("rdi") _,
                );
            }
            let area = &frame.0[16 + 0x40..16 + 0x40 + 512];
            assert_eq!(area[28..32], MXCSR_BITS.to_le_bytes());
            assert!(area[6..24].iter().chain(&area[416..]).all(|b| *b == 0));
            seen.push(area[..32].to_vec());
        }
        assert_eq!(seen[0], seen[1]);
    }

    unsafe fn mmap(len: usize) -> *mut u8 {
        let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
        assert!(at != libc::MAP_FAILED);
        at.cast()
    }
}
