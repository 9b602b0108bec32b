//! The recording half of `serial`.

use super::parts::Parts;
use super::stands::{self, Stands};
use super::{arrived, baton, chaos, cut, futex, hooked, loss, quick, waits, writes};
use crate::code::patch;
use crate::common::make::add_pending;
use crate::common::make::exit_status;
use crate::common::make::into_scratch;
use crate::common::make::make;
use crate::common::make::outcome;
use crate::common::make::Outcome;
use crate::common::make::NOT_MADE;
use crate::common::state;
use crate::engine::wish::Wish;
use crate::engine::{Engine, RESTART};
use crate::gate::robust;
use crate::gate::{clone, instruction, leader, stand};
use crate::log::events;
use crate::log::inputs;
use crate::log::output;
use crate::log::output::mapped;
use crate::machine::asm::rt_exit_thread;
use crate::machine::frame::frame_hash;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::{self, by_reference};
use crate::signal::frame::{self, FpState, Ucontext};
use crate::signal::kernel;
use crate::sync::libc::malloc;
use crate::sync::locked;
use crate::sync::spin::{self, clock};
use crate::thread::process;
use crate::thread::schedule;
use crate::thread::signals::{Siginfo, ACTIONS, DEFAULT, IGNORE};
use crate::thread::{session, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::effect::{Effect, Told};
use reprise_abi::event::{
    section_len, EventHeader, Instruction, Kind, ProcessEnd, Tag, FILE_NUMBER_SHIFT,
    FLAG_RESTARTED, FLAG_TRACKED, SLOT_SHIFT, YIELD_AFTER_INSTRUCTION,
};
use reprise_abi::session::{process_state, slot_state};
use reprise_abi::spec::Blocking;
use reprise_abi::syscalls::{self, nr};

/// Serial recording.
pub struct Record;

/// Most futexes with priority inheritance that one dying thread can leave to waiters.
pub(crate) const MAX_INHERITED: usize = 64;
/// Notes in the slot what the thread is doing, for the agent and for [`events::enter`].
pub(super) fn note(t: &Block, c: &Call, input_hash: u64) {
    let s = t.slot();
    s.call_nr.store(c.nr as u32, Relaxed);
    for (to, a) in s.call_args.iter().zip(c.args) {
        to.store(a, Relaxed);
    }
    s.call_input_hash.store(input_hash, Relaxed);
}

/// Who learns of a child's end finds it gone from all queues: where the child was killed, the agent sees to that, and is waited for.
fn await_burial(c: &Call, r: i64) {
    /// Looks at the agent's work, [`PAUSE_NS`] apart: an agent that is gone must not keep the program for ever.
    const LOOKS: usize = 10_000;
    const PAUSE_NS: i64 = 100_000;
    const ESRCH: i64 = -3;
    const SI_PID: u64 = 16;
    let pid = match c.nr {
        nr::WAIT4 if r > 0 => r as u32,
        nr::WAITID if r == 0 && c.local[2] != 0 => {
            crate::machine::guard::read::<u32>(c.local[2] + SI_PID).unwrap_or(0)
        }
        _ => return,
    };
    let s = session();
    // The agent buries under the lock: what it does to an entry is seen whole.
    let listed = || {
        let _lists = schedule::lock();
        let used = (s.processes_used.load(Acquire) as usize).min(s.processes.len());
        s.processes[..used].iter().enumerate().any(|(n, p)| {
            p.state.load(Acquire) == process_state::LIVE
                && crate::thread::namespace::is_known_as(p, n as u32, pid)
        })
    };
    for _ in 0..LOOKS {
        // A child that was stopped is still there; one that stays a zombie (WNOWAIT) is left to the agent.
        if pid == 0 || !listed() || sys::kill(pid as u64, 0) != ESRCH {
            return;
        }
        crate::thread::request::wake_agent();
        let pause = [0i64, PAUSE_NS];
        sys::nanosleep(pause.as_ptr() as u64, 0);
    }
}

/// What a clock that is read by an instruction says, and the processor as getcpu(2) tells it.
pub(super) fn ask_clock(t: &Block, which: Instruction) -> (u64, u64) {
    let (value, aux) = instruction::read_clock(which);
    let aux = crate::gate::processor::chosen(t).map_or(aux, u64::from);
    (value, aux)
}

impl Record {
    /// A call made on the short road with a result out of the ordinary.
    #[cold]
    fn judge(t: &mut Block, frame: &Frame, result: i64) -> i64 {
        let mut c = quick::long(frame);
        let hash = c.input_hash();
        Self::direct(t, &mut c, None, hash, Some(result))
    }

    /// The only thread: the kernel reads and writes the program's memory directly.
    ///
    /// The call may have been made once already, with the result `made`.
    fn direct(
        t: &mut Block,
        c: &mut Call,
        parts: Option<&Parts>,
        hash: u64,
        mut made: Option<i64>,
    ) -> i64 {
        c.shorten();
        let mut before = (writes::are_tested() && made.is_none())
            .then(|| writes::before(c))
            .flatten();
        loop {
            let r = made.take().unwrap_or_else(|| make(t, c));
            match outcome(t, c, r) {
                Outcome::Again => continue,
                Outcome::Result(r) => {
                    if c.effect == Effect::TellsPending && r == 0 {
                        add_pending(t, c);
                    }
                    if let Some(b) = before.take() {
                        b.compare(c, r);
                    }
                    Self::done(t, Kind::Syscall, c, parts, r, hash, false);
                    return r;
                }
                Outcome::Restart => {
                    events::call(t, Kind::Syscall, c, NOT_MADE, FLAG_RESTARTED, hash);
                    return RESTART;
                }
            }
        }
    }

    /// A call is over: what it says of descriptors and files, and its event. `mistaken`: it was believed prompt, and wasn't.
    fn done(
        t: &Block,
        kind: Kind,
        c: &Call,
        parts: Option<&Parts>,
        r: i64,
        hash: u64,
        mistaken: bool,
    ) {
        waits::learn(c, r, mistaken);
        let note = mapped::look(c, r, kind == Kind::Exit);
        output::look(t, c, r);
        let plain = note.is_none() && t.noted().is_empty() && !inputs::is_referred(t);
        if plain && parts.is_some_and(|p| p.log(t, kind, c, r, hash)) {
            t.noted().is_logged();
            return;
        }
        events::call_noted(t, kind, c, r, 0, hash, note.as_ref());
    }

    /// Other threads could run meanwhile, and do at once if the call isn't `prompt`. The kernel sees memory that none of them can
    /// touch: the program's own where that is so, else scratch memory.
    fn among_others(
        t: &mut Block,
        c: &mut Call,
        parts: Option<&Parts>,
        hash: u64,
        prompt: bool,
    ) -> i64 {
        let private = || match parts {
            Some(p) => p.are_private(),
            None => c.all_memory(memory::is_private),
        };
        let may_stand = stands::in_calls(t, c, hash);
        let own = may_stand.is_none() && process::has_memory_to_itself() && private();
        if own {
            c.shorten();
        } else if let Err(e) = into_scratch(t, c) {
            events::call_with(t, c, e, 0, hash, &[]);
            return e;
        }
        note(t, c, hash);
        let mut held = prompt;
        if !held {
            events::enter(t.slot, 0);
            baton::release(t, slot_state::BLOCKED);
        } else {
            baton::enter_call(t);
        }
        let r = loop {
            let r = match may_stand {
                Some(Stands::Never) => stand::untold(t, |t| make(t, c)),
                _ => make(t, c),
            };
            match outcome(t, c, r) {
                Outcome::Again => {}
                o => break o,
            }
            if let Some(Stands::In(call)) = &may_stand {
                stands::in_call(t, call, held);
            }
        };
        if let Outcome::Result(r) = r {
            await_burial(c, r);
        }
        if held {
            held = baton::leave_call(t);
        }
        let taken = !held;
        if taken {
            baton::acquire(t);
            arrived::arrived(t);
        }
        let kind = if taken { Kind::Exit } else { Kind::Syscall };
        match r {
            Outcome::Result(r) => {
                if !own {
                    events::copy_out(c, r);
                }
                Self::done(t, kind, c, parts, r, hash, prompt && taken);
                r
            }
            _ => {
                events::call(t, kind, c, NOT_MADE, FLAG_RESTARTED, hash);
                RESTART
            }
        }
    }

    /// A call that the table does not know: whatever memory it changes is found by comparison.
    fn tracked(t: &mut Block, c: &mut Call) -> i64 {
        let hash = c.input_hash();
        session().counters.tracked.fetch_add(1, Relaxed);
        let before = crate::memory::track::Snapshot::take();
        // Who knows whether it waits: the agent may take the baton meanwhile. What others write then is part of the
        // difference, too, and harmless: replay has the same bytes there when this event comes.
        note(t, c, hash);
        baton::enter_call(t);
        let (r, flags) = loop {
            let r = make(t, c);
            match outcome(t, c, r) {
                Outcome::Again => continue,
                Outcome::Result(r) => break (r, FLAG_TRACKED),
                Outcome::Restart => break (NOT_MADE, FLAG_TRACKED | FLAG_RESTARTED),
            }
        };
        let mut kind = Kind::Syscall;
        if !baton::leave_call(t) {
            baton::acquire(t);
            arrived::arrived(t);
            kind = Kind::Exit;
        }
        let changed = before.as_ref().map_or(&[][..], |b| b.changed());
        events::tracked_call(t, kind, c, r, flags, hash, changed);
        if flags & FLAG_RESTARTED != 0 {
            RESTART
        } else {
            r
        }
    }

    /// The process ends with this wait status: says so, and lets others run. Only the end itself may follow.
    fn end_process(t: &mut Block, status: i32) {
        crate::sync::libc::count(t);
        robust::leave(t);
        let pid = process::visible_pid() as u64;
        events::plain(
            Kind::ProcessEnd,
            t.slot,
            ProcessEnd::Told as u32,
            status as i64,
            &[pid],
        );
        baton::leave(t);
    }

    /// Lets others run, if anybody waits. What the thread was interrupted in may be a critical section: see [`futex`].
    pub fn interrupt(t: &mut Block) {
        t.cut().interrupted = !core::mem::take(&mut t.cut().gives_way);
        chaos::may_hold_back(t.slot);
        Self::yield_baton(t);
    }

    /// A call that reads a clock may be one look of many.
    #[inline]
    fn look_for_clocks(t: &mut Block, frame: &Frame) {
        const NS: i64 = 1_000;
        if session().ready_count.load(Relaxed) == 0 {
            return;
        }
        let time = match syscalls::effect(frame.rax as u32 as u64) {
            Effect::Tells(Told::Clock) => crate::machine::guard::read::<[i64; 2]>(frame.rsi),
            Effect::Tells(Told::TimeOfDay) => {
                crate::machine::guard::read(frame.rdi).map(|[s, us]: [i64; 2]| [s, us * NS])
            }
            _ => None,
        };
        match time {
            Some([s, ns]) => {
                let value = s.wrapping_mul(1_000_000_000).wrapping_add(ns);
                t.spin().clock.read(value, clock::NEAR_NS);
            }
            None => t.spin().clock.something_else(),
        }
    }

    /// Does anybody want that the thread comes to a gate?
    pub fn is_wanted_from(t: &Block) -> bool {
        let s = session();
        (s.ready_count.load(Relaxed) != 0 && !crate::gate::ptrace::holds(t))
            || t.slot().signal_pending.load(Relaxed) != 0
            || s.stop_program.load(Relaxed) != 0
    }

    /// A thread that waits by looking at memory, `looks` times since it was counted last, is before the instruction at `place`.
    pub fn gives_way(t: &mut Block, frame: &mut Frame, place: u64, looks: i64) {
        t.slot().last_pc.store(place, Relaxed);
        cut::record::abandon(t);
        let which = Instruction::GaveWay as u32;
        events::plain(Kind::Instruction, t.slot, which, looks, &[place]);
        Self::signal_point(t, frame);
        // It may have done so there.
        if !crate::gate::ptrace::holds(t) {
            Self::yield_baton(t);
        }
    }

    /// Lets others run, if anybody waits.
    fn yield_baton(t: &mut Block) {
        Self::yield_as(t, 0, 0);
    }

    /// Others go on, if anybody waits, as a yield of this detail and value says.
    pub fn yield_as(t: &mut Block, detail: u32, value: i64) {
        let stepped = baton::step_back(t, |t| {
            events::plain(Kind::Yield, t.slot, detail, value, &[]);
        });
        if stepped {
            arrived::arrived(t);
            events::plain(Kind::Resume, t.slot, 0, 0, &[]);
            t.cut().slice_began = crate::common::stopped::processor_time();
        }
    }

    /// Delivers the first deliverable signal into `frame`; false when there is none.
    pub fn deliver_pending(t: &mut Block, frame: &mut Frame, fp: FpState) -> bool {
        kernel::block_all();
        let mut delivered = false;
        while let Some(info) = t.pending.take(t.mask) {
            let action = ACTIONS.get(info.signal());
            if action.handler == IGNORE {
                continue;
            }
            if action.handler == DEFAULT {
                // The disposition changed while the signal waited: let the kernel do what it means.
                kernel::uninstall(info.signal(), DEFAULT, 0);
                kernel::send_self(info.signal());
                continue;
            }
            // SAFETY: a siginfo is 128 plain bytes.
            let bytes =
                unsafe { core::slice::from_raw_parts(&info as *const Siginfo as *const u8, 128) };
            events::with_section(
                Kind::Signal,
                t.slot,
                info.signal(),
                frame.rip as i64,
                &[],
                Tag::Siginfo,
                bytes,
            );
            if !frame::deliver(t, frame, fp, &info, &action, [0; 3]) {
                Self::process_dies(t, crate::thread::signals::SIGSEGV);
                kernel::die_now(crate::thread::signals::SIGSEGV);
            }
            let c = &session().counters;
            let count = if fp == FpState::Live {
                &c.signals_at_gates
            } else {
                &c.signals_in_code
            };
            count.fetch_add(1, Relaxed);
            delivered = true;
            break;
        }
        let more = t.pending.first(t.mask).is_some();
        t.slot().signal_pending.store(more as u32, Release);
        kernel::sync_mask(t);
        delivered
    }
}

impl Engine for Record {
    const LIVE: bool = true;
    const IMMEDIATE: bool = false;

    fn fills(block: &mut Block) {
        block.engine.put(cut::CutState::default());
    }

    fn rewrites(t: &mut Block, after: u64) {
        if let Some((form, stub)) = patch::rewrite(after, false) {
            events::plain(Kind::Patch, t.slot, form, 0, &[after - 2, stub]);
        }
    }

    fn at_look(t: &mut Block, frame: &mut Frame, place: u64) -> bool {
        if Self::is_wanted_from(t) {
            let looks = t.spin().gives_way(frame_hash(frame));
            Self::gives_way(t, frame, place, looks);
        } else {
            t.spin().nobody_is_ready();
        }
        true
    }

    fn takes_over(_first: bool) {
        loss::start();
    }

    #[inline(always)]
    fn enters_gate(t: &mut Block, _frame: &Frame) {
        cut::record::abandon(t);
        hooked::is_at_gate(t);
    }

    fn is_timer(info: &Siginfo) -> bool {
        chaos::is_ours(info)
    }

    #[inline(always)]
    fn defers(t: &mut Block, frame: &Frame) -> bool {
        t.deferred = leader::begins_before(t, frame);
        t.deferred
    }

    #[inline(always)]
    fn passes_point(t: &mut Block, frame: &mut Frame) {
        stands::passes_point(t, frame);
    }

    fn told_alone(t: &mut Block, frame: &Frame, in_code: bool) {
        stands::told_alone(t, frame, in_code);
    }

    fn reenters(t: &mut Block, frame: &mut Frame) {
        stands::reenters(t, frame);
    }

    #[inline(always)]
    fn short(t: &mut Block, frame: &Frame) -> Option<i64> {
        match quick::call(t, frame) {
            quick::Made::Logged(r) => {
                Self::look_for_clocks(t, frame);
                Some(r)
            }
            quick::Made::Not => None,
            quick::Made::Unlogged(r) => Some(Self::judge(t, frame, r)),
        }
    }

    fn syscall(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
        // A hooked function may make it, which is no gate.
        cut::record::abandon(t);
        Self::look_for_clocks(t, frame);
        if !c.known || (session().forget_syscall == c.nr + 1 && !writes::are_tested()) {
            return Self::tracked(t, c);
        }
        let mut parts = Parts::empty();
        let parts = parts.find(c);
        let hash = parts.and_then(Parts::input_hash);
        let hash = hash.unwrap_or_else(|| c.input_hash());
        if let Some(signal) = crate::gate::signals::ends_us(t, c, process::visible_pid()) {
            // It will not come back: what it did is logged before.
            events::call(t, Kind::Syscall, c, 0, 0, hash);
            Self::process_dies(t, signal);
            kernel::default_action(signal);
            make(t, c);
            kernel::die_now(signal);
        }
        if crate::gate::signals::may_stop_us(c) {
            // It comes back when somebody lets it go on: others must be able to.
            return Self::among_others(t, c, parts, hash, false);
        }
        if baton::alone() || c.blocking == Blocking::Never {
            return Self::direct(t, c, parts, hash, None);
        }
        if c.nr == nr::EPOLL_WAIT && c.args[3] as i32 != 0 && !baton::chaos() {
            // Events that are there already need no hand-off. (poll writes its array even when nothing is ready.)
            let mut now = c.local;
            now[3] = 0;
            // SAFETY: the program's own call; it can't wait.
            let r = unsafe { sys::syscall6(c.nr, now) };
            if r != 0 {
                Self::done(t, Kind::Syscall, c, parts, r, hash, false);
                return r;
            }
        }
        let prompt = waits::is_prompt(c);
        Self::among_others(t, c, parts, hash, prompt)
    }

    fn computed(t: &mut Block, c: &Call, result: i64) -> i64 {
        events::call_with(t, c, result, 0, 0, &[]);
        result
    }

    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64 {
        Self::computed(t, c, act(None))
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        // As above.
        cut::record::abandon(t);
        if matches!(c.effect, Effect::Attaches | Effect::Detaches) {
            let r = crate::common::segment::record(t, c);
            spin::after_call(t, c, r);
            robust::look_at_mapping(t);
            return r;
        }
        let mut done = memory::perform(c);
        let mut content = [0; 2];
        match done.file {
            Some(fd) => {
                let shown = by_reference::shown(c, fd);
                memory::remember_file(c, done.result, shown.number);
                content = shown.content;
                let flags = shown.number << FILE_NUMBER_SHIFT;
                events::call_with(t, c, done.result, flags, 0, &[shown.section()]);
            }
            None => events::call_with(t, c, done.result, 0, 0, done.section().as_slice()),
        }
        crate::gate::cpuid::after_call::<Self>(t, c, done.result, content);
        crate::sync::hook::after_call(t, c, done.result);
        spin::after_call(t, c, done.result);
        robust::look_at_mapping(t);
        done.result
    }

    fn futex(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
        let _ = frame;
        note(t, c, 0);
        futex::record(t, c)
    }

    fn sched_yield(t: &mut Block, c: &mut Call) -> i64 {
        events::call_with(t, c, 0, 0, 0, &[]);
        // All threads share a processor: those that come back from the kernel need it to get into the queue.
        sys::sched_yield();
        Self::yield_baton(t);
        0
    }

    fn instruction(t: &mut Block, which: Instruction) -> (u64, u64) {
        let (value, aux) = ask_clock(t, which);
        events::plain(
            Kind::Instruction,
            t.slot,
            which as u32,
            value as i64,
            &[aux],
        );
        t.spin().clock.read(value as i64, clock::NEAR_COUNTS);
        (value, aux)
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        if t.hook_ends && !hooked::is_gate(t, frame) {
            return;
        }
        if t.slot().signal_pending.load(Relaxed) != 0 {
            Self::deliver_pending(t, frame, FpState::Live);
        }
        state::maybe_hash(t, frame);
        let s = session();
        if s.ready_count.load(Relaxed) != 0 && !crate::gate::ptrace::holds(t) {
            if t.spin().clock.is_waiting(frame) {
                Self::yield_baton(t);
            } else if t.cut().gives_way
                || s.slice_over.load(Relaxed) != 0
                || (baton::chaos() && baton::random() % 4 == 0 && !chaos::holds_back_the_others())
            {
                Self::interrupt(t);
            } else if baton::chaos() && baton::random() % 8 == 0 {
                chaos::behind_gate(t);
            }
        }
        if s.ready_count.load(Relaxed) != 0
            && chaos::steps()
            && frame.rflags & kernel::TRAP_FLAG == 0
        {
            frame.rflags |= kernel::TRAP_FLAG;
            t.cut().steps = true;
        }
        arrived::log_lost(t);
        if s.stop_program.load(Relaxed) != 0 {
            sys::exit_group(125);
        }
    }

    fn fault(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, _can: bool) -> bool {
        let mc = &uc.mc;
        cut::record::abandon(t);
        let args = [
            info.address(),
            info.code() as u64,
            frame_hash(&mc.to_frame()),
        ];
        events::plain(Kind::Fault, t.slot, info.signal(), mc.rip as i64, &args);
        false
    }

    fn goes_on(t: &mut Block, uc: &mut Ucontext) {
        if leader::is_alone() {
            stands::told_of_fault_alone(t, uc);
        }
        // Only after an event that says so.
        if !t.spin().clock.is_new() {
            return;
        }
        let s = session();
        if s.ready_count.load(Relaxed) != 0
            && !crate::gate::ptrace::holds(t)
            && t.spin().clock.is_waiting(&uc.mc.to_frame())
        {
            t.traced().in_code = true;
            Self::yield_as(t, YIELD_AFTER_INSTRUCTION, 0);
            t.traced().in_code = false;
            uc.mc.rip = locked::moved_to(uc.mc.rip).unwrap_or(uc.mc.rip);
        } else if s.slice_over.load(Relaxed) != 0 || t.slot().signal_pending.load(Relaxed) != 0 {
            // It is nearly always here that the agent's signal comes.
            cut::record::ask(t, uc);
        }
    }

    const BORN: u32 = slot_state::BLOCKED;

    fn thread_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        spin::before_thread(t);
        let Some(slot) = clone::take_slot() else {
            crate::thread::message::say(crate::thread::message::TOO_MANY_THREADS);
            return Self::computed(t, c, -11);
        };
        let tid = clone::start_thread::<Self>(t, wish, slot, t.slot_process(), start, |_, _| {});
        if sys::is_error(tid) {
            clone::gives_back_slot(slot);
            return Self::computed(t, c, tid);
        }
        crate::thread::slot(slot)
            .visible_tid
            .store(tid as u32, Relaxed);
        clone::publish_tid(wish, tid as u32);
        events::call_with(t, c, tid, slot << SLOT_SHIFT, 0, &[]);
        if baton::chaos() {
            chaos::await_birth(t, slot);
        }
        chaos::begin_slice(t);
        tid
    }

    fn process_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        let slot = clone::take_slot();
        let (Some(slot), Some(process)) = (slot, process::reserve(process::kernel_pid())) else {
            slot.into_iter().for_each(clone::gives_back_slot);
            crate::thread::message::say(crate::thread::message::TOO_MANY_THREADS);
            return Self::computed(t, c, -11);
        };
        let failed = |process: u32| {
            process::entry_of(process)
                .state
                .store(process_state::FREE, Release)
        };
        // The child is announced: should the parent be killed now, it is there all the same.
        note(t, c, 0);
        let mut entered = false;
        let tid = clone::start_thread::<Self>(t, wish, slot, process, start, |t, _| {
            entered = true;
            robust::made(slot, wish.word_that_others_see());
            events::enter(t.slot, slot << SLOT_SHIFT);
            process::entry_of(process).announced.store(1, Release);
            if wish.waits() {
                // The kernel keeps the parent until the child execs or ends: others run meanwhile.
                baton::release(t, slot_state::BLOCKED);
            }
        });
        if entered && wish.waits() {
            baton::acquire(t);
            arrived::arrived(t);
        }
        let mut told = None;
        if sys::is_error(tid) {
            robust::not_made(slot);
            clone::gives_back_slot(slot);
            failed(process);
        } else {
            clone::publish_tid(wish, tid as u32);
            let pidfd = clone::open_pidfd(t, wish, tid as u32);
            clone::publish_pidfd(wish, pidfd);
            told = pidfd.map(|fd| (Tag::Descriptor, fd, 0, 0));
        }
        if !entered {
            return Self::computed(t, c, tid);
        }
        events::ended_with(t, Kind::Exit, c, tid, 0, 0, told.as_slice());
        tid
    }

    fn process_start(t: &mut Block) {
        t.cut().timer.forget();
        baton::acquire(t);
        crate::log::ring::start();
        arrived::arrived(t);
        if process::entry().announced.load(Acquire) == 0 {
            // Its parent was killed while it made this process, and nothing of that is in the trace: it goes with its parent.
            kernel::block_all();
            baton::leave(t);
            kernel::die_now(9);
        }
        let tid = sys::gettid() as u32;
        let parent = sys::getppid() as u64;
        t.slot().visible_tid.store(tid, Relaxed);
        process::entry().visible_pid.store(tid, Relaxed);
        process::is_born(crate::log::ring::position());
        t.spin().begin(true);
        clone::publish_own_tid(t, tid);
        events::plain(Kind::ProcessStart, t.slot, 0, tid as i64, &[parent]);
        kernel::sync_mask(t);
    }

    fn thread_start(t: &mut Block) {
        baton::acquire(t);
        arrived::arrived(t);
        t.spin().begin(true);
        let tid = t.slot().visible_tid.load(Relaxed);
        events::plain(Kind::ThreadStart, t.slot, 0, tid as i64, &[]);
        kernel::sync_mask(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, frame: &Frame) -> ! {
        malloc::thread_ends::<Self>(t);
        crate::sync::libc::count(t);
        // The call first: a hash before it would belong to the gate before.
        events::call_with(t, c, 0, 0, 0, &[]);
        state::hash_at_exit(t, frame);
        kernel::block_all();
        kernel::give_back_at_exit(t);
        let mut inherited = [0u64; MAX_INHERITED];
        let mut n = 0;
        robust::announce_death(
            t,
            robust::write_word,
            |address, bitset, n| {
                schedule::lock().futex_wake(
                    crate::memory::futex::key(address, false),
                    bitset,
                    n,
                    |_| {},
                );
            },
            |address| {
                if n < MAX_INHERITED {
                    inherited[n] = address;
                    n += 1;
                }
                Some(futex::hand_over(
                    crate::memory::futex::key(address, false),
                    &schedule::lock(),
                ))
            },
        );
        robust::word_is_cleared(t);
        let last = process::entry().live_threads.load(Relaxed) == 1;
        events::thread_exit(t.slot, last, c.args[0], &inherited[..n]);
        if last {
            Self::end_process(t, exit_status(c.args[0]));
            sys::exit_group(c.args[0] as i32);
        }
        process::entry().live_threads.fetch_sub(1, Relaxed);
        session().live_threads.fetch_sub(1, Relaxed);
        chaos::end_thread(t);
        baton::release(t, slot_state::EXITING);
        // SAFETY: nothing of this thread is needed any more; the kernel clears the slot's thread id last.
        unsafe { rt_exit_thread() }
    }

    fn process_exit(t: &mut Block, c: &Call, frame: &Frame) -> ! {
        kernel::block_all();
        events::call_with(t, c, 0, 0, 0, &[]);
        state::hash_at_exit(t, frame);
        Self::end_process(t, exit_status(c.args[0]));
        sys::exit_group(c.args[0] as i32)
    }

    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let hash = c.input_hash();
        note(t, c, hash);
        events::enter(t.slot, 0);
        // The kernel marks them at an exec, too.
        robust::put_down(t);
        let r = crate::gate::exec::attempt(t, c);
        robust::pick_up(t);
        events::call(t, Kind::Exit, c, r, 0, hash);
        r
    }

    fn image_start(t: &mut Block) {
        t.spin().begin(true);
        t.cut().timer.forget();
        let (at, len) = crate::gate::exec::command_line();
        let h = EventHeader {
            value: session().images.load(Relaxed) as i64,
            ..events::header(Kind::Exec, t.slot, 1, section_len(len))
        };
        let mut w = crate::log::ring::Writer::begin(&h);
        w.put_words(&[process::visible_pid() as u64]);
        w.put_section(Tag::Input as u32, at, at, len);
        w.finish();
    }

    fn process_dies(t: &mut Block, signal: u32) {
        kernel::block_all();
        Self::end_process(t, signal as i32);
    }

    fn cut(t: &mut Block, uc: &mut Ucontext) {
        cut::record::ask(t, uc);
    }

    fn timer(t: &mut Block, uc: &mut Ucontext) {
        cut::record::ask_by_timer(t, uc);
    }

    fn stepped(t: &mut Block, uc: &mut Ucontext) -> bool {
        cut::record::stepped(t, uc)
    }

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        cut::record::trap(t, signal, uc)
    }
}
