//! `sem_t`, unnamed and named.
//!
//! **Order.** A post counts *before* it makes the value larger, a wait *after* it has made it smaller. So for any wait that got through, the
//! posts that made that possible have smaller numbers. In a replay the wait's turn comes when they all have passed; then it really takes
//! one, and may have to wait the moment that a post needs from its turn to the change. Nobody else can take what is meant for it,
//! because the waits with larger numbers haven't begun. Waits that failed are logged as failures; what `sem_getvalue` says is a value.
//!
//! **Layout** (glibc, 64 bits): the value, above it the number of those who wait, then whether other processes share it. That is
//! kept, and the way of waking, since processes that aren't hooked may use the same semaphore. The [`Runs`] are in the second half.

use super::cancel;
use super::errno;
use super::error::*;
use super::mutex::{deadline, Patience};
use super::{object, Stop};
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{Wait, MONOTONIC, REALTIME};
use crate::races::objects::Kind;
use crate::sync::hook::shim::Done;
use crate::thread::signals::{ACTIONS, SA_RESTART};
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// A semaphore.
#[repr(C)]
struct Sem {
    data: AtomicU64,
    /// Not 0: other processes use it, too.
    shared: AtomicU32,
    _pad: AtomicU32,
    runs: Runs,
}

const _: () = assert!(core::mem::size_of::<Sem>() == 32);

const WAITER: u64 = 1 << 32;
const VALUE_MAX: u32 = i32::MAX as u32;
/// What glibc writes where other processes use it.
const FUTEX_SHARED: u32 = 128;
const FAILED: u64 = u64::MAX;

impl Sem {
    fn value(&self) -> &AtomicU32 {
        // SAFETY: the lower half of the word (little-endian).
        unsafe { &*(self.data.as_ptr() as *const AtomicU32) }
    }

    fn is_shared(&self) -> bool {
        self.shared.load(Relaxed) != 0
    }

    /// Takes one, if there is one; `waiter`: and stops being counted as waiting.
    fn take(&self, waiter: bool) -> bool {
        let less = 1 + if waiter { WAITER } else { 0 };
        self.data
            .fetch_update(Acquire, Relaxed, |d| {
                (d as u32 != 0).then(|| d.wrapping_sub(less))
            })
            .is_ok()
    }
}

fn sem(f: &Frame) -> &'static Sem {
    // SAFETY: only atomics; nothing of ours is held.
    unsafe { object(f.rdi) }
}

fn fail(t: &mut Block, why: u32) -> Done {
    errno::set(t, why);
    Done::value(FAILED)
}

/// `sem_init(sem, shared, value)`
pub fn init<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let (s, value) = (sem(f), f.rdx as u32);
    if value > VALUE_MAX {
        return fail(t, EINVAL);
    }
    s.data.store(value as u64, Relaxed);
    let shared = if f.rsi as u32 != 0 { FUTEX_SHARED } else { 0 };
    s.shared.store(shared, Relaxed);
    s.runs.reset();
    Done::value(0)
}

/// `sem_post(sem)`
pub fn post<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::touches_its_objects(t);
    let s = sem(f);
    // Read first in a replay, too: a bad pointer faults there as well.
    let now = s.data.load(Relaxed) as u32;
    if let Some(e) = O::failure(t) {
        return fail(t, e);
    }
    if !O::REPLAYS && now == VALUE_MAX {
        O::failed(t, EOVERFLOW);
        return fail(t, EOVERFLOW);
    }
    if !O::turn(t, &s.runs) {
        return Done::by_frame();
    }
    // A semaphore that this makes free may be gone right after.
    let (word, shared) = (s.value().as_ptr(), s.is_shared());
    O::lets_know(t, Kind::Lock, f.rdi);
    O::passed_among(t, &s.runs);
    if s.data.fetch_add(1, Release) >= WAITER {
        O::wake(t, word, 1, shared);
    }
    Done::value(0)
}

/// `sem_trywait(sem)`
pub fn trywait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    down::<O>(t, f, Patience::Try)
}

/// `sem_wait(sem)`
pub fn wait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    down::<O>(t, f, Patience::Endless)
}

/// `sem_timedwait(sem, time)`
pub fn timedwait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    down::<O>(t, f, Patience::Until(REALTIME, f.rsi))
}

/// `sem_clockwait(sem, clock, time)`
pub fn clockwait<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let clock = f.rsi as u32;
    if clock > MONOTONIC {
        return fail(t, EINVAL);
    }
    down::<O>(t, f, Patience::Until(clock, f.rdx))
}

fn down<O: Order>(t: &mut Block, f: &mut Frame, patience: Patience) -> Done {
    O::touches_its_objects(t);
    let s = sem(f);
    let tries = matches!(patience, Patience::Try);
    if !tries && cancel::is_due(t) {
        return cancel::go(t, f);
    }
    if let Some(e) = O::failure(t) {
        return fail(t, e);
    }
    if !O::turn(t, &s.runs) {
        return Done::by_frame();
    }
    if !s.take(false) {
        if tries && !O::REPLAYS {
            O::failed(t, EAGAIN);
            return fail(t, EAGAIN);
        }
        match slow::<O>(t, s, patience) {
            Ok(()) => {}
            Err(Stop::Signal) => return interrupted::<O>(t, patience),
            Err(Stop::Error(e)) => return fail(t, e),
        }
    }
    O::passed_among(t, &s.runs);
    O::learns(t, Kind::Lock, f.rdi);
    Done::value(0)
}

/// Waits until it can take one.
#[cold]
fn slow<O: Order>(t: &mut Block, s: &Sem, patience: Patience) -> Result<(), Stop> {
    let deadline = deadline::<O>(t, patience, false)?;
    s.data.fetch_add(WAITER, Relaxed);
    let result = loop {
        if s.take(true) {
            break Ok(());
        }
        match O::wait(t, s.value(), 0, deadline.as_ref(), s.is_shared()) {
            Wait::TimedOut => break Err(Stop::Error(ETIMEDOUT)),
            Wait::Signal => break Err(Stop::Signal),
            Wait::Woken | Wait::Changed => {}
        }
    };
    if result.is_err() {
        s.data.fetch_sub(WAITER, Relaxed);
    }
    if let Err(Stop::Error(e)) = result {
        O::failed(t, e);
    }
    result
}

/// A signal ended the wait: its handler says whether the wait goes on after it (signal(7): only without a time limit).
fn interrupted<O: Order>(t: &mut Block, patience: Patience) -> Done {
    let Some(first) = O::interrupted_by(t) else {
        // The thread only stands.
        return Done::by_frame();
    };
    let restarts = ACTIONS.get(first).flags & SA_RESTART != 0;
    // After this one the function begins anew, to end.
    let cancels = first == cancel::SIGNAL && cancel::is_enabled(t);
    if O::REPLAYS || cancels || restarts && matches!(patience, Patience::Endless) {
        return Done::by_frame();
    }
    O::failed(t, EINTR);
    fail(t, EINTR)
}

/// `sem_getvalue(sem, value)`
pub fn getvalue<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let s = sem(f);
    let now = O::value(t, || s.data.load(Acquire) as u32 as u64) as u32;
    // SAFETY: the program's pointer: a fault is the program's.
    unsafe { core::ptr::write_volatile(f.rsi as *mut u32, now) };
    Done::value(0)
}
