//! Replay: a thread has taken an event, and what that brings about is still to be done. The driver ends a process with the trace when all its threads have
//! done what was recorded of them; a thread whose last event makes another one, of which there is more, isn't through yet.

use crate::thread::{slot, Block};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The calling thread has taken an event, or is about to, and what that brings about is still to be done. Until this is dropped the driver
/// doesn't take the thread for one that has done all.
pub struct Busy(&'static AtomicU64);

/// The calling thread is [`Busy`].
pub fn busy(t: &Block) -> Busy {
    let word = &slot(t.slot).busy;
    word.store(1, SeqCst);
    Busy(word)
}

/// As [`busy`], where the thread may be so already. (What the word was before can't be put back: whoever had the slot may have been killed.)
pub fn busy_too(t: &Block) -> Option<Busy> {
    (slot(t.slot).busy.load(SeqCst) == 0).then(|| busy(t))
}

/// The calling thread is busy until it ends: it does so by itself.
pub fn to_the_end(t: &Block) {
    core::mem::forget(busy(t));
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}
