//! A thread that ends in an epoch stays until it is known that the epoch is good: it is **parked**, with all done that the program can see of its end. If all go back to the beginning of that epoch
//! it goes on from where it stood there.

use super::Which;
use crate::gate::stand::{self, PARKED, PARKED_BEFORE};
use crate::machine::sys;
use crate::thread::blocks::{block_of, in_use_here};
use crate::thread::{process, session, standing, Block};
use core::sync::atomic::Ordering::*;

/// [`Block::stands`] of a thread that is parked no more, and ends.
const ENDS: u32 = 0;

/// The calling thread has ended. This returns when it is to be no more.
pub fn park(t: &Block) {
    t.stands.store(PARKED, Release);
    loop {
        match t.stands.load(Acquire) {
            now @ (PARKED | PARKED_BEFORE) => {
                sys::futex_wait(t.stands.as_ptr(), now, None);
            }
            ENDS => return,
            request => {
                standing::await_release(request);
                stand::goes_on(t)
            }
        }
    }
}

/// The slots of the process's threads that have ended in the open epoch, or in the one before.
fn parked(t: &Block, of: Which) -> impl Iterator<Item = u32> {
    let (number, state) = (
        t.number,
        match of {
            Which::Open => PARKED,
            Which::Before => PARKED_BEFORE,
        },
    );
    (0..session().slots_used.load(Acquire)).filter(move |i| {
        in_use_here(*i).is_some()
            && block_of(*i).number == number
            && block_of(*i).stands.load(Acquire) == state
    })
}

fn becomes(i: u32, stands: u32) {
    let word = &block_of(i).stands;
    word.store(stands, Release);
    sys::futex_wake_all(word.as_ptr());
}

/// The open epoch is the one before from now on.
pub fn goes_ahead(t: &Block) {
    parked(t, Which::Open).for_each(|i| becomes(i, PARKED_BEFORE));
}

/// That epoch is good, or nobody goes back to its beginning any more.
pub fn release(t: &Block, of: Which) {
    parked(t, of).for_each(|i| becomes(i, ENDS));
}

/// All go back to the beginning of that epoch, for this request: who `was_there` goes on as process `then` has it, a copy of the program. False: it can't be.
pub fn revive(
    t: &Block,
    of: Which,
    then: u32,
    request: u32,
    was_there: impl Fn(&u32) -> bool,
) -> bool {
    parked(t, of).filter(was_there).all(|i| {
        let is_back = stand::takes_form_of(i, then);
        if is_back {
            process::entry().live_threads.fetch_add(1, Relaxed);
            session().live_threads.fetch_add(1, Relaxed);
            becomes(i, request);
        }
        is_back
    })
}
