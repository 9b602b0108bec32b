//! What threads of a replay of `order` wait for, told so that the driver can see when none of them can ever go on, and so that in total order
//! nobody has the turn who has nothing to do with it.
//!
//! A thread that waits sleeps in a **room**, whose generation grows whenever somebody should look again. It tells which generation it has
//! seen, and after that looks once more before it sleeps. So as long as the generation is that one, it waits in vain.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use crate::order::{OrderHead, WaitingRoom, SHARDS, WAITING_WORDS};

/// A key of a stamp: the stamp and this.
const STAMP: u64 = 1 << 62;
/// A key of a word on which a hooked function sleeps: its address and this.
const WORD: u64 = 1 << 61;
/// A key of a word that the thread looks at again and again: its address and this.
const VALUE: u64 = 1 << 59;
/// A key of a thread that is to have done all that was recorded of it: its slot and this.
const DONE: u64 = 1 << 58;
/// A key of a thread that is to be gone: its slot and this.
const GONE: u64 = 1 << 57;
/// The key of a thread that waits for more events.
pub const FEED: u64 = 1 << 60;
/// The key of a thread that has done all that was recorded of it.
pub const OVER: u64 = FEED + 1;

/// What a thread waits for, as [`Awaited::key`] tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The turn of a stamp.
    Stamp(u64),
    /// An operation on a shard.
    Shard(u32),
    /// An operation on the object at this address.
    Object(u64),
    /// Another thread's leave to go on, at the word at this address.
    Word(u64),
    /// That the word at this address has another value than [`Awaited::generation`], or that something else is so for which the thread looks again
    /// and again.
    Value(u64),
    /// That the thread of this slot, whose birth [`Awaited::generation`] tells, has done all that was recorded of it.
    Done(u32),
    /// That this one is gone.
    Gone(u32),
    /// More events.
    Feed,
    /// Nothing: it has done all that was recorded.
    Over,
}

impl What {
    /// As a key.
    #[inline(always)]
    pub const fn key(self) -> u64 {
        match self {
            What::Stamp(n) => n | STAMP,
            What::Shard(n) => !(n as u64),
            What::Object(at) => at,
            What::Word(at) => at | WORD,
            What::Value(at) => at | VALUE,
            What::Done(slot) => slot as u64 | DONE,
            What::Gone(slot) => slot as u64 | GONE,
            What::Feed => FEED,
            What::Over => OVER,
        }
    }

    /// Is nobody told when that is so, and the thread has to look?
    pub const fn is_looked_for(self) -> bool {
        matches!(self, What::Value(_) | What::Done(_) | What::Gone(_))
    }

    /// What a key means.
    pub const fn of(key: u64) -> What {
        match key {
            FEED => What::Feed,
            OVER => What::Over,
            k if k >> 32 == u32::MAX as u64 => What::Shard(!k as u32),
            k if k & STAMP != 0 => What::Stamp(k & !STAMP),
            k if k & WORD != 0 => What::Word(k & !WORD),
            k if k & VALUE != 0 => What::Value(k & !VALUE),
            k if k & DONE != 0 => What::Done(k as u32),
            k if k & GONE != 0 => What::Gone(k as u32),
            k => What::Object(k),
        }
    }
}

/// What the thread of a slot waits for.
#[repr(C, align(32))]
pub struct Awaited {
    /// Grows when a wait begins and when it ends: odd meanwhile. By two when a thread has looked in vain.
    pub count: AtomicU32,
    /// The generation that the thread has seen before it looked last. Of one that wants events: the low half of what the ring's head was; of
    /// one that has done all: what [`closed`](crate::ring::RingControl::closed) was. Of the others see [`What`].
    pub generation: AtomicU32,
    /// See [`What::key`].
    pub key: AtomicU64,
    /// Number of the room in which it sleeps.
    pub room: AtomicU32,
}

/// A thread that waits, as seen at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parked {
    /// The wait.
    pub count: u32,
    /// The generation.
    pub generation: u32,
    /// See [`What::key`].
    pub key: u64,
}

impl Awaited {
    /// A wait begins.
    #[inline]
    pub fn begin(&self) {
        self.key.store(FEED, SeqCst);
        self.generation.store(!0, SeqCst);
        self.count.fetch_add(1, SeqCst);
    }

    /// In it, the thread sleeps: it has looked since the room was in this generation.
    #[inline]
    pub fn sleeps(&self, key: u64, room: u32, generation: u32) {
        self.room.store(room, SeqCst);
        self.key.store(key, SeqCst);
        self.generation.store(generation, SeqCst);
    }

    /// It has looked once more.
    pub fn looked(&self) {
        self.count.fetch_add(2, SeqCst);
    }

    /// It ends.
    #[inline]
    pub fn end(&self) {
        self.count.fetch_add(1, SeqCst);
    }

    /// The next thread has the slot: whoever had it before may have been ended in a wait.
    pub fn reset(&self) {
        let n = self.count.load(SeqCst);
        self.count.store(n.wrapping_add(1) & !1, SeqCst);
    }
}

/// The number of a key's room is the highest bits of the product with this.
pub const ROOM_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// See [`ROOM_FACTOR`].
pub const ROOM_SHIFT: u32 = 52;
const _: () = assert!(WAITING_WORDS == 1 << (64 - ROOM_SHIFT));

#[inline(always)]
const fn number_of_room(key: u64) -> u32 {
    (key.wrapping_mul(ROOM_FACTOR) >> ROOM_SHIFT) as u32
}

impl OrderHead {
    /// The room in which those are counted who wait for this key.
    #[inline(always)]
    pub fn room(&self, key: u64) -> &WaitingRoom {
        match What::of(key) {
            What::Shard(n) => &self.shards[n as usize % SHARDS].room,
            _ => &self.rooms[number_of_room(key) as usize],
        }
    }

    /// Number of the room in which those sleep who wait until `n` operations have been made on what this key means, and its generation.
    #[inline(always)]
    pub fn bed(&self, key: u64, n: u64) -> (u32, &AtomicU32) {
        let number = number_of_room(key.wrapping_add(n.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        (number, &self.rooms[number as usize].generation)
    }

    /// How the thread of this slot waits, if it does, and in vain as far as it knows. Whether it is so for one that waits for a value or for another
    /// thread is to be asked of that.
    pub fn parked(&self, slot: usize) -> Option<Parked> {
        let (a, ring) = (&self.waits[slot], &self.rings[slot]);
        let count = a.count.load(SeqCst);
        let p = Parked {
            count,
            generation: a.generation.load(SeqCst),
            key: a.key.load(SeqCst),
        };
        if count & 1 == 0 || a.count.load(SeqCst) != count {
            return None;
        }
        let in_vain = match What::of(p.key) {
            What::Feed => {
                ring.head.load(SeqCst) as u32 == p.generation && ring.closed.load(SeqCst) == 0
            }
            What::Over => ring.closed.load(SeqCst) == p.generation,
            What::Value(_) | What::Done(_) | What::Gone(_) => true,
            _ => {
                let room = a.room.load(SeqCst) as usize % WAITING_WORDS;
                self.rooms[room].generation.load(SeqCst) == p.generation
            }
        };
        in_vain.then_some(p)
    }
}

/// A thread's wait, until this is dropped.
///
/// It is counted in the room of what it waits for, and sleeps in the one of the number that it waits for: who makes an operation wakes him whose
/// turn is next, not all that wait for theirs on the same object. In that room it is counted, too, so that nobody is called who isn't there.
pub struct Waits<'a> {
    key: u64,
    counted: [&'a WaitingRoom; 2],
    room: u32,
    word: &'a AtomicU32,
    told: &'a Awaited,
}

impl Waits<'_> {
    /// What [`OrderHead::call`] changes. To be read before the thread looks.
    pub fn generation(&self) -> u32 {
        self.word.load(SeqCst)
    }

    /// The word that has the generation.
    pub fn word(&self) -> &AtomicU32 {
        self.word
    }

    /// The thread has looked in vain after it had read this generation, and is about to sleep.
    pub fn sleeps(&self, generation: u32) {
        self.told.sleeps(self.key, self.room, generation);
    }

    /// Waits until `due` says so. `sleep` sleeps while the [`word`](Self::word) has a value; it may come back for no reason.
    #[inline]
    pub fn until(&self, mut due: impl FnMut() -> bool, mut sleep: impl FnMut(u32)) {
        loop {
            let generation = self.generation();
            if due() {
                return;
            }
            self.sleeps(generation);
            sleep(generation);
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.told.end();
        for room in self.counted {
            room.waiting.fetch_sub(1, SeqCst);
        }
    }
}

impl OrderHead {
    /// The thread of this slot begins to wait for `key`, until so many operations have been made on it.
    pub fn begin_wait(&self, slot: usize, key: u64, n: u64) -> Waits<'_> {
        let (room, generation) = self.bed(key, n);
        let w = Waits {
            key,
            counted: [self.room(key), &self.rooms[room as usize]],
            room,
            word: generation,
            told: &self.waits[slot],
        };
        for room in w.counted {
            room.waiting.fetch_add(1, SeqCst);
        }
        w.told.begin();
        w
    }

    /// Operation `n` was made on what `key` means: those who wait for it look again, and may not find that it is the last one any more. `wake` wakes all
    /// that sleep on the word, and says how many it were.
    #[inline]
    pub fn call(&self, key: u64, n: u64, wake: impl FnOnce(&AtomicU32) -> u32) {
        if self.room(key).waiting.load(SeqCst) == 0 {
            return;
        }
        let (room, word) = self.bed(key, n);
        word.fetch_add(1, SeqCst);
        if self.rooms[room as usize].waiting.load(SeqCst) != 0 {
            let woken = wake(word);
            // At once: until they have a processor, those who look should leave them one.
            self.sleeping.fetch_sub(woken, SeqCst);
        }
    }

    /// Sleeps while the word of a room has this value, counted as asleep. `sleep` says whether somebody woke the thread: then that one
    /// has counted it as awake.
    #[inline]
    pub fn sleep_counted(&self, sleep: impl FnOnce() -> bool) {
        self.sleeping.fetch_add(1, SeqCst);
        if !sleep() {
            self.sleeping.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_they_are() {
        for what in [
            What::Stamp(0),
            What::Stamp(1 << 40),
            What::Shard(0),
            What::Shard(1023),
            What::Object(0x40_4040),
            What::Object(0x7fff_ffff_fff0),
            What::Word(0x7fff_ffff_fff0),
            What::Feed,
            What::Over,
        ] {
            assert_eq!(What::of(what.key()), what);
        }
    }
}
