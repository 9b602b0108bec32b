//! The program runs one thread at a time for a while, since it has gone back to the beginning of an epoch that no copy could run again (Respec 3), or since epochs cost more than they bring
//! ([`worth`]). Then all stand once more, and epochs begin again (DoublePlay 5.2.4).
//!
//! Under `serial` that is for the threads to do, each when it has the baton (`engines/serial/stands.rs`).

use super::{leads, no_epoch_can_be, releases, LEADER, OVER};
use crate::gate::epochs::{self, worth};
use crate::gate::{ptrace, stand};
use crate::thread::{in_force, process, schedule, session, standing, Block, Entered, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::session::FLAG_KEEP_EPOCHS;

/// As long as it runs one thread at a time, since it has gone back: so many looks of the agent's (`Session::epoch_due`) until epochs begin again, plus 1; 0: it isn't so, or they never do.
static PAUSE: AtomicU32 = AtomicU32::new(0);
/// So often in a row it has gone back, or has tried to begin epochs again in vain; ...
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// ... and so often epochs weren't worth their costs.
static NOT_WORTH: AtomicU32 = AtomicU32::new(0);

/// Does the thread's process run one thread at a time until epochs begin again?
#[inline(always)]
pub fn is_on(t: &Block) -> bool {
    PAUSE.load(Relaxed) != 0 && t.number == LEADER
}

/// In a child that fork(2) made: epochs are its parent's.
pub fn after_fork() {
    PAUSE.store(0, Relaxed);
}

/// Something good came of epochs.
pub fn epoch_was_good() {
    IN_VAIN.store(0, Relaxed);
}

/// The program has gone back, or epochs couldn't begin again.
pub fn begins() {
    begins_after(&IN_VAIN);
}

/// Epochs begin again after a while, which is the longer the less has come of that before, `so_often` in a row.
fn begins_after(so_often: &AtomicU32) {
    /// At most so many times that while is doubled.
    const MOST: u32 = 5;
    let before = so_often.fetch_add(1, Relaxed).min(MOST);
    session().epoch_due.store(0, Relaxed);
    PAUSE.store((1 << before) + 1, Relaxed);
}

/// The test that has epochs fail: they begin again at one of so many gates.
fn is_over_for_test() -> bool {
    const ONCE_IN: u32 = 16;
    static GATES: AtomicU32 = AtomicU32::new(0);
    // The more seldom the more has come to nothing.
    let once_in = ONCE_IN << IN_VAIN.load(Relaxed).min(ONCE_IN);
    session().test_fail_epochs.load(Relaxed) != 0
        && GATES.fetch_add(1, Relaxed) % once_in == once_in - 1
}

/// Is it time that they do?
fn is_time() -> bool {
    let due = &session().epoch_due;
    let is_due = due.load(Relaxed) != 0 && due.swap(0, Relaxed) != 0;
    let is_over = is_due && PAUSE.fetch_sub(1, Relaxed) <= 2;
    if !is_over && !is_over_for_test() {
        return false;
    }
    let can = process::only_one_in_memory() && no_epoch_can_be().is_none();
    if !can {
        begins();
    }
    can
}

/// As long as it [pauses](is_on): the request for which all are to stand, if there is one.
pub fn is_wanted(t: &Block) -> Option<u32> {
    standing::wanted().filter(|_| is_on(t))
}

/// Under `serial`, of a thread that has the baton: the request for which it is to stand, so that epochs begin again; and whether it is the one that asks for it. It has to stand then.
#[inline(always)]
pub fn gathers(t: &Block) -> Option<(u32, bool)> {
    match is_on(t) {
        true => gathers_now(t),
        false => None,
    }
}

#[cold]
fn gathers_now(t: &Block) -> Option<(u32, bool)> {
    if ptrace::holds(t) {
        return None;
    }
    match standing::wanted() {
        Some(request) => Some((request, false)),
        None if is_time() => standing::ask().map(|request| (request, true)),
        None => None,
    }
}

/// The thread has asked for all to stand, and has said in the log that it does: it gives the baton on, and when all others have come to stand, too, an epoch begins.
pub fn gathers_others(t: &mut Block, frame: &Frame, request: u32) -> ! {
    stand::stands_first(t, frame, None, request);
    schedule::leave_for_others(t.slot);
    if stand::await_others(t, request) {
        PAUSE.store(0, Relaxed);
        OVER.store(false, Relaxed);
        in_force::runs_freely();
        worth::begins();
        leads(t, request);
    } else {
        begins();
    }
    releases();
    stand::goes_on(t)
}

/// It stands with the others. In the log it has said so.
pub fn gathers_with_others(t: &mut Block, frame: &Frame, call: Option<Entered>, request: u32) -> ! {
    let gives_on = |t: &mut Block| schedule::leave_for_others(t.slot);
    stand::stands_by(t, frame, call, request, gives_on)
}

/// All threads stand, and what they have done is recorded: are they to go on one at a time, since epochs cost more than they bring?
pub fn is_due(t: &Block, request: u32) -> bool {
    let s = session();
    match worth::look() {
        Some(false) if s.flags & FLAG_KEEP_EPOCHS == 0 && epochs::all_are_free(t, request) => {}
        Some(true) => {
            NOT_WORTH.store(0, Relaxed);
            return false;
        }
        _ => return false,
    }
    s.epochs_paused.fetch_add(1, Relaxed);
    begins_after(&NOT_WORTH);
    true
}
