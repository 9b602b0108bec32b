//! /proc/self/maps, as the kernel tells it. The descriptor is there for as long as it is read: as with [`super::scan`], while nobody makes others.

use crate::machine::sys;

const AT_FDCWD: u64 = -100i64 as u64;
const O_CLOEXEC: u64 = 0o2_000_000;

/// The file, open.
pub struct Maps(i64);

impl Maps {
    /// Opens it. Where that fails, it reads as empty.
    pub fn open() -> Maps {
        let path = c"/proc/self/maps".as_ptr() as u64;
        Maps(sys::open_at(&[AT_FDCWD, path, O_CLOEXEC, 0]))
    }

    /// Reads on, as far as there is room at this address: how many bytes; 0 at the end.
    pub fn read(&self, to: u64, room: usize) -> usize {
        let n = sys::read(self.0 as u64, to, room as u64);
        n.max(0) as usize
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        sys::close(self.0 as u64);
    }
}
