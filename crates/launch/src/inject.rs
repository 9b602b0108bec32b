//! System calls made by a traced thread in its tracer's name, from an instruction of the runtime.
//!
//! The thread stops at the call's entry and exit (PTRACE_SYSCALL), which is no signal and needs no handler. Its registers are of no
//! importance meanwhile: whoever calls has them, and gives it those with which it is to go on ([`to_go_on`]).

use crate::ptrace;
use libc::{pid_t, user_regs_struct};
use std::io::{Error, Result};

/// What waitpid(2) says of a stop at a call, with PTRACE_O_TRACESYSGOOD.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How a thread of a process is made.
pub const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_CHILD_CLEARTID;
/// A mask of all signals.
pub const ALL_SIGNALS: u64 = u64::MAX;
/// A stack pointer that is on no signal stack, so that these can be changed.
const NO_STACK: u64 = 0x1000;

/// Where calls can be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gate(u64);

/// The answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Its result.
    pub result: i64,
    /// The process or thread that it made.
    pub made: Option<pid_t>,
}

impl Answer {
    /// The result, where it is no error.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ok(self) -> Result<u64> {
        match self.result {
            -4095..=-1 => Err(Error::from_raw_os_error(-self.result as i32)),
            r => Ok(r as u64),
        }
    }
}

impl Gate {
    /// The gate behind which a thread with these registers waits; `read` reads its memory.
    pub fn of(r: &user_regs_struct, read: impl FnOnce(u64, &mut [u8]) -> bool) -> Option<Gate> {
        let at = r.rip.wrapping_sub(SYSCALL.len() as u64);
        let mut code = [0; 2];
        let waits = r.orig_rax as i64 >= 0;
        (waits && read(at, &mut code) && code == SYSCALL).then_some(Gate(at))
    }

    /// Has a stopped thread make a call.
    ///
    /// # Errors
    /// When the thread is gone, or stops for something else.
    pub fn call(self, tid: pid_t, number: i64, args: &[u64]) -> Result<Answer> {
        let arg = |i: usize| args.get(i).copied().unwrap_or(0);
        let mut r = ptrace::registers(tid)?;
        r.rip = self.0;
        r.rsp = NO_STACK;
        r.rax = number as u64;
        r.orig_rax = u64::MAX;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = [0, 1, 2, 3, 4, 5].map(arg);
        ptrace::set_registers(tid, &r)?;
        let mut made = None;
        for stop in ["entry", "exit"] {
            while let Some(event) = to_next_stop(tid, stop)? {
                if [
                    libc::PTRACE_EVENT_FORK,
                    libc::PTRACE_EVENT_CLONE,
                    libc::PTRACE_EVENT_VFORK,
                ]
                .contains(&event)
                {
                    made = Some(ptrace::message(tid)? as pid_t);
                }
            }
        }
        let result = ptrace::registers(tid)?.rax as i64;
        Ok(Answer { result, made })
    }

    /// Has a stopped thread make a process or a thread by clone(2): its id. It is traced and stopped, with the maker's registers. `clears`:
    /// what CLONE_CHILD_CLEARTID wants.
    ///
    /// # Errors
    /// As [`Gate::call`], and when the new one has ended already.
    pub fn make(self, tid: pid_t, flags: i32, clears: u64) -> Result<pid_t> {
        let answer = self.call(tid, libc::SYS_clone, &[flags as u64, 0, 0, clears])?;
        answer.ok()?;
        let Some(made) = answer.made else {
            return Err(Error::other("the kernel did not tell whom a clone made"));
        };
        match libc::WIFSTOPPED(ptrace::wait(made)?) {
            true => Ok(made),
            false => Err(Error::other("who was just made has ended")),
        }
    }
}

/// On to the next stop at a call (`None`), or of another kind.
fn to_next_stop(tid: pid_t, what: &str) -> Result<Option<i32>> {
    ptrace::on_to_call(tid, 0)?;
    let status = ptrace::wait(tid)?;
    if !libc::WIFSTOPPED(status) {
        return Err(Error::other(format!(
            "a thread ended at a call's {what} (wait status {status:#x})"
        )));
    }
    match (libc::WSTOPSIG(status), status >> 16) {
        (CALL_STOP, 0) => Ok(None),
        (signal, 0) => Err(Error::other(format!(
            "a thread got signal {signal} at a call's {what}"
        ))),
        (_, event) => Ok(Some(event)),
    }
}

/// What a call is restarted by (include/linux/errno.h): ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];

/// Was a thread with these registers stopped inside a call that it is to make again?
pub fn is_in_call(r: &user_regs_struct) -> bool {
    r.orig_rax as i64 >= 0 && RESTARTS.contains(&(r.rax as i64))
}

/// The registers with which a thread goes on that was stopped: a call that was interrupted is made once more.
pub fn to_go_on(mut r: user_regs_struct) -> user_regs_struct {
    if is_in_call(&r) {
        r.rax = r.orig_rax;
        r.rip -= SYSCALL.len() as u64;
    }
    r.orig_rax = u64::MAX;
    r
}
