//! Slices that end in the middle of code (DESIGN 5): the logic of [`crate::cut`] applied to the program's threads.
//!
//! [`record`] takes the holder of the baton to a place that can be named and logs its name; [`replay`] finds the place again.
//! All of it runs in handlers of signals, on the runtime's signal stack, and in gates. There is at most one walk and one
//! planted place at a time, because only the holder runs.

pub mod record;
pub mod replay;

use crate::cut::machine::{Machine, Memory, Xmm, X87};
use crate::cut::place::JUMP_LEN;
use crate::cut::regs::Regs;
use crate::serial::chaos::Timer;
use crate::signal::frame::{save_fp, FpState, SigContext};
use crate::thread::{block_address, current, session, Block, VECTORS, VECTORS_LEN};
use crate::{guard, hash, memory, sys};
use core::cell::UnsafeCell;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::nr;

/// What a thread keeps between its cuts.
#[derive(Default)]
pub struct CutState {
    /// Processor time of the thread when its slice began, in nanoseconds.
    pub slice_began: i64,
    /// The thread's last slice ended where others wanted it, and it has woken nobody since (record).
    pub interrupted: bool,
    /// The thread has woken somebody who gets the baton at this gate (record).
    pub gives_way: bool,
    /// Under chaos, what ends its slices (record).
    pub timer: Timer,
    /// Under chaos, the thread leaves a gate with the trap flag, and a walk begins at the program's next instruction (record).
    pub steps: bool,
}

/// Most bytes of vector state that a name can stand for. Larger states (tile registers) are masked out of the program.
pub(crate) const FP_LEN: usize = 16 << 10;
const _: () = assert!(FP_LEN <= VECTORS_LEN as usize);

#[repr(C, align(64))]
struct FpImage(UnsafeCell<[u8; FP_LEN]>);
// SAFETY: used only by the holder of the baton, for the length of one hash.
unsafe impl Sync for FpImage {}
static FP_IMAGE: FpImage = FpImage(UnsafeCell::new([0; FP_LEN]));

/// A value that only the holder of the baton touches.
pub(super) struct Held<T>(UnsafeCell<T>);
// SAFETY: there is one holder, and it never keeps a reference across a hand-off.
unsafe impl<T> Sync for Held<T> {}

impl<T> Held<T> {
    pub(super) const fn new(value: T) -> Held<T> {
        Held(UnsafeCell::new(value))
    }

    #[allow(clippy::mut_from_ref)]
    pub(super) fn get(&self) -> &mut T {
        // SAFETY: see above.
        unsafe { &mut *self.0.get() }
    }
}

/// The program's bytes under a patch.
#[derive(Clone, Copy)]
pub(crate) struct Under {
    pub at: u64,
    pub bytes: [u8; JUMP_LEN],
    pub len: usize,
}

/// A stopped thread: its memory without our patch, and the vector registers in the kernel's frame.
pub(crate) struct Stopped {
    /// XSAVE area of the frame; 0: not known.
    pub fpstate: u64,
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
        let image = match crate::order::runs() {
            true => block_address(current().slot) + VECTORS,
            false => FP_IMAGE.0.get() as u64,
        };
        save_fp(FpState::Saved(self.fpstate), image);
        // SAFETY: our own buffer.
        unsafe { hash::bytes(5, image, size) }
    }

    fn code(&self, addr: u64, buf: &mut [u8]) -> usize {
        let n = self.read_some(addr, buf);
        crate::locked::blank_jumps(addr, &mut buf[..n]);
        n
    }

    fn is_ours(&self, pc: u64) -> bool {
        is_ours(pc)
    }
}

/// Code of ours: the runtime, and the stubs of rewritten system call sites.
pub(crate) fn is_ours(pc: u64) -> bool {
    crate::signal::kernel::in_runtime(pc) || crate::patch::is_stub(pc) || crate::locked::is_stub(pc)
}

/// The registers of a thread that a signal stopped. The program has no `%gs` of its own.
pub(crate) fn registers(t: &Block, c: &SigContext) -> Regs {
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
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    // SAFETY: a slice is readable.
    unsafe { hash::bytes(7, bytes.as_ptr() as u64, bytes.len()) }
}

/// Processor time of this thread in nanoseconds.
pub fn processor_time() -> i64 {
    const CLOCK_THREAD_CPUTIME_ID: u64 = 3;
    let mut t = sys::Timespec::default();
    sys::call(
        nr::CLOCK_GETTIME,
        &[CLOCK_THREAD_CPUTIME_ID, &mut t as *mut sys::Timespec as u64],
    );
    t.ns()
}

/// First byte and length of the pages that hold these bytes.
pub(crate) fn pages_of(at: u64, len: u64) -> (u64, u64) {
    let first = at & !(PAGE - 1);
    (first, (at + len - first).next_multiple_of(PAGE))
}

/// PROT_ bits that the program's pages have in common, if all are its own and private.
pub(crate) fn protection(first: u64, len: u64) -> Option<u32> {
    let mut prot = 7;
    for page in (first..first + len).step_by(PAGE as usize) {
        let r = memory::map().at(page)?;
        if r.flags & region_flags::SHARED != 0 {
            return None;
        }
        prot &= r.prot;
    }
    Some(prot)
}

/// Gives pages the protection that the program chose.
fn restore_protection(first: u64, len: u64) {
    for page in (first..first + len).step_by(PAGE as usize) {
        if let Some(r) = memory::map().at(page) {
            sys::call(nr::MPROTECT, &[page, PAGE, r.prot as u64]);
        }
    }
}
