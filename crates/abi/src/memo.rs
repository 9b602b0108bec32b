//! What the `order` engine found in code, kept from one recording to the next: to search libc takes longer than all else that a recording begins with,
//! and it is the same libc nearly always.
//!
//! It lies behind the engine's other memory ([`crate::order`]). The launcher fills it from a file and keeps what has been added; content is known by
//! a hash of the code, so it does not matter which program it was found in. An entry is there when its key is.

use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
use crate::order::{ORDER_BASE, ORDER_TOTAL};

/// Where it is mapped.
pub const MEMO_BASE: u64 = ORDER_BASE + ORDER_TOTAL;
/// Pieces of code that it has room for.
pub const MAX_ENTRIES: usize = 256;
/// Words that it has room for.
pub const MAX_MEMO_WORDS: usize = 1 << 18;

/// What was found in one piece of code.
#[repr(C)]
pub struct MemoEntry {
    /// Hash of the code, 0: there is no entry (yet).
    pub key: AtomicU64,
    /// Its first word.
    pub first: AtomicU32,
    /// How many words it has.
    pub len: AtomicU32,
}

/// All that was found.
#[repr(C, align(4096))]
pub struct Memo {
    /// Entries that are taken.
    pub entries_used: AtomicU32,
    /// Words that are taken.
    pub words_used: AtomicU32,
    /// The entries.
    pub entries: [MemoEntry; MAX_ENTRIES],
    /// The words.
    pub words: [AtomicU64; MAX_MEMO_WORDS],
}

/// Bytes of it all.
pub const MEMO_LEN: u64 = core::mem::size_of::<Memo>() as u64;

impl Memo {
    /// The words of the code with this key.
    pub fn find(&self, key: u64) -> Option<&[AtomicU64]> {
        let used = self.entries_used.load(Acquire) as usize;
        let mut entries = self.entries[..used.min(MAX_ENTRIES)].iter();
        let e = entries.find(|e| e.key.load(Acquire) == key)?;
        let first = e.first.load(Relaxed) as usize;
        self.words
            .get(first..first.checked_add(e.len.load(Relaxed) as usize)?)
    }

    /// Adds the words of the code with this key, if there is room; a key that several add at a time is there several times.
    pub fn add(&self, key: u64, len: usize, words: impl Iterator<Item = u64>) {
        let take = |used: &AtomicU32, n: usize, max: usize| {
            let fits = |u: u32| (u as usize + n <= max).then_some(u + n as u32);
            used.fetch_update(AcqRel, Acquire, fits).ok()
        };
        let Some(first) = take(&self.words_used, len, MAX_MEMO_WORDS) else {
            return;
        };
        let Some(n) = take(&self.entries_used, 1, MAX_ENTRIES) else {
            return;
        };
        for (to, word) in self.words[first as usize..].iter().take(len).zip(words) {
            to.store(word, Relaxed);
        }
        let e = &self.entries[n as usize];
        e.first.store(first, Relaxed);
        e.len.store(len as u32, Relaxed);
        e.key.store(key, Release);
    }
}

const _: () = assert!(MEMO_BASE % 4096 == 0 && MEMO_LEN % 4096 == 0);
const _: () = assert!(MEMO_BASE + MEMO_LEN <= crate::layout::RESERVATION_END);

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn what_was_added_is_found_until_there_is_no_room() {
        // SAFETY: every bit pattern is a memo.
        let memo: Box<Memo> = unsafe { Box::new_zeroed().assume_init() };
        assert!(memo.find(1).is_none());
        memo.add(1, 3, [7, 8, 9].into_iter());
        memo.add(2, 0, [].into_iter());
        let words = |key| -> Option<std::vec::Vec<u64>> {
            Some(memo.find(key)?.iter().map(|w| w.load(Relaxed)).collect())
        };
        assert_eq!(words(1).as_deref(), Some(&[7, 8, 9][..]));
        assert_eq!(words(2).as_deref(), Some(&[][..]));
        memo.add(3, MAX_MEMO_WORDS - 3, std::iter::repeat(5));
        assert_eq!(words(3).map(|w| w.len()), Some(MAX_MEMO_WORDS - 3));
        memo.add(4, 1, [1].into_iter());
        assert!(memo.find(4).is_none());
        for key in 5..2 * MAX_ENTRIES as u64 {
            memo.add(key, 0, [].into_iter());
        }
        assert!(memo.find(MAX_ENTRIES as u64).is_some());
        assert!(memo.find(2 * MAX_ENTRIES as u64 - 1).is_none());
        // A damaged entry.
        memo.entries[0].first.store(u32::MAX, Relaxed);
        assert!(memo.find(1).is_none());
    }
}
