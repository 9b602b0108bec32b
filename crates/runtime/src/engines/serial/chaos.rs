//! Chaos, in a recording: slices end at random distances.
//!
//! Faults of programs that synchronise wrongly hide in windows of a few instructions, and show when a thread loses its turn there and others have theirs
//! meanwhile. So the holder of the baton has a timer that the kernel keeps, of which the seed draws when it ends the slice: short distances are as likely as
//! long ones, and now and then there is a burst of short ones, in which several threads come to the middle of what they do. After some gates it ends at once.
//! What that costs doesn't count; a cut that is dear in itself only makes room for some progress.
//!
//! A window between two gates may be shorter than any timer. So some gates, and some cuts, are left stepping, and the slice ends in front of one of the next
//! accesses to memory that others may use ([`Walk::behind`](reprise_place::walk::Walk::behind)).
//!
//! One thread at a time may be held back: the others have their turns several times before it. Without that, two threads always take turns one by one.
//!
//! Faults differ in what shows them. Some take several cuts in a row, each between two accesses: walk upon walk finds them. Some take one thread that is
//! much slower than the others, and would be hidden by that. So the seed says in which manner a run is driven (`Manner`): of four seeds in a row, two walk
//! densely, one is slow, and one does something of everything.
//!
//! The timers are the program's process's own (timer_create(2)), and take ids that it would have got; what it gets is recorded.

use super::baton;
use crate::machine::guarded::Guarded;
use crate::machine::sys;
use crate::thread::leave::Baton;
use crate::thread::signals::Siginfo;
use crate::thread::{session, slot, Block};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use reprise_abi::session::slot_state;
use reprise_abi::syscalls::nr;
use reprise_place::walk::{Access, Seen, Walk};

/// The shortest distance, in nanoseconds.
const SHORTEST: u64 = 20_000;
/// Distances are up to so many times twice as long: 1.3 ms.
const DOUBLINGS: u64 = 6;
/// In a burst, so many times.
const DOUBLINGS_IN_BURST: u64 = 2;
/// A distance begins a burst once in so many times, and the more seldom the longer the program runs already, ...
const BURST_ONCE_IN: u64 = 3;
const SELDOM_AFTER: u64 = 32;
const BURST_AT_LEAST_ONCE_IN: u64 = 24;
/// ... of one slice, or twice as many, ..., up to so many times twice as many.
const BURST_DOUBLINGS: u64 = 8;
/// Each run begins with a burst of so many, or half as many, ...: there are programs that last no longer.
const FIRST_BURST: u32 = 256;
/// Right behind a gate, the longest distance.
const BEHIND_GATE: u64 = 8_000;
/// At the end of one hooked function in so many the slice ends.
const HOOKS: u64 = 16;
/// A thread is held back no longer than this, in nanoseconds: on a busy machine each turn of the others begins late, and all that they do may be
/// to wait for the one that is held back.
const HELD_AT_MOST: i64 = 100_000_000;
/// A thread that was just made is waited for so long, in nanoseconds.
const BIRTH: i64 = 5_000_000;
/// A cut that takes longer than this is dear: the next is so long after it.
const DEAR: u64 = 2_000_000;
/// So long a walk waits for what comes soon, if at all, in nanoseconds.
pub const BRIEF: i64 = 150_000;
/// A run walks densely as long as all cuts have taken no longer than this, in nanoseconds, and a part of the time since the first.
const DENSE: u64 = 200_000_000;
const DENSE_PART: u64 = 4;

/// How a run is driven. Faults differ in what shows them, so it is the seed that says.
struct Manner {
    /// Slices are always as short as in bursts, whatever cuts cost, and no walk waits long; or never.
    bursts: Option<bool>,
    /// A gate is left stepping once in so many times.
    steps_once_in: u64,
    /// Where a thread goes on behind a cut, all but one of so many times a walk begins.
    walks_all_but_one_in: u64,
    /// Those of them that run to a place that is known: one in so many may.
    known_once_in: u64,
    /// A walk passes by one access at most, or two, ..., up to this many powers of two.
    passes: u64,
    /// A thread that loses its turn is held back once in so many times, ...
    held_once_in: u64,
    /// ... for one turn of others, or twice as many, ..., up to so many times twice as many.
    turns_doublings: u64,
}

/// Something of everything.
const MIXED: Manner = Manner {
    bursts: None,
    steps_once_in: 6,
    walks_all_but_one_in: 3,
    known_once_in: 1,
    passes: 7,
    held_once_in: 10,
    turns_doublings: 6,
};
/// Walk upon walk: nearly each slice ends a few accesses behind the last. Finds what takes several cuts, each at its place.
const DENSE_WALKS: Manner = Manner {
    bursts: Some(true),
    steps_once_in: 2,
    walks_all_but_one_in: 40,
    known_once_in: 6,
    passes: 6,
    held_once_in: 4,
    turns_doublings: 4,
};
/// Long slices, and threads that wait long. Finds what takes a thread that is much slower than others.
const SLOW: Manner = Manner {
    bursts: Some(false),
    held_once_in: 2,
    turns_doublings: 10,
    ..MIXED
};

/// What tells our timers' signals from others.
const MARK: u64 = 0x7265_7072_6973_6563;
/// The signal that asks for a cut.
const SIGCUT: i32 = 16;
const CLOCK_MONOTONIC: u64 = 1;
const SIGEV_THREAD_ID: i32 = 4;
const SI_TIMER: i32 = -2;

/// Slices that are left of a burst.
static LEFT_OF_BURST: AtomicU32 = AtomicU32::new(0);
/// Distances that were drawn outside of bursts.
static DRAWN: AtomicU32 = AtomicU32::new(0);

/// What all cuts have taken, and when the first was, in nanoseconds.
static PAID: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicU64 = AtomicU64::new(0);

/// The thread that is held back: its slot plus 1 (0: nobody), and for how many turns.
static HELD: AtomicU32 = AtomicU32::new(0);
static TURNS_LEFT: AtomicU32 = AtomicU32::new(0);
/// When that began, in nanoseconds.
static HELD_SINCE: AtomicU64 = AtomicU64::new(0);

/// Places in front of accesses to memory that others may use, and to such that others were seen to use, too; 0: none.
static KNOWN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static SHARED: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
/// Accesses that were seen lately, by their addresses, and whose they were.
static LATELY: Guarded<[(u32, Seen); LATELY_LEN], Baton> =
    Guarded::new([(0, Seen::NONE); LATELY_LEN]);
const LATELY_LEN: usize = 256;

/// A thread's timer: its id plus 1; 0 before it has one.
#[derive(Default)]
pub struct Timer(AtomicU32);

/// struct sigevent
#[repr(C)]
struct Event {
    value: u64,
    signal: i32,
    notify: i32,
    thread: i32,
    _pad: [i32; 11],
}

const _: () = assert!(core::mem::size_of::<Event>() == 64);

impl Timer {
    /// A process that was forked, and a program that another one became, have none.
    pub fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    fn id(&self) -> Option<u64> {
        self.0.load(Relaxed).checked_sub(1).map(u64::from)
    }

    fn make(&self) -> Option<u64> {
        let event = Event {
            value: MARK,
            signal: SIGCUT,
            notify: SIGEV_THREAD_ID,
            thread: sys::gettid() as i32,
            _pad: [0; 11],
        };
        let mut id = 0i32;
        let args = [
            CLOCK_MONOTONIC,
            &event as *const Event as u64,
            &mut id as *mut i32 as u64,
        ];
        if sys::call(nr::TIMER_CREATE, &args) != 0 {
            return None;
        }
        self.0.store(id as u32 + 1, Relaxed);
        Some(id as u64)
    }

    fn set(&self, ns: u64) {
        if let Some(id) = self.id().or_else(|| self.make()) {
            let time = [0u64, 0, ns / 1_000_000_000, ns % 1_000_000_000];
            sys::timer_settime(id, 0, time.as_ptr() as u64, 0);
        }
    }
}

/// How long the next slice lasts.
fn distance() -> u64 {
    let r = baton::random();
    let left = LEFT_OF_BURST.load(Relaxed);
    let bursts = manner().bursts;
    let doublings = if let Some(short) = bursts {
        let most = if short { DOUBLINGS_IN_BURST } else { DOUBLINGS };
        r % most
    } else if left > 0 {
        LEFT_OF_BURST.store(left - 1, Relaxed);
        r % DOUBLINGS_IN_BURST
    } else {
        let drawn = DRAWN.fetch_add(1, Relaxed) as u64;
        let once_in = (BURST_ONCE_IN + drawn / SELDOM_AFTER).min(BURST_AT_LEAST_ONCE_IN);
        if drawn == 0 {
            LEFT_OF_BURST.store(FIRST_BURST >> ((r >> 8) % 4), Relaxed);
        } else if (r >> 8) % once_in == 0 {
            LEFT_OF_BURST.store(1 << ((r >> 16) % BURST_DOUBLINGS), Relaxed);
        }
        r % DOUBLINGS
    };
    let drawn = SHORTEST << doublings;
    let cost = session().counters.last_cut_ns.load(Relaxed);
    // Anywhere between this and twice as long.
    let drawn = drawn + drawn * (r >> 32 & 0xff) / 256;
    if cost > DEAR && bursts != Some(true) {
        drawn.max(cost)
    } else {
        drawn
    }
}

/// The thread has the baton, and runs on.
#[inline]
pub fn begin_slice(t: &Block) {
    if baton::chaos() && !baton::alone() {
        t.cut().timer.set(distance());
    }
}

/// The end of a gate: the slice may end right behind it.
pub fn behind_gate(t: &Block) {
    let r = baton::random();
    t.cut().timer.set(1 + r % BEHIND_GATE);
}

/// The end of a hooked function, when others wait: does the slice end there? Of such ends there are many more than of gates.
pub fn ends_slice_at_hook() -> bool {
    baton::chaos() && baton::random() % HOOKS == 0 && !holds_back_the_others()
}

/// A cut took so long.
pub fn pay(ns: u64) {
    if !baton::chaos() {
        return;
    }
    if FIRST.load(Relaxed) == 0 {
        FIRST.store(sys::monotonic().ns() as u64, Relaxed);
    }
    PAID.fetch_add(ns, Relaxed);
}

/// May more be paid for cuts?
fn affordable() -> bool {
    let paid = PAID.load(Relaxed);
    let since = || sys::monotonic().ns() as u64 - FIRST.load(Relaxed);
    paid < DENSE || paid - DENSE < since() / DENSE_PART
}

/// How this run is driven now.
fn manner() -> &'static Manner {
    match session().chaos_seed % 4 {
        0 | 2 if affordable() => &DENSE_WALKS,
        3 => &SLOW,
        _ => &MIXED,
    }
}

/// Does this walk wait briefly for its breakpoint? What it waits for may never come, and programs that are over soon have no time for that.
pub fn is_brief(walk: &Walk) -> bool {
    baton::chaos() && (walk.is_brief() || manner().bursts == Some(true))
}

/// It does now.
pub fn wait_briefly(t: &Block) {
    t.cut().timer.set(BRIEF as u64);
}

/// How many accesses a walk passes by, and which. Few are as likely as many.
pub fn accesses() -> (u32, Access) {
    let r = baton::random();
    let most = 1 << (r % manner().passes);
    let access = match (r >> 40) % 8 {
        0..=3 => Access::Store,
        4..=6 => Access::Any,
        _ => Access::EachInstruction,
    };
    ((r >> 8) as u32 % most, access)
}

/// The thread of this slot came by these accesses.
pub fn remember(slot: u32, seen: &[Seen]) {
    // SAFETY: a walk is over, which was that of the holder of the baton.
    let lately = unsafe { LATELY.change() };
    let know = |places: &[AtomicU64], pc: u64| {
        if places.iter().all(|p| p.load(Relaxed) != pc) {
            places[baton::random() as usize % places.len()].store(pc, Relaxed);
        }
    };
    for access in seen {
        let hash = access.addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let before = &mut lately[hash as usize % LATELY_LEN];
        let (who, other) = *before;
        let shared = other.addr == access.addr && who != slot && (other.stores || access.stores);
        if shared {
            know(&SHARED, other.pc);
            know(&SHARED, access.pc);
        } else {
            know(&KNOWN, access.pc);
        }
        *before = (slot, *access);
    }
}

/// The thread didn't come by the breakpoint there: nothing that is worth to be run to.
pub fn forget(breakpoint: Option<(u64, u8)>) {
    let Some((pc, _)) = breakpoint else { return };
    for place in KNOWN.iter().chain(&SHARED) {
        if place.load(Relaxed) == pc {
            place.store(0, Relaxed);
        }
    }
}

/// A walk that is to run to a place that is known: which.
pub fn known_place() -> Option<u64> {
    let r = baton::random();
    if (r >> 16) % manner().known_once_in != 0 {
        return None;
    }
    let list = match r % 5 {
        0 => return None,
        1 | 2 => &KNOWN,
        _ => &SHARED,
    };
    let from = (r >> 8) as usize % list.len();
    let known = list[from..].iter().chain(&list[..from]);
    let mut known = known.map(|k| k.load(Relaxed));
    known.find(|k| *k != 0)
}

/// Is the thread to leave this gate stepping?
pub fn steps() -> bool {
    baton::chaos() && !baton::alone() && baton::random() % manner().steps_once_in == 0
}

/// Does a walk begin where a thread goes on behind a cut?
pub fn walks_on() -> bool {
    baton::chaos() && baton::random() % manner().walks_all_but_one_in != 0
}

/// The thread of this slot loses its turn, and may be held back.
pub fn may_hold_back(slot: u32) {
    if baton::chaos() && TURNS_LEFT.load(Relaxed) == 0 {
        let (r, manner) = (baton::random(), manner());
        if r % manner.held_once_in == 0 {
            HELD.store(slot + 1, Relaxed);
            HELD_SINCE.store(sys::monotonic().ns() as u64, Relaxed);
            TURNS_LEFT.store(1 << ((r >> 8) % manner.turns_doublings), Relaxed);
        }
    }
}

/// Is this thread to wait for one more turn of others? Counts it.
pub fn is_held_back(slot: u32) -> bool {
    let left = TURNS_LEFT.load(Relaxed);
    if left == 0 || HELD.load(Relaxed) != slot + 1 {
        return false;
    }
    let since = HELD_SINCE.load(Relaxed) as i64;
    if sys::monotonic().ns() - since > HELD_AT_MOST {
        TURNS_LEFT.store(0, Relaxed);
        return false;
    }
    TURNS_LEFT.store(left - 1, Relaxed);
    true
}

/// Is the only thread that waits for its turn held back?
pub fn holds_back_the_others() -> bool {
    let held = HELD.load(Relaxed);
    baton::chaos()
        && held != 0
        && session().ready_count.load(Relaxed) == 1
        && slot(held - 1).state.load(Relaxed) == slot_state::READY
        && is_held_back(held - 1)
}

/// A thread was made: it is waited for, so that it may have its turn before its maker goes on.
pub fn await_birth(t: &mut Block, born: u32) {
    let until = sys::monotonic().ns() + BIRTH;
    let waits = || slot(born).state.load(Relaxed) != slot_state::READY;
    while waits() && sys::monotonic().ns() < until {
        sys::sched_yield();
    }
    t.cut().gives_way = baton::random() % 2 == 0;
}

/// The thread is about to wait: nothing is to interrupt that.
#[inline]
pub fn end_slice(t: &Block) {
    const NEVER: u64 = 0;
    if baton::chaos() && t.cut().timer.id().is_some() {
        t.cut().timer.set(NEVER);
    }
}

/// The thread ends.
pub fn end_thread(t: &Block) {
    if let Some(id) = t.cut().timer.id() {
        sys::timer_delete(id);
        t.cut().timer.forget();
    }
}

/// Is this the signal of one of our timers?
pub fn is_ours(info: &Siginfo) -> bool {
    // Timer and overrun in the first word of the union, the value behind it.
    info.code() == SI_TIMER && info.words[3] == MARK
}
