//! The files that the trace keeps, with a memory of them: a file that was kept, and has not changed since by its times, is neither read nor
//! linked again. Recorded processes are told of such files in the session ([`Session::kept`]), so that they needn't even ask.

use reprise_abi::session::{Session, FILE_STAMP, MAX_KNOWN_FILES};
use reprise_launch::SharedSession;
use reprise_trace::{settled, ContentHash, Kept, Store, TraceError};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::Arc;

/// What tells a file, and that it did not change; in the order of `KnownFile::stamp`.
pub(crate) type Stamp = [u64; FILE_STAMP];

/// That of a file.
pub(crate) fn stamp(meta: &Metadata) -> Stamp {
    [
        meta.dev(),
        meta.ino(),
        meta.len(),
        meta.mtime() as u64,
        meta.mtime_nsec() as u64,
        meta.ctime() as u64,
        meta.ctime_nsec() as u64,
    ]
}

/// Keeps files in a trace.
pub struct Keeper {
    /// Where contents are kept.
    pub store: Store,
    /// The trace.
    pub dir: PathBuf,
    known: HashMap<Stamp, Kept>,
    /// Parts of them that were asked for: content, offset, length.
    parts: HashMap<(ContentHash, u64, u64), Arc<[u8]>>,
}

/// Most bytes of a part that is remembered, and most parts.
const MAX_PART: u64 = 256 << 10;
const MAX_PARTS: usize = 256;

impl Keeper {
    /// Nothing kept yet.
    pub fn new(store: Store, dir: PathBuf) -> Keeper {
        Keeper {
            store,
            dir,
            known: HashMap::new(),
            parts: HashMap::new(),
        }
    }

    /// The content of a file that is kept and has not changed.
    pub fn known(&self, meta: &Metadata) -> Option<Kept> {
        self.known.get(&stamp(meta)).copied()
    }

    /// What a mapping of `len` bytes at `offset` of a kept file shows, when that is little: zeros behind the file's end.
    pub fn part(&mut self, hash: ContentHash, offset: u64, len: u64) -> Option<Arc<[u8]>> {
        if len > MAX_PART {
            return None;
        }
        let key = (hash, offset, len);
        if let Some(part) = self.parts.get(&key) {
            return Some(part.clone());
        }
        let file = File::open(self.store.path_of(hash)).ok()?;
        let mut bytes = vec![0; len as usize];
        let mut done = 0;
        while done < bytes.len() {
            match file
                .read_at(&mut bytes[done..], offset + done as u64)
                .ok()?
            {
                0 => break,
                n => done += n,
            }
        }
        let part: Arc<[u8]> = bytes.into();
        if self.parts.len() < MAX_PARTS {
            self.parts.insert(key, part.clone());
        }
        Some(part)
    }

    /// Keeps the content of `file`; `hint` is for messages.
    ///
    /// # Errors
    /// As [`Store::keep_into`].
    pub fn keep(
        &mut self,
        shared: &SharedSession,
        file: &File,
        hint: &Path,
    ) -> Result<Kept, TraceError> {
        if let Some(kept) = file.metadata().ok().and_then(|m| self.known(&m)) {
            return Ok(kept);
        }
        let kept = self.store.keep_into(file, hint, &self.dir)?;
        // Had it changed while it was read, its times would be too young.
        if let Some(meta) = file.metadata().ok().filter(settled) {
            if self.known.len() < MAX_KNOWN_FILES && self.known.insert(stamp(&meta), kept).is_none()
            {
                publish(shared.session(), &stamp(&meta), kept);
            }
        }
        Ok(kept)
    }

    /// Keeps the content of a file whose times don't tell whether it changed.
    ///
    /// # Errors
    /// As [`Store::keep_changing_into`].
    pub fn keep_changing(&self, file: &File, hint: &Path) -> Result<Kept, TraceError> {
        self.store.keep_changing_into(file, hint, &self.dir)
    }
}

fn publish(s: &Session, stamp: &Stamp, kept: Kept) {
    let n = s.kept_len.load(Relaxed);
    let Some(to) = s.kept.get(n as usize) else {
        return;
    };
    let words = stamp
        .iter()
        .chain(&kept.hash.to_words())
        .copied()
        .collect::<Vec<u64>>();
    for (to, word) in to.stamp.iter().chain(&to.content).zip(words) {
        to.store(word, Relaxed);
    }
    s.kept_len.store(n + 1, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_of_files_that_did_not_change() {
        let root = tempfile::tempdir().expect("a directory");
        let trace = root.path().join("trace");
        std::fs::create_dir(&trace).expect("a directory");
        let store = Store::open(root.path()).expect("a store");
        let mut keeper = Keeper::new(store, trace);
        let shared = SharedSession::create().expect("a session");
        let told = || shared.session().kept_len.load(Acquire);

        // One that was written a moment ago may change again without its times showing it.
        let young = root.path().join("young");
        std::fs::write(&young, b"something").expect("a file");
        let file = File::open(&young).expect("open");
        keeper.keep(&shared, &file, &young).expect("kept");
        assert_eq!(told(), 0);

        // Part of every system, and older than a minute.
        let old = PathBuf::from("/bin/sh");
        let file = File::open(&old).expect("open");
        let meta = file.metadata().expect("metadata");
        assert!(keeper.known(&meta).is_none());
        let kept = keeper.keep(&shared, &file, &old).expect("kept");
        assert_eq!(told(), 1);
        assert_eq!(keeper.known(&meta), Some(kept));
        let first = &shared.session().kept[0];
        assert_eq!(first.stamp[1].load(Relaxed), meta.ino());
        let words = [0, 1].map(|i| first.content[i].load(Relaxed));
        assert_eq!(words, kept.hash.to_words());
        assert_eq!(keeper.keep(&shared, &file, &old).expect("kept"), kept);
        assert_eq!(told(), 1);

        let part = keeper.part(kept.hash, 4096, 8192).expect("a part");
        let mut bytes = vec![0; 8192];
        file.read_exact_at(&mut bytes, 4096).expect("read");
        assert_eq!(part[..], bytes);
        // Behind its end there is nothing.
        let beyond = keeper.part(kept.hash, kept.len.next_multiple_of(4096), 4096);
        assert_eq!(beyond.expect("zeros")[..], [0; 4096]);
    }
}
