//! `pthread_join`.
//!
//! **Order.** libc looks at the ended thread's word (`tid`), and calls the kernel only if it isn't 0 yet: whether it does depends on who is
//! faster. So the joining thread first waits here until the word is 0; then libc's own function, which does the rest, finds that always.
//! The word is cleared when the ending thread's last call has its turn, in a replay as in the recording. Joins are numbered, all of them
//! together, for the sake of signals: one that comes to a waiting thread comes at the same place again.

use super::cancel;
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{Deadline, Wait};
use crate::races::objects::Kind;
use crate::sync::hook::shim::Done;
use crate::thread::blocks;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Where the original is called.
pub static ORIGINAL: AtomicU64 = AtomicU64::new(0);
/// All joins of this process.
static JOINS: Runs = Runs::new();

/// In the copy of a memory that fork(2) made, whose only thread has no other to join.
pub fn after_fork() {
    JOINS.reset();
}

/// `pthread_join(thread, result)`
pub fn join<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    if cancel::is_due(t) {
        return cancel::go(t, f);
    }
    if !O::turn(t, &JOINS) {
        return Done::by_frame();
    }
    // libc refuses a thread that joins itself.
    let other = |word: &&AtomicU32| word.as_ptr() as u64 != t.clear_tid;
    if let Some(word) = blocks::word_of_thread(f.rdi).filter(other) {
        if until_cleared::<O>(t, word) == Wait::Signal {
            return Done::by_frame();
        }
    }
    O::passed_among(t, &JOINS);
    O::learns(t, Kind::Thread, f.rdi);
    f.rip = ORIGINAL.load(Relaxed);
    Done::by_frame()
}

fn until_cleared<O: Order>(t: &mut Block, word: &AtomicU32) -> Wait {
    loop {
        let v = word.load(Acquire);
        if v == 0 {
            return Wait::Woken;
        }
        // A replay is woken by nobody when the thread's memory is gone meanwhile.
        let soon = Deadline::soon(O::now());
        if O::wait(t, word, v, O::REPLAYS.then_some(&soon), true) == Wait::Signal {
            return Wait::Signal;
        }
    }
}
