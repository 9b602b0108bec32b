//! What threads synchronise by, and what whoever comes next learns from it.
//!
//! A **lock** (or a semaphore, a barrier, the end of a thread, a pipe) has one clock: who lets it go leaves there what it knows, who takes it
//! learns that. An **atomic word** has a clock for each value that it had lately: a load learns what came with the value that it saw, not
//! what came with a later one. In a replay the word may have a later value already when a load is made that saw an earlier one.

use super::clock::Clock;
use super::pool::Pool;
use super::shadow::GRAIN;
use crate::memory::scratch::shadow_arena;
use crate::thread::panic;

/// Lists by the hash of the key.
const HEADS: usize = 1 << 16;
/// The kind is told above the address.
const KIND_SHIFT: u32 = 56;
/// Values of an atomic word that are remembered.
const VALUES: usize = 8;

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A mutex, a spin lock, the writers of a lock for readers and writers, a semaphore.
    Lock = 1,
    /// The readers of such a lock.
    Readers,
    /// Even rounds of a barrier.
    EvenRounds,
    /// Odd ones.
    OddRounds,
    /// The end of the thread with this thread pointer.
    Thread,
    /// Words that code orders which `reprise cc` didn't build, by the number of their shard.
    Shard,
    /// A pipe or the like, by a number.
    Channel,
    /// An atomic word.
    Atomic,
}

/// Those that lie at an address of the program, which it may use for something else later.
const AT_ADDRESSES: [Kind; 5] = [
    Kind::Lock,
    Kind::Readers,
    Kind::EvenRounds,
    Kind::OddRounds,
    Kind::Atomic,
];

#[repr(C)]
struct Node {
    key: u64,
    next: u64,
    clock: Clock,
    /// Address of [`Values`] of an atomic word.
    values: u64,
}

/// A value that an atomic word had.
#[repr(C)]
#[derive(Default)]
struct Value {
    value: u64,
    /// What whoever sees it learns.
    clock: Clock,
    /// The thread with whose release the sequence of changes began that this one belongs to, plus 1.
    head: u32,
    size: u32,
}

#[repr(C)]
#[derive(Default)]
struct Values {
    /// The newest is first.
    all: [Value; VALUES],
    len: u32,
    /// Older ones were forgotten.
    more: u32,
}

/// All objects. All zero is none.
#[derive(Default)]
pub struct Objects {
    heads: u64,
}

/// How an atomic word was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Whatever was there before doesn't matter.
    Store,
    /// The new value comes from the old one: what came with that comes with this one, too (C11 5.1.2.4, "release sequence").
    Update,
}

impl Objects {
    fn head(&mut self, key: u64) -> *mut u64 {
        if self.heads == 0 {
            let Some(at) = shadow_arena(8 * HEADS as u64) else {
                panic::give_up("races: no memory for the table of objects");
            };
            self.heads = at;
        }
        let i = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % HEADS;
        (self.heads as *mut u64).wrapping_add(i)
    }

    fn key(kind: Kind, name: u64) -> u64 {
        name ^ (kind as u64) << KIND_SHIFT
    }

    /// Where the list is left that leads to this object, or its end.
    fn find(&mut self, key: u64) -> *mut u64 {
        let mut word = self.head(key);
        // SAFETY: nodes of the pool.
        unsafe {
            while *word != 0 && (*(*word as *const Node)).key != key {
                word = &mut (*(*word as *mut Node)).next;
            }
        }
        word
    }

    fn node(&mut self, pool: &mut Pool, kind: Kind, name: u64) -> &mut Node {
        let key = Self::key(kind, name);
        let word = self.find(key);
        // SAFETY: nodes of the pool.
        unsafe {
            if *word == 0 {
                *word = pool.take(core::mem::size_of::<Node>());
                (*(*word as *mut Node)).key = key;
            }
            &mut *(*word as *mut Node)
        }
    }

    /// Its clock.
    pub fn clock(&mut self, pool: &mut Pool, kind: Kind, name: u64) -> &mut Clock {
        &mut self.node(pool, kind, name).clock
    }

    fn values(&mut self, pool: &mut Pool, name: u64) -> &mut Values {
        let node = self.node(pool, Kind::Atomic, name);
        if node.values == 0 {
            node.values = pool.take(core::mem::size_of::<Values>());
        }
        // SAFETY: a block of the pool.
        unsafe { &mut *(node.values as *mut Values) }
    }

    /// What came with a value that was seen at an atomic word; `None`: nothing.
    pub fn came_with(
        &mut self,
        pool: &mut Pool,
        address: u64,
        size: usize,
        value: u64,
    ) -> Option<&Clock> {
        let values = self.values(pool, address);
        let list = &values.all[..values.len as usize];
        let odd = list.iter().any(|v| v.size != size as u32);
        let seen = list
            .iter()
            .find(|v| v.value == value && v.size == size as u32);
        // One that is unknown was there before all others, unless some were forgotten, or the word is used in several sizes.
        let fallback = if odd {
            list.first()
        } else {
            list.last().filter(|_| values.more != 0)
        };
        seen.or(fallback).map(|v| &v.clock)
    }

    /// What came with the newest value.
    pub fn came_last(&mut self, pool: &mut Pool, address: u64) -> Option<&Clock> {
        let values = self.values(pool, address);
        values.all[..values.len as usize].first().map(|v| &v.clock)
    }

    /// An atomic word has a new value, which `thread` put there. `lets_know`: what comes with it.
    pub fn changed(
        &mut self,
        pool: &mut Pool,
        at: (u64, usize),
        value: u64,
        thread: u16,
        change: Change,
        lets_know: Option<&Clock>,
    ) {
        let values = self.values(pool, at.0);
        let me = thread as u32 + 1;
        let n = values.len as usize;
        let mut new = Value {
            value,
            size: at.1 as u32,
            ..Value::default()
        };
        if let Some(old) = values.all[..n].first() {
            // A thread's own later stores went on with its release before C++20.
            if change == Change::Update || lets_know.is_none() && old.head == me {
                new.clock.become_copy(pool, &old.clock);
                new.head = old.head;
            }
        }
        if let Some(clock) = lets_know {
            new.clock.join(pool, clock);
            new.head = me;
        }
        if n == VALUES {
            values.all[n - 1].clock.forget(pool);
            values.more = 1;
        } else {
            values.len += 1;
        }
        let last = values.len as usize;
        values.all[..last].rotate_right(1);
        values.all[0] = new;
    }

    /// What lies in the 8 bytes at this address is something else from now on.
    pub fn forget(&mut self, pool: &mut Pool, address: u64) {
        for name in address..address + GRAIN {
            for kind in AT_ADDRESSES {
                let word = self.find(Self::key(kind, name));
                // SAFETY: nodes of the pool.
                unsafe {
                    if *word == 0 {
                        continue;
                    }
                    let at = *word;
                    let node = &mut *(at as *mut Node);
                    *word = node.next;
                    node.clock.forget(pool);
                    if node.values != 0 {
                        for v in &mut (*(node.values as *mut Values)).all {
                            v.clock.forget(pool);
                        }
                        pool.give(node.values, core::mem::size_of::<Values>());
                    }
                    pool.give(at, core::mem::size_of::<Node>());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knows(pool: &mut Pool, thread: u16, time: u32) -> Clock {
        let mut c = Clock::default();
        c.set(pool, thread, time);
        c
    }

    #[test]
    fn a_load_learns_what_came_with_its_value() {
        let (mut pool, mut o) = (Pool::default(), Objects::default());
        let at = (0x1000, 4);
        for n in 1..=3 {
            let c = knows(&mut pool, 1, n);
            o.changed(&mut pool, at, n as u64, 1, Change::Store, Some(&c));
        }
        let mut seen = |value| o.came_with(&mut pool, 0x1000, 4, value).map(|c| c.of(1));
        assert_eq!([seen(1), seen(2), seen(3)], [Some(1), Some(2), Some(3)]);
        // It was there before all that.
        assert_eq!(seen(0), None);
        assert_eq!(o.came_last(&mut pool, 0x1000).map(|c| c.of(1)), Some(3));
        // What was forgotten is taken for the oldest that is known.
        for n in 4..=20 {
            let c = knows(&mut pool, 1, n);
            o.changed(&mut pool, at, n as u64, 1, Change::Store, Some(&c));
        }
        let oldest = o.came_with(&mut pool, 0x1000, 4, 2).map(|c| c.of(1));
        assert_eq!(oldest, Some(13));
    }

    #[test]
    fn release_sequences_go_on_through_updates() {
        let (mut pool, mut o) = (Pool::default(), Objects::default());
        let at = (0x2000, 8);
        let c = knows(&mut pool, 1, 5);
        o.changed(&mut pool, at, 1, 1, Change::Store, Some(&c));
        o.changed(&mut pool, at, 2, 2, Change::Update, None);
        assert_eq!(o.came_with(&mut pool, at.0, 8, 2).map(|c| c.of(1)), Some(5));
        // A relaxed store of another thread ends the sequence.
        o.changed(&mut pool, at, 3, 2, Change::Store, None);
        assert_eq!(o.came_with(&mut pool, at.0, 8, 3).map(|c| c.of(1)), Some(0));
    }

    #[test]
    fn memory_that_is_used_anew_has_new_objects() {
        let (mut pool, mut o) = (Pool::default(), Objects::default());
        o.clock(&mut pool, Kind::Lock, 0x3004)
            .set(&mut Pool::default(), 1, 1);
        o.clock(&mut pool, Kind::Channel, 0x3004)
            .set(&mut Pool::default(), 1, 1);
        o.forget(&mut pool, 0x3000);
        assert!(o.clock(&mut pool, Kind::Lock, 0x3004).is_empty());
        assert!(!o.clock(&mut pool, Kind::Channel, 0x3004).is_empty());
    }
}
