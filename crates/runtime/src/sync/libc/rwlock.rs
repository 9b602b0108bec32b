//! `pthread_rwlock_t`.
//!
//! **Order.** All who get the lock are numbered, readers and writers alike, while they have it. Readers may get their numbers in another order
//! than they got the lock, which doesn't matter among themselves; between a reader and a writer, or two writers, one had to unlock before the
//! other could lock and get its number. In a replay everybody waits for its turn and then takes the lock for real, which waits for
//! earlier owners' unlocks, but for nobody whose turn comes later. So unlocks need no number. Attempts that failed are logged as failures.
//! That a thread has the lock itself already follows from what it did before.
//!
//! **Layout**: `pthread_rwlock_init` isn't hooked: what kind it is, and whether other processes use it, is where glibc has it. One word says
//! who has it, and is what threads sleep on: whoever lets it go touches nothing else afterwards.

use super::error::*;
use super::mutex::{deadline, failed, spins, Patience};
use super::{object, tid, Stop};
use crate::engine::order::{Order, Runs};
use crate::engine::waits::{Wait, EVERYBODY, REALTIME};
use crate::races::objects::Kind;
use crate::sync::hook::shim::Done;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A lock for readers and writers.
#[repr(C)]
struct RwLock {
    /// Readers, and the bits below.
    state: AtomicU32,
    _unused: [AtomicU32; 5],
    /// Thread id of the writer.
    writer: AtomicU32,
    shared: AtomicU32,
    runs: Runs,
    kind: AtomicU32,
    _pad: AtomicU32,
}

impl RwLock {
    /// Do readers wait behind writers? In a replay nobody comes whose turn it isn't.
    fn lets_writers_first<O: Order>(&self) -> bool {
        !O::REPLAYS && self.kind.load(Relaxed) == WRITERS_FIRST
    }
}

const _: () = {
    assert!(core::mem::size_of::<RwLock>() == 56);
    assert!(core::mem::offset_of!(RwLock, writer) == 24);
    assert!(core::mem::offset_of!(RwLock, runs) == 32);
    assert!(core::mem::offset_of!(RwLock, kind) == 48);
};

/// A writer has it.
const WRITER: u32 = 1 << 31;
/// Somebody sleeps.
const SLEEPER: u32 = 1 << 30;
/// Among them a writer.
const WRITER_SLEEPS: u32 = 1 << 29;
/// The number of readers.
const READERS: u32 = WRITER_SLEEPS - 1;
/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`: readers wait behind writers. In all other kinds they don't.
const WRITERS_FIRST: u32 = 2;

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Read,
    Write,
}

/// What the state becomes when the lock is taken; `None`: it can't be.
fn taken(state: u32, want: Want, writers_first: bool) -> Option<u32> {
    match want {
        Want::Write => (state & (WRITER | READERS) == 0).then_some(state | WRITER),
        Want::Read => {
            let free = state & WRITER == 0 && !(writers_first && state & WRITER_SLEEPS != 0);
            free.then_some(state + 1)
        }
    }
}

/// What it becomes when it is let go, and whether those who sleep are to be woken. A writer that waits for the last reader, and comes before others,
/// has it next: it either takes the lock or gives up, and until then no reader comes in.
fn released(state: u32, writers_first: bool) -> (u32, bool) {
    let left = match state & WRITER {
        0 => state - 1,
        _ => state & !WRITER,
    };
    let hands_over = writers_first && state & WRITER == 0 && left & WRITER_SLEEPS != 0;
    match left & READERS {
        0 if hands_over => (left, true),
        0 => (0, left & SLEEPER != 0),
        _ => (left, false),
    }
}

fn lock<O: Order>(t: &mut Block, f: &Frame, want: Want, patience: Patience) -> Done {
    match take::<O>(t, f.rdi, want, patience) {
        Ok(()) => Done::value(0),
        Err(Stop::Error(e)) => Done::errno(e),
        Err(Stop::Signal) => Done::by_frame(),
    }
}

fn take<O: Order>(t: &mut Block, address: u64, want: Want, patience: Patience) -> Result<(), Stop> {
    O::touches_its_objects(t);
    // SAFETY: only atomics; nothing of ours is held.
    let l = unsafe { object::<RwLock>(address) };
    let tries = matches!(patience, Patience::Try);
    if !tries && l.writer.load(Relaxed) == tid(t) {
        return Err(Stop::Error(EDEADLK));
    }
    // Even without a time limit too many readers may have it.
    if let Some(e) = O::failure(t) {
        return Err(Stop::Error(e));
    }
    if !O::turn(t, &l.runs) {
        return Err(Stop::Signal);
    }
    acquire::<O>(t, l, want, patience)?;
    match want {
        Want::Write => {
            l.writer.store(tid(t), Relaxed);
            O::passed(t, &l.runs);
            // What readers did is over when a writer comes; to each other they say nothing.
            O::learns(t, Kind::Readers, address);
        }
        Want::Read => O::passed_among(t, &l.runs),
    }
    O::learns(t, Kind::Lock, address);
    Ok(())
}

fn acquire<O: Order>(
    t: &mut Block,
    l: &RwLock,
    want: Want,
    patience: Patience,
) -> Result<(), Stop> {
    let writers_first = l.lets_writers_first::<O>();
    let mut until = None;
    let mut looks = 0;
    loop {
        let old = l.state.load(Relaxed);
        if let Some(new) = taken(old, want, writers_first) {
            if new & READERS == READERS {
                return Err(failed::<O>(t, EAGAIN));
            }
            if l.state.compare_exchange(old, new, Acquire, Relaxed).is_ok() {
                return Ok(());
            }
            continue;
        }
        if until.is_none() {
            until = Some(deadline::<O>(t, patience, false)?);
        }
        if looks < spins() {
            looks += 1;
            O::pause(t);
            continue;
        }
        let waited_for = match want {
            Want::Read => old | SLEEPER,
            Want::Write => old | SLEEPER | WRITER_SLEEPS,
        };
        if old != waited_for
            && l.state
                .compare_exchange(old, waited_for, Relaxed, Relaxed)
                .is_err()
        {
            continue;
        }
        let until = until.as_ref().and_then(|d| d.as_ref());
        let end = match O::wait(t, &l.state, waited_for, until, l.shared.load(Relaxed) != 0) {
            Wait::TimedOut => Some(failed::<O>(t, ETIMEDOUT)),
            Wait::Signal => Some(Stop::Signal),
            Wait::Woken | Wait::Changed => None,
        };
        if let Some(stop) = end {
            give_up::<O>(t, l, want);
            return Err(stop);
        }
    }
}

/// A writer that stops waiting lets readers go on that wait behind it; other writers say anew that they wait.
fn give_up<O: Order>(t: &mut Block, l: &RwLock, want: Want) {
    if want == Want::Write && l.state.fetch_and(!WRITER_SLEEPS, Relaxed) & WRITER_SLEEPS != 0 {
        O::wake(t, l.state.as_ptr(), EVERYBODY, l.shared.load(Relaxed) != 0);
    }
}

/// `pthread_rwlock_rdlock(lock)`
pub fn rdlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    lock::<O>(t, f, Want::Read, Patience::Endless)
}

/// `pthread_rwlock_tryrdlock(lock)`
pub fn tryrdlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    lock::<O>(t, f, Want::Read, Patience::Try)
}

/// `pthread_rwlock_timedrdlock(lock, time)`
pub fn timedrdlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    timed::<O>(t, f, Want::Read, REALTIME, f.rsi)
}

/// `pthread_rwlock_clockrdlock(lock, clock, time)`
pub fn clockrdlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    timed::<O>(t, f, Want::Read, f.rsi as u32, f.rdx)
}

/// `pthread_rwlock_wrlock(lock)`
pub fn wrlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    lock::<O>(t, f, Want::Write, Patience::Endless)
}

/// `pthread_rwlock_trywrlock(lock)`
pub fn trywrlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    lock::<O>(t, f, Want::Write, Patience::Try)
}

/// `pthread_rwlock_timedwrlock(lock, time)`
pub fn timedwrlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    timed::<O>(t, f, Want::Write, REALTIME, f.rsi)
}

/// `pthread_rwlock_clockwrlock(lock, clock, time)`
pub fn clockwrlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    timed::<O>(t, f, Want::Write, f.rsi as u32, f.rdx)
}

/// The time is looked at even when the lock is free.
fn timed<O: Order>(t: &mut Block, f: &Frame, want: Want, clock: u32, at: u64) -> Done {
    match crate::engine::waits::Deadline::new(clock, at) {
        Err(EINVAL) => Done::errno(EINVAL),
        _ => lock::<O>(t, f, want, Patience::Until(clock, at)),
    }
}

/// `pthread_rwlock_unlock(lock)`
pub fn unlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::touches_its_objects(t);
    // SAFETY: only atomics; nothing of ours is held.
    let l = unsafe { object::<RwLock>(f.rdi) };
    let writes = l.writer.load(Relaxed) == tid(t);
    let kind = if writes { Kind::Lock } else { Kind::Readers };
    O::lets_know(t, kind, f.rdi);
    if writes {
        l.writer.store(0, Relaxed);
    }
    let shared = l.shared.load(Relaxed) != 0;
    let word = l.state.as_ptr();
    let writers_first = l.lets_writers_first::<O>();
    let mut old = l.state.load(Relaxed);
    loop {
        // Nobody has it: undefined, and harmless.
        if old & (WRITER | READERS) == 0 {
            return Done::value(0);
        }
        let (new, wakes) = released(old, writers_first);
        match l.state.compare_exchange_weak(old, new, Release, Relaxed) {
            Ok(_) if wakes => {
                O::wake(t, word, EVERYBODY, shared);
                return Done::value(0);
            }
            Ok(_) => return Done::value(0),
            Err(now) => old = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let one = taken(0, Want::Read, false).unwrap();
        let two = taken(one, Want::Read, false).unwrap();
        assert_eq!(two & READERS, 2);
        assert_eq!(taken(two, Want::Write, false), None);
        let writes = taken(0, Want::Write, true).unwrap();
        assert_eq!(taken(writes, Want::Read, false), None);
        assert_eq!(taken(writes, Want::Write, false), None);
        assert_eq!(released(released(two, true).0, true), (0, false));
    }

    #[test]
    fn only_one_kind_lets_readers_wait_behind_writers() {
        let state = 1 | SLEEPER | WRITER_SLEEPS;
        assert!(taken(state, Want::Read, false).is_some());
        assert_eq!(taken(state, Want::Read, true), None);
        assert!(taken(1 | SLEEPER, Want::Read, true).is_some());
    }

    #[test]
    fn the_last_to_leave_wakes_everybody() {
        assert_eq!(
            released(2 | SLEEPER | WRITER_SLEEPS, false),
            (1 | SLEEPER | WRITER_SLEEPS, false)
        );
        assert_eq!(released(1 | SLEEPER | WRITER_SLEEPS, false), (0, true));
        assert_eq!(released(WRITER | SLEEPER, true), (0, true));
        assert_eq!(released(WRITER, true), (0, false));
    }

    #[test]
    fn no_reader_comes_before_a_writer_that_is_next() {
        let (state, wakes) = released(1 | SLEEPER | WRITER_SLEEPS, true);
        assert!(wakes);
        assert_eq!(taken(state, Want::Read, true), None);
        let writes = taken(state, Want::Write, true).unwrap();
        // When it is through, all others may come.
        assert_eq!(released(writes, true), (0, true));
    }
}
