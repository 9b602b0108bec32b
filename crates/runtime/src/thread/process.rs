//! What the runtime keeps for each process: its number in the session, its handlers.
//!
//! Memory and process are two things: after vfork(2) two processes run in one memory, with the same runtime data. So what
//! belongs to a process hangs off its threads' blocks, and what belongs to the memory (its map, its patches) is static.

use crate::machine::sys;
use crate::thread::signals::{Kept, SIGNALS};
use crate::thread::{current, session, Block};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use reprise_abi::session::{process_state, Process, MAX_PROCESSES};

/// The most processes that share one memory at a time.
const MAX_SHARING: usize = 64;

/// Everything the runtime knows of one process that runs in this memory.
pub struct Own {
    used: AtomicBool,
    /// Its parent, whose memory this is, sleeps until it execs or ends (vfork(2)).
    parent_waits: AtomicBool,
    /// The program's handlers.
    pub actions: [Kept; SIGNALS + 1],
}

impl Own {
    const fn nobody() -> Own {
        Own {
            used: AtomicBool::new(false),
            parent_waits: AtomicBool::new(false),
            actions: [const { Kept::new() }; SIGNALS + 1],
        }
    }
}

/// An entry is changed only by threads of its process.
static POOL: [Own; MAX_SHARING] = [const { Own::nobody() }; MAX_SHARING];
/// One more than the highest entry of the pool that was ever used: the rest is left alone, each page of it that is touched costs a fault.
static POOL_USED: AtomicUsize = AtomicUsize::new(1);
/// Which memory this is, in futexes' keys.
static SPACE: AtomicU64 = AtomicU64::new(0);
/// Processes that may touch this memory, or more: one that shares it for good is counted even when it has left.
static SHARERS: AtomicU32 = AtomicU32::new(1);
/// A process was made in this memory whose parent did not wait for it.
static SHARED_FOR_GOOD: AtomicBool = AtomicBool::new(false);

/// The calling thread's process.
pub fn own() -> &'static Own {
    // SAFETY: every block points into the pool.
    unsafe { &*(current().process() as *const Own) }
}

/// Number of the calling thread's process.
#[inline]
pub fn number() -> u32 {
    current().number()
}

/// The calling thread's process in the session's table.
pub fn entry() -> &'static Process {
    entry_of(number())
}

/// Process `n` of the session's table.
pub fn entry_of(n: u32) -> &'static Process {
    &session().processes[(n as usize).min(MAX_PROCESSES - 1)]
}

/// The kernel's id of this process.
pub fn kernel_pid() -> u32 {
    entry().kernel_pid.load(Relaxed)
}

/// The id of this process that the program sees.
pub fn visible_pid() -> u32 {
    entry().visible_pid.load(Relaxed)
}

/// Is this process still among the living, as far as the session knows?
pub fn is_live() -> bool {
    entry().state.load(Acquire) == process_state::LIVE
}

/// Have there ever been several processes in the session?
pub fn has_others() -> bool {
    session().processes_used.load(Relaxed) > 1
}

/// This memory's number, in keys of futexes.
pub fn space() -> u64 {
    SPACE.load(Relaxed)
}

/// A new number for a memory.
pub fn new_space() -> u64 {
    session().spaces.fetch_add(1, Relaxed) + 1
}

/// An entry of the session's table that no process has, now taken; `maker`: the process that makes one for it, as the agent knows it.
pub fn reserve(maker: u32) -> Option<u32> {
    for _ in 0..WAITS {
        let found = session().processes.iter().position(|p| {
            p.state
                .compare_exchange(process_state::FREE, process_state::TAKEN, AcqRel, Relaxed)
                .is_ok()
        });
        if let Some(n) = found {
            session().processes_used.fetch_max(n as u32 + 1, AcqRel);
            let p = entry_of(n as u32);
            p.kernel_pid.store(0, Relaxed);
            p.visible_pid.store(0, Relaxed);
            p.status.store(0, Relaxed);
            p.birth.store(0, Relaxed);
            p.announced.store(0, Relaxed);
            p.came_back.store(0, Relaxed);
            p.maker.store(maker, Relaxed);
            p.inside.store(0, Relaxed);
            p.told.store(0, Relaxed);
            p.told_inside.store(0, Relaxed);
            p.live_threads.store(1, Relaxed);
            // Only now: the agent takes a process whose maker is dead, as the entry's last one may be, for one that nobody makes any more.
            p.state.store(process_state::LIVE, Release);
            return Some(n as u32);
        }
        // Those that have ended are swept up by the agent in a moment.
        let t = sys::Timespec {
            sec: 0,
            nsec: 1_000_000,
        };
        sys::nanosleep(&t as *const sys::Timespec as u64, 0);
    }
    None
}

/// The calling process takes its first step, which the ring has at this position: it is the next one in the session's order.
pub fn is_born(position: u64) {
    session().born_at.store(position + 1, Relaxed);
    let n = session().births.fetch_add(1, Relaxed) + 1;
    entry().birth.store(n, Relaxed);
}

/// How often [`reserve`] looks for an entry, a millisecond apart.
const WAITS: usize = 200;

/// The first process of this memory: number `n`.
pub fn start(t: &mut Block, n: u32) {
    let first = &POOL[0];
    first.used.store(true, Relaxed);
    t.number = n;
    t.process = first as *const Own as u64;
    SPACE.store(new_space(), Relaxed);
}

/// Is the calling thread the only one that can touch this memory, apart from what is mapped shared? It stays so until it makes
/// another one itself.
#[inline]
pub fn has_memory_to_itself() -> bool {
    only_one_in_memory() && entry().live_threads.load(Relaxed) == 1
}

/// Is this the only process in this memory?
#[inline]
pub fn only_one_in_memory() -> bool {
    SHARERS.load(Relaxed) == 1
}

/// Can another process see what this one does to its memory last? One that it was made by, or has made, in this memory.
pub fn may_be_seen_by_others() -> bool {
    SHARED_FOR_GOOD.load(Relaxed) || was_made_sharing()
}

/// A process that shares this memory with the caller's, which sleeps meanwhile if it `waits`: its own copy of what belongs to a
/// process. 0 when there are too many.
pub fn share(waits: bool) -> u64 {
    let mine = own();
    let free = |(_, o): &(usize, &Own)| !o.used.swap(true, AcqRel);
    let Some((i, new)) = POOL.iter().enumerate().find(free) else {
        return 0;
    };
    POOL_USED.fetch_max(i + 1, Relaxed);
    for (to, from) in new.actions.iter().zip(&mine.actions) {
        to.set(from.get());
    }
    new.parent_waits.store(waits, Relaxed);
    if !waits {
        SHARED_FOR_GOOD.store(true, Relaxed);
    }
    SHARERS.fetch_add(1, Relaxed);
    new as *const Own as u64
}

/// Was this process made in another one's memory? (A copy of its memory by fork(2) says the same.) A replay gives the same answer at the same
/// place, other than the count of those that share it.
pub fn was_made_sharing() -> bool {
    !core::ptr::eq(own(), &POOL[0])
}

/// Does the process that made this one run on in the memory that both have, until this one is told so ([`crate::thread::schedule::go`])?
pub fn maker_runs_on() -> bool {
    was_made_sharing() && !only_one_in_memory() && !own().parent_waits.load(Relaxed)
}

/// A process that shared this memory could not be made.
pub fn unshare(process: u64) {
    // SAFETY: an entry of the pool.
    unsafe { (*(process as *const Own)).used.store(false, Release) };
    SHARERS.fetch_sub(1, Relaxed);
}

/// The calling process is about to leave this memory for good, or stays in it after all.
pub fn leaves_memory(leaves: bool) {
    let mine = own();
    let stayed = mine.used.swap(!leaves, AcqRel);
    // Who leaves by an exec may come back from it, when it fails; its parent must not be running then.
    match (mine.parent_waits.load(Relaxed), stayed, leaves) {
        (true, true, true) => SHARERS.fetch_sub(1, Relaxed),
        (true, false, false) => SHARERS.fetch_add(1, Relaxed),
        _ => 0,
    };
}

/// First thing in the copy of a memory that fork(2) made: whoever else was in it isn't here.
pub fn after_fork(t: &mut Block, n: u32) {
    let used = POOL_USED.load(Relaxed).min(MAX_SHARING);
    for o in &POOL[..used] {
        let at = o as *const Own as u64;
        // Only what changes is written: each page that is costs a copy of it.
        if o.used.load(Relaxed) != (at == t.process) {
            o.used.store(at == t.process, Relaxed);
        }
    }
    own().parent_waits.store(false, Relaxed);
    SHARERS.store(1, Relaxed);
    if SHARED_FOR_GOOD.load(Relaxed) {
        SHARED_FOR_GOOD.store(false, Relaxed);
    }
    t.number = n;
    SPACE.store(new_space(), Relaxed);
}
