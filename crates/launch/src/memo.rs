//! What was found in code in earlier sessions, kept in a file: by the `order` engine ([`reprise_abi::memo`]), and by all that look for
//! instructions which are replaced ([`SearchedCode`]). It is a cache: without it all is found again.
//!
//! The file is of one build of the runtime. Its first word is a hash of that, the second one of all that follows: how many entries, words and
//! searched pieces of code there are, the entries, the words, the pieces.

use crate::{RuntimeImage, SharedSession};
use reprise_abi::memo::{Memo, MAX_ENTRIES, MAX_MEMO_WORDS};
use reprise_abi::session::{SearchedCode, MAX_SEARCHED, SEARCH_CLAIMED};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use xxhash_rust::xxh3::xxh3_64;

/// The name that it has, beside the traces.
pub const FILE: &str = ".found-in-code";
/// From so many entries on it begins anew: of most of them the code is gone.
const PLENTY: usize = MAX_ENTRIES * 3 / 4;
/// As many searched pieces of code.
const PLENTY_SEARCHED: usize = MAX_SEARCHED * 3 / 4;

/// What was in the file.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Entries of the `order` engine.
    entries: usize,
    /// Entries and words of theirs, of a session that has no memory for them.
    unused: Vec<u64>,
    /// Searched pieces of code.
    searched: usize,
}

/// The pieces of code that have been searched.
fn searched(shared: &SharedSession) -> impl Iterator<Item = &SearchedCode> {
    let all = shared.session().searched.iter();
    all.filter(|s| !matches!(s.hash.load(Acquire), 0 | SEARCH_CLAIMED))
}

/// Fills a new session's memory with what is in the file. A file that can't be used is no error.
pub fn load(shared: &SharedSession, image: &RuntimeImage, path: &Path) -> Loaded {
    let read = || fill(shared, image, &std::fs::read(path).ok()?);
    let loaded = read();
    let (used, found) = (loaded.is_some(), loaded.unwrap_or_default());
    let (entries, searched) = (found.entries, found.searched);
    tracing::debug!(used, entries, searched, "what was found in code before");
    found
}

fn fill(shared: &SharedSession, image: &RuntimeImage, bytes: &[u8]) -> Option<Loaded> {
    let mut words = bytes
        .chunks_exact(8)
        .map_while(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
    let is_ours = words.next()? == image.build;
    if !is_ours || words.next()? != xxh3_64(bytes.get(16..)?) {
        return None;
    }
    let [entries, len, searched] =
        [words.next()?, words.next()?, words.next()?].map(|n| n as usize);
    if entries >= PLENTY || len > MAX_MEMO_WORDS || searched >= PLENTY_SEARCHED {
        return None;
    }
    let of_order: Vec<u64> = words.by_ref().take(2 * entries + len).collect();
    let unused = match shared.memo() {
        Some(memo) => {
            fill_memo(memo, of_order.split_at_checked(2 * entries)?);
            Vec::new()
        }
        None => of_order,
    };
    for s in &shared.session().searched[..searched] {
        let (hash, len) = (words.next()?, words.next()?);
        for pair in s.sites.chunks(2) {
            let both = words.next()?;
            for (site, half) in pair.iter().zip([both, both >> 32]) {
                site.store(half as u32, Relaxed);
            }
        }
        s.len.store(len as u32, Relaxed);
        s.hash.store(hash, Release);
    }
    Some(Loaded {
        entries,
        unused,
        searched,
    })
}

fn fill_memo(memo: &Memo, (entries, words): (&[u64], &[u64])) {
    for (e, kept) in memo.entries.iter().zip(entries.chunks_exact(2)) {
        e.first.store(kept[1] as u32, Relaxed);
        e.len.store((kept[1] >> 32) as u32, Relaxed);
        e.key.store(kept[0], Relaxed);
    }
    for (word, kept) in memo.words.iter().zip(words) {
        word.store(*kept, Relaxed);
    }
    memo.words_used.store(words.len() as u32, Relaxed);
    memo.entries_used.store(entries.len() as u32 / 2, Release);
}

/// Keeps what has been found beside what was [loaded](load). What can't be written is found again the next time.
pub fn save(shared: &SharedSession, image: &RuntimeImage, path: &Path, loaded: &Loaded) {
    let (entries, of_order) = match shared.memo() {
        Some(memo) => words_of(memo),
        None => (loaded.entries, loaded.unused.clone()),
    };
    let searched: Vec<_> = searched(shared).collect();
    if entries <= loaded.entries && searched.len() <= loaded.searched {
        return;
    }
    let words = of_order.len() - 2 * entries;
    let mut body = [entries, words, searched.len()].map(|n| n as u64).to_vec();
    body.extend(of_order);
    for s in searched {
        body.extend([s.hash.load(Relaxed), s.len.load(Relaxed).into()]);
        body.extend(s.sites.chunks(2).map(|pair| {
            let halves = pair.iter().map(|site| u64::from(site.load(Relaxed)));
            halves.rev().fold(0, |both, half| both << 32 | half)
        }));
    }
    let body: Vec<u8> = body.into_iter().flat_map(u64::to_le_bytes).collect();
    let mut file = image.build.to_le_bytes().to_vec();
    file.extend(xxh3_64(&body).to_le_bytes());
    file.extend(body);
    let beside = path.with_extension(std::process::id().to_string());
    let written = std::fs::write(&beside, file).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
}

/// How many entries there are; them, and behind them the words.
fn words_of(memo: &Memo) -> (usize, Vec<u64>) {
    let used = memo.entries_used.load(Acquire) as usize;
    let entries = &memo.entries[..used.min(MAX_ENTRIES)];
    let len = (memo.words_used.load(Acquire) as usize).min(MAX_MEMO_WORDS);
    let places = entries.iter().flat_map(|e| {
        let place = e.first.load(Relaxed) as u64 | (e.len.load(Relaxed) as u64) << 32;
        [e.key.load(Relaxed), place]
    });
    let words = memo.words[..len].iter().map(|w| w.load(Relaxed));
    (entries.len(), places.chain(words).collect())
}
