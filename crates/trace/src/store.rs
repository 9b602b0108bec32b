//! The content store beside the traces: every file that was ever mapped is kept once, under the hash of its content.
//!
//! Keeping a file that is known already costs three system calls: an index of symbolic links leads from (device,
//! inode, size, times) to the hash. A file whose times are too recent to prove anything is not indexed, but hashed each time. Traces hold hard links to
//! contents, so that a content which no trace needs is one with a single link, and [`Store::gc`] removes those.
//!
//! Any number of recordings may use a store at the same time: everything appears by rename, link or symlink, whole or not at all,
//! and the collector waits for (or yields to) whoever is between keeping and linking.

use crate::error::Context;
use crate::hash::{each_block, is_zero, Hasher};
use crate::kept_blocks;
use crate::{ContentHash, Result, TraceError, FILES_DIR};
use rustix::fs::{flock, FlockOperation};
use rustix::io::{retry_on_intr, Errno};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{
    symlink, DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the store in the trace root.
pub const STORE_DIR: &str = ".store";
const INDEX_DIR: &str = "index";
/// Directory of whole copies of files that were read, by what tells a version of a file: nobody has hashed them.
const INPUTS_DIR: &str = "inputs";
/// How the name of a content begins while it is being written.
pub(crate) const TEMPORARY_PREFIX: &str = "tmp.";

/// A file changed less than this many seconds ago is not indexed: memory mapped and written, it could change without
/// its times changing until the kernel writes its pages back (30 s, then every 5 s).
const SETTLED_SECONDS: i64 = 60;

/// Most index entries that a collection leaves standing; an index larger than this is begun anew.
const MAX_INDEX_ENTRIES: usize = 100_000;

/// A content that is in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Its hash.
    pub hash: ContentHash,
    /// Its length in bytes.
    pub len: u64,
}

/// What a collection removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Contents.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The content store of a trace root.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens the store of the trace root `root`, making it where there is none.
    pub fn open(root: &Path) -> Result<Store> {
        let dir = root.join(STORE_DIR);
        for part in [INDEX_DIR, INPUTS_DIR].map(|name| dir.join(name)) {
            if !part.is_dir() {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&part)
                    .context("create", &part)?;
            }
        }
        Ok(Store { dir })
    }

    /// Path of a content.
    pub fn path_of(&self, hash: ContentHash) -> PathBuf {
        self.dir.join(hash.to_hex())
    }

    /// Keeps the content of `file`, a regular file open for reading; `path_hint` is for messages.
    ///
    /// The content may be collected as long as nothing is linked to it; [`Store::keep_into`] leaves no such gap.
    pub fn keep(&self, file: &File, path_hint: &Path) -> Result<Kept> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        self.keep_locked(file, path_hint)
    }

    /// Keeps the content of `file` and links it into `files/` of the trace in `trace_dir`.
    pub fn keep_into(&self, file: &File, path_hint: &Path, trace_dir: &Path) -> Result<Kept> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        let kept = self.keep_locked(file, path_hint)?;
        self.link_into(kept.hash, &trace_file(trace_dir, kept.hash)?)?;
        Ok(kept)
    }

    /// As [`Store::keep_into`], for a file whose times don't tell whether its content changed: one that is written through mappings.
    pub fn keep_changing_into(
        &self,
        file: &File,
        path_hint: &Path,
        trace_dir: &Path,
    ) -> Result<Kept> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        if !file.metadata().context("read", path_hint)?.is_file() {
            return Err(TraceError::NotAFile {
                path: path_hint.into(),
            });
        }
        let kept = self.import(file, path_hint)?;
        self.link_into(kept.hash, &trace_file(trace_dir, kept.hash)?)?;
        Ok(kept)
    }

    /// Keeps `bytes` and links them into `files/` of the trace in `trace_dir`.
    pub fn keep_bytes_into(&self, bytes: &[u8], trace_dir: &Path) -> Result<Kept> {
        self.keep_named_into(bytes, ContentHash::of(bytes), trace_dir)
    }

    /// As [`Store::keep_bytes_into`], of bytes whose hash is known.
    pub fn keep_named_into(
        &self,
        bytes: &[u8],
        hash: ContentHash,
        trace_dir: &Path,
    ) -> Result<Kept> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        let kept = Kept {
            hash,
            len: bytes.len() as u64,
        };
        if !self.has(kept) {
            let temporary = Temporary::create(&self.dir)?;
            (&temporary.file)
                .write_all(bytes)
                .context("write", &temporary.path)?;
            temporary.publish(&self.path_of(kept.hash))?;
        }
        self.link_into(kept.hash, &trace_file(trace_dir, kept.hash)?)?;
        Ok(kept)
    }

    /// Is the content of the file of which `meta` tells the version in the store?
    pub fn has_content_of(&self, meta: &Metadata) -> bool {
        let len = meta.len();
        let hash = hash_of_link(&self.dir.join(INDEX_DIR).join(index_key(meta)));
        settled(meta) && hash.is_some_and(|hash| self.has(Kept { hash, len }))
    }

    /// Makes `target` a copy of the whole file of which `meta` tells the version, if there is one already; false when there is none.
    ///
    /// # Errors
    /// When the store can't be used.
    pub fn known_input_into(&self, meta: &Metadata, target: &Path) -> Result<bool> {
        if !settled(meta) {
            return Ok(false);
        }
        let _lock = self.lock(FlockOperation::LockShared)?;
        let key = index_key(meta);
        if let Some(hash) = hash_of_link(&self.dir.join(INDEX_DIR).join(&key)) {
            let len = meta.len();
            if self.has(Kept { hash, len }) {
                return self.link_into(hash, target).map(|()| true);
            }
        }
        let whole = self.dir.join(INPUTS_DIR).join(key);
        let same =
            std::fs::symlink_metadata(&whole).is_ok_and(|m| m.is_file() && m.len() == meta.len());
        Ok(same && std::fs::hard_link(whole, target).is_ok())
    }

    /// Lets later recordings have `copy`, which is whole, of the file of which `meta` tells the version. Only a shortcut: that it can't be made
    /// is no failure. It must not be changed any more.
    ///
    /// # Errors
    /// When the store can't be used.
    pub fn offer_input(&self, meta: &Metadata, copy: &Path) -> Result<()> {
        if !settled(meta) {
            return Ok(());
        }
        let _lock = self.lock(FlockOperation::LockShared)?;
        let whole = self.dir.join(INPUTS_DIR).join(index_key(meta));
        let _ = std::fs::set_permissions(copy, Permissions::from_mode(0o400));
        let _ = std::fs::hard_link(copy, whole);
        Ok(())
    }

    /// The hashes of the blocks of a file, `count` of them, of which `meta` tells the version, if somebody has [offered](Store::offer_blocks) them.
    pub fn known_blocks(&self, meta: &Metadata, count: u64) -> Option<Vec<u64>> {
        let known = || kept_blocks::read(&self.hashes_path(meta, kept_blocks::SUFFIX));
        let known = settled(meta).then(known).flatten();
        known.filter(|sums| sums.len() as u64 == count)
    }

    /// Lets later recordings know the hashes of all blocks of a file of which `meta` tells the version, and of which the store has a copy.
    ///
    /// # Errors
    /// When the store can't be used.
    pub fn offer_blocks(&self, meta: &Metadata, sums: &[u64]) -> Result<()> {
        let path = self.hashes_path(meta, kept_blocks::SUFFIX);
        if !settled(meta) || path.exists() {
            return Ok(());
        }
        let _lock = self.lock(FlockOperation::LockShared)?;
        kept_blocks::write(&path, sums).context("write", &path)
    }

    /// Ranges of a file, of which `meta` tells the version, that programs have read: offset, length, hash; those that somebody has
    /// [offered](Store::offer_ranges).
    pub fn known_ranges(&self, meta: &Metadata) -> Vec<[u64; 3]> {
        let known = || kept_blocks::read(&self.hashes_path(meta, kept_blocks::RANGES));
        let words = settled(meta).then(known).flatten().unwrap_or_default();
        words.chunks_exact(3).map(|k| [k[0], k[1], k[2]]).collect()
    }

    /// Lets later recordings know the hashes of ranges of a file of which `meta` tells the version, and of which the store has a copy.
    ///
    /// # Errors
    /// When the store can't be used.
    pub fn offer_ranges(&self, meta: &Metadata, ranges: &[[u64; 3]]) -> Result<()> {
        if !settled(meta) {
            return Ok(());
        }
        let path = self.hashes_path(meta, kept_blocks::RANGES);
        let _lock = self.lock(FlockOperation::LockShared)?;
        kept_blocks::write(&path, ranges.as_flattened()).context("write", &path)
    }

    fn hashes_path(&self, meta: &Metadata, suffix: &str) -> PathBuf {
        let name = index_key(meta) + suffix;
        self.dir.join(INPUTS_DIR).join(name)
    }

    /// Makes `target` a hard link to a content, or a copy where links can't be.
    ///
    /// # Errors
    /// [`TraceError::NoContent`] when the store doesn't have it.
    pub fn link_into(&self, hash: ContentHash, target: &Path) -> Result<()> {
        let source = self.path_of(hash);
        let linked = loop {
            match std::fs::hard_link(&source, target) {
                // Another recording put the same content in its place between the look at the name and the link: the file that was
                // found has no name any more, and link(2) says ENOENT. There are as many of these as there are recordings at most.
                Err(e) if e.kind() == io::ErrorKind::NotFound && source.exists() => {
                    if !target.parent().is_some_and(Path::exists) {
                        break Err(e);
                    }
                }
                done => break done,
            }
        };
        match linked {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !source.exists() => {
                Err(TraceError::NoContent {
                    hash: hash.to_hex(),
                    store: self.dir.clone(),
                })
            }
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EXDEV | libc::EMLINK | libc::EPERM | libc::EOPNOTSUPP)
                ) =>
            {
                self.copy_out(&source, target)
            }
            other => other.context("link", target),
        }
    }

    /// Removes contents that no trace links, and what crashes left behind. None when a recording is just using the store; the next one does it.
    pub fn gc(&self) -> Result<Option<Collected>> {
        let _lock = match self.lock(FlockOperation::NonBlockingLockExclusive) {
            Err(TraceError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                return Ok(None)
            }
            other => other?,
        };
        let mut collected = Collected::default();
        let inputs = self.dir.join(INPUTS_DIR);
        for dir in [&self.dir, &inputs] {
            for entry in std::fs::read_dir(dir).context("read", dir)? {
                let entry = entry.context("read", dir)?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                let meta = entry.metadata().context("read", &entry.path())?;
                if kept_blocks::copy_of(name).is_some() && !name.starts_with(TEMPORARY_PREFIX) {
                    continue;
                }
                let is_content = *dir == inputs || ContentHash::from_hex(name).is_some();
                let unlinked = is_content && meta.nlink() == 1;
                if meta.is_file() && (unlinked || name.starts_with(TEMPORARY_PREFIX)) {
                    std::fs::remove_file(entry.path()).context("remove", &entry.path())?;
                    collected.files += 1;
                    collected.bytes += meta.len();
                }
            }
        }
        self.prune_index()?;
        self.prune_blocks()?;
        Ok(Some(collected))
    }

    /// Removes hashes of blocks and ranges of which there is no copy any more.
    fn prune_blocks(&self) -> Result<()> {
        let inputs = self.dir.join(INPUTS_DIR);
        for entry in std::fs::read_dir(&inputs).context("read", &inputs)? {
            let name = entry.context("read", &inputs)?.file_name();
            let Some(key) = name.to_str().and_then(kept_blocks::copy_of) else {
                continue;
            };
            let index = self.dir.join(INDEX_DIR).join(key);
            if !inputs.join(key).exists() && hash_of_link(&index).is_none() {
                let path = inputs.join(&name);
                std::fs::remove_file(&path).context("remove", &path)?;
            }
        }
        Ok(())
    }

    fn prune_index(&self) -> Result<()> {
        let index = self.dir.join(INDEX_DIR);
        let entries: Vec<_> = std::fs::read_dir(&index)
            .context("read", &index)?
            .flatten()
            .collect();
        let too_many = entries.len() > MAX_INDEX_ENTRIES;
        for entry in entries {
            let lives = hash_of_link(&entry.path()).is_some_and(|hash| self.path_of(hash).exists());
            if too_many || !lives {
                std::fs::remove_file(entry.path()).context("remove", &entry.path())?;
            }
        }
        Ok(())
    }

    fn keep_locked(&self, file: &File, path_hint: &Path) -> Result<Kept> {
        let meta = file.metadata().context("read", path_hint)?;
        if !meta.is_file() {
            return Err(TraceError::NotAFile {
                path: path_hint.into(),
            });
        }
        let key = self.dir.join(INDEX_DIR).join(index_key(&meta));
        if let Some(hash) = hash_of_link(&key) {
            let kept = Kept {
                hash,
                len: meta.len(),
            };
            if self.has(kept) {
                return Ok(kept);
            }
        }
        let kept = self.import(file, path_hint)?;
        let after = file.metadata().context("read", path_hint)?;
        if kept.len == meta.len() && index_key(&after) == index_key(&meta) && settled(&meta) {
            // Only a shortcut: that it can't be made is no reason to fail.
            let _ = std::fs::remove_file(&key);
            let _ = symlink(kept.hash.to_hex(), &key);
        }
        Ok(kept)
    }

    /// Whether a content is there; damage by a crash shows in the length.
    fn has(&self, kept: Kept) -> bool {
        std::fs::symlink_metadata(self.path_of(kept.hash))
            .is_ok_and(|m| m.is_file() && m.len() == kept.len)
    }

    /// Brings a content into the store. What is hashed is what is kept, also when the file changes meanwhile.
    fn import(&self, file: &File, path_hint: &Path) -> Result<Kept> {
        let temporary = Temporary::create(&self.dir)?;
        if reflink(file, &temporary.file).is_ok() {
            let (hash, len) = ContentHash::of_file(&temporary.file).context("read", path_hint)?;
            return self.publish(temporary, Kept { hash, len });
        }
        let (hash, len) = ContentHash::of_file(file).context("read", path_hint)?;
        if self.has(Kept { hash, len }) {
            return Ok(Kept { hash, len });
        }
        let kept = copy_hashed(file, path_hint, &temporary)?;
        self.publish(temporary, kept)
    }

    fn publish(&self, temporary: Temporary, kept: Kept) -> Result<Kept> {
        if !self.has(kept) {
            temporary.publish(&self.path_of(kept.hash))?;
        }
        Ok(kept)
    }

    fn copy_out(&self, source: &Path, target: &Path) -> Result<()> {
        let file = File::open(source).context("open", source)?;
        let dir = target.parent().unwrap_or(Path::new("."));
        let temporary = Temporary::create(dir)?;
        if reflink(&file, &temporary.file).is_err() {
            copy_hashed(&file, source, &temporary)?;
        }
        temporary.publish(target)
    }

    /// Locks the store until the returned file is dropped. Each lock has an open file of its own, so that locks of one process are independent too.
    fn lock(&self, how: FlockOperation) -> Result<File> {
        let dir = File::open(&self.dir).context("open", &self.dir)?;
        match retry_on_intr(|| flock(&dir, how)) {
            Ok(()) => Ok(dir),
            // A file system without locks: only the collector must not run.
            Err(Errno::NOLCK | Errno::OPNOTSUPP) if how == FlockOperation::LockShared => Ok(dir),
            Err(e) => Err(TraceError::io("lock", &self.dir, e.into())),
        }
    }
}

/// Path of a content in a trace, whose `files/` is made when it isn't there.
fn trace_file(trace_dir: &Path, hash: ContentHash) -> Result<PathBuf> {
    let files = trace_dir.join(FILES_DIR);
    match DirBuilder::new().mode(0o700).create(&files) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(TraceError::io("create", &files, e))
        }
        _ => {}
    }
    Ok(files.join(hash.to_hex()))
}

fn index_key(meta: &Metadata) -> String {
    format!(
        "{:x}-{:x}-{:x}-{}.{}-{}.{}",
        meta.dev(),
        meta.ino(),
        meta.len(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec()
    )
}

fn hash_of_link(link: &Path) -> Option<ContentHash> {
    ContentHash::from_hex(std::fs::read_link(link).ok()?.to_str()?)
}

/// Whether the file's times are old enough to stand for its content.
pub fn settled(meta: &Metadata) -> bool {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as i64);
    meta.ctime() < now - SETTLED_SECONDS
}

/// Makes `to` share the bytes of `from`, where the file system can. What shares only a beginning counts as failed: some versions of ZFS cut off what has
/// not been written to disk, and report success (openzfs/zfs#15728).
///
/// # Errors
/// As ioctl_ficlone(2).
pub fn reflink(from: &File, to: &File) -> io::Result<()> {
    rustix::fs::ioctl_ficlone(to, from)?;
    is_whole(from, to)
}

fn is_whole(from: &File, to: &File) -> io::Result<()> {
    match to.metadata()?.len() < from.metadata()?.len() {
        false => Ok(()),
        true => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Copies a file, holes and long zeros as holes, and hashes what it writes.
fn copy_hashed(from: &File, path_hint: &Path, to: &Temporary) -> Result<Kept> {
    let expected = from.metadata().context("read", path_hint)?.len();
    let mut hasher = Hasher::for_length(expected);
    let mut written = Ok(());
    let len = each_block(from, hasher.skips_zeros(), |at, bytes| {
        hasher.block(at, bytes);
        if !is_zero(bytes) && written.is_ok() {
            written = to.file.write_all_at(bytes, at);
        }
        Ok(())
    });
    let len = len.context("read", path_hint)?;
    written
        .and_then(|()| to.file.set_len(len))
        .context("write", &to.path)?;
    match hasher.finish(len) {
        Some(hash) => Ok(Kept { hash, len }),
        // It changed its length meanwhile: the copy doesn't.
        None => {
            let (hash, len) = ContentHash::of_file(&to.file).context("read", &to.path)?;
            Ok(Kept { hash, len })
        }
    }
}

/// A file that is removed unless it is published.
struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    /// Makes one in `dir`; read-only for everyone but its maker, since contents never change.
    fn create(dir: &Path) -> Result<Temporary> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{TEMPORARY_PREFIX}{}.{n}", std::process::id()));
            match OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o400)
                .open(&path)
            {
                // Left by a process that had our number.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => {
                    return Ok(Temporary {
                        file: other.context("create", &path)?,
                        path,
                    })
                }
            }
        }
    }

    fn publish(self, target: &Path) -> Result<()> {
        std::fs::rename(&self.path, target).context("write", target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After publishing there is nothing under this name.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_not_the_whole() {
        let t = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = t.path().join(name);
            std::fs::write(&path, content).unwrap();
            File::open(path).unwrap()
        };
        let (whole, part) = (file("whole", "all of it"), file("part", "all"));
        assert!(is_whole(&whole, &whole).is_ok());
        assert!(is_whole(&whole, &part).is_err());
    }
}
