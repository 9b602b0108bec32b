//! The copy of a file that was read ([`crate::inputs`]), as it is in a packed trace: only the ranges to which events refer. A head says how long the file is, and which
//! ranges follow; all words are little-endian.

use crate::hash::HASH_CHUNK;
use crate::inputs;
use crate::ranges::Ranges;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// Most ranges of one file: 16 bytes each.
const MOST_RANGES: u64 = 1 << 22;

/// Reads a copy in the packed form.
pub(crate) struct PackedInput {
    file: File,
    head: io::Cursor<Vec<u8>>,
    /// Those that are still to be read, the next one last.
    ranges: Vec<Range<u64>>,
    len: u64,
}

impl PackedInput {
    /// Copy `number` of the trace in `dir`, of which these ranges are wanted.
    ///
    /// # Errors
    /// As [`inputs::open`].
    pub fn open(dir: &Path, number: u64, ranges: &Ranges) -> io::Result<PackedInput> {
        let file = inputs::open(dir, number)?;
        let len = file.metadata()?.len();
        let mut ranges: Vec<Range<u64>> = ranges.iter().collect();
        let mut head = Vec::new();
        for word in [len, ranges.len() as u64]
            .into_iter()
            .chain(ranges.iter().flat_map(|r| [r.start, r.end]))
        {
            head.extend_from_slice(&word.to_le_bytes());
        }
        let content: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        ranges.reverse();
        Ok(PackedInput {
            file,
            len: head.len() as u64 + content,
            head: io::Cursor::new(head),
            ranges,
        })
    }

    /// Its bytes, the head included.
    pub fn len(&self) -> u64 {
        self.len
    }
}

impl Read for PackedInput {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.head.read(buf)?;
        if n > 0 || buf.is_empty() {
            return Ok(n);
        }
        while let Some(range) = self.ranges.last_mut() {
            if range.is_empty() {
                self.ranges.pop();
                continue;
            }
            let most = (range.end - range.start).min(buf.len() as u64) as usize;
            let n = self.file.read_at(&mut buf[..most], range.start)?;
            range.start += n as u64;
            return Ok(n);
        }
        Ok(0)
    }
}

/// Writes what comes in the packed form to the new file `path`.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when it has another form; and as write(2).
pub(crate) fn unpack(mut from: impl Read, path: &Path) -> io::Result<()> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    let mut word = || -> io::Result<u64> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (len, count) = (word()?, word()?);
    if len > i64::MAX as u64 || count > MOST_RANGES {
        return Err(bad("an impossible head"));
    }
    let (mut ranges, mut below) = (Vec::new(), 0);
    for _ in 0..count {
        let range = word()?..word()?;
        if range.start < below || range.end <= range.start || range.end > len {
            return Err(bad("ranges that overlap, or lie behind the file's end"));
        }
        below = range.end;
        ranges.push(range);
    }
    if let Some(parent) = path.parent().filter(|p| !p.exists()) {
        DirBuilder::new().mode(0o700).create(parent)?;
    }
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.set_len(len)?;
    let mut piece = vec![0; HASH_CHUNK];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let n = (range.end - at).min(piece.len() as u64) as usize;
            from.read_exact(&mut piece[..n])?;
            file.write_all_at(&piece[..n], at)?;
            at += n as u64;
        }
    }
    match from.read(&mut piece)? {
        0 => Ok(()),
        _ => Err(bad("more than its head tells")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FILES_DIR;

    #[test]
    fn only_what_is_referred_to_comes_back() {
        let t = tempfile::tempdir().unwrap();
        let (dir, out) = (t.path().join("trace"), t.path().join("out"));
        std::fs::create_dir_all(dir.join(FILES_DIR)).unwrap();
        let content: Vec<u8> = (0..1_000_000u32).map(|i| (i / 7) as u8 | 1).collect();
        std::fs::write(dir.join(FILES_DIR).join("input.3"), &content).unwrap();
        let mut ranges = Ranges::default();
        ranges.add(10..20);
        ranges.add(300_000..900_000);
        let mut packed = Vec::new();
        let mut input = PackedInput::open(&dir, 3, &ranges).unwrap();
        let len = input.len();
        input.read_to_end(&mut packed).unwrap();
        assert_eq!(packed.len() as u64, len);
        unpack(&packed[..], &out).unwrap();
        let found = std::fs::read(&out).unwrap();
        assert_eq!(found.len(), content.len());
        for range in ranges.iter() {
            let range = range.start as usize..range.end as usize;
            assert_eq!(found[range.clone()], content[range]);
        }
        assert_eq!(found[20..300_000], [0; 299_980]);

        // Cut off, too long, and with heads that lie.
        for end in [0, 8, 15, 40, packed.len() - 1] {
            std::fs::remove_file(&out).unwrap_or_default();
            assert!(unpack(&packed[..end], &out).is_err(), "{end}");
        }
        packed.push(0);
        std::fs::remove_file(&out).unwrap_or_default();
        assert!(unpack(&packed[..], &out).is_err());
        for (at, word) in [(0, u64::MAX), (0, 5), (8, u64::MAX), (16, 21), (24, 10)] {
            let mut lie = packed[..len as usize].to_vec();
            lie[at..at + 8].copy_from_slice(&word.to_le_bytes());
            std::fs::remove_file(&out).unwrap_or_default();
            assert!(unpack(&lie[..], &out).is_err(), "{at}: {word}");
        }
    }
}
