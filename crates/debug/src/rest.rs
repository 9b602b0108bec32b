//! The replayed process at rest: nobody runs, and the kernel's threads are those that the session knows.
//!
//! Between two runs there is no stop that nobody has looked at: a thread whose stop lies in the driver's queue would never stop once more
//! for whoever waits for it.

use crate::control::Next;
use crate::debuggee::Debuggee;
use crate::{ptrace, DebugError};
use libc::pid_t;
use reprise_launch::proc_files::{self, Stat};
use std::io::{Error, Result};
use std::time::Duration;

/// Between two looks at threads that begin or end.
pub(crate) const SHORT: Duration = Duration::from_micros(100);
/// Most looks: threads that begin or end do so within ten seconds, on the slowest machine.
pub(crate) const MOST_LOOKS: u32 = 100_000;

/// How the kernel's threads go together with those of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Threads {
    /// They are the same.
    Same,
    /// Some begin or end.
    Change,
    /// The process's first thread has ended, and the kernel keeps what is left of it.
    FirstIsGone,
}

impl Debuggee {
    /// Sees to all stops that waitpid(2) has told of and nobody has looked at. Who stopped so goes on in the runtime.
    pub(crate) fn see_to_stops(&mut self) -> std::result::Result<(), DebugError> {
        while let Some((tid, status)) = self.live.next_stop() {
            if !libc::WIFSTOPPED(status) {
                self.threads.remove(&tid);
                continue;
            }
            if !self.threads.contains_key(&tid) {
                if let Next::On(signal) = self.newcomer(tid)? {
                    self.let_go(tid, signal)?;
                }
                continue;
            }
            let signal = match status >> 16 {
                0 => self.passes(tid, libc::WSTOPSIG(status)),
                _ => 0,
            };
            self.let_go(tid, signal)?;
        }
        Ok(())
    }

    /// Waits until the kernel has told of all threads that live: who was made a moment ago is shown, too.
    pub(crate) fn meet_newcomers(&mut self) -> std::result::Result<(), DebugError> {
        for _ in 0..MOST_LOOKS {
            if self.diverted.is_some() || self.knows_who_lives() {
                break;
            }
            self.live.look();
            self.see_to_stops()?;
            std::thread::sleep(SHORT);
        }
        Ok(())
    }

    /// Waits until whoever begins has begun and whoever ends has ended. False: the kernel will always know others than the session does.
    pub(crate) fn settle(&mut self) -> std::result::Result<bool, DebugError> {
        for _ in 0..MOST_LOOKS {
            self.live.look();
            self.see_to_stops()?;
            match self.compare_threads() {
                Threads::Same => return Ok(true),
                Threads::FirstIsGone => return Ok(false),
                Threads::Change => std::thread::sleep(SHORT),
            }
        }
        Ok(false)
    }

    fn compare_threads(&mut self) -> Threads {
        if self.slot_of(self.pid).is_none() {
            return Threads::FirstIsGone;
        }
        let tids = proc_files::threads_of(self.pid);
        let tids: Vec<pid_t> = tids.into_iter().flatten().collect();
        // Who stopped for us when it was about to end is known to have ended already.
        self.threads.retain(|tid, _| tids.contains(tid));
        let known = |tid: &pid_t| self.threads.contains_key(tid) && self.slot_of(*tid).is_some();
        match tids.iter().all(known) {
            _ if tids.is_empty() => Threads::FirstIsGone,
            true => Threads::Same,
            false => Threads::Change,
        }
    }

    /// Stops all threads for as long as `f` runs.
    pub(crate) fn with_all_stopped<T>(
        &mut self,
        f: impl FnOnce(&mut Debuggee) -> Result<T>,
    ) -> Result<T> {
        let waiting: Vec<pid_t> = self
            .threads
            .iter()
            .filter_map(|(tid, t)| (!t.stopped).then_some(*tid))
            .filter(|tid| *tid != self.pid || !has_ended(*tid))
            .collect();
        let mut stopped = Vec::with_capacity(waiting.len());
        let mut all = Ok(());
        for tid in waiting {
            all = self.stop(tid);
            match all {
                Ok(()) => stopped.push(tid),
                Err(_) => break,
            }
        }
        let result = all.and_then(|()| f(self));
        for tid in stopped {
            ptrace::go_on(tid, 0)?;
        }
        result
    }

    /// A thread that waits in the runtime is stopped for a moment. It waits on, as system calls do that were interrupted by a tracer.
    pub(crate) fn while_stopped<T>(
        &self,
        tid: pid_t,
        read: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.threads.get(&tid).is_none_or(|t| t.stopped) {
            return read();
        }
        self.stop(tid)?;
        let value = read();
        ptrace::go_on(tid, 0)?;
        value
    }

    /// Stops a thread that waits in the runtime. A signal that comes first is delivered, if it is one of ours.
    pub(crate) fn stop(&self, tid: pid_t) -> Result<()> {
        ptrace::interrupt(tid)?;
        loop {
            let status = wait_for(tid)?;
            if !libc::WIFSTOPPED(status) {
                return Err(Error::from_raw_os_error(libc::ESRCH));
            }
            if status >> 16 != 0 {
                return Ok(());
            }
            ptrace::go_on(tid, self.passes(tid, libc::WSTOPSIG(status)))?;
        }
    }
}

/// A thread that was stopped by a signal for its instruction, and has made calls for us since, comes to that signal once more.
pub(crate) fn fault_again(tid: pid_t, signal: i32) -> Result<()> {
    const INT3_LEN: u64 = 1;
    if signal == libc::SIGTRAP {
        let mut r = ptrace::registers(tid)?;
        r.rip -= INT3_LEN;
        ptrace::set_registers(tid, &r)?;
    }
    loop {
        ptrace::go_on(tid, 0)?;
        let status = ptrace::wait(tid)?;
        if libc::WIFSTOPPED(status) && status >> 16 != 0 {
            continue;
        }
        return match libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == signal {
            true => Ok(()),
            false => Err(Error::other(format!(
                "a thread did not come to signal {signal} again (wait status {status:#x})"
            ))),
        };
    }
}

/// waitpid(2) for a thread that stops soon, or ends. The end of a process's first thread is told only when all others have ended: it is
/// looked for.
fn wait_for(tid: pid_t) -> Result<i32> {
    /// So often without a pause between, since most stop at once.
    const QUICK: u32 = 1000;
    for n in 0u64.. {
        if let Some(status) = ptrace::wait_no_longer(tid)? {
            return Ok(status);
        }
        if n < QUICK.into() {
            std::thread::yield_now();
        } else if has_ended(tid) {
            break;
        } else {
            std::thread::sleep(SHORT);
        }
    }
    Err(Error::from_raw_os_error(libc::ESRCH))
}

/// Has this thread ended, and is only kept by the kernel?
fn has_ended(tid: pid_t) -> bool {
    Stat::of_process(tid).map_or(true, |stat| stat.has_ended())
}
