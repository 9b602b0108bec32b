//! `pthread_once_t`.
//!
//! **Order.** Who initialises is what must be recorded: the thread that is chosen says so, always, with the object's address. Everybody else
//! leaves no event, whether it waited or came when all was done: a thread that finds that by itself (compilers and programs look before
//! they call) does the same. In a replay a thread asks the log whether it is the one; if not, it really waits until the object is done.
//! An initialisation that is left by an exception or by cancellation leaves the object as new, and another is chosen: the choices of one
//! object are numbered.
//!
//! The initialisation itself is run by libc's own function, in the program's frame, because exceptions and cancellation unwind through
//! it. Before, the word says "in progress" with a generation that libc doesn't have: it then begins anew, as it does after a fork. The generation of
//! this memory is in it, so that what was in progress when the process was forked isn't waited for.

use super::object;
use super::side::side;
use crate::engine::order::Order;
use crate::engine::waits::{Deadline, Wait};
use crate::races;
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Where the original is called.
pub static ORIGINAL: AtomicU64 = AtomicU64::new(0);
/// How many forks have led to this memory, plus 1.
static GENERATION: AtomicU64 = AtomicU64::new(1);

const IN_PROGRESS: u32 = 1;
const DONE: u32 = 2;

/// In the copy of a memory that fork(2) made.
pub fn after_fork() {
    GENERATION.fetch_add(1, Relaxed);
}

/// "In progress", of a generation that libc, which counts forks from 0, doesn't reach.
fn claimed(generation: u64) -> u32 {
    (1 << 31) | (generation as u32 & 0xf_ffff) << 4 | IN_PROGRESS
}

/// `pthread_once(object, routine)`
pub fn once<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    // SAFETY: only atomics; nothing of ours is held.
    let word = unsafe { object::<AtomicU32>(f.rdi) };
    if word.load(Acquire) & DONE != 0 {
        return found::<O>(t, f);
    }
    let side = side(f.rdi);
    let generation = GENERATION.load(Relaxed);
    match O::choice(t, f.rdi) {
        Some(Some(n)) => {
            // Those chosen before have left it as new, or will, or are not in this memory.
            let is_held =
                || word.load(Acquire) & IN_PROGRESS != 0 && side.note.load(Acquire) == generation;
            while side.chosen.load(Acquire) + 1 != n || is_held() {
                look_later::<O>(t, word);
            }
            side.note.store(generation, Relaxed);
            word.store(claimed(generation), Release);
            // Whoever is chosen next may look from here on.
            side.chosen.store(n, Release);
            if crate::thread::in_force::looks_for_races() {
                races::initialises(t, f.rdi);
            }
            return original(f);
        }
        Some(None) => loop {
            if O::handler_first(t, f.rip) {
                return Done::by_frame();
            }
            if word.load(Acquire) & DONE != 0 {
                return found::<O>(t, f);
            }
            look_later::<O>(t, word);
        },
        None => {}
    }
    loop {
        let v = word.load(Acquire);
        if v & DONE != 0 {
            return Done::value(0);
        }
        if v & IN_PROGRESS != 0 && side.note.load(Acquire) == generation {
            if O::wait(t, word, v, None, false) == Wait::Signal {
                return Done::by_frame();
            }
            continue;
        }
        side.note.store(generation, Release);
        if word
            .compare_exchange(v, claimed(generation), AcqRel, Relaxed)
            .is_ok()
        {
            let n = side.chosen.fetch_add(1, AcqRel) + 1;
            O::chosen(t, f.rdi, n);
            return original(f);
        }
    }
}

/// All is done already.
fn found<O: Order>(t: &mut Block, f: &Frame) -> Done {
    if O::REPLAYS && crate::thread::in_force::looks_for_races() {
        races::finds_initialised(t, f.rdi);
    }
    Done::value(0)
}

/// Replay: the one who wakes may do it by a system call that isn't made again.
fn look_later<O: Order>(t: &mut Block, word: &AtomicU32) {
    let v = word.load(Acquire);
    O::wait(t, word, v, Some(&Deadline::soon(O::now())), false);
}

/// libc's own function, with the program's arguments, in the place of this one.
fn original(f: &mut Frame) -> Done {
    f.rip = ORIGINAL.load(Relaxed);
    Done::by_frame()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_in_progress_and_of_no_generation_of_libc() {
        for generation in [1, 2, 1 << 19] {
            let c = claimed(generation);
            assert_eq!(c & (IN_PROGRESS | DONE), IN_PROGRESS);
            // libc adds 4 at every fork.
            assert!(c >> 2 > 1 << 28);
            assert_ne!(c, claimed(generation + 1));
        }
    }
}
