//! A process stopped under ptrace: registers, memory, system calls made on its behalf. Used only between exec and the first instruction.

use crate::error::{os, os_as, LaunchError, Result};
use crate::ptrace;
use libc::{c_void, pid_t, user_regs_struct};
use rustix::io::Errno;
use rustix::process::{kill_process, waitid, Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// si_code of what the kernel itself raises, as for an `int3` (sigaction(2)).
const SI_KERNEL: i32 = 0x80;

/// __WNOTHREAD of waitpid(2): only what this very thread traces.
const OF_THIS_THREAD: WaitOptions = WaitOptions::from_bits_retain(libc::__WNOTHREAD as u32);

/// A stopped process.
pub(crate) struct Tracee {
    pub(crate) pid: pid_t,
    memory: File,
}

fn ptrace(request: u32, pid: pid_t, address: u64, data: u64) -> i64 {
    // SAFETY: the kernel checks everything; `data` is 0, a number, or points to a structure of the caller.
    unsafe { libc::ptrace(request, pid, address as *mut c_void, data as *mut c_void) }
}

/// Waits for the next stop; its status.
pub(crate) fn wait(pid: pid_t) -> Result<i32> {
    ptrace::wait(pid).map_err(os_as("wait for the program"))
}

/// Waits for the next stop of one of these threads; which, and its status. `None`: `is_in_vain` says so, which is asked now and then.
pub(crate) fn wait_any(
    of: &[pid_t],
    mut is_in_vain: impl FnMut() -> bool,
) -> Result<Option<(pid_t, i32)>> {
    // The kernel tells a tracer of each stop by this signal, which otherwise means nothing to it (ptrace(2)).
    let told = Blocked::signal(libc::SIGCHLD);
    let mut pause = SHORTEST_PAUSE;
    loop {
        let any = ptrace::ALL | WaitOptions::NOHANG | OF_THIS_THREAD;
        let stopped = match rustix::process::wait(any) {
            Err(Errno::INTR) => continue,
            stopped => stopped.map_err(|_| LaunchError::Died(0))?,
        };
        let stopped = stopped.map(|(pid, status)| (pid.as_raw_pid(), status.as_raw()));
        if stopped.is_some_and(|(pid, _)| of.contains(&pid)) {
            return Ok(stopped);
        }
        if stopped.is_none() && !told.comes_within(pause) {
            if pause == LONGEST_PAUSE && is_in_vain() {
                return Ok(None);
            }
            // Another thread of the tracer may have been told instead.
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

/// Who waits for a stop looks by himself after this, ...
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// ... and the more seldom the longer it takes.
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// A signal that waits until it is asked for, as long as this lives; with the thread's mask from before.
struct Blocked {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Blocked {
    fn signal(signal: i32) -> Blocked {
        // SAFETY: all zeroes is a value of these sets, which the calls fill.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, signal);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Blocked { set, before }
        }
    }

    fn comes_within(&self, limit: Duration) -> bool {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: both are ours; nobody asks what the signal says.
        unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &limit) > 0 }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Traces a thread that goes on running.
pub(crate) fn seize(tid: pid_t, options: i32) -> Result<()> {
    if ptrace(libc::PTRACE_SEIZE, tid, 0, options as u64) != 0 {
        return Err(os("trace a process of the session"));
    }
    Ok(())
}

/// Lets a stopped tracee go on.
pub(crate) fn resume(pid: pid_t, request: u32, signal: i32) -> Result<()> {
    if ptrace(request, pid, 0, signal as u64) != 0 {
        return Err(os("resume the program"));
    }
    Ok(())
}

/// Whether this tracee of ours, stopped when we last heard of it, has been killed meanwhile: nothing else ends a stop (ptrace(2), "Death under
/// ptrace").
pub(crate) fn is_dying(tid: pid_t) -> bool {
    let mut message = 0u64;
    ptrace(
        libc::PTRACE_GETEVENTMSG,
        tid,
        0,
        &mut message as *mut u64 as u64,
    ) != 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// As [`resume`]; false when the tracee has been killed meanwhile: its next wait says so.
pub(crate) fn resume_living(tid: pid_t, request: u32, signal: i32) -> Result<bool> {
    match resume(tid, request, signal) {
        Err(_) if is_dying(tid) => Ok(false),
        gone => gone.map(|()| true),
    }
}

/// Hears of the end of a tracee that is dying.
pub(crate) fn reap(tid: pid_t) {
    while wait(tid).is_ok_and(|status| libc::WIFSTOPPED(status)) {}
}

/// Kills a tracee and hears of its end: its parent doesn't before its tracer has. Nothing when its end has been heard of.
pub(crate) fn end(pid: pid_t) {
    let Some(tracee) = Pid::from_raw(pid) else {
        return;
    };
    let only_look = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | only_look;
    let all = WaitIdOptions::from_bits_retain(ptrace::ALL.bits());
    if waitid(WaitId::Pid(tracee), any | all).is_ok() {
        // Its id can't be another process's while we have not heard of its end.
        let _ = kill_process(tracee, Signal::KILL);
        reap(pid);
    }
}

/// Stop signal of the end of a system call, with PTRACE_O_TRACESYSGOOD.
pub(crate) const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// Lets a stopped tracee go on until the stop with this signal. Signals that come meanwhile are its own; being stopped by one is
/// put off until the tracer lets go (ptrace(2), "Group-stop"). What it was stopped by, or how it ended.
pub(crate) fn run_to(pid: pid_t, request: u32, wanted: i32) -> Result<i32> {
    let mut pass = 0;
    loop {
        resume(pid, request, pass)?;
        let status = wait(pid)?;
        if !libc::WIFSTOPPED(status) || status >> 8 == wanted {
            return Ok(status);
        }
        pass = own_signal(pid, status);
    }
}

/// The signal that a stopped tracee is to get when it goes on; 0: it was stopped for the tracer, or is stopped as a whole.
///
/// A SIGTRAP of its own is one that an `int3` has raised, by which the runtime works, or that somebody sent; all others come of being traced
/// (ptrace(2), "si_code").
pub(crate) fn own_signal(pid: pid_t, status: i32) -> i32 {
    match libc::WSTOPSIG(status) {
        AT_CALL => 0,
        _ if status >> 16 != 0 => 0,
        libc::SIGTRAP => {
            // SAFETY: a structure of integers, which is ours.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            let asked = ptrace(libc::PTRACE_GETSIGINFO, pid, 0, &raw mut info as u64);
            let own = asked == 0 && (info.si_code == SI_KERNEL || info.si_code <= 0);
            if own {
                libc::SIGTRAP
            } else {
                0
            }
        }
        signal => signal,
    }
}

/// Sets ptrace options.
pub(crate) fn set_options(pid: pid_t, options: i32) -> Result<()> {
    if ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as u64) != 0 {
        return Err(os("set ptrace options"));
    }
    Ok(())
}

impl Tracee {
    pub(crate) fn new(pid: pid_t) -> Result<Tracee> {
        let path = format!("/proc/{pid}/mem");
        let memory = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| LaunchError::Os {
                what: format!("open {path}"),
                source,
            })?;
        Ok(Tracee { pid, memory })
    }

    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.memory
            .read_exact_at(into, at)
            .map_err(|source| LaunchError::Os {
                what: format!("read the program's memory at {at:#x}"),
                source,
            })
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.memory
            .write_all_at(bytes, at)
            .map_err(|source| LaunchError::Os {
                what: format!("write the program's memory at {at:#x}"),
                source,
            })
    }

    pub(crate) fn registers(&self) -> Result<user_regs_struct> {
        // SAFETY: plain integers; filled by the kernel.
        let mut r: user_regs_struct = unsafe { std::mem::zeroed() };
        if ptrace(libc::PTRACE_GETREGS, self.pid, 0, &mut r as *mut _ as u64) != 0 {
            return Err(os("read the program's registers"));
        }
        Ok(r)
    }

    pub(crate) fn set_registers(&self, r: &user_regs_struct) -> Result<()> {
        if ptrace(libc::PTRACE_SETREGS, self.pid, 0, r as *const _ as u64) != 0 {
            return Err(os("write the program's registers"));
        }
        Ok(())
    }

    /// Lets the process run from these registers to a breakpoint; the registers there.
    pub(crate) fn run(&self, from: &user_regs_struct) -> Result<user_regs_struct> {
        self.set_registers(from)?;
        let status = run_to(self.pid, libc::PTRACE_CONT, libc::SIGTRAP)?;
        if !libc::WIFSTOPPED(status) {
            return Err(LaunchError::Died(status));
        }
        self.registers()
    }

    pub(crate) fn detach(&self) -> Result<()> {
        resume(self.pid, libc::PTRACE_DETACH, 0)
    }
}
