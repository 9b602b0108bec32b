//! Is there still somebody outside who attends to the recorded processes?
//!
//! Where the agent is killed the launcher puts somebody in its place, and without the launcher the agent goes on. When both are killed nobody
//! buries the dead, takes the baton from those that keep it, or watches an exec. A program of one thread goes on, unrecorded; where one would
//! wait for another recorded thread all of them end (status 125), because that wait might never be over.
//!
//! Each of the two has a word in the session that the kernel marks at its death (a robust futex, set_robust_list(2)), so that looking costs
//! nothing, and pid namespaces don't matter. In a replay nobody sets them.

use crate::machine::sys::{self, Timespec};
use crate::thread::panic;
use crate::thread::session;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::schedule::OWNER_DIED;

/// Between two looks of a thread that waits for others of the session.
pub const LOOK_NS: i64 = 1_000_000_000;

/// Were both the launcher and the agent killed?
#[inline]
pub fn by_nobody() -> bool {
    let s = session();
    let died = |word: &AtomicU32| word.load(Relaxed) & OWNER_DIED != 0;
    died(&s.agent_life) && died(&s.launcher_life)
}

/// For whoever waits for something that others of the session have: ends the process when nobody sees to it that they give it back.
pub fn or_end() {
    if by_nobody() {
        // Those that need nobody just now end at their next gates, or would be alone with what they were to share with this one.
        session().stop_program.store(1, Relaxed);
        panic::give_up("the recorder and its agent were killed");
    }
}

/// Sleeps while `word` is `value`, for a moment at most.
pub fn sleep_on(word: *const u32, value: u32) {
    let soon = Timespec::from_ns(sys::monotonic().ns() + LOOK_NS);
    sys::futex_wait(word, value, Some(&soon));
    or_end();
}
