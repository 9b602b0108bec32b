//! Asynchronous signals to a thread that computes: the place where its handler runs is named by the thread's state, as the ends of slices are
//! under `serial` ([`reprise_place`]), while all other threads run on.
//!
//! So nothing may be done to code that others run at the same time but what they can bear, and nothing may be compared but what is the thread's
//! own: its registers, the words near its stack pointer, the words that its loop changes. When there was never another thread, all memory is.
//!
//! | module | subject |
//! |---|---|
//! | [`record`] | from the signal to a place that has a name, one instruction after the other |
//! | [`replay`] | finds the place again |
//! | [`patches`] | changes of code that other threads may be running |

pub mod patches;
pub mod record;
pub mod replay;

use crate::memory;
use crate::thread::{block_address, session, Block, WALK, WALK_LEN};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The thread's memory for what is kept while it walks, or looks for a place.
fn room<T>(t: &Block) -> *mut T {
    const { assert!(core::mem::size_of::<T>() <= WALK_LEN as usize) };
    (block_address(t.slot) + WALK) as *mut T
}

/// Another thread, or another process, has run in this memory.
static MET: AtomicBool = AtomicBool::new(false);

/// Record: the calling thread is about to make somebody else who runs in its memory at the same time.
pub(super) fn meet() {
    MET.store(true, Relaxed);
}

/// Was there never another thread in this memory, nor another process that could write to some of it? Then memory is the same in a replay to
/// the last byte. What threads have met in isn't: who had to wait for whom, and who only looked, shows in the words of locks and
/// conditions, which mean the same all the same.
pub(super) fn alone() -> bool {
    let first = session().slots_used.load(Relaxed) == 1;
    !MET.load(Relaxed) && (first || !memory::is_shared_with_others())
}
