//! A thread that a signal stopped, as the logic of places sees it ([`reprise_place`]).

use crate::machine::guarded::Guarded;
use crate::machine::{guard, hash, sys};
use crate::signal::frame::{save_fp, FpState, SigContext};
use crate::thread::leave::Baton;
use crate::thread::{block_address, current, session, Block, VECTORS, VECTORS_LEN};
use reprise_abi::session::FLAG_EPOCHS;
use reprise_code::memory::Memory;
use reprise_code::patchable::JUMP_LEN;
use reprise_code::regs::Regs;
use reprise_place::machine::{Machine, Xmm, X87};

/// Most bytes of vector state that a name can stand for. Larger states (tile registers) are masked out of the program.
pub const FP_LEN: usize = 16 << 10;
const _: () = assert!(FP_LEN <= VECTORS_LEN as usize);

#[repr(C, align(64))]
struct FpImage([u8; FP_LEN]);
/// Used for the length of one hash.
static FP_IMAGE: Guarded<FpImage, Baton> = Guarded::new(FpImage([0; FP_LEN]));

/// The program's bytes under a patch.
#[derive(Clone, Copy)]
pub struct Under {
    /// Where.
    pub at: u64,
    /// What they were, ...
    pub bytes: [u8; JUMP_LEN],
    /// ... and how many.
    pub len: usize,
}

/// A stopped thread: its memory without our patch, and the vector registers in the kernel's frame.
pub struct Stopped {
    /// XSAVE area of the frame; 0: not known.
    pub fpstate: u64,
    /// Our patch.
    pub under: Option<Under>,
}

impl Memory for Stopped {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        if !guard::read_bytes(addr, buf) {
            return false;
        }
        if let Some(u) = &self.under {
            for (i, byte) in u.bytes[..u.len].iter().enumerate() {
                let to = (u.at + i as u64)
                    .checked_sub(addr)
                    .and_then(|o| buf.get_mut(o as usize));
                if let Some(b) = to {
                    *b = *byte;
                }
            }
        }
        true
    }
}

impl Stopped {
    /// Is this component of the vector state in the frame? If not, it is in its initial state.
    fn has_state(&self, component: u64) -> bool {
        const XSTATE_BV: u64 = 512;
        // SAFETY: the frame that the kernel built on our signal stack.
        self.fpstate != 0
            && unsafe { core::ptr::read_unaligned((self.fpstate + XSTATE_BV) as *const u64) }
                & component
                != 0
    }
}

impl Machine for Stopped {
    fn xmm(&self) -> Xmm {
        const XMM: u64 = 160;
        if !self.has_state(2) {
            return [[0; 2]; 16];
        }
        // SAFETY: the kernel's frame.
        unsafe { core::ptr::read_unaligned((self.fpstate + XMM) as *const Xmm) }
    }

    fn x87(&self) -> X87 {
        const ST: u64 = 32;
        let mut x87 = [0; 8];
        if self.has_state(1) {
            for (i, significand) in x87.iter_mut().enumerate() {
                // SAFETY: as above.
                *significand = unsafe {
                    core::ptr::read_unaligned((self.fpstate + ST + 16 * i as u64) as *const u64)
                };
            }
        }
        x87
    }

    fn extended(&self) -> u64 {
        let size = session().xsave_size as usize;
        if self.fpstate == 0 || size > FP_LEN {
            return 0;
        }
        // Where threads run at the same time, each has an image of its own.
        let image = match crate::thread::in_force::orders_synchronisation() {
            true => block_address(current().slot_number()) + VECTORS,
            false => FP_IMAGE.at() as u64,
        };
        save_fp(FpState::Saved(self.fpstate), image);
        // SAFETY: the thread's own buffer, or that of the holder of the baton: only its places are named where threads don't run at the same time.
        unsafe { hash::bytes(5, image, size) }
    }

    fn compared(&self, addr: u64, buf: &mut [u8]) -> usize {
        let n = self.read_some(addr, buf);
        // In a replay of slices the leader's stubs lie elsewhere.
        if session().flags & FLAG_EPOCHS != 0 {
            crate::sync::locked::blank_jumps(addr, &mut buf[..n]);
        }
        n
    }

    fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        let n = self.read_some(addr, buf);
        crate::sync::locked::blank_jumps(addr, &mut buf[..n]);
        n
    }

    fn is_ours(&self, pc: u64) -> bool {
        is_ours(pc)
    }
}

/// Code of ours: the runtime, and the stubs of rewritten system call sites.
pub fn is_ours(pc: u64) -> bool {
    crate::sync::in_runtime(pc)
        || crate::code::patch::is_stub(pc)
        || crate::sync::locked::is_stub(pc)
}

/// The registers of a thread that a signal stopped. The program has no `%gs` of its own.
pub fn registers(t: &Block, c: &SigContext) -> Regs {
    Regs {
        gpr: [
            c.rax, c.rcx, c.rdx, c.rbx, c.rsp, c.rbp, c.rsi, c.rdi, c.r8, c.r9, c.r10, c.r11,
            c.r12, c.r13, c.r14, c.r15,
        ],
        rip: c.rip,
        rflags: c.rflags,
        fs_base: t.fs_base,
        gs_base: 0,
    }
}

/// The hash in names.
pub fn hash_of(bytes: &[u8]) -> u64 {
    // SAFETY: a slice is readable.
    unsafe { hash::bytes(7, bytes.as_ptr() as u64, bytes.len()) }
}

/// Processor time of this thread in nanoseconds.
pub fn processor_time() -> i64 {
    const CLOCK_THREAD_CPUTIME_ID: u64 = 3;
    sys::clock(CLOCK_THREAD_CPUTIME_ID).ns()
}
