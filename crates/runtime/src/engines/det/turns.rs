//! Synchronisation points: everything that threads do to each other is done in a turn ([`super::token`]), on memory as it is for all.

use super::hooked;
use super::idle;
use super::io_turns;
use super::log;
use super::look_ahead;
use super::new_thread;
use super::pure::clock;
use super::retained;
use super::streams;
use super::token::{self, child, state};
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{Deadline, Wait};
use crate::engines::det::spin;
use crate::isolate::options;
use crate::isolate::options::count;
use crate::isolate::{commit, conflicts, outside, shared_signals, split};
use crate::log::debugger;
use crate::machine::guard;
use crate::races::objects::Kind;
use crate::sync::locked;
use crate::thread::Frame;
use crate::thread::{session, Block};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use reprise_abi::det::{question, ALONE, KEPT_TURNS, RETAKEN};

/// What a thread may do in a turn that it has kept since it made another, before the turn ends nevertheless: the other may be what it waits for.
const SMALL_OPERATIONS: u32 = 32;

/// The same, where it is about to take a mutex again each time.
const NEAR_OPERATIONS: u32 = 512;

/// So many rounds others go on while a thread waits for a child.
const ROUNDS_FOR_CHILD: u64 = 16;

/// Begins a turn of the calling thread, unless it has one, or is alone. A turn that it has kept goes on, and so does its [lead](super::retained).
pub fn begin(t: &mut Block) {
    if t.det().in_turn {
        return;
    }
    options::delay();
    if t.det().keeps != 0 {
        t.det().keeps -= 1;
        if t.det().keeps != 0 {
            return go_on(t);
        }
        if !t.det().leads {
            t.det().in_turn = true;
            end(t);
        }
    }
    if split::in_force() && token::live() > 1 {
        // Somebody does something but look whether a descriptor is ready.
        token::idles(false);
        begin_anyway(t);
    }
}

/// Another operation of a kept turn, or of the lead.
pub(super) fn go_on(t: &mut Block) {
    if t.det().leads {
        retained::operation_begins();
        count(&session().counters.det_led);
    } else {
        count(&session().counters.det_kept);
    }
    t.det().in_turn = true;
}

/// As [`begin`], with a new turn in any case: others have had theirs in between.
pub fn begin_anew(t: &mut Block) {
    t.det().keeps = t.det().keeps.min(1);
    begin(t);
}

/// Before a thread is made: the lead goes on, or it is a turn in any case, of which everything so far is committed.
pub fn begin_creation(t: &mut Block) {
    match t.det().keeps {
        0 => begin_anyway(t),
        _ if t.det().leads => go_on(t),
        _ => {
            commit::commit_again(t);
            t.det().in_turn = true;
        }
    }
}

/// After it: the thread has the [lead](super::retained) of the next phase, or of this one for longer. Where there is no such thing the program goes on in this turn,
/// for a few operations more. So threads that are made one after the other begin together.
pub fn end_creation(t: &mut Block) {
    t.det().holds = 0;
    if t.det().leads {
        t.det().keeps = SMALL_OPERATIONS;
        end(t);
    } else if retained::is_wanted() && retained::take(t.slot) {
        t.det().keeps = 0;
        end(t);
        if retained::is(t.slot) {
            t.det().leads = true;
            t.det().keeps = SMALL_OPERATIONS;
        }
    } else {
        commit::commit_again(t);
        t.det().in_turn = false;
        t.det().keeps = SMALL_OPERATIONS;
    }
}

/// In a turn, or an operation of the [lead](super::retained), which becomes a turn like all others': they have come to the end of the phase then, and this is the first of the
/// turns that follow, so that memory is what it was. So does a turn for [input and output](io_turns).
pub fn in_earnest(t: &mut Block) {
    if t.det().io.has {
        token::idles(false);
        begin_anyway(t);
    } else if t.det().leads && t.det().in_turn {
        retained::operation_ends();
        leave_lead(t);
        take_turn(t);
    }
}

fn leave_lead(t: &mut Block) {
    if t.det().leads {
        t.det().leads = false;
        t.det().keeps = 0;
        retained::end(t.slot);
    }
}

/// The ring's only thread has its turn at once, and commits when there is somebody to see it (DThreads 5, single-threaded mode).
fn begin_anyway(t: &mut Block) {
    options::delay();
    leave_lead(t);
    if options::has(ALONE) && token::is_alone_in_ring(t.slot) {
        count(&session().counters.det_alone);
        io_turns::leave(t);
        t.det().in_turn = true;
        // What the program has written since its last commit is still to be committed.
        (t.det().begun_in, t.view().narrow) = (0, false);
        clock::meet(t);
        new_thread::has_turn(t);
        return look_at_signals(t);
    }
    take_turn(t);
    look_at_signals(t);
}

fn look_at_signals(t: &mut Block) {
    outside::note_mask(t);
    shared_signals::take(t);
}

/// The thread ends its phase, and has its turn.
fn take_turn(t: &mut Block) {
    commit::prepare(t);
    match io_turns::leave(t) {
        true => token::pass(t.slot, state::ARRIVED),
        false => token::arrive(t.slot),
    }
    token::wait_for_turn(t.slot);
    streams::take_listed(t);
    commit::commit(t);
    t.det().in_turn = true;
    (t.det().begun_in, t.view().narrow) = (t.hooked, false);
    t.det().is_near = false;
    clock::meet(t);
    new_thread::has_turn(t);
}

/// Ends the turn, if the calling thread has one and does not keep it: the next phase begins when all have had theirs.
pub fn end(t: &mut Block) {
    if !t.det().in_turn {
        return;
    }
    if t.det().io.has {
        return io_turns::end(t);
    }
    if t.det().keeps != 0 {
        t.det().in_turn = false;
        (t.det().begun_in, t.view().narrow) = (0, false);
        if t.det().leads {
            retained::operation_ends();
        }
        return;
    }
    t.det().holds = 0;
    clock::meet(t);
    if options::has(ALONE) && token::is_alone_in_ring(t.slot) && idle::round_without_others() {
        t.det().in_turn = false;
        return;
    }
    t.det().signals_wait = !shared_signals::is_empty();
    commit::commit_again(t);
    let round = token::round();
    token::pass(t.slot, state::DONE);
    token::wait_for_phase(t.slot, round);
    commit::refresh(t);
    clock::phase_begins(t);
    t.det().in_turn = false;
    t.view().narrow = false;
    super::spin::phase_begins(t);
}

/// In a turn: the thread sleeps until somebody [recalls](token::recall) it; then it has a turn again. Why it came back.
pub fn give_up(t: &mut Block) -> u32 {
    leave_ring(t, state::WAITS);
    come_back(t)
}

/// In a turn: the thread makes a call that waits in the kernel, beside all others; then it has a turn again. The call must
/// touch no memory of the program, which is others' meanwhile.
///
/// A replay doesn't make it: the log says when the thread comes back.
pub fn outside<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> Option<R> {
    leave_ring(t, state::OUTSIDE);
    let r = (!log::replays()).then(|| f(t));
    idle::notify(t.slot);
    come_back(t);
    r
}

/// As [`outside()`], for a call that waits for a child of the program. When a child ends is not the program's to say; so the thread comes back after
/// some rounds, or as soon as nobody else can go on, and if the child has not ended by then, all others wait for it. Should they have done so for too long
/// ([`super::spin`]), the child may need one of them: then they go on, and the thread comes back when it comes. `f` says whether the call is over, and not
/// just interrupted.
pub fn outside_for_child<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> (R, bool)) -> Option<R> {
    let m = token::member(t.slot);
    m.since.store(token::wait_number(), Relaxed);
    idle::limit_to_rounds(t, ROUNDS_FOR_CHILD);
    leave_ring(t, state::OUTSIDE);
    token::waits_for_child(t.slot);
    let mut result = None;
    if !log::replays() {
        let (r, over) = f(t);
        result = Some(r);
        let in_order = token::child_has_come(t.slot);
        log::decide(t, question::PASSED_OVER, |_| !in_order);
        if !in_order || !over {
            idle::notify(t.slot);
        }
    } else if log::decide(t, question::PASSED_OVER, |_| false) {
        // It had a turn, for which the others waited too long.
        token::wait_for_turn(t.slot);
        m.child.store(child::NONE, SeqCst);
        token::pass(t.slot, state::OUTSIDE);
    } else {
        m.child.store(child::NONE, SeqCst);
    }
    come_back(t);
    result
}

fn leave_ring(t: &mut Block, how: u32) {
    in_earnest(t);
    outside::note_mask(t);
    t.det().keeps = 0;
    t.det().holds = 0;
    commit::commit_again(t);
    clock::meet(t);
    idle::forget_notice(t.slot);
    token::pass(t.slot, how);
}

fn come_back(t: &mut Block) -> u32 {
    token::wait_for_turn(t.slot);
    commit::refresh(t);
    clock::meet(t);
    shared_signals::take(t);
    token::member(t.slot).why.load(Relaxed)
}

/// In a turn: the thread gives way to all others, once, and has a turn again in the next round.
pub fn give_way(t: &mut Block) {
    in_earnest(t);
    t.det().keeps = 0;
    end(t);
    begin_anyway(t);
}

/// Does something in a turn.
pub fn within<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> R {
    let nested = t.det().in_turn;
    begin(t);
    let r = f(t);
    if !nested {
        end(t);
    }
    r
}

/// As [`within`], for what others have a part in.
pub fn within_earnest<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> R {
    within(t, |t| {
        in_earnest(t);
        f(t)
    })
}

/// A mutex was given back: does the thread keep its turn until it takes the next one?
fn keeps_on(t: &mut Block) -> bool {
    if t.det().keeps <= 1 || !options::has(RETAKEN) {
        return false;
    }
    let near = guard::read(t.program_sp).is_some_and(look_ahead::is_near);
    if near && !t.det().is_near {
        t.det().is_near = true;
        t.det().keeps = NEAR_OPERATIONS;
    }
    near
}

/// Hooked functions are made in turns as a whole, and need no other order.
pub struct InTurns;

impl Order for InTurns {
    const REPLAYS: bool = false;
    fn begins_turn(t: &mut Block, f: &Frame) {
        if conflicts::on() {
            let place = locked::place_of(t.saved().resume);
            t.shown = Frame {
                rip: place.unwrap_or(t.saved().resume),
                ..*f
            };
            debugger::show_frame(t, &t.shown);
        }
        if !new_thread::needs_no_turn(t, f) {
            streams::before(t, f);
        }
    }
    fn ends_turn(t: &mut Block) {
        streams::after(t);
        end(t);
        spin::see_to_signals(t);
    }
    fn faulted_in_stub(t: &mut Block, _number: Option<u32>) {
        end(t);
    }
    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        hooked::wait(t, word, value, deadline, shared)
    }
    fn wake(t: &mut Block, address: *const u32, n: u32, shared: bool) {
        hooked::wake(t, address, n, shared);
    }
    #[inline(always)]
    fn pause(t: &mut Block) {
        hooked::pause(t);
    }
    fn now() -> i64 {
        super::pure::clock::monotonic()
    }
    fn interrupted_by(t: &mut Block) -> Option<u32> {
        hooked::interrupted_by(t)
    }
    fn sent_to_itself(t: &mut Block) {
        super::log::is_due(t);
    }
    fn shows() -> bool {
        conflicts::on()
    }
    /// The critical section belongs to the turn (DThreads 4.3, locks), up to a number of operations.
    #[inline(always)]
    fn locked(t: &mut Block, _object: &Runs) {
        if t.det().keeps == 0 && t.det().in_turn && options::has(KEPT_TURNS) {
            t.det().keeps = SMALL_OPERATIONS;
            t.det().holds = 1;
        } else if t.det().holds != 0 {
            t.det().holds += 1;
        }
    }
    #[inline(always)]
    fn lets_know(t: &mut Block, kind: Kind, _name: u64) {
        if kind != Kind::Lock || t.det().holds == 0 {
            return;
        }
        t.det().holds -= 1;
        if t.det().holds == 0 && !keeps_on(t) {
            t.det().keeps = 0;
        }
    }
    /// Nothing of the program ran in this turn: its other pages are what they were when it began.
    #[inline(always)]
    fn touches_its_objects(t: &mut Block) {
        if t.hooked != 0 && t.det().begun_in == t.hooked && t.det().in_turn && !t.det().leads {
            t.view().narrow = true;
        }
    }
    #[inline(always)]
    fn enters(t: &mut Block) {
        begin(t);
    }
    #[inline(always)]
    fn leaves(t: &mut Block, _returns: bool) {
        end(t);
    }
    #[inline(always)]
    fn passed(_t: &mut Block, _object: &Runs) {}
    #[inline(always)]
    fn passed_among(_t: &mut Block, _object: &Runs) {}
    fn faulted(t: &mut Block) {
        end(t);
    }
}

/// The allocator's own order (DThreads 4.4): a thread's heap is its own, so nothing of it waits for a turn but what others have a part in.
pub struct InOwnHeap;

impl Order for InOwnHeap {
    const REPLAYS: bool = false;
    #[inline(always)]
    fn ordered<R>(t: &mut Block, _address: u64, operation: impl FnOnce() -> R) -> R {
        within(t, |t| {
            if t.det().leads && io_turns::on() {
                // What the thread has written to blocks that it gives back is to be seen by who takes them in a phase that this one leads.
                in_earnest(t);
            }
            operation()
        })
    }
    #[inline(always)]
    fn taken<R>(t: &mut Block, _address: u64, operation: impl FnOnce() -> R) -> R {
        io_turns::within(t, |_| operation())
    }
    fn claims<R>(t: &mut Block, search: impl FnOnce(&mut Block, u32) -> R) -> R {
        // Which slots are free is not the program's to say.
        io_turns::within(t, |t| search(t, 0))
    }
    #[inline(always)]
    fn passed(_t: &mut Block, _object: &Runs) {}
    #[inline(always)]
    fn passed_among(_t: &mut Block, _object: &Runs) {}
    fn faulted(t: &mut Block) {
        end(t);
    }
}
