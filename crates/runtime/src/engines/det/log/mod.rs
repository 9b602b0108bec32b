//! `record --engine det`: what comes into the program from the kernel is logged, and nothing else. A replay is the same run once more, in which the log
//! answers instead of the kernel ([`ask`]); it needs no schedule, since the order of turns follows from the program and its inputs.
//!
//! Every thread has a ring of its own, and appends what it was told in its own order. What the world has decided for all, as who comes back into the ring in
//! which round, is in a ring beside them ([`world`]). Decisions that mostly turn out the same way are logged only when they don't, with the number of the
//! **point** at which that was: how many such decisions there were before, which is the same in a replay.
//!
//! Processes that the program makes are not recorded: to the one that is, they are the world.

pub mod ask;
pub mod process;
pub mod threads;
pub mod world;

use crate::common::deliver::take_siginfo;
use crate::log::events;
use crate::log::ring::{self, Reader};
use crate::signal::frame::{self, FpState};
use crate::signal::kernel;
use crate::thread::signals::{Siginfo, ACTIONS, DEFAULT, IGNORE, SIGSEGV};
use crate::thread::{session, Block, Current, Frame};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::det::question;
use reprise_abi::event::{EventHeader, Kind, Tag};
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::{FLAG_LOGS, MODE_REPLAY};

/// What a thread has of its own.
#[derive(Default)]
pub struct Local {
    /// It is in a process that is not recorded.
    pub left: bool,
    /// A hooked function has ended for a signal: its handler runs as it returns.
    due: bool,
}

/// Points that the threads of each slot have passed. Those of a slot that one had after the other are counted on: what is next in their ring may be of the next one.
static POINTS: [AtomicU64; MAX_SLOTS] = [const { AtomicU64::new(0) }; MAX_SLOTS];

/// The number of the point that the thread passes now.
#[inline]
fn next_point(t: &Block) -> u64 {
    POINTS[t.slot as usize % MAX_SLOTS].fetch_add(1, Relaxed) + 1
}

/// Is there a log?
#[inline(always)]
pub fn on() -> bool {
    session().flags & FLAG_LOGS != 0
}

/// Does the calling thread write one?
#[inline(always)]
pub fn records(t: &Block) -> bool {
    records_of(t.as_current())
}

fn records_of(t: Current) -> bool {
    on() && session().mode != MODE_REPLAY && !t.has_left()
}

/// Does it read one?
#[inline(always)]
pub fn replays() -> bool {
    on() && session().mode == MODE_REPLAY
}

/// Does it do either?
#[inline(always)]
pub fn follows(t: &Block) -> bool {
    follows_of(t.as_current())
}

fn follows_of(t: Current) -> bool {
    on() && !t.has_left()
}

/// The next event of the calling thread, if it is a [`Kind::Told`] like this one.
fn next_is(what: u32, point: u64) -> Option<EventHeader> {
    ring::peek()
        .filter(|h| h.kind == Kind::Told as u8 && h.detail == what && h.value as u64 == point)
}

fn take(h: EventHeader) -> [u64; 8] {
    let mut r = Reader::begin(h);
    let args = r.args();
    r.finish();
    args
}

/// What the world decides, and mostly decides against: only a yes is logged.
#[inline]
pub fn decide(t: &mut Block, what: u32, ask: impl FnOnce(&mut Block) -> bool) -> bool {
    if !follows(t) {
        return ask(t);
    }
    let point = next_point(t);
    if replays() {
        return next_is(what, point).map(take).is_some();
    }
    let yes = ask(t);
    if yes {
        events::plain(Kind::Told, t.slot, what, point as i64, &[]);
    }
    yes
}

/// What the world says, each time.
#[inline]
pub fn told(t: &mut Block, what: u32, ask: impl FnOnce(&mut Block) -> i64) -> i64 {
    if !follows(t) {
        return ask(t);
    }
    let point = next_point(t);
    if replays() {
        let h = ask::expect(t, Kind::Told, what, 0);
        return take(h)[0] as i64;
    }
    let r = ask(t);
    events::plain(Kind::Told, t.slot, what, point as i64, &[r as u64]);
    r
}

/// Does a signal wait that the thread doesn't block?
pub fn signal_waits(t: &mut Block) -> bool {
    decide(t, question::SIGNAL, |t| t.pending.first(t.mask).is_some())
}

/// A hooked function ends for a signal, as a wait of it did: the handler runs as it returns.
pub fn is_due(t: &mut Block) {
    if follows(t) {
        t.det().log.due = true;
        // Where nothing waits for its end a function leaves by the short way.
        t.slot().signal_pending.store(1, SeqCst);
    }
}

/// Is a hooked function that returns a place for handlers? Where it does as always, a replay would not know.
pub fn may_deliver(t: &Block, at_entry: bool) -> bool {
    at_entry || t.det().log.due || !follows(t)
}

/// The end of a gate: a signal is delivered, where the recording delivered one.
pub fn signal_point(t: &mut Block, f: &mut Frame) {
    let point = next_point(t);
    t.det().log.due = false;
    if replays() {
        t.slot().signal_pending.store(0, Relaxed);
        if let Some(h) = ring::peek().filter(|h| h.kind == Kind::Signal as u8) {
            deliver_again(t, f, h, point);
        }
        return;
    }
    if t.slot().signal_pending.load(Relaxed) == 0 {
        return;
    }
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
        // SAFETY: a siginfo is 128 plain bytes.
        let bytes =
            unsafe { core::slice::from_raw_parts(&info as *const Siginfo as *const u8, 128) };
        events::with_section(
            Kind::Signal,
            t.slot,
            info.signal(),
            f.rip as i64,
            &[point, 0],
            Tag::Siginfo,
            bytes,
        );
        handle(t, f, &info);
        break;
    }
    let more = t.pending.first(t.mask).is_some();
    t.slot().signal_pending.store(more as u32, Release);
    kernel::sync_mask(t);
}

fn handle(t: &mut Block, f: &mut Frame, info: &Siginfo) {
    let action = ACTIONS.get(info.signal());
    if !frame::deliver(t, f, FpState::Live, info, &action, [0; 3]) {
        ask::dies(t, SIGSEGV);
    }
}

/// The recorded signal, if this is where it came.
fn deliver_again(t: &mut Block, f: &mut Frame, h: EventHeader, point: u64) {
    if ring::peek_word(0) != Some(point) {
        return;
    }
    let info = take_siginfo(h);
    if h.detail != info.signal() {
        ask::diverges(t, &h, f.rip);
    }
    handle(t, f, &info);
}
