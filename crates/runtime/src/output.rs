//! Replay shows what the program wrote to its standard output and error: which descriptors these are is followed through dup and close.

use crate::capture::Call;
use crate::process::{own, FOLLOWED};
use crate::sys;
use crate::thread::session;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::session::MODE_REPLAY;
use reprise_abi::spec::Mem;
use reprise_abi::syscalls::nr;

/// In this bit of a descriptor's stream: it is closed by an exec.
const CLOSED_BY_EXEC: u8 = 0x80;

/// At the start of the first program 1 and 2 are the output; a later one begins with what its process had open.
pub fn start(first: bool) {
    let streams = &mut own().streams;
    if first {
        streams[1] = 1;
        streams[2] = 2;
        return;
    }
    for (to, from) in streams.iter_mut().zip(&session().streams) {
        *to = from.load(Relaxed);
    }
}

/// Leaves what is open behind for the program that the process becomes.
pub fn hand_over() {
    for (to, from) in session().streams.iter().zip(&own().streams) {
        let kept = if from & CLOSED_BY_EXEC != 0 { 0 } else { *from };
        to.store(kept, Relaxed);
    }
}

const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// The mark of a descriptor that was made with these open(2) flags.
fn cloexec(flags: u64) -> u8 {
    const O_CLOEXEC: u64 = 0o2000000;
    if flags & O_CLOEXEC != 0 {
        CLOSED_BY_EXEC
    } else {
        0
    }
}

/// The stream behind a descriptor, 0 when it is something else.
fn get(fd: u64) -> u8 {
    let stream = own().streams.get(fd as u32 as usize).copied().unwrap_or(0);
    stream & !CLOSED_BY_EXEC
}

fn set(fd: u64, v: u8) {
    if let Some(s) = own().streams.get_mut(fd as u32 as usize) {
        *s = v;
    }
}

/// The stream that a call writes to, 0 when it doesn't.
pub fn written_by(c: &Call) -> u8 {
    match c.nr {
        nr::WRITE | nr::WRITEV | nr::PWRITE64 => get(c.args[0]),
        _ => 0,
    }
}

/// Is this descriptor one of the program's output?
pub fn is_stream(fd: u64) -> bool {
    get(fd) != 0
}

/// In a diversion: writes what a call writes, if that goes to the output; the number of bytes.
pub fn divert(c: &Call) -> Option<i64> {
    let stream = written_by(c);
    if stream == 0 {
        return None;
    }
    let bytes = match c.mem[1] {
        Mem::IovecIn(n) => (0..c.args[n as usize].min(1024))
            .filter_map(|k| crate::guard::read::<[u64; 2]>(c.args[1] + k * 16))
            .map(|[_, len]| len)
            .sum(),
        _ => c.args[2],
    };
    emit(c, stream as u64, bytes);
    Some(bytes as i64)
}

/// Looks at a call that was made: writes in a replay what it wrote, follows what it did to descriptors.
pub fn follow(c: &Call, result: i64) {
    if sys::is_error(result) {
        return;
    }
    let a = c.args;
    match c.nr {
        nr::WRITE | nr::WRITEV | nr::PWRITE64 => {
            let stream = written_by(c);
            if stream != 0 && session().mode == MODE_REPLAY && is_shown() {
                emit(c, stream as u64, result as u64);
            }
        }
        nr::DUP => set(result as u64, get(a[0])),
        nr::DUP2 if a[0] as u32 == a[1] as u32 => {}
        nr::DUP2 => set(a[1], get(a[0])),
        nr::DUP3 => set(a[1], get(a[0]) | cloexec(a[2])),
        nr::FCNTL if a[1] == F_DUPFD => set(result as u64, get(a[0])),
        nr::FCNTL if a[1] == F_DUPFD_CLOEXEC => set(result as u64, get(a[0]) | CLOSED_BY_EXEC),
        nr::FCNTL if a[1] == F_SETFD => set(
            a[0],
            get(a[0]) | if a[2] & 1 != 0 { CLOSED_BY_EXEC } else { 0 },
        ),
        nr::CLOSE => set(a[0], 0),
        nr::CLOSE_RANGE if a[2] & CLOSE_RANGE_CLOEXEC != 0 => {
            for fd in a[0]..=a[1].min(FOLLOWED as u64 - 1) {
                set(fd, get(fd) | CLOSED_BY_EXEC);
            }
        }
        nr::CLOSE_RANGE => {
            for fd in a[0]..=a[1].min(FOLLOWED as u64 - 1) {
                set(fd, 0);
            }
        }
        nr::OPEN => set(result as u64, stream_of_path(a[0]) | cloexec(a[1])),
        nr::OPENAT => set(result as u64, stream_of_path(a[1]) | cloexec(a[2])),
        nr::SOCKET | nr::ACCEPT | nr::ACCEPT4 | nr::EPOLL_CREATE1 => set(result as u64, 0),
        _ => {}
    }
}

/// The stream that a path names, by one of the names that every Linux program can use for it.
fn stream_of_path(path: u64) -> u8 {
    const NAMES: [(&[u8], u64); 6] = [
        (b"/dev/stdout\0", 1),
        (b"/dev/stderr\0", 2),
        (b"/dev/fd/1\0", 1),
        (b"/dev/fd/2\0", 2),
        (b"/proc/self/fd/1\0", 1),
        (b"/proc/self/fd/2\0", 2),
    ];
    let mut b = [0u8; 16];
    NAMES
        .iter()
        .find(|(name, _)| {
            crate::guard::read_bytes(path, &mut b[..name.len()]) && b[..name.len()] == **name
        })
        .map_or(0, |(_, fd)| get(*fd))
}

/// Is this process's output wanted?
pub fn is_shown() -> bool {
    match session().only {
        0 => true,
        birth => crate::process::entry().birth.load(Relaxed) + 1 == birth,
    }
}

fn emit(c: &Call, to: u64, bytes: u64) {
    let mut left = bytes;
    let mut put = |mut at: u64, len: u64| {
        let mut n = len.min(left);
        left -= n;
        while n > 0 {
            let w = sys::call(nr::WRITE, &[to, at, n]);
            if w == -4 || w == -11 {
                continue;
            }
            if w <= 0 {
                return;
            }
            at += w as u64;
            n -= w as u64;
        }
    };
    match c.mem[1] {
        Mem::IovecIn(n) => {
            for k in 0..c.args[n as usize].min(1024) {
                if let Some([base, len]) = crate::guard::read::<[u64; 2]>(c.args[1] + k * 16) {
                    put(base, len);
                }
            }
        }
        _ => put(c.args[1], bytes),
    }
}
