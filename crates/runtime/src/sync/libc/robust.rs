//! Mutexes that outlive their owner: when a thread ends with one, the next owner is told (`EOWNERDEAD`).
//!
//! The lock is the owner's thread id, with a bit when others wait and a bit when the owner has died (futex(2), "robust futexes"). The owner
//! links the mutex into the list that glibc has announced for it, through the links in the mutex, so that who cleans up after a thread finds
//! it: [`crate::gate::robust::announce_death`], or the kernel when the whole process is killed. Those that inherit priorities are linked as
//! plain ones, since for the kernel they are.
//!
//! **Order**: as in [`super::mutex`]. That the mutex can't be used any more is found by the thread that has just taken the lock for real: in a
//! replay it is found again. That its owner has died is logged before the operation. Of a process that ended, the kernel marked the lock, by a
//! thread id that a replay's kernel doesn't know: there the next owner waits until that thread is gone, and takes what it left. The links leave
//! no room in the mutex; its [`Runs`](crate::engine::order::Runs) are beside it.

use super::error::*;
use super::mutex::{deadline, failed, spins, Mutex, Patience, INHERITING, RECURSIVE};
use super::side::runs_of;
use super::{tid, Stop};
use crate::engine::order::Order;
use crate::engine::waits::{Deadline, Wait};
use crate::memory::futex::{OWNER_DIED, TID_MASK, WAITERS};
use crate::races::objects::Kind;
use crate::thread::{session, slot, Block};
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::session::slot_state;

/// As owner: the last owner has died, and nobody has said that all is well again.
const INCONSISTENT: u32 = 0x7fff_ffff;
/// As owner: it was given back like that.
const NOT_RECOVERABLE: u32 = 0x7fff_fffe;
/// Offset of the link to the previous one in a mutex; the next one's is 8 further, and links point to that.
const LINKS: u64 = 24;
/// Offset of the lock that is being taken in the list's head.
const PENDING: u64 = 16;

/// Is this thread the owner?
pub fn is_mine(m: &Mutex, me: u32) -> bool {
    m.lock.load(Relaxed) & TID_MASK == me
}

fn link_of(m: &Mutex) -> u64 {
    m as *const Mutex as u64 + LINKS + 8
}

fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: part of the thread's own list; a fault is the program's.
    unsafe { super::object(address) }
}

/// The list of the calling thread, if libc has announced one.
struct List {
    head: u64,
}

impl List {
    fn of(t: &Block) -> List {
        List {
            head: t.robust_list,
        }
    }

    /// Tells who cleans up that this mutex is being taken or given back.
    fn pending(&self, m: Option<&Mutex>) {
        if self.head != 0 {
            word(self.head + PENDING).store(m.map_or(0, link_of), SeqCst);
        }
    }

    fn enqueue(&self, m: &Mutex) {
        if self.head == 0 {
            return;
        }
        let (mine, head) = (link_of(m), word(self.head));
        let next = head.load(Relaxed);
        word((next & !1) - 8).store(mine, Relaxed);
        word(mine).store(next, Relaxed);
        word(mine - 8).store(self.head, Relaxed);
        head.store(mine, SeqCst);
    }

    fn dequeue(&self, m: &Mutex) {
        let mine = link_of(m);
        let (next, previous) = (word(mine).load(Relaxed), word(mine - 8).load(Relaxed));
        if next != 0 && previous != 0 {
            word((next & !1) - 8).store(previous, Relaxed);
            word(previous & !1).store(next, SeqCst);
        }
        word(mine).store(0, Relaxed);
        word(mine - 8).store(0, Relaxed);
    }
}

/// Takes the mutex, which the calling thread doesn't have or may have to wait for itself. `orphaned`: a replay knows that its owner died with it.
pub fn take<O: Order>(
    t: &mut Block,
    m: &Mutex,
    patience: Patience,
    uses: bool,
    orphaned: bool,
) -> Result<u32, Stop> {
    let runs = runs_of(m as *const Mutex as u64);
    if !O::turn(t, runs) {
        return Err(Stop::Signal);
    }
    let list = List::of(t);
    list.pending(Some(m));
    let taken = match orphaned {
        true => inherit::<O>(t, m),
        false => acquire::<O>(t, m, patience),
    };
    let died = match taken {
        Ok(died) => died,
        Err(stop) => {
            list.pending(None);
            return Err(stop);
        }
    };
    if died {
        O::failed(t, EOWNERDEAD);
    }
    O::passed(t, runs);
    O::learns(t, Kind::Lock, m as *const Mutex as u64);
    if died {
        O::learns(t, Kind::Channel, crate::races::ENDS);
        m.count.store(1, Relaxed);
        m.owner.store(INCONSISTENT, Relaxed);
    } else if m.owner.load(Relaxed) == NOT_RECOVERABLE {
        // Others that wait are to learn of it, too.
        m.count.store(0, Relaxed);
        release::<O>(t, m);
        list.pending(None);
        return Err(Stop::Error(ENOTRECOVERABLE));
    } else {
        m.count.store(1, Relaxed);
        m.owner.store(tid(t), Relaxed);
        if uses {
            m.users
                .store(m.users.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
    list.enqueue(m);
    list.pending(None);
    Ok(if died { EOWNERDEAD } else { 0 })
}

/// Gets the lock whose owner died with it, when it has done so in this replay as well.
fn inherit<O: Order>(t: &mut Block, m: &Mutex) -> Result<bool, Stop> {
    let me = tid(t);
    loop {
        let old = m.lock.load(SeqCst);
        let left = old & TID_MASK == 0 || old & OWNER_DIED != 0 || is_gone(old & TID_MASK);
        if left
            && m.lock
                .compare_exchange(old, me | old & WAITERS, Acquire, Relaxed)
                .is_ok()
        {
            return Ok(true);
        }
        // It ends when the driver ends its process, of which nobody here is told.
        match O::wait(t, &m.lock, old, Some(&Deadline::soon(O::now())), true) {
            Wait::Signal => return Err(Stop::Signal),
            Wait::Woken | Wait::Changed | Wait::TimedOut => {}
        }
    }
}

/// Has no thread of the session this id?
fn is_gone(thread: u32) -> bool {
    let used = session().slots_used.load(SeqCst);
    !(0..used).any(|i| {
        let s = slot(i);
        s.visible_tid.load(SeqCst) == thread
            && !matches!(
                s.state.load(SeqCst),
                slot_state::FREE | slot_state::EXITING | slot_state::LEFT
            )
    })
}

/// Gets the lock; whether its last owner has died.
fn acquire<O: Order>(t: &mut Block, m: &Mutex, patience: Patience) -> Result<bool, Stop> {
    let me = tid(t);
    let inheriting = m.kind.load(Relaxed) & INHERITING != 0;
    let mut until = None;
    let mut looks = 0;
    // Whoever has slept can't know whether others sleep still.
    let mut others = 0;
    loop {
        let old = m.lock.load(Relaxed);
        if old == 0 || old & OWNER_DIED != 0 {
            let new = me | others | old & WAITERS;
            if m.lock.compare_exchange(old, new, Acquire, Relaxed).is_ok() {
                return Ok(old != 0);
            }
            continue;
        }
        if until.is_none() {
            until = Some(deadline::<O>(t, patience, inheriting)?);
        }
        if looks < spins() {
            looks += 1;
            O::pause(t);
            continue;
        }
        let waited_for = old | WAITERS;
        if old != waited_for
            && m.lock
                .compare_exchange(old, waited_for, Relaxed, Relaxed)
                .is_err()
        {
            continue;
        }
        let until = until.as_ref().and_then(|d| d.as_ref());
        match O::wait(t, &m.lock, waited_for, until, true) {
            Wait::TimedOut => return Err(failed::<O>(t, ETIMEDOUT)),
            Wait::Signal => return Err(Stop::Signal),
            Wait::Woken | Wait::Changed => {}
        }
        others = WAITERS;
    }
}

/// Lets the lock go.
fn release<O: Order>(t: &mut Block, m: &Mutex) {
    let address = m.lock.as_ptr();
    if m.lock.swap(0, Release) & WAITERS != 0 {
        O::wake(t, address, 1, true);
    }
}

/// Gives the mutex back; an error number.
pub fn give<O: Order>(t: &mut Block, m: &Mutex, uses: bool) -> u32 {
    if !is_mine(m, tid(t)) {
        return EPERM;
    }
    let inconsistent = m.owner.load(Relaxed) == INCONSISTENT;
    if m.kind.load(Relaxed) & RECURSIVE != 0 {
        let n = m.count.load(Relaxed).wrapping_sub(1);
        m.count.store(n, Relaxed);
        if n != 0 {
            return 0;
        }
    }
    let list = List::of(t);
    O::lets_know(t, Kind::Lock, m as *const Mutex as u64);
    list.pending(Some(m));
    list.dequeue(m);
    m.owner
        .store(if inconsistent { NOT_RECOVERABLE } else { 0 }, Relaxed);
    if uses {
        m.users
            .store(m.users.load(Relaxed).wrapping_sub(1), Relaxed);
    }
    release::<O>(t, m);
    list.pending(None);
    0
}
