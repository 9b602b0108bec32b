//! Signals that are sent to the launcher, and meant for the program that it has started.
//!
//! Whoever asks the command that he started to end (`kill`, `timeout`, a supervisor, a container's stop signal) means the program. What a
//! terminal sends goes to all of its foreground group, so the program has it already; the kernel's own mark tells the one from the other
//! (`si_code`, sigaction(2)).

use std::sync::atomic::{AtomicI32, Ordering::*};

/// Those that are passed on.
const PASSED: [i32; 6] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// `si_code` of what the kernel sends by itself.
const SI_KERNEL: i32 = 0x80;

/// The program, 0 when it has ended.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// What came when there was no program any more, 0 for nothing.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// While it lives, signals are passed on.
pub struct PassedOn([libc::sigaction; PASSED.len()]);

impl PassedOn {
    /// From now on, to this process.
    pub fn to(program: i32) -> PassedOn {
        ASKED.store(0, SeqCst);
        PROGRAM.store(program, SeqCst);
        PassedOn(PASSED.map(|signal| {
            // SAFETY: a handler that only loads and stores words, and calls kill.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                let mut new: libc::sigaction = std::mem::zeroed();
                let handler = pass_on as extern "C" fn(i32, *const libc::siginfo_t, *const ());
                new.sa_sigaction = handler as libc::sighandler_t;
                new.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(signal, &new, &mut old);
                old
            }
        }))
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        PROGRAM.store(0, SeqCst);
        for (signal, old) in PASSED.iter().zip(&self.0) {
            // SAFETY: what was there before. A program of the next run is to find it.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

/// The program has ended: what comes now is for the launcher.
pub fn program_has_ended() {
    PROGRAM.store(0, SeqCst);
}

/// Has somebody asked the launcher to end, since its program has?
pub fn is_asked_to_end() -> bool {
    !matches!(ASKED.load(SeqCst), 0 | libc::SIGUSR1 | libc::SIGUSR2)
}

extern "C" fn pass_on(signal: i32, info: *const libc::siginfo_t, _: *const ()) {
    let program = PROGRAM.load(SeqCst);
    if program == 0 {
        ASKED.store(signal, SeqCst);
        return;
    }
    // SAFETY: the kernel's; it lives as long as the handler runs.
    let by_kernel = unsafe { (*info).si_code } == SI_KERNEL;
    if !by_kernel {
        // SAFETY: kill is safe in a handler, and errno is left as it was.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(program, signal);
            *errno = before;
        }
    }
}
