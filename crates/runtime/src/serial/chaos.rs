//! Chaos, in a recording: slices end at random distances.
//!
//! Faults of programs that synchronise wrongly hide in windows of a few instructions, and show when a thread loses its turn there and others have theirs
//! meanwhile. So the holder of the baton has a timer that the kernel keeps, of which the seed draws when it ends the slice: short distances are as likely as
//! long ones, and now and then there is a burst of short ones, in which several threads come to the middle of what they do. After some gates it ends at once.
//! What that costs doesn't count; a cut that is dear in itself only makes room for some progress.
//!
//! The timers are the program's process's own (timer_create(2)), and take ids that it would have got; what it gets is recorded.

use super::baton;
use crate::signal::state::Siginfo;
use crate::sys;
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use reprise_abi::syscalls::nr;

/// The shortest distance, in nanoseconds.
const SHORTEST: u64 = 20_000;
/// Distances are up to so many times twice as long: 5 ms.
const DOUBLINGS: u64 = 9;
/// In a burst, so many times.
const DOUBLINGS_IN_BURST: u64 = 3;
/// A distance begins a burst once in so many times, ...
const BURST_ONCE_IN: u64 = 8;
/// ... of at most so many.
const BURST: u64 = 32;
/// Right behind a gate, the longest distance.
const BEHIND_GATE: u64 = 8_000;
/// A cut that takes longer than this is dear: the next is so long after it.
const DEAR: u64 = 2_000_000;

/// What tells our timers' signals from others.
const MARK: u64 = 0x7265_7072_6973_6563;
/// The signal that asks for a cut.
const SIGCUT: i32 = 16;
const CLOCK_MONOTONIC: u64 = 1;
const SIGEV_THREAD_ID: i32 = 4;
const SI_TIMER: i32 = -2;

/// Slices that are left of a burst.
static LEFT_OF_BURST: AtomicU32 = AtomicU32::new(0);

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
            thread: sys::call(nr::GETTID, &[]) as i32,
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
            sys::call(nr::TIMER_SETTIME, &[id, 0, time.as_ptr() as u64, 0]);
        }
    }
}

/// How long the next slice lasts.
fn distance() -> u64 {
    let r = baton::random();
    let left = LEFT_OF_BURST.load(Relaxed);
    let doublings = if left > 0 {
        LEFT_OF_BURST.store(left - 1, Relaxed);
        r % DOUBLINGS_IN_BURST
    } else {
        if (r >> 8) % BURST_ONCE_IN == 0 {
            LEFT_OF_BURST.store((r >> 16) as u32 % BURST as u32, Relaxed);
        }
        r % DOUBLINGS
    };
    let drawn = SHORTEST << doublings;
    let cost = session().counters.last_cut_ns.load(Relaxed);
    // Anywhere between this and twice as long.
    let drawn = drawn + drawn * (r >> 32 & 0xff) / 256;
    if cost > DEAR {
        drawn.max(cost)
    } else {
        drawn
    }
}

/// The thread has the baton, and runs on.
#[inline]
pub fn begin_slice(t: &Block) {
    if baton::chaos() && !baton::alone() {
        t.cut.timer.set(distance());
    }
}

/// The end of a gate: the slice may end right behind it.
pub fn behind_gate(t: &Block) {
    let r = baton::random();
    t.cut.timer.set(1 + r % BEHIND_GATE);
}

/// The thread is about to wait: nothing is to interrupt that.
#[inline]
pub fn end_slice(t: &Block) {
    const NEVER: u64 = 0;
    if baton::chaos() && t.cut.timer.id().is_some() {
        t.cut.timer.set(NEVER);
    }
}

/// The thread ends.
pub fn end_thread(t: &Block) {
    if let Some(id) = t.cut.timer.id() {
        sys::call(nr::TIMER_DELETE, &[id]);
        t.cut.timer.forget();
    }
}

/// Is this the signal of one of our timers?
pub fn is_ours(info: &Siginfo) -> bool {
    // Timer and overrun in the first word of the union, the value behind it.
    info.code() == SI_TIMER && info.words[3] == MARK
}
