//! Signal frames on the program's stack, as the kernel would build them (arch/x86 `rt_sigframe`), but canonical: the same bytes in record and in replay.

use crate::machine::guard;
use crate::thread::signals::{
    bit, Action, AltStack, Siginfo, IGNORE, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SIGSEGV,
    SS_AUTODISARM, SS_DISABLE, SS_ONSTACK,
};
use crate::thread::{session, Block, Frame};
use reprise_code::regs::MXCSR_BITS;

/// `struct sigcontext` for x86-64.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)]
pub struct SigContext {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub rflags: u64,
    pub segments: u64,
    pub err: u64,
    pub trapno: u64,
    pub oldmask: u64,
    pub cr2: u64,
    pub fpstate: u64,
    pub reserved: [u64; 8],
}

/// `struct ucontext` for x86-64.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Ucontext {
    pub flags: u64,
    pub link: u64,
    pub stack: AltStack,
    pub mc: SigContext,
    pub mask: u64,
}

/// The whole frame; the handler's stack pointer points to it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RtFrame {
    restorer: u64,
    uc: Ucontext,
    info: Siginfo,
}

const _: () = {
    assert!(core::mem::size_of::<SigContext>() == 256);
    assert!(core::mem::size_of::<Ucontext>() == 304);
    assert!(core::mem::size_of::<RtFrame>() == 440);
};

/// UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
const UC_FLAGS: u64 = 7;
/// cs, gs, fs, ss of user code.
const SEGMENTS: u64 = 0x002b_0000_0000_0033;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// What the processor writes of the legacy area ends before its reserved bytes.
const LEGACY_END: u64 = 416;
/// Offset of the software-reserved bytes in the legacy area, and of the XSAVE header.
const SW_RESERVED: u64 = 464;
const XSAVE_HEADER: u64 = 512;
/// XCR0 components of x87, SSE, AVX and AVX-512; the processor leaves out those it has not.
const EVERY_VECTOR: u64 = 0xe7;
/// Flags that a frame may set: CF PF AF ZF SF DF OF RF AC.
const USER_FLAGS: u64 = 0x5_0dd5 & !0x1_0000;

/// x87 and SSE, as bits of an XSAVE header.
const LEGACY: u64 = 3;

/// The initial state of all components, with x87 and SSE **in use**.
///
/// Whether a component in its initial state is in use is memory of the processor's that XSAVEC lets the program see: ld.so's
/// resolver leaves it on the stack. Every signal frame of the kernel's sets it for x87 and SSE, and signals of the kernel's come
/// at other places in a replay: so these two are in use from the first instruction on, and in every handler. (Where all
/// registers of SSE become zero, its use may end; what saves them then, other than the resolver, may see a signal that way. See
/// [`crate::code::resolver`].)
#[repr(C, align(64))]
struct InitialState([u8; 1024]);
static INITIAL: InitialState = {
    let mut b = [0; 1024];
    b[XSAVE_HEADER as usize] = LEGACY as u8;
    // x87 control word 0x37f, MXCSR 0x1f80.
    b[0] = 0x7f;
    b[1] = 0x03;
    b[24] = 0x80;
    b[25] = 0x1f;
    InitialState(b)
};

fn xsave(to: u64, mask: u64) {
    // SAFETY: called inside `guarded`; writes `xsave_size` bytes at `to`.
    unsafe {
        core::arch::asm!("xsave64 [{}]", in(reg) to, in("eax") mask as u32, in("edx") (mask >> 32) as u32, options(nostack));
    }
}

fn xrstor(from: u64, mask: u64) {
    // SAFETY: the runtime itself uses no vector or x87 state; a malformed area faults inside `guarded`.
    unsafe {
        core::arch::asm!("xrstor64 [{}]", in(reg) from, in("eax") mask as u32, in("edx") (mask >> 32) as u32, options(nostack));
    }
}

fn fxrstor(from: u64) {
    // SAFETY: as `xrstor`.
    unsafe {
        core::arch::asm!("fxrstor64 [{}]", in(reg) from, options(nostack));
    }
}

/// Puts the vector and x87 registers into their initial state: all of them, also what a program limited by `--cpu` isn't
/// shown. Its XSAVE writes what is in use.
pub fn reset_fpu() {
    xrstor(&INITIAL as *const InitialState as u64, EVERY_VECTOR);
}

/// Gives the vector and x87 registers what XSAVE stored at `from`, with x87 and SSE in use (see [`InitialState`]).
pub fn restore_vectors(from: u64) {
    let header = (from + XSAVE_HEADER) as *mut u64;
    // SAFETY: an image of whole registers, in memory of the runtime's.
    unsafe { *header |= LEGACY };
    xrstor(from, session().xsave_mask | EVERY_VECTOR);
}

/// Where the vector registers of the interrupted code are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FpState {
    /// In the processor.
    Live,
    /// In a frame that the kernel built, at this address.
    Saved(u64),
}

/// Stores the vector and x87 registers at `to`, with which of them are in use, for [`restore_vectors`].
pub fn save_vectors(fp: FpState, to: u64) {
    const HEADER_LEN: u64 = 64;
    // Behind the magic word and the length of the whole: of the XSAVE area alone.
    const XSTATE_LEN: u64 = SW_RESERVED + 16;
    // SAFETY: the thread's room for that, and the kernel's frame.
    unsafe {
        match fp {
            FpState::Live => {
                core::ptr::write_bytes((to + XSAVE_HEADER) as *mut u8, 0, HEADER_LEN as usize);
                xsave(to, session().xsave_mask | EVERY_VECTOR);
            }
            FpState::Saved(at) => {
                let len = core::ptr::read_unaligned((at + XSTATE_LEN) as *const u32);
                guard::copy(
                    to,
                    at,
                    (len as usize).min(crate::thread::VECTORS_LEN as usize),
                );
            }
        }
    }
}

/// Where XMM registers are in an image, their bytes, and their bit in its header; and the same of the upper halves of YMM registers, in the
/// [standard format](save_vectors) (Intel SDM 1, 13.4).
const IN_IMAGES: [(u64, usize, u64); 2] = [(160, 256, 1 << 1), (576, 256, 1 << 2)];

/// Are the XMM and YMM registers in the image at `mine` the same as in another one, of which `get` copies so many bytes from an address of `mine` on to another
/// address? What isn't in use is zero, whatever the image has there.
pub fn same_vectors(mine: u64, get: impl Fn(u64, u64, u64) -> bool) -> bool {
    let mut other = [0u8; 1024];
    if !get(mine, other.as_mut_ptr() as u64, other.len() as u64) {
        return false;
    }
    // SAFETY: a thread's room for an image is larger.
    let own = unsafe { &*(mine as *const [u8; 1024]) };
    let in_use = |image: &[u8; 1024], bit: u64| {
        let at = XSAVE_HEADER as usize;
        image[at] & bit as u8 != 0
    };
    IN_IMAGES.iter().all(|(at, len, bit)| {
        let range = *at as usize..*at as usize + len;
        let bytes = |image: &[u8; 1024], n: usize| match in_use(image, *bit) {
            true => image[n],
            false => 0,
        };
        range.clone().all(|n| bytes(own, n) == bytes(&other, n))
    })
}

/// Copies the interrupted code's vector state to `to`, canonical, as an XSAVE area in standard format.
pub fn save_fp(fp: FpState, to: u64) {
    let (mask, size) = (session().xsave_mask, session().xsave_size);
    // SAFETY: called inside `guarded`.
    unsafe {
        core::ptr::write_bytes(
            (to + LEGACY_END) as *mut u8,
            0,
            (XSAVE_HEADER + 64 - LEGACY_END) as usize,
        );
        match fp {
            FpState::Live => xsave(to, mask),
            FpState::Saved(from) => {
                guard::copy(to, from, LEGACY_END as usize);
                let bv = core::ptr::read_unaligned((from + XSAVE_HEADER) as *const u64) & mask;
                // Between components lie bytes that nobody writes: they are zero, not what was on the runtime's stack.
                let rest = XSAVE_HEADER + 64;
                core::ptr::write_bytes((to + rest) as *mut u8, 0, (size - rest) as usize);
                for component in (2..63).filter(|c| mask & bv & (1 << c) != 0) {
                    if let Some((offset, len)) = component_place(component) {
                        guard::copy(to + offset as u64, from + offset as u64, len as usize);
                    }
                }
                initialise_absent(to, bv);
            }
        }
        core::ptr::write_unaligned((to + XSAVE_HEADER) as *mut u64, mask);
        canonical_legacy(to);
    }
}

/// Bytes that processors write differently: where x87 was last when no exception waits, what lies beside its registers, the bits of MXCSR.
unsafe fn canonical_legacy(to: u64) {
    /// In the status word: an exception waits.
    const ERROR: u16 = 0x80;
    // SAFETY: as the caller's.
    unsafe {
        if core::ptr::read_unaligned((to + 2) as *const u16) & ERROR == 0 {
            core::ptr::write_bytes((to + 6) as *mut u8, 0, 18);
        }
        core::ptr::write_unaligned((to + 28) as *mut u32, MXCSR_BITS);
        for st in 0..8 {
            core::ptr::write_bytes((to + 32 + 16 * st + 10) as *mut u8, 0, 6);
        }
    }
}

/// The kernel leaves components that are in their initial state unwritten: x87 and SSE are written here.
unsafe fn initialise_absent(to: u64, bv: u64) {
    // SAFETY: as the caller's.
    unsafe {
        if bv & 1 == 0 {
            // x87 without MXCSR (bytes 24-31).
            core::ptr::write_bytes(to as *mut u8, 0, 24);
            core::ptr::write_bytes((to + 32) as *mut u8, 0, 128);
            core::ptr::write_unaligned(to as *mut u16, 0x37f);
        }
        if bv & 2 == 0 {
            core::ptr::write_bytes((to + 160) as *mut u8, 0, 256);
        }
    }
}

/// Offset and size of an extended component in the standard format, from cpuid leaf 0xd.
fn component_place(component: u32) -> Option<(u32, u32)> {
    let s = session();
    s.cpuid[..s.cpuid_len as usize]
        .iter()
        .find(|l| l.leaf == 0xd && l.subleaf == component)
        .map(|l| (l.regs[1], l.regs[0]))
}

/// Makes `frame` run the handler of `action`; false when the process is to die of SIGSEGV: the program's stack can't take the frame.
///
/// As the kernel does, a frame that can't be pushed is a SIGSEGV at the same place, whose own handler may have another stack.
pub fn deliver(
    t: &mut Block,
    frame: &mut Frame,
    fp: FpState,
    info: &Siginfo,
    action: &Action,
    fault: [u64; 3],
) -> bool {
    if push(t, frame, fp, info, action, fault) {
        return true;
    }
    let handler = crate::thread::signals::ACTIONS.get(SIGSEGV);
    if info.signal() == SIGSEGV || handler.handler <= IGNORE || t.mask & bit(SIGSEGV) != 0 {
        return false;
    }
    push(t, frame, fp, &forced_fault(), &handler, [0; 3])
}

/// What the kernel says of a SIGSEGV that no instruction has caused: of a frame that can't be pushed, or that can't be read.
pub fn forced_fault() -> Siginfo {
    let mut info = Siginfo::ZERO;
    info.words[0] = SIGSEGV as u64;
    info.words[1] = super::kernel::SI_KERNEL as u64;
    info
}

/// Builds the frame of one handler; false, and nothing has changed, when the program's stack can't take it.
fn push(
    t: &mut Block,
    frame: &mut Frame,
    fp: FpState,
    info: &Siginfo,
    action: &Action,
    fault: [u64; 3],
) -> bool {
    let signal = info.signal();
    let size = session().xsave_size;
    let on_stack = t.alt_stack.contains(frame.rsp);
    let enters = action.flags & SA_ONSTACK != 0 && t.alt_stack.flags & SS_DISABLE == 0 && !on_stack;
    let top = if enters {
        t.alt_stack.sp + t.alt_stack.size
    } else {
        // The red zone belongs to the interrupted function.
        frame.rsp.wrapping_sub(128)
    };
    let fpstate = top.wrapping_sub(size + 4) & !63;
    let at = (fpstate.wrapping_sub(core::mem::size_of::<RtFrame>() as u64) & !15).wrapping_sub(8);
    // What lies below the alternate stack is somebody else's, whether it can be written or not.
    if (on_stack || enters) && at < t.alt_stack.sp {
        return false;
    }
    let mut stack = t.alt_stack;
    if on_stack {
        stack.flags |= SS_ONSTACK;
    }
    let image = RtFrame {
        restorer: action.restorer,
        uc: Ucontext {
            flags: UC_FLAGS,
            link: 0,
            stack,
            mc: SigContext {
                r8: frame.r8,
                r9: frame.r9,
                r10: frame.r10,
                r11: frame.r11,
                r12: frame.r12,
                r13: frame.r13,
                r14: frame.r14,
                r15: frame.r15,
                rdi: frame.rdi,
                rsi: frame.rsi,
                rbp: frame.rbp,
                rbx: frame.rbx,
                rdx: frame.rdx,
                rax: frame.rax,
                rcx: frame.rcx,
                rsp: frame.rsp,
                rip: frame.rip,
                rflags: frame.rflags,
                segments: SEGMENTS,
                err: fault[0],
                trapno: fault[1],
                oldmask: 0,
                cr2: fault[2],
                fpstate,
                reserved: [0; 8],
            },
            mask: t.saved_mask.unwrap_or(t.mask),
        },
        info: *info,
    };
    let mask = session().xsave_mask;
    let written = guard::guarded(|| {
        // SAFETY: guarded: the program's stack may be too small.
        unsafe {
            save_fp(fp, fpstate);
            let sw: [u32; 12] = [
                FP_XSTATE_MAGIC1,
                size as u32 + 4,
                mask as u32,
                (mask >> 32) as u32,
                size as u32,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            guard::copy(fpstate + SW_RESERVED, sw.as_ptr() as u64, 48);
            guard::copy(fpstate + size, &FP_XSTATE_MAGIC2 as *const u32 as u64, 4);
            guard::copy(
                at,
                &image as *const RtFrame as u64,
                core::mem::size_of::<RtFrame>(),
            );
        }
    });
    if written.is_none() {
        return false;
    }
    t.saved_mask = None;
    if fp == FpState::Live {
        // A handler does not see the interrupted code's registers, rounding or exception masks.
        reset_fpu();
    }
    if t.alt_stack.flags & SS_AUTODISARM != 0 {
        // The frame brings it back.
        t.alt_stack = AltStack::DISABLED;
    }
    t.mask |= action.mask;
    if action.flags & SA_NODEFER == 0 {
        t.mask |= bit(signal);
    }
    t.mask &= !(bit(crate::thread::signals::SIGKILL) | bit(crate::thread::signals::SIGSTOP));
    if action.flags & SA_RESETHAND != 0 {
        crate::thread::signals::ACTIONS.set(
            signal,
            Action {
                handler: 0,
                ..*action
            },
        );
    }
    frame.rdi = signal as u64;
    frame.rsi = at + 8 + core::mem::size_of::<Ucontext>() as u64;
    frame.rdx = at + 8;
    frame.rax = 0;
    frame.rsp = at;
    frame.rip = action.handler;
    // The handler starts with direction, resume and trap flags clear.
    frame.rflags &= !(0x400 | 0x1_0000 | 0x100);
    true
}

/// rt_sigreturn(2): takes the registers back from the frame at the program's stack pointer. False: there is none.
pub fn restore(t: &mut Block, frame: &mut Frame) -> bool {
    let Some(uc) = guard::read::<Ucontext>(frame.rsp) else {
        return false;
    };
    let m = &uc.mc;
    if m.fpstate != 0 {
        let whole = guard::read::<u32>(m.fpstate + SW_RESERVED) == Some(FP_XSTATE_MAGIC1);
        // What the frame does not have is initial, and in use where it must be.
        reset_fpu();
        let restored = guard::guarded(|| {
            if whole {
                // SAFETY: guarded.
                let has =
                    unsafe { core::ptr::read_unaligned((m.fpstate + XSAVE_HEADER) as *const u64) };
                xrstor(m.fpstate, session().xsave_mask & (has | !LEGACY));
            } else {
                fxrstor(m.fpstate);
            }
        });
        if restored.is_none() {
            return false;
        }
    } else {
        reset_fpu();
    }
    *frame = Frame {
        r15: m.r15,
        r14: m.r14,
        r13: m.r13,
        r12: m.r12,
        r11: m.r11,
        r10: m.r10,
        r9: m.r9,
        r8: m.r8,
        rdi: m.rdi,
        rsi: m.rsi,
        rbp: m.rbp,
        rbx: m.rbx,
        rdx: m.rdx,
        rcx: m.rcx,
        rax: m.rax,
        rflags: (frame.rflags & !USER_FLAGS) | (m.rflags & USER_FLAGS),
        rsp: m.rsp,
        rip: m.rip,
    };
    t.mask =
        uc.mask & !(bit(crate::thread::signals::SIGKILL) | bit(crate::thread::signals::SIGSTOP));
    if uc.stack.flags & SS_DISABLE != 0 {
        t.alt_stack = AltStack::DISABLED;
    } else {
        t.alt_stack = AltStack {
            flags: uc.stack.flags & !SS_ONSTACK,
            ..uc.stack
        };
    }
    true
}

impl SigContext {
    /// The general registers as a gate frame.
    pub fn to_frame(&self) -> Frame {
        Frame {
            r15: self.r15,
            r14: self.r14,
            r13: self.r13,
            r12: self.r12,
            r11: self.r11,
            r10: self.r10,
            r9: self.r9,
            r8: self.r8,
            rdi: self.rdi,
            rsi: self.rsi,
            rbp: self.rbp,
            rbx: self.rbx,
            rdx: self.rdx,
            rcx: self.rcx,
            rax: self.rax,
            rflags: self.rflags,
            rsp: self.rsp,
            rip: self.rip,
        }
    }

    /// Takes the general registers from a gate frame.
    pub fn set_frame(&mut self, f: &Frame) {
        *self = SigContext {
            r8: f.r8,
            r9: f.r9,
            r10: f.r10,
            r11: f.r11,
            r12: f.r12,
            r13: f.r13,
            r14: f.r14,
            r15: f.r15,
            rdi: f.rdi,
            rsi: f.rsi,
            rbp: f.rbp,
            rbx: f.rbx,
            rdx: f.rdx,
            rax: f.rax,
            rcx: f.rcx,
            rsp: f.rsp,
            rip: f.rip,
            rflags: f.rflags,
            ..*self
        };
    }
}

/// Makes the registers that a kernel frame will restore those of the initial state.
///
/// # Safety
/// `fpstate` is 0 or the XSAVE area of a frame that the kernel built on the runtime's signal stack.
pub unsafe fn reset_saved_fp(fpstate: u64) {
    if fpstate != 0 {
        // SAFETY: the area's header; components whose bit is clear are restored to their initial state. The others are written.
        unsafe {
            initialise_absent(fpstate, 0);
            core::ptr::write_unaligned((fpstate + 24) as *mut u32, 0x1f80);
            core::ptr::write_unaligned((fpstate + XSAVE_HEADER) as *mut u64, LEGACY);
        }
    }
}
