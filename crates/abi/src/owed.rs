//! What the dead owe the living: robust futexes in shared memory, of threads that are without the baton (`serial`).
//!
//! The kernel marks the robust futexes of a thread that dies (set_robust_list(2)), at a moment that nothing orders. So it is told of them only
//! while their owner holds the baton, when nobody else can look. Who gives the baton away enters them here before; should its process end
//! meanwhile, they are *due*, and whoever holds the baton next and has that memory marks them.
//!
//! So it is with the word of a process that shares another one's memory, and that the kernel clears at its end (CLONE_CHILD_CLEARTID): it is
//! here from the process's making on.
//!
//! Entries are changed under the scheduler's lock. Zero bytes are an empty table.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
use crate::schedule::FutexKey;
use crate::session::{Session, SESSION_LEN, WINDOW_LEN, WINDOW_OFFSET};

/// Most futexes in the table.
pub const MAX_OWED: usize = 1024;

/// [`Owed::owner`]: it is to be marked.
const DUE: u32 = u32::MAX;
/// In an [`Owed::owner`]: the word is to be cleared when the process of that slot ends.
const TO_CLEAR: u32 = 0x4000_0000;
/// [`Owed::tid`] of a word that is to be cleared.
const ANY: u32 = u32::MAX;

/// A robust futex in shared memory.
#[repr(C)]
pub struct Owed {
    /// Slot plus 1 of its owner, maybe with [`TO_CLEAR`]; 0: the entry is free; [`DUE`].
    owner: AtomicU32,
    /// The thread id that is in the futex while it is that owner's.
    tid: AtomicU32,
    space: AtomicU64,
    address: AtomicU64,
}

impl Owed {
    /// Is it to be marked?
    pub fn is_due(&self) -> bool {
        self.owner.load(Relaxed) == DUE
    }

    /// The thread id that is in the futex if it was not given back.
    pub fn tid(&self) -> u32 {
        self.tid.load(Relaxed)
    }

    /// Is the word to be cleared, whatever is in it?
    pub fn clears(&self) -> bool {
        self.tid() == ANY
    }

    /// Which futex it is.
    pub fn key(&self) -> FutexKey {
        FutexKey {
            space: self.space.load(Relaxed),
            address: self.address.load(Relaxed),
        }
    }
}

/// The table.
#[repr(C, align(4096))]
pub struct OwedTable {
    /// Entries that are not free.
    used: AtomicU32,
    /// How often entries became due.
    deaths: AtomicU32,
    /// One more than the highest entry that was ever used.
    top: AtomicU32,
    entries: [Owed; MAX_OWED],
}

/// Bytes of the table.
pub const OWED_LEN: usize = core::mem::size_of::<OwedTable>();
/// Offset of the table in the session's memory.
pub const OWED_OFFSET: usize = (WINDOW_OFFSET + WINDOW_LEN).next_multiple_of(4096);

const _: () = assert!(core::mem::size_of::<Owed>() == 24);
const _: () = assert!(OWED_OFFSET > SESSION_LEN);

impl OwedTable {
    /// The table of a session.
    pub fn of(session: &Session) -> &OwedTable {
        let at = session as *const Session as usize + OWED_OFFSET;
        // SAFETY: a session's memory holds its table there; it is only atomics.
        unsafe { &*(at as *const OwedTable) }
    }

    /// How often entries became due.
    pub fn deaths(&self) -> u32 {
        self.deaths.load(Acquire)
    }

    /// Are there no entries at all?
    pub fn is_empty(&self) -> bool {
        self.used.load(Relaxed) == 0
    }

    fn entries(&self) -> &[Owed] {
        &self.entries[..MAX_OWED.min(self.top.load(Relaxed) as usize)]
    }

    /// Enters a futex of the thread of slot `slot`, once; false when the table is full.
    pub fn enter(&self, slot: u32, tid: u32, key: FutexKey) -> bool {
        self.put(slot + 1, tid, key)
    }

    /// Enters the word that is to be cleared at the end of the process of slot `slot`; false when the table is full.
    pub fn enter_word(&self, slot: u32, key: FutexKey) -> bool {
        self.put((slot + 1) | TO_CLEAR, ANY, key)
    }

    /// That word is somebody else's business: the thread has ended by itself, or there never was one.
    pub fn leave_word(&self, slot: u32) {
        let mine = |e: &&Owed| e.owner.load(Relaxed) == (slot + 1) | TO_CLEAR;
        for e in self.entries().iter().filter(mine) {
            self.free(e);
        }
    }

    fn put(&self, owner: u32, tid: u32, key: FutexKey) -> bool {
        let is_it = |e: &Owed| e.owner.load(Relaxed) == owner && e.key() == key;
        if self.entries().iter().any(is_it) {
            return true;
        }
        let is_free = |e: &Owed| e.owner.load(Relaxed) == 0;
        let Some(i) = self.entries.iter().position(is_free) else {
            return false;
        };
        self.top.fetch_max(i as u32 + 1, Relaxed);
        let e = &self.entries[i];
        e.tid.store(tid, Relaxed);
        e.space.store(key.space, Relaxed);
        e.address.store(key.address, Relaxed);
        self.used.fetch_add(1, Relaxed);
        e.owner.store(owner, Release);
        true
    }

    /// The thread of slot `slot` has the baton again: the table needn't know of its futexes.
    pub fn leave(&self, slot: u32) {
        let mine = |e: &&Owed| e.owner.load(Relaxed) == slot + 1;
        for e in self.entries().iter().filter(mine) {
            self.free(e);
        }
    }

    /// The entries of all slots that are `dead` are due; how many those are.
    pub fn fall_due(&self, dead: impl Fn(u32) -> bool) -> usize {
        let mut n = 0;
        if self.is_empty() {
            return n;
        }
        for e in self.entries() {
            let owner = e.owner.load(Relaxed);
            if owner != 0 && owner != DUE && dead((owner & !TO_CLEAR) - 1) {
                e.owner.store(DUE, Relaxed);
                n += 1;
            }
        }
        if n != 0 {
            self.deaths.fetch_add(1, Release);
        }
        n
    }

    /// All that is due.
    pub fn due(&self) -> impl Iterator<Item = &Owed> {
        self.entries().iter().filter(|e| e.is_due())
    }

    /// An entry is free: its futex was marked, or given back.
    pub fn free(&self, entry: &Owed) {
        entry.owner.store(0, Relaxed);
        self.used.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty table, as a session's memory begins with.
    fn table() -> OwedTable {
        // SAFETY: only atomics, for which zero is a value.
        unsafe { core::mem::zeroed() }
    }

    fn key(address: u64) -> FutexKey {
        FutexKey { space: 3, address }
    }

    #[test]
    fn what_the_dead_held_is_due_and_nothing_else() {
        let t = table();
        assert!(t.enter(0, 100, key(8)) && t.enter(1, 101, key(16)) && t.enter(0, 100, key(24)));
        assert!(t.enter(0, 100, key(8)), "a second time");
        assert_eq!(t.fall_due(|slot| slot == 2), 0);
        assert_eq!(t.deaths(), 0);
        assert_eq!(t.fall_due(|slot| slot == 0), 2);
        assert_eq!(t.deaths(), 1);
        // The slot is another thread's now.
        t.leave(0);
        t.leave(1);
        let due: std::vec::Vec<_> = t.due().map(|e| (e.tid(), e.key().address)).collect();
        assert_eq!(due, [(100, 8), (100, 24)]);
        t.due().for_each(|e| t.free(e));
        assert!(t.is_empty() && t.due().next().is_none());
    }

    #[test]
    fn a_full_table_says_so() {
        let t = table();
        for i in 0..MAX_OWED as u64 {
            assert!(t.enter(7, 1, key(4 * i)));
        }
        assert!(!t.enter(8, 1, key(0)));
        t.leave(7);
        assert!(t.is_empty() && t.enter(8, 1, key(0)));
    }
}
