//! Vector clocks: how much of every thread somebody knows (FastTrack; Lamport's happens-before).
//!
//! A thread's own entry goes on whenever it lets others know something. What it did at time `c` happened before another thread if that one
//! knows the thread up to `c` or later.

use super::pool::Pool;

/// A clock. All zero is that of somebody who knows of nobody. It must be [forgotten](Clock::forget) before it is dropped.
#[derive(Default)]
#[repr(C)]
pub struct Clock {
    at: u64,
    len: u32,
    room: u32,
}

impl Clock {
    fn words(&self) -> &[u32] {
        if self.at == 0 {
            return &[];
        }
        // SAFETY: a block of the pool, as long as `room` says.
        unsafe { core::slice::from_raw_parts(self.at as *const u32, self.len as usize) }
    }

    fn grow(&mut self, pool: &mut Pool, len: usize) -> &mut [u32] {
        if len > self.room as usize {
            let room = len.next_power_of_two().max(16);
            let at = pool.take(4 * room);
            // SAFETY: both are blocks of the pool, the new one is longer.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    self.at as *const u32,
                    at as *mut u32,
                    self.len as usize,
                );
            }
            if self.at != 0 {
                pool.give(self.at, 4 * self.room as usize);
            }
            (self.at, self.room) = (at, room as u32);
        }
        if len > self.len as usize {
            // SAFETY: inside the block; what lies there may be an older clock's.
            unsafe {
                let from = (self.at as *mut u32).add(self.len as usize);
                core::ptr::write_bytes(from, 0, len - self.len as usize);
            }
            self.len = len as u32;
        }
        // SAFETY: inside the block.
        unsafe { core::slice::from_raw_parts_mut(self.at as *mut u32, self.len as usize) }
    }

    /// Up to when this thread is known.
    #[inline]
    pub fn of(&self, thread: u16) -> u32 {
        self.words().get(thread as usize).copied().unwrap_or(0)
    }

    /// That thread is known up to `time`.
    pub fn set(&mut self, pool: &mut Pool, thread: u16, time: u32) {
        let len = (thread as usize + 1).max(self.len as usize);
        self.grow(pool, len)[thread as usize] = time;
    }

    /// All is known that the other one knows, too.
    pub fn join(&mut self, pool: &mut Pool, other: &Clock) {
        if other.len == 0 {
            return;
        }
        let len = other.len.max(self.len) as usize;
        for (mine, theirs) in self.grow(pool, len).iter_mut().zip(other.words()) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// What the other one knows is all that is known.
    pub fn become_copy(&mut self, pool: &mut Pool, other: &Clock) {
        self.len = 0;
        self.join(pool, other);
    }

    /// Nobody is known any more; memory is given back.
    pub fn forget(&mut self, pool: &mut Pool) {
        if self.at != 0 {
            pool.give(self.at, 4 * self.room as usize);
        }
        *self = Clock::default();
    }

    /// Is nobody known?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_know_what_they_were_told() {
        let (mut pool, mut a, mut b) = (Pool::default(), Clock::default(), Clock::default());
        a.set(&mut pool, 3, 7);
        b.set(&mut pool, 40, 2);
        b.set(&mut pool, 3, 5);
        a.join(&mut pool, &b);
        assert_eq!([a.of(3), a.of(40), a.of(41), a.of(0)], [7, 2, 0, 0]);
        assert_eq!([b.of(3), b.of(40)], [5, 2]);
        // A copy that is shorter leaves nothing behind.
        a.set(&mut pool, 41, 9);
        let mut c = Clock::default();
        c.set(&mut pool, 1, 1);
        a.become_copy(&mut pool, &c);
        assert_eq!([a.of(1), a.of(3), a.of(41)], [1, 0, 0]);
        a.set(&mut pool, 41, 1);
        assert_eq!([a.of(40), a.of(41)], [0, 1]);
        for c in [&mut a, &mut b, &mut c] {
            c.forget(&mut pool);
            assert!(c.is_empty());
        }
    }
}
