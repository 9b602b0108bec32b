//! Runs code in this process with registers of its own, and gives every trap, fault and time-out in it to a closure.

use crate::machine::{Machine, Xmm};
use reprise_code::memory::Memory;
use reprise_code::regs::{Regs, GREGS};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Where the code of the tests lies.
pub const CODE: u64 = 0x1000_0000_0000;
/// Data within RIP-relative reach of it.
pub const DATA: u64 = CODE + 0x1000;
/// Save cell of stubs.
pub const CELL: u64 = CODE + 0x2000;
/// Top of the stack: half of its 64 KB lie above.
pub const STACK: u64 = CODE + 0x2_0000 - 0x8000;
const LEN: usize = 0x2_0000;

/// What a closure sees of the stopped code.
pub struct Frame {
    context: *mut libc::ucontext_t,
    /// The signal: SIGTRAP, SIGSEGV, SIGALRM.
    pub signal: i32,
    finished: bool,
}

impl Frame {
    fn gregs(&mut self) -> &mut [u64; GREGS] {
        // SAFETY: the kernel's frame, while the handler runs.
        unsafe { &mut *(&raw mut (*self.context).uc_mcontext.gregs).cast() }
    }

    fn fp(&self) -> *mut u8 {
        // SAFETY: as above.
        unsafe { (*self.context).uc_mcontext.fpregs.cast() }
    }

    /// The registers.
    pub fn regs(&mut self) -> Regs {
        Regs::from_gregs(self.gregs(), 0, 0)
    }

    /// Sets them.
    pub fn set(&mut self, regs: &Regs) {
        regs.to_gregs(self.gregs());
    }

    /// Sets the program counter.
    pub fn go(&mut self, rip: u64) {
        let mut regs = self.regs();
        regs.rip = rip;
        self.set(&regs);
    }

    /// The vector registers.
    pub fn xmm(&self) -> Xmm {
        // SAFETY: FXSAVE's layout; xmm0 is at 160.
        unsafe { self.fp().add(160).cast::<Xmm>().read_unaligned() }
    }

    /// Sets them.
    pub fn set_xmm(&mut self, xmm: &Xmm) {
        // SAFETY: as above; XSTATE_BV at 512 says that they are to be loaded.
        unsafe {
            self.fp().add(160).cast::<Xmm>().write_unaligned(*xmm);
            let bv = self.fp().add(512).cast::<u64>();
            bv.write_unaligned(bv.read_unaligned() | 2);
        }
    }

    /// Ends the run: control goes back to [`Live::run`].
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// What cuts see of the stopped code; `original`: bytes of the program under a patch.
    pub fn machine(&self, original: Option<(u64, [u8; 5])>) -> LiveMachine {
        let xmm = self.xmm();
        // SAFETY: XSAVE's layout: XSTATE_BV at 512, the upper halves of ymm at 576, valid when bit 2 is set.
        let ymm: [u64; 32] = unsafe {
            if self.fp().add(512).cast::<u64>().read_unaligned() & 4 != 0 {
                self.fp().add(576).cast::<[u64; 32]>().read_unaligned()
            } else {
                [0; 32]
            }
        };
        let extended = xmm
            .iter()
            .flatten()
            .chain(&ymm)
            .fold(17, |h: u64, w| (h ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        LiveMachine {
            xmm,
            extended,
            original,
        }
    }
}

/// This process's memory, read by the kernel, which doesn't fault.
pub struct LiveMachine {
    xmm: Xmm,
    extended: u64,
    original: Option<(u64, [u8; 5])>,
}

impl Memory for LiveMachine {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        let local = libc::iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        };
        let remote = libc::iovec {
            iov_base: addr as *mut _,
            iov_len: buf.len(),
        };
        // SAFETY: writes `buf` only.
        let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if let Some((at, bytes)) = self.original {
            for (i, byte) in bytes.iter().enumerate() {
                if let Some(b) = (at + i as u64)
                    .checked_sub(addr)
                    .and_then(|o| buf.get_mut(o as usize))
                {
                    *b = *byte;
                }
            }
        }
        n == buf.len() as isize
    }
}

impl Machine for LiveMachine {
    fn xmm(&self) -> Xmm {
        self.xmm
    }

    fn extended(&self) -> u64 {
        self.extended
    }
}

struct Run<'a> {
    /// The kernel's id of the thread that runs it.
    thread: i32,
    on_signal: &'a mut dyn FnMut(&mut Frame),
    start: (Regs, Xmm),
    home: Option<[u64; GREGS]>,
}

static RUN: AtomicPtr<Run<'static>> = AtomicPtr::new(std::ptr::null_mut());
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

extern "C" fn on_signal(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: set by `Live::run` for as long as its code runs; nothing else of this process traps. The timer of another test's thread may be over late.
    let run = unsafe { RUN.load(Ordering::SeqCst).as_mut() };
    // SAFETY: asks the kernel.
    let Some(run) = run.filter(|run| run.thread == unsafe { libc::gettid() }) else {
        if signal == libc::SIGALRM {
            return;
        }
        // SAFETY: a real fault of the test; the frame is the kernel's.
        unsafe {
            let rip =
                (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
            eprintln!("signal {signal} at {rip:#x}, outside of a run");
            libc::abort()
        }
    };
    let mut frame = Frame {
        context: context.cast(),
        signal,
        finished: false,
    };
    let Some(home) = run.home else {
        if signal == libc::SIGALRM {
            return;
        }
        run.home = Some(*frame.gregs());
        let (regs, xmm) = run.start;
        let kept = frame.regs().rflags & !reprise_code::regs::FLAGS;
        frame.set(&Regs {
            rflags: regs.rflags | kept,
            ..regs
        });
        frame.set_xmm(&xmm);
        return;
    };
    (run.on_signal)(&mut frame);
    if frame.finished {
        *frame.gregs() = home;
    }
}

/// Memory for code, data and stack, and the only right to run in it.
pub struct Live {
    stubs: Vec<u64>,
    alternate: Vec<u8>,
    _one: MutexGuard<'static, ()>,
}

impl Live {
    /// Maps everything and puts `code` to [`CODE`].
    pub fn new(code: &[u8]) -> Live {
        let one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        map(CODE, LEN);
        let live = Live {
            stubs: Vec::new(),
            alternate: vec![0; 256 << 10],
            _one: one,
        };
        write(CODE, code);
        // SAFETY: handlers for this process; other tests cause none of these signals.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // The timer may be over while a handler runs: that would be taken for where the program is.
            libc::sigfillset(&mut action.sa_mask);
            for signal in [libc::SIGTRAP, libc::SIGSEGV, libc::SIGALRM] {
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
        live
    }

    /// Data and stack as at the beginning: zero.
    pub fn clear(&self) {
        // SAFETY: mapped by `new`.
        unsafe { std::ptr::write_bytes(DATA as *mut u8, 0, LEN - 0x1000) };
    }

    /// All data and all of the stack.
    pub fn memory(&self) -> Vec<u8> {
        let mut bytes = read(DATA, LEN - 0x1000);
        bytes[(CELL - DATA) as usize..][..8].fill(0);
        bytes
    }

    /// Maps a page or two for a stub.
    pub fn map_stub(&mut self, at: u64) -> bool {
        let page = at & !4095;
        let mapped = try_map(page, 0x2000);
        if mapped {
            self.stubs.push(page);
        }
        mapped
    }

    /// Runs the code from `regs` on until the closure finishes it.
    pub fn run(&mut self, regs: &Regs, xmm: &Xmm, on_signal: &mut dyn FnMut(&mut Frame)) {
        let mut run = Run {
            // SAFETY: asks the kernel.
            thread: unsafe { libc::gettid() },
            on_signal,
            start: (*regs, *xmm),
            home: None,
        };
        let stack = libc::stack_t {
            ss_sp: self.alternate.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: self.alternate.len(),
        };
        // SAFETY: the first trap goes to `regs`, the last one comes back with all registers restored but vectors, which
        // `clobber_abi` gives up.
        unsafe {
            let mut old: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(&stack, &mut old);
            RUN.store((&raw mut run).cast(), Ordering::SeqCst);
            std::arch::asm!("int3", clobber_abi("sysv64"));
            RUN.store(std::ptr::null_mut(), Ordering::SeqCst);
            libc::sigaltstack(&old, std::ptr::null_mut());
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // SAFETY: mapped by us, nothing runs there.
        unsafe {
            for page in &self.stubs {
                libc::munmap(*page as *mut _, 0x2000);
            }
            libc::munmap(CODE as *mut _, LEN);
        }
    }
}

fn try_map(at: u64, len: usize) -> bool {
    let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    unsafe { libc::mmap(at as *mut _, len, prot, flags, -1, 0) as u64 == at }
}

fn map(at: u64, len: usize) {
    assert!(try_map(at, len), "{at:#x} is taken");
}

/// Writes memory of the tests.
pub fn write(at: u64, bytes: &[u8]) {
    // SAFETY: only addresses mapped by `Live` are written.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

/// Reads memory of the tests.
pub fn read(at: u64, len: usize) -> Vec<u8> {
    // SAFETY: only addresses mapped by `Live` are read.
    unsafe { std::slice::from_raw_parts(at as *const u8, len) }.to_vec()
}

thread_local! {
    /// The thread's timer, whose end is a SIGALRM to it.
    static TIMER: libc::timer_t = {
        // SAFETY: a timer of this thread, as long as that lives.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::mem::zeroed();
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
            assert_eq!(made, 0);
            timer
        }
    };
}

/// Sends SIGALRM to this thread so many milliseconds from now, instead of when that was said last; 0: not at all.
pub fn arm_timer(ms: i64) {
    // SAFETY: the thread's timer.
    unsafe {
        let mut when: libc::itimerspec = std::mem::zeroed();
        when.it_value.tv_nsec = 1_000_000 * ms;
        TIMER.with(|timer| libc::timer_settime(*timer, 0, &when, std::ptr::null_mut()));
    }
}
