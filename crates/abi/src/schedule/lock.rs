//! The lock of the scheduler's lists: a word that says who has it ([`owner`](super::owner)), and whether somebody sleeps on it ([`WAITERS`]).
//!
//! Its holder may be killed. Then the agent frees the word for the next one ([`Lists::free_lock`]), which builds the lists anew before it
//! uses them. Whoever sleeps looks again after a while: the one that was woken may have been killed, too, before it had the lock.

use super::{Lists, OWNER_DIED, WAITERS};
use crate::atomic::{AtomicU32, Ordering::*};
use core::ops::Deref;

/// How those sleep who wait for a word of the session, and how they are woken: by the kernel's futexes, inside of the program and outside.
pub trait Kernel: Copy {
    /// Sleeps while the word has this value, for a moment at most; returns for no reason, too.
    fn sleep(self, word: &AtomicU32, value: u32);
    /// Wakes one that sleeps on the word.
    fn wake(self, word: &AtomicU32);
}

/// What somebody finds who wants the lock.
enum Found {
    /// It has it now.
    Free,
    /// It has it now, and whoever had it before was killed with it.
    Left,
    /// Somebody has it, and knows that others wait: the word's value.
    Taken(u32),
    /// The word has just changed.
    Changed,
}

/// The lock is held, until this is dropped.
pub struct Locked<'a, K: Kernel> {
    lists: Lists<'a>,
    kernel: K,
}

impl<'a> Lists<'a> {
    /// Takes the lock. `me`: what [`owner`](super::owner) says of the calling thread.
    #[inline]
    pub fn lock<K: Kernel>(self, me: u32, kernel: K) -> Locked<'a, K> {
        let l = &self.0.schedule_lock;
        if l.compare_exchange(0, me, Acquire, Relaxed).is_err() {
            self.wait_for_lock(me, kernel, u32::MAX);
        }
        Locked {
            lists: self,
            kernel,
        }
    }

    /// As [`lock`](Self::lock), for somebody who looks so often at most, and takes a look as if others slept on it.
    pub fn lock_within<K: Kernel>(self, me: u32, kernel: K, looks: u32) -> Option<Locked<'a, K>> {
        // Not before it is had: what is dropped is given back.
        self.wait_for_lock(me, kernel, looks).then(|| Locked {
            lists: self,
            kernel,
        })
    }

    /// Was whoever had the lock killed with it, and has nobody taken it since? Somebody should: all others may wait for what was to be
    /// done under it.
    pub fn lock_is_left(self) -> bool {
        self.0.schedule_lock.load(Relaxed) & OWNER_DIED != 0
    }

    #[cold]
    fn wait_for_lock<K: Kernel>(self, me: u32, kernel: K, looks: u32) -> bool {
        let mut left = looks;
        while left != 0 {
            match self.look_at_lock(me) {
                Found::Free => return true,
                Found::Left => {
                    self.repair();
                    self.wake_holder(kernel);
                    return true;
                }
                Found::Taken(value) => kernel.sleep(&self.0.schedule_lock, value),
                Found::Changed => {}
            }
            if looks != u32::MAX {
                left -= 1;
            }
        }
        // It may have been woken to take what it has no time for any more.
        kernel.wake(&self.0.schedule_lock);
        false
    }

    fn look_at_lock(self, me: u32) -> Found {
        let l = &self.0.schedule_lock;
        let v = l.load(Relaxed);
        let change = |to| l.compare_exchange(v, to, Acquire, Relaxed).is_ok();
        if v == 0 || v & OWNER_DIED != 0 {
            // Who has slept must assume that others still do.
            return match (change(me | WAITERS), v & OWNER_DIED != 0) {
                (false, _) => Found::Changed,
                (true, false) => Found::Free,
                (true, true) => Found::Left,
            };
        }
        match v & WAITERS != 0 || change(v | WAITERS) {
            true => Found::Taken(v | WAITERS),
            false => Found::Changed,
        }
    }
}

impl<'a, K: Kernel> Locked<'a, K> {
    /// How others are woken.
    pub(super) fn kernel(&self) -> K {
        self.kernel
    }
}

impl<'a, K: Kernel> Deref for Locked<'a, K> {
    type Target = Lists<'a>;

    fn deref(&self) -> &Lists<'a> {
        &self.lists
    }
}

impl<K: Kernel> Drop for Locked<'_, K> {
    #[inline]
    fn drop(&mut self) {
        let l = &self.lists.0.schedule_lock;
        if l.swap(0, Release) & WAITERS != 0 {
            self.kernel.wake(l);
        }
    }
}
