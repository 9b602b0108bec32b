//! Calls of hooked functions that leave nothing in the log: most of `malloc` and `free`, a recursive mutex locked once more, an error.
//!
//! A signal that comes in such a function has its handler run when the function returns. The place tells nothing then: a program calls
//! `malloc` in one place, from everywhere. So [`Kind::Signal`](reprise_abi::event::Kind::Signal) says how many such calls the thread has made
//! since something of it was last logged or counted. More need not be said: to that point the replay is led by the log.
//!
//! Calls that start anew after a handler ([`Done::by_frame`](crate::sync::hook::shim::Done::by_frame)) don't count, as how often they are tried is
//! up to the time at which signals come, also to the runtime's own.

use crate::log::ring;
use crate::thread::Block;

/// What a thread keeps of them.
#[derive(Default)]
pub struct Unlogged {
    /// Where its log was when it last entered or left a hooked function: place in the ring, and quiet operations to its next entry.
    at: (u64, u32),
    /// Calls since then.
    calls: u64,
    /// Record: the function is called anew after its thread has stood in it, which a replay knows nothing of: the two calls are one.
    stands: bool,
}

/// Where a thread's log is: place in the ring, and quiet operations to its next entry.
pub fn place(t: &Block) -> (u64, u32) {
    let quiet = t.quiet_left().load(core::sync::atomic::Ordering::Relaxed);
    // In a replay some of them are asked for, and counted elsewhere.
    (ring::position(), quiet.wrapping_add(t.order().asked))
}

/// A hooked function begins.
#[inline]
pub fn enters(t: &mut Block) {
    let now = place(t);
    let u = &mut t.order().unlogged;
    if !core::mem::take(&mut u.stands) && u.at != now {
        (u.at, u.calls) = (now, 0);
    }
}

/// In a hooked function that waits: its thread is to stand.
pub fn stands(t: &mut Block) {
    t.order().unlogged.stands = true;
}

/// A handler runs, before the function is called anew.
pub fn handler_runs(t: &mut Block) {
    t.order().unlogged.stands = false;
}

/// It ends; `returns`: it isn't called anew.
#[inline]
pub fn leaves(t: &mut Block, returns: bool) {
    let now = place(t);
    let u = &mut t.order().unlogged;
    if u.stands && !returns {
        return;
    }
    if u.at != now {
        (u.at, u.calls) = (now, 0);
    } else if returns {
        u.calls = u.calls.wrapping_add(1);
    }
}

/// Has the function that the thread has entered left nothing in the log yet?
pub fn is_where_it_entered(t: &Block) -> bool {
    t.order().unlogged.at == place(t)
}

/// The thread stands in a function: has that left something in the log?
pub fn has_logged(t: &Block) -> bool {
    t.order().unlogged.stands && !is_where_it_entered(t)
}

/// This call of a hooked function doesn't count, since it may be made on a short way, which doesn't come by here: whether it is depends on what waits.
pub fn does_not_count(t: &mut Block) {
    let u = &mut t.order().unlogged;
    u.calls = u.calls.wrapping_sub(1);
}

/// Such calls since something was last logged or counted.
pub fn calls(t: &Block) -> u64 {
    let u = &t.order().unlogged;
    if u.at == place(t) {
        u.calls
    } else {
        0
    }
}
