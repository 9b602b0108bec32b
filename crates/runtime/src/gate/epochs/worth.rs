//! Are epochs worth what they cost? While all stand the program doesn't go on, or one thread of it does: where calls that end an epoch come too often, or signals, or where threads have to be waited
//! for, it would come further under `serial`, which runs one thread at a time and nothing twice.
//!
//! So the time is counted in which all stand, or are waited for. Where that is more than half of a [while](WHILE) the program goes on under `serial`, as after an epoch that can't be run again, and epochs
//! begin again [later](crate::gate::leader).
//!
//! Half: two threads on two processors come as far in the other half. With more of both epochs would be worth more than this grants them.

use crate::machine::sys;
use core::sync::atomic::{AtomicI64, Ordering::*};

/// So long is looked at, in nanoseconds of CLOCK_MONOTONIC.
const WHILE: i64 = 200_000_000;

/// When all were asked to stand; 0: nobody has asked.
static ASKED: AtomicI64 = AtomicI64::new(0);
/// What is looked at began then, ...
static BEGAN: AtomicI64 = AtomicI64::new(0);
/// ... and for so long all have stood since.
static STOOD: AtomicI64 = AtomicI64::new(0);

/// A thread asks for all to stand.
pub fn asks() {
    ASKED.store(sys::monotonic().ns(), Relaxed);
}

/// All go on.
pub fn all_go_on() {
    let asked = ASKED.swap(0, Relaxed);
    if asked != 0 {
        STOOD.fetch_add(sys::monotonic().ns() - asked, Relaxed);
    }
}

/// Epochs begin, or begin again.
pub fn begins() {
    BEGAN.store(sys::monotonic().ns(), Relaxed);
    STOOD.store(0, Relaxed);
}

/// All stand. Whether epochs were worth their costs of late; `None`: too little is known yet.
pub fn look() -> Option<bool> {
    let now = sys::monotonic().ns();
    let length = now - BEGAN.load(Relaxed);
    if length < WHILE {
        return None;
    }
    let asked = ASKED.load(Relaxed);
    let stands = if asked == 0 { 0 } else { now - asked };
    let stood = STOOD.load(Relaxed) + stands;
    begins();
    // What is counted of this time was looked at.
    STOOD.store(-stands, Relaxed);
    Some(stood * 2 <= length)
}
