//! Where a file has data. Holes are not read: sparse files are as large as nobody would write (a heap's file in memory, 8 GiB of which are used
//! some pages).

use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::ops::Range;

/// Walks over the stretches of a file that may hold something else than zeros.
pub(crate) struct Extents<'a> {
    file: &'a File,
    at: u64,
    /// The file system knows no holes.
    dense: bool,
    /// Where the file's own position was.
    position: i64,
}

impl<'a> Extents<'a> {
    /// Those of `file`, whose position is as before when this is dropped.
    pub fn of(file: &'a File) -> Extents<'a> {
        Extents {
            file,
            at: 0,
            dense: false,
            position: seek(file, SeekFrom::Current(0)).unwrap_or(0) as i64,
        }
    }

    /// The next one: where it begins and where it ends, [`u64::MAX`] when that is not known. None behind the last.
    pub fn next(&mut self) -> io::Result<Option<(u64, u64)>> {
        if self.dense {
            return Ok(None);
        }
        let start = match seek(self.file, SeekFrom::Data(self.at)) {
            Ok(start) => start,
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && self.at == 0 => {
                self.dense = true;
                return Ok(Some((0, u64::MAX)));
            }
            Err(e) => return Err(e),
        };
        let end = match seek(self.file, SeekFrom::Hole(start)) {
            Ok(end) => end,
            // It became shorter meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
            Err(e) => return Err(e),
        };
        self.at = end;
        Ok(Some((start, end)))
    }
}

/// The first stretch in `range` that may hold something else than zeros; none: there is only a hole. Moves the file's position.
///
/// # Errors
/// As lseek(2).
pub fn first_data(file: &File, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
    let start = match seek(file, SeekFrom::Data(range.start)) {
        Ok(start) if start < range.end => start,
        Ok(_) => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        // The file system knows no holes.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(Some(range)),
        Err(e) => return Err(e),
    };
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok(Some(start..end.min(range.end)))
}

impl Drop for Extents<'_> {
    fn drop(&mut self) {
        let _ = seek(self.file, SeekFrom::Start(self.position as u64));
    }
}

fn seek(file: &File, to: SeekFrom) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, to)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_passed_over() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 << 20).unwrap();
        file.write_all_at(b"data", 5 << 20).unwrap();
        let found = first_data(&file, 0..10 << 20).unwrap();
        // Where the file system knows no holes it is all data.
        assert!(found.is_some_and(|r| r.start <= 5 << 20 && r.end > 5 << 20));
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"data", 0).unwrap();
        assert_eq!(first_data(&file, 2..4).unwrap(), Some(2..4));
        assert_eq!(first_data(&file, 4..8).unwrap(), None);
    }
}
