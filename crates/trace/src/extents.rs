//! Where a file has data. Holes are not read: sparse files are as large as nobody would write (a heap's file in memory, 8 GiB of which are used
//! some pages).

use std::fs::File;
use std::io;
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
