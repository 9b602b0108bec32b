//! Waiting on a word of the program, where threads are the kernel's (futex(2)): what an engine does that has no better way.

use crate::machine::asm::rt_blocking;
use crate::machine::sys::{self, Timespec};
use crate::signal::kernel::first_waiting;
use crate::thread::{standing, Block};
use core::sync::atomic::AtomicU32;
use reprise_abi::syscalls::nr;

const EINVAL: u32 = 22;
const ETIMEDOUT: u32 = 110;
const FUTEX_WAKE: u64 = 1;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_PRIVATE: u64 = 128;
const FUTEX_REALTIME: u64 = 256;
/// All who wait.
pub const EVERYBODY: u32 = i32::MAX as u32;
/// `CLOCK_REALTIME`
pub const REALTIME: u32 = 0;
/// `CLOCK_MONOTONIC`
pub const MONOTONIC: u32 = 1;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Somebody woke this thread, or the kernel did for no reason.
    Woken,
    /// The word had another value from the beginning.
    Changed,
    /// It is too late.
    TimedOut,
    /// A signal waits for delivery, or the thread is to stand.
    Signal,
}

/// When waiting ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// By CLOCK_REALTIME, not CLOCK_MONOTONIC.
    pub realtime: bool,
    /// The time.
    pub at: Timespec,
    /// Then the thread only looks again.
    pub looks: bool,
}

impl Deadline {
    /// Has the time come?
    pub fn is_over(&self) -> bool {
        sys::monotonic().ns() >= sys::in_monotonic(self.at.ns(), self.realtime)
    }

    /// From what the program gives: `EINVAL` when it is none, `ETIMEDOUT` when it lies before all time.
    pub fn new(clock: u32, address: u64) -> Result<Deadline, u32> {
        if clock > MONOTONIC {
            return Err(EINVAL);
        }
        // SAFETY: the program's pointer: a fault is the program's.
        let at = unsafe { core::ptr::read_volatile(address as *const Timespec) };
        if !(0..1_000_000_000).contains(&at.nsec) {
            return Err(EINVAL);
        }
        if at.sec < 0 {
            return Err(ETIMEDOUT);
        }
        Ok(Deadline {
            realtime: clock == REALTIME,
            at,
            looks: false,
        })
    }

    /// A millisecond after `now`, in nanoseconds of CLOCK_MONOTONIC, for a thread that then looks again.
    pub fn soon(now: i64) -> Deadline {
        Deadline::after(now, 1_000_000)
    }

    /// So many ns after `now`, in nanoseconds of CLOCK_MONOTONIC, for a thread that then looks again.
    pub fn after(now: i64, ns: i64) -> Deadline {
        Deadline {
            realtime: false,
            at: Timespec::from_ns(now + ns),
            looks: true,
        }
    }
}

/// Waits while the word has this value. `shared`: others than threads of this process may wake. `back` is called each
/// time that the kernel comes back; `unseen` says of a wait that a signal has ended, none of the program's, whether it goes on.
pub fn in_kernel(
    t: &mut Block,
    word: &AtomicU32,
    value: u32,
    deadline: Option<&Deadline>,
    shared: bool,
    mut back: impl FnMut(),
    mut unseen: impl FnMut(&mut Block) -> bool,
) -> Wait {
    let mut op = FUTEX_WAIT_BITSET;
    if !shared {
        op |= FUTEX_PRIVATE;
    }
    let mut time = 0;
    if let Some(d) = deadline {
        time = &d.at as *const Timespec as u64;
        if d.realtime {
            op |= FUTEX_REALTIME;
        }
    }
    let args = [
        word.as_ptr() as u64,
        op,
        value as u64,
        time,
        0,
        u32::MAX as u64,
    ];
    loop {
        // SAFETY: the kernel only reads the word.
        let r = unsafe { rt_blocking(nr::FUTEX, &args, t.pending_word as *const u32) };
        back();
        match r {
            -110 => return Wait::TimedOut,
            -11 => return Wait::Changed,
            -4 | -512 if first_waiting(t).is_some() => return Wait::Signal,
            // The function is entered anew, when its thread has stood.
            -4 | -512 if standing::wanted().is_some() || standing::is_asked_for() => {
                return Wait::Signal
            }
            -512 => {}
            -4 if unseen(t) => {}
            _ => return Wait::Woken,
        }
    }
}

/// Wakes up to `n` that wait on the word at this address, which may be gone by now.
pub fn wake(address: *const u32, n: u32, shared: bool) {
    let op = FUTEX_WAKE | if shared { 0 } else { FUTEX_PRIVATE };
    sys::futex(address as u64, op, n as u64, 0, 0, 0);
}
