//! Copies of files that a recording refers to instead of having their bytes ([`reprise_abi::inputs`]): among the contents of the trace, as `input.N`.
//! Only what was read is in them; the rest is holes.

use crate::error::Context;
use crate::hash::each_block;
use crate::ranges::Ranges;
use crate::{opened, Reader, Result, TraceError, FILES_DIR};
use reprise_abi::event::{section_len, Event, Tag, HEADER_LEN, SECTION_LEN};
use reprise_abi::inputs::{hash_of, is_reference, Reference, FILE_PREFIX, UNKNOWN_HASH};
use rustix::fs::FallocateFlags;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The name of copy `number` among a trace's contents.
pub fn name(number: u64) -> String {
    format!("{FILE_PREFIX}{number}")
}

/// The number of the copy with this name.
pub fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(FILE_PREFIX)?;
    let number = digits.parse().ok()?;
    // One name for each.
    (number > 0 && self::name(number) == name).then_some(number)
}

/// Opens copy `number` of the trace in `dir`.
///
/// # Errors
/// As [`opened::open`].
pub fn open(dir: &Path, number: u64) -> io::Result<File> {
    opened::open(dir, Path::new(FILES_DIR).join(name(number)))
}

/// Gives back the disk space of a range of a copy. The file keeps its length.
///
/// # Errors
/// When the file system can't.
pub fn punch(file: &File, range: Range<u64>) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let len = range.end - range.start;
    Ok(rustix::fs::fallocate(file, flags, range.start, len)?)
}

/// Makes a copy of a copy, holes as holes.
///
/// # Errors
/// As read(2) and write(2); when `to` exists.
pub fn duplicate(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let mut options = File::options();
    let target = options.write(true).create_new(true).mode(0o600).open(to)?;
    if crate::reflink(&source, &target).is_ok() {
        return Ok(());
    }
    let len = each_block(&source, true, |at, bytes| target.write_all_at(bytes, at))?;
    target.set_len(len)
}

/// The numbers of the copies in the trace in `dir`, in order.
pub fn all(dir: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(dir.join(FILES_DIR));
    let names = entries.into_iter().flatten().flatten();
    let mut all: Vec<u64> = names
        .filter_map(|e| number(e.file_name().to_str()?))
        .collect();
    all.sort_unstable();
    all
}

/// The references of an event.
pub fn references<'a>(event: &Event<'a>) -> impl Iterator<Item = Reference> + 'a {
    let sections = event.sections().filter(|s| is_reference(s.tag));
    sections.filter_map(|s| Reference::parse(s.bytes))
}

/// What mappings show of copies, by an event.
pub fn mapped<'a>(event: &Event<'a>) -> impl Iterator<Item = Reference> + 'a {
    let sections = event.sections().filter(|s| s.tag == Tag::Mapped);
    sections.filter_map(|s| reprise_abi::mapped::parse(s.bytes))
}

/// What the events of the trace in `dir` refer to: of each copy the ranges.
///
/// # Errors
/// When the stream can't be read.
pub fn referred(dir: &Path) -> Result<BTreeMap<u64, Ranges>> {
    let mut found: BTreeMap<u64, Ranges> = BTreeMap::new();
    let mut reader = Reader::open(dir)?;
    while let Some(event) = reader.next()? {
        let Ok(event) = Event::parse(event.bytes) else {
            continue;
        };
        for r in references(&event).chain(mapped(&event)) {
            let ranges = found.entry(r.file()).or_default();
            ranges.add(r.offset..r.offset + r.len);
        }
    }
    Ok(found)
}

/// Reads what events refer to.
pub struct Inputs {
    dir: PathBuf,
    open: HashMap<u64, File>,
}

impl Inputs {
    /// Of the trace in `dir`.
    pub fn of(dir: &Path) -> Inputs {
        Inputs {
            dir: dir.into(),
            open: HashMap::new(),
        }
    }

    /// The first bytes of what `r` refers to, at most `most`; they are compared with its hash when they are all.
    ///
    /// # Errors
    /// When the copy isn't there, or has something else.
    pub fn read(&mut self, r: &Reference, most: u64) -> Result<Vec<u8>> {
        let path = self.dir.join(FILES_DIR).join(name(r.file()));
        let file = match self.open.entry(r.file()) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => {
                e.insert(open(&self.dir, r.file()).context("open", &path)?)
            }
        };
        let len = file.metadata().context("read", &path)?.len();
        let wanted = r.len.min(most);
        if len < r.offset.saturating_add(wanted) {
            return Err(TraceError::corrupt(&path, "it is too short"));
        }
        let mut bytes = vec![0; wanted as usize];
        file.read_exact_at(&mut bytes, r.offset)
            .context("read", &path)?;
        let judged = wanted == r.len && r.hash != UNKNOWN_HASH && !r.is_inexact();
        match judged && hash_of(r.offset, &bytes) != r.hash {
            true => Err(TraceError::corrupt(
                &path,
                format!("it is not what was read at {}", r.offset),
            )),
            false => Ok(bytes),
        }
    }

    /// The event with the bytes in the place of its references, at most `most` of each; None when it has none.
    ///
    /// # Errors
    /// As [`Inputs::read`].
    pub fn expand(&mut self, event: &Event, most: u64) -> Result<Option<Vec<u8>>> {
        if !event.sections().any(|s| is_reference(s.tag)) {
            return Ok(None);
        }
        let head = HEADER_LEN + 8 * event.header.nargs as usize;
        let mut out = event.bytes()[..head].to_vec();
        for section in event.sections() {
            let read;
            let (tag, bytes) = match Reference::parse(section.bytes) {
                Some(r) if is_reference(section.tag) => {
                    read = self.read(&r, most)?;
                    let sent = section.tag == Tag::SentReference;
                    (if sent { Tag::Sent } else { Tag::Output }, &read[..])
                }
                _ => (section.tag, section.bytes),
            };
            out.extend_from_slice(&section.address.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&(tag as u32).to_le_bytes());
            out.extend_from_slice(bytes);
            let padded = section_len(bytes.len()) - SECTION_LEN - bytes.len();
            out.resize(out.len() + padded, 0);
        }
        let len = (out.len() as u32).to_le_bytes();
        out[..4].copy_from_slice(&len);
        Ok(Some(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(name(12), "input.12");
        assert_eq!(number("input.12"), Some(12));
        for bad in [
            "input.0", "input.", "input.+1", "input.01", "input.1x", "12",
        ] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }
}
