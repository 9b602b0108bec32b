//! What becomes of signals to this process, where no handler of ours runs (sigaction(2), sigprocmask(2)). All of it is safe after a fork.

/// It is ignored from now on; whether it was so before.
pub fn ignore(signal: i32) -> bool {
    // SAFETY: no handler is installed; the kernel checks the number.
    unsafe { libc::signal(signal, libc::SIG_IGN) == libc::SIG_IGN }
}

/// It does what it does to programs that know nothing of it (signal(7)).
pub fn restore_default(signal: i32) {
    // SAFETY: as above.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Is it ignored?
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeroes is a value of this structure, which the call fills.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// No signal reaches the calling thread, nor threads that it makes, as long as this lives; with the mask from before.
pub struct AllBlocked(libc::sigset_t);

impl AllBlocked {
    /// From now on.
    #[must_use]
    pub fn here() -> AllBlocked {
        // SAFETY: all zeroes is a value of these sets, which the calls fill.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            AllBlocked(before)
        }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        // SAFETY: the mask from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_ignored_and_is_not() {
        // Nothing else in these tests has to do with this signal.
        let signal = libc::SIGPWR;
        assert!(!is_ignored(signal) && !ignore(signal));
        assert!(is_ignored(signal) && ignore(signal));
        restore_default(signal);
        assert!(!is_ignored(signal));
    }

    #[test]
    fn signals_are_blocked_while_it_lives() {
        let blocked = || {
            let status = crate::proc_files::Status::of_this_thread().expect("a status");
            let mask = status.signals("SigBlk").expect("a mask");
            mask >> (libc::SIGTERM - 1) & 1 != 0
        };
        assert!(!blocked());
        let none = AllBlocked::here();
        assert!(blocked());
        drop(none);
        assert!(!blocked());
    }
}
