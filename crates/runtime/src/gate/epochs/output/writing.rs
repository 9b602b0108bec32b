//! Writing what was held, without waiting, and what is told of errors that come late.

use super::place::{poll, Kind, Place};
use super::MOST_FILES;
use crate::log::held::{How, Target};
use crate::machine::sys;
use crate::memory::capture::Call;
use core::sync::atomic::{AtomicU64, Ordering::*};
use reprise_abi::effect::Effect;
use reprise_abi::syscalls::nr;

/// Errors that the program isn't told of yet: descriptor plus 1, and the error above it.
static ERRORS: [AtomicU64; MOST_FILES] = [const { AtomicU64::new(0) }; MOST_FILES];

/// Writes as much as can be written without waiting: how much; all of it if that can't be written at all, which the program is told later.
pub(super) fn writes(target: &Target, bytes: &[u8]) -> usize {
    const EINTR: i64 = -4;
    const EAGAIN: i64 = -11;
    const EPIPE: i64 = -32;
    let mut done = 0;
    while done < bytes.len() {
        let r = write_some(target, done as u64, &bytes[done..]);
        match r {
            EINTR => {}
            EAGAIN | 0 => return done,
            EPIPE => {
                forget_signal();
                return bytes.len();
            }
            r if sys::is_error(r) => {
                keep_error(target.fd, -r as u64);
                return bytes.len();
            }
            r => done += r as usize,
        }
    }
    done
}

fn write_some(target: &Target, done: u64, bytes: &[u8]) -> i64 {
    const EAGAIN: i64 = -11;
    const EINVAL: i64 = -22;
    const EOPNOTSUPP: i64 = -95;
    const MSG_DONTWAIT: u64 = 0x40;
    const MSG_NOSIGNAL: u64 = 0x4000;
    const RWF_NOWAIT: u64 = 8;
    /// So much a pipe or a terminal takes that takes anything (PIPE_BUF).
    const AT_ONCE: usize = 4096;
    let (fd, at, len) = (target.fd, bytes.as_ptr() as u64, bytes.len() as u64);
    let kind = Place::of(fd).map(|p| p.kind);
    match (target.how, kind) {
        (How::At(offset), _) => sys::pwrite64(fd, at, len, offset + done),
        (How::Sent(flags), _) => {
            sys::sendto(fd, at, len, flags | MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0)
        }
        (_, Some(Kind::Socket)) => sys::sendto(fd, at, len, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0),
        (_, Some(Kind::Pipe | Kind::Device)) => {
            let list = [at, len];
            let (list, all) = (list.as_ptr() as u64, u64::MAX);
            match sys::pwritev2(fd, list, 1, all, all, RWF_NOWAIT) {
                EOPNOTSUPP | EINVAL => match poll(fd, 0) {
                    0 => EAGAIN,
                    _ => sys::write(fd, at, len.min(AT_ONCE as u64)),
                },
                r => r,
            }
        }
        _ => sys::write(fd, at, len),
    }
}

/// The signal that comes with an error of a pipe is for whoever writes there. It is blocked now.
fn forget_signal() {
    const SIGPIPE: u64 = 1 << 12;
    let (set, time) = (SIGPIPE, [0u64; 2]);
    sys::rt_sigtimedwait(&raw const set as u64, 0, time.as_ptr() as u64, 8);
}

fn keep_error(fd: u64, errno: u64) {
    let free = || ERRORS.iter().find(|w| w.load(Relaxed) == 0);
    if let Some(w) = error_of(fd).or_else(free) {
        w.store(errno << 32 | (fd + 1), Relaxed);
    }
}

/// Where an error of this descriptor is kept.
fn error_of(fd: u64) -> Option<&'static AtomicU64> {
    ERRORS
        .iter()
        .find(|w| u64::from(w.load(Relaxed) as u32) == fd + 1)
}

pub(super) fn has_error(fd: u64) -> bool {
    error_of(fd).is_some()
}

/// What is told to a call that writes to a descriptor, flushes or closes it: the error of what was written there before, once.
pub fn told_error(c: &Call) -> Option<i64> {
    let fd = match c.effect {
        Effect::Writes(fd, _) | Effect::Sends(fd) | Effect::Closes(fd) => c.arg(fd),
        Effect::Other if [nr::FSYNC, nr::FDATASYNC].contains(&c.nr) => c.arg(0),
        _ => return None,
    };
    error_of(fd).map(|found| -((found.swap(0, Relaxed) >> 32) as i64))
}
