//! Replay: the files that the program mapped, from the trace.
//!
//! A replayed program has no descriptors, so the runtime may keep some: the directory of the trace's files, and one for each file
//! that was mapped shared, or written while it was mapped, of a writable copy that the driver holds: all processes map the same.
//! A file that is only mapped privately needs no copy: its content in the trace serves. It gets one at the moment when it could
//! change, and the mappings that are there already become mappings of the copy, in every process that has some.

use crate::machine::guard;
use crate::machine::present;
use crate::machine::sys::{self, *};
use crate::memory;
use crate::memory::regions::Region;
use crate::memory::scratch;
use crate::signal::kernel;
use crate::thread::request;
use crate::thread::session;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::*};
use reprise_abi::layout::PAGE;
use reprise_abi::mapped;
use reprise_abi::session::request as requests;
use reprise_abi::session::{region_flags, MAX_SHARED_FILES};
use reprise_abi::syscalls::nr;

/// Descriptor of the trace's `files/`.
static DIRECTORY: AtomicI64 = AtomicI64::new(-1);

/// This process's descriptor plus 1 of the writable copy of a file, by the file's number.
static COPY: [AtomicI64; MAX_SHARED_FILES] = [const { AtomicI64::new(0) }; MAX_SHARED_FILES];
/// How many copies there were when this process last looked.
static SEEN: AtomicU32 = AtomicU32::new(0);

/// Says where the trace's files are.
pub fn start(directory: i64) {
    DIRECTORY.store(directory, Relaxed);
}

fn words(hash: &[u8; 16]) -> [u64; 2] {
    let w = u128::from_le_bytes(*hash);
    [w as u64, (w >> 64) as u64]
}

fn content(number: u32) -> Option<[u8; 16]> {
    let [a, b] = session().file_contents.get(number as usize)?;
    let w = (b.load(Relaxed) as u128) << 64 | a.load(Relaxed) as u128;
    (w != 0).then(|| w.to_le_bytes())
}

fn set_content(number: u32, hash: &[u8; 16]) {
    let contents = &session().file_contents;
    if let Some(c) = contents.get(number as usize).filter(|_| number != 0) {
        for (to, w) in c.iter().zip(words(hash)) {
            to.store(w, Relaxed);
        }
    }
}

/// What stands for copy `number` of parts of a file where else a content's hash does.
pub fn name_of_copy(number: u64) -> [u8; 16] {
    let [a, b] = mapped::name_of(number);
    ((b as u128) << 64 | a as u128).to_le_bytes()
}

/// The number of the copy of parts for which this stands, if it does.
fn copy_in_parts(hash: &[u8; 16]) -> Option<u64> {
    mapped::copy_of(words(hash))
}

/// Is a copy of parts as long as the file was? Of a content the hash tells.
pub fn has_length(hash: &[u8; 16], len: u64) -> bool {
    const SEEK_END: u64 = 2;
    let Some(number) = copy_in_parts(hash) else {
        return true;
    };
    let Ok(fd) = u64::try_from(open_input(number)) else {
        return false;
    };
    let found = sys::lseek(fd, 0, SEEK_END);
    sys::close(fd);
    found == len as i64
}

/// Opens a file of the trace by its content hash, or a copy of parts by its name.
fn open(hash: &[u8; 16]) -> i64 {
    if let Some(number) = copy_in_parts(hash) {
        return open_input(number);
    }
    let mut name = [0u8; 33];
    for (i, b) in hash.iter().enumerate() {
        name[2 * i] = b"0123456789abcdef"[(b >> 4) as usize];
        name[2 * i + 1] = b"0123456789abcdef"[(b & 15) as usize];
    }
    const O_CLOEXEC: u64 = 0o2000000;
    let directory = DIRECTORY.load(Relaxed) as u64;
    sys::open_at(&[directory, name.as_ptr() as u64, O_CLOEXEC])
}

/// Opens the copy of an input by its number ([`crate::memory::input_files`]).
pub fn open_input(number: u64) -> i64 {
    const O_CLOEXEC: u64 = 0o2000000;
    let mut name = [0u8; 32];
    let mut digits = [0; 20];
    let digits = decimal(number, &mut digits);
    let prefix = reprise_abi::inputs::FILE_PREFIX.as_bytes();
    name[..prefix.len()].copy_from_slice(prefix);
    name[prefix.len()..prefix.len() + digits.len()].copy_from_slice(digits);
    let directory = DIRECTORY.load(Relaxed) as u64;
    sys::open_at(&[directory, name.as_ptr() as u64, O_CLOEXEC])
}

/// This process's descriptor of the writable copy of a file, if the file has one.
fn copy_of(number: u32) -> Option<u64> {
    let i = number as usize;
    let mine = COPY.get(i).filter(|_| number != 0)?;
    let fd = match (mine.load(Relaxed), session().shared_files[i].load(Acquire)) {
        (0, 0) => return None,
        (0, fd) => {
            let fd = u64::try_from(reach(fd as u64 - 1, number)).ok()?;
            turn_to_copy(number, fd);
            return Some(fd);
        }
        (fd, _) => fd - 1,
    };
    u64::try_from(fd).ok()
}

/// Other processes may have had copies made of files that this one has mapped privately.
#[inline]
pub fn catch_up() {
    let made = session().copies_made.load(Acquire);
    if SEEN.load(Relaxed) != made {
        catch_up_to(made);
    }
}

#[cold]
fn catch_up_to(made: u32) {
    SEEN.store(made, Relaxed);
    for number in 1..MAX_SHARED_FILES as u32 {
        let i = number as usize;
        let unknown = session().shared_files[i].load(Acquire) != 0 && COPY[i].load(Relaxed) == 0;
        if unknown && memory::map().has_file(number) {
            copy_of(number);
        }
    }
}

/// Opens a copy that the driver holds.
fn reach(fd: u64, number: u32) -> i64 {
    const O_RDWR_CLOEXEC: u64 = 0o2000002;
    let mut path = [0u8; 48];
    let mut n = 0;
    let mut put = |bytes: &[u8]| {
        path[n..n + bytes.len()].copy_from_slice(bytes);
        n += bytes.len();
    };
    let (mut a, mut b) = ([0; 20], [0; 20]);
    put(b"/proc/");
    put(decimal(session().agent_pid.load(Relaxed) as u64, &mut a));
    put(b"/fd/");
    put(decimal(fd, &mut b));
    const AT_FDCWD: i64 = -100;
    let args = [AT_FDCWD as u64, path.as_ptr() as u64, O_RDWR_CLOEXEC];
    let mine = sys::open_at(&args);
    if mine >= 0 {
        COPY[number as usize].store(mine + 1, Relaxed);
    }
    mine
}

fn decimal(mut n: u64, out: &mut [u8; 20]) -> &[u8] {
    let mut at = out.len();
    loop {
        at -= 1;
        out[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &out[at..];
        }
    }
}

/// Has the driver make room for a writable copy, the same one for all who map the file; `len` bytes of zeros.
fn make_room(number: u32, len: u64) -> i64 {
    if number == 0 || number as usize >= MAX_SHARED_FILES {
        // Nobody will ask for it again.
        let fd = sys::memfd_create(c"shared".as_ptr() as u64, 1);
        sys::ftruncate(fd as u64, len);
        return fd;
    }
    match request::ask(requests::SHARE_FILE, &[number as u64, len]) {
        Some((0, answer)) => {
            let fd = reach(answer[0], number);
            SEEN.store(session().copies_made.load(Acquire), Relaxed);
            fd
        }
        _ => -5,
    }
}

/// Makes a writable copy of a content.
fn make_copy(hash: &[u8; 16], number: u32) -> i64 {
    let to = make_room(number, 0);
    if to >= 0 {
        if !refill(to as u64, hash) {
            return -2;
        }
        // Only now: pages that the program has written are put on top of what is there.
        turn_to_copy(number, to as u64);
    }
    to
}

/// Gives a copy the content that the trace has under this hash. It is never emptied meanwhile: that would take private pages away.
pub fn refill(to: u64, hash: &[u8; 16]) -> bool {
    // The driver's signal would cut these calls short.
    kernel::block_everything();
    let filled = refill_undisturbed(to, hash);
    kernel::block_all();
    filled
}

fn refill_undisturbed(to: u64, hash: &[u8; 16]) -> bool {
    const SEEK_SET: u64 = 0;
    const SEEK_END: u64 = 2;
    const SEEK_DATA: u64 = 3;
    const SEEK_HOLE: u64 = 4;
    const FALLOC_PUNCH_HOLE: u64 = 3;
    let from = open(hash);
    if from < 0 {
        return false;
    }
    let from = from as u64;
    let seek = |fd: u64, at: u64, how: u64| sys::lseek(fd, at, how);
    let len = seek(from, 0, SEEK_END).max(0) as u64;
    sys::ftruncate(to, len);
    let mut at = 0;
    while at < len {
        let data = match seek(from, at, SEEK_DATA) {
            // No more of it. (A file system without holes answers with the offset itself.)
            d if d < 0 => len,
            d => d as u64,
        };
        if data > at {
            sys::fallocate(to, FALLOC_PUNCH_HOLE, at, data - at);
        }
        if data == len {
            break;
        }
        let end = match seek(from, data, SEEK_HOLE) {
            e if e < 0 => len,
            e => e as u64,
        };
        seek(from, data, SEEK_SET);
        seek(to, data, SEEK_SET);
        let mut left = end - data;
        while left > 0 {
            let n = sys::sendfile(to, from, 0, left.min(1 << 30));
            if n <= 0 {
                break;
            }
            left -= n as u64;
        }
        at = end;
    }
    sys::close(from);
    true
}

/// The copy has this content from now on.
pub fn renew(number: u32, to: u64, hash: &[u8; 16]) {
    refill(to, hash);
    if content(number).is_some_and(|c| copy_in_parts(&c).is_some()) {
        set_content(number, hash);
    }
}

/// The writable copy of a file that is mapped; it is made when there is none.
pub fn copy(number: u32) -> Option<u64> {
    if let Some(fd) = copy_of(number) {
        return Some(fd);
    }
    u64::try_from(make_copy(&content(number)?, number)).ok()
}

/// The copy of a System V segment, which begins as zeros when nothing of it is attached.
pub fn segment(number: u32, len: u64, live: bool) -> Option<u64> {
    let Some(fd) = copy_of(number) else {
        return u64::try_from(make_room(number, len)).ok();
    };
    if !live {
        sys::ftruncate(fd, 0);
        sys::ftruncate(fd, len);
    }
    Some(fd)
}

/// Maps a file of the trace where it was mapped; `args` are those of mmap(2).
pub fn map(hash: &[u8; 16], number: u32, at: u64, args: &[u64; 6], flags: u64) -> i64 {
    let map = |fd: i64| sys::mmap(at, args[1], args[2], flags, fd as u64, args[5]);
    let live = memory::map().has_file(number);
    // Mappings that are there show the file as it is now, also when somebody else changed it.
    let before = content(number);
    let changed = live && before.is_some_and(|c| c != *hash);
    // A copy that was made of parts has no more than these.
    let becomes_whole = changed && before.is_some_and(|c| copy_in_parts(&c).is_some());
    set_content(number, hash);
    if let Some(fd) = copy_of(number) {
        // Nothing here shows it: others may have changed it while nobody of the session looked.
        if !live || becomes_whole {
            refill(fd, hash);
        }
        return map(fd as i64);
    }
    // Nobody writes to memory that shows a file of which there are parts only.
    let shared = flags & MAP_SHARED != 0 && copy_in_parts(hash).is_none();
    if shared || changed {
        let fd = make_copy(hash, number);
        return if fd < 0 { fd } else { map(fd) };
    }
    let fd = open(hash);
    if fd < 0 {
        return fd;
    }
    let r = map(fd);
    sys::close(fd as u64);
    r
}

/// The file's mappings that showed the trace's file become mappings of the copy: private ones, and those of copies of parts, which nobody can write to.
fn turn_to_copy(number: u32, fd: u64) {
    if number == 0 {
        return;
    }
    let map = memory::map();
    for i in 0..map.regions().len() {
        let r = map.regions()[i];
        let turned = match r.flags & (region_flags::SHARED | region_flags::FILE) {
            _ if r.file != number => true,
            region_flags::SHARED => true,
            kind if kind & region_flags::SHARED != 0 => show(&r, fd),
            _ => remap(&r, fd),
        };
        if !turned {
            crate::thread::panic::give_up("a mapping can't be turned to the copy of its file");
        }
    }
}

/// Maps `fd` in the place of a mapping to which nobody has written.
fn show(r: &Region, fd: u64) -> bool {
    let (len, flags) = (r.end - r.start, MAP_SHARED | MAP_FIXED | MAP_NORESERVE);
    let args = [r.start, len, r.prot as u64, flags, fd, r.offset];
    sys::call(nr::MMAP, &args) == r.start as i64
}

/// Maps `fd` in the place of a private mapping; pages that the program has written stay as they are.
fn remap(r: &Region, fd: u64) -> bool {
    const MREMAP_MAYMOVE_FIXED: u64 = 3;
    let len = r.end - r.start;
    // The old mapping moves out of the way.
    let Some(aside) = scratch::arena(len) else {
        return false;
    };
    let moved = sys::mremap(r.start, len, len, MREMAP_MAYMOVE_FIXED, aside);
    if moved != aside as i64 {
        return false;
    }
    let flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    let ok = sys::mmap(r.start, len, PROT_RW, flags, fd, r.offset) == r.start as i64;
    sys::mprotect(aside, len, PROT_RW);
    let known = present::each_written(aside, aside + len, |page| {
        let to = r.start + (page - aside);
        // SAFETY: both were just mapped; guarded, because the file may be shorter.
        let _ = guard::guarded(|| unsafe { guard::copy(to, page, PAGE as usize) });
    });
    sys::mprotect(r.start, len, r.prot as u64);
    sys::munmap(aside, len);
    ok && known
}
