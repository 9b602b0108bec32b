//! System V shared memory: attaching and detaching of segments.
//!
//! A segment is to a replay what a mapped file is: a copy that all its attachments show ([`crate::memory::files`]). What it contains when
//! nothing of it was attached before is in the event, page by page. Segments that processes outside of the recording attach
//! as well are recorded as if they were the program's alone, and a message says so.

use crate::machine::sys::{self, *};
use crate::memory::capture::Call;
use crate::memory::files;
use crate::memory::kept;
use crate::memory::{self, Region};
use crate::thread::message;
use reprise_abi::layout::PAGE;
use reprise_abi::session::region_flags;
use reprise_abi::syscalls::nr;

const EINVAL: i64 = -22;
const IPC_STAT: u64 = 2;
const SHM_RDONLY: u64 = 0o10000;
const SHM_EXEC: u64 = 0o100000;
const SHM_REMAP: u64 = 0o40000;

/// A segment that was attached.
pub struct Attached {
    /// Number in the session, shared with files.
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// Was nothing of it attached before?
    pub first: bool,
}

/// Size of a segment, and how often it is attached.
fn about(id: u64) -> Option<(u64, u64)> {
    // struct shmid64_ds: permissions of 48 bytes, then the size; the attachments are at 88.
    let mut ds = [0u64; 14];
    let r = sys::shmctl(id, IPC_STAT, ds.as_mut_ptr() as u64);
    (r == 0).then_some((ds[6], ds[11]))
}

fn protection(flags: u64) -> u64 {
    let write = if flags & SHM_RDONLY == 0 { 2 } else { 0 };
    let execute = if flags & SHM_EXEC != 0 { 4 } else { 0 };
    1 | write | execute
}

fn remember(at: u64, size: u64, number: u32, flags: u64) {
    memory::map().insert(Region {
        start: at,
        end: at + size.next_multiple_of(PAGE),
        prot: protection(flags) as u32,
        flags: region_flags::SHARED,
        ..Region::default()
    });
    memory::map().set_file(at, at + size.next_multiple_of(PAGE), number);
}

/// shmat(2), for real.
pub fn attach(c: &Call) -> Result<(i64, Attached), i64> {
    let [id, at, flags, ..] = c.args;
    let Some((size, _)) = about(id) else {
        // The kernel says why.
        // SAFETY: the program's own call.
        let r = unsafe { sys::syscall6(c.nr, c.args) };
        if !is_error(r) {
            // A segment that may be written but not read.
            sys::shmdt(r as u64);
            return Err(-13);
        }
        return Err(r);
    };
    if at != 0 && memory::is_ours(at, size) {
        return Err(EINVAL);
    }
    // SAFETY: the program's own call.
    let r = unsafe { sys::syscall6(c.nr, c.args) };
    if is_error(r) {
        return Err(r);
    }
    let number = kept::file_number(1 << 63 | id as u32 as u64);
    let first = !memory::map().has_file(number);
    if first && about(id).is_some_and(|(_, attached)| attached > 1) {
        message::note(reprise_abi::notes::SEGMENT_OF_OTHERS);
    }
    remember(r as u64, size, number, flags);
    Ok((
        r,
        Attached {
            number,
            size,
            first,
        },
    ))
}

/// The parts of the address space that one shmat(2) at `at` made, from the first on, as far as they are still there.
fn part(at: u64) -> Option<Region> {
    let first = memory::map()
        .regions()
        .iter()
        .find(|r| r.end > at && is_part(r, at))?;
    Some(*first)
}

fn is_part(r: &Region, at: u64) -> bool {
    r.file != 0
        && r.flags & (region_flags::SHARED | region_flags::FILE) == region_flags::SHARED
        && r.start.wrapping_sub(r.offset) == at
}

/// shmdt(2): the program's map forgets the attachment, and `unmap` says whether the memory goes, too.
pub fn detach(at: u64, unmap: bool) {
    let Some(first) = part(at) else { return };
    while let Some(r) = part(at).filter(|r| r.file == first.file) {
        if unmap {
            sys::munmap(r.start, r.end - r.start);
        }
        memory::map().remove(r.start, r.end);
    }
}

/// Replay: attaches the copy of a segment where it was attached. Its content follows.
pub fn attach_again(c: &Call, at: u64, number: u32, size: u64) -> bool {
    let flags = c.args[2];
    let live = memory::map().has_file(number);
    let len = size.next_multiple_of(PAGE);
    let Some(fd) = files::segment(number, len, live) else {
        return false;
    };
    if flags & SHM_REMAP == 0 && memory::map().at(at).is_some() {
        return false;
    }
    let args = [at, len, PROT_RW, MAP_SHARED | MAP_FIXED, fd, 0];
    if sys::call(nr::MMAP, &args) != at as i64 {
        return false;
    }
    remember(at, size, number, flags);
    true
}

/// Replay: the content is there; the segment gets the protection that it was attached with.
pub fn finish_attach(c: &Call, at: u64, size: u64) {
    let prot = protection(c.args[2]);
    if prot != PROT_RW {
        sys::mprotect(at, size.next_multiple_of(PAGE), prot);
    }
}
