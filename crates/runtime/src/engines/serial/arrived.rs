//! What a thread logs that has the baton anew: what nobody else has logged yet of those from whom it was taken, and of the dead.

use super::loss;
use crate::gate::robust;
use crate::log::events::{enter, header};
use crate::log::ring::Writer;
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{EventHeader, Kind, ProcessEnd, FLAG_STOLEN, NO_SLOT};
use reprise_abi::session::process_state;

/// The first thing every new holder does: what nobody has logged yet is logged.
pub fn arrived(t: &Block) {
    log_stolen();
    log_lost(t);
    robust::look(t);
    loss::look();
}

/// Logs the processes that were found dead.
#[inline]
pub fn log_lost(t: &Block) {
    if session().lost.load(Acquire) != 0 {
        log_lost_now(t);
    }
}

#[cold]
fn log_lost_now(t: &Block) {
    let s = session();
    for p in &s.processes {
        if p.state.load(Acquire) != process_state::LOST {
            continue;
        }
        let status = match p.status.load(Relaxed) {
            0 => -1,
            n => n as i64 - 1,
        };
        let h = EventHeader {
            detail: ProcessEnd::Found as u32,
            value: status,
            ..header(Kind::ProcessEnd, NO_SLOT as u32, 3, 0)
        };
        // Before anything is written where its own event was to stand.
        let who = s.found_dead(p);
        let mut w = Writer::begin(&h);
        w.put_words(&who.map(u64::from));
        w.finish();
        // Whoever takes the entry next must not be known by this one's id.
        p.kernel_pid.store(0, Relaxed);
        p.state.store(process_state::FREE, Release);
        s.lost.fetch_sub(1, Relaxed);
    }
    robust::look(t);
}

/// The call from which the baton was taken, if it was.
fn log_stolen() {
    let from = &session().stolen_from;
    let i = from.load(Relaxed);
    if i != 0 {
        from.store(0, Relaxed);
        enter(i - 1, FLAG_STOLEN);
    }
}
