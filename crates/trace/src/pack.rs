//! A whole trace in one file: a tar archive under zstd, which `zstd -d | tar x` opens too.
//!
//! The archive may come from anyone. Only plain files with exactly the names that a trace has are taken, so no name
//! in it can lead anywhere else; contents are checked against their hashes. Its last entry has the BLAKE3 hash of every other one, in the form that `b3sum
//! --check` reads: a trace's own hashes tell damage, but somebody can make two contents that have the same. (Packs from before that have no such entry.)

use crate::encrypted::{self, Keys, Recipients, Sealing};
use crate::error::Context;
use crate::hash::{is_zero, Hasher, HASH_CHUNK};
use crate::packed_input::{self, PackedInput};
use crate::ranges::Ranges;
use crate::{inputs, ContentHash, Manifest, Result, TraceError};
use crate::{FILES_DIR, MANIFEST_FILE, NAMED_FILES};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Usual ending of a packed trace's name.
pub const EXTENSION: &str = "reprise";
/// Most files in a packed trace.
pub const MAX_FILES: usize = 1 << 20;
/// Most bytes of a packed trace, unpacked.
pub const MAX_UNPACKED: u64 = 1 << 42;

/// Name of the last entry of a packed trace, which is no file of the trace.
pub const SUMS_FILE: &str = "BLAKE3SUMS";

/// What a packed trace begins with: a skippable zstd frame that says what it is.
const MAGIC: &[u8; 24] = b"\x5b\x2a\x4d\x18\x10\x00\x00\x00reprise-pack-2\r\n";
/// What one without [`SUMS_FILE`] began with.
const OLD_MAGIC: &[u8; 24] = b"\x5b\x2a\x4d\x18\x10\x00\x00\x00reprise-pack-1\r\n";
const LEVEL: i32 = 3;
/// Largest window taken when unpacking, as a power of two (level 3 uses 21).
const MAX_WINDOW_LOG: u32 = 23;

/// Whether `path` is a packed trace, or an encrypted file that may have one, by its first bytes.
pub fn is_pack(path: &Path) -> Result<bool> {
    if encrypted::is_encrypted(path)? {
        return Ok(true);
    }
    let file = File::open(path).context("open", path)?;
    let head = head(file).context("read", path)?;
    Ok(Pack::of(&head).is_some())
}

/// As much of a file as says whether it is a pack.
fn head(file: impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The two kinds of packed traces that there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pack {
    WithSums,
    WithoutSums,
}

impl Pack {
    /// Which one begins so, if it is a packed trace.
    fn of(head: &[u8]) -> Option<Pack> {
        match head {
            _ if head == MAGIC => Some(Pack::WithSums),
            _ if head == OLD_MAGIC => Some(Pack::WithoutSums),
            _ => None,
        }
    }
}

/// How a pack is made, where it is not the usual one.
#[derive(Debug, Default)]
pub struct Packing<'a> {
    /// Files of the trace that it is to lack.
    pub left_out: &'a [&'a str],
    /// Who can open it; everybody, when nobody is named.
    pub recipients: Option<&'a Recipients>,
}

/// Where a pack is written to.
enum Out {
    Plain(BufWriter<File>),
    Sealed(Sealing<BufWriter<File>>),
}

impl Write for Out {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Out::Plain(out) => out.write(buf),
            Out::Sealed(out) => out.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Plain(out) => out.flush(),
            Out::Sealed(out) => out.flush(),
        }
    }
}

impl Out {
    fn finish(self) -> io::Result<File> {
        let out = match self {
            Out::Plain(out) => out,
            Out::Sealed(out) => out.finish()?,
        };
        out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

/// The hashes of a pack's entries, as they stand in [`SUMS_FILE`].
#[derive(Default)]
struct Sums(String);

impl Sums {
    fn add(&mut self, name: &str, sum: &blake3::Hash) {
        self.0.extend([sum.to_hex().as_str(), "  ", name, "\n"]);
    }
}

/// A reader that hashes what goes through it.
struct Hashed<R>(R, blake3::Hasher);

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(buf)?;
        self.1.update(&buf[..n]);
        Ok(n)
    }
}

/// Packs the trace in `dir` into the new file `out`; returns its size in bytes.
///
/// # Errors
/// [`TraceError::Exists`] when `out` exists.
pub fn pack(dir: &Path, out: &Path) -> Result<u64> {
    pack_with(dir, out, &Packing::default())
}

/// As [`pack`], in this way.
///
/// # Errors
/// As [`pack`].
pub fn pack_with(dir: &Path, out: &Path, packing: &Packing) -> Result<u64> {
    Manifest::read(dir)?;
    if out.symlink_metadata().is_ok() {
        return Err(TraceError::Exists { path: out.into() });
    }
    let temporary = beside(out);
    let result = write_pack(dir, &temporary, packing).and_then(|size| {
        std::fs::rename(&temporary, out).context("write", out)?;
        Ok(size)
    });
    if result.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

/// How many bytes a packed trace of this size may become when nobody says otherwise: four times as many, and a gigabyte in any case.
pub fn usual_limit(packed: u64) -> u64 {
    packed.saturating_mul(4).max(1 << 30)
}

/// Unpacks the packed trace `packed`, which may become `most` bytes, into the new directory `dir`, which appears whole or not at all.
///
/// # Errors
/// [`TraceError::Exists`] when there is something in `dir`; [`TraceError::Corrupt`] when the file is damaged or hostile; [`TraceError::Limit`] when it is
/// larger.
pub fn unpack(packed: &Path, dir: &Path, most: u64) -> Result<()> {
    unpack_with(packed, dir, most, &Keys::default())
}

/// As [`unpack`], with keys for a pack that is encrypted.
///
/// # Errors
/// As [`unpack`], and as [`Keys::decrypt`].
pub fn unpack_with(packed: &Path, dir: &Path, most: u64, keys: &Keys) -> Result<()> {
    let temporary = beside(dir);
    DirBuilder::new()
        .mode(0o700)
        .create(&temporary)
        .context("create", &temporary)?;
    let result = read_pack(packed, &temporary, most, keys).and_then(|()| {
        match std::fs::rename(&temporary, dir) {
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::EEXIST | libc::ENOTEMPTY | libc::ENOTDIR)
                ) =>
            {
                Err(TraceError::Exists { path: dir.into() })
            }
            other => other.context("create", dir),
        }
    });
    if result.is_err() {
        // Made by us a moment ago, with nothing in it but what we unpacked.
        let _ = std::fs::remove_dir_all(&temporary);
    }
    result
}

/// A name beside `path` that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".tmp.{}.{n}", std::process::id()));
    path.with_file_name(name)
}

fn write_pack(dir: &Path, out: &Path, packing: &Packing) -> Result<u64> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(out)
        .context("create", out)?;
    let file = BufWriter::with_capacity(HASH_CHUNK, file);
    let mut file = match packing.recipients {
        None => Out::Plain(file),
        Some(recipients) => Out::Sealed(recipients.encrypt(file, out)?),
    };
    file.write_all(MAGIC).context("write", out)?;
    let mut zstd = zstd::stream::write::Encoder::new(file, LEVEL).context("compress for", out)?;
    zstd.include_checksum(true).context("compress for", out)?;
    let mut archive = tar::Builder::new(zstd);
    let mut sums = Sums::default();
    let is_in = |name: &String| !packing.left_out.contains(&name.as_str());
    for name in names(dir)?.into_iter().filter(is_in) {
        append(&mut archive, dir, &name, out, &mut sums)?;
    }
    if !inputs::all(dir).is_empty() {
        for (number, ranges) in inputs::referred(dir)? {
            append_input(&mut archive, dir, (number, &ranges), out, &mut sums)?;
        }
    }
    let sums = sums.0.as_bytes();
    archive
        .append(&header(SUMS_FILE, sums.len() as u64, out)?, sums)
        .context("write", out)?;
    let file = archive
        .into_inner()
        .and_then(|zstd| zstd.finish())
        .and_then(Out::finish)
        .context("write", out)?;
    Ok(file.metadata().context("read", out)?.len())
}

/// The files of the trace in `dir`, the manifest first.
fn names(dir: &Path) -> Result<Vec<String>> {
    let fixed = NAMED_FILES.map(String::from);
    let mut names: Vec<String> = fixed.into_iter().filter(|n| dir.join(n).exists()).collect();
    let entries = std::fs::read_dir(dir).context("read", dir)?.flatten();
    let mut images: Vec<u64> = entries
        .filter_map(|e| crate::image_number(e.file_name().to_str()?))
        .collect();
    images.sort_unstable();
    names.extend(images.into_iter().map(crate::image_name));
    let files = dir.join(FILES_DIR);
    if files.is_dir() {
        let entries = std::fs::read_dir(&files).context("read", &files)?.flatten();
        let hashes = entries.filter_map(|e| ContentHash::from_hex(e.file_name().to_str()?));
        let mut contents: Vec<String> = hashes.map(|h| format!("{FILES_DIR}/{h}")).collect();
        contents.sort();
        names.append(&mut contents);
    }
    Ok(names)
}

fn header(name: &str, len: u64, path: &Path) -> Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).context("name", path)?;
    header.set_size(len);
    header.set_mode(0o600);
    header.set_cksum();
    Ok(header)
}

fn append<W: Write>(
    archive: &mut tar::Builder<W>,
    dir: &Path,
    name: &str,
    out: &Path,
    sums: &mut Sums,
) -> Result<()> {
    let path = dir.join(name);
    let mut file = crate::opened::open(dir, name).context("open", &path)?;
    let len = file.metadata().context("read", &path)?.len();
    let mut content = Hashed((&file).take(len), blake3::Hasher::new());
    archive
        .append(&header(name, len, &path)?, &mut content)
        .context("write", out)?;
    sums.add(name, &content.1.finalize());
    match file.stream_position().context("read", &path)? == len {
        true => Ok(()),
        false => Err(TraceError::corrupt(
            &path,
            "it became shorter while it was packed",
        )),
    }
}

/// Adds what events refer to of a copy.
fn append_input<W: Write>(
    archive: &mut tar::Builder<W>,
    dir: &Path,
    (number, ranges): (u64, &Ranges),
    out: &Path,
    sums: &mut Sums,
) -> Result<()> {
    let name = format!("{FILES_DIR}/{}", inputs::name(number));
    let path = dir.join(&name);
    let input = PackedInput::open(dir, number, ranges).context("open", &path)?;
    let len = input.len();
    let mut content = Hashed(input.take(len), blake3::Hasher::new());
    archive
        .append(&header(&name, len, &path)?, &mut content)
        .context("write", out)?;
    sums.add(&name, &content.1.finalize());
    match content.0.limit() {
        0 => Ok(()),
        _ => Err(TraceError::corrupt(
            &path,
            "it is shorter than what was read of it",
        )),
    }
}

/// The bytes of a pack, out of its encryption if it has one, and which kind it is.
fn open_pack(packed: &Path, keys: &Keys) -> Result<(Pack, Box<dyn Read>)> {
    let none = |why: &str| TraceError::NotATrace {
        path: packed.into(),
        why: why.into(),
    };
    if encrypted::is_encrypted(packed)? {
        let mut inside = keys.decrypt(packed)?;
        let head = head(&mut inside).map_err(|e| TraceError::corrupt(packed, e.to_string()))?;
        let kind =
            Pack::of(&head).ok_or_else(|| none("what is encrypted in it is no packed trace"))?;
        return Ok((kind, Box::new(io::Cursor::new(head).chain(inside))));
    }
    let mut file = File::open(packed).context("open", packed)?;
    let head = head(&mut file).context("read", packed)?;
    let kind = Pack::of(&head).ok_or_else(|| none("it is no packed trace"))?;
    Ok((kind, Box::new(io::Cursor::new(head).chain(file))))
}

fn read_pack(packed: &Path, dir: &Path, most: u64, keys: &Keys) -> Result<()> {
    let most = most.min(MAX_UNPACKED);
    let corrupt = |why: String| TraceError::corrupt(packed, why);
    let (kind, bytes) = open_pack(packed, keys)?;
    let mut zstd = zstd::stream::read::Decoder::new(bytes).context("decompress", packed)?;
    zstd.window_log_max(MAX_WINDOW_LOG)
        .context("decompress", packed)?;
    let mut archive = tar::Archive::new(zstd);
    let (mut files, mut bytes) = (0, 0u64);
    let (mut sums, mut is_sealed) = (Sums::default(), false);
    // Raw: no extensions are interpreted. A trace needs none of them.
    for entry in archive
        .entries()
        .map_err(|e| corrupt(e.to_string()))?
        .raw(true)
    {
        let mut entry = entry.map_err(|e| corrupt(e.to_string()))?;
        let name = std::str::from_utf8(&entry.header().path_bytes())
            .unwrap_or("?")
            .to_string();
        let hash = name
            .strip_prefix(FILES_DIR)
            .and_then(|n| n.strip_prefix('/'))
            .and_then(ContentHash::from_hex);
        let plain = entry.header().entry_type() == tar::EntryType::Regular;
        if is_sealed {
            return Err(corrupt(format!(
                "it has an entry {name:?} behind its last one"
            )));
        }
        if plain && name == SUMS_FILE && kind == Pack::WithSums {
            let mut told = vec![0; sums.0.len()];
            let same_size = entry.size() == told.len() as u64;
            if !same_size || entry.read_exact(&mut told).is_err() || told != sums.0.as_bytes() {
                return Err(corrupt(format!(
                    "its contents are not those that its {SUMS_FILE} tells"
                )));
            }
            is_sealed = true;
            continue;
        }
        let fixed = NAMED_FILES.contains(&name.as_str()) || crate::image_number(&name).is_some();
        let input = name
            .strip_prefix(FILES_DIR)
            .and_then(|n| n.strip_prefix('/'))
            .and_then(inputs::number);
        if !plain || !(fixed || hash.is_some() || input.is_some()) {
            return Err(corrupt(format!(
                "it has an entry {name:?} that no trace has"
            )));
        }
        if files == 0 && name != MANIFEST_FILE {
            return Err(corrupt("its manifest isn't first".into()));
        }
        files += 1;
        if files > MAX_FILES || entry.size() > most - bytes {
            return Err(TraceError::Limit {
                what: "size of this trace, unpacked (--max-unpacked lets it be larger)",
                found: bytes.saturating_add(entry.size()),
                limit: most,
            });
        }
        bytes += entry.size();
        let mut content = Hashed(entry.by_ref(), blake3::Hasher::new());
        if input.is_some() {
            let unpacked = packed_input::unpack(&mut content, &dir.join(&name));
            unpacked.map_err(|e| corrupt(format!("{name}: {e}")))?;
            sums.add(&name, &content.1.finalize());
            continue;
        }
        let (found, len) = extract(&mut content, packed, &dir.join(&name))?;
        sums.add(&name, &content.1.finalize());
        if len != entry.size() || hash.is_some_and(|h| !found.tells(len, h)) {
            return Err(corrupt(format!("{name} has a wrong length or hash")));
        }
        if files == 1 {
            Manifest::read(dir)?;
        }
    }
    match files {
        0 => Err(corrupt("it is empty".into())),
        _ if kind == Pack::WithSums && !is_sealed => Err(corrupt(format!("it has no {SUMS_FILE}"))),
        // The tar ends before its zstd frame does, whose checksum is to be seen.
        _ => drain(archive.into_inner()).map_err(|e| corrupt(e.to_string())),
    }
}

fn drain(mut rest: impl Read) -> io::Result<()> {
    let mut buf = vec![0; HASH_CHUNK];
    while rest.read(&mut buf)? > 0 {}
    Ok(())
}

/// Writes an entry to `path`; returns hashes and length of what was written.
fn extract(entry: &mut impl Read, packed: &Path, path: &Path) -> Result<(Hasher, u64)> {
    if let Some(parent) = path.parent().filter(|p| !p.exists()) {
        DirBuilder::new()
            .mode(0o700)
            .create(parent)
            .context("create", parent)?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = match file {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(TraceError::corrupt(packed, "it has an entry twice"));
        }
        other => other.context("create", path)?,
    };
    let (mut hasher, mut buf, mut len) = (Hasher::of_any_age(), vec![0; HASH_CHUNK], 0);
    loop {
        let mut n = 0;
        while n < buf.len() {
            match entry.read(&mut buf[n..]) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) => return Err(TraceError::corrupt(packed, e.to_string())),
            }
        }
        hasher.block(len, &buf[..n]);
        // Zeros become holes.
        match is_zero(&buf[..n]) {
            true => file.seek(io::SeekFrom::Current(n as i64)).map(|_| ()),
            false => file.write_all(&buf[..n]),
        }
        .context("write", path)?;
        len += n as u64;
        if n < buf.len() {
            file.set_len(len).context("write", path)?;
            return Ok((hasher, len));
        }
    }
}
