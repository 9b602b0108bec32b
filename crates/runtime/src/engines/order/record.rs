//! The recording half of `order`: threads run on all processors, and every system call is stamped when it begins and when it ends.
//!
//! If one call can have learnt from another (what it read was written there), then it ended after the other began. A replay that lets
//! stamps pass in their order therefore has every cause before its effects, whatever they went through: pipes, files, sockets, memory maps,
//! signals (DESIGN 5). Castor needs an order for each kind of object instead (Castor 3.4).

use super::{cut, faults, name_of, name_of_run, processes, state, streams, unlogged};
use crate::code::patch;
use crate::common::make::{
    add_pending, exit_status, into_scratch, make, outcome, Outcome, NOT_MADE,
};
use crate::common::time_left::TimeLeft;
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{in_kernel, Deadline, Wait};
use crate::engine::wish::Wish;
use crate::engine::{Engine, RESTART};
use crate::gate::clone;
use crate::gate::epochs::{self, ahead};
use crate::gate::{clock, copy, instruction, leader, stand};
use crate::log::events;
use crate::log::output;
use crate::log::output::mapped;
use crate::log::quiet::{log_entry, log_quiet, put_counted, quiet_so_far};
use crate::log::ring::Writer;
use crate::machine::asm::rt_exit_thread;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::space;
use crate::memory::{self, by_reference, futex};
use crate::signal::frame::{self, FpState, Ucontext};
use crate::signal::kernel;
use crate::sync::in_runtime;
use crate::thread::area::Area;
use crate::thread::process;
use crate::thread::rings::head;
use crate::thread::schedule;
use crate::thread::shards;
use crate::thread::signals::{Siginfo, ACTIONS, DEFAULT, IGNORE, SIGSEGV};
use crate::thread::standing;
use crate::thread::{session, slot, Block, Entered, Frame, ENGINE_WORDS};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::*;
use reprise_abi::effect::Effect;
use reprise_abi::event::{
    section_len, EventHeader, Instruction, Kind, Tag, FILE_NUMBER_SHIFT, FLAG_RESTARTED,
    FLAG_TRACKED, SLOT_SHIFT,
};
use reprise_abi::event::{AMONG_THREADS, FLAG_HELD};
use reprise_abi::order::{Entry, EntryKind};
use reprise_abi::session::slot_state;
use reprise_abi::spec::Blocking;
use reprise_abi::syscalls::nr;

const EAGAIN: i64 = -11;

/// Recording in `order`.
pub struct Record;

/// Draws the next stamp.
#[inline]
pub(super) fn draw() -> u64 {
    head().stamp.0.fetch_add(1, SeqCst)
}

/// As [`draw`], for a thread that may have to end.
///
/// A thread whose process has said how it ends does nothing any more: a stamp that is drawn after that finds it said.
#[inline]
pub fn draw_alive() -> u64 {
    let s = draw();
    if !process::is_live() {
        schedule::wait_for_end();
    }
    s
}

/// The event written next has this stamp, after those that it has already.
#[inline]
pub(super) fn stamp(t: &mut Block) {
    put_stamp(t, draw_alive());
}

/// As [`stamp`], with one that is drawn already.
fn put_stamp(t: &mut Block, s: u64) {
    t.logging.stamps[t.logging.stamped as usize] = s;
    t.logging.stamped += 1;
    t.order().last_stamp = s;
}

/// Writes [`Kind::Enter`] of a call.
pub(super) fn write_enter(slot: u32, c: &Call, flags: u32, hash: u64, stamps: &[u64]) {
    let h = EventHeader {
        detail: c.nr as u32,
        input_hash: hash,
        flags,
        ..events::header(Kind::Enter, slot, c.nargs + stamps.len(), 0)
    };
    let mut w = Writer::begin(&h);
    w.put_words(&c.args[..c.nargs]);
    w.put_words(stamps);
    w.finish();
}

impl Record {
    /// Writes [`Kind::Enter`]: the call may take as long as it likes, and others must not wait for its end to learn of its beginning.
    fn enter(t: &mut Block, c: &Call, hash: u64) {
        stamp(t);
        write_enter(t.slot, c, 0, hash, t.logging.stamps());
        t.logging.stamped = 0;
    }

    /// As [`Record::enter`], unless the thread is in the call once more, after it stood there; `time`: what is left of its time limit then.
    fn enter_once(t: &mut Block, c: &mut Call, hash: u64, time: &mut TimeLeft) -> Entered {
        let before = t.entered.take();
        if before.is_none() {
            Self::enter(t, c, hash);
        }
        let entered = before.unwrap_or_else(|| stand::entered(c, hash));
        *time = TimeLeft::of(c, entered.deadline);
        if before.is_some() {
            time.again(c);
        }
        Entered {
            deadline: time.deadline,
            ..entered
        }
    }

    /// Makes the call and logs what came of it.
    fn perform(t: &mut Block, c: &mut Call, hash: u64) -> i64 {
        let again = t.entered.is_some();
        // Of a call in which it stood, under another engine too, the beginning is logged, and this is its end.
        let prompt = !again && c.known && matches!(c.blocking, Blocking::Never | Blocking::Rarely);
        let kind = if prompt {
            stamp(t);
            Kind::Syscall
        } else {
            Kind::Exit
        };
        let mut entered = Entered::now(hash);
        let mut time = TimeLeft::default();
        if !prompt {
            entered = Self::enter_once(t, c, hash, &mut time);
        }
        let hash = entered.hash;
        let stream = output::written_by(c);
        // What is to be moved to an output is waited for while others may write there.
        let interrupted = loop {
            match output::moved::await_source(c).map(|r| outcome(t, c, r)) {
                Some(Outcome::Again) => continue,
                o => break o,
            }
        };
        // What a call brings while its thread stands belongs to no moment of the program's: it lies beside, until the call ends.
        let beside = !prompt && copy::are_made() && c.writes_memory();
        let mut interrupted = match beside.then(|| into_scratch(t, c)) {
            Some(Err(e)) => Some(Outcome::Result(e)),
            _ => interrupted,
        };
        if beside && again {
            // What lies there is the whole limit.
            time.again(c);
        }
        // Where nobody is ever asked to stand, nothing has to be found out.
        let stays = !prompt && standing::may_be_asked_for() && stand::happens_once(c);
        let is_led = leader::is_on(t);
        if is_led && c.effect.written().is_some() {
            // Of what was written there before.
            let told = epochs::output::told_error(c).map(Outcome::Result);
            interrupted = told.or(interrupted);
        }
        let mut held = None;
        let outcome = loop {
            if let Some(o) = interrupted.take() {
                break o;
            }
            if stream != 0 && held.is_none() {
                held = streams::hold(t, stream);
            }
            if stand::is_over(c, &entered) {
                break Outcome::Result(0);
            }
            let r = match stream != 0 && held.is_none() {
                // A signal comes first, or the thread is to stand.
                true => NOT_MADE,
                false if stays => stand::staying(t, entered, |t| make(t, c)),
                false => make(t, c),
            };
            match outcome(t, c, r) {
                Outcome::Again => {}
                o => break o,
            }
            if beside {
                // Some calls leave the rest of their time where the program has the limit.
                events::copy_out(c, NOT_MADE);
            }
            time.interrupted();
            if !prompt && (standing::wanted().is_some() || standing::is_asked_for()) {
                held = None;
                stand::in_call::<Self>(t, entered);
            }
            time.again(c);
        };
        if !prompt {
            leader::calls::comes_back(t, entered, c, held.is_none());
        }
        stamp(t);
        let result = match outcome {
            Outcome::Result(r) => {
                let told = is_led.then(|| epochs::output::told_error(c)).flatten();
                let r = told.unwrap_or(r);
                if beside {
                    events::copy_out(c, r);
                }
                if c.effect == Effect::TellsPending && r == 0 {
                    add_pending(t, c);
                }
                let note = mapped::look(c, r, true);
                output::look(t, c, r);
                events::call_noted(t, kind, c, r, 0, hash, note.as_ref());
                output::follow(c, r);
                r
            }
            _ => {
                events::call(t, kind, c, NOT_MADE, FLAG_RESTARTED, hash);
                RESTART
            }
        };
        t.logging.stamped = 0;
        result
    }

    /// A call that isn't made now: its output is held.
    fn hold(t: &mut Block, c: &Call, result: i64, hash: u64) -> i64 {
        stamp(t);
        output::look_at_held(t, c, result);
        stamp(t);
        events::call_noted(t, Kind::Syscall, c, result, FLAG_HELD, hash, None);
        output::follow(c, result);
        t.logging.stamped = 0;
        result
    }

    /// A call that the table does not know: whatever memory it changes is found by comparison. What other threads change meanwhile is in
    /// the difference, too.
    fn tracked(t: &mut Block, c: &mut Call) -> i64 {
        let hash = c.input_hash();
        session().counters.tracked.fetch_add(1, Relaxed);
        let lock = space::lock();
        let before = crate::memory::track::Snapshot::take();
        stamp(t);
        let r = make(t, c);
        stamp(t);
        let changed = before.as_ref().map_or(&[][..], |b| b.changed());
        events::tracked_call(t, Kind::Syscall, c, r, FLAG_TRACKED, hash, changed);
        t.logging.stamped = 0;
        drop(lock);
        r
    }

    /// A call that changes a `word` of the program and never waits. Whom it wakes may go on before it is over, so that the word changes where
    /// its beginning has its turn, and in the order of what others do with the word.
    fn change_at_once(t: &mut Block, c: &Call, word: u64) -> i64 {
        let (begins, r, left) = Self::ordered(t, word, || {
            let begins = draw_alive();
            let old = guard::read(word);
            // SAFETY: the program's own call, with its own arguments.
            let r = unsafe { sys::syscall6(c.nr, c.local) };
            let left = (!sys::is_error(r)).then(|| futex::left_in_word(c, word, old));
            (begins, r, left.flatten())
        });
        put_stamp(t, begins);
        stamp(t);
        let changed = left
            .as_ref()
            .map(|left| (Tag::Output, word, left as *const u32 as u64, 4));
        events::call_with(t, c, r, 0, 0, changed.as_slice());
        t.logging.stamped = 0;
        r
    }

    /// Logs an event of words, with one stamp behind them.
    fn stamped(t: &mut Block, kind: Kind, detail: u32, value: i64, word: u64) {
        events::plain(kind, t.slot, detail, value, &[word, draw_alive()]);
    }

    /// Delivers the first signal that waits, and is not ignored; whether there was one.
    pub(super) fn deliver_pending(t: &mut Block, frame: &mut Frame, fp: FpState) -> bool {
        let mut delivered = false;
        kernel::block_all();
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
            let calls = unlogged::calls(t);
            unlogged::handler_runs(t);
            // SAFETY: a siginfo is 128 plain bytes.
            let bytes =
                unsafe { core::slice::from_raw_parts(&info as *const Siginfo as *const u8, 128) };
            events::with_section(
                Kind::Signal,
                t.slot,
                info.signal(),
                frame.rip as i64,
                &[calls, draw()],
                Tag::Siginfo,
                bytes,
            );
            if !frame::deliver(t, frame, fp, &info, &action, [0; 3]) {
                Self::process_dies(t, SIGSEGV);
                kernel::die_now(SIGSEGV);
            }
            let c = &session().counters;
            let counter = match fp {
                FpState::Live => &c.signals_at_gates,
                FpState::Saved(_) => &c.signals_in_code,
            };
            counter.fetch_add(1, Relaxed);
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
    const KERNEL_PLACES: bool = true;

    fn fills(block: &mut Block) {
        block.engine.put(super::Local::default());
    }

    fn rewrites(t: &mut Block, after: u64) {
        if process::has_memory_to_itself() {
            if let Some((form, stub)) = patch::rewrite(after, false) {
                events::plain(Kind::Patch, t.slot, form, 0, &[after - 2, stub]);
            }
        } else if process::only_one_in_memory() {
            let _lock = space::lock();
            if let Some((form, stub)) = patch::rewrite(after, true) {
                let words = [after - 2, stub, draw_alive()];
                events::plain(Kind::Patch, t.slot, form | AMONG_THREADS, 0, &words);
            }
        }
    }

    fn program_begins(_t: &mut Block, _frame: &mut Frame) {
        clock::start();
    }

    fn prepares_process(_t: &Block, child: &mut Block, wish: &Wish) {
        child.order().copied = !wish.shares_memory() && super::copies::is_needed();
    }

    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        if !c.known || session().forget_syscall == c.nr + 1 {
            return Self::tracked(t, c);
        }
        if t.entered.is_some() {
            c.shorten();
            return Self::perform(t, c, 0);
        }
        let hash = c.input_hash();
        if let Some(result) = t.held.take() {
            return Self::hold(t, c, result, hash);
        }
        if let Some(signal) = crate::gate::signals::ends_us(t, c, process::visible_pid()) {
            // It will not come back: what it did is logged before.
            stamp(t);
            stamp(t);
            events::call(t, Kind::Syscall, c, 0, 0, hash);
            t.logging.stamped = 0;
            Self::process_dies(t, signal);
            kernel::default_action(signal);
            make(t, c);
            kernel::die_now(signal);
        }
        c.shorten();
        Self::perform(t, c, hash)
    }

    fn computed(t: &mut Block, c: &Call, result: i64) -> i64 {
        stamp(t);
        events::call_with(t, c, result, 0, 0, &[]);
        t.logging.stamped = 0;
        result
    }

    fn acted(t: &mut Block, c: &Call, act: impl FnOnce(Option<i64>) -> i64) -> i64 {
        let _lock = space::lock();
        stamp(t);
        let result = act(None);
        events::call_with(t, c, result, 0, 0, &[]);
        t.logging.stamped = 0;
        result
    }

    fn address_space(t: &mut Block, c: &mut Call) -> i64 {
        // Calls of the program's own have waited at their gates.
        let unsure = ahead::is_ahead();
        if let Some(instead) = unsure.then(|| leader::calls::shapes_memory(c)).flatten() {
            return instead;
        }
        let lock = space::lock();
        stamp(t);
        let mut content = [0; 2];
        let result = if matches!(c.effect, Effect::Attaches | Effect::Detaches) {
            stamp(t);
            crate::common::segment::record(t, c)
        } else {
            let mut done = memory::perform(c);
            let shown = done.file.map(|fd| {
                let shown = by_reference::shown(c, fd);
                memory::remember_file(c, done.result, shown.number);
                shown
            });
            stamp(t);
            match shown {
                Some(shown) => {
                    content = shown.content;
                    let flags = shown.number << FILE_NUMBER_SHIFT;
                    events::call_with(t, c, done.result, flags, 0, &[shown.section()]);
                }
                None => events::call_with(t, c, done.result, 0, 0, done.section().as_slice()),
            }
            done.result
        };
        t.logging.stamped = 0;
        faults::changed(t, c, result);
        crate::gate::cpuid::after_call::<Self>(t, c, result, content);
        crate::sync::hook::after_call(t, c, result);
        if maps_shared(c, result) {
            crate::sync::locked::memory_shared(t);
            processes::note_sharing();
        }
        let code = memory::new_code(c, result);
        let traps = code.is_some_and(|(at, len)| clock::after_mapping(at, len, content));
        drop(lock);
        if traps {
            clock::all_trap(t);
        }
        result
    }

    fn futex(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        futex::counts_wake(c);
        if let Some(word) = futex::word_changed_at_once(c) {
            return Self::change_at_once(t, c, word);
        }
        let Some(word) = futex::changed_word(c) else {
            return Self::perform(t, c, 0);
        };
        let mut time = TimeLeft::default();
        let entered = Self::enter_once(t, c, 0, &mut time);
        let outcome = loop {
            let r = make(t, c);
            match outcome(t, c, r) {
                Outcome::Again => {}
                o => break o,
            }
            stand::in_call::<Self>(t, entered);
            time.again(c);
        };
        leader::calls::comes_back(t, entered, c, false);
        stamp(t);
        let result = match outcome {
            Outcome::Result(r) if sys::is_error(r) => {
                events::ended_with(t, Kind::Exit, c, r, 0, 0, &[]);
                r
            }
            Outcome::Result(r) => {
                let changed = (Tag::Output, word, word, 4);
                events::ended_with(t, Kind::Exit, c, r, 0, 0, &[changed]);
                r
            }
            _ => {
                events::ended_with(t, Kind::Exit, c, NOT_MADE, FLAG_RESTARTED, 0, &[]);
                RESTART
            }
        };
        t.logging.stamped = 0;
        result
    }

    fn sched_yield(t: &mut Block, c: &mut Call) -> i64 {
        sys::sched_yield();
        Self::computed(t, c, 0)
    }

    fn instruction(t: &mut Block, which: Instruction) -> (u64, u64) {
        let (value, aux) = instruction::read_clock(which);
        events::plain(
            Kind::Instruction,
            t.slot,
            which as u32,
            value as i64,
            &[aux],
        );
        (value, aux)
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        state::maybe_record(t, frame);
        if t.slot().signal_pending.load(Relaxed) != 0 && !leader::delivers_alone(t) {
            Self::deliver_pending(t, frame, FpState::Live);
        }
        if session().stop_program.load(Relaxed) != 0 {
            sys::exit_group(125);
        }
    }

    fn fault(t: &mut Block, info: &Siginfo, uc: &mut Ucontext, can: bool) -> bool {
        if can && leader::is_on(t) {
            // It is alone when it faults once more; or others have asked, and it stands when it goes on.
            leader::ask_in_code(t, uc, true);
            return true;
        }
        faults::log(t, info, &uc.mc, can)
    }

    fn goes_on(_t: &mut Block, _uc: &mut Ucontext) {}

    const BORN: u32 = slot_state::BLOCKED;

    fn thread_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        let Some(i) = clone::reserve_slot() else {
            crate::thread::message::say(crate::thread::message::TOO_MANY_THREADS);
            return Self::computed(t, c, EAGAIN);
        };
        crate::sync::locked::before_thread(t);
        clock::before_thread(t);
        cut::meet();
        stamp(t);
        slot(i).born.store(t.logging.stamps()[0] + 1, Release);
        let tid = clone::start_thread::<Self>(t, wish, i, t.slot_process(), start, |_, _| {});
        if !sys::is_error(tid) {
            slot(i).visible_tid.store(tid as u32, Relaxed);
        }
        stamp(t);
        let flags = if sys::is_error(tid) {
            0
        } else {
            i << SLOT_SHIFT
        };
        events::call_with(t, c, tid, flags, 0, &[]);
        t.logging.stamped = 0;
        if !sys::is_error(tid) {
            super::publish_tid::<Self>(t, wish, tid as u32);
            // It waits until everybody can know its id.
            crate::thread::schedule::go(i);
        }
        tid
    }

    fn process_create(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
        processes::make(t, c, wish, start)
    }

    fn process_start(t: &mut Block) {
        clock::thread_begins(t);
        processes::begin(t);
    }

    fn thread_start(t: &mut Block) {
        clock::thread_begins(t);
        crate::thread::schedule::wait_go(t.slot);
        t.slot().state.store(slot_state::RUNNING, Relaxed);
        let tid = t.slot().visible_tid.load(Relaxed);
        events::plain(Kind::ThreadStart, t.slot, 0, tid as i64, &[draw()]);
        kernel::sync_mask(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        clock::thread_ends(t);
        crate::sync::libc::malloc::thread_ends::<Self>(t);
        kernel::block_all();
        kernel::give_back_at_exit(t);
        Self::computed(t, c, 0);
        super::announce_death::<Self>(t);
        let last = process::entry().live_threads.fetch_sub(1, SeqCst) == 1;
        Self::stamped(t, Kind::ThreadExit, last as u32, c.args[0] as i64, 0);
        session().live_threads.fetch_sub(1, Relaxed);
        if last {
            processes::end(t, exit_status(c.args[0]));
            sys::exit_group(c.args[0] as i32);
        }
        t.slot().state.store(slot_state::EXITING, Release);
        // SAFETY: nothing of this thread is needed any more; the kernel clears the slot's thread id last.
        unsafe { rt_exit_thread() }
    }

    fn process_exit(t: &mut Block, c: &Call, frame: &Frame) -> ! {
        kernel::block_all();
        state::record_at_exit(t, frame);
        Self::computed(t, c, 0);
        super::clear_word::<Self>(t);
        processes::end(t, exit_status(c.args[0]));
        sys::exit_group(c.args[0] as i32)
    }

    fn exec(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        processes::exec(t, c)
    }

    fn image_start(t: &mut Block) {
        let (at, len) = crate::gate::exec::command_line();
        let h = EventHeader {
            value: session().images.load(Relaxed) as i64,
            ..events::header(Kind::Exec, t.slot, 1, section_len(len))
        };
        let mut w = Writer::begin(&h);
        w.put_words(&[process::visible_pid() as u64]);
        w.put_section(Tag::Input as u32, at, at, len);
        w.finish();
    }

    fn process_dies(t: &mut Block, signal: u32) {
        kernel::block_all();
        super::clear_word::<Self>(t);
        processes::end(t, signal as i32);
    }

    fn arrived(t: &mut Block, uc: &mut Ucontext) {
        match leader::is_on(t) {
            // It may come to a gate.
            true => cut::record::later(),
            false => cut::record::begin(t, uc),
        }
    }

    fn cut(t: &mut Block, uc: &mut Ucontext) {
        if leader::is_on(t) && standing::is_asked_for() && t.pending.first(t.mask).is_none() {
            let ours = in_runtime(uc.mc.rip);
            return stand::asked::<Self>(t, uc, ours);
        }
        cut::record::begin(t, uc);
    }

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        cut::record::trap(t, signal, uc)
    }

    #[inline(always)]
    fn defers(t: &mut Block, frame: &Frame) -> bool {
        t.deferred = leader::calls::ends_before(t, frame);
        if t.deferred && !leader::calls::has_written_all(t, frame) {
            t.deferred = false;
            return true;
        }
        t.deferred || leader::calls::keeps_back(t, frame)
    }

    const STANDS: bool = true;

    fn can_stand(t: &Block) -> bool {
        !t.order().walks && t.order().shard.0 == 0 && !crate::gate::ptrace::holds(t)
    }

    fn unlogged_calls(t: &Block) -> u64 {
        unlogged::calls(t)
    }

    fn has_logged(t: &Block) -> bool {
        unlogged::has_logged(t)
    }

    fn resumed(t: &mut Block, before: &Area<ENGINE_WORDS>) {
        // SAFETY: what this engine has put there.
        let before = unsafe { before.get::<super::Local>() };
        let now = t.order();
        now.unlogged = core::mem::take(&mut before.unlogged);
        now.waits_since = before.waits_since;
        now.since_hash = before.since_hash;
        now.last_stamp = before.last_stamp;
        now.made_again = before.made_again;
        now.copied = before.copied;
    }
}

/// Has this call mapped memory that other processes may write to, too?
fn maps_shared(c: &Call, result: i64) -> bool {
    let shared = match c.nr {
        nr::MMAP => c.args[3] & sys::MAP_SHARED != 0 && c.args[2] & sys::PROT_RW == sys::PROT_RW,
        other => other == nr::SHMAT,
    };
    shared && !sys::is_error(result)
}

/// The thread is about to sleep in a hooked function. Where a replay follows the recording that is told, once: until something else happens to the
/// thread, its entries say nothing of where it is.
pub fn waits(t: &mut Block) {
    if session().follower_pid.load(Relaxed) == 0 || unlogged::place(t) == t.order().waits_since {
        return;
    }
    let amid = !unlogged::is_where_it_entered(t);
    let quiet = quiet_so_far(t.as_current());
    put_counted(t.as_current(), Entry::wait(quiet, amid));
    t.order().waits_since = unlogged::place(t);
}

/// Logs operation `n` on an object, if another thread made the one before.
#[inline]
fn note(t: &mut Block, object: &Runs, n: u64, again: bool) {
    if again {
        log_quiet(t);
    } else {
        let name = name_of_run(object as *const Runs as u64);
        log_entry(t, EntryKind::Passed, name, n);
    }
}

/// Before an instruction in a [stub](crate::sync::locked) is made: its shard is locked, and the operation logged if another thread made the one
/// before. What the shard's sequence becomes when it is opened.
pub fn begin_operation(t: &mut Block, number: u32) -> u64 {
    let shard = shards::shard(number);
    let n = shards::lock(number, t.slot);
    let me = t.slot + 1;
    let mine = shard.last.load(Relaxed) == me;
    shard.last.store(me, Relaxed);
    if mine {
        log_quiet(t);
    } else {
        log_entry(t, EntryKind::Ordered, number, n);
    }
    2 * n
}

impl Order for Record {
    const REPLAYS: bool = false;

    fn begins_instruction(t: &mut Block, shard: u64, _f: &Frame) -> Option<(u64, u64)> {
        Some((shard, begin_operation(t, shards::number_at(shard))))
    }

    fn wait(
        t: &mut Block,
        word: &AtomicU32,
        value: u32,
        deadline: Option<&Deadline>,
        shared: bool,
    ) -> Wait {
        waits(t);
        let how = in_kernel(t, word, value, deadline, shared, || {}, |_| false);
        if how == Wait::Signal && t.hooked != 0 && t.pending.first(t.mask).is_none() {
            unlogged::stands(t);
        }
        how
    }

    #[inline(always)]
    fn does_not_count(t: &mut Block) {
        unlogged::does_not_count(t);
    }

    #[inline(always)]
    fn enters(t: &mut Block) {
        unlogged::enters(t);
    }

    #[inline(always)]
    fn leaves(t: &mut Block, returns: bool) {
        unlogged::leaves(t, returns);
        standing::draws_at_hook(t);
    }

    #[inline(always)]
    fn turn(_t: &mut Block, _object: &Runs) -> bool {
        true
    }

    #[inline]
    fn passed(t: &mut Block, object: &Runs) {
        let (n, again) = object.pass(t.slot);
        note(t, object, n, again);
    }

    #[inline]
    fn passed_among(t: &mut Block, object: &Runs) {
        let (n, again) = object.pass_among(t.slot);
        note(t, object, n, again);
    }

    #[inline(always)]
    fn failure(_t: &mut Block) -> Option<u32> {
        None
    }

    fn failed(t: &mut Block, errno: u32) {
        log_entry(t, EntryKind::Failed, 0, errno as u64);
    }

    #[inline]
    fn ordered<R>(t: &mut Block, address: u64, operation: impl FnOnce() -> R) -> R {
        let number = shards::number_of(address);
        let shard = shards::shard(number);
        let n = shards::lock(number, t.slot);
        t.order().shard = (number + 1, n);
        let r = operation();
        t.order().shard.0 = 0;
        let me = t.slot + 1;
        let mine = shard.last.load(Relaxed) == me;
        shard.last.store(me, Relaxed);
        // Before the shard is open again: should this thread be ended now, nobody has come after an operation that is not in the log.
        if mine {
            log_quiet(t);
        } else {
            log_entry(t, EntryKind::Ordered, number, n);
        }
        shards::unlock(shard, n);
        r
    }

    #[inline]
    fn seen(t: &mut Block, address: u64, size: usize, look: impl Fn() -> u64) -> u64 {
        let v = look();
        if t.known().get(address, size) == Some(v) {
            log_quiet(t);
            return v;
        }
        // Whoever put the value there had the shard locked by then. The processor makes the two looks in this order.
        let number = shards::number_of(address);
        let begun = shards::begun(shards::shard(number));
        t.known().put(address, size, v);
        log_entry(t, EntryKind::Seen, number, begun);
        log_entry(t, EntryKind::Value, 0, v);
        v
    }

    fn loaded(t: &mut Block, _pc: u64, address: u64, size: usize) -> u64 {
        let v = guard::read_word(address, size).unwrap_or(0);
        if t.known().get(address, size) == Some(v) {
            log_quiet(t);
        } else {
            t.known().put(address, size, v);
            log_entry(t, EntryKind::Loaded, address as u32, v);
        }
        v
    }

    fn value(t: &mut Block, compute: impl FnOnce() -> u64) -> u64 {
        let v = compute();
        log_entry(t, EntryKind::Value, 0, v);
        v
    }

    fn choice(_t: &mut Block, _object: u64) -> Option<Option<u64>> {
        None
    }

    fn chosen(t: &mut Block, object: u64, n: u64) {
        log_entry(t, EntryKind::Chosen, name_of(object), n);
    }

    fn faulted(t: &mut Block) {
        let (number, n) = core::mem::take(&mut t.order().shard);
        if number != 0 {
            // It was not made.
            shards::unlock(shards::shard(number - 1), n - 1);
        }
    }
}
