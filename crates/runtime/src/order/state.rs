//! Hashes of the state while threads run freely, where that is sound: of the calling thread's registers at its gates, and of all memory where it is
//! the only thread.

use super::cut::alone;
use crate::memory::{self, StateHash};
use crate::serial::state;
use crate::sys;
use crate::thread::{session, Block, Frame};
use reprise_abi::event::EventHeader;
use reprise_abi::syscalls::nr;

/// Record, at the end of a gate: hashes if it is time. A hook is no gate: its end isn't always seen.
#[inline]
pub fn maybe_record(t: &mut Block, frame: &Frame) {
    let every = session().checksum_every;
    if every == 0 || t.order.hook_ends {
        return;
    }
    t.order.since_hash += 1;
    if t.order.since_hash >= every {
        record(t, frame);
    }
}

#[cold]
fn record(t: &mut Block, frame: &Frame) {
    t.order.since_hash = 0;
    state::record_with(t, frame, || match alone() {
        true => memory::hash_all(),
        false => StateHash::NOTHING,
    });
}

/// Record, before the process ends.
pub fn record_at_exit(t: &mut Block, frame: &Frame) {
    if session().checksum_every != 0 || alone() {
        record(t, frame);
    }
}

/// Replay: compares with a hash that comes next.
pub fn check(t: &mut Block, frame: &Frame, header: &EventHeader) {
    state::check_with(t, frame, header, |bytes| {
        if bytes == 0 {
            return StateHash::NOTHING;
        }
        // The others had ended then; they do so without this thread.
        while !alone() {
            sys::call(nr::SCHED_YIELD, &[]);
        }
        memory::hash_all()
    });
}
