//! A recording in epochs (DoublePlay 3; `record --engine uniparallel`): while a program has one thread, `serial` records it; from the first moment that it has more,
//! they run on all processors, as the **leader**, which `order` logs; each epoch of it is run again by a copy, one thread at a time
//! ([`epochs`]), and what the copy did, its slices, is what the trace gets. So the trace is one of `serial` with hooks, from its first event to its last.
//!
//! **Roles.** The engine in force changes only while all threads stand ([`stand`]): to `order` when a thread is about to be made, or an epoch begins; to
//! `serial` for a call that a copy can't make ([`calls`]), and for a signal: the epoch ends before it, one thread makes it alone, while all others stand, and
//! the next epoch begins at the end of its gate. Such a call is an epoch's commit (Respec 4.2).
//!
//! A copy that comes to the end of its epoch with another memory is believed: the program takes that over (DoublePlay 5.2.4). From an epoch that no copy can run again it goes back to the
//! beginning, and on with one thread at a time (Respec 3), until all stand once more, and epochs begin again; where it can't go back the recording ends, and what was written before is whole.

pub mod calls;
pub mod pause;

use crate::gate::epochs::ahead::{self, Before};
use crate::gate::epochs::{back, output, worth, Which};
use crate::gate::stand;
use crate::gate::{clock, epochs};
use crate::log::{epoch, ring};
use crate::machine::{present, split_mix, sys};
use crate::memory;
use crate::signal::frame::Ucontext;
use crate::signal::kernel;
use crate::thread::signals::Siginfo;
use crate::thread::{
    in_force, process, request, schedule, session, standing, Block, Entered, Frame,
};
use calls::{is_commit, makes_thread, may_be_last};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::epoch::{Why, OTHER_WAY};
use reprise_abi::session::FLAG_EPOCHS;

/// The request for which all others stand while one thread is alone; 0: nobody is.
static ALONE: AtomicU32 = AtomicU32::new(0);
/// This process is recorded in epochs no more: one has failed, or it was made by another process.
static OVER: AtomicBool = AtomicBool::new(false);

/// Number of the session's process that has a leader: its first one.
pub const LEADER: u32 = 0;

/// A race has shown that decided what threads do next: what it came to may be in what they ask the kernel for in the same epoch.
static RACES: AtomicBool = AtomicBool::new(false);

/// The program takes over what a copy has come to that has left the log.
pub fn races() {
    RACES.store(true, Relaxed);
}

/// Is the thread's process recorded in epochs? (One that vfork(2) has made, or posix_spawn(3), is in the memory of the one that is.)
#[inline(always)]
pub fn is_on(t: &Block) -> bool {
    session().flags & FLAG_EPOCHS != 0 && !OVER.load(Relaxed) && t.number == LEADER
}

/// A program begins in the process of this number: of a session it is the first one that has a leader.
pub fn starts(number: u32) {
    OVER.store(number != LEADER, Relaxed);
}

/// In a child that fork(2) made: it is its parent that has a leader.
pub fn after_fork() {
    ALONE.store(0, Relaxed);
    pause::after_fork();
    OVER.store(true, Relaxed);
}

/// Under `serial`: is an epoch to begin before this call? Before a thread is made, and before any call that a thread comes to while all others stand, but that for
/// which it is alone.
#[inline(always)]
pub fn begins_before(t: &Block, frame: &Frame) -> bool {
    is_on(t)
        && match is_alone() {
            false => makes_thread(frame),
            true => !is_commit(t, frame),
        }
}

/// Do all other threads stand, so that one makes a call, or is told of a signal?
#[inline(always)]
pub fn is_alone() -> bool {
    ALONE.load(Relaxed) != 0
}

/// In the leader, at the end of a gate: a signal that waits for the thread is delivered when all others stand, since copies know none. False: there is none.
pub fn delivers_alone(t: &mut Block) -> bool {
    let first = t.pending.first(t.mask).filter(|_| is_on(t));
    let now = sys::monotonic().ns();
    // A call with a mask of its own isn't over before its handlers have run.
    let is_waited_for = t.saved_mask.is_some();
    t.signalled = first.is_some_and(|signal| is_waited_for || !comes_too_soon(&signal, now));
    match t.signalled {
        true => DELIVERED.store(now, Relaxed),
        false if first.is_some() => request::ask_for_end_of_slice(),
        false => {}
    }
    first.is_some()
}

/// When a signal was delivered last.
static DELIVERED: AtomicI64 = AtomicI64::new(0);

/// A timer may be faster than all can stand for each of its signals: the program is to get somewhere in between.
fn comes_too_soon(signal: &Siginfo, now: i64) -> bool {
    const SI_KERNEL: i32 = 0x80;
    const SI_TIMER: i32 = -2;
    const BETWEEN: i64 = 5_000_000;
    matches!(signal.code(), SI_KERNEL | SI_TIMER) && now - DELIVERED.load(Relaxed) < BETWEEN
}

/// In the leader, at the end of a gate: is the epoch to end here?
pub fn is_due(t: &Block) -> bool {
    if !is_on(t) {
        return false;
    }
    if t.deferred || t.signalled || t.goes_back {
        return true;
    }
    let due = &session().epoch_due;
    if epoch::is_full(t.slot) || output::is_much() {
        return true;
    }
    // Who is ahead goes on as long as it can: the others need not stand until the copy of the epoch before has run.
    let waits = || ahead::before() == Before::Unknown && !epoch::is_long(t.slot);
    let is_due = due.load(Relaxed) != 0 && !waits() && due.swap(0, Relaxed) != 0;
    if is_due {
        session().epoch_asked.store(0, Relaxed);
    }
    is_due
}

/// Under `serial`, at the end of a gate: does an epoch begin here?
#[inline(always)]
pub fn is_next(t: &Block) -> bool {
    is_on(t) && (t.deferred || is_alone())
}

/// An epoch begins where the calling thread is, which is the only one, or for which all others stand; `says` it to the log, and is told whether it is the
/// first one of the process, or the first after it had only this thread; `stands` for that request then.
pub fn begin(
    t: &mut Block,
    says: impl FnOnce(&mut Block, bool),
    stands: impl FnOnce(&mut Block, u32),
) {
    let alone = ALONE.swap(0, Relaxed);
    let Some(request) = Some(alone).filter(|n| *n != 0).or_else(standing::ask) else {
        return;
    };
    if !process::only_one_in_memory() && epochs::all_others_are_free(t, request) {
        // Another process shares the program's memory, and what is in it of the engine in force.
        t.deferred = false;
        OVER.store(true, Relaxed);
        pause::begins();
        return releases();
    }
    says(t, alone == 0);
    t.deferred = false;
    stands(t, request);
    schedule::leave_for_others(t.slot);
    // What nobody has looked for while there was one thread.
    clock::keeps_trapping();
    in_force::runs_freely();
    if alone == 0 {
        worth::begins();
    }
    leads(t, request);
    releases();
    stand::goes_on(t)
}

/// In the leader, at the end of a gate: the epoch is over, when all stand.
pub fn ask(t: &mut Block, frame: &Frame) {
    t.goes_back = false;
    let stays_alone = core::mem::take(&mut t.deferred) | core::mem::take(&mut t.signalled);
    let then = match (stays_alone, core::mem::take(&mut t.shows)) {
        (true, _) if may_be_last(frame) => Then::Last,
        (true, _) => Then::Alone,
        (_, true) => Then::All,
        _ => Then::Ahead,
    };
    let Some(request) = standing::ask() else {
        return;
    };
    stand::stands_first(t, frame, None, request);
    ends_if_all_stand(t, request, then)
}

/// As [`ask`], in a call whose beginning is logged.
pub fn ask_from_call(t: &mut Block, call: Entered) {
    let Some(request) = standing::ask() else {
        return;
    };
    let frame = stand::gate_frame(t);
    stand::stands_first(t, &frame, Some(call), request);
    ends_if_all_stand(t, request, Then::Ahead)
}

/// What comes when an epoch is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// All go on at once, while its copy runs, if that can be.
    Ahead,
    /// All go on when its copy has run.
    All,
    /// One goes on alone then.
    Alone,
    /// As above, and may end the program: all that it has written is to be written before.
    Last,
}

/// As [`ask`], in the middle of the program's code, in which the thread has come to no gate for some time; it is to be told of a signal or of a fault where it is to be `alone`. It comes back only where
/// others have asked.
pub fn ask_in_code(t: &mut Block, uc: &Ucontext, alone: bool) {
    let Some(request) = standing::ask() else {
        return;
    };
    stand::stands_first_in_code(t, uc, request);
    let then = if alone { Then::Alone } else { Then::All };
    ends_if_all_stand(t, request, then)
}

/// The thread, which stands, has asked for the epoch's end: it goes on when all others have come to stand, or don't.
fn ends_if_all_stand(t: &mut Block, request: u32, then: Then) -> ! {
    worth::asks();
    if !stand::await_others(t, request) || !is_over(t, request, then) {
        releases();
    }
    stand::goes_on(t)
}

/// All go on.
fn releases() {
    worth::all_go_on();
    standing::release();
}

/// As [`ask`], of a thread that stays in its call: the program is to go back.
fn ask_in_call(t: &mut Block) {
    let Some(request) = standing::ask() else {
        return ahead::await_news();
    };
    kernel::block_all();
    if stand::await_others(t, request) {
        is_over(t, request, Then::Ahead);
    }
    // Before others may ask: it is one of those who stay, and go back.
    stand::restores_vectors(t);
    standing::release();
    kernel::sync_mask(t);
}

/// All stand: the epoch is over. Is this thread alone now, if it is to be that [then](Then)? Otherwise all go on, as the leader, or as what can't be recorded any more.
fn is_over(t: &mut Block, request: u32, then: Then) -> bool {
    let before = ahead::settle(t, request);
    if before == Before::Lost {
        return falls_back(t, request, Which::Before);
    }
    appends(t, epoch::previous_slices());
    // What is seen is in the recording.
    output::releases(true);
    if !epoch::previous_slices().is_empty() {
        pause::epoch_was_good();
    }
    epoch::forget_previous();
    if before == Before::Other {
        output::forgets(false);
        leads(t, request);
        return false;
    }
    if fails_for_test() && back::can_go(t, Which::Open, request).is_ok() {
        return falls_back(t, request, Which::Open);
    }
    // Where one computes its copy comes to another place, to which all would have to go back.
    let waits = then != Then::Ahead || stand::some_compute(t.number, request);
    if !waits {
        if let Err(which) = ahead::goes_ahead(t, request) {
            return falls_back(t, request, which);
        }
        return false;
    }
    if !epochs::ends(request) {
        return falls_back(t, request, Which::Open);
    }
    pause::epoch_was_good();
    if then == Then::All || then == Then::Ahead {
        appends(t, epoch::slices());
        output::releases(false);
        match pause::is_due(t, request) {
            true => goes_on_serially(t),
            false => leads(t, request),
        }
        return false;
    }
    in_force::runs_one();
    schedule::come_back(t.slot);
    ring::append(epoch::slices());
    output::releases(false);
    if then == Then::Alone && pause::is_due(t, request) {
        schedule::leave_for_others(t.slot);
        goes_on_serially(t);
        return false;
    }
    if then == Then::Last {
        output::writes_rest();
    }
    session().epoch_open.store(0, Relaxed);
    ALONE.store(request, Relaxed);
    true
}

/// The test (`record --test-fail-epochs`): does this epoch count as one that can't be run again?
fn fails_for_test() -> bool {
    const ONCE_IN: u64 = 3;
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let seed = session().test_fail_epochs.load(Relaxed);
    if seed == 0 {
        return false;
    }
    let n = DRAWN.fetch_add(1, Relaxed) + (u64::from(seed) << 32);
    split_mix::mix(n.wrapping_mul(split_mix::GAMMA)) % ONCE_IN == 0
}

/// What a copy has done is what the trace gets.
fn appends(t: &Block, slices: &[u8]) {
    if slices.is_empty() {
        return;
    }
    in_force::runs_one();
    schedule::come_back(t.slot);
    ring::append(slices);
    schedule::leave_for_others(t.slot);
    in_force::runs_freely();
}

/// Why no copy could run an epoch of the program as it is now, if that is so.
fn no_epoch_can_be() -> Option<Why> {
    if memory::each().any(|r| r.is_of_others()) {
        return Some(Why::Shared);
    }
    // It has become another user, isn't dumpable, or has changed its root.
    (!present::can_be_known()).then_some(Why::Unreadable)
}

/// All threads go on, as the leader, from where they stand.
fn leads(t: &mut Block, request: u32) {
    if let Some(why) = no_epoch_can_be().filter(|_| epochs::all_are_free(t, request)) {
        return runs_serially(t, request, [why as u64, t.slot.into(), 0]);
    }
    session().epoch_open.store(1, Relaxed);
    if !epochs::begin(t, request, false) {
        runs_serially(t, request, epoch::reason());
    }
}

/// That epoch can't be recorded by a copy: the program goes back to its beginning, if it can, and on from there with one thread at a time, as `serial` records it (Respec 3).
/// False: no thread is alone.
fn falls_back(t: &mut Block, request: u32, which: Which) -> bool {
    let reason = match which {
        Which::Open => epoch::reason(),
        Which::Before => epoch::previous_reason(),
    };
    let is_back = ahead::goes_back(t, which, request);
    epoch::forget();
    epoch::forget_previous();
    match is_back {
        Ok(()) => {
            output::forgets(which == Which::Before);
            runs_serially(t, request, reason)
        }
        Err(back::Lasts(number)) => is_lost(reason, number),
    }
    false
}

/// All threads stand at an epoch's beginning, and go on one at a time.
fn runs_serially(t: &mut Block, request: u32, reason: [u64; 3]) {
    if !epochs::all_are_free(t, request) {
        return is_lost(reason, 0);
    }
    tells_reason(reason);
    session().epochs_serial.fetch_add(1, Relaxed);
    pause::begins();
    goes_on_serially(t)
}

/// All threads stand, and go on one at a time.
fn goes_on_serially(t: &Block) {
    output::writes_rest();
    session().epoch_open.store(0, Relaxed);
    OVER.store(true, Relaxed);
    in_force::runs_one();
    if !stand::is_unmade(t) {
        schedule::come_back(t.slot);
    }
}

/// Keeps why an epoch can't be recorded by a copy, if it is the first.
fn tells_reason([why, slot, event]: [u64; 3]) {
    let s = session();
    if s.epoch_difference.load(Relaxed) == 0 {
        s.epoch_difference.store(OTHER_WAY + why, Relaxed);
        s.epoch_difference_at.store(event << 16 | slot, Relaxed);
    }
}

/// Nothing more of this process can be recorded, for this [reason](epoch::reason), and since it has made a call of this number plus 1; 0: for another reason.
fn is_lost(reason: [u64; 3], made: u64) {
    tells_reason(reason);
    let lost = (reason[0] as u32 + 1) & 0xff | (made as u32) << 8;
    output::releases_own();
    session().epoch_lost.store(lost, Relaxed);
    OVER.store(true, Relaxed);
}
