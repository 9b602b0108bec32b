//! Words of memory that other processes may change: a semaphore of sem_open(3), a lock in a shared file, or in memory that a child has, too.
//!
//! A thread that waits on such a word is woken by its own program's threads as on any other word ([`super::wait`]), in the order that follows from the
//! program. What others do is the world's business: the thread looks at the word now and then, and [notifies](super::idle::notify) when that
//! is no longer what it was. Those who wait in other processes are woken through the kernel.

use super::token::{member, Member};
use super::wait::Word;
use crate::isolate::views;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::map;
use crate::thread::process;
use core::sync::atomic::Ordering::*;
use reprise_abi::session::region_flags::{FILE, SHARED};
use reprise_abi::syscalls::nr;

/// The longest time between two looks.
pub const LOOK_NS: i64 = 500_000;
/// In a [`Member::shared_word`] that holds a value.
const LOOKS: u64 = 1 << 32;
const FUTEX_WAKE_BITSET: u64 = 10;

/// May processes that are no threads of the program change this word?
pub fn is_shared(address: u64) -> bool {
    if address == 0 || views::offset_of(address).is_some() {
        return false;
    }
    let flags = map().at(address).map_or(0, |r| r.flags);
    flags & SHARED != 0 && (flags & FILE != 0 || process::has_others())
}

/// In a turn: the thread begins to wait on this word.
pub fn begins(m: &Member, word: &Word) {
    let looks = is_shared(word.address);
    let kept = if looks {
        LOOKS | u64::from(word.value)
    } else {
        0
    };
    m.outer.store(kept, SeqCst);
}

/// In its turn: it waits no more; whether others have changed the word.
pub fn ends(m: &Member, word: &Word) -> bool {
    let looked = m.outer.swap(0, SeqCst) != 0;
    looked && guard::read::<u32>(word.address) != Some(word.value)
}

/// Does the thread of this slot wait on a word that others may change?
pub fn waits(slot: u32) -> bool {
    member(slot).outer.load(SeqCst) != 0
}

/// Does the calling thread's wait have no reason any more?
pub fn has_changed(m: &Member) -> bool {
    let kept = m.outer.load(SeqCst);
    let now = || guard::read::<u32>(m.word.load(Relaxed));
    kept != 0 && now() != Some(kept as u32)
}

/// Wakes those of other processes who wait on this word; how many they were.
pub fn wake(address: u64, n: u32, bits: u32) -> u32 {
    if !is_shared(address) {
        return 0;
    }
    let n = n.min(i32::MAX as u32) as u64;
    let args = [address, FUTEX_WAKE_BITSET, n, 0, 0, bits.into()];
    u32::try_from(sys::call(nr::FUTEX, &args)).unwrap_or(0)
}
