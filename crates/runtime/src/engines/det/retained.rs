//! The lead: who makes threads goes on beside them (DThreads 4.3: creating a thread does not release the token).
//!
//! A thread that has made another has the **lead** of the next phase. What it does to others in it, up to a number of operations, it does there and then: nobody
//! else can, and it is the first of the ring, so that all this lies between the turns of the round before and those of its own. So threads that are made one after
//! the other begin at once, while the one that makes them works, too. What it has written stays its own until its next turn; a thread that it makes meanwhile begins
//! with its view of memory ([`commit::inherit`](crate::isolate::commit::inherit)).
//!
//! An operation that others have a part in, whether they wait for it or it waits for them, needs a turn like all others' ([`turns::in_earnest`](super::turns::in_earnest)).

use super::token;
use crate::isolate::conflicts;
use crate::isolate::ending;
use crate::isolate::options;
use crate::machine::sys;
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::det::LEAD;

/// The slot of who has the lead, plus 1; 0: nobody.
static LEADER: AtomicU32 = AtomicU32::new(0);
/// How many threads look at the table of views, or have a descriptor for it; [`OPERATION`]: the leader changes something.
static LOOKING: AtomicU32 = AtomicU32::new(0);
const OPERATION: u32 = 1 << 31;
/// Rounds of looking before a thread gives others the processor.
const SPINS: u32 = 200;

/// Is there such a thing? What is written before a thread is made and what that writes have an order, of which the report of conflicts knows nothing.
pub fn is_wanted() -> bool {
    options::has(LEAD) && !conflicts::on()
}

/// There are no other threads yet.
pub fn start() {
    LEADER.store(0, SeqCst);
    LOOKING.store(0, SeqCst);
}

/// In its turn: the thread of this slot has the lead of the next phase, unless another one takes it in this round.
pub fn take(slot: u32) {
    token::put_first(slot);
    LEADER.store(slot + 1, SeqCst);
}

/// Has this slot's thread the lead?
pub fn is(slot: u32) -> bool {
    LEADER.load(SeqCst) == slot + 1
}

/// Its phase is over.
pub fn end(slot: u32) {
    let _ = LEADER.compare_exchange(slot + 1, 0, SeqCst, SeqCst);
}

fn wait_until(mut what: impl FnMut() -> bool) {
    let mut n = 0;
    while !what() {
        core::hint::spin_loop();
        n += 1;
        if n % SPINS == 0 {
            ending::look_after_threads();
            sys::sched_yield();
        }
    }
}

/// The leader begins an operation: nobody looks at what it may change.
pub fn operation_begins() {
    wait_until(|| {
        LOOKING
            .compare_exchange(0, OPERATION, SeqCst, Relaxed)
            .is_ok()
    });
}

/// It has ended.
pub fn operation_ends() {
    LOOKING.fetch_and(!OPERATION, SeqCst);
}

/// A thread looks at the table of views, or opens a descriptor for a moment, in a phase. True: the phase has a leader, and [`has_looked`] is to be
/// told.
pub fn looks() -> bool {
    if LEADER.load(SeqCst) == 0 {
        return false;
    }
    wait_until(|| {
        let n = LOOKING.load(SeqCst);
        n & OPERATION == 0 && LOOKING.compare_exchange(n, n + 1, SeqCst, Relaxed).is_ok()
    });
    true
}

/// It has looked.
pub fn has_looked() {
    LOOKING.fetch_sub(1, SeqCst);
}
