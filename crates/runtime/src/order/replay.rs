//! The replaying half of `order`: every thread takes its answers from its own ring, and goes on when the stamps of its events, and the
//! numbers of its operations, come to their turn.

use super::{
    cut, head, name_of, processes, ring_of, shards, space, state, total, turns, Order, Runs,
};
use crate::asm::rt_exit_thread;
use crate::capture::Call;
use crate::clone::{self, Wish};
use crate::engine::{Engine, RESTART};
use crate::locked::learned;
use crate::races::objects::Kind as Object;
use crate::races::{self, Atomic};
use crate::rebuilt::{self, recorded};
use crate::ring::{self, Reader};
use crate::serial::replay::{apply, cannot_map, deliver, tamper, OfFile};
use crate::serial::report::{diverge, Actual};
use crate::serial::state::frame_hash;
use crate::signal::frame::{FpState, SigContext, Ucontext};
use crate::signal::kernel;
use crate::signal::state::Siginfo;
use crate::sync::side::object_of;
use crate::sys;
use crate::thread::{current, session, slot, Block, Frame};
use crate::{files, mapped, memory, output, process, shm};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::event::{
    EventHeader, Instruction, Kind, FILE_NUMBER_SHIFT, FLAG_RESTARTED, SLOT_SHIFT,
};
use reprise_abi::order::{Entry, EntryKind, CLOSED_GONE};
use reprise_abi::session::{divergence_kind as kinds, slot_state};
use reprise_abi::syscalls::nr;
use reprise_abi::waits::{What, OVER};

/// Replaying in `order`.
pub struct Replay;

/// The calling thread has done all that was recorded of it. It stays where it is until the driver ends it with its process; it goes on only if
/// the driver took it for the slot's last thread.
pub(super) fn exhausted(t: &mut Block) {
    total::leave(t);
    let (ring, ..) = ring_of(t.slot);
    let was = t.slot().busy.swap(0, SeqCst);
    ring::wake_agent();
    let told = &head().waits[t.slot as usize];
    told.begin();
    loop {
        let closed = ring.closed.load(SeqCst);
        if closed == 0 {
            break;
        }
        told.sleeps(OVER, 0, closed);
        let soon = sys::Timespec::from_ns(sys::monotonic().ns() + 50_000_000);
        sys::futex_wait(ring.closed.as_ptr(), closed, Some(&soon));
        if !crate::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
    told.end();
    total::come_back(t);
    t.slot().busy.store(was, SeqCst);
}

/// The calling thread does nothing any more, and what was recorded of it is thrown away, so that the driver takes it for one that has done
/// it.
pub(crate) fn gives_up() -> ! {
    let t = current();
    total::leave(t);
    let (ring, ..) = ring_of(t.slot);
    loop {
        ring.position.store(ring.head.load(SeqCst), SeqCst);
        t.slot().busy.store(0, SeqCst);
        ring::wake_agent();
        let soon = sys::Timespec::from_ns(sys::monotonic().ns() + 1_000_000);
        sys::futex_wait(ring.consumer_asleep.as_ptr(), 1, Some(&soon));
        if !crate::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
}

/// Waits until the calling thread is the only one of its process.
pub fn wait_for_others_to_end() {
    let live = &process::entry().live_threads;
    turns::wait(live.as_ptr() as u64, || live.load(SeqCst) <= 1);
}

/// The header of the thread's next event, which must come.
pub(super) fn header(t: &mut Block) -> EventHeader {
    loop {
        match ring::peek() {
            Some(h) => return h,
            None => exhausted(t),
        }
    }
}

/// The calling thread has taken an event, or is about to, and what that brings about is still to be done. Until this is dropped the driver
/// doesn't take the thread for one that has done all.
pub(super) struct Busy(&'static AtomicU64);

pub(super) fn busy(t: &Block) -> Busy {
    let word = &slot(t.slot).busy;
    word.store(1, SeqCst);
    Busy(word)
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

/// Does no thread have a slot with this state?
pub(super) fn is_unused(state: u32) -> bool {
    matches!(state, slot_state::FREE | slot_state::EXITING)
}

/// Waits until slot `i` is free, and takes it for the thread that the call makes whose first stamp is in the block.
pub(super) fn take_slot(t: &Block, i: u32) {
    clone::wait_for_slot(i);
    // Whoever had it may have been ended in the middle of something.
    slot(i).busy.store(0, SeqCst);
    head().waits[i as usize].reset();
    // In this order: the driver takes a slot that nobody has for one whose thread is gone.
    slot(i).state.store(slot_state::BLOCKED, SeqCst);
    slot(i).born.store(t.order.stamps[0] + 1, SeqCst);
}

/// The calling thread begins. If the driver ends its process at this moment, the slot is left already, and stays so.
pub(super) fn runs_now(t: &Block) {
    let state = &t.slot().state;
    let _ = state.compare_exchange(slot_state::BLOCKED, slot_state::RUNNING, SeqCst, SeqCst);
}

/// May the next thread have slot `i`, of which nothing is left that was recorded of the last one?
pub fn is_vacant(i: u32) -> bool {
    let (ring, ..) = ring_of(i);
    is_unused(slot(i).state.load(Acquire)) && ring.closed.load(SeqCst) != CLOSED_GONE
}

/// What the thread's ring has next.
enum Next {
    Entry(Entry),
    Event,
}

fn next(t: &mut Block) -> Next {
    loop {
        match ring::peek_entry() {
            None => exhausted(t),
            Some(words) => return Entry::from_words(words).map_or(Next::Event, Next::Entry),
        }
    }
}

/// The entry that counts the thread's quiet operations now; `None` when an event comes next.
fn look(t: &mut Block) -> Option<Entry> {
    loop {
        match next(t) {
            Next::Event => return None,
            Next::Entry(e) => {
                if !t.order.looked {
                    t.order.looked = true;
                    t.order.quiet = e.quiet;
                }
                if e.kind == EntryKind::Quiet && t.order.quiet == 0 {
                    consume(t);
                    continue;
                }
                return Some(e);
            }
        }
    }
}

fn consume(t: &mut Block) {
    t.order.looked = false;
    t.order.quiet = 0;
    ring::skip_entry();
}

/// What an operation of synchronisation is, for a report.
fn operation(t: &Block, detail: u32, args: &[u64], recorded: Option<&EventHeader>) -> ! {
    let actual = Actual {
        kind: Kind::Sync,
        detail,
        value: 0,
        input_hash: 0,
        args,
    };
    diverge(t, kinds::EVENT, recorded, &actual)
}

/// Another operation than the recorded entry says.
fn unlike(t: &Block, kind: EntryKind, object: u32, recorded: &Entry) -> ! {
    let e = recorded;
    let args = [object as u64, e.kind as u64 + 1, e.object as u64, e.value];
    operation(t, kind as u32, &args, None)
}

/// The next operation: quiet (`None`), or the entry that it has. Anything else is a divergence.
fn due(t: &mut Block, object: u32) -> Option<Entry> {
    match look(t) {
        Some(_) if t.order.quiet > 0 => None,
        Some(e) => Some(e),
        None => {
            cut::replay::must_be_found(t);
            let h = ring::peek();
            operation(t, EntryKind::Passed as u32, &[object as u64], h.as_ref())
        }
    }
}

/// The header of the thread's next event. More operations before it than recorded are a divergence.
fn next_event(t: &mut Block, actual: &Actual) -> EventHeader {
    cut::replay::must_be_found(t);
    if look(t).is_some() {
        // What was recorded is an entry, of which a report has no place.
        diverge(t, kinds::EVENT, None, actual);
    }
    header(t)
}

/// Takes the next event, which must be of one of these kinds.
pub(super) fn expect(t: &mut Block, wanted: &[Kind], actual: &Actual) -> EventHeader {
    let h = next_event(t, actual);
    if !wanted.iter().any(|k| *k as u8 == h.kind) || h.detail != actual.detail {
        diverge(t, kinds::EVENT, Some(&h), actual);
    }
    h
}

/// Waits for the turn of a stamp of a call. Other processes may have had copies made of files that are mapped here.
fn begin_turn(stamp: u64) {
    turns::wait_for_stamp(stamp);
    files::catch_up();
}

/// A call's events, up to its result. `at_turn` is what happens while the beginning of the call has its turn, and `at_end` while its end
/// has it. The first stamp is left in the block.
pub(super) fn replay_call(
    t: &mut Block,
    c: &Call,
    hash: u64,
    at_turn: impl FnOnce(&mut Block, &EventHeader) -> i64,
    at_end: impl FnOnce(&mut Block, &EventHeader, &OfFile),
) -> (i64, EventHeader, OfFile) {
    let actual = Actual {
        kind: Kind::Syscall,
        detail: c.nr as u32,
        value: 0,
        input_hash: hash,
        args: &c.args[..c.nargs],
    };
    let h = expect(t, &[Kind::Syscall, Kind::Enter], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    let stamps = (h.nargs as usize).saturating_sub(c.nargs);
    let ends_now = h.kind == Kind::Syscall as u8;
    let stamps_fit = if ends_now {
        stamps == 1 || stamps == 2
    } else {
        stamps == 1
    };
    let same = rebuilt::same_arguments(c, &args) && rebuilt::same_inputs(c, h.input_hash, hash);
    if !same || !stamps_fit {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    let begins = args[c.nargs];
    t.order.stamps[0] = begins;
    begin_turn(begins);
    if races::on() {
        races::calls::begins(t, c);
    }
    let done = at_turn(t, &h);
    if done != h.value && ends_now {
        let actual = Actual {
            value: done,
            ..actual
        };
        diverge(t, kinds::STATE, Some(&h), &actual);
    }
    let (h, r, ends) = if ends_now {
        let ends = args[c.nargs + stamps - 1];
        if stamps == 2 {
            turns::pass_stamp(begins);
            begin_turn(ends);
        }
        (h, r, ends)
    } else {
        r.finish();
        turns::pass_stamp(begins);
        let actual = Actual {
            kind: Kind::Exit,
            ..actual
        };
        let h = expect(t, &[Kind::Exit], &actual);
        let mut r = Reader::begin(h);
        let ends = r.args()[0];
        begin_turn(ends);
        (h, r, ends)
    };
    let file = apply(r, |address| rebuilt::place(c, &args, address));
    at_end(t, &h, &file);
    // In the order in which they wrote: what is shown is what was seen.
    output::follow(c, h.value);
    call_ends(t, c, h.value);
    turns::pass_stamp(ends);
    (h.value, h, file)
}

/// A call's result is there.
fn call_ends(t: &Block, c: &Call, result: i64) {
    if races::on() {
        races::calls::ends(t, c, result);
    }
}

/// shmat(2): the segment must be there before its content can be written.
fn attach(t: &mut Block, c: &Call) -> i64 {
    let actual = Actual {
        kind: Kind::Syscall,
        detail: c.nr as u32,
        value: 0,
        input_hash: 0,
        args: &c.args[..c.nargs],
    };
    let h = expect(t, &[Kind::Syscall], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    if args[..c.nargs] != c.args[..c.nargs] || h.nargs as usize != c.nargs + 2 {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    let [begins, ends] = [args[c.nargs], args[c.nargs + 1]];
    turns::take(begins);
    begin_turn(ends);
    if sys::is_error(h.value) {
        r.finish();
    } else {
        let at = h.value as u64;
        let size = r.section().map_or(0, |(size, ..)| size);
        if !shm::attach_again(c, at, h.flags >> FILE_NUMBER_SHIFT, size) {
            cannot_map(ring::event_number());
        }
        apply(r, |address| address);
        shm::finish_attach(c, at, size);
        let _lock = space::lock();
        crate::patch::replay_with_code(t);
    }
    turns::pass_stamp(ends);
    h.value
}

/// As [`replay_call`], when nothing happens but what the log says.
fn answer(t: &mut Block, c: &Call, hash: u64) -> (i64, EventHeader, OfFile) {
    replay_call(t, c, hash, |_, h| h.value, |_, _, _| {})
}

/// A simple event of the thread's own: its header and its argument words.
fn plain(t: &mut Block, kind: Kind, detail: Option<u32>) -> (EventHeader, [u64; 8]) {
    let mut actual = Actual {
        kind,
        detail: detail.unwrap_or(0),
        value: 0,
        input_hash: 0,
        args: &[],
    };
    if detail.is_none() {
        actual.detail = next_event(t, &actual).detail;
    }
    let h = expect(t, &[kind], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    r.finish();
    (h, args)
}

impl Engine for Replay {
    const LIVE: bool = false;
    const IMMEDIATE: bool = false;

    fn syscall(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let hash = c.input_hash();
        if let Some(signal) = crate::signal::calls::ends_us(t, c, process::visible_pid()) {
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
            if !memory::redo(c, r, file.hash, h.flags >> FILE_NUMBER_SHIFT) {
                cannot_map(ring::event_number() - 1);
            }
            if races::on() {
                races::calls::mapped(c, r);
            }
            crate::cpuid::after_call::<Self>(t, c, r, [0; 2]);
            crate::hook::after_call(t, c, r);
            // What is searched for locked instructions has its functions replaced already.
            crate::patch::replay_with_code(t);
        };
        let (r, ..) = replay_call(t, c, 0, |_, h| h.value, redo);
        r
    }

    fn futex(t: &mut Block, c: &mut Call, _frame: &Frame) -> i64 {
        let _busy = busy(t);
        if races::on() {
            races::wakes(t, c.args[0]);
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
        let actual = Actual {
            kind: Kind::Instruction,
            detail: which as u32,
            value: 0,
            input_hash: 0,
            args: &[],
        };
        let h = expect(t, &[Kind::Instruction], &actual);
        let mut r = Reader::begin(h);
        let aux = r.args()[0];
        r.finish();
        (h.value as u64, aux)
    }

    fn signal_point(t: &mut Block, frame: &mut Frame) {
        t.slot().signal_pending.store(0, Relaxed);
        tamper();
        // Handlers come only between operations; while some are left to be made quietly, none is due.
        while let Some(words) = ring::peek_entry() {
            if let Some(e) = Entry::from_words(words) {
                if e.kind != EntryKind::Quiet || !(t.order.looked && t.order.quiet == 0) {
                    return;
                }
                consume(t);
                continue;
            }
            let Some(h) = ring::peek() else { return };
            match Kind::from_u8(h.kind) {
                Some(Kind::Signal) if h.value == frame.rip as i64 => {
                    let mut r = Reader::begin(h);
                    let stamp = r.args()[0];
                    turns::take(stamp);
                    if races::on() {
                        races::calls::delivered(t);
                    }
                    deliver(t, frame, FpState::Live, h);
                }
                Some(Kind::Cut) => return cut::replay::plant(t, h),
                Some(Kind::Hash) if !t.order.hook_ends && h.detail == state::AT_GATE => {
                    state::check(t, frame, &h)
                }
                Some(Kind::Patch) if crate::patch::comes_with_code(h.detail) => {
                    crate::patch::replay_with_code(t)
                }
                _ => return,
            }
        }
    }

    fn fault(t: &mut Block, info: &Siginfo, mc: &SigContext) {
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
        let was = r.args();
        // The registers' hash would hold addresses of dead stack; place and address tell enough.
        if (h.value != mc.rip as i64 || was[..2] != args[..2]) && !rebuilt::on() {
            diverge(t, kinds::ARGUMENT, Some(&h), &actual);
        }
        r.finish();
    }

    fn goes_on(t: &mut Block, _uc: &mut Ucontext) {
        plant_if_next(t);
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
        if races::on() {
            races::thread_begins(t, child);
        }
        let tid = clone::start_thread::<Self>(t, wish, child, t.slot_process(), start, || {});
        if sys::is_error(tid) {
            crate::serial::processes::cannot_start(tid);
        }
        clone::publish_tid(wish, r as u32);
        total::join(child);
        crate::serial::baton::go(child);
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
        crate::serial::baton::wait_go(t.slot);
        total::begin(t);
        let _busy = busy(t);
        runs_now(t);
        if races::on() {
            races::thread_starts(t);
        }
        let stamp = plain(t, Kind::ThreadStart, Some(0)).1[0];
        turns::take(stamp);
        plant_if_next(t);
    }

    fn thread_exit(t: &mut Block, c: &Call, _frame: &Frame) -> ! {
        crate::sync::malloc::thread_ends::<Self>(t);
        let busy = busy(t);
        replay_call(t, c, 0, |_, _| 0, |_, _, _| {});
        if races::on() {
            races::thread_ends(t);
        }
        super::announce_death::<Self>(t);
        // Whether it is the last one, of several that end at the same time, only the recording knows.
        let (h, args) = plain(t, Kind::ThreadExit, None);
        turns::take(args[1]);
        if h.detail != 0 {
            Self::process_dies(t, 0);
            sys::exit_group(c.args[0] as i32);
        }
        session().live_threads.fetch_sub(1, SeqCst);
        let live = &process::entry().live_threads;
        live.fetch_sub(1, SeqCst);
        turns::call(live.as_ptr() as u64);
        // Before anybody can have the slot.
        total::leave(t);
        t.slot().state.store(slot_state::EXITING, Release);
        drop(busy);
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
        processes::end_again(t);
    }

    fn cut(t: &mut Block, uc: &mut Ucontext) {
        cut::replay::ask(t, uc);
    }

    fn trap(t: &mut Block, signal: u32, uc: &mut Ucontext) -> bool {
        cut::replay::trap(t, signal, uc)
    }
}

/// When the next that the thread does is a cut, its place is looked for.
pub(super) fn plant_if_next(t: &mut Block) {
    if let Some(h) = is_signal_next(t).filter(|h| h.kind == Kind::Cut as u8) {
        cut::replay::plant(t, h);
    }
}

/// In the middle of code, where a cut was found: the signals that came there are delivered.
pub(super) fn follow(t: &mut Block, uc: &mut Ucontext) {
    while let Some(h) = is_signal_next(t) {
        if h.kind == Kind::Cut as u8 {
            return cut::replay::plant(t, h);
        }
        t.slot().last_pc.store(uc.mc.rip, Relaxed);
        let mut r = Reader::begin(h);
        let stamp = r.args()[0];
        turns::take(stamp);
        let mut frame = uc.mc.to_frame();
        deliver(t, &mut frame, FpState::Saved(uc.mc.fpstate), h);
        kernel::enter_from_kernel(t, uc, &frame);
    }
}

/// Before events are looked for that are nobody's answer: what only counted quiet operations, all of them made, is out of the way.
pub fn settle(t: &mut Block) {
    is_signal_next(t);
}

/// After an operation: does a signal come now? Hooked functions look for it on their way out.
fn tell_of_signal(t: &mut Block) {
    if t.order.quiet == 0 && is_signal_next(t).is_some() {
        t.slot().signal_pending.store(1, Relaxed);
    }
}

/// The signal, or the cut, that comes before the thread's next operation or gate. Where the trace ends there is none.
fn is_signal_next(t: &mut Block) -> Option<EventHeader> {
    while let Some(words) = ring::peek_entry() {
        let Some(e) = Entry::from_words(words) else {
            let comes =
                |h: &EventHeader| matches!(Kind::from_u8(h.kind), Some(Kind::Signal | Kind::Cut));
            return ring::peek().filter(comes);
        };
        let used_up = if t.order.looked {
            t.order.quiet == 0
        } else {
            e.quiet == 0
        };
        if e.kind != EntryKind::Quiet || !used_up {
            return None;
        }
        consume(t);
    }
    None
}

/// Does the thread touch memory that isn't there before any other operation? Then it does in this one, and nothing is to be waited for.
fn faults_next(t: &mut Block) -> bool {
    look(t).is_none() && ring::peek().is_some_and(|h| h.kind == Kind::Fault as u8)
}

/// An operation was made: it was quiet, or had the entry that is next.
fn made(t: &mut Block) {
    if t.order.quiet > 0 {
        t.order.quiet -= 1;
    } else {
        consume(t);
    }
    tell_of_signal(t);
}

/// Before an instruction in a [stub](crate::locked) is made: waits for its turn. What the shard's sequence becomes after it, and where
/// others wait for that. If the place of a signal is to be looked for from the instruction on, [`end_operation`] is called in any case.
pub fn begin_operation(t: &mut Block, number: u32) -> (u64, u64) {
    let shard = shards::shard(number);
    if let Some(e) = due(t, number) {
        if e.kind != EntryKind::Ordered || e.object != number {
            unlike(t, EntryKind::Ordered, number, &e);
        }
        turns::wait_for(key_of(number), e.value - 1, || {
            shard.sequence.load(SeqCst) / 2 == e.value - 1
        });
    }
    made(t);
    if races::on() {
        races::shard(t, number);
    }
    let next = shard.sequence.load(SeqCst) + 2;
    let room = match t.order.quiet == 0 && is_signal_next(t).is_some() {
        true => turns::room_never_empty(),
        false => turns::room_of(key_of(number)),
    };
    (next, room)
}

/// Number of the shard that ordered, in the recording, the operation on the word at this address that the thread is about to make.
pub fn shard_of(t: &mut Block, address: u64) -> u32 {
    if !rebuilt::on() {
        return shards::number_of(address);
    }
    let entry = look(t).filter(|_| t.order.quiet == 0);
    let told = entry.filter(|e| matches!(e.kind, EntryKind::Ordered | EntryKind::Seen));
    rebuilt::shard_of(t, address, told.map(|e| e.object))
}

/// Those who wait for the shard look again.
pub fn call_waiting(t: &Block, number: u32) {
    turns::call_for(key_of(number), t.locked.next / 2);
}

/// After it. No gate follows at which it would be seen that a signal comes to the code behind the instruction.
pub fn end_operation(t: &mut Block, number: u32) {
    call_waiting(t, number);
    after_operation(t);
}

/// After an operation in a stub, when nobody waits for it any more.
pub fn after_operation(t: &mut Block) {
    if t.order.quiet == 0 {
        plant_if_next(t);
    }
}

/// What threads wait for who wait for a shard.
fn key_of(number: u32) -> u64 {
    What::Shard(number).key()
}

impl Order for Replay {
    const REPLAYS: bool = true;

    fn turn(t: &mut Block, object: &Runs) -> bool {
        let address = object as *const Runs as u64;
        if t.order.quiet == 0 && is_signal_next(t).is_some() {
            cut::replay::must_be_found(t);
            // The handler runs first, as it did then; an operation that is put off for nothing would be so for ever.
            t.order.put_off += 1;
            if t.order.put_off > 2 {
                let h = ring::peek();
                operation(t, EntryKind::Passed as u32, &[address], h.as_ref());
            }
            t.slot().signal_pending.store(1, Relaxed);
            return false;
        }
        t.order.put_off = 0;
        if faults_next(t) {
            return true;
        }
        let name = name_of(recorded(object_of(address).unwrap_or(address)));
        let Some(e) = due(t, name) else {
            return true;
        };
        // An object on a rebuilt program's stack may lie elsewhere.
        if e.kind != EntryKind::Passed || e.object != name && !rebuilt::on() {
            unlike(t, EntryKind::Passed, name, &e);
        }
        turns::wait_for(address, e.value - 1, || object.count() == e.value - 1);
        true
    }

    fn passed(t: &mut Block, object: &Runs) {
        let (n, _) = object.pass_among(t.slot);
        made(t);
        turns::call_for(object as *const Runs as u64, n);
    }

    fn passed_among(t: &mut Block, object: &Runs) {
        Self::passed(t, object);
    }

    fn handler_first(t: &mut Block, entry: u64) -> bool {
        let now = t.order.quiet == 0
            && is_signal_next(t)
                .is_some_and(|h| h.kind == Kind::Signal as u8 && h.value as u64 == entry);
        if now {
            t.slot().signal_pending.store(1, Relaxed);
        }
        now
    }

    fn leaves(t: &mut Block) {
        tell_of_signal(t);
    }

    fn failure(t: &mut Block) -> Option<u32> {
        if t.order.quiet == 0 && is_signal_next(t).is_some() {
            return None;
        }
        let e = look(t)?;
        if t.order.quiet > 0 || e.kind != EntryKind::Failed {
            return None;
        }
        consume(t);
        tell_of_signal(t);
        Some(e.value as u32)
    }

    fn failed(_t: &mut Block, _errno: u32) {}

    fn ordered<R>(t: &mut Block, address: u64, make: impl FnOnce() -> R) -> R {
        if faults_next(t) {
            return make();
        }
        let number = shard_of(t, address);
        let shard = shards::shard(number);
        let key = key_of(number);
        if let Some(e) = due(t, number) {
            if e.kind != EntryKind::Ordered || e.object != number {
                unlike(t, EntryKind::Ordered, number, &e);
            }
            turns::wait_for(key, e.value - 1, || {
                shard.sequence.load(SeqCst) / 2 == e.value - 1
            });
        }
        let r = make();
        let n = shard.sequence.fetch_add(2, SeqCst) / 2 + 1;
        made(t);
        turns::call_for(key, n);
        r
    }

    fn seen(t: &mut Block, address: u64, size: usize, look: impl Fn() -> u64) -> u64 {
        // If there is nothing to be seen, the fault comes now as it did then.
        look();
        let number = shard_of(t, address);
        let Some(e) = due(t, number) else {
            made(t);
            return t
                .order
                .known
                .get(address, size)
                .unwrap_or_else(|| operation(t, EntryKind::Seen as u32, &[address], None));
        };
        if e.kind != EntryKind::Seen || e.object != number {
            operation(t, EntryKind::Seen as u32, &[address], None);
        }
        let shard = shards::shard(number);
        turns::wait_for(key_of(number), e.value, || {
            shard.sequence.load(SeqCst) / 2 >= e.value
        });
        consume(t);
        let v = Self::value(t, || 0);
        t.order.known.put(address, size, v);
        v
    }

    fn loaded(t: &mut Block, pc: u64, address: u64, size: usize) -> u64 {
        let Some(e) = due(t, address as u32) else {
            made(t);
            let Some(v) = t.order.known.get(address, size) else {
                operation(t, EntryKind::Loaded as u32, &[address], None)
            };
            learned::check_known(pc, address, size, v);
            return v;
        };
        if e.kind != EntryKind::Loaded || e.object != address as u32 {
            unlike(t, EntryKind::Loaded, address as u32, &e);
        }
        let before = t.order.known.get(address, size);
        learned::await_value(pc, address, size, before, e.value);
        made(t);
        t.order.known.put(address, size, e.value);
        e.value
    }

    fn value(t: &mut Block, _compute: impl FnOnce() -> u64) -> u64 {
        match due(t, 0) {
            Some(e) if e.kind == EntryKind::Value => {
                made(t);
                e.value
            }
            _ => operation(t, EntryKind::Value as u32, &[], None),
        }
    }

    fn choice(t: &mut Block, object: u64) -> Option<Option<u64>> {
        if t.order.quiet == 0 && is_signal_next(t).is_some() {
            return Some(None);
        }
        let chosen = look(t).filter(|e| {
            t.order.quiet == 0
                && e.kind == EntryKind::Chosen
                && e.object == name_of(recorded(object))
        });
        if chosen.is_some() {
            made(t);
        }
        Some(chosen.map(|e| e.value))
    }

    fn chosen(_t: &mut Block, _object: u64, _n: u64) {}

    fn learns(t: &mut Block, kind: Object, name: u64) {
        if races::on() {
            races::learns(t, kind, name);
        }
    }

    fn lets_know(t: &mut Block, kind: Object, name: u64) {
        if races::on() {
            races::lets_know(t, kind, name);
        }
    }

    fn atomic(t: &mut Block, f: &Frame, a: &Atomic) {
        if races::on() {
            races::atomic(t, f, a);
        }
    }

    fn faulted(_t: &mut Block) {}
}
