//! What the gates of a replay ask the engine for.

use super::entries::{event_is_next, look};
use super::events::{answer, attach, change_at_once, expect, plain, replay_call};
use super::faults::{self, Met};
use super::life::{runs_now, stay_if_done, take_slot};
use super::signals::look_ahead;
use super::Replay;
use crate::common::apply::{cannot_map, tamper};
use crate::common::deliver::deliver;
use crate::common::rebuilt;
use crate::common::report::{diverge, Actual};
use crate::common::rewriting::{self, Rewrites};
use crate::engine::wish::Wish;
use crate::engine::{Engine, RESTART};
use crate::engines::order::faults::arguments;
use crate::engines::order::listing;
use crate::engines::order::{announce_death, cut, processes, state, turns, unlogged};
use crate::gate::clone;
use crate::log::awaited;
use crate::log::busy::{self, busy};
use crate::log::debugger::CodeAsRecorded;
use crate::log::output::mapped;
use crate::log::ring::{self, Reader};
use crate::log::total;
use crate::machine::asm::rt_exit_thread;
use crate::machine::sys;
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::futex::word_changed_at_once;
use crate::memory::of_file::OfFile;
use crate::memory::space;
use crate::races;
use crate::signal::frame::{FpState, Ucontext};
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::signals::Siginfo;
use crate::thread::{session, slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{
    EventHeader, Instruction, Kind, FILE_NUMBER_SHIFT, FLAG_RESTARTED, SLOT_SHIFT,
};
use reprise_abi::session::{divergence_kind as kinds, slot_state};
use reprise_abi::syscalls::nr;

/// A signal comes next, and not here: functions that count nothing, and leave by a short way, are to leave by the long one, which looks for it.
fn look_again(t: &Block) {
    t.slot().signal_pending.store(1, Relaxed);
}

impl Rewrites for Replay {
    type Busy = busy::Busy;

    fn settle(t: &mut Block) {
        super::settle(t);
    }

    fn is_busy(t: &Block) -> Option<Self::Busy> {
        busy::busy_too(t)
    }

    fn among_threads(t: &mut Block, site: u64, stamp: u64, rewrite: impl FnOnce()) {
        turns::wait_for_stamp(t, stamp);
        // Not before: the debugger wants its breakpoints while others run.
        let code = CodeAsRecorded::begin();
        // Where the replay looks for a place in this moment the call goes on as it is: nothing else depends on it.
        cut::patches::unless_near(site, rewrite);
        drop(code);
        turns::pass_stamp(stamp);
    }

    fn alone(t: &mut Block) {
        super::wait_for_others_to_end(t);
    }
}

impl Engine for Replay {
    const LIVE: bool = false;
    const IMMEDIATE: bool = false;
    const KERNEL_PLACES: bool = true;

    fn fills(block: &mut Block) {
        block.engine.put(crate::engines::order::Local::default());
    }

    #[inline(always)]
    fn rewrites_again(t: &mut Block) {
        rewriting::replay::<Self>(t);
    }

    fn before_hooks(t: &mut Block) {
        listing::program_begins();
        // What was replaced before has its room first.
        rewriting::replay_with_code::<Self>(t);
    }

    fn lately(t: &Block) -> impl Iterator<Item = u64> {
        t.order().trail.words()
    }

    fn diverges(t: &Block, pc: u64) {
        listing::note_caller(t, pc);
    }

    fn gives_up() -> ! {
        super::gives_up()
    }

    fn prepares_process(_t: &Block, child: &mut Block, wish: &Wish) {
        child.order().copied = !wish.shares_memory() && crate::engines::order::copies::is_needed();
    }

    fn after_fork() {
        super::faults::after_fork();
    }

    fn is_vacant(i: u32, _state: u32) -> bool {
        super::is_vacant(i)
    }

    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let hash = c.input_hash();
        if let Some(signal) = crate::gate::signals::ends_us(t, c, process::visible_pid()) {
            answer(t, c, hash);
            Self::process_dies(t, signal);
            kernel::die_now(signal);
        }
        c.shorten();
        let _busy = busy(t);
        let now = |_: &mut Block, h: &EventHeader| h.value;
        let (r, h, _) = replay_call(t, c, hash, now, |_, h, file| {
            let number = h.flags >> FILE_NUMBER_SHIFT;
            if number != 0 {
                mapped::redo(c, h.value, number, file.offset, file.hash);
            }
        });
        if h.flags & FLAG_RESTARTED != 0 {
            RESTART
        } else {
            r
        }
    }

    fn computed(t: &mut Block, c: &Call, result: i64) -> i64 {
        let _busy = busy(t);
        replay_call(t, c, 0, |_, _| result, |_, _, _| {}).0
    }

    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64 {
        let _busy = busy(t);
        replay_call(t, c, 0, |_, h| act(Some(h.value)), |_, _, _| {}).0
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        let _busy = busy(t);
        if c.nr == nr::SHMAT {
            return attach(t, c);
        }
        // The recording held the lock from the first stamp to beyond the second one: until that is passed, nobody else is here.
        let c = &*c;
        let redo = |t: &mut Block, h: &EventHeader, file: &OfFile| {
            // Others may look for room for a stub.
            let _lock = space::lock();
            let r = h.value;
            if !memory::redo(c, r, file, h.flags >> FILE_NUMBER_SHIFT) {
                cannot_map(ring::event_number() - 1);
            }
            if crate::thread::in_force::looks_for_races() {
                races::calls::mapped(c, r);
            }
            crate::gate::cpuid::after_call::<Self>(t, c, r, [0; 2]);
            crate::sync::hook::after_call(t, c, r);
            // What is searched for locked instructions has its functions replaced already.
            rewriting::replay_with_code::<Replay>(t);
        };
        let (r, ..) = replay_call(t, c, 0, |_, h| h.value, redo);
        r
    }

    fn futex(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let _busy = busy(t);
        if crate::thread::in_force::looks_for_races() {
            races::wakes(t, c.args[0]);
        }
        if let Some(word) = word_changed_at_once(c) {
            return change_at_once(t, c, word);
        }
        let (r, h, _) = answer(t, c, 0);
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
        let (h, args) = plain(t, Kind::Instruction, Some(which as u32));
        (h.value as u64, args[0])
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        t.slot().signal_pending.store(0, Relaxed);
        tamper();
        // Handlers come only between operations; while some are left to be made quietly, none is due.
        while event_is_next(t) {
            let Some(h) = ring::peek() else { return };
            match Kind::from_u8(h.kind) {
                Some(Kind::Signal) if rebuilt::same_code(h.value as u64, frame.rip) => {
                    let mut r = Reader::begin(h);
                    let [calls, stamp, ..] = r.args();
                    // The same place, but another call. (What was rebuilt may call what it likes.)
                    if calls != unlogged::calls(t) && !rebuilt::on() {
                        return look_again(t);
                    }
                    turns::take(t, stamp);
                    if crate::thread::in_force::looks_for_races() {
                        races::calls::delivered(t);
                    }
                    t.order().put_off = 0;
                    deliver(t, frame, FpState::Live, h);
                }
                Some(Kind::Signal) => return look_again(t),
                Some(Kind::Fault) => return faults::await_turn(t),
                Some(Kind::Cut) => return cut::replay::plant(t, h),
                Some(Kind::Hash) if !t.hook_ends && h.detail == state::AT_GATE => {
                    state::check(t, frame, &h)
                }
                Some(Kind::Patch) if crate::code::patch::comes_with_code(h.detail) => {
                    rewriting::replay_with_code::<Replay>(t)
                }
                _ => return,
            }
        }
        stay_if_done(t);
    }

    fn fault(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, can: bool) -> bool {
        let met = faults::meet(t, info, uc, can);
        if matches!(met, Met::Again) {
            return true;
        }
        let mc = &uc.mc;
        t.slot().last_pc.store(mc.rip, Relaxed);
        let args = arguments(info, mc);
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
        // The registers' hash would hold addresses of dead stack; place and address tell enough.
        let same_address =
            recorded[0] == args[0] || rebuilt::on() && rebuilt::same_object(recorded[0], args[0]);
        if !rebuilt::same_code(h.value as u64, mc.rip) || !same_address || recorded[1] != args[1] {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        if faults::has_stamp(&h) && can && matches!(met, Met::Other) {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        r.finish();
        if faults::has_stamp(&h) {
            faults::came(t, recorded[4]);
        }
        false
    }

    fn stepped(t: &mut Block, uc: &mut Ucontext) -> bool {
        faults::stepped(t, uc)
    }

    fn goes_on(t: &mut Block, _uc: &mut Ucontext) {
        look_ahead(t);
        stay_if_done(t);
    }

    const BORN: u32 = slot_state::BLOCKED;

    fn thread_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        let _busy = busy(t);
        let (r, h, _) = answer(t, c, 0);
        if sys::is_error(r) {
            return r;
        }
        let child = h.flags >> SLOT_SHIFT;
        take_slot(t, child);
        slot(child).visible_tid.store(r as u32, Relaxed);
        if crate::thread::in_force::looks_for_races() {
            races::thread_begins(t, child);
        }
        let tid = clone::start_thread::<Self>(t, wish, child, t.slot_process(), start, |_, _| {});
        if sys::is_error(tid) {
            crate::common::start::cannot_start(tid);
        }
        crate::engines::order::publish_tid::<Self>(t, wish, r as u32);
        total::join(child);
        crate::thread::schedule::go(child);
        r
    }

    fn process_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        processes::make_again(t, c, wish, start)
    }

    fn process_start(t: &mut Block) {
        processes::begin_again(t);
    }

    fn thread_start(t: &mut Block) {
        kernel::block_all();
        crate::thread::schedule::wait_go(t.slot);
        total::begin(t);
        let _busy = busy(t);
        runs_now(t);
        if crate::thread::in_force::looks_for_races() {
            races::thread_starts(t);
        }
        let stamp = plain(t, Kind::ThreadStart, Some(0)).1[0];
        turns::take(t, stamp);
        look_ahead(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        crate::sync::libc::malloc::thread_ends::<Self>(t);
        let busy = busy(t);
        replay_call(t, c, 0, |_, _| 0, |_, _, _| {});
        if crate::thread::in_force::looks_for_races() {
            races::thread_ends(t);
        }
        announce_death::<Self>(t);
        // Whether it is the last one, of several that end at the same time, only the recording knows.
        let (h, args) = plain(t, Kind::ThreadExit, None);
        turns::take(t, args[1]);
        if h.detail != 0 {
            // It is cleared already.
            t.clear_tid = 0;
            Self::process_dies(t, 0);
            sys::exit_group(c.args[0] as i32);
        }
        session().live_threads.fetch_sub(1, SeqCst);
        let live = &process::entry().live_threads;
        live.fetch_sub(1, SeqCst);
        awaited::call(live.as_ptr() as u64);
        total::leave_after(t.slot, || {
            t.slot().state.store(slot_state::EXITING, Release);
            drop(busy);
        });
        // Another thread may wait for the slot.
        sys::futex_wake(t.slot().state.as_ptr(), i32::MAX as u32);
        // SAFETY: nothing of this thread is needed any more.
        unsafe { rt_exit_thread() }
    }

    fn process_exit(t: &mut Block, c: &Call, frame: &Frame) -> ! {
        if look(t).is_none() {
            let ours = |h: &EventHeader| h.kind == Kind::Hash as u8 && h.detail == state::AT_EXIT;
            if let Some(h) = ring::peek().filter(ours) {
                state::check(t, frame, &h);
            }
        }
        Self::computed(t, c, 0);
        Self::process_dies(t, 0);
        sys::exit_group(c.args[0] as i32)
    }

    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        processes::exec_again(t, c)
    }

    fn image_start(t: &mut Block) {
        processes::image_begins(t);
    }

    fn process_dies(t: &mut Block, _signal: u32) {
        let _busy = busy(t);
        crate::engines::order::clear_word::<Self>(t);
        processes::end_again(t);
    }

    fn cut(t: &mut Block, uc: &mut Ucontext) {
        cut::replay::ask(t, uc);
    }

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        cut::replay::trap(t, signal, uc)
    }
}
