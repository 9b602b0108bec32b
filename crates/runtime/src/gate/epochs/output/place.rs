//! What is behind a descriptor to which the program writes, and whether the program can be told truly that it has written there.

use super::{FILES, KINDS, MANY, MOST_FILES};
use crate::machine::sys;
use crate::memory::identity::stat_of;
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::hash;
use reprise_abi::session::is_memory_device;

pub(super) const AT_FDCWD: u64 = -100i64 as u64;

/// What is behind a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, a directory, a disk.
    File = 1,
    /// A pipe, with a name or without.
    Pipe = 2,
    /// A terminal, or another device that takes bytes.
    Device = 4,
    /// A socket.
    Socket = 8,
    /// An object of the kernel's without a name: an event counter, a timer, a set of descriptors.
    Object = 16,
    /// The null device: nobody reads it.
    Null = 32,
}

/// A file, as it is known while it is open.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) key: u64,
}

impl Place {
    pub(super) fn of(fd: u64) -> Option<Place> {
        stat_of(fd).map(Place::by)
    }

    /// The file of this name, below this directory; or the directory's own, where the name is empty.
    pub(super) fn named(dir: u64, path: u64) -> Option<Place> {
        const AT_EMPTY_PATH: u64 = 0x1000;
        let mut stat = [0u64; 18];
        let to = stat.as_mut_ptr() as u64;
        (sys::newfstatat(dir, path, to, AT_EMPTY_PATH) == 0).then(|| Place::by(stat))
    }

    fn by(stat: [u64; 18]) -> Place {
        const S_IFMT: u64 = 0o170000;
        /// Major number 1, minor number 3.
        const NULL: u64 = 0x103;
        // st_dev, st_ino, st_nlink, st_mode, .., st_rdev.
        let kind = match stat[3] as u32 as u64 & S_IFMT {
            0o100000 | 0o040000 | 0o060000 => Kind::File,
            0o010000 => Kind::Pipe,
            0o020000 if stat[5] == NULL => Kind::Null,
            0o020000 if is_memory_device(stat[3], stat[5]) => Kind::Object,
            0o020000 => Kind::Device,
            0o140000 => Kind::Socket,
            _ => Kind::Object,
        };
        let key = hash::words(0, &stat[..2]) | 1;
        Place { kind, key }
    }

    /// Is output held that somebody can see there?
    pub(super) fn is_written(self) -> bool {
        let kinds = KINDS.load(Relaxed);
        let listed = || FILES.iter().any(|f| f.load(Relaxed) == self.key);
        match self.kind {
            Kind::Null => false,
            // A watch on files.
            Kind::Object => kinds & Kind::File as u32 != 0,
            // The other end may be in the program.
            Kind::Device | Kind::Socket => kinds & self.kind as u32 != 0,
            Kind::File | Kind::Pipe => {
                kinds & self.kind as u32 != 0 && (kinds & MANY != 0 || listed())
            }
        }
    }

    pub(super) fn note(self) {
        let mut bits = self.kind as u32;
        let free = |f: &AtomicU64| f.compare_exchange(0, self.key, Relaxed, Relaxed);
        let noted = FILES
            .iter()
            .any(|f| f.load(Relaxed) == self.key || free(f).is_ok());
        if !noted {
            bits |= MANY;
        }
        KINDS.fetch_or(bits, Relaxed);
    }
}

/// Is the descriptor open for writing, without a wish that is more than that the bytes go there, and without a limit on what it writes?
pub(super) fn writes_at_ease(fd: u64, is_file: bool) -> bool {
    const O_WRONLY: u64 = 1;
    const O_RDWR: u64 = 2;
    // That it be on disk when the call returns, past the kernel's memory; and a descriptor that can't be written to.
    const O_SYNC: u64 = 0o4000000;
    const O_DSYNC: u64 = 0o10000;
    const O_DIRECT: u64 = 0o40000;
    const O_PATH: u64 = 0o10000000;
    const WISHES: u64 = O_SYNC | O_DSYNC | O_DIRECT | O_PATH;
    const RLIMIT_FSIZE: u64 = 1;
    let is_free = || limit(RLIMIT_FSIZE) == u64::MAX;
    flags_of(fd)
        .is_some_and(|flags| matches!(flags & O_ACCMODE, O_WRONLY | O_RDWR) && flags & WISHES == 0)
        && (!is_file || is_free())
}

const O_ACCMODE: u64 = 3;

/// The flags with which what is behind the descriptor is open; `None`: it isn't.
pub(super) fn flags_of(fd: u64) -> Option<u64> {
    const F_GETFL: u64 = 3;
    let flags = sys::fcntl(fd, F_GETFL);
    (!sys::is_error(flags)).then_some(flags as u64)
}

const POLLOUT: u32 = 4;

/// POLLERR, POLLHUP, POLLNVAL.
const POLLGONE: u32 = 0x38;

/// What is to be said of it as poll(2) says it, after so many ms.
pub(super) fn poll(fd: u64, ms: u64) -> u32 {
    let mut asked = [fd as u32, POLLOUT];
    sys::poll(asked.as_mut_ptr() as u64, 1, ms);
    asked[1] >> 16
}

/// Is there somebody who reads what is written there?
pub(super) fn is_read(fd: u64) -> bool {
    poll(fd, 0) & POLLGONE == 0
}

/// Is it a connection of a network, of which the other end takes a stream?
pub(super) fn is_connection(fd: u64) -> bool {
    const SOL_SOCKET: u64 = 1;
    const SO_TYPE: u64 = 3;
    const SO_DOMAIN: u64 = 39;
    const SOCK_STREAM: u32 = 1;
    const AF_INET: u32 = 2;
    const AF_INET6: u32 = 10;
    let option = |name: u64| {
        let (mut value, mut len) = (0u32, 4u32);
        let (to, to_len) = (&raw mut value as u64, &raw mut len as u64);
        let r = sys::getsockopt(fd, SOL_SOCKET, name, to, to_len);
        (!sys::is_error(r)).then_some(value)
    };
    option(SO_TYPE) == Some(SOCK_STREAM) && matches!(option(SO_DOMAIN), Some(AF_INET | AF_INET6))
}

/// Has the program itself the end of this pipe from which it is read? What was found is kept for the pipes that were looked at last.
pub(super) fn is_read_here(Place { key, .. }: Place) -> bool {
    static LOOKED_AT: [AtomicU64; MOST_FILES] = [const { AtomicU64::new(0) }; MOST_FILES];
    let known = &LOOKED_AT[key as usize / 2 % MOST_FILES];
    if known.load(Relaxed) == key {
        return false;
    }
    let is_read = reads_pipe(key);
    if !is_read {
        known.store(key, Relaxed);
    }
    is_read
}

/// The limit that counts for this resource.
fn limit(resource: u64) -> u64 {
    let mut limits = [0u64; 2];
    sys::prlimit64(0, resource, 0, limits.as_mut_ptr() as u64);
    limits[0]
}

/// Has the program a descriptor from which this pipe can be read?
fn reads_pipe(key: u64) -> bool {
    const O_WRONLY: u64 = 1;
    const RLIMIT_NOFILE: u64 = 7;
    const MOST: u64 = 4096;
    (0..limit(RLIMIT_NOFILE).min(MOST)).any(|fd| {
        flags_of(fd).is_some_and(|flags| flags & O_ACCMODE != O_WRONLY)
            && Place::of(fd).is_some_and(|p| p.kind == Kind::Pipe && p.key == key)
    })
}
