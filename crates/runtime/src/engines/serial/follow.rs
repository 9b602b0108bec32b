//! Running an epoch again, in a copy of the program that was made at its beginning (DoublePlay 3, 5.2.2): one thread at a time, by the log of the leader, whose
//! threads ran freely under another engine ([`crate::log::epoch`]).
//!
//! What calls return and write is in the log, and is not asked of the kernel, which the copy could change nothing of. They come in the order of their stamps.
//! Operations of synchronisation are made for real, on the copy's own objects, as under `record --hooks` ([`super::hooked`]); but in the leader's order: a thread
//! whose operation has not come to its turn gives the baton to others until it has. Only a thread that races can see anything else than the leader's did.
//!
//! **The end** of the epoch is where the leader's threads stood: when a thread's part of the log is used up, it ends at the next gate or hooked function
//! that leaves it at the same place, after as many calls that leave nothing in the log. A thread that slept in a hooked function sleeps when all others have
//! come to their ends, so that what its sleep leaves in the object is there.
//!
//! **Slices.** What the copy does it writes, in the words of a recording ([`told`]), when slices are wanted: they are what a replay needs of it.
//!
//! **Threads** that begin and end in the epoch do so in the copy: their slots, and so their parts of the log, are those of the leader's. One that ends in it has come to
//! its end then.
//!
//! What a copy can't do yet ends it ([`Why`]): processes that are made or end, signals, mappings of files, sites that are rewritten.

use super::{baton, cut, hooked, left, told};
use crate::common::make::NOT_MADE;
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{Deadline, Wait};
use crate::engine::wish::Wish;
use crate::engine::{Engine, RESTART};
use crate::gate::epochs::slices;
use crate::gate::{clone, copy, leader, robust, stand};
use crate::log::epoch::{self, Due, Next, Part};
use crate::machine::asm::rt_exit_thread;
use crate::machine::{guard, sys};
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::futex::word_changed_at_once;
use crate::memory::of_file::OfFile;
use crate::signal::frame::{save_vectors, FpState, Ucontext};
use crate::signal::kernel;
use crate::sync::libc::malloc;
use crate::sync::libc::side::side;
use crate::thread::signals::Siginfo;
use crate::thread::{process, schedule, session, shards, slot, Block, Entered, Frame};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::effect::Effect;
use reprise_abi::epoch::Why;
use reprise_abi::event::{Event, Instruction, Kind, Tag, FLAG_HELD, FLAG_RESTARTED, SLOT_SHIFT};
use reprise_abi::order::{Entry, EntryKind};
use reprise_abi::session::slot_state;
use reprise_abi::syscalls::lasts;

/// Running an epoch again.
pub struct Follow;

/// Grows whenever a thread comes to wait, or goes on.
static PROGRESS: AtomicU64 = AtomicU64::new(0);
/// Who finds so often in a row that nobody has gone on meanwhile waits for somebody who waits.
const MOST_LOOKS: u32 = 1000;

/// The copy ends, and nothing comes of the epoch.
pub fn fails(t: &Block, why: Why) -> ! {
    epoch::fails(t.slot, why)
}

/// A thread goes on without the log.
pub fn goes_on() {
    PROGRESS.fetch_add(1, Relaxed);
}

/// What is kept of the thread in the log.
pub fn part(t: &Block) -> &'static mut Part {
    epoch::part(t.slot).unwrap_or_else(|| fails(t, Why::Life))
}

/// Lets others run until it is `due`. False: nobody goes on.
pub fn wait_until(t: &mut Block, mut due: impl FnMut() -> bool) -> bool {
    if due() {
        return true;
    }
    // What is looked for in the thread's code is looked for while it runs.
    cut::record::abandon(t);
    let (mut seen, mut looks) = (PROGRESS.fetch_add(1, Relaxed) + 1, 0);
    loop {
        if !baton::step_back(t, |_| {}) {
            return false;
        }
        if due() {
            PROGRESS.fetch_add(1, Relaxed);
            return true;
        }
        let now = PROGRESS.load(Relaxed);
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
        if looks > MOST_LOOKS && SLEEPERS.load(Relaxed) != 0 {
            sys::nap();
            looks = 0;
        }
        if looks > MOST_LOOKS {
            return false;
        }
    }
}

/// Threads that sleep for a time: nobody who waits has waited in vain as long as there are any.
static SLEEPERS: AtomicU32 = AtomicU32::new(0);

/// As [`wait_until`], of a thread that sleeps until it is `due`. False: nobody else goes on, and it isn't yet.
pub fn sleeps_until(t: &mut Block, due: impl FnMut() -> bool) -> bool {
    SLEEPERS.fetch_add(1, Relaxed);
    let is_due = wait_until(t, due);
    SLEEPERS.fetch_sub(1, Relaxed);
    if !is_due {
        sys::nap();
    }
    is_due
}

/// As [`wait_until`], of a thread that goes by the log. False also when all who wait are to leave that: who has told them so takes their turns for as good as come.
fn wait_by_log(t: &mut Block, mut due: impl FnMut() -> bool) -> bool {
    wait_until(t, || due() || epoch::are_to_leave()) && due()
}

/// As [`wait_until`], of what has to come. If nobody goes on, all who wait for their turns leave the log.
pub fn await_until(t: &mut Block, mut due: impl FnMut() -> bool) {
    while !wait_until(t, &mut due) {
        if !left::all_leave(t) {
            fails(t, Why::Stuck);
        }
    }
}

/// The thread waits as the leader's did to the end of the epoch: all others come to their ends first.
fn await_others(t: &mut Block) {
    part(t).waits = true;
    let slot = t.slot;
    await_until(t, || epoch::others_are_at_end(slot));
}

/// Has this stamp of the thread's its turn? That of a call of which nothing stays always has, when threads have left the log.
fn is_turn_of(slot: u32, stamp: u64, lasts: bool) -> bool {
    epoch::has_left() && !lasts || epoch::is_turn_of(slot, stamp)
}

fn await_stamp(t: &mut Block, stamp: u64, lasts: bool) {
    let slot = t.slot;
    if !wait_by_log(t, || is_turn_of(slot, stamp, lasts)) {
        // Others may wait for what the log has of this thread.
        left::leaves(t, Why::Stuck);
        await_until(t, || is_turn_of(slot, stamp, lasts));
    }
}

/// The thread comes to a point in a hooked function, at which an operation has its turn when it is `due`. If nobody goes on before that, it leaves the log.
fn wait_at_point(t: &mut Block, point: i64, mut due: impl FnMut() -> bool) {
    if !due() {
        told::gives_way(t, point);
        if !wait_by_log(t, due) {
            left::leaves(t, Why::Stuck);
        }
        told::goes_on(t);
    }
}

/// As [`wait_at_point`], of what counts also when threads have left the log.
fn await_at_point(t: &mut Block, point: i64, mut due: impl FnMut() -> bool) {
    if !due() {
        told::gives_way(t, point);
        await_until(t, due);
        told::goes_on(t);
    }
}

/// The end of a call whose stamp has not had its turn is waited for here, in the middle of a gate.
fn settle(t: &mut Block) {
    let point = point(t);
    if let Some(ends) = core::mem::take(&mut part(t).owes).checked_sub(1) {
        let slot = t.slot;
        wait_at_point(t, point, || is_turn_of(slot, ends, false));
        epoch::pass_stamp(ends);
    }
}

/// What the thread has logged next is of this kind: waits for its stamp, which is this argument of it.
fn await_event(t: &mut Block, kind: Kind, stamp: usize) -> Event<'static> {
    if left::has(t) {
        part(t).goes_to_kept();
    }
    let Some(e) = part(t).due_event().filter(|e| e.kind == kind) else {
        fails(t, Why::Life)
    };
    let stamp = e.arg(stamp);
    await_stamp(t, stamp, true);
    epoch::pass_stamp(stamp);
    part(t).consume(&e);
    e
}

/// The thread comes to a point in a hooked function, or in a stub: others go on there, if it has kept them waiting for too long.
fn point(t: &mut Block) -> i64 {
    let point = t.cut().hooks.comes_to_point();
    if !slices::is_over(t) {
        return point;
    }
    cut::record::abandon(t);
    if baton::step_back(t, |t| told::gives_way(t, point)) {
        told::goes_on(t);
    }
    point
}

/// The thread has come to the end of the epoch.
pub fn rest(t: &mut Block, frame: &Frame, call: Option<Entered>) -> ! {
    cut::record::abandon(t);
    // Where it is the program may take over.
    stand::shows(t, frame, call);
    told::ends(t);
    kernel::block_all();
    rests_with(t, FpState::Live)
}

fn rests_with(t: &mut Block, vectors: FpState) -> ! {
    save_vectors(vectors, stand::vectors(t.slot));
    PROGRESS.fetch_add(1, Relaxed);
    let parent = sys::getppid() as u64;
    epoch::comes_to_end(t.slot);
    baton::release(t, slot_state::BLOCKED);
    copy::rest_while_lives(parent);
    sys::exit_group(125)
}

/// The thread's slice has ended in the middle of the program's code, and its part of the log is used up, where the leader's thread computed when the epoch ended: how far can't be
/// said. So this one ends where it is, and the program takes that over. All come to their ends together: others go on first, since it may be one of them that has yet to.
pub fn ends_in_code(t: &mut Block, uc: &Ucontext, faults: bool) {
    let slot = t.slot;
    let waits = !epoch::others_are_at_end(slot);
    if waits {
        part(t).waits = true;
        match faults {
            true => told::gives_way_at_fault(t),
            false => told::gives_way_at_gate(t),
        }
        // It has nothing left to do, and comes only where nobody else goes on: one of them may wait for it by looking.
        wait_until(t, || epoch::others_are_at_end(slot));
        told::goes_on(t);
        part(t).waits = false;
        if !epoch::others_are_at_end(slot) {
            return;
        }
    }
    epoch::ends_elsewhere(slot);
    stand::shows_in_code(t, &uc.mc.to_frame());
    told::ends_in_code(t, faults && !waits);
    kernel::block_all();
    rests_with(t, FpState::Saved(uc.mc.fpstate))
}

/// Writes what the event has for the program.
pub fn apply(t: &Block, e: &Event) {
    for s in e.sections() {
        match s.tag {
            Tag::Output => {
                let from = s.bytes.as_ptr() as u64;
                // SAFETY: from the log; the program's side is guarded.
                let _ = guard::guarded(|| unsafe { guard::copy(s.address, from, s.bytes.len()) });
            }
            Tag::Reference | Tag::File | Tag::Mapped => fails(t, Why::Input),
            _ => {}
        }
    }
}

/// A call, by the log. `act` is what is done while its beginning has its turn: it is told the result, and says what it has come to.
/// `None`: the thread has [left the log](left), and nothing stays of the call.
fn answer(
    t: &mut Block,
    c: &Call,
    hash: u64,
    act: impl FnOnce(&mut Block, i64) -> i64,
) -> Option<i64> {
    let mut lasts = lasts(c.nr);
    if t.entered.take().is_none() {
        // There may be two calls in one gate, or in one hooked function.
        settle(t);
        let e = event_of_call(t, c, hash)?;
        let is_held = e.header.flags & FLAG_HELD != 0;
        lasts = lasts && !is_held;
        let stamps = (e.header.nargs as usize).saturating_sub(c.nargs);
        let begins = e.arg(c.nargs);
        let waits = e.kind == Kind::Enter || !is_turn_of(t.slot, begins, lasts);
        if waits {
            told::enters(t, c, hash);
            await_stamp(t, begins, lasts);
        }
        epoch::pass_stamp(begins);
        if e.kind == Kind::Syscall {
            if act(t, e.header.value) != e.header.value {
                fails(t, Why::Result);
            }
            if is_held && e.header.value > 0 {
                left::holds(t, c);
            }
            if stamps == 2 {
                // The call is over when this stamp has its turn, which is waited for at the gate's end.
                part(t).owes = e.arg(c.nargs + 1) + 1;
            }
            told::call(t, c, &e, waits);
            return Some(ends_call(t, &e));
        }
        part(t).consume(&e);
    }
    match part(t).peek() {
        Next::Event(e) if e.kind == Kind::Exit => {
            let ends = e.arg(0);
            await_stamp(t, ends, lasts);
            epoch::pass_stamp(ends);
            told::call(t, c, &e, true);
            Some(ends_call(t, &e))
        }
        Next::End if part(t).ends.in_call => {
            let frame = stand::gate_frame(t);
            if !part(t).ends_in_call(&frame) {
                fails(t, Why::Place);
            }
            rest(t, &frame, Some(Entered::now(hash)))
        }
        _ => fails(t, Why::Call),
    }
}

/// The first event of a call, which must be what comes next; of a thread that has left the log, what counts next. `None`: nothing stays of that thread's call.
fn event_of_call(t: &Block, c: &Call, hash: u64) -> Option<Event<'static>> {
    if left::has(t) {
        if !lasts(c.nr) || left::is_held(c) {
            return None;
        }
        part(t).goes_to_kept();
    }
    let next = part(t).due_event();
    match next.as_ref().map(|e| e.kind) {
        Some(Kind::Signal) => fails(t, Why::Signal),
        Some(Kind::Patch) => fails(t, Why::Event),
        _ => {}
    }
    let begins = |e: &Event| matches!(e.kind, Kind::Syscall | Kind::Enter);
    match next.filter(|e| begins(e) && left::is_of(e, c, hash)) {
        Some(e) => Some(e),
        None if left::has(t) => fails(t, Why::Call),
        None => {
            left::leaves(t, Why::Call);
            event_of_call(t, c, hash)
        }
    }
}

fn ends_call(t: &Block, e: &Event) -> i64 {
    apply(t, e);
    part(t).consume(e);
    match e.header.flags & FLAG_RESTARTED {
        0 => e.header.value,
        _ => {
            debug_assert!(e.header.value == NOT_MADE);
            RESTART
        }
    }
}

/// The end of a gate or of a hooked function: is it where the leader's thread stood?
fn look(t: &mut Block, frame: &Frame) {
    copy::takes_long_ways(t);
    if left::has(t) {
        match left::is_at_end(t, frame) {
            true => rest(t, frame, None),
            false => return ends_slice(t, frame),
        }
    }
    let p = part(t);
    if !p.is_at_end() {
        return ends_slice(t, frame);
    }
    if p.ends.in_code {
        // It has come to a gate behind the place in its code where the leader's thread stood.
        epoch::ends_elsewhere(t.slot);
        return look(t, frame);
    }
    if !p.ends.under_mask && p.ends_at(frame) {
        if p.hook_ends {
            told::hook_ended(t, frame);
            t.cut().hooks.restart();
        }
        match stays_at_end(t) {
            true => rest(t, frame, None),
            false => return,
        }
    }
    if p.is_looked_for_too_long() {
        left::leaves(t, Why::Place);
    }
    ends_slice(t, frame);
    // What is left are calls that leave nothing in the log: all go the long way, where this is looked at.
    t.slot().signal_pending.store(1, Relaxed);
}

/// The thread is where the leader's thread stood. Does it stay there? It waits for all others to come to their ends: one that has left the log may need what this one has, a lock, to
/// come to what counts; then this one leaves it, too.
fn stays_at_end(t: &mut Block) -> bool {
    let slot = t.slot;
    // Before a call that isn't to be made there is nothing by which it could give way.
    if t.deferred || !left::is_allowed() || epoch::others_are_at_end(slot) {
        return true;
    }
    part(t).waits = true;
    told::gives_way_at_gate(t);
    await_until(t, || {
        epoch::others_are_at_end(slot) || epoch::are_to_leave()
    });
    told::goes_on(t);
    part(t).waits = false;
    let stays = epoch::others_are_at_end(slot) || !epoch::has_left() || epoch::nothing_is_kept();
    if !stays {
        left::leaves(t, Why::Place);
    }
    stays
}

/// The end of a gate or of a hooked function: others go on, if the thread has kept them waiting for too long.
fn ends_slice(t: &mut Block, frame: &Frame) {
    if !slices::is_over(t) {
        return;
    }
    cut::record::abandon(t);
    if part(t).hook_ends {
        told::hook_ended(t, frame);
        t.cut().hooks.restart();
    }
    interrupt(t);
}

/// The thread lets others go on, where a slice can end.
pub fn interrupt(t: &mut Block) {
    if baton::step_back(t, |t| told::gives_way_at_gate(t)) {
        told::goes_on(t);
    }
}

impl Engine for Follow {
    const LIVE: bool = false;
    const IMMEDIATE: bool = false;

    fn fills(block: &mut Block) {
        block.engine.put(cut::CutState::default());
    }

    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let hash = match t.entered {
            None => c.input_hash(),
            Some(_) => 0,
        };
        c.shorten();
        answer(t, c, hash, |_, r| r).unwrap_or_else(|| left::call(t, c, hash))
    }

    fn computed(t: &mut Block, c: &Call, result: i64) -> i64 {
        answer(t, c, 0, |_, _| result).unwrap_or_else(|| left::computed(t, c, result))
    }

    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64 {
        let mut act = Some(act);
        let mut acts = |r| act.take().map_or(0, |act| act(r));
        match answer(t, c, 0, |_, r| acts(Some(r))) {
            Some(r) => r,
            None => {
                let r = acts(None);
                left::computed(t, c, r)
            }
        }
    }

    fn sched_yield(t: &mut Block, c: &mut Call) -> i64 {
        answer(t, c, 0, |_, r| r).unwrap_or_else(|| left::yields(t, c))
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        const ANONYMOUS: u64 = sys::MAP_ANONYMOUS;
        let of_file = c.effect == Effect::Maps && c.args[3] & ANONYMOUS == 0;
        if of_file || matches!(c.effect, Effect::Attaches | Effect::Detaches) {
            fails(t, Why::Input);
        }
        let c = &*c;
        if epoch::has_left() && !left::has(t) && !left::has_room(t, c) {
            left::leaves(t, Why::Call);
        }
        let by_log = answer(t, c, 0, |t, r| {
            if !memory::redo(c, r, &OfFile::default(), 0) {
                fails(t, Why::Input);
            }
            r
        });
        by_log.unwrap_or_else(|| left::shapes_memory(t, c))
    }

    fn futex(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        if word_changed_at_once(c).is_some() {
            fails(t, Why::Input);
        }
        let by_log = answer(t, c, 0, |_, r| {
            left::wakes(c);
            r
        });
        by_log.unwrap_or_else(|| left::futex(t, c))
    }

    fn instruction(t: &mut Block, which: Instruction) -> (u64, u64) {
        let next = |t: &Block| (!left::has(t)).then(|| part(t).due_event()).flatten();
        let fits = |e: &Event| e.kind == Kind::Instruction && e.header.detail == which as u32;
        let Some(e) = next(t).filter(fits) else {
            left::leaves(t, Why::Call);
            return left::instruction(t, which);
        };
        part(t).consume(&e);
        told::instruction(t, which, &e);
        (e.header.value as u64, e.arg(0))
    }

    fn is_timer(info: &Siginfo) -> bool {
        slices::asks(info)
    }

    fn timer(t: &mut Block, uc: &mut Ucontext) {
        cut::record::ask(t, uc);
    }

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        cut::record::trap(t, signal, uc)
    }

    fn enters_gate(t: &mut Block, _frame: &Frame) {
        cut::record::abandon(t);
        part(t).hook_ends = false;
    }

    fn defers(t: &mut Block, frame: &Frame) -> bool {
        if left::has(t) {
            t.deferred = left::ends_before(t, frame);
            return t.deferred;
        }
        let p = part(t);
        if p.computes_to_end() {
            // As above.
            epoch::ends_elsewhere(t.slot);
            return Self::defers(t, frame);
        }
        let is_end = p.is_at_end() && !p.ends.in_call && p.ends.unlogged == p.unlogged_calls();
        // As it is when the call is to be made once more.
        t.deferred = is_end && p.ends.frame == leader::calls::before_call(frame);
        let may_leave = left::is_allowed() && !t.deferred && p.is_at_end() && !p.ends.in_call;
        if may_leave && lasts(frame.rax as u32 as u64) && p.next_kept().is_none() {
            // The leader's thread hasn't made such a call.
            left::leaves(t, Why::Place);
            t.deferred = true;
        }
        t.deferred
    }

    fn signal_point(t: &mut Block, _frame: &mut Frame) {
        t.slot().signal_pending.store(0, Relaxed);
        part(t).hook_ends = t.hook_ends;
        if let Some(ends) = core::mem::take(&mut part(t).owes).checked_sub(1) {
            if !is_turn_of(t.slot, ends, false) {
                told::gives_way_at_gate(t);
                await_stamp(t, ends, false);
                told::goes_on(t);
            }
            epoch::pass_stamp(ends);
        }
        if left::has(t) {
            return;
        }
        if let Next::Event(e) = part(t).peek() {
            match e.kind {
                Kind::Signal => fails(t, Why::Signal),
                Kind::Patch => fails(t, Why::Event),
                _ => {}
            }
        }
    }

    fn passes_point(t: &mut Block, frame: &mut Frame) {
        look(t, frame);
    }

    fn passes_point_under_mask(t: &mut Block, frame: &mut Frame) {
        let p = part(t);
        if !left::has(t) && p.ends.under_mask && p.ends_at(frame) {
            cut::record::abandon(t);
            stand::shows(t, frame, None);
            told::ends_under_mask(t);
            kernel::block_all();
            rests_with(t, FpState::Live)
        }
    }

    fn fault(t: &mut Block, _info: &Siginfo, uc: &mut Ucontext, can: bool) -> bool {
        let p = part(t);
        let is_raced = left::is_allowed() && p.next_kept().is_none();
        if !can || !(p.computes_to_end() || is_raced) {
            fails(t, Why::Fault);
        }
        if !part(t).computes_to_end() {
            left::leaves(t, Why::Fault);
        }
        // Here, or where it has come to before, the leader's thread stood: it faults when it goes on.
        cut::record::abandon(t);
        t.traced().in_code = true;
        ends_in_code(t, uc, true);
        t.traced().in_code = false;
        true
    }

    const BORN: u32 = slot_state::BLOCKED;

    fn thread_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        if left::has(t) {
            part(t).goes_to_kept();
        }
        let child = part(t)
            .due_event()
            .map_or(0, |e| e.header.flags >> SLOT_SHIFT);
        let tid = answer(t, c, 0, |t, tid| {
            if sys::is_error(tid) {
                return tid;
            }
            if !epoch::is_born(child) {
                fails(t, Why::Life);
            }
            clone::wait_for_slot::<Self>(child);
            slot(child).visible_tid.store(tid as u32, Relaxed);
            let process = t.slot_process();
            let made = clone::start_thread::<Self>(t, wish, child, process, start, |_, _| {});
            if sys::is_error(made) {
                fails(t, Why::Life);
            }
            tid
        });
        let tid = tid.unwrap_or_else(|| fails(t, Why::Life));
        settle(t);
        if !sys::is_error(tid) {
            for address in wish.told_by_parent() {
                Self::ordered(t, address, || guard::write(address, &(tid as u32)));
            }
            schedule::lock().queue(child);
        }
        tid
    }

    fn process_create(t: &mut Block, _c: &Call, _wish: &Wish, _start: &Frame) -> i64 {
        fails(t, Why::Life)
    }

    fn process_start(t: &mut Block) {
        fails(t, Why::Life)
    }

    fn thread_start(t: &mut Block) {
        kernel::block_all();
        schedule::wait_for_baton(t.slot);
        let e = await_event(t, Kind::ThreadStart, 0);
        told::starts(t, &e);
        copy::takes_long_ways(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        malloc::thread_ends::<Self>(t);
        kernel::block_all();
        Self::computed(t, c, 0);
        settle(t);
        let write = |t: &mut Block, address, word: u32| {
            Self::ordered(t, address, || guard::write(address, &word));
        };
        robust::announce_death(t, write, |_, _, _| {}, |_| None);
        const LAST: u32 = 1;
        let (slot, point) = (t.slot, point(t));
        if left::has(t) {
            part(t).goes_to_kept();
        }
        let e = part(t).due_event();
        if let Some(stamp) = e.filter(|e| e.kind == Kind::ThreadExit).map(|e| e.arg(1)) {
            await_at_point(t, point, || is_turn_of(slot, stamp, true));
        }
        let e = await_event(t, Kind::ThreadExit, 1);
        if e.header.detail == LAST {
            fails(t, Why::Life);
        }
        told::exits(t, &e);
        process::entry().live_threads.fetch_sub(1, Relaxed);
        session().live_threads.fetch_sub(1, Relaxed);
        PROGRESS.fetch_add(1, Relaxed);
        epoch::comes_to_end(t.slot);
        baton::release(t, slot_state::EXITING);
        // SAFETY: nothing of this thread is needed any more.
        unsafe { rt_exit_thread() }
    }

    fn exec(t: &mut Block, _c: &mut Call, _frame: &Frame) -> i64 {
        fails(t, Why::Life)
    }

    fn process_exit(t: &mut Block, _c: &Call, _frame: &Frame) -> ! {
        fails(t, Why::Life)
    }

    fn reenters(t: &mut Block, frame: &mut Frame) {
        t.kernel_tid = sys::gettid() as u32;
        // No operation is made on a short way.
        t.quiet_left().store(0, Relaxed);
        t.slot().signal_pending.store(0, Relaxed);
        // Nobody goes on before all are there to be waited for.
        let l = schedule::lock();
        l.queue(t.slot);
        match epoch::comes(t.slot) {
            true => l.pass_to(|_| 0),
            false => drop(l),
        }
        schedule::wait_for_baton(t.slot);
        if t.entered.is_none() {
            told::goes_on(t);
        }
        copy::takes_long_ways(t);
        if part(t).is_at_end() {
            t.slot().signal_pending.store(1, Relaxed);
        }
        if part(t).ends.again && part(t).ends_at(frame) {
            // The leader's thread has stood here once more before it did anything.
            stand::shows(t, frame, None);
            told::ends_in_code(t, false);
            kernel::block_all();
            rests_with(t, FpState::Live);
        }
    }
}

/// Has the program's thread stood in the hooked function that begins here, called from where the thread calls it now, when the epoch ended? Then it is to be called anew.
fn ends_in(t: &Block, function: u64) -> bool {
    let ends = &part(t).ends;
    !ends.in_call && ends.frame.rip == function && ends.frame.rsp == t.program_sp
}

/// As [`ends_in`], of the hooked function that the thread is in.
fn ends_where_it_waits(t: &Block) -> bool {
    let frame = t.hooked as *const Frame;
    // SAFETY: the frame of the function, on the thread's own gate stack, or none.
    unsafe { frame.as_ref() }.is_none_or(|f| ends_in(t, f.rip))
}

/// The thread's next operation in the log.
enum Turn {
    /// It is quiet.
    Quiet,
    /// This one, which comes after one of another thread.
    After(Entry),
    /// The thread has left the log.
    Left,
}

/// The thread makes an operation of this kind on the object of this name. If the log has another one it leaves that.
fn due(t: &Block, kind: EntryKind, name: u32) -> Turn {
    if left::has(t) {
        return Turn::Left;
    }
    match part(t).due() {
        Due::Quiet => Turn::Quiet,
        Due::Entry(e) if e.kind == kind && e.object == name => Turn::After(e),
        Due::End if part(t).computes_to_end() => {
            epoch::ends_elsewhere(t.slot);
            Turn::Left
        }
        _ => {
            left::leaves(t, Why::Operation);
            Turn::Left
        }
    }
}

/// That operation was made.
fn made(t: &Block) {
    if !left::has(t) {
        part(t).made();
    }
}

/// What an object is called in an entry.
fn name_of(address: u64) -> u32 {
    (address >> 2) as u32
}

fn name_of_run(run: &Runs) -> u32 {
    let run = run as *const Runs as u64;
    name_of(crate::sync::libc::side::object_of(run).unwrap_or(run))
}

/// Waits for the turn of an operation on this shard, and locks it: which operation it is.
fn lock_shard(t: &mut Block, number: u32) -> u64 {
    let (shard, point) = (shards::shard(number), point(t));
    if let Turn::After(e) = due(t, EntryKind::Ordered, number) {
        let is_due = || has_come(shard.sequence.load(Relaxed) / 2, e.value - 1);
        wait_at_point(t, point, is_due);
    }
    let n = shards::lock(number, t.slot);
    shard.last.store(t.slot + 1, Relaxed);
    n
}

/// Has a count of operations come to the one after which the thread's has its turn? Threads that have left the log may have made more.
fn has_come(count: u64, after: u64) -> bool {
    count == after || count > after && epoch::has_left()
}

/// The value that the log has next. `None`: the thread has left the log.
fn value_of(t: &Block) -> Option<u64> {
    if left::has(t) {
        return None;
    }
    match part(t).due() {
        Due::Entry(e) if e.kind == EntryKind::Value => {
            part(t).made();
            Some(e.value)
        }
        _ => {
            left::leaves(t, Why::Operation);
            None
        }
    }
}

impl Order for Follow {
    const REPLAYS: bool = false;

    #[inline(always)]
    fn enters(t: &mut Block) {
        t.cut().hooks.enters();
        part(t).enters();
    }

    #[inline(always)]
    fn leaves(t: &mut Block, returns: bool) {
        settle(t);
        let p = part(t);
        p.leaves(returns);
        if p.has_left() || p.is_at_end() {
            t.slot().signal_pending.store(1, Relaxed);
        }
    }

    fn does_not_count(t: &mut Block) {
        let p = part(t);
        p.unlogged = p.unlogged.wrapping_sub(1);
    }

    fn turn(t: &mut Block, object: &Runs) -> bool {
        let point = point(t);
        // The leader's thread has waited in vain, or was about to look.
        if !left::has(t) && part(t).due() == Due::End {
            told::answers(t, point, 0);
            return false;
        }
        if let Turn::After(e) = due(t, EntryKind::Passed, name_of_run(object)) {
            wait_at_point(t, point, || has_come(object.count(), e.value - 1));
        }
        true
    }

    fn passed(t: &mut Block, object: &Runs) {
        due(t, EntryKind::Passed, name_of_run(object));
        object.pass(t.slot);
        made(t);
    }

    fn passed_among(t: &mut Block, object: &Runs) {
        Self::passed(t, object);
    }

    fn failure(t: &mut Block) -> Option<u32> {
        let point = point(t);
        if epoch::has_left() {
            return None;
        }
        match part(t).due() {
            Due::Entry(e) if e.kind == EntryKind::Failed => {
                part(t).made();
                told::answers(t, point, e.value);
                Some(e.value as u32)
            }
            _ => None,
        }
    }

    fn failed(t: &mut Block, errno: u32) {
        if left::has(t) {
            return;
        }
        match part(t).due() {
            Due::Entry(e) if e.kind == EntryKind::Failed && e.value == u64::from(errno) => {
                part(t).made();
            }
            _ => left::leaves(t, Why::Operation),
        }
    }

    fn ordered<R>(t: &mut Block, address: u64, operation: impl FnOnce() -> R) -> R {
        let number = shards::number_of(address);
        let n = lock_shard(t, number);
        let r = operation();
        made(t);
        shards::unlock(shards::shard(number), n);
        r
    }

    fn seen(t: &mut Block, address: u64, size: usize, look: impl Fn() -> u64) -> u64 {
        let point = point(t);
        let mut there = look();
        let number = shards::number_of(address);
        let seen = match due(t, EntryKind::Seen, number) {
            Turn::Left => None,
            Turn::Quiet => {
                part(t).made();
                let known = t.known().get(address, size);
                if known.is_none() {
                    left::leaves(t, Why::Operation);
                }
                known
            }
            Turn::After(e) => {
                let shard = shards::shard(number);
                wait_at_point(t, point, || shard.sequence.load(Relaxed) / 2 >= e.value);
                made(t);
                there = look();
                value_of(t)
            }
        };
        let mut v = seen.unwrap_or(there);
        if v != there {
            match epoch::has_left() {
                // It may never have been there.
                true => {
                    left::leaves(t, Why::Operation);
                    v = there;
                }
                // What others have made of it meanwhile is nothing that the thread has seen.
                false => told::answers(t, point, v),
            }
        }
        t.known().put(address, size, v);
        v
    }

    fn loaded(t: &mut Block, _pc: u64, _address: u64, _size: usize) -> u64 {
        fails(t, Why::Event)
    }

    fn value(t: &mut Block, compute: impl FnOnce() -> u64) -> u64 {
        let point = point(t);
        let v = value_of(t).filter(|_| !epoch::has_left());
        let v = v.unwrap_or_else(compute);
        told::answers(t, point, v);
        v
    }

    /// It has its turn among those who are chosen for the object; then the program says who is, as it did.
    fn choice(t: &mut Block, object: u64) -> Option<Option<u64>> {
        let point = point(t);
        if epoch::has_left() {
            return None;
        }
        match part(t).due() {
            Due::Entry(e) if e.kind == EntryKind::Chosen && e.object == name_of(object) => {
                let chosen = &side(object).chosen;
                wait_at_point(t, point, || chosen.load(Relaxed) + 1 >= e.value);
            }
            // Another thread is.
            _ => wait_at_point(t, point, || guard::read_word(object, 4) != Some(0)),
        }
        None
    }

    fn chosen(t: &mut Block, object: u64, _n: u64) {
        due(t, EntryKind::Chosen, name_of(object));
        made(t);
    }

    fn stands_in_wait(t: &mut Block, f: &Frame, mark: u64) -> Option<u64> {
        let point = point(t);
        let p = part(t);
        if p.has_left() || p.due() != Due::End {
            return None;
        }
        let ends = &p.ends.frame;
        if !ends_in(t, f.rip) || ends.r8 != mark {
            // The program's thread was woken before.
            p.is_woken = true;
            return None;
        }
        if !epoch::others_are_at_end(t.slot) {
            told::gives_way(t, point);
            await_others(t);
            told::goes_on(t);
        }
        told::answers(t, point, p.ends.frame.r9);
        Some(p.ends.frame.r9)
    }

    fn begins_instruction(t: &mut Block, shard: u64, _f: &Frame) -> Option<(u64, u64)> {
        let n = lock_shard(t, shards::number_at(shard));
        made(t);
        Some((shard, 2 * n))
    }

    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        let is_woken = core::mem::take(&mut part(t).is_woken);
        if left::has(t) {
            return left::wait(t, word, value, deadline, shared);
        }
        if word.load(Relaxed) != value {
            return Wait::Changed;
        }
        cut::record::abandon(t);
        let c = hooked::as_call(word, value, shared);
        told::enters(t, &c, 0);
        match part(t).due() {
            // The leader's thread sleeps here at the end of the epoch. (If it doesn't, others wake it before.)
            Due::End if !is_woken && ends_where_it_waits(t) => {
                await_others(t);
                return told::wakes(t, Wait::Signal, 0);
            }
            // It has left its wait. If nobody has woken it when all others are at their ends, a handler was about to run.
            Due::End if is_woken => {
                part(t).waits = true;
                let slot = t.slot;
                await_until(t, || {
                    word.load(Relaxed) != value || epoch::others_are_at_end(slot)
                });
                part(t).waits = false;
                return match word.load(Relaxed) == value {
                    true => told::wakes(t, Wait::Signal, told::SOME_SIGNAL),
                    false => told::wakes(t, Wait::Woken, 0),
                };
            }
            // (Who only looks again has no time limit that could be over: what fails comes later.)
            Due::Entry(e) if e.kind == EntryKind::Failed && deadline.is_some_and(|d| !d.looks) => {
                return told::wakes(t, Wait::TimedOut, 0);
            }
            _ => {}
        }
        // Who looks for itself has nothing new to see before others have done something.
        let looks = deadline.is_some_and(|d| d.looks);
        let made = epoch::operations();
        let is_due = || word.load(Relaxed) != value || looks && epoch::operations() != made;
        if !wait_by_log(t, is_due) {
            left::leaves(t, Why::Stuck);
            return left::goes_on_waiting(t, word, value, deadline);
        }
        let how = match word.load(Relaxed) == value {
            true => Wait::TimedOut,
            false => Wait::Woken,
        };
        told::wakes(t, how, 0)
    }

    fn interrupted_by(t: &mut Block) -> Option<u32> {
        Some(t.cut().hooks.signal).filter(|s| *s != 0)
    }

    /// Those who wait look for themselves.
    fn wake(_t: &mut Block, _address: *const u32, _n: u32, _shared: bool) {}

    fn faulted(t: &mut Block) {
        fails(t, Why::Fault)
    }
}
