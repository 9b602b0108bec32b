//! The scheduler's lists in shared memory, for all processes of a session: who is ready, who waits on which futex, and whose process has ended
//! ([`reprise_abi::schedule`]). Also how one thread is told by another to begin or to go on.
//!
//! The lock is held for a few dozen instructions at a time and never while waiting (DESIGN 8, rule 1).

use crate::machine::sys;
use crate::thread::{attended, current, in_force, session, slot, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::schedule::{self, owner, FutexKey, Lists};
use reprise_abi::session::{futex_wait, process_state, slot_state, Slot, MODE_RECORD, MODE_REPLAY};

/// Between two looks at the lock of a thread that waits for it.
const LOCK_LOOK_NS: i64 = 10_000_000;

/// The kernel's futexes; who sleeps looks again after so many nanoseconds, and ends where nobody attends to the session any more.
#[derive(Clone, Copy)]
pub struct Kernel(i64);

impl schedule::Kernel for Kernel {
    fn sleep(self, word: &AtomicU32, value: u32) {
        let t = sys::Timespec::from_ns(sys::monotonic().ns() + self.0);
        sys::futex_wait(word.as_ptr(), value, Some(&t));
        attended::or_end();
    }

    fn wake(self, word: &AtomicU32) {
        sys::futex_wake(word.as_ptr(), 1);
    }
}

/// Guards the scheduler's lists.
pub struct Locked(schedule::Locked<'static, Kernel>);

/// The lists, as everybody who holds the lock sees them.
fn lists() -> Lists<'static> {
    Lists(session())
}

/// Takes the scheduler's lock. It says who has it: should this thread be killed with it, the agent sees to it that the next one is told.
pub fn lock() -> Locked {
    let t = current();
    Locked(lists().lock(owner(t.number(), t.slot_number()), Kernel(LOCK_LOOK_NS)))
}

/// Record: the calling thread is the session's first, and has the baton.
pub fn begin(t: &Block) {
    lists().begins(t.slot);
}

/// Waits until the baton was given to slot `i`.
pub fn wait_for_baton(i: u32) {
    slot(i).wait_for_baton(session(), Kernel(attended::LOOK_NS));
}

impl Locked {
    /// Hands the baton on, to the slot that is as far from the front of the queue as `next` says, or to nobody.
    pub fn pass_to(self, next: impl FnOnce(&Lists) -> u32) {
        let skip = next(&self.0);
        self.0.pass(skip);
    }

    /// The holder, slot `i`, leaves: inside a call that may wait, or for good.
    pub fn release(self, i: u32, state: u32, next: impl FnOnce(&Lists) -> u32) {
        self.0.release(i, state, next);
    }

    /// Slot `i` comes back for the baton. True: it has it; else it is queued, after `before`, and [waits](wait_for_baton).
    pub fn come_back(self, i: u32, before: impl FnOnce()) -> bool {
        self.0.come_back(i, before)
    }

    /// Slot `i` is to be given the baton, whoever has it, and [waits](wait_for_baton).
    pub fn queue(&self, i: u32) {
        lists().push_ready(i);
    }

    /// The holder, slot `i`, goes to the end of the queue, and [waits](wait_for_baton).
    pub fn queue_again(self, i: u32, next: impl FnOnce(&Lists) -> u32) {
        self.0.queue_again(i, next);
    }

    /// Puts a slot at the end of the queue of a futex.
    pub fn futex_insert(&self, i: u32, key: FutexKey, bitset: u32) {
        lists().futex_insert(i, key, bitset);
        if key.space != crate::thread::process::space() {
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
    pub fn futex_cancel(&self, i: u32) -> bool {
        self.0.futex_cancel(i)
    }
}

/// The calling thread's process ends: its other threads are out of every list, and the baton goes on. `next` says who is next. The
/// caller must end the process now, and touch nothing of the session any more.
pub fn leave_to(t: &Block, next: impl FnOnce(&Lists) -> u32) {
    let (s, p) = (session(), crate::thread::process::entry());
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
    crate::thread::process::leaves_memory(true);
    l.pass_to(next);
}

/// The calling thread wants the baton, and waits for it.
pub fn come_back(i: u32) {
    let waiting = &crate::thread::process::entry().came_back;
    let queued = || {
        waiting.fetch_add(1, Relaxed);
    };
    if !lock().come_back(i, queued) {
        wait_for_baton(i);
        waiting.fetch_sub(1, Relaxed);
    }
}

/// The calling thread has the baton, and does something for which it needs none.
pub fn leave_for_others(i: u32) {
    lock().release(i, slot_state::BLOCKED, |l| l.next());
}

/// As [`leave_to`], the first that waits.
pub fn leave(t: &Block) {
    leave_to(t, |l| l.next());
}

/// Replay: the calling thread's process ends. The state of its own slot from now on.
pub fn retire(t: &Block) -> u32 {
    let (s, p) = (session(), crate::thread::process::entry());
    let l = lock();
    let others = lists().forget(t.slot_process(), Some(t.slot), slot_state::LEFT);
    s.live_threads
        .fetch_sub(p.live_threads.swap(0, Relaxed), Relaxed);
    p.state.store(process_state::ENDING, Release);
    crate::thread::process::leaves_memory(true);
    drop(l);
    if others == 0 {
        slot_state::FREE
    } else {
        slot_state::LEFT
    }
}

/// Replay: another process is to be killed.
pub fn retire_other(n: u32) {
    let (s, p) = (session(), crate::thread::process::entry_of(n));
    let l = lock();
    lists().forget(n, None, slot_state::LEFT);
    s.live_threads
        .fetch_sub(p.live_threads.swap(0, Relaxed), Relaxed);
    p.state.store(process_state::ENDING, Release);
    drop(l);
}

/// Replay: the other threads of the calling thread's process end.
pub fn retire_threads(t: &Block) {
    let p = crate::thread::process::entry();
    let l = lock();
    lists().forget(t.slot_process(), Some(t.slot), slot_state::LEFT);
    let gone = p.live_threads.swap(1, Relaxed) - 1;
    session().live_threads.fetch_sub(gone, Relaxed);
    drop(l);
}

/// The calling thread is the only one of its process: exec has ended the others.
pub fn only_thread(t: &Block) {
    let p = crate::thread::process::entry();
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
    const LOOKS: u32 = 20;
    let mut looks = 0;
    loop {
        let limit = sys::Timespec::from_ns(100_000_000);
        sys::nanosleep(&limit as *const sys::Timespec as u64, 0);
        let state = crate::thread::process::entry().state.load(Relaxed);
        let buried = matches!(state, process_state::LOST | process_state::FREE);
        // The word by which that is told may be gone, too.
        let alone = buried || !crate::thread::namespace::agent_lives();
        looks = if alone { looks + 1 } else { 0 };
        // Nor need that be true which says how the session is made; of `det` nothing else tells.
        let recorded = !in_force::takes_from_trace() && !in_force::has_private_views();
        if looks > LOOKS && (recorded || session().mode == MODE_RECORD) {
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
