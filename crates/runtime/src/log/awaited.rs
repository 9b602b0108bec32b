//! What the threads of a replay wait for, said where the driver and a debugger see it ([`reprise_abi::waits`]), and how those who wait are called.

use super::total;
use crate::machine::sys;
use crate::thread::rings::head;
use crate::thread::{current, slot};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::order::{OrderHead, WaitingRoom, ORDER_BASE};
use reprise_abi::waits::{Awaited, Waits, What, ROOM_FACTOR, ROOM_SHIFT};

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

/// The calling thread begins to wait for `key`, until so many operations have been made on it, and has said so ([`reprise_abi::waits`]).
pub fn begin_wait(key: u64, n: u64) -> Waits<'static> {
    head().begin_wait(current().slot_number() as usize, key, n)
}

/// The calling thread looks again and again, of which nobody has to tell it, until this is dropped.
pub struct Looks(&'static Awaited);

impl Looks {
    /// It begins to.
    pub fn begin() -> Looks {
        let told = &head().waits[current().slot_number() as usize];
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
    head().call(key, n, |word| match total::runs() {
        true => 0,
        false => sys::futex_wake_all(word.as_ptr()),
    });
}

/// Those who sleep on the word at this address in a hooked function are woken, or about to be: they don't wait in vain any more.
pub fn tell_woken(address: u64) {
    let (h, key) = (head(), What::Word(address).key());
    if h.room(key).waiting.load(SeqCst) != 0 {
        h.bed(key, 0).1.fetch_add(1, SeqCst);
    }
}
