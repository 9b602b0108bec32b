//! Will a call wait? What is known of descriptors, so that the kernel needn't be asked before each call.
//!
//! All of this is belief, and a wrong one costs time and nothing else: a call that is believed prompt can lose the baton to the agent all
//! the same, and one that isn't hands it on first. So it does not matter that other processes can change what a descriptor does.

use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::process;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use reprise_abi::effect::{Effect, Position, Timeout};
use reprise_abi::spec::Blocking;
use reprise_abi::syscalls::{self, nr};

/// A pipe that is ready for writing takes this much without waiting (pipe(7)).
const PIPE_BUF: usize = 4096;
/// Descriptors of which something is believed.
const REMEMBERED: usize = 4096;

/// Nothing is believed: the kernel is asked.
const UNKNOWN: u8 = 0;
/// Calls return at once: O_NONBLOCK, or a file.
const PROMPT: u8 = 1;
/// Calls wait when there is nothing.
const WAITS: u8 = 2;

static BELIEFS: [AtomicU8; REMEMBERED] = [const { AtomicU8::new(UNKNOWN) }; REMEMBERED];

const EAGAIN: i64 = -11;
const F_GETFL: u64 = 3;
const F_SETFL: u64 = 4;
const FIONBIO: u32 = 0x5421;
const O_NONBLOCK: i64 = 0o4000;

/// The belief about a descriptor, where one can be kept: processes that share a memory have descriptors of their own.
fn belief(fd: u64) -> Option<&'static AtomicU8> {
    let b = BELIEFS.get(fd as u32 as usize)?;
    process::only_one_in_memory().then_some(b)
}

/// Forgets what is believed of these descriptors.
fn forget(first: u64, last: u64) {
    let end = (last as u32 as usize).min(REMEMBERED - 1);
    for b in BELIEFS.iter().take(end + 1).skip(first as u32 as usize) {
        b.store(UNKNOWN, Relaxed);
    }
}

/// A call is over: what it says of descriptors. `mistaken`: it was believed prompt, and wasn't.
#[inline]
pub fn learn(c: &Call, r: i64, mistaken: bool) {
    let a = &c.args;
    if let Some((first, last)) = c.closed() {
        return forget(first, last);
    }
    match c.nr {
        nr::FCNTL if a[1] as u32 as u64 == F_SETFL => forget(a[0], a[0]),
        nr::IOCTL if a[1] as u32 == FIONBIO => forget(a[0], a[0]),
        _ => {
            let Blocking::Fd(by) = c.blocking else { return };
            let fd = a[by as usize];
            let surprise = r == EAGAIN
                && BELIEFS
                    .get(fd as u32 as usize)
                    .is_some_and(|b| b.load(Relaxed) == WAITS);
            if mistaken || surprise {
                forget(fd, fd);
            }
        }
    }
}

/// Will this call return at once? Asked only when other threads could use the time.
pub fn is_prompt(c: &Call) -> bool {
    match c.blocking {
        Blocking::Never | Blocking::Rarely => true,
        Blocking::Fd(by) => is_prompt_on(c, c.args[by as usize]),
        Blocking::Always => match c.effect {
            Effect::AwaitsChild => c.is_told_not_to_wait(),
            _ => match syscalls::timeout(c.nr) {
                Timeout::Ms(ms) => c.arg(ms) as i32 == 0,
                _ => false,
            },
        },
    }
}

fn is_prompt_on(c: &Call, fd: u64) -> bool {
    const POLLIN: u64 = 1;
    const POLLOUT: u64 = 4;
    // What can be read and written at a position is a file, with few exceptions.
    if let Effect::Reads(_, Position::At(_)) | Effect::Writes(_, Position::At(_)) = c.effect {
        return true;
    }
    if c.is_told_not_to_wait() {
        return true;
    }
    let belief = belief(fd);
    match belief.map_or(UNKNOWN, |b| b.load(Relaxed)) {
        PROMPT => return true,
        WAITS => {}
        _ => {
            let flags = sys::fcntl(fd, F_GETFL);
            if sys::is_error(flags) {
                // No descriptor: nothing to wait for, and nothing to believe.
                return true;
            }
            let found = match flags & O_NONBLOCK != 0 || is_file(fd) {
                true => PROMPT,
                false => WAITS,
            };
            if let Some(b) = belief {
                b.store(found, Relaxed);
            }
            if found == PROMPT {
                return true;
            }
        }
    }
    let room = c.effect.waits_for_room();
    let events = if room { POLLOUT } else { POLLIN };
    let mut p = fd as u32 as u64 | events << 32;
    let r = sys::poll(&mut p as *mut u64 as u64, 1, 0);
    // A large write may wait in the middle even if some room is there. Small ones keep the baton, so that what
    // several threads write to one pipe is in the log in the order in which the pipe got it.
    r == 1 && (!room || c.input_len() <= PIPE_BUF)
}

/// A regular file or a device without a queue?
fn is_file(fd: u64) -> bool {
    let mut st = [0u64; 18];
    if sys::fstat(fd, st.as_mut_ptr() as u64) != 0 {
        return true;
    }
    const S_IFMT: u32 = 0o170000;
    const S_IFREG: u32 = 0o100000;
    const S_IFDIR: u32 = 0o040000;
    const S_IFBLK: u32 = 0o060000;
    let mode = st[3] as u32 & S_IFMT;
    // Memory devices (null, zero, urandom) have major number 1.
    let memory_device = mode == 0o020000 && (st[5] >> 8) & 0xfff == 1;
    matches!(mode, S_IFREG | S_IFDIR | S_IFBLK) || memory_device
}
