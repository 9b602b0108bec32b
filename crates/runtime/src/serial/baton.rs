//! The baton: who may run. Session-wide, in shared memory, so that it works across processes.
//!
//! A hand-off completes when the receiver wakes; the log says who ran. The lock here is held for a few dozen
//! instructions at a time and never while waiting (DESIGN 8, rule 1). The agent takes part: it takes the baton from
//! a holder that stays inside one call ([`slot_state::IN_CALL`]).

use super::chaos;
use crate::asm::rt_blocking;
use crate::attended;
use crate::robust;
use crate::sys;
use crate::thread::{current, session, slot, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::schedule::{owner, FutexKey, Lists, OWNER_DIED, WAITERS};
use reprise_abi::session::{
    futex_wait, process_state, slot_state, Slot, BATON_FREE, FLAG_CHAOS, MODE_RECORD, MODE_REPLAY,
};
use reprise_abi::syscalls::nr;

/// Who waits on a futex of the program looks so often whether others can still wake it.
const LOOK_NS: i64 = 5_000_000_000;

/// Guards the scheduler's lists.
pub struct Locked(());

/// The lists, as everybody who holds the lock sees them.
fn lists() -> Lists<'static> {
    Lists(session())
}

/// Takes the scheduler's lock. It says who has it: should this thread be killed with it, the agent sees to it that the next one is told.
pub fn lock() -> Locked {
    let l = &session().schedule_lock;
    let t = current();
    let me = owner(t.number, t.slot);
    if l.compare_exchange(0, me, Acquire, Relaxed).is_err() {
        lock_slowly(l, me);
    }
    Locked(())
}

#[cold]
fn lock_slowly(l: &AtomicU32, me: u32) {
    loop {
        let v = l.load(Relaxed);
        if v == 0 || v & OWNER_DIED != 0 {
            // Who has slept must assume that others still do.
            if l.compare_exchange(v, me | WAITERS, Acquire, Relaxed)
                .is_ok()
            {
                if v & OWNER_DIED != 0 {
                    lists().repair();
                }
                return;
            }
            continue;
        }
        if v & WAITERS == 0
            && l.compare_exchange(v, v | WAITERS, Relaxed, Relaxed)
                .is_err()
        {
            continue;
        }
        let t = sys::Timespec::from_ns(sys::monotonic().ns() + 10_000_000);
        sys::futex_wait(l.as_ptr(), v | WAITERS, Some(&t));
        attended::or_end();
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let l = &session().schedule_lock;
        if l.swap(0, Release) & WAITERS != 0 {
            sys::futex_wake(l.as_ptr(), 1);
        }
    }
}

/// Is this the only thread of the session?
#[inline]
pub fn alone() -> bool {
    session().live_threads.load(Relaxed) == 1
}

/// Next number of chaos mode's generator (splitmix64).
pub fn random() -> u64 {
    let s = &session().chaos_state;
    let mut z = s.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
    s.store(z, Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Is chaos mode on?
#[inline]
pub fn chaos() -> bool {
    session().flags & FLAG_CHAOS != 0
}

impl Locked {
    fn set_holder(&self, holder: u32) {
        lists().set_holder(holder);
    }

    /// Hands the baton to the first that waits, in chaos mode to anyone, or to nobody.
    fn pass(self) {
        let count = session().ready_count.load(Relaxed) as u64;
        let skip = if chaos() && count > 1 {
            let drawn = (random() % count) as u32;
            let held = lists().ready_at(drawn).is_some_and(chaos::is_held_back);
            match held {
                true => (drawn + 1) % count as u32,
                false => drawn,
            }
        } else {
            lists().next()
        };
        if let Some(i) = lists().hand_on(skip) {
            drop(self);
            // It may have run, and come back, before this thread gets here: it is only woken, not told once more.
            sys::futex_wake(slot(i).go.as_ptr(), 1);
        }
    }

    /// Puts a slot at the end of the queue of a futex.
    pub fn futex_insert(&self, i: u32, key: FutexKey, bitset: u32) {
        lists().futex_insert(i, key, bitset);
        if key.space != crate::process::space() {
            let notes = &slot(i).futex_notes;
            notes.store(futex_wait::SHARED, Relaxed);
        }
    }

    /// The robust futexes of the calling thread's process, which ends, are to be marked.
    pub fn fall_due(&self, t: &Block) {
        lists().fall_due(t.slot_process());
    }

    /// Lets those that wait on the futex come and look at it again.
    pub fn look_again(&self, key: FutexKey) {
        lists().look_again(|k, shared| shared && k == key);
    }

    /// Wakes up to `n` that wait on the futex, each after a `look` at it; how many it were.
    pub fn futex_wake(
        &self,
        key: FutexKey,
        bitset: u32,
        n: u32,
        mut look: impl FnMut(&Slot),
    ) -> u32 {
        let fits = |_: u32, s: &Slot| s.futex_bitset.load(Relaxed) & bitset != 0;
        let mut woken = 0;
        while woken < n {
            let Some(i) = lists().futex_take(key, fits) else {
                break;
            };
            look(slot(i));
            lists().push_ready(i);
            woken += 1;
        }
        woken
    }

    /// Wakes the first that waits on the futex.
    pub fn futex_wake_one(&self, key: FutexKey) -> Option<u32> {
        let i = lists().futex_take(key, |_, _| true)?;
        lists().push_ready(i);
        Some(i)
    }

    /// Lets up to `n` that wait on `from` wait on `to` instead.
    pub fn futex_requeue(&self, from: FutexKey, to: FutexKey, n: u32) -> u32 {
        let mut moved = 0;
        while moved < n {
            let Some(i) = lists().futex_take(from, |_, _| true) else {
                break;
            };
            self.futex_insert(i, to, slot(i).futex_bitset.load(Relaxed));
            moved += 1;
        }
        moved
    }

    /// Takes one slot out of its queue because its wait ended by itself; false when it was woken meanwhile.
    fn futex_cancel(&self, i: u32) -> bool {
        let s = slot(i);
        if s.state.load(Relaxed) != slot_state::FUTEX {
            return false;
        }
        let key = FutexKey {
            space: s.futex_space.load(Relaxed),
            address: s.futex_address.load(Relaxed),
        };
        lists().futex_take(key, |k, _| k == i).is_some()
    }
}

/// The calling thread's process ends: its other threads are out of every list, and the baton goes on. The caller must end the
/// process now, and touch nothing of the session any more.
pub fn leave(t: &Block) {
    let (s, p) = (session(), crate::process::entry());
    let l = lock();
    let others = lists().forget(t.slot_process(), Some(t.slot), slot_state::LEFT);
    let mine = if others == 0 {
        slot_state::FREE
    } else {
        slot_state::LEFT
    };
    s.live_threads
        .fetch_sub(p.live_threads.swap(0, Relaxed), Relaxed);
    p.state.store(process_state::ENDING, Release);
    t.slot().state.store(mine, Release);
    crate::process::leaves_memory(true);
    l.pass();
}

/// Replay: the calling thread's process ends. The state of its own slot from now on.
pub fn retire(t: &Block) -> u32 {
    let (s, p) = (session(), crate::process::entry());
    let l = lock();
    let others = lists().forget(t.slot_process(), Some(t.slot), slot_state::LEFT);
    s.live_threads
        .fetch_sub(p.live_threads.swap(0, Relaxed), Relaxed);
    p.state.store(process_state::ENDING, Release);
    crate::process::leaves_memory(true);
    drop(l);
    if others == 0 {
        slot_state::FREE
    } else {
        slot_state::LEFT
    }
}

/// Replay: another process is to be killed.
pub fn retire_other(n: u32) {
    let (s, p) = (session(), crate::process::entry_of(n));
    let l = lock();
    lists().forget(n, None, slot_state::LEFT);
    s.live_threads
        .fetch_sub(p.live_threads.swap(0, Relaxed), Relaxed);
    p.state.store(process_state::ENDING, Release);
    drop(l);
}

/// Replay: the other threads of the calling thread's process end.
pub fn retire_threads(t: &Block) {
    let p = crate::process::entry();
    let l = lock();
    lists().forget(t.slot_process(), Some(t.slot), slot_state::LEFT);
    let gone = p.live_threads.swap(1, Relaxed) - 1;
    session().live_threads.fetch_sub(gone, Relaxed);
    drop(l);
}

/// The calling thread is the only one of its process: exec has ended the others.
pub fn only_thread(t: &Block) {
    let p = crate::process::entry();
    let l = lock();
    if session().mode != MODE_REPLAY {
        lists().forget(t.slot_process(), Some(t.slot), slot_state::FREE);
    }
    p.came_back.store(0, Relaxed);
    let gone = p.live_threads.swap(1, Relaxed) - 1;
    session().live_threads.fetch_sub(gone, Relaxed);
    drop(l);
}

/// A thread of a process that has ended already: it only waits for the kernel to take it. Where it doesn't, the agent has buried a process that lives,
/// because the program wrote something untrue into the session: nobody would ever end it.
pub fn wait_for_end() -> ! {
    const LOOKS: u32 = 50;
    let mut looks = 0;
    loop {
        let limit = sys::Timespec::from_ns(100_000_000);
        sys::call(nr::NANOSLEEP, &[&limit as *const sys::Timespec as u64, 0]);
        let state = crate::process::entry().state.load(Relaxed);
        let buried = matches!(state, process_state::LOST | process_state::FREE);
        // The word by which that is told may be gone, too.
        let alone = buried || !crate::namespace::agent_lives();
        looks = if alone { looks + 1 } else { 0 };
        if looks > LOOKS && session().mode == MODE_RECORD {
            sys::exit_group(125);
        }
    }
}

/// Lets the thread of slot `i` go on.
pub fn go(i: u32) {
    let g = &slot(i).go;
    g.store(1, Release);
    sys::futex_wake(g.as_ptr(), 1);
}

/// Sleeps until [`go`] is called for this slot.
pub fn wait_go(i: u32) {
    let g = &slot(i).go;
    while g.swap(0, Acquire) == 0 {
        attended::sleep_on(g.as_ptr(), 0);
    }
}

/// The holder leaves: inside a call that may wait, or for good.
pub fn release(i: u32, state: u32) {
    chaos::end_slice(current());
    robust::put_down(current());
    let l = lock();
    slot(i).state.store(state, Release);
    l.pass();
}

/// Comes back for the baton and waits until it has it.
pub fn acquire(i: u32) {
    acquire_locked(lock(), i);
}

fn acquire_locked(l: Locked, i: u32) {
    if !crate::process::is_live() {
        drop(l);
        wait_for_end();
    }
    if session().baton.load(Relaxed) == BATON_FREE {
        slot(i).state.store(slot_state::RUNNING, Relaxed);
        l.set_holder(i + 1);
        drop(l);
    } else {
        // The agent sees to it that this doesn't take long.
        let waiting = &crate::process::entry().came_back;
        waiting.fetch_add(1, Relaxed);
        lists().push_returned(i);
        drop(l);
        wait_go(i);
        waiting.fetch_sub(1, Relaxed);
    }
    robust::pick_up(current());
    chaos::begin_slice(current());
}

/// The holder's call begins; from now on the agent may take the baton.
#[inline]
pub fn enter_call(i: u32) {
    robust::put_down(current());
    slot(i).state.store(slot_state::IN_CALL, Release);
}

/// The call is over; true when the baton is still here, false when it was taken.
#[inline]
pub fn leave_call(i: u32) -> bool {
    let state = &slot(i).state;
    let held = state
        .compare_exchange(slot_state::IN_CALL, slot_state::RUNNING, AcqRel, Relaxed)
        .is_ok();
    if held {
        robust::pick_up(current());
    }
    held
}

/// Goes to the end of the queue, if anybody waits; `before` runs when it is certain.
pub fn step_back(i: u32, before: impl FnOnce()) -> bool {
    if session().ready_count.load(Relaxed) == 0 {
        return false;
    }
    // Nobody but the holder takes others out of the queue, so it stays non-empty.
    before();
    robust::put_down(current());
    let l = lock();
    lists().push_ready(i);
    l.pass();
    wait_go(i);
    robust::pick_up(current());
    chaos::begin_slice(current());
    true
}

/// How a wait on a futex ended.
#[derive(PartialEq, Eq)]
pub enum Wait {
    /// Somebody woke it.
    Woken,
    /// The time is over.
    TimedOut,
    /// A signal for the program is there.
    Interrupted,
}

/// Waits on a futex of the program (already queued by `l`), and returns with the baton. The caller has put down its robust futexes.
pub fn futex_sleep(l: Locked, i: u32, deadline: Option<(sys::Timespec, bool)>) -> Wait {
    chaos::end_slice(current());
    l.pass();
    let me = slot(i);
    // FUTEX_WAIT_BITSET, absolute; on CLOCK_REALTIME when so asked.
    let op = 9 | if matches!(deadline, Some((_, true))) {
        256
    } else {
        0
    };
    let mut look;
    loop {
        if me.go.swap(0, Acquire) != 0 {
            chaos::begin_slice(current());
            return Wait::Woken;
        }
        attended::or_end();
        look = sys::Timespec::from_ns(sys::monotonic().ns() + LOOK_NS);
        let limit = deadline.as_ref().map_or(&look, |(t, _)| t) as *const sys::Timespec as u64;
        let args = [me.go.as_ptr() as u64, op, 0, limit, 0, u32::MAX as u64];
        // SAFETY: the words belong to the session.
        let r = unsafe { rt_blocking(nr::FUTEX, &args, me.signal_pending.as_ptr()) };
        let why = match r {
            -110 if deadline.is_some() => Wait::TimedOut,
            -512 | -4 if me.signal_pending.load(Acquire) != 0 => Wait::Interrupted,
            _ => continue,
        };
        let l = lock();
        if l.futex_cancel(i) {
            acquire_locked(l, i);
            return why;
        }
        // Woken meanwhile: it is in the queue, or has the baton already.
        drop(l);
        wait_go(i);
        chaos::begin_slice(current());
        return Wait::Woken;
    }
}
