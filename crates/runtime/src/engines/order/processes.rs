//! Process trees under `order`: processes run at the same time, as threads do, and share the session's counter of stamps.
//!
//! **Recording.** A fork is a call with a beginning and an end ([`Kind::Enter`], [`Kind::Exit`]); the beginning is logged before the kernel
//! is asked, so that a parent that is killed meanwhile leaves no child that nobody knows. The child's first event says which call made it.
//! A fork holds the lock of the address space, so that the child's copy of it is whole. What other threads of the parent do to their
//! memory at that moment is in the child as it happened to be, in a replay maybe otherwise: as natively, the child must not rely on it.
//!
//! **Replay.** A process is made when the call's beginning has its turn. It never execs: the driver makes another one of the recorded image
//! ([`crate::engines::serial::processes`]). A process that ends first waits until its other threads have done all that was recorded of them;
//! one that was killed is killed by the driver at that moment.

use super::record::{self, draw, stamp, Record};
use super::replay::{expect, expect_exit, header, replay_call, same_arguments, Replay};
use super::{copies, cut, listing, replay, turns};
use crate::common::report::{diverge, Actual};
use crate::common::start::cannot_start;
use crate::engine::wish::Wish;
use crate::engine::Engine;
use crate::gate::clone;
use crate::gate::robust;
use crate::log::awaited::Looks;
use crate::log::busy::busy;
use crate::log::debugger;
use crate::log::events;
use crate::log::output;
use crate::log::ring::{self, Reader};
use crate::log::total;
use crate::machine::sys;
use crate::memory;
use crate::memory::capture::Call;
use crate::memory::space;
use crate::memory::written;
use crate::signal::kernel;
use crate::thread::rings::ring_of;
use crate::thread::schedule;
use crate::thread::{message, process, request};
use crate::thread::{session, slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{Kind, ProcessEnd, Tag, SLOT_SHIFT};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::notes;
use reprise_abi::session::request as requests;
use reprise_abi::session::{divergence_kind as kinds, process_state, slot_state};
use reprise_abi::session::{Process, MAX_PROCESSES};
use reprise_abi::syscalls::nr;

const EAGAIN: i64 = -11;
const PR_SET_PDEATHSIG: u64 = 1;

/// Record: says that the order of plain loads and stores isn't recorded, where processes share memory.
pub fn note_sharing() {
    let live = |p: &&Process| p.state.load(Relaxed) == process_state::LIVE;
    let used = session().processes_used.load(Relaxed) as usize;
    let all = &session().processes[..used.min(MAX_PROCESSES)];
    if all.iter().filter(live).count() > 1 && memory::is_shared_with_others() {
        message::note(notes::ORDER_SHARED);
    }
}

/// Record: fork(2) and its kin.
pub fn make(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
    let places = clone::reserve_slot().map(|i| (i, process::reserve(process::kernel_pid())));
    let (i, number) = match places {
        Some((i, Some(number))) => (i, number),
        other => {
            if let Some((i, None)) = other {
                slot(i).state.store(slot_state::FREE, Release);
            }
            crate::thread::message::say(crate::thread::message::TOO_MANY_THREADS);
            return Record::computed(t, c, EAGAIN);
        }
    };
    if wish.shares_memory() && !wish.waits() {
        cut::meet();
    }
    if !wish.shares_memory() {
        written::lose();
    }
    // A child in the same memory needs the lock itself, while its parent may wait for it.
    let lock = (!wish.shares_memory()).then(space::lock);
    stamp(t);
    let (me, begins, mut entered) = (t.slot, t.logging.stamps()[0], false);
    let tid = clone::start_thread::<Record>(t, wish, i, number, start, |_, _| {
        entered = true;
        slot(i).born.store(begins + 1, Release);
        record::write_enter(me, c, i << SLOT_SHIFT, 0, &[begins]);
        process::entry_of(number).announced.store(1, Release);
    });
    if entered {
        t.logging.stamped = 0;
    }
    let mut told = None;
    if sys::is_error(tid) {
        slot(i).state.store(slot_state::FREE, Release);
        let p = process::entry_of(number);
        p.state.store(process_state::FREE, Release);
    } else {
        let pidfd = clone::open_pidfd(t, wish, tid as u32);
        clone::publish_pidfd(wish, pidfd);
        told = pidfd.map(|fd| (Tag::Descriptor, fd, 0, 0));
    }
    note_sharing();
    stamp(t);
    let kind = if entered { Kind::Exit } else { Kind::Syscall };
    events::ended_with(t, kind, c, tid, 0, 0, told.as_slice());
    t.logging.stamped = 0;
    drop(lock);
    if !sys::is_error(tid) {
        super::publish_tid::<Record>(t, wish, tid as u32);
        if wish.shares_memory() && !wish.waits() {
            schedule::go(i);
        }
    }
    tid
}

/// Record: the first thing that the first thread of a new process does.
pub fn begin(t: &mut Block) {
    clone::wait_for_maker(t);
    t.slot().state.store(slot_state::RUNNING, Relaxed);
    let tid = sys::gettid() as u32;
    let parent = sys::getppid() as u64;
    t.slot().visible_tid.store(tid, Relaxed);
    process::entry().visible_pid.store(tid, Relaxed);
    process::is_born(0);
    clone::publish_own_tid(t, tid);
    let birth = process::entry().birth.load(Relaxed);
    let born = t.slot().born.load(Relaxed);
    events::plain(
        Kind::ProcessStart,
        t.slot,
        // The agent says which one of the trace that is.
        birth,
        tid as i64,
        &[parent, born, draw()],
    );
    if t.order().copied {
        copies::log(t);
    }
    kernel::sync_mask(t);
}

/// Record: the calling thread's process ends with this wait status. From here on no other thread of it begins anything ([`stamp`]).
pub fn end(t: &mut Block, status: i32) {
    let p = process::entry();
    let ends = || {
        p.state
            .compare_exchange(process_state::LIVE, process_state::ENDING, SeqCst, SeqCst)
    };
    if crate::gate::exec::while_none_is_under_way(t, ends).is_err() {
        schedule::wait_for_end();
    }
    let pid = process::visible_pid() as u64;
    let slot = t.slot();
    slot.told.store(slot.born.load(Relaxed) + 1, SeqCst);
    events::plain(
        Kind::ProcessEnd,
        t.slot,
        ProcessEnd::Told as u32,
        status as i64,
        &[pid, draw()],
    );
    schedule::leave(t);
}

/// Record: execve(2).
pub fn exec(t: &mut Block, c: &mut Call) -> i64 {
    let hash = c.input_hash();
    stamp(t);
    record::write_enter(t.slot, c, 0, hash, t.logging.stamps());
    t.logging.stamped = 0;
    let r = crate::gate::exec::attempt(t, c);
    stamp(t);
    events::call(t, Kind::Exit, c, r, 0, hash);
    t.logging.stamped = 0;
    r
}

/// Replay: fork(2) and its kin.
pub fn make_again(t: &mut Block, c: &Call, wish: &Wish, start: &Frame) -> i64 {
    let _busy = busy(t);
    let mut made = None;
    let (r, _, of) = replay_call(
        t,
        c,
        0,
        |t, h| {
            if h.kind == Kind::Enter as u8 {
                made = Some(start_process(t, wish, h.flags >> SLOT_SHIFT, start));
            }
            h.value
        },
        |_, _, _| {},
    );
    match made {
        Some(number) if sys::is_error(r) => {
            // The recorded kernel refused; nothing is in the trace of the new process.
            let p = process::entry_of(number);
            p.state.store(process_state::ENDING, Release);
            sys::call_undisturbed(nr::KILL, &[p.kernel_pid.load(Relaxed) as u64, 9]);
            schedule::retire_other(number);
        }
        Some(_) => {
            clone::publish_pidfd(wish, of.descriptor);
            super::publish_tid::<Replay>(t, wish, r as u32);
        }
        None => {}
    }
    r
}

/// Replay: makes the process whose first thread has slot `child`; its number.
fn start_process(t: &mut Block, wish: &Wish, child: u32, start: &Frame) -> u32 {
    let Some(number) = process::reserve(process::kernel_pid()) else {
        cannot_start(EAGAIN);
    };
    replay::take_slot(t, child);
    total::join(child);
    let tid = clone::start_thread::<Replay>(t, wish, child, number, start, |_, _| {});
    if sys::is_error(tid) {
        cannot_start(tid);
    }
    // The child may have told, and gone, already.
    let pid = &process::entry_of(number).kernel_pid;
    let _ = pid.compare_exchange(0, tid as u32, SeqCst, SeqCst);
    number
}

/// Replay: the first thing that the first thread of a new process does.
pub fn begin_again(t: &mut Block) {
    sys::prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
    kernel::block_all();
    total::begin_unless(t, || replay::is_over(t));
    // Not before: of one that was killed before its first step nothing was recorded, and the driver may end it while it waits.
    let _busy = busy(t);
    replay::runs_now(t);
    let Some(h) = replay::first_header(t) else {
        never_was(t);
    };
    let mut r = Reader::begin(h);
    let args = r.args();
    let born = t.slot().born.load(Relaxed);
    if h.kind != Kind::ProcessStart as u8 || args[1] != born {
        never_was(t);
    }
    r.finish();
    turns::take(t, args[2]);
    let pid = h.value as u32;
    t.slot().visible_tid.store(pid, Relaxed);
    process::entry().visible_pid.store(pid, Relaxed);
    process::entry().birth.store(h.detail, Relaxed);
    process::entry().has_begun();
    copies::take(t);
    clone::publish_own_tid(t, pid);
}

/// Replay: the parent was killed before it could make this process: the trace knows only what came later of its slot, if anything. Others may
/// wait for the slot.
fn never_was(t: &mut Block) -> ! {
    // Before anybody can have the slot.
    total::leave(t.slot);
    let state = schedule::retire(t);
    t.slot().state.store(state, Release);
    sys::exit_group(0);
}

/// Has all been done that was recorded of the thread in slot `i`?
fn is_done(i: u32) -> bool {
    let (ring, ..) = ring_of(i);
    // In this order: what an event brings about is done after it was taken.
    ring.closed.load(SeqCst) != 0
        && ring.position.load(SeqCst) == ring.head.load(SeqCst)
        && slot(i).busy.load(SeqCst) == 0
}

/// Are there other threads in the calling thread's process?
fn has_others(t: &Block) -> bool {
    let others = |i: &u32| is_other(t, *i);
    (0..MAX_SLOTS as u32).any(|i| others(&i))
}

fn is_other(t: &Block, i: u32) -> bool {
    i != t.slot
        && slot(i).process.load(Relaxed) == t.slot_process()
        && !replay::is_unused(slot(i).state.load(Acquire))
}

/// Replay: waits until the other threads of the process have done all that was recorded of them. Then they may go.
fn await_others(t: &mut Block) {
    let (mine, ..) = ring_of(t.slot);
    let looks = Looks::begin();
    for i in 0..MAX_SLOTS as u32 {
        while is_other(t, i) && !is_done(i) {
            looks.until_done(i);
            if total::runs() {
                total::give_way();
            }
            // The driver reads on where somebody waits.
            mine.consumer_asleep.store(1, SeqCst);
            request::wake_agent();
            let soon = sys::Timespec::from_ns(sys::monotonic().ns() + 1_000_000);
            sys::futex_wait(mine.consumer_asleep.as_ptr(), 1, Some(&soon));
            total::begin_asleep();
            if !crate::thread::namespace::agent_lives() {
                sys::exit_group(125);
            }
        }
    }
    mine.consumer_asleep.store(0, SeqCst);
    if total::runs() {
        total::goes_on();
    }
}

/// Replay: the process ends here, as it said.
pub fn end_again(t: &mut Block) {
    kernel::block_everything();
    // An exec of another thread may have come before it.
    header(t);
    if debugger::paces() {
        // In a process that has said how it ends nothing has an order any more: all that was recorded came before.
        await_others(t);
        debugger::stay();
    }
    let actual = Actual {
        detail: ProcessEnd::Told as u32,
        ..Actual::of(Kind::ProcessEnd)
    };
    let h = expect(t, &[Kind::ProcessEnd], &actual);
    let mut r = Reader::begin(h);
    let stamp = r.args()[1];
    r.finish();
    // Whoever learnt of it did so after this stamp.
    robust::mark_own(t);
    turns::take(t, stamp);
    await_others(t);
    // Before anybody can have the slot.
    total::leave(t.slot);
    let state = schedule::retire(t);
    t.slot().state.store(state, Release);
}

/// Replay: execve(2) fails as recorded, or ends this process, which goes on as another.
pub fn exec_again(t: &mut Block, c: &Call) -> i64 {
    let busy = busy(t);
    let actual = Actual {
        kind: Kind::Enter,
        ..Actual::of_call(c, c.input_hash())
    };
    let h = expect(t, &[Kind::Syscall, Kind::Enter], &actual);
    let mut r = Reader::begin(h);
    let args = r.args();
    let same =
        same_arguments(c, &args) && listing::same_inputs(t, c, h.input_hash, actual.input_hash);
    if !same {
        diverge(t, kinds::ARGUMENT, Some(&h), &actual);
    }
    if h.kind == Kind::Syscall as u8 {
        // Answered without the kernel.
        let stamps = h.nargs as usize - c.nargs;
        r.finish();
        args[c.nargs..]
            .iter()
            .take(stamps)
            .for_each(|s| turns::take(t, *s));
        return h.value;
    }
    r.finish();
    let begins = args[c.nargs];
    turns::wait_for_stamp(t, begins);
    // A parent that waits for this process goes on after it: until then the memory is this one's alone.
    let alone = !has_others(t);
    if !alone {
        turns::pass_stamp(begins);
    }
    let next = ring::peek();
    if next.is_none() && alone {
        // It was killed in this call: nobody must wait for its turn to end.
        turns::pass_stamp(begins);
    }
    let next = next.unwrap_or_else(|| header(t));
    if next.kind == Kind::Exec as u8 {
        drop(busy);
        if !alone {
            await_others(t);
        }
        become_image(t, next.value as u64, alone.then_some(begins));
    }
    if alone {
        turns::pass_stamp(begins);
    }
    let (h, r, stamp) = expect_exit(t, actual);
    r.finish();
    turns::take(t, stamp);
    h.value
}

/// The driver makes the process anew; this one is gone.
fn become_image(t: &mut Block, image: u64, turn: Option<u64>) -> ! {
    kernel::block_everything();
    robust::mark_own(t);
    crate::gate::exec::take_head(t.slot);
    output::table::hand_over();
    schedule::retire_threads(t);
    process::leaves_memory(true);
    request::ask(requests::BECOME, &[t.slot as u64, image]);
    if let Some(stamp) = turn {
        turns::pass_stamp(stamp);
    }
    sys::exit_group(0)
}

/// Replay: a process is another program now.
pub fn image_begins(t: &mut Block) {
    let _busy = busy(t);
    sys::prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
    let h = expect(t, &[Kind::Exec], &Actual::of(Kind::Exec));
    Reader::begin(h).finish();
}
