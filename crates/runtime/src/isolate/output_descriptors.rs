//! Descriptors that lead out of the program: nothing that is written there comes back to another of its threads, so that a write is no synchronisation.
//!
//! These are the ones that the program was started with for its output and its errors, by what they lead to, and files. A pipe that the program has
//! made, or a socket, is a way to another thread: what was written to memory before the write is to be seen by who reads.

use crate::machine::sys;
use crate::memory::capture::Call;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use reprise_abi::effect::Effect;
use reprise_abi::syscalls::nr;

/// Standard output and standard error.
const STANDARD: [u64; 2] = [1, 2];

/// What a descriptor leads to: device, number there, the device that it is.
type Place = [u64; 3];

/// Where the standard ones led to when the program began.
static PLACES: [[AtomicU64; 3]; 2] = [const { [const { AtomicU64::new(0) }; 3] }; 2];

/// The program begins.
pub fn note() {
    for (fd, words) in STANDARD.into_iter().zip(&PLACES) {
        let (place, _) = look(fd).unwrap_or_default();
        let pairs = words.iter().zip(place);
        pairs.for_each(|(to, word)| to.store(word, Relaxed));
    }
}

/// What is there, and its mode.
fn look(fd: u64) -> Option<(Place, u32)> {
    // struct stat: st_dev, st_ino, st_nlink, st_mode and st_uid, st_gid, st_rdev.
    let mut stat = [0u64; 18];
    let r = sys::fstat(fd, stat.as_mut_ptr() as u64);
    (r == 0).then_some(([stat[0], stat[1], stat[5]], stat[3] as u32))
}

/// Is this a call that writes to the descriptor that is its first argument?
pub fn writes(c: &Call) -> bool {
    matches!(c.effect, Effect::Writes(..))
}

/// Is this a call by which libc asks what a stream's descriptor is, before it makes the buffer: fstat(3), isatty(3)?
pub fn asks(c: &Call) -> bool {
    const AT_EMPTY_PATH: u64 = 0x1000;
    const TCGETS: u64 = 0x5401;
    match c.nr {
        nr::FSTAT => true,
        nr::NEWFSTATAT => c.args[3] & AT_EMPTY_PATH != 0,
        nr::IOCTL => c.args[1] == TCGETS,
        _ => false,
    }
}

/// In a turn: does this descriptor lead out of the program?
pub fn lead_out(fd: u64) -> bool {
    const S_IFMT: u32 = 0o170000;
    const S_IFREG: u32 = 0o100000;
    let known = || PLACES.iter().map(|p| p.each_ref().map(|w| w.load(Relaxed)));
    match look(fd) {
        Some((_, mode)) if mode & S_IFMT == S_IFREG => true,
        // Anonymous ones have no type: they share a number.
        Some((place, mode)) => mode & S_IFMT != 0 && known().any(|p| p == place),
        None => false,
    }
}
