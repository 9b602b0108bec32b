//! Starting a program for recording: fork, ptrace, exec, stop; what is stopped there is then taken over (FACTS, "Injection at exec").

mod mappings;
mod processors;
mod program;
mod stopped;

pub(crate) use mappings::mappings_of;
pub use mappings::Mapping;
pub(crate) use processors::{affinity_len, affinity_of, choose_cpu, pin_to};
pub use processors::{cpuid_faulting, set_processor};
pub use program::{find_program, Command};
pub(crate) use stopped::stack_limit;
pub use stopped::Stopped;

use crate::dispositions;
use crate::error::{os, os_as, LaunchError, Result};
use crate::limits;
use crate::ptrace;
use crate::reach::Reach;
use crate::runtime::RuntimeImage;
use crate::shared::SharedSession;
use crate::tracee;
use libc::pid_t;
use processors::run_anywhere;
use program::Exec;
use reprise_abi::session::FLAG_ASLR;
use reprise_console::{was_closed, was_sigpipe_ignored};
use rustix::io::FdFlags;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{kill_process, Pid, Signal};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

/// Signals that the program will find ignored, and blocked.
fn inherited_signals() -> (u64, u64) {
    let (mut ignored, mut blocked) = (0u64, 0u64);
    for s in (1..=64).filter(|s| dispositions::is_ignored(*s)) {
        ignored |= 1 << (s - 1);
    }
    // SAFETY: reads the mask of this thread.
    unsafe {
        let mut m: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut m);
        for s in 1..=64 {
            if libc::sigismember(&m, s) == 1 {
                blocked |= 1 << (s - 1);
            }
        }
    }
    // The standard library of this launcher ignores SIGPIPE; the child undoes that.
    let pipe = 1u64 << (libc::SIGPIPE - 1);
    let size = 1u64 << (libc::SIGXFSZ - 1);
    ignored &= !(pipe | size);
    if limits::ignores_size() {
        ignored |= size;
    }
    if was_sigpipe_ignored() {
        ignored |= pipe;
    }
    (ignored, blocked)
}

/// What a child says of itself before its exec, and once more if that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    /// Its addresses are not chosen at random.
    no_random: bool,
    /// What went wrong: an errno, negative before the child was traced; or 0.
    error: i32,
}

impl Word {
    /// Bytes of one.
    const LEN: usize = 8;

    /// Says it. Safe after a fork.
    fn say(self, to: &OwnedFd) {
        let mut message = [0; Word::LEN];
        message[..4].copy_from_slice(&i32::from(self.no_random).to_ne_bytes());
        message[4..].copy_from_slice(&self.error.to_ne_bytes());
        // Nobody is left to be told when it fails.
        let _ = rustix::io::write(to, &message);
    }

    /// The next one; `None` when the child has said all, or is gone.
    fn hear(from: &OwnedFd) -> Option<Word> {
        let mut message = [0; Word::LEN];
        let n = rustix::io::read(from, &mut message).ok()?;
        let number = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|i| message[at + i]));
        (n == Word::LEN).then(|| Word {
            no_random: number(0) != 0,
            error: number(4),
        })
    }
}

/// Starts the program and stops it at its exec, with nothing of it run yet.
///
/// # Errors
/// When it can't be found or run, or ptrace is refused.
pub fn start(
    command: &Command,
    shared: &mut SharedSession,
    image: &RuntimeImage,
) -> Result<Stopped> {
    let exec = Exec::of(command, std::env::vars_os())?;
    let (ignored, blocked) = inherited_signals();
    {
        let s = shared.session_mut();
        s.initial_ignored.store(ignored, Relaxed);
        s.initial_mask.store(blocked, Relaxed);
    }
    let mask = affinity_of(0);
    let cpu = choose_cpu(&mask);
    let pin = command.pin.then_some(cpu);
    let (hears, says) = pipe()?;
    let ours = [image.as_fd(), shared.as_fd()];
    // SAFETY: the launcher has one thread; the child only makes calls that are safe after fork.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(os("fork"));
    }
    if pid == 0 {
        // SAFETY: the child of a process with one thread.
        unsafe { become_program(&exec, pin, ours, &says) }
    }
    tracing::debug!(pid, pin = command.pin, cpu, "program forked");
    drop(says);
    let came = come_to_exec(pid, &command.argv[0], pin, &hears);
    let result = came.and_then(|no_random| {
        let mut stopped = Stopped::begin(pid, 0)?;
        tracing::debug!(pid, no_random, "stopped at its exec");
        crate::identity::note_loss(pid, shared);
        {
            let s = shared.session_mut();
            if !no_random {
                s.flags |= FLAG_ASLR;
            }
            s.affinity = mask;
            s.affinity_len = affinity_len();
            s.cpu = cpu as u64;
        }
        let ours = [image.fd(), shared.fd()];
        stopped.put_in(shared, image, Reach::Has(ours))?;
        Ok(stopped)
    });
    if let (true, Some(child)) = (result.is_err(), Pid::from_raw(pid)) {
        // Our own child, still unreaped.
        let _ = kill_process(child, Signal::KILL);
        let _ = ptrace::wait_no_longer(pid);
    }
    run_anywhere(&mask);
    result
}

/// In the child: becomes the program, as if whoever started the launcher had started it; traced by the launcher, and with the two descriptors by which the
/// runtime comes in.
///
/// # Safety
/// To be called in a forked child: it makes system calls only.
unsafe fn become_program(
    exec: &Exec,
    pin: Option<usize>,
    ours: [BorrowedFd; 2],
    says: &OwnedFd,
) -> ! {
    // SAFETY: plain calls on what was made before the fork; ends in exec or _exit.
    unsafe {
        if let Some(cpu) = pin {
            pin_to(0, cpu);
        }
        let persona = libc::personality(0xffff_ffff);
        let fixed = persona as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
        let no_random = persona >= 0 && libc::personality(fixed) >= 0;
        for fd in ours {
            let _ = rustix::io::fcntl_setfd(fd, FdFlags::empty());
        }
        if !was_sigpipe_ignored() {
            dispositions::restore_default(libc::SIGPIPE);
        }
        for stream in (0..3).filter(|stream| was_closed(*stream)) {
            libc::close(stream);
        }
        limits::give_back();
        let say = |error: i32| Word { no_random, error }.say(says);
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            say(-*libc::__errno_location());
            libc::_exit(125);
        }
        say(0);
        libc::raise(libc::SIGSTOP);
        let (argv, env) = (&exec.argv.pointers, &exec.env.pointers);
        libc::execve(exec.path.as_ptr(), argv.as_ptr(), env.as_ptr());
        say(*libc::__errno_location());
        libc::_exit(126);
    }
}

/// Lets the child come to the event of its exec. Are its addresses not chosen at random?
fn come_to_exec(pid: pid_t, program: &OsStr, pin: Option<usize>, hears: &OwnedFd) -> Result<bool> {
    let first = Word::hear(hears).ok_or(LaunchError::Died(0))?;
    if first.error != 0 {
        let e = std::io::Error::from_raw_os_error(-first.error);
        return Err(LaunchError::Unsupported(format!(
            "ptrace is refused ({e}): reprise needs it for a moment at exec; run `reprise doctor`"
        )));
    }
    let status = tracee::wait(pid)?;
    if !libc::WIFSTOPPED(status) {
        return Err(LaunchError::Died(status));
    }
    // Tracer and program on one processor: a stop costs twenty times less there.
    if let Some(cpu) = pin {
        pin_to(0, cpu);
    }
    tracee::set_options(
        pid,
        libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL,
    )?;
    tracee::resume(pid, libc::PTRACE_CONT, 0)?;
    let status = tracee::wait(pid)?;
    if status >> 8 != (libc::SIGTRAP | (libc::PTRACE_EVENT_EXEC << 8)) {
        let error = Word::hear(hears).map_or(0, |word| word.error);
        return Err(exec_failed(program, error));
    }
    Ok(first.no_random)
}

/// Why a program that is there could not be run.
fn exec_failed(program: &OsStr, errno: i32) -> LaunchError {
    LaunchError::CannotRun {
        program: program.to_string_lossy().into_owned(),
        why: match errno {
            libc::ENOENT => "its interpreter is missing".into(),
            _ => std::io::Error::from_raw_os_error(errno).to_string(),
        },
    }
}

/// A pipe that no exec keeps: the end that reads, and the one that writes.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(os_as("make a pipe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_heard_until_it_is_gone() {
        let (hears, says) = pipe().expect("a pipe");
        let words = [(true, 0), (false, -libc::EPERM), (true, libc::ENOEXEC)];
        let words = words.map(|(no_random, error)| Word { no_random, error });
        words.iter().for_each(|w| w.say(&says));
        drop(says);
        for word in words {
            assert_eq!(Word::hear(&hears), Some(word));
        }
        assert_eq!(Word::hear(&hears), None);
    }

    #[test]
    fn an_exec_that_fails_is_told_with_its_reason() {
        let why = |errno| exec_failed("./script".as_ref(), errno).to_string();
        assert!(why(libc::ENOENT).contains("its interpreter is missing"));
        assert!(why(libc::EACCES).contains("Permission denied"));
        assert!(why(libc::ENOENT).contains("./script"));
    }
}
