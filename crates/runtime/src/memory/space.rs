//! The lock of the address space: the calls that shape it, and the tables of the runtime that go with it, are one ordered object (DESIGN 5).
//!
//! It is private to a process. Who holds it makes system calls of its own and asks the agent, but never waits for another thread of the program.

use crate::machine::sys;
use core::sync::atomic::{AtomicU32, Ordering::*};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody sleeps.
const WAITED_FOR: u32 = 2;

static LOCK: AtomicU32 = AtomicU32::new(FREE);

/// The lock, held.
pub struct Held(());

/// Takes it.
pub fn lock() -> Held {
    if LOCK
        .compare_exchange(FREE, TAKEN, Acquire, Relaxed)
        .is_err()
    {
        while LOCK.swap(WAITED_FOR, Acquire) != FREE {
            let until = sys::Timespec::from_ns(sys::monotonic().ns() + 10_000_000);
            sys::futex_wait(LOCK.as_ptr(), WAITED_FOR, Some(&until));
        }
    }
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        if LOCK.swap(FREE, Release) == WAITED_FOR {
            sys::futex_wake(LOCK.as_ptr(), 1);
        }
    }
}

/// In a new process: nobody holds it.
pub fn after_fork() {
    LOCK.store(FREE, Relaxed);
}
