//! `pthread_mutex_t`: normal, recursive, error-checking, adaptive; robust ones in [`super::robust`].
//!
//! **Order.** Who owned the mutex after whom is all that matters. A lock waits for its turn, takes the mutex for real, and counts while it
//! holds it; an unlock leaves no trace, for the next owner's number comes after this one's, and it really waits for the unlock in a replay
//! as well. A lock of a recursive mutex by its owner is no operation, and neither is one that an error-checking mutex refuses to its owner:
//! both follow from what the thread did before. A lock that failed because another thread had the mutex is logged as a failure.
//!
//! **Layout** (glibc, 64 bits): the words down to `kind` are as glibc has them, since `pthread_mutex_init`, `_destroy`, `_consistent` aren't
//! hooked. The lock itself is 0 free, 1 taken, 2 taken and waited for (Drepper, "Futexes Are Tricky"). The links after them are used by
//! mutexes that are robust; in all others they hold the [`Runs`].
//!
//! Mutexes that inherit priorities are plain ones here: they exclude, but the owner runs at its own priority. Those with a ceiling keep it
//! in the upper bits of the lock, and raise nobody's priority either.

use super::error::*;
use super::robust;
use super::{object, tid, Stop};
use crate::engine::order::{Order, Runs, SLOT_BITS};
use crate::engine::waits::{Deadline, Wait, REALTIME};
use crate::log::awaited;
use crate::races::objects::Kind;
use crate::sync::hook::shim::Done;
use crate::thread::in_force;
use crate::thread::{Block, Frame};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A mutex.
#[repr(C)]
pub struct Mutex {
    /// Who has it, see above.
    pub lock: AtomicU32,
    /// How often its owner has locked it, if it is recursive.
    pub count: AtomicU32,
    /// Thread id of the owner.
    pub owner: AtomicU32,
    /// Threads that have locked it: `pthread_mutex_destroy` looks at it.
    pub users: AtomicU32,
    /// Type and properties.
    pub kind: AtomicU32,
    _spins: AtomicU32,
    runs: Runs,
}

const _: () = {
    assert!(core::mem::size_of::<Mutex>() == 40);
    assert!(offset_of!(Mutex, runs) == 24);
};

/// Types, in the lowest bits of `kind`.
pub const RECURSIVE: u32 = 1;
/// As [`RECURSIVE`].
pub const ERROR_CHECKING: u32 = 2;
const TYPE: u32 = 3;
const ROBUST: u32 = 0x10;
/// It inherits priorities.
pub const INHERITING: u32 = 0x20;
const CEILING: u32 = 0x40;
const SHARED: u32 = 0x80;
/// All that a mutex can be, with glibc's notes about lock elision. One that was destroyed is more.
const KNOWN: u32 = 0x303 | ROBUST | INHERITING | CEILING | SHARED;
/// Where a mutex with a ceiling has it.
const CEILING_BITS: u32 = 0xfff8_0000;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const WAITED_FOR: u32 = 2;

/// How often a lock looks before it sleeps: about as long as going to sleep takes.
const SPINS: u32 = 100;

/// How often a thread looks whether a lock is free before it sleeps. Where it runs alone, as in a turn, nobody else can free it.
pub fn spins() -> u32 {
    match in_force::has_private_views() || in_force::runs_one_at_a_time() {
        true => 0,
        false => SPINS,
    }
}

/// How long a lock may wait.
#[derive(Clone, Copy)]
pub enum Patience {
    /// Not at all.
    Try,
    /// Until then: the clock, and where the program says when.
    Until(u32, u64),
    /// For ever.
    Endless,
}

/// The deadline of a wait that has become necessary. `inheriting`: for a mutex that inherits priorities. Where there is none, why it failed.
pub fn deadline<O: Order>(
    t: &mut Block,
    patience: Patience,
    inheriting: bool,
) -> Result<Option<Deadline>, Stop> {
    let why = match patience {
        _ if O::REPLAYS => return Ok(None),
        Patience::Endless => return Ok(None),
        Patience::Try => EBUSY,
        Patience::Until(clock, at) => match Deadline::new(clock, at) {
            Ok(d) => return Ok(Some(d)),
            // libc leaves it to the kernel, for which no time lies before all time.
            Err(_) if inheriting => EINVAL,
            Err(e) => e,
        },
    };
    Err(failed::<O>(t, why))
}

/// The operation failed, for a reason that is to be logged.
pub fn failed<O: Order>(t: &mut Block, why: u32) -> Stop {
    O::failed(t, why);
    Stop::Error(why)
}

/// Takes the mutex at this address. `uses`: the thread counts as a user of it, which a wait on a condition doesn't change.
///
/// The result is 0, or `EOWNERDEAD`: the mutex is taken, but what it protects may be half done.
pub fn take<O: Order>(
    t: &mut Block,
    address: u64,
    patience: Patience,
    uses: bool,
) -> Result<u32, Stop> {
    // SAFETY: nothing of ours is held.
    let m = unsafe { object::<Mutex>(address) };
    let kind = m.kind.load(Relaxed);
    if kind & !KNOWN != 0 {
        return Err(Stop::Error(EINVAL));
    }
    let me = tid(t);
    let mine = match kind & ROBUST {
        0 => m.owner.load(Relaxed) == me,
        _ => robust::is_mine(m, me),
    };
    if mine {
        match (kind & TYPE, patience) {
            (RECURSIVE, _) => return again(m),
            // What glibc says, whose code for these is another.
            (ERROR_CHECKING, Patience::Try) if kind & (ROBUST | INHERITING) == 0 => {
                return Err(Stop::Error(EBUSY));
            }
            (ERROR_CHECKING, _) => return Err(Stop::Error(EDEADLK)),
            _ => {}
        }
    }
    let robust = kind & ROBUST != 0;
    let mut orphaned = false;
    if robust || !matches!(patience, Patience::Endless) {
        match O::failure(t) {
            Some(EOWNERDEAD) if robust => orphaned = true,
            Some(e) => return Err(Stop::Error(e)),
            None => {}
        }
    }
    if robust {
        return robust::take::<O>(t, m, patience, uses, orphaned);
    }
    O::touches_its_objects(t);
    if !O::turn(t, &m.runs) {
        return Err(Stop::Signal);
    }
    let free = match kind & CEILING {
        0 => FREE,
        _ => m.lock.load(Relaxed) & CEILING_BITS,
    };
    if m.lock
        .compare_exchange(free, free | TAKEN, Acquire, Relaxed)
        .is_err()
    {
        contend::<O>(t, m, free, patience, kind)?;
    }
    if kind & TYPE == RECURSIVE {
        m.count.store(1, Relaxed);
    }
    enter::<O>(t, m, uses);
    Ok(0)
}

/// The mutex is the thread's.
#[inline(always)]
fn enter<O: Order>(t: &mut Block, m: &Mutex, uses: bool) {
    m.owner.store(tid(t), Relaxed);
    if uses {
        let users = m.users.load(Relaxed);
        m.users.store(users.wrapping_add(1), Relaxed);
        // The short way of its unlock counts nothing.
        t.operations += 1;
    }
    O::locked(t, &m.runs);
    O::learns(t, Kind::Lock, m as *const Mutex as u64);
}

/// The owner locks a recursive mutex once more.
fn again(m: &Mutex) -> Result<u32, Stop> {
    let n = m.count.load(Relaxed).wrapping_add(1);
    if n == 0 {
        return Err(Stop::Error(EAGAIN));
    }
    m.count.store(n, Relaxed);
    Ok(0)
}

#[cold]
fn contend<O: Order>(
    t: &mut Block,
    m: &Mutex,
    free: u32,
    patience: Patience,
    kind: u32,
) -> Result<(), Stop> {
    let deadline = deadline::<O>(t, patience, kind & INHERITING != 0)?;
    let shared = kind & SHARED != 0;
    for _ in 0..spins() {
        O::pause(t);
        if m.lock.load(Relaxed) == free
            && m.lock
                .compare_exchange(free, free | TAKEN, Acquire, Relaxed)
                .is_ok()
        {
            return Ok(());
        }
    }
    // Whoever has slept can't know whether others sleep still.
    while m.lock.swap(free | WAITED_FOR, Acquire) != free {
        match O::wait(t, &m.lock, free | WAITED_FOR, deadline.as_ref(), shared) {
            Wait::TimedOut => return Err(failed::<O>(t, ETIMEDOUT)),
            Wait::Signal => return Err(Stop::Signal),
            Wait::Woken | Wait::Changed => {}
        }
    }
    Ok(())
}

/// Gives the mutex back; an error number.
pub fn give<O: Order>(t: &mut Block, address: u64, uses: bool) -> u32 {
    // SAFETY: nothing of ours is held.
    let m = unsafe { object::<Mutex>(address) };
    let kind = m.kind.load(Relaxed);
    if kind & !KNOWN != 0 {
        return EINVAL;
    }
    if kind & ROBUST != 0 {
        return robust::give::<O>(t, m, uses);
    }
    O::touches_its_objects(t);
    let mine = m.owner.load(Relaxed) == tid(t) && m.lock.load(Relaxed) & !CEILING_BITS != 0;
    match kind & TYPE {
        RECURSIVE | ERROR_CHECKING if !mine => return EPERM,
        RECURSIVE => {
            let n = m.count.load(Relaxed) - 1;
            m.count.store(n, Relaxed);
            if n != 0 {
                return 0;
            }
        }
        _ => {}
    }
    O::lets_know(t, Kind::Lock, address);
    m.owner.store(0, Relaxed);
    if uses {
        m.users
            .store(m.users.load(Relaxed).wrapping_sub(1), Relaxed);
    }
    let free = match kind & CEILING {
        0 => FREE,
        _ => m.lock.load(Relaxed) & CEILING_BITS,
    };
    let made = m.runs.count();
    // From here on the mutex may be another thread's, or no mutex any more.
    let word = m.lock.as_ptr();
    if m.lock.swap(free, Release) == free | WAITED_FOR {
        O::wake(t, word, 1, kind & SHARED != 0);
    }
    call_next::<O>(address, made);
    0
}

/// The mutex at this address is free after `made` operations: in a replay, whoever waits for that goes on.
#[inline(always)]
fn call_next<O: Order>(address: u64, made: u64) {
    if O::REPLAYS {
        awaited::call_for(address + offset_of!(Mutex, runs) as u64, made);
    }
}

/// What a function returns that took a mutex.
fn answer(taken: Result<u32, Stop>) -> Done {
    match taken {
        Ok(e) | Err(Stop::Error(e)) => Done::errno(e),
        Err(Stop::Signal) => Done::by_frame(),
    }
}

/// `pthread_mutex_lock(mutex)`
#[inline(always)]
pub fn lock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    answer(take::<O>(t, f.rdi, Patience::Endless, true))
}

/// `pthread_mutex_trylock(mutex)`
pub fn trylock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    answer(take::<O>(t, f.rdi, Patience::Try, true))
}

/// `pthread_mutex_timedlock(mutex, time)`
pub fn timedlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    answer(take::<O>(t, f.rdi, Patience::Until(REALTIME, f.rsi), true))
}

/// `pthread_mutex_clocklock(mutex, clock, time)`
pub fn clocklock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let clock = f.rsi as u32;
    if clock > crate::engine::waits::MONOTONIC {
        return Done::errno(EINVAL);
    }
    answer(take::<O>(t, f.rdi, Patience::Until(clock, f.rdx), true))
}

/// `pthread_mutex_unlock(mutex)`
#[inline(always)]
pub fn unlock<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    // SAFETY: nothing of ours is held.
    let m = unsafe { object::<Mutex>(f.rdi) };
    // There is a short way for plain ones.
    if m.kind.load(Relaxed) == 0 {
        O::does_not_count(t);
    }
    Done::errno(give::<O>(t, f.rdi, true))
}

/// From [`crate::sync::hook::fast`]: a plain mutex was taken that another thread had in the meantime.
pub fn entered<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    // SAFETY: nothing of ours is held.
    enter::<O>(t, unsafe { object::<Mutex>(f.rdi) }, true);
    Done::value(0)
}

/// From there: a plain mutex was given back that others wait for.
pub fn left<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::does_not_count(t);
    O::wake(t, f.rdi as *const u32, 1, false);
    call_next::<O>(f.rdi, f.r8 >> SLOT_BITS);
    Done::value(0)
}

/// From there, in a replay: a plain mutex was given back, and somebody waits for a turn, perhaps for this one. The run of the mutex is in r8.
pub fn called<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    O::does_not_count(t);
    call_next::<O>(f.rdi, f.r8 >> SLOT_BITS);
    Done::value(0)
}

/// From there: all is done, but a signal waits.
pub fn nothing<O: Order>(t: &mut Block, _f: &mut Frame) -> Done {
    O::does_not_count(t);
    Done::value(0)
}
