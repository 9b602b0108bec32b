//! The test of copies (`record --test-copies`), each time that all threads stand: the last copies of the process are kept, as many as epochs that are open
//! at a time, and each new one is compared with the process, and the one before it with what was written since.

use crate::gate::copy::{self, Task};
use crate::machine::sys;
use crate::memory::{compared, written};
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Copies that are kept.
const OPEN: usize = 4;

/// Their process ids; 0: none.
static KEPT: [AtomicU32; OPEN] = [const { AtomicU32::new(0) }; OPEN];
/// Copies made so far.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// In a child that fork(2) made: the copies are its parent's.
pub fn after_fork() {
    for kept in &KEPT {
        kept.store(0, Relaxed);
    }
    written::lose();
}

/// All stand for this request; `n` says what is spoilt.
pub fn test(t: &mut Block, request: u32, n: u64) {
    let s = session();
    let k = MADE.fetch_add(1, Relaxed);
    let before = KEPT[k.wrapping_sub(1) % OPEN].load(Relaxed);
    // What the sets say of the time since the last copy, before there is another one.
    let is_known = before != 0 && written::read();
    let mut is_right = !is_known || has_all(before);
    if let Some(found) = is_known.then(|| finds_in_epoch(before, n >> 8)).flatten() {
        is_right &= found;
        s.copies_after_epochs.fetch_add(1, Relaxed);
    }
    let oldest = KEPT[k % OPEN].swap(0, Relaxed);
    if oldest != 0 {
        copy::end(oldest);
    }
    let begun = sys::monotonic().ns();
    let pid = copy::make(t, request, Task::Nothing);
    let pause = sys::monotonic().ns() - begun;
    if sys::is_error(pid) {
        return;
    }
    KEPT[k % OPEN].store(pid as u32, Relaxed);
    written::begin();
    s.copies.fetch_add(1, Relaxed);
    s.copies_pause_ns.fetch_add(pause as u64, Relaxed);
    if is_right && finds(pid as u32, n) {
        s.copies_found.fetch_add(1, Relaxed);
    }
}

/// Is each page that differs from the copy before in the set?
fn has_all(before: u32) -> bool {
    let mut all = true;
    let looked = compared::compare_all(before, |page| {
        all &= written::pages().binary_search(&page).is_ok();
    });
    looked.is_some() && all
}

/// The copy before does what the program did not: is that found at the end of the epoch? `None`: the memory that was drawn wasn't mapped then.
fn finds_in_epoch(before: u32, n: u64) -> Option<bool> {
    let spoilt = compared::spoil(before, n)?;
    let mut found = false;
    let looked = compared::compare(before, [written::pages(), &[]], |page| {
        found |= page == spoilt
    });
    Some(looked.is_some() && found)
}

/// A new copy is the same as the program; where one bit of it is changed, that is found, and nothing else.
fn finds(pid: u32, n: u64) -> bool {
    let differing = || {
        let (mut count, mut last) = (0, None);
        let looked = compared::compare(pid, [&[]; 2], |page| {
            (count, last) = (count + 1, Some(page))
        });
        looked.map(|_| (count, last))
    };
    let same = differing() == Some((0, None));
    let spoilt = compared::spoil(pid, n);
    let found = spoilt.is_some() && differing() == Some((1, spoilt));
    // The next copy is compared with this one.
    compared::spoil(pid, n);
    same && found
}
