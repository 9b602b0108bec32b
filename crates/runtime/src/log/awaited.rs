//! What the threads of a replay wait for, said where the driver and a debugger see it ([`reprise_abi::waits`]), and how those who wait are called.

use super::total;
use crate::machine::sys;
use crate::thread::rings::head;
use crate::thread::{current, slot};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::order::{OrderHead, WaitingRoom, ORDER_BASE};
use reprise_abi::waits::{Awaited, What, ROOM_FACTOR, ROOM_SHIFT};

/// The room of a key is found by this: the highest bits of the product.
pub const FACTOR: u64 = ROOM_FACTOR;
/// See [`FACTOR`].
pub const SHIFT: u32 = ROOM_SHIFT;
const _: () = assert!(size_of::<WaitingRoom>() == 8);

/// What those wait for who wait for a shard. It has a room of its own.
pub fn key_of_shard(number: u32) -> u64 {
    What::Shard(number).key()
}

/// Address of the first room.
pub const fn rooms() -> u64 {
    ORDER_BASE + offset_of!(OrderHead, rooms) as u64
}

/// The calling thread waits, until this is dropped, and has said so ([`reprise_abi::waits`]).
///
/// It is counted in the room of what it waits for, and sleeps in the one of the number that it waits for: who makes an operation wakes him whose
/// turn is next, not all that wait for theirs on the same object. In that room it is counted, too, so that nobody is called who isn't there.
pub struct Waits {
    key: u64,
    counted: [&'static WaitingRoom; 2],
    room: u32,
    /// See [`Waits::generation`].
    pub word: &'static AtomicU32,
    told: &'static Awaited,
}

impl Waits {
    /// It begins to wait for `key`, until so many operations have been made on it.
    pub fn new(key: u64, n: u64) -> Waits {
        let h = head();
        let (room, generation) = h.bed(key, n);
        let w = Waits {
            key,
            counted: [h.room(key), &h.rooms[room as usize]],
            room,
            word: generation,
            told: &h.waits[current().slot as usize],
        };
        for room in w.counted {
            room.waiting.fetch_add(1, SeqCst);
        }
        w.told.begin();
        w
    }

    /// What [`call_for`] changes. To be read before the thread looks.
    pub fn generation(&self) -> u32 {
        self.word.load(SeqCst)
    }

    /// The thread has looked in vain after it had read this generation, and is about to sleep.
    pub fn sleeps(&self, generation: u32) {
        self.told.sleeps(self.key, self.room, generation);
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.told.end();
        for room in self.counted {
            room.waiting.fetch_sub(1, SeqCst);
        }
    }
}

/// The calling thread looks again and again, of which nobody has to tell it, until this is dropped.
pub struct Looks(&'static Awaited);

impl Looks {
    /// It begins to.
    pub fn begin() -> Looks {
        let told = &head().waits[current().slot as usize];
        told.begin();
        Looks(told)
    }

    /// It is to find that this word has another value, and has looked in vain.
    pub fn at(&self, word: &AtomicU32, value: u32) {
        let key = What::Value(word.as_ptr() as u64).key();
        self.0.sleeps(key, 0, value);
        self.0.looked();
    }

    /// It is to find that the thread which has slot `i` now has done all that was recorded of it.
    pub fn until_done(&self, i: u32) {
        let born = slot(i).born.load(SeqCst);
        self.0.sleeps(What::Done(i).key(), 0, born as u32);
    }

    /// It is to find that this one is gone.
    pub fn until_gone(&self, i: u32) {
        let born = slot(i).born.load(SeqCst);
        self.0.sleeps(What::Gone(i).key(), 0, born as u32);
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Those who wait for `key` look again.
pub fn call(key: u64) {
    call_for(key, 0);
}

/// Operation `n` on the object was made: those who wait for it look again, and may not find that it is the last one any more.
#[inline]
pub fn call_for(key: u64, n: u64) {
    let h = head();
    if h.room(key).waiting.load(SeqCst) != 0 {
        let (bed, word) = h.bed(key, n);
        word.fetch_add(1, SeqCst);
        if !total::runs() && h.rooms[bed as usize].waiting.load(SeqCst) != 0 {
            let woken = sys::futex_wake_all(word.as_ptr());
            // At once: until they have a processor, those who look should leave them one.
            h.sleeping.fetch_sub(woken, Relaxed);
        }
    }
}

/// Those who sleep on the word at this address in a hooked function are woken, or about to be: they don't wait in vain any more.
pub fn tell_woken(address: u64) {
    let (h, key) = (head(), What::Word(address).key());
    if h.room(key).waiting.load(SeqCst) != 0 {
        h.bed(key, 0).1.fetch_add(1, SeqCst);
    }
}
