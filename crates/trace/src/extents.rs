//! Where a file has data. Holes are not read: sparse files are as large as nobody would write (a heap's file in memory, 8 GiB of which are used
//! some pages).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

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
            position: seek(file, 0, libc::SEEK_CUR).unwrap_or(0) as i64,
        }
    }

    /// The next one: where it begins and where it ends, [`u64::MAX`] when that is not known. None behind the last.
    pub fn next(&mut self) -> io::Result<Option<(u64, u64)>> {
        if self.dense {
            return Ok(None);
        }
        let start = match seek(self.file, self.at, libc::SEEK_DATA) {
            Ok(start) => start,
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && self.at == 0 => {
                self.dense = true;
                return Ok(Some((0, u64::MAX)));
            }
            Err(e) => return Err(e),
        };
        let end = match seek(self.file, start, libc::SEEK_HOLE) {
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
    let start = match seek(file, range.start, libc::SEEK_DATA) {
        Ok(start) if start < range.end => start,
        Ok(_) => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        // The file system knows no holes.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(Some(range)),
        Err(e) => return Err(e),
    };
    let end = seek(file, start, libc::SEEK_HOLE)?;
    Ok(Some(start..end.min(range.end)))
}

impl Drop for Extents<'_> {
    fn drop(&mut self) {
        let _ = seek(self.file, self.position as u64, libc::SEEK_SET);
    }
}

fn seek(file: &File, at: u64, how: i32) -> io::Result<u64> {
    // SAFETY: lseek takes integers only.
    match unsafe { libc::lseek(file.as_raw_fd(), at as i64, how) } {
        -1 => Err(io::Error::last_os_error()),
        place => Ok(place as u64),
    }
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
