//! The traces of a user: where they are, how they are named, which is the latest.
//!
//! The root is `$REPRISE_TRACE_DIR`, else `$XDG_DATA_HOME/reprise`, else `~/.local/share/reprise`. A trace in it is a
//! directory `<program>-<n>`, mode 0700; `latest` is a symbolic link; `.store` has the contents ([`crate::store`]), `.unpacked` packed traces that were used.

use crate::encrypted::Keys;
use crate::error::Context;
use crate::signature::{self, Signer, TRUSTED_KEYS_DIR, TRUSTED_KEYS_VARIABLE};
use crate::store::{Collected, STORE_DIR, TEMPORARY_PREFIX};
use crate::{pack, ContentHash, Manifest, Result, Store, Summary, TraceError};
use crate::{FILES_DIR, MANIFEST_FILE, NAMED_FILES};
use std::ffi::OsStr;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Once, OnceLock};
use std::time::Duration;

/// Name of the link to the latest trace.
pub const LATEST: &str = "latest";
/// Name of the directory where packed traces are unpacked to be used.
pub const UNPACKED_DIR: &str = ".unpacked";

/// Most bytes of a program's name in the name of its trace.
const MAX_NAME: usize = 64;
/// Most numbers tried for one name.
const MAX_TRIES: u64 = 100_000;
/// An unpacked trace that was not used for so long is removed.
const UNPACKED_AGE: Duration = Duration::from_secs(24 * 3600);

/// What [`allow_unpacked`] was told.
static MAX_UNPACKED: OnceLock<u64> = OnceLock::new();

/// From now on packed traces may become so many bytes, instead of [`pack::usual_limit`]. The first word counts.
pub fn allow_unpacked(bytes: u64) {
    let _ = MAX_UNPACKED.set(bytes);
}

/// What [`open_with`] was told.
static KEYS: OnceLock<Keys> = OnceLock::new();

/// From now on packed traces that are encrypted are opened with these. The first word counts.
pub fn open_with(keys: Keys) {
    let _ = KEYS.set(keys);
}

/// What [`tell_signers`] was told.
static TOLD_OF_SIGNERS: OnceLock<fn(&Signer)> = OnceLock::new();

/// From now on `tell` hears who has signed a packed trace, when one is opened for the first time.
pub fn tell_signers(tell: fn(&Signer)) {
    let _ = TOLD_OF_SIGNERS.set(tell);
}

/// The traces under one root.
#[derive(Clone, Debug)]
pub struct Catalog {
    root: PathBuf,
}

/// A trace in the catalog.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Bytes on disk that are its own: removing it frees them.
    pub own_bytes: u64,
    /// Bytes on disk that it shares with other traces.
    pub shared_bytes: u64,
    /// What it says of itself; None when that can't be read.
    pub manifest: Option<Manifest>,
    /// How the recording went; None when it did not end in order, or still runs.
    pub summary: Option<Summary>,
    /// Why the manifest can't be read.
    pub problem: Option<String>,
}

impl Entry {
    /// Whether the recording ended in order.
    pub fn complete(&self) -> bool {
        self.manifest.is_some() && self.summary.is_some()
    }
}

impl Catalog {
    /// The catalog that the environment names.
    ///
    /// # Errors
    /// [`TraceError::NoRoot`] when it names none.
    pub fn from_env() -> Result<Catalog> {
        root_from(|name| std::env::var_os(name).map(PathBuf::from))
            .map(Catalog::at)
            .ok_or(TraceError::NoRoot)
    }

    /// The catalog in this directory, which is made when it is needed.
    pub fn at(root: impl Into<PathBuf>) -> Catalog {
        Catalog { root: root.into() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its content store.
    pub fn store(&self) -> Result<Store> {
        Store::open(&self.root)
    }

    /// Makes the directory of a new trace of this program (a path or a name).
    pub fn create(&self, program: &OsStr) -> Result<PathBuf> {
        make_dirs(&self.root)?;
        let name = trace_name(program);
        let first = self.next_number(&name)?;
        for n in first..first.saturating_add(MAX_TRIES) {
            let dir = self.root.join(format!("{name}-{n}"));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.context("create", &dir).map(|()| dir),
            }
        }
        Err(TraceError::Limit {
            what: "number of traces with one name",
            found: MAX_TRIES,
            limit: MAX_TRIES,
        })
    }

    /// Makes the directory of a new trace exactly here: it must not exist, or be empty.
    pub fn create_at(dir: &Path) -> Result<PathBuf> {
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            make_dirs(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let empty = dir.is_dir()
                    && std::fs::read_dir(dir)
                        .context("read", dir)?
                        .next()
                        .is_none();
                if !empty {
                    return Err(TraceError::Exists { path: dir.into() });
                }
                let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
                std::fs::set_permissions(dir, private).context("make private", dir)?;
            }
            other => other.context("create", dir)?,
        }
        std::path::absolute(dir).context("find", dir)
    }

    /// Makes `dir` the latest trace, atomically.
    pub fn set_latest(&self, dir: &Path) -> Result<()> {
        make_dirs(&self.root)?;
        let target = match dir.strip_prefix(&self.root) {
            Ok(name) => name.to_path_buf(),
            Err(_) => std::path::absolute(dir).context("find", dir)?,
        };
        let link = self.root.join(LATEST);
        let temporary = self.root.join(format!(".{LATEST}.{}", std::process::id()));
        let _ = std::fs::remove_file(&temporary);
        symlink(&target, &temporary).context("create", &temporary)?;
        std::fs::rename(&temporary, &link).context("create", &link)
    }

    /// The directory of the latest trace.
    ///
    /// # Errors
    /// [`TraceError::NoTraces`] when there is none.
    pub fn latest(&self) -> Result<PathBuf> {
        let link = self.root.join(LATEST);
        match std::fs::read_link(&link) {
            Ok(target) if link.is_dir() => Ok(self.root.join(target)),
            Ok(_) => self.newest()?.ok_or_else(|| TraceError::NoTraces {
                root: self.root.clone(),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(TraceError::NoTraces {
                root: self.root.clone(),
            }),
            Err(e) => Err(TraceError::io("read", &link, e)),
        }
    }

    /// All traces in the root, oldest first.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = self
            .trace_dirs()?
            .into_iter()
            .map(|(_, path)| describe(path))
            .collect();
        let started = |e: &Entry| e.manifest.as_ref().map_or(0, |m| m.started);
        entries.sort_by(|a, b| {
            started(a)
                .cmp(&started(b))
                .then_with(|| a.name.cmp(&b.name))
        });
        Ok(entries)
    }

    /// The directory of the trace that the user means: a directory, a packed trace (which is unpacked), a name in the
    /// catalog, or, with None, the latest.
    ///
    /// # Errors
    /// One line that says what is wrong with it: not there, not a trace, unreadable, newer than this reprise.
    pub fn resolve(&self, what: Option<&Path>) -> Result<PathBuf> {
        let dir = match what {
            None => self.latest()?,
            Some(path) => self.locate(path)?,
        };
        if dir.is_dir() {
            Manifest::read(&dir)?;
            return Ok(dir);
        }
        self.unpacked(&dir)
    }

    /// Removes a trace, and contents that no other trace needs; returns the bytes freed. In the catalog's root also what is
    /// left of a recording that never got as far as its manifest ([`Catalog::locate`] finds it).
    ///
    /// # Errors
    /// When it is no trace, or there are files in it that are not of a trace: these are left, and named.
    pub fn remove(&self, dir: &Path) -> Result<u64> {
        // A link must not be taken for the directory it leads to.
        let dir = &dir.canonicalize().context("find", dir)?;
        let root = self
            .root
            .canonicalize()
            .unwrap_or_else(|_| self.root.clone());
        let hidden = dir
            .file_name()
            .is_none_or(|n| n.as_bytes().starts_with(b"."));
        let in_catalog = dir.is_dir() && dir.parent() == Some(&root) && !hidden;
        if !in_catalog && !dir.join(MANIFEST_FILE).exists() {
            let why = format!("it has no {MANIFEST_FILE}");
            return Err(TraceError::NotATrace {
                path: dir.into(),
                why,
            });
        }
        let link = self.root.join(LATEST);
        let was_latest = link.canonicalize().is_ok_and(|l| l == *dir);
        let own = sizes(dir).0;
        remove_trace_files(dir)?;
        if was_latest {
            match self.newest()? {
                Some(next) => self.set_latest(&next)?,
                None => remove_dangling(&link)?,
            }
        }
        // Contents are part of `own` already.
        self.gc()?;
        Ok(own)
    }

    /// Removes contents that no trace needs, and unpacked traces that were not used for a day.
    pub fn gc(&self) -> Result<Collected> {
        if let Ok(unpacked) = std::fs::read_dir(self.root.join(UNPACKED_DIR)) {
            for entry in unpacked.flatten() {
                let age = entry
                    .metadata()
                    .and_then(|m| m.modified())
                    .map(|t| t.elapsed().unwrap_or_default());
                if age.is_ok_and(|age| age > UNPACKED_AGE) {
                    remove_trace_files(&entry.path())?;
                }
            }
        }
        if !self.root.join(STORE_DIR).is_dir() {
            return Ok(Collected::default());
        }
        Ok(self.store()?.gc()?.unwrap_or_default())
    }

    /// Where this path or name of a trace leads, whatever is there.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn locate(&self, path: &Path) -> Result<PathBuf> {
        match std::fs::metadata(path) {
            Ok(_) => return Ok(path.into()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(TraceError::io("read", path, e)),
        }
        let is_name = matches!(
            path.components().collect::<Vec<_>>()[..],
            [Component::Normal(_)]
        );
        if is_name && self.root.join(path).is_dir() {
            return Ok(self.root.join(path));
        }
        Err(TraceError::NotATrace {
            path: path.into(),
            why: "there is no such file or directory".into(),
        })
    }

    /// Who has signed the packed trace `file`, if anybody has.
    ///
    /// # Errors
    /// As [`signature::signer`].
    pub fn signer(&self, file: &Path) -> Result<Option<Signer>> {
        let keys = std::env::var_os(TRUSTED_KEYS_VARIABLE).filter(|v| !v.is_empty());
        let keys = keys.map_or_else(|| self.root.join(TRUSTED_KEYS_DIR), PathBuf::from);
        signature::signer(file, &keys)
    }

    /// A directory with what is in the packed trace `file`, unpacked now or before; its signature is checked in any case.
    fn unpacked(&self, file: &Path) -> Result<PathBuf> {
        if !pack::is_pack(file)? {
            return Err(TraceError::NotATrace {
                path: file.into(),
                why: "it is a file, but no packed trace".into(),
            });
        }
        let m = std::fs::metadata(file).context("read", file)?;
        let key = unpacked_name(&m);
        let signer = self.signer(file)?;
        let parent = self.root.join(UNPACKED_DIR);
        let dir = parent.join(&key);
        make_dirs(&parent)?;
        if Manifest::read(&dir).is_err() {
            let most = MAX_UNPACKED.get().copied();
            let most = most.unwrap_or(pack::usual_limit(m.len()));
            let none = Keys::default();
            match pack::unpack_with(file, &dir, most, KEYS.get().unwrap_or(&none)) {
                // Someone else was faster.
                Err(TraceError::Exists { .. }) => {}
                other => other?,
            }
            let after = std::fs::metadata(file).context("read", file)?;
            if unpacked_name(&after) != key {
                remove_trace_files(&dir)?;
                return Err(TraceError::corrupt(
                    file,
                    "it was changed while it was unpacked",
                ));
            }
            Manifest::read(&dir)?;
        }
        if let (Some(signer), Some(tell)) = (signer, TOLD_OF_SIGNERS.get()) {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| tell(&signer));
        }
        // Says to `gc` that it was used.
        if let Ok(handle) = std::fs::File::open(&dir) {
            let _ = handle.set_modified(std::time::SystemTime::now());
        }
        Ok(dir)
    }

    fn trace_dirs(&self) -> Result<Vec<(Metadata, PathBuf)>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.context("read", &self.root)?,
        };
        let visible = entries
            .flatten()
            .filter(|e| !e.file_name().as_bytes().starts_with(b"."))
            .filter(|e| e.file_name() != TRUSTED_KEYS_DIR);
        // Metadata of the entry itself: a link is not a directory.
        let with_meta = visible.filter_map(|e| Some((e.metadata().ok()?, e.path())));
        Ok(with_meta.filter(|(m, _)| m.is_dir()).collect())
    }

    fn newest(&self) -> Result<Option<PathBuf>> {
        let dirs = self
            .trace_dirs()?
            .into_iter()
            .filter(|(_, path)| path.join(MANIFEST_FILE).exists());
        Ok(dirs
            .max_by_key(|(m, _)| (m.mtime(), m.mtime_nsec()))
            .map(|(_, path)| path))
    }

    /// One more than the highest number in use with this name.
    fn next_number(&self, name: &str) -> Result<u64> {
        let used = |entry: io::Result<std::fs::DirEntry>| {
            let file_name = entry.ok()?.file_name();
            file_name
                .to_str()?
                .strip_prefix(name)?
                .strip_prefix('-')?
                .parse::<u64>()
                .ok()
        };
        let entries = std::fs::read_dir(&self.root).context("read", &self.root)?;
        Ok(entries
            .filter_map(used)
            .max()
            .map_or(0, |n| n.saturating_add(1)))
    }
}

fn root_from(var: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let set = |name: &str| var(name).filter(|v| !v.as_os_str().is_empty());
    set("REPRISE_TRACE_DIR")
        // The XDG specification has relative paths ignored.
        .or_else(|| {
            set("XDG_DATA_HOME")
                .filter(|p| p.is_absolute())
                .map(|p| p.join("reprise"))
        })
        .or_else(|| set("HOME").map(|p| p.join(".local/share/reprise")))
}

fn make_dirs(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .context("create", dir)
}

/// The program's name, made safe as a name of a directory and for the eye.
fn trace_name(program: &OsStr) -> String {
    let base = Path::new(program)
        .file_name()
        .unwrap_or(OsStr::new("trace"));
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "._+-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = base
        .to_string_lossy()
        .chars()
        .map(safe)
        .take(MAX_NAME)
        .collect();
    let visible = name.trim_start_matches(['.', '-']);
    if visible.is_empty() {
        "trace".into()
    } else {
        visible.into()
    }
}

/// The name under which a packed trace lies unpacked: another one as soon as the file is changed.
fn unpacked_name(m: &Metadata) -> String {
    format!(
        "{:x}-{:x}-{:x}-{}-{}",
        m.dev(),
        m.ino(),
        m.len(),
        m.ctime(),
        m.ctime_nsec()
    )
}

fn describe(path: PathBuf) -> Entry {
    let (own_bytes, shared_bytes) = sizes(&path);
    let manifest = Manifest::read(&path);
    Entry {
        name: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        own_bytes,
        shared_bytes,
        problem: manifest.as_ref().err().map(ToString::to_string),
        manifest: manifest.ok(),
        summary: Summary::read(&path).ok().flatten(),
        path,
    }
}

/// Bytes on disk of a trace: its own, and those it shares. Contents count as its own when only it and the store have them.
fn sizes(dir: &Path) -> (u64, u64) {
    let (mut own, mut shared) = (0, 0);
    for dir in [dir.to_path_buf(), dir.join(FILES_DIR)] {
        for meta in std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.metadata().ok())
        {
            let bytes = meta.blocks() * 512;
            match meta.is_file() {
                true if meta.nlink() > 2 => shared += bytes,
                _ => own += bytes,
            }
        }
    }
    (own, shared)
}

/// Is this the name of a content in a trace, or of one that was being written?
fn is_content(name: &str) -> bool {
    ContentHash::from_hex(name).is_some()
        || crate::inputs::number(name).is_some()
        || name.starts_with(TEMPORARY_PREFIX)
}

/// Removes a link that leads nowhere. Another command may have removed it at the same time, or have let it lead somewhere again.
fn remove_dangling(link: &Path) -> Result<()> {
    if link.exists() {
        return Ok(());
    }
    match std::fs::remove_file(link) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.context("remove", link),
    }
}

/// Removes the files that a trace has, and the directory when nothing else is in it. The manifest goes first, so that half a trace is none.
fn remove_trace_files(dir: &Path) -> Result<()> {
    let remove = |path: &Path| match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.context("remove", path),
    };
    for name in NAMED_FILES {
        remove(&dir.join(name))?;
        remove(&dir.join(format!("{name}.tmp")))?;
    }
    for entry in std::fs::read_dir(dir).context("read", dir)?.flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let image = name.strip_suffix(".tmp").unwrap_or(name);
        if crate::image_number(image).is_some() {
            remove(&entry.path())?;
        }
    }
    let files = dir.join(FILES_DIR);
    // A link to a directory is none of ours, and what is behind it even less.
    if std::fs::symlink_metadata(&files).is_ok_and(|m| m.is_dir()) {
        for entry in std::fs::read_dir(&files).context("read", &files)?.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(is_content) {
                remove(&entry.path())?;
            }
        }
        std::fs::remove_dir(&files).context("remove", &files)?;
    }
    std::fs::remove_dir(dir).context("remove", dir)
}
