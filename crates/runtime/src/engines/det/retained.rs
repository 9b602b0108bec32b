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
use reprise_abi::det::LEAD;
use reprise_abi::rounds::Lead;

/// It is data of the image's, so all thread-processes share it.
static LEADER: Lead = Lead::new();
/// Rounds of looking before a thread gives others the processor.
const SPINS: u32 = 200;

/// Is there such a thing? What is written before a thread is made and what that writes have an order, of which the report of conflicts knows nothing.
pub fn is_wanted() -> bool {
    options::has(LEAD) && !conflicts::on()
}

pub(super) fn lead() -> &'static Lead {
    &LEADER
}

/// There are no other threads yet.
pub fn start() {
    LEADER.start();
}

/// In its turn: the thread of this slot has the lead of the next phase, unless another one takes it in this round. False: nobody is there whom it could lead.
pub fn take(slot: u32) -> bool {
    token::take_lead(slot)
}

/// Has this slot's thread the lead?
pub fn is(slot: u32) -> bool {
    LEADER.is(slot)
}

/// Its phase is over.
pub fn end(slot: u32) {
    LEADER.end(slot);
}

/// Waits for others, between two looks.
fn pauses() -> impl FnMut() {
    let mut n = 0;
    move || {
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
    LEADER.operation_begins(pauses());
}

/// It has ended.
pub fn operation_ends() {
    LEADER.operation_ends();
}

/// A thread looks at the table of views, or opens a descriptor for a moment, in a phase. True: the phase has a leader, and [`has_looked`] is to be
/// told.
pub fn looks() -> bool {
    LEADER.looks(pauses())
}

/// It has looked.
pub fn has_looked() {
    LEADER.has_looked();
}
