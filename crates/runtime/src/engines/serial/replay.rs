//! The replaying half of `serial`: every gate takes its answer from the next event, and the events say who runs.

use super::{cut, futex, hooked, loss, processes, reread};
use crate::code::patch;
use crate::common::apply::apply;
use crate::common::apply::cannot_map;
use crate::common::apply::tamper;
use crate::common::apply::trace_ended;
use crate::common::deliver::deliver;
use crate::common::report::{diverge, Actual};
use crate::common::rewriting::{self, Rewrites};
use crate::common::state;
use crate::engine::order::Order;
use crate::engine::wish::Wish;
use crate::engine::{Engine, RESTART};
use crate::gate::clone;
use crate::gate::robust;
use crate::log::output;
use crate::log::output::mapped;
use crate::log::ring::{self, Reader};
use crate::machine::asm::rt_exit_thread;
use crate::machine::frame::frame_hash;
use crate::machine::{guard, sys};
use crate::memory::capture::Call;
use crate::memory::of_file::OfFile;
use crate::memory::{self, files, shm};
use crate::signal::frame::{FpState, Ucontext};
use crate::signal::kernel;
use crate::sync::libc::malloc;
use crate::thread::process;
use crate::thread::schedule;
use crate::thread::signals::Siginfo;
use crate::thread::{session, slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{
    EventHeader, Instruction, Kind, FILE_NUMBER_SHIFT, FLAG_RESTARTED, SLOT_SHIFT,
};
use reprise_abi::futex as ops;
use reprise_abi::session::{divergence_kind as kinds, slot_state};
use reprise_abi::syscalls::nr;

/// Serial replay.
pub struct Replay;

/// The next event, whosever it is. Ends the process where the trace ends.
pub fn next(t: &Block) -> EventHeader {
    loop {
        match ring::peek() {
            Some(h) if processes::is_found_dead(&h) => processes::reap(t, h),
            Some(h) if h.kind == Kind::Shared as u8 && h.slot as u32 == t.slot => loss::redo(h),
            Some(h) => {
                if h.kind == Kind::End as u8 {
                    finish(h.value as i32);
                }
                return h;
            }
            None => trace_ended(),
        }
    }
}

/// Ends the way the recorded process ended.
pub fn finish(status: i32) -> ! {
    let signal = status & 0x7f;
    if signal == 0 {
        sys::exit_group(status >> 8 & 0xff);
    }
    kernel::die_now(signal as u32)
}

/// Takes the next event, which must be this thread's and of one of these kinds.
pub fn expect(t: &Block, wanted: &[Kind], actual: &Actual) -> EventHeader {
    let h = next(t);
    if h.slot as u32 != t.slot
        || !wanted.iter().any(|k| *k as u8 == h.kind)
        || h.detail != actual.detail
    {
        if h.slot as u32 == t.slot && h.kind == Kind::Cut as u8 {
            cut::replay::passed_by(t);
        }
        diverge(t, kinds::EVENT, Some(&h), actual);
    }
    h
}

/// Hands the baton to the thread of the next event and waits until it comes back.
pub fn pass_on(t: &Block) {
    // It may come back only to put something into shared memory.
    while hand_on(t, slot_state::READY) {
        schedule::wait_go(t.slot);
        t.slot().state.store(slot_state::RUNNING, Relaxed);
        files::catch_up();
    }
}

/// Hands the baton on, leaving this thread's slot in `state`; false when the next event is this thread's own.
pub fn hand_on(t: &Block, state: u32) -> bool {
    let h = next(t);
    let to = h.slot as u32;
    if to == t.slot {
        return false;
    }
    let known = (to as usize) < reprise_abi::layout::MAX_SLOTS
        && slot(to).state.load(Acquire) == slot_state::READY;
    if !known {
        diverge(t, kinds::DEADLOCK, Some(&h), &Actual::of(Kind::Resume));
    }
    t.slot().state.store(state, Release);
    session().baton.store(to + 1, Relaxed);
    schedule::go(to);
    true
}

/// A call's events, up to its result. The arguments and inputs must be those of the recording.
pub fn replay_call(
    t: &mut Block,
    c: &Call,
    hash: u64,
    entered: impl FnOnce(&mut Block, &EventHeader),
) -> (i64, EventHeader, OfFile) {
    let actual = Actual::of_call(c, hash);
    if t.entered.take().is_some() {
        // It stood in that call at the epoch's begin.
        return replay_end_of_call(t, actual);
    }
    hooked::point(t);
    let h = expect(t, &[Kind::Syscall, Kind::Enter], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    if args[..c.nargs] != c.args[..c.nargs] || h.input_hash != hash || h.nargs as usize != c.nargs {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    if h.kind == Kind::Syscall as u8 {
        let file = apply(r);
        return (h.value, h, file);
    }
    r.finish();
    entered(t, &h);
    pass_on(t);
    replay_end_of_call(t, actual)
}

fn replay_end_of_call(t: &mut Block, actual: Actual) -> (i64, EventHeader, OfFile) {
    if reread::are_there() {
        reread::look_in_call(t);
    }
    let h = expect(
        t,
        &[Kind::Exit],
        &Actual {
            kind: Kind::Exit,
            ..actual
        },
    );
    let file = apply(Reader::begin(h));
    (h.value, h, file)
}

/// shmat(2): the segment must be there before its content can be written.
fn attach(t: &mut Block, c: &Call) -> i64 {
    let actual = Actual::of_call(c, 0);
    let h = expect(t, &[Kind::Syscall], &actual);
    let mut r = Reader::begin(h);
    if r.args()[..c.nargs] != c.args[..c.nargs] {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    if sys::is_error(h.value) {
        r.finish();
        return h.value;
    }
    let at = h.value as u64;
    let size = r.section().map_or(0, |(size, ..)| size);
    if !shm::attach_again(c, at, h.flags >> FILE_NUMBER_SHIFT, size) {
        cannot_map(ring::event_number());
    }
    apply(r);
    shm::finish_attach(c, at, size);
    h.value
}

impl Replay {
    /// A thread that waits by looking at memory is before the instruction at `place`, where the recorded one gave way.
    pub fn gave_way(t: &mut Block, frame: &mut Frame, place: u64) {
        t.slot().last_pc.store(place, Relaxed);
        crate::log::debugger::show_frame(t, frame);
        let (looks, args) = (t.spin().count(), [place]);
        let actual = Actual {
            detail: Instruction::GaveWay as u32,
            value: looks,
            args: &args,
            ..Actual::of(Kind::Instruction)
        };
        let h = expect(t, &[Kind::Instruction], &actual);
        let mut r = Reader::begin(h);
        if h.value != looks || r.args()[0] != place {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        r.finish();
        t.spin().restart();
        Self::signal_point(t, frame);
    }
}

impl Rewrites for Replay {
    type Busy = ();
}

impl Engine for Replay {
    const LIVE: bool = false;
    const IMMEDIATE: bool = false;

    fn fills(block: &mut Block) {
        block.engine.put(cut::CutState::default());
    }

    fn takes_over(_first: bool) {
        reread::prepare();
    }

    fn before_hooks(t: &mut Block) {
        // What finds room for itself is to find the same as in the recording, which has replaced those by now.
        rewriting::replay_with_code::<Self>(t);
    }

    #[inline(always)]
    fn rewrites_again(t: &mut Block) {
        rewriting::replay::<Self>(t);
    }

    fn at_look(t: &mut Block, frame: &mut Frame, place: u64) -> bool {
        Self::gave_way(t, frame, place);
        true
    }

    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let hash = c.input_hash();
        if let Some(signal) = crate::gate::signals::ends_us(t, c, process::visible_pid()) {
            replay_call(t, c, hash, |_, _| {});
            processes::end(t, signal as i32);
            kernel::die_now(signal);
        }
        let (r, h, file) = replay_call(t, c, hash, |_, _| {});
        output::follow(c, r);
        let number = h.flags >> FILE_NUMBER_SHIFT;
        if number != 0 {
            mapped::redo(c, r, number, file.offset, file.hash);
        }
        if h.flags & FLAG_RESTARTED != 0 {
            RESTART
        } else {
            r
        }
    }

    fn computed(t: &mut Block, c: &Call, result: i64) -> i64 {
        Self::acted(t, c, |_| result)
    }

    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64 {
        let (r, h, _) = replay_call(t, c, 0, |_, _| {});
        let result = act(Some(r));
        if r != result {
            let actual = Actual {
                kind: Kind::Syscall,
                detail: c.nr as u32,
                value: result,
                input_hash: 0,
                args: &c.args,
            };
            diverge(t, kinds::STATE, Some(&h), &actual);
        }
        r
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        if c.nr == nr::SHMAT {
            return attach(t, c);
        }
        let (r, h, file) = replay_call(t, c, 0, |_, _| {});
        if !memory::redo(c, r, &file, h.flags >> FILE_NUMBER_SHIFT) {
            cannot_map(ring::event_number() - 1);
        }
        crate::sync::hook::after_call(t, c, r);
        rewriting::replay_with_code::<Replay>(t);
        crate::gate::cpuid::after_call::<Self>(t, c, r, [0; 2]);
        r
    }

    fn futex(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let address = c.args[0];
        let waits_for_owner = matches!(
            crate::memory::futex::command(c),
            ops::FUTEX_LOCK_PI | ops::FUTEX_LOCK_PI2
        );
        let (r, h, _) = replay_call(t, c, 0, |_, _| {
            if waits_for_owner {
                futex::mark_waiters(address);
            }
        });
        if h.flags & FLAG_RESTARTED != 0 {
            RESTART
        } else {
            r
        }
    }

    fn sched_yield(t: &mut Block, c: &mut Call) -> i64 {
        Self::computed(t, c, 0)
    }

    fn instruction(t: &mut Block, which: Instruction) -> (u64, u64) {
        let actual = Actual {
            detail: which as u32,
            ..Actual::of(Kind::Instruction)
        };
        let h = expect(t, &[Kind::Instruction], &actual);
        let mut r = Reader::begin(h);
        let aux = r.args()[0];
        r.finish();
        (h.value as u64, aux)
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        if t.hook_ends && !hooked::was_gate(t, frame) {
            return;
        }
        loop {
            let Some(h) = ring::peek() else { return };
            // Killed by a signal that no handler saw: where it was then, after its last gate, left no trace.
            if h.kind == Kind::End as u8 && h.value & 0x7f != 0 {
                finish(h.value as i32);
            }
            if processes::is_found_dead(&h) {
                processes::reap(t, h);
                continue;
            }
            if h.slot as u32 != t.slot {
                return;
            }
            tamper();
            match Kind::from_u8(h.kind) {
                Some(Kind::Signal) => deliver(t, frame, FpState::Live, h),
                Some(Kind::Hash) => state::check(t, frame, &h),
                Some(Kind::Shared) => loss::redo(h),
                // They have places of their own.
                _ if h.yields_elsewhere() => return,
                Some(Kind::Yield) => take_turn(t, h),
                Some(Kind::Patch) if patch::comes_with_code(h.detail) => {
                    rewriting::replay_with_code::<Replay>(t)
                }
                _ => return cut::replay::plant_if_next(t),
            }
        }
    }

    fn fault(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, _can: bool) -> bool {
        if reread::gives_way_at_fault(t) {
            return true;
        }
        let mc = &uc.mc;
        t.slot().last_pc.store(mc.rip, Relaxed);
        let args = [
            info.address(),
            info.code() as u64,
            frame_hash(&mc.to_frame()),
        ];
        let actual = Actual {
            kind: Kind::Fault,
            detail: info.signal(),
            value: mc.rip as i64,
            input_hash: 0,
            args: &args,
        };
        let h = expect(t, &[Kind::Fault], &actual);
        let mut r = Reader::begin(h);
        let recorded = r.args();
        if h.value != mc.rip as i64 || recorded[..3] != args {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        r.finish();
        false
    }

    fn goes_on(t: &mut Block, uc: &mut Ucontext) {
        cut::replay::goes_on(t, uc);
    }

    const BORN: u32 = slot_state::READY;

    fn thread_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        let (r, h, _) = replay_call(t, c, 0, |_, _| {});
        if sys::is_error(r) {
            hooked::point(t);
            return r;
        }
        let child = h.flags >> SLOT_SHIFT;
        reread::is_born(child);
        clone::wait_for_slot::<Self>(child);
        slot(child).visible_tid.store(r as u32, Relaxed);
        let tid = clone::start_thread::<Self>(t, wish, child, t.slot_process(), start, |_, _| {});
        if sys::is_error(tid) {
            crate::common::start::cannot_start(tid);
        }
        hooked::point(t);
        for address in wish.told_by_parent() {
            Self::ordered(t, address, || guard::write(address, &(r as u32)));
        }
        r
    }

    fn process_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        processes::create(t, c, wish, start)
    }

    fn process_start(t: &mut Block) {
        processes::start(t);
    }

    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        processes::exec(t, c)
    }

    fn image_start(t: &mut Block) {
        t.spin().begin(false);
        processes::image_start(t);
    }

    fn process_dies(t: &mut Block, signal: u32) {
        processes::end(t, signal as i32);
    }

    fn thread_start(t: &mut Block) {
        kernel::block_all();
        t.spin().begin(false);
        schedule::wait_go(t.slot);
        t.slot().state.store(slot_state::RUNNING, Relaxed);
        let h = expect(t, &[Kind::ThreadStart], &Actual::of(Kind::ThreadStart));
        Reader::begin(h).finish();
        reread::thread_has_begun(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, frame: &Frame) -> ! {
        malloc::thread_ends::<Self>(t);
        replay_call(t, c, 0, |_, _| {});
        check_hashes(t, frame);
        // Futexes that a waiter inherits come with the event.
        hooked::point(t);
        let write = |t: &mut Block, address, word: u32| {
            Self::ordered(t, address, || guard::write(address, &word));
        };
        robust::announce_death(t, write, |_, _, _| {}, |_| None);
        hooked::point(t);
        let last = process::entry().live_threads.load(Relaxed) == 1;
        let args = [c.args[0]];
        let actual = Actual {
            kind: Kind::ThreadExit,
            detail: last as u32,
            value: c.args[0] as i64,
            input_hash: 0,
            args: &args,
        };
        let h = expect(t, &[Kind::ThreadExit], &actual);
        apply(Reader::begin(h));
        if last {
            processes::end(t, (c.args[0] as i32 & 0xff) << 8);
            sys::exit_group(c.args[0] as i32);
        }
        process::entry().live_threads.fetch_sub(1, Relaxed);
        session().live_threads.fetch_sub(1, Relaxed);
        if reread::others_go_on(t) {
            hand_on(t, slot_state::EXITING);
        }
        // SAFETY: nothing of this thread is needed any more.
        unsafe { rt_exit_thread() }
    }

    fn process_exit(t: &mut Block, c: &Call, frame: &Frame) -> ! {
        replay_call(t, c, 0, |_, _| {});
        check_hashes(t, frame);
        processes::end(t, (c.args[0] as i32 & 0xff) << 8);
        sys::exit_group(c.args[0] as i32)
    }

    #[inline(always)]
    fn defers(t: &mut Block, _frame: &Frame) -> bool {
        reread::defers(t)
    }

    #[inline(always)]
    fn passes_point_under_mask(t: &mut Block, frame: &mut Frame) {
        if reread::look_under_mask(t, frame) {
            Self::signal_point(t, frame);
        }
    }

    #[inline(always)]
    fn passes_point(t: &mut Block, frame: &mut Frame) {
        while reread::look(t, frame) {
            // What the thread does alone, before others go on, is first. Its handler belongs to the epoch after that.
            Self::signal_point(t, frame);
        }
    }

    fn reenters(t: &mut Block, _frame: &mut Frame) {
        reread::begins(t);
        if t.entered.is_none() {
            let h = expect(t, &[Kind::Resume], &Actual::of(Kind::Resume));
            Reader::begin(h).finish();
            cut::replay::plant_if_next(t);
        }
    }

    fn cut(t: &mut Block, uc: &mut Ucontext) {
        cut::replay::ask(t, uc);
    }

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        cut::replay::trap(t, signal, uc)
    }
}

/// The hashes that come next are this thread's: compares them.
pub fn check_hashes(t: &mut Block, frame: &Frame) {
    while let Some(h) = ring::peek() {
        if h.kind != Kind::Hash as u8 || h.slot as u32 != t.slot {
            return;
        }
        state::check(t, frame, &h);
    }
}

/// The thread gave up the baton here: others run, then it goes on.
pub fn take_turn(t: &mut Block, h: EventHeader) {
    Reader::begin(h).finish();
    pass_on(t);
    let h = expect(t, &[Kind::Resume], &Actual::of(Kind::Resume));
    Reader::begin(h).finish();
}
