//! Record: one thread at a time writes to each of the streams that a replay shows again, the program's standard output and error.
//!
//! Two writes that overlap in time have no order that stamps could tell, and yet one of them comes first in the output. The kernel lets
//! writers of a pipe or a file in one by one, too; here it is known in which order. A writer that is kept waiting looks at its signals.

use super::record::Record;
use crate::engine::order::Order;
use crate::engine::waits;
use crate::engine::waits::{Deadline, Wait};
use crate::thread::rings::head;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::order::WAITED_FOR;
use reprise_abi::session::process_state;

/// The right to write to a stream.
pub struct Held(&'static AtomicU32);

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.swap(0, Release) & WAITED_FOR != 0 {
            waits::wake(self.0.as_ptr(), 1, true);
        }
    }
}

/// Waits for the right to write to `stream` (1: standard output, 2: standard error); `None` when a signal is to be delivered first.
pub fn hold(t: &mut Block, stream: u8) -> Option<Held> {
    let word = &head().streams[stream as usize - 1].0;
    let me = t.slot + 1;
    let mut mine = me;
    loop {
        let Err(holder) = word.compare_exchange(0, mine, Acquire, Relaxed) else {
            return Some(Held(word));
        };
        // Who has waited can't know whether others still do.
        mine = me | WAITED_FOR;
        let waited_for = holder | WAITED_FOR;
        if holder != waited_for
            && word
                .compare_exchange(holder, waited_for, Relaxed, Relaxed)
                .is_err()
        {
            continue;
        }
        // From time to time a waiter looks whether the holder lives.
        let deadline = Deadline::soon(Record::now());
        match Record::wait(t, word, waited_for, Some(&deadline), true) {
            Wait::Signal => return None,
            Wait::TimedOut if !lives(holder & !WAITED_FOR) => {
                // It was killed while it wrote.
                let _ = word.compare_exchange(waited_for, 0, AcqRel, Relaxed);
            }
            _ => {}
        }
    }
}

/// Does the process of the slot with this number (plus 1) live?
fn lives(holder: u32) -> bool {
    let slot = crate::thread::slot(holder.wrapping_sub(1));
    let process = slot.process.load(Relaxed) as usize;
    session()
        .processes
        .get(process)
        .is_some_and(|p| p.state.load(Acquire) == process_state::LIVE)
}
