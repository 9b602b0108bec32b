//! Hashes of the state while threads run freely, where that is sound: of the calling thread's registers at its gates, and of all memory where
//! nobody else ever ran.

use super::cut::alone;
use crate::common::state;
use crate::memory::{self, StateHash};
use crate::thread::{session, Block, Frame};
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::event::EventHeader;

/// At the end of a gate.
pub const AT_GATE: u32 = 0;
/// Where a call ends the process.
pub const AT_EXIT: u32 = 1;

/// Record, at the end of a gate: hashes if it is time. A hook is no gate: its end isn't always seen.
#[inline]
pub fn maybe_record(t: &mut Block, frame: &Frame) {
    let every = session().checksum_every;
    if every == 0 || t.hook_ends {
        return;
    }
    t.order().since_hash += 1;
    if t.order().since_hash >= every {
        record(t, frame, AT_GATE);
    }
}

#[cold]
fn record(t: &mut Block, frame: &Frame, place: u32) {
    t.order().since_hash = 0;
    state::record_with(t, frame, place, || match alone() {
        true => memory::hash_all(),
        false => StateHash::NOTHING,
    });
}

/// Record, before the process ends; one of many only if that costs little.
pub fn record_at_exit(t: &mut Block, frame: &Frame) {
    let is_first = session().slots_used.load(Relaxed) == 1;
    if session().checksum_every != 0 || alone() && (is_first || state::affordable()) {
        record(t, frame, AT_EXIT);
    }
}

/// Replay: compares with a hash that comes next.
pub fn check(t: &mut Block, frame: &Frame, header: &EventHeader) {
    state::check_with(t, frame, header, |bytes| {
        if bytes == 0 {
            return StateHash::NOTHING;
        }
        memory::hash_all()
    });
}
