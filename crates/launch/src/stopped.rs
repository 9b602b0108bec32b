//! A stopped thread goes on for a moment, and nobody else sees it.
//!
//! SIGSTOP can't be blocked: it also stops a thread in the middle of the runtime, with something in its hands that all processes
//! of the session need. Seized by ptrace(2), such a thread can run; let go, it is stopped as before ("Group-stop").

use crate::error::{os_as, LaunchError, Result};
use crate::ptrace;
use crate::tracee::{self, seize};
use libc::pid_t;
use std::time::Duration;

/// How a stopped thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Instruction by instruction, so that it makes not one too many. It must make no call that waits.
    Steps,
    /// As it does by itself, which is a thousand times faster.
    Runs,
}

/// Most stops of one time; what takes more goes on the next time.
const MAX_STOPS: usize = 100_000;
/// Looks at a thread that runs, [`PAUSE`] apart, before it is stopped again.
const LOOKS: usize = 400;
/// Looks without a pause.
const BUSY_LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_micros(50);

/// Lets a thread that is stopped go on until `is_done`, and leaves it stopped. It may be called before that: then call again.
///
/// # Errors
/// When ptrace is refused, or the thread died meanwhile.
pub fn go_on_until(tid: pid_t, pace: Pace, is_done: impl Fn() -> bool) -> Result<()> {
    let request = match pace {
        Pace::Steps => libc::PTRACE_SINGLESTEP,
        Pace::Runs => libc::PTRACE_CONT,
    };
    seize(tid, 0)?;
    let gone = go_on(tid, request, pace, is_done);
    if gone.is_err() && tracee::is_dying(tid) {
        // Its process hears of its end only after its tracer.
        tracee::reap(tid);
    }
    gone
}

fn go_on(tid: pid_t, request: u32, pace: Pace, is_done: impl Fn() -> bool) -> Result<()> {
    let mut status = tracee::wait(tid)?;
    for _ in 0..MAX_STOPS {
        if !libc::WIFSTOPPED(status) {
            return Err(LaunchError::Died(status));
        }
        if is_done() {
            break;
        }
        tracee::resume(tid, request, tracee::own_signal(tid, status))?;
        let next = match pace {
            // Whoever interrupts a step finds its trap later, or the program does.
            Pace::Steps => Some(tracee::wait(tid)?),
            Pace::Runs => next_stop(tid, &is_done)?,
        };
        match next {
            Some(next) => status = next,
            None => {
                tracee::resume(tid, libc::PTRACE_INTERRUPT, 0)?;
                status = tracee::wait(tid)?;
                break;
            }
        }
    }
    if !libc::WIFSTOPPED(status) {
        return Err(LaunchError::Died(status));
    }
    tracee::resume(tid, libc::PTRACE_DETACH, tracee::own_signal(tid, status))
}

/// The thread's next stop; `None` when it is to be stopped: it has done what it was to do, or takes long.
fn next_stop(tid: pid_t, is_done: &impl Fn() -> bool) -> Result<Option<i32>> {
    for look in 0..LOOKS {
        match ptrace::wait_no_longer(tid).map_err(os_as("wait for a stopped thread"))? {
            Some(status) => return Ok(Some(status)),
            None if is_done() => return Ok(None),
            None if look < BUSY_LOOKS => std::thread::yield_now(),
            None => std::thread::sleep(PAUSE),
        }
    }
    Ok(None)
}
