//! What the `order` engine found in code ([`reprise_abi::memo`]), kept in a file between sessions. It is a cache: without it all is found again.
//!
//! The file is of one build of the runtime. Its first word is a hash of that, the second one of all that follows: how many entries and words there are, the
//! entries, the words.

use crate::{RuntimeImage, SharedSession};
use reprise_abi::memo::{Memo, MAX_ENTRIES, MAX_MEMO_WORDS};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use xxhash_rust::xxh3::xxh3_64;

/// The name that it has, beside the traces.
pub const FILE: &str = ".found-in-code";
/// From so many entries on it begins anew: of most of them the code is gone.
const PLENTY: u32 = MAX_ENTRIES as u32 * 3 / 4;

/// Fills a new session's memory with what is in the file; how many entries that are. A file that can't be used is no error.
pub fn load(shared: &SharedSession, image: &RuntimeImage, path: &Path) -> u32 {
    let read = || {
        let bytes = std::fs::read(path).ok()?;
        fill(shared.memo()?, image, &bytes)
    };
    read().unwrap_or(0)
}

fn fill(memo: &Memo, image: &RuntimeImage, bytes: &[u8]) -> Option<u32> {
    let mut words = bytes
        .chunks_exact(8)
        .map_while(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
    let is_ours = words.next()? == image.build;
    if !is_ours || words.next()? != xxh3_64(bytes.get(16..)?) {
        return None;
    }
    let (entries, len) = (words.next()?, words.next()?);
    if entries >= PLENTY.into() || len as usize > MAX_MEMO_WORDS {
        return None;
    }
    for e in &memo.entries[..entries as usize] {
        let (key, place) = (words.next()?, words.next()?);
        e.first.store(place as u32, Relaxed);
        e.len.store((place >> 32) as u32, Relaxed);
        e.key.store(key, Relaxed);
    }
    for word in &memo.words[..len as usize] {
        word.store(words.next()?, Relaxed);
    }
    memo.words_used.store(len as u32, Relaxed);
    memo.entries_used.store(entries as u32, Release);
    Some(entries as u32)
}

/// Keeps what has been found beside the entries that were [loaded](load). What can't be written is found again the next time.
pub fn save(shared: &SharedSession, image: &RuntimeImage, path: &Path, loaded: u32) {
    let Some(memo) = shared.memo() else { return };
    let used = memo.entries_used.load(Acquire);
    if used <= loaded {
        return;
    }
    let entries = &memo.entries[..(used as usize).min(MAX_ENTRIES)];
    let len = (memo.words_used.load(Acquire) as usize).min(MAX_MEMO_WORDS);
    let head = [entries.len() as u64, len as u64].into_iter();
    let places = entries.iter().flat_map(|e| {
        let place = e.first.load(Relaxed) as u64 | (e.len.load(Relaxed) as u64) << 32;
        [e.key.load(Relaxed), place]
    });
    let words = memo.words[..len].iter().map(|w| w.load(Relaxed));
    let body: Vec<u8> = head
        .chain(places)
        .chain(words)
        .flat_map(u64::to_le_bytes)
        .collect();
    let mut file = image.build.to_le_bytes().to_vec();
    file.extend(xxh3_64(&body).to_le_bytes());
    file.extend(body);
    let beside = path.with_extension(std::process::id().to_string());
    let written = std::fs::write(&beside, file).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
}
