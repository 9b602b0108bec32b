//! What the kernel offers to a tracer (ptrace(2)), as functions: all of them for a thread that is stopped, but [`interrupt`].

use libc::{c_void, pid_t, user_regs_struct};
use rustix::io::retry_on_intr;
use rustix::process::{waitpid, Pid, WaitOptions};
use std::io::{Error, ErrorKind, Result};

/// __WALL of waitpid(2): children that were cloned, too.
pub(crate) const ALL: WaitOptions = WaitOptions::from_bits_retain(libc::__WALL as u32);

/// Where a thread's debug registers are in the kernel's `struct user`.
const DEBUG_REGISTERS: u64 = std::mem::offset_of!(libc::user, u_debugreg) as u64;
/// The register set of XSAVE.
const NT_X86_XSTATE: u64 = 0x202;
/// Requests that libc does not name yet (linux/ptrace.h).
const PTRACE_GETSIGMASK: u32 = 0x420a;
const PTRACE_SETSIGMASK: u32 = 0x420b;
const PTRACE_GET_DISPATCH: u32 = 0x4211;
const PTRACE_SET_DISPATCH: u32 = 0x4210;
/// More than any processor's vector registers take.
const MAX_XSAVE: usize = 16 << 10;

fn ptrace(request: u32, tid: pid_t, address: u64, data: u64) -> Result<i64> {
    // SAFETY: the kernel checks everything; `data` is a number, or points to memory of the caller that is large enough.
    let r = unsafe { libc::ptrace(request, tid, address as *mut c_void, data as *mut c_void) };
    match r {
        -1 => Err(Error::last_os_error()),
        r => Ok(r),
    }
}

/// The general registers.
pub fn registers(tid: pid_t) -> Result<user_regs_struct> {
    // SAFETY: plain integers.
    let mut r: user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut r as u64)?;
    Ok(r)
}

/// Changes them.
pub fn set_registers(tid: pid_t, r: &user_regs_struct) -> Result<()> {
    ptrace(libc::PTRACE_SETREGS, tid, 0, &raw const *r as u64).map(|_| ())
}

/// The x87 and vector registers, as XSAVE stores them.
pub fn vectors(tid: pid_t) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; MAX_XSAVE];
    let mut vec = libc::iovec {
        iov_base: bytes.as_mut_ptr() as *mut c_void,
        iov_len: bytes.len(),
    };
    ptrace(
        libc::PTRACE_GETREGSET,
        tid,
        NT_X86_XSTATE,
        &raw mut vec as u64,
    )?;
    bytes.truncate(vec.iov_len);
    Ok(bytes)
}

/// Changes them.
pub fn set_vectors(tid: pid_t, bytes: &mut [u8]) -> Result<()> {
    let mut vec = libc::iovec {
        iov_base: bytes.as_mut_ptr() as *mut c_void,
        iov_len: bytes.len(),
    };
    let at = &raw mut vec as u64;
    ptrace(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, at).map(|_| ())
}

/// The signals that it has blocked.
pub fn signal_mask(tid: pid_t) -> Result<u64> {
    let mut mask = 0u64;
    ptrace(PTRACE_GETSIGMASK, tid, 8, &raw mut mask as u64)?;
    Ok(mask)
}

/// Changes them.
pub fn set_signal_mask(tid: pid_t, mask: u64) -> Result<()> {
    ptrace(PTRACE_SETSIGMASK, tid, 8, &raw const mask as u64).map(|_| ())
}

/// Which system calls the kernel hands back to the thread (prctl(2), PR_SET_SYSCALL_USER_DISPATCH): mode, selector, and the stretch of code
/// whose calls are excepted.
pub type Dispatch = [u64; 4];

/// What is set.
pub fn dispatch(tid: pid_t) -> Result<Dispatch> {
    let mut d = [0; 4];
    let len = std::mem::size_of::<Dispatch>() as u64;
    ptrace(PTRACE_GET_DISPATCH, tid, len, &raw mut d as u64)?;
    // Of a thread that has not asked for it yet the kernel tells what its maker has, and would not take that back.
    let [mode, ..] = d;
    Ok(if mode == 0 { [0; 4] } else { d })
}

/// Changes it.
pub fn set_dispatch(tid: pid_t, d: &Dispatch) -> Result<()> {
    let len = std::mem::size_of::<Dispatch>() as u64;
    ptrace(PTRACE_SET_DISPATCH, tid, len, &raw const *d as u64).map(|_| ())
}

/// What the kernel says of the event at which it is stopped: who was made.
pub fn message(tid: pid_t) -> Result<u64> {
    let mut message = 0u64;
    ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as u64)?;
    Ok(message)
}

/// What waitpid(2) has to tell of a thread now.
pub fn wait_no_longer(tid: pid_t) -> Result<Option<i32>> {
    let heard = waitpid(Pid::from_raw(tid), ALL | WaitOptions::NOHANG)?;
    Ok(heard.map(|(_, status)| status.as_raw()))
}

/// Lets it go on to where its next system call begins or ends, with a signal (0: none).
pub fn on_to_call(tid: pid_t, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_SYSCALL, tid, 0, signal as u64).map(|_| ())
}

/// Is it stopped where a system call begins, and not where one ends?
pub fn begins_call(tid: pid_t) -> Result<bool> {
    // SAFETY: filled by the kernel.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let len = std::mem::size_of_val(&info) as u64;
    ptrace(
        libc::PTRACE_GET_SYSCALL_INFO,
        tid,
        len,
        &raw mut info as u64,
    )?;
    Ok(info.op == libc::PTRACE_SYSCALL_INFO_ENTRY)
}

/// What the thread is stopped by, where that is a signal.
pub fn signal_info(tid: pid_t) -> Result<libc::siginfo_t> {
    // SAFETY: filled by the kernel.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as u64)?;
    Ok(info)
}

/// Has the kernel a signal for this very thread that is not blocked, and of which it has not told yet?
pub fn comes_to_signal(tid: pid_t) -> Result<bool> {
    /// struct ptrace_peeksiginfo_args.
    #[repr(C)]
    struct Which {
        first: u64,
        flags: u32,
        most: i32,
    }
    /// There is one of each kind at most, but of real-time signals.
    const MOST: usize = 64;
    let which = Which {
        first: 0,
        flags: 0,
        most: MOST as i32,
    };
    // SAFETY: filled by the kernel.
    let mut list: [libc::siginfo_t; MOST] = unsafe { std::mem::zeroed() };
    let (which, into) = (&raw const which as u64, list.as_mut_ptr() as u64);
    let told = ptrace(libc::PTRACE_PEEKSIGINFO, tid, which, into)?;
    let mask = signal_mask(tid)?;
    let blocked = |signal: i32| mask >> (signal - 1) & 1 != 0;
    Ok(list[..told as usize].iter().any(|i| !blocked(i.si_signo)))
}

/// Lets it go on, with a signal (0: none).
pub fn go_on(tid: pid_t, signal: i32) -> Result<()> {
    ptrace(libc::PTRACE_CONT, tid, 0, signal as u64).map(|_| ())
}

/// Lets it make one instruction.
pub fn step(tid: pid_t) -> Result<()> {
    ptrace(libc::PTRACE_SINGLESTEP, tid, 0, 0).map(|_| ())
}

/// Begins to trace it, with these options; it goes on running.
pub fn seize(tid: pid_t, options: i32) -> Result<()> {
    ptrace(libc::PTRACE_SEIZE, tid, 0, options as u64).map(|_| ())
}

/// Stops it, wherever it is.
pub fn interrupt(tid: pid_t) -> Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).map(|_| ())
}

/// Lets it go for good.
pub fn detach(tid: pid_t) -> Result<()> {
    ptrace(libc::PTRACE_DETACH, tid, 0, 0).map(|_| ())
}

/// Debug register `i`.
pub fn debug_register(tid: pid_t, i: u64) -> Result<u64> {
    // SAFETY: clears errno, since -1 is a value, too.
    unsafe { *libc::__errno_location() = 0 };
    match ptrace(libc::PTRACE_PEEKUSER, tid, DEBUG_REGISTERS + 8 * i, 0) {
        Err(e) if e.raw_os_error() == Some(0) => Ok(u64::MAX),
        r => r.map(|v| v as u64),
    }
}

/// Changes it.
pub fn set_debug_register(tid: pid_t, i: u64, value: u64) -> Result<()> {
    ptrace(libc::PTRACE_POKEUSER, tid, DEBUG_REGISTERS + 8 * i, value).map(|_| ())
}

/// Waits for the next stop of one thread.
pub fn wait(tid: pid_t) -> Result<i32> {
    let heard = retry_on_intr(|| waitpid(Pid::from_raw(tid), ALL))?;
    // Who waits without end hears of something.
    let (_, status) = heard.ok_or(ErrorKind::WouldBlock)?;
    Ok(status.as_raw())
}

/// The process of a thread, as the kernel numbers both.
pub fn process_of(tid: pid_t) -> Option<pid_t> {
    let status = crate::proc_files::text(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
