//! The files that the trace keeps, with a memory of them: a file that was kept, and has not changed since by its times, is neither read nor
//! linked again. Recorded processes are told of such files in the session ([`Session::kept`]), so that they needn't even ask.

use reprise_abi::session::{Session, FILE_STAMP, MAX_KNOWN_FILES};
use reprise_launch::SharedSession;
use reprise_trace::{settled, Kept, Store, TraceError};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;

/// What tells a file, and that it did not change; in the order of `KnownFile::stamp`.
type Stamp = [u64; FILE_STAMP];

fn stamp(meta: &Metadata) -> Stamp {
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
}

impl Keeper {
    /// Nothing kept yet.
    pub fn new(store: Store, dir: PathBuf) -> Keeper {
        Keeper {
            store,
            dir,
            known: HashMap::new(),
        }
    }

    /// The content of a file that is kept and has not changed.
    pub fn known(&self, meta: &Metadata) -> Option<Kept> {
        self.known.get(&stamp(meta)).copied()
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
        if let Some(meta) = file.metadata().ok().filter(|m| settled(m)) {
            if self.known.len() < MAX_KNOWN_FILES && self.known.insert(stamp(&meta), kept).is_none() {
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
    let words = stamp.iter().chain(&kept.hash.to_words()).copied().collect::<Vec<u64>>();
    for (to, word) in to.stamp.iter().chain(&to.content).zip(words) {
        to.store(word, Relaxed);
    }
    s.kept_len.store(n + 1, Release);
}
