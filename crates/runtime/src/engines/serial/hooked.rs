//! Synchronisation and heap by the runtime under `serial` (`record --hooks`; DESIGN 5): what it takes to run, one thread at a time, a program whose
//! locks are the runtime's own (DoublePlay's uniprocessor execution).
//!
//! **Order.** Only the holder of the baton is in a hooked function. So an operation is made at once, and nothing of it is logged: what it finds
//! follows from the slices, as for all else that the program does. A thread that would have to wait hands the baton on *inside* the wait, which is in
//! the log as the call of futex(2) that libc would make there: its beginning, and how it ended. Waking somebody only makes a thread ready, which in a
//! replay the slices say. Recording and replay run the same code, down to the wait itself.
//!
//! **Ends of slices.** The end of a hooked function is a gate for whoever wants the thread to stop: a slice that is over, a waiter who is to have
//! its turn at last ([`futex`]), a signal that has come. What names it is its number: how many hooked functions the thread has called since the last
//! such end, or the last cut. It is only logged where something happens. For this every call has to be counted, so there are no short ways
//! ([`crate::sync::hook::fast`]).
//!
//! **Points.** In the slices of an epoch ([`super::follow`]) operations are made in an order that was there before. Where one has waited for its turn the thread
//! has yielded, in the middle of a hooked function; and what an operation was told that memory doesn't say (that it fails, the time) is an event, too. Both are named by
//! their number: how often the thread has asked for either since the epoch's begin. Where there is no epoch nobody asks.
//!
//! **Locked instructions** need no stubs: an instruction whose effects nobody else can see half of is as good as any other, and a slice ends
//! before or after it. Where they stand in the code a replay has them where the recording had them. In a recording in epochs they have stubs, for the leader, and a thread that waits by
//! such an instruction is hardly ever anywhere else: its slice ends there ([`YIELD_AT_INSTRUCTION`]).

use super::baton::{self, Wait as Slept};
use super::chaos;
use super::cut;
use super::futex;
use super::record::Record;
use super::replay::{expect, pass_on, take_turn, Replay};
use super::reread;
use crate::common::report::{diverge, Actual};
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{Deadline, Wait};
use crate::log::debugger;
use crate::log::events;
use crate::log::ring::{self, Reader};
use crate::memory::capture::Call;
use crate::memory::futex::key;
use crate::signal::kernel;
use crate::thread::schedule;
use crate::thread::{session, Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::event::{EventHeader, Instruction, Kind, YIELD_AT_INSTRUCTION, YIELD_FOR_TURN};
use reprise_abi::futex::{FUTEX_PRIVATE_FLAG, FUTEX_WAIT_BITSET};
use reprise_abi::session::{divergence_kind as kinds, FLAG_EPOCHS};
use reprise_abi::syscalls::{self, nr};

const EINTR: i64 = -4;
const ETIMEDOUT: i64 = -110;
const ANY: u32 = u32::MAX;
/// What a thread keeps of the hooked functions that it calls.
#[derive(Default)]
pub struct Hooks {
    /// Calls since the last end that was logged, or the last cut.
    calls: i64,
    /// Record: the last one has ended, and nothing was to happen there.
    has_ended: bool,
    /// Replay: the next event is at the end of this call; 0: it isn't, as far as is known.
    due: i64,
    /// Replay: the event that was next when that was asked last.
    looked_at: u64,
    /// The signal that ended the last wait; 0: it can't be said.
    pub signal: u32,
    /// Points that the thread has come to.
    points: i64,
    /// Replay: the event that was next when it was asked last what comes at a point, plus 1, ...
    point_looked_at: u64,
    /// ... and the point at which it comes; 0: it comes at none.
    point_due: i64,
    /// Instructions with stubs that the thread has come to.
    instructions: i64,
    /// Replay: the event that was next when it was asked last whether the thread gives way at one, plus 1, ...
    instruction_looked_at: u64,
    /// ... and at which one; 0: at none.
    instruction_due: i64,
}

impl Hooks {
    /// Calls are counted anew.
    pub fn restart(&mut self) {
        (self.calls, self.due) = (0, 0);
    }

    /// A hooked function begins.
    #[inline(always)]
    pub fn enters(&mut self) {
        self.calls += 1;
        self.has_ended = false;
    }

    /// Calls since the last end that was logged.
    pub fn calls(&self) -> i64 {
        self.calls
    }

    /// The thread comes to a point: its number.
    pub fn comes_to_point(&mut self) -> i64 {
        self.points += 1;
        self.points
    }

    /// Replay: the thread's next event is the end of its call with this number.
    pub fn expect(&mut self, call: i64) {
        self.due = call;
    }
}

/// The wait as a call of the program's: what the log says of it.
pub fn as_call(word: &AtomicU32, value: u32, shared: bool) -> Call {
    let private = if shared { 0 } else { FUTEX_PRIVATE_FLAG };
    let args = [
        word.as_ptr() as u64,
        (FUTEX_WAIT_BITSET | private) as u64,
        value as u64,
        0,
        0,
        ANY as u64,
    ];
    Call::new(nr::FUTEX, args, syscalls::lookup(nr::FUTEX))
}

/// Do others want that the thread's slice ends here?
fn is_over(t: &Block) -> bool {
    let s = session();
    let over = t.cut().gives_way || s.slice_over.load(Relaxed) != 0;
    over && s.ready_count.load(Relaxed) != 0 && !crate::gate::ptrace::holds(t)
}

/// Record: the hooked function that ends here is a gate, if anything is to happen; that it is one is logged then.
pub fn is_gate(t: &mut Block, frame: &Frame) -> bool {
    t.cut().hooks.has_ended = true;
    if t.slot().signal_pending.load(Relaxed) == 0 && !is_over(t) {
        return false;
    }
    // A signal that comes from now on finds that it is either delivered here or at a later gate.
    kernel::block_all();
    let is = t.pending.first(t.mask).is_some() || is_over(t);
    if is {
        say_ended(t, frame);
    } else {
        t.slot().signal_pending.store(0, Release);
    }
    kernel::sync_mask(t);
    is
}

fn say_ended(t: &mut Block, frame: &Frame) {
    cut::record::abandon(t);
    let which = Instruction::HookEnded as u32;
    let calls = t.cut().hooks.calls;
    events::plain(Kind::Instruction, t.slot, which, calls, &[frame.rip]);
    t.cut().hooks.restart();
    t.cut().hooks.has_ended = false;
}

/// Record: an epoch begins where the thread is. If that is the end of a hooked function at which nothing else was to happen it is logged now.
pub fn tells_end(t: &mut Block, frame: &Frame) {
    if t.cut().hooks.has_ended {
        say_ended(t, frame);
    }
}

/// Record: the thread is at a gate.
pub fn is_at_gate(t: &mut Block) {
    t.cut().hooks.has_ended = false;
}

/// Replay: was it one?
pub fn was_gate(t: &mut Block, frame: &Frame) -> bool {
    t.slot().signal_pending.store(0, Relaxed);
    let calls = t.cut().hooks.calls;
    if t.cut().hooks.due != calls {
        return false;
    }
    t.slot().last_pc.store(frame.rip, Relaxed);
    debugger::show_frame(t, frame);
    let args = [frame.rip];
    let actual = Actual {
        detail: Instruction::HookEnded as u32,
        value: calls,
        args: &args,
        ..Actual::of(Kind::Instruction)
    };
    let h = expect(t, &[Kind::Instruction], &actual);
    let mut r = Reader::begin(h);
    if h.value != calls || r.args()[0] != frame.rip {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    r.finish();
    t.cut().hooks.restart();
    true
}

/// Replay: the thread comes to a point, where it gives way if it did; what it was told there.
#[inline(always)]
pub fn point(t: &mut Block) -> Option<u64> {
    match reread::are_there() {
        true => point_of_epoch(t),
        false => None,
    }
}

fn point_of_epoch(t: &mut Block) -> Option<u64> {
    let point = t.cut().hooks.comes_to_point();
    loop {
        let next = ring::event_number() + 1;
        let hooks = &mut t.cut().hooks;
        if hooks.point_looked_at != next {
            hooks.point_looked_at = next;
            hooks.point_due = ring::peek()
                .filter(|h| u32::from(h.slot) == t.slot && is_at_point(h))
                .map_or(0, |h| h.value);
        }
        if hooks.point_due != point {
            return None;
        }
        match ring::peek()? {
            h if h.kind == Kind::Yield as u8 => take_turn(t, h),
            h => {
                let mut r = Reader::begin(h);
                let answer = r.args()[0];
                r.finish();
                return Some(answer);
            }
        }
    }
}

fn is_at_point(h: &EventHeader) -> bool {
    match Kind::from_u8(h.kind) {
        Some(Kind::Yield) => h.detail == YIELD_FOR_TURN,
        Some(Kind::Instruction) => h.detail == Instruction::HookAnswered as u32,
        _ => false,
    }
}

/// Record: the thread comes to an instruction of its own that has a stub. Who waits by such instructions is hardly ever anywhere else, and comes to no gate: its slice ends here.
#[inline(always)]
fn comes_to_instruction(t: &mut Block) {
    if session().flags & FLAG_EPOCHS == 0 {
        return;
    }
    t.cut().hooks.instructions += 1;
    if is_over(t) {
        cut::record::abandon(t);
        t.cut().interrupted = true;
        let number = t.cut().hooks.instructions;
        Record::yield_as(t, YIELD_AT_INSTRUCTION, number);
    }
}

/// Replay: as above.
fn comes_to_instruction_again(t: &mut Block) {
    if !reread::are_there() {
        return;
    }
    let next = ring::event_number() + 1;
    let hooks = &mut t.cut().hooks;
    hooks.instructions += 1;
    if hooks.instruction_looked_at != next {
        hooks.instruction_looked_at = next;
        let is_it =
            |h: &EventHeader| h.kind == Kind::Yield as u8 && h.detail == YIELD_AT_INSTRUCTION;
        hooks.instruction_due = ring::peek()
            .filter(|h| u32::from(h.slot) == t.slot && is_it(h))
            .map_or(0, |h| h.value);
    }
    if hooks.instruction_due == hooks.instructions {
        if let Some(h) = ring::peek() {
            take_turn(t, h);
        }
    }
}

/// Replay: there were events in this function, in this stub or since the last one: what is next may be due before the next gate.
fn plants_what_is_due(t: &mut Block) {
    let next = ring::event_number();
    if t.cut().hooks.looked_at != next {
        t.cut().hooks.looked_at = next;
        cut::replay::plant_if_next(t);
    }
}

impl Order for Record {
    const REPLAYS: bool = false;
    fn begins_instruction(t: &mut Block, _shard: u64, _f: &Frame) -> Option<(u64, u64)> {
        comes_to_instruction(t);
        None
    }
    /// Runs are kept, since memory is to be what it is where they are needed.
    #[inline(always)]
    fn passed(t: &mut Block, object: &Runs) {
        object.pass(t.slot);
    }
    #[inline(always)]
    fn passed_among(t: &mut Block, object: &Runs) {
        object.pass(t.slot);
    }
    #[inline(always)]
    fn enters(t: &mut Block) {
        t.cut().hooks.enters();
    }
    #[inline(always)]
    fn leaves(t: &mut Block, _returns: bool) {
        let s = session();
        if s.ready_count.load(Relaxed) == 0 {
            return;
        }
        if chaos::ends_slice_at_hook() {
            s.slice_over.store(1, Relaxed);
        }
        if is_over(t) {
            // As for a signal, the function takes the long way out.
            t.slot().signal_pending.store(1, Release);
        }
    }
    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        if word.load(Acquire) != value {
            return Wait::Changed;
        }
        cut::record::abandon(t);
        let c = as_call(word, value, shared);
        super::record::note(t, &c, 0);
        // Whoever it has woken in this function has its turn now.
        t.cut().gives_way = false;
        let steps_back =
            deadline.is_some_and(|d| d.looks) && baton::step_back(t, |t| events::enter(t.slot, 0));
        let how = match steps_back {
            true => {
                super::arrived::arrived(t);
                Slept::TimedOut
            }
            false => {
                let end = deadline.map(|d| (d.at, d.realtime));
                let key = key(c.args[0], !shared);
                futex::wait(t, &c, key, ANY, end).0
            }
        };
        let (result, signal, wait) = match how {
            Slept::Woken => (0, 0, Wait::Woken),
            Slept::TimedOut => (ETIMEDOUT, 0, Wait::TimedOut),
            Slept::Interrupted => {
                let first = t.pending.first(t.mask).map_or(0, |s| s.signal());
                (EINTR, first, Wait::Signal)
            }
        };
        t.cut().hooks.signal = signal;
        events::plain(
            Kind::Exit,
            t.slot,
            c.nr as u32,
            result,
            &[u64::from(signal)],
        );
        wait
    }
    fn wake(t: &mut Block, address: *const u32, n: u32, shared: bool) {
        let key = key(address as u64, !shared);
        futex::wake(t, &schedule::lock(), key, ANY, n);
    }
    fn interrupted_by(t: &mut Block) -> Option<u32> {
        Some(t.cut().hooks.signal).filter(|s| *s != 0)
    }
}

impl Order for Replay {
    /// Nothing of an operation is in the log.
    const REPLAYS: bool = false;
    #[inline(always)]
    fn passed(t: &mut Block, object: &Runs) {
        object.pass(t.slot);
    }
    #[inline(always)]
    fn passed_among(t: &mut Block, object: &Runs) {
        object.pass(t.slot);
    }
    #[inline(always)]
    fn shows() -> bool {
        debugger::traces()
    }
    fn turn(t: &mut Block, _object: &Runs) -> bool {
        // What is answered is that something comes first.
        point(t).is_none()
    }
    fn failure(t: &mut Block) -> Option<u32> {
        point(t).map(|errno| errno as u32)
    }
    #[inline(always)]
    fn ordered<R>(t: &mut Block, _address: u64, operation: impl FnOnce() -> R) -> R {
        point(t);
        operation()
    }
    fn seen(t: &mut Block, _address: u64, _size: usize, look: impl Fn() -> u64) -> u64 {
        point(t).unwrap_or_else(look)
    }
    fn value(t: &mut Block, compute: impl FnOnce() -> u64) -> u64 {
        point(t).unwrap_or_else(compute)
    }
    fn choice(t: &mut Block, _object: u64) -> Option<Option<u64>> {
        point(t);
        None
    }
    fn stands_in_wait(t: &mut Block, _f: &Frame, _mark: u64) -> Option<u64> {
        let told = point(t);
        if told.is_some() {
            t.cut().hooks.signal = 0;
        }
        told
    }
    fn begins_instruction(t: &mut Block, _shard: u64, _f: &Frame) -> Option<(u64, u64)> {
        comes_to_instruction_again(t);
        point(t);
        plants_what_is_due(t);
        None
    }
    #[inline(always)]
    fn enters(t: &mut Block) {
        t.cut().hooks.enters();
    }
    #[inline(always)]
    fn leaves(t: &mut Block, _returns: bool) {
        point(t);
        plants_what_is_due(t);
        if t.cut().hooks.due == t.cut().hooks.calls {
            t.slot().signal_pending.store(1, Release);
        }
    }
    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        _deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        if word.load(Acquire) != value {
            return Wait::Changed;
        }
        let c = as_call(word, value, shared);
        let actual = Actual::of_call(&c, 0);
        let h = expect(t, &[Kind::Enter], &actual);
        let mut r = Reader::begin(h);
        if r.args()[..c.nargs] != c.args[..c.nargs] {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        r.finish();
        pass_on(t);
        let kind = Kind::Exit;
        let h: EventHeader = expect(t, &[kind], &Actual { kind, ..actual });
        let mut r = Reader::begin(h);
        t.cut().hooks.signal = r.args()[0] as u32;
        r.finish();
        match h.value {
            0 => Wait::Woken,
            ETIMEDOUT => Wait::TimedOut,
            _ => Wait::Signal,
        }
    }
    /// Who goes on, and when, is what the slices say.
    #[inline(always)]
    fn wake(_t: &mut Block, _address: *const u32, _n: u32, _shared: bool) {}
    fn interrupted_by(t: &mut Block) -> Option<u32> {
        Some(t.cut().hooks.signal).filter(|s| *s != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_zeros_has_the_default() {
        // SAFETY: plain integers.
        let h: Hooks = unsafe { core::mem::zeroed() };
        assert_eq!((h.calls, h.due, h.looked_at, h.signal), (0, 0, 0, 0));
        assert_eq!((h.points, h.point_looked_at, h.point_due), (0, 0, 0));
    }

    #[test]
    fn after_its_end_or_a_cut_calls_are_counted_anew() {
        let mut h = Hooks {
            calls: 7,
            ..Hooks::default()
        };
        h.expect(7);
        h.restart();
        // What was expected is over.
        assert_eq!((h.calls, h.due), (0, 0));
    }
}
