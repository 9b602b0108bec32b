//! The scheduler's lists in the session: who is ready for the baton, who waits on a futex of the program.
//!
//! They are used by the runtime in every process and by the agent, always under [`Session::schedule_lock`] ([`Lists::lock`]). A thread that dies while it
//! holds the lock leaves [`OWNER_DIED`] in it, and who takes it next calls [`Lists::repair`]. For threads of the session the agent
//! sees to that ([`Lists::free_lock`]), because the kernel's list of robust futexes (set_robust_list(2)) is the program's; for the agent
//! itself the kernel does.

mod baton;
mod lock;
#[cfg(test)]
mod schedules;

use crate::atomic::Ordering::*;
use crate::layout::MAX_SLOTS;
use crate::owed::{Owed, OwedTable};
use crate::session::{
    futex_wait, process_state, request, slot_state, Session, Slot, BATON_FREE, FUTEX_BUCKETS,
    MAX_PROCESSES,
};

pub use lock::{Kernel, Locked};

/// Somebody sleeps on the lock.
pub const WAITERS: u32 = 0x8000_0000;
/// Its holder died.
pub const OWNER_DIED: u32 = 0x4000_0000;
/// Its holder is a thread of the session; the agent's own thread id is smaller.
const THREAD: u32 = 0x2000_0000;
/// Bits of the lock that hold a slot plus 1; those above them hold a process.
const SLOT_BITS: u32 = 13;

const _: () = assert!(MAX_SLOTS < 1 << SLOT_BITS && MAX_PROCESSES << SLOT_BITS < THREAD as usize);

/// What a thread of process `p` puts into the lock.
pub const fn owner(p: u32, slot: u32) -> u32 {
    THREAD | p << SLOT_BITS | (slot + 1)
}

/// The process and the slot of the thread that holds the lock; `None` when no thread of the session does.
pub fn owner_of(lock: u32) -> Option<(u32, u32)> {
    let slot = (lock & ((1 << SLOT_BITS) - 1)).checked_sub(1)?;
    let p = (lock & (THREAD - 1)) >> SLOT_BITS;
    (lock & THREAD != 0).then_some((p, slot))
}

/// What a futex is, apart from the address by which a program knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FutexKey {
    /// An address space, or memory that several share.
    pub space: u64,
    /// Where in it.
    pub address: u64,
}

impl FutexKey {
    fn of(slot: &Slot) -> FutexKey {
        FutexKey {
            space: slot.futex_space.load(Relaxed),
            address: slot.futex_address.load(Relaxed),
        }
    }
}

/// The lists, for somebody who holds the lock.
#[derive(Clone, Copy)]
pub struct Lists<'a>(pub &'a Session);

impl<'a> Lists<'a> {
    /// Slot number `i`; one that was scribbled over is taken for the last.
    fn slot(&self, i: u32) -> &'a Slot {
        self.0.slot((i as usize).min(MAX_SLOTS - 1))
    }

    /// The slots of the queue that begins so (a slot plus 1), each with the one before it (likewise; 0: none). The program may have written over the
    /// links: there are never more than there are slots.
    fn queue(self, head: u32) -> impl Iterator<Item = (u32, u32)> + 'a {
        let (mut before, mut next) = (0, head);
        let step = move || {
            let i = next.checked_sub(1)?;
            let was = core::mem::replace(&mut before, next);
            next = self.slot(i).next_ready.load(Relaxed);
            Some((was, i))
        };
        core::iter::from_fn(step).take(MAX_SLOTS)
    }

    /// Puts a slot at the end of the ready queue.
    pub fn push_ready(&self, i: u32) {
        let s = self.0;
        self.slot(i).next_ready.store(0, Relaxed);
        self.slot(i).returned.store(0, Relaxed);
        self.slot(i).state.store(slot_state::READY, Relaxed);
        match s.ready_tail.load(Relaxed) {
            0 => s.ready_head.store(i + 1, Relaxed),
            last => self.slot(last - 1).next_ready.store(i + 1, Relaxed),
        }
        s.ready_tail.store(i + 1, Relaxed);
        s.ready_count.fetch_add(1, Relaxed);
    }

    /// Puts a slot into the ready queue whose thread comes back from a call, or whose time is over: behind others that do, in front of all others, which
    /// compute, or have just been woken by somebody who does.
    pub fn push_returned(&self, i: u32) {
        let s = self.0;
        let returned = |i: &u32| self.slot(*i).returned.load(Relaxed) != 0;
        let head = s.ready_head.load(Relaxed);
        let last = self.queue(head).map(|(_, i)| i).take_while(returned).last();
        let next = match last {
            Some(before) => self.slot(before).next_ready.swap(i + 1, Relaxed),
            None => s.ready_head.swap(i + 1, Relaxed),
        };
        self.slot(i).next_ready.store(next, Relaxed);
        self.slot(i).returned.store(1, Relaxed);
        self.slot(i).state.store(slot_state::READY, Relaxed);
        if next == 0 {
            s.ready_tail.store(i + 1, Relaxed);
        }
        s.ready_count.fetch_add(1, Relaxed);
    }

    /// Who gets the baton next: how many are before it in the ready queue. Of two turns one is for those who have not come back from a call, if there
    /// are any: else calls that are short would keep those who compute from ever going on. Who hands it on is none of them: it would follow itself.
    pub fn next(&self) -> u32 {
        let s = self.0;
        let head = s.ready_head.load(Relaxed);
        let returned = |i: u32| self.slot(i).returned.load(Relaxed) != 0;
        let giver = s.baton.load(Relaxed);
        let computes = |i: u32| !returned(i) && i + 1 != giver;
        let others = || self.queue(head).position(|(_, i)| computes(i));
        let skip = match s.preferred.load(Relaxed) {
            0 => 0,
            _ => others().unwrap_or(0) as u32,
        };
        let preferred = self.ready_at(skip).is_some_and(returned);
        s.preferred.store(preferred.into(), Relaxed);
        skip
    }

    /// The slot of the ready queue that has `skip` others before it.
    pub fn ready_at(&self, skip: u32) -> Option<u32> {
        let head = self.0.ready_head.load(Relaxed);
        self.queue(head).nth(skip as usize).map(|(_, i)| i)
    }

    /// The slots of the ready queue, in its order. To be asked without the lock, too: then the answer may be out of date.
    pub fn ready(self) -> impl Iterator<Item = u32> + 'a {
        self.queue(self.0.ready_head.load(Relaxed)).map(|(_, i)| i)
    }

    /// Takes a slot out of the ready queue: the first behind `skip` others.
    pub fn pop_ready(&self, skip: u32) -> Option<u32> {
        let s = self.0;
        if s.ready_count.load(Relaxed) == 0 {
            return None;
        }
        let head = s.ready_head.load(Relaxed);
        let (before, i) = self.queue(head).nth(skip as usize)?;
        self.unlink_ready(before, i);
        Some(i)
    }

    fn unlink_ready(&self, before: u32, i: u32) {
        let s = self.0;
        let next = self.slot(i).next_ready.load(Relaxed);
        match before {
            0 => s.ready_head.store(next, Relaxed),
            b => self.slot(b - 1).next_ready.store(next, Relaxed),
        }
        if next == 0 {
            s.ready_tail.store(before, Relaxed);
        }
        s.ready_count.fetch_sub(1, Relaxed);
    }

    fn bucket(key: FutexKey) -> usize {
        let mixed = key.address ^ key.space.rotate_left(32);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % FUTEX_BUCKETS
    }

    /// Puts a slot at the end of the queue of the futex `key`.
    pub fn futex_insert(&self, i: u32, key: FutexKey, bitset: u32) {
        let me = self.slot(i);
        me.futex_space.store(key.space, Relaxed);
        me.futex_address.store(key.address, Relaxed);
        me.futex_bitset.store(bitset, Relaxed);
        me.futex_notes.store(0, Relaxed);
        self.futex_append(i);
    }

    fn futex_append(&self, i: u32) {
        let (s, me) = (self.0, self.slot(i));
        let b = Self::bucket(FutexKey::of(me));
        me.next_ready.store(0, Relaxed);
        me.state.store(slot_state::FUTEX, Relaxed);
        match s.futex_tail[b].load(Relaxed) {
            0 => s.futex_head[b].store(i + 1, Relaxed),
            last => self.slot(last - 1).next_ready.store(i + 1, Relaxed),
        }
        s.futex_tail[b].store(i + 1, Relaxed);
    }

    /// Takes the first slot that fits out of the queue of the futex `key`.
    pub fn futex_take(&self, key: FutexKey, fits: impl Fn(u32, &Slot) -> bool) -> Option<u32> {
        let (s, b) = (self.0, Self::bucket(key));
        let is_it = |i: u32| {
            let one = self.slot(i);
            FutexKey::of(one) == key && fits(i, one)
        };
        let head = s.futex_head[b].load(Relaxed);
        let (before, i) = self.queue(head).find(|(_, i)| is_it(*i))?;
        let next = self.slot(i).next_ready.load(Relaxed);
        match before {
            0 => s.futex_head[b].store(next, Relaxed),
            p => self.slot(p - 1).next_ready.store(next, Relaxed),
        }
        if next == 0 {
            s.futex_tail[b].store(before, Relaxed);
        }
        Some(i)
    }

    /// Is this slot in the queue of the futex on which it says that it waits? To be asked without the lock, too: then the answer may be
    /// out of date.
    pub fn is_queued(&self, i: u32) -> bool {
        let one = self.slot(i);
        let head = self.0.futex_head[Self::bucket(FutexKey::of(one))].load(Relaxed);
        let waits = one.state.load(Relaxed) == slot_state::FUTEX;
        waits && self.queue(head).any(|(_, k)| k == i)
    }

    /// Lets those that wait on a futex that is `concerned`, and in memory that processes share if the second argument says so, come and
    /// look at it again.
    pub fn look_again(&self, concerned: impl Fn(FutexKey, bool) -> bool) {
        for i in 0..self.used() {
            let one = self.slot(i);
            let key = FutexKey::of(one);
            let waits = one.state.load(Relaxed) == slot_state::FUTEX;
            let shared = one.futex_notes.load(Relaxed) & futex_wait::SHARED != 0;
            if waits && concerned(key, shared) && self.futex_take(key, |k, _| k == i).is_some() {
                one.futex_notes.fetch_or(futex_wait::LOOK, Relaxed);
                self.push_ready(i);
            }
        }
    }

    /// The robust futexes of process `p`, which is gone or has become another program, are to be marked by others.
    pub fn fall_due(&self, p: u32) {
        let table = OwedTable::of(self.0);
        let of_it = |i: u32| self.slot(i).process.load(Relaxed) == p;
        if table.fall_due(of_it) != 0 {
            self.look_again(|key, shared| {
                let is_it = |e: &Owed| e.key() == key && (shared || e.clears());
                table.due().any(is_it)
            });
        }
    }

    /// Process `p` is dead, or all its threads but that of slot `except` are: if one of them had the lock, it can be had again. The
    /// caller wakes one that waits for it then. The only function here that needs no lock.
    pub fn free_lock(&self, p: u32, except: Option<u32>) -> bool {
        let lock = &self.0.schedule_lock;
        let freed = lock.fetch_update(AcqRel, Acquire, |v| {
            let (q, slot) = owner_of(v)?;
            (p == q && Some(slot) != except).then_some(v & WAITERS | OWNER_DIED)
        });
        freed.is_ok()
    }

    fn used(&self) -> u32 {
        self.0.slots_used.load(Relaxed).min(MAX_SLOTS as u32)
    }

    /// Takes all slots of process `p` but `except` out of the lists and puts them into `state`; how many they were.
    pub fn forget(&self, p: u32, except: Option<u32>, state: u32) -> u32 {
        let mut n = 0;
        for i in 0..self.used() {
            let one = self.slot(i);
            let was = one.state.load(Relaxed);
            if one.process.load(Relaxed) != p
                || Some(i) == except
                || matches!(was, slot_state::FREE | slot_state::EXITING)
            {
                continue;
            }
            if was == slot_state::READY {
                self.remove_ready(i);
            } else if was == slot_state::FUTEX {
                self.futex_take(FutexKey::of(one), |k, _| k == i);
            }
            one.state.store(state, Release);
            n += 1;
        }
        n
    }

    fn remove_ready(&self, wanted: u32) {
        let head = self.0.ready_head.load(Relaxed);
        let found = self.queue(head).find(|(_, i)| *i == wanted);
        if let Some((before, _)) = found {
            self.unlink_ready(before, wanted);
        }
    }

    /// The kernel's id of process `p`, 0 when it isn't known yet. Until the process says it, its first thread's slot has it, where the
    /// kernel wrote it at the clone: a child may be killed before its first instruction.
    pub fn pid_of(&self, p: u32) -> u32 {
        let told = self.0.processes[p as usize].kernel_pid.load(Acquire);
        if told != 0 {
            return told;
        }
        (0..self.used())
            .map(|i| self.slot(i))
            .find(|s| {
                let gone = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
                s.process.load(Relaxed) == p && !gone.contains(&s.state.load(Relaxed))
            })
            .map_or(0, |s| s.kernel_tid.load(Relaxed))
    }

    /// A process that was found dead is out of the way: its slots are free, and nobody waits for it. True when it held the baton.
    pub fn reap(&self, p: u32, status: Option<i32>) -> bool {
        let s = self.0;
        let dead = &s.processes[p as usize];
        let holder = s.baton.load(Relaxed);
        let held = holder != BATON_FREE && {
            let h = self.slot(holder - 1);
            h.process.load(Relaxed) == p
                && !matches!(
                    h.state.load(Relaxed),
                    slot_state::FREE | slot_state::EXITING | slot_state::LEFT
                )
        };
        let told = dead.state.load(Relaxed) != process_state::LIVE;
        self.let_go(p);
        self.fall_due(p);
        self.forget(p, None, slot_state::FREE);
        if told {
            dead.kernel_pid.store(0, Relaxed);
            dead.state.store(process_state::FREE, Release);
            return held;
        }
        s.live_threads
            .fetch_sub(dead.live_threads.swap(0, Relaxed), Relaxed);
        dead.status
            .store(status.map_or(0, |w| w as u32 + 1), Relaxed);
        dead.state.store(process_state::LOST, Release);
        if held {
            s.losses.fetch_add(1, Release);
            // The kernel may have marked its robust futexes.
            self.look_again(|_, shared| shared);
        }
        s.lost.fetch_add(1, Release);
        held
    }

    /// What process `p` was using alone can be had again.
    fn let_go(&self, p: u32) {
        let q = &self.0.request;
        if self.is_of(q.taken.load(Relaxed), p) {
            q.kind.store(request::NONE, Relaxed);
            q.taken.store(0, Release);
        }
        let head = &self.0.starting;
        if self.is_of(head.load(Relaxed), p) {
            head.store(0, Release);
        }
    }

    /// Is this (a slot plus 1, or 0) a slot of process `p`?
    fn is_of(&self, slot: u32, p: u32) -> bool {
        slot != 0 && self.slot(slot - 1).process.load(Relaxed) == p
    }

    /// Builds all lists anew from the states of the slots: whoever changed them last did not finish. A new holder of the baton is to be woken.
    pub fn repair(&self) {
        let s = self.0;
        s.ready_head.store(0, Relaxed);
        s.ready_tail.store(0, Relaxed);
        s.ready_count.store(0, Relaxed);
        for b in 0..FUTEX_BUCKETS {
            s.futex_head[b].store(0, Relaxed);
            s.futex_tail[b].store(0, Relaxed);
        }
        for i in 0..self.used() {
            match self.slot(i).state.load(Relaxed) {
                slot_state::READY => self.push_ready(i),
                slot_state::FUTEX => self.futex_append(i),
                _ => {}
            }
        }
        self.repair_baton();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::owed::{OWED_LEN, OWED_OFFSET};
    use crate::session::SESSION_LEN;
    use std::alloc::{alloc_zeroed, handle_alloc_error, Layout};
    use std::vec::Vec;

    /// A session in which nobody is, with its slots, and with what is to be done for the dead.
    pub(crate) fn session() -> &'static Session {
        let bytes = OWED_OFFSET + OWED_LEN;
        assert!(bytes > SESSION_LEN + MAX_SLOTS * size_of::<Slot>());
        let layout = Layout::from_size_align(bytes, 4096).expect("a layout");
        // SAFETY: zero is a value of all that is in a session.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: as many bytes as a session has, and they stay.
        unsafe { &*at.cast::<Session>() }
    }

    fn order(l: &Lists) -> Vec<u32> {
        core::iter::from_fn(|| l.hand_on(l.next())).collect()
    }

    #[test]
    fn who_returns_is_before_those_who_compute() {
        let l = Lists(session());
        for i in [1, 2, 3] {
            l.push_ready(i);
        }
        l.push_returned(7);
        assert_eq!(order(&l), [7, 1, 2, 3]);
    }

    #[test]
    fn who_computes_has_every_second_turn() {
        let l = Lists(session());
        l.push_returned(7);
        for i in [1, 2] {
            l.push_ready(i);
        }
        for i in [8, 9] {
            l.push_returned(i);
        }
        assert_eq!(order(&l), [7, 1, 8, 2, 9]);
    }

    #[test]
    fn nobody_follows_itself() {
        let l = Lists(session());
        l.push_returned(1);
        assert_eq!(order(&l), [1]);
        // It came back from a call, and is cut now, while another waits that came back, too.
        l.push_returned(2);
        l.push_ready(1);
        assert_eq!(order(&l), [2, 1]);
    }

    #[test]
    fn an_end_of_the_queue_stays_the_end() {
        let l = Lists(session());
        l.push_returned(4);
        l.push_returned(5);
        l.push_ready(6);
        assert_eq!(order(&l), [4, 6, 5]);
        l.push_ready(2);
        l.push_returned(3);
        assert_eq!(order(&l), [3, 2]);
    }
}
