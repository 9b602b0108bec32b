//! Calls that end early, without an error, because a signal waits: a directory's list stops behind its first entry, random bytes and the zeros of a
//! memory device at a page (`filldir64` in fs/readdir.c, `get_random_bytes_user` in drivers/char/random.c, `read_iter_zero` in drivers/char/mem.c).
//!
//! Signals of our own look after threads at any time ([`super::spin`]), so how much such a call returns would follow from time alone, and with it
//! how many calls, and turns, a program needs. Each is made to its end.

use crate::machine::sys;
use crate::memory::capture::Call;
use reprise_abi::effect::{Effect, Told};
use reprise_abi::layout::PAGE;
use reprise_abi::session::is_memory_device;
use reprise_abi::syscalls::nr;

/// The call has returned `result`; what it returns in all.
#[inline]
pub fn rest(c: &Call, result: i64) -> i64 {
    match c.nr {
        nr::GETDENTS | nr::GETDENTS64 | nr::READ if result > 0 => more(c, result),
        _ if c.effect == Effect::Tells(Told::Random) && result > 0 => more(c, result),
        _ => result,
    }
}

#[cold]
fn more(c: &Call, result: i64) -> i64 {
    let a = &c.local;
    // Where the buffer is, and how long.
    let (at, len) = match c.effect {
        Effect::Tells(Told::Random) => (0, a[1]),
        _ => (1, a[2]),
    };
    let in_pages = result as u64 % PAGE == 0 && (result as u64) < len;
    let ends_early = match c.nr {
        _ if c.effect == Effect::Tells(Told::Random) => in_pages,
        nr::READ => in_pages && is_device(a[0]),
        _ => true,
    };
    let mut done = result as u64;
    while ends_early && done < len {
        let mut args = *a;
        args[at] += done;
        args[at + 1] = len - done;
        let n = sys::call(c.nr, &args);
        match n {
            n if n > 0 => done += n as u64,
            // Before the first byte of this part: the signal is dealt with when the call is over.
            EINTR | ERESTARTSYS => {}
            // The end, or no room for one more entry.
            _ => break,
        }
    }
    done as i64
}

const EINTR: i64 = -4;
const ERESTARTSYS: i64 = -512;

fn is_device(fd: u64) -> bool {
    crate::memory::identity::stat_of(fd).is_some_and(|s| is_memory_device(s[3], s[5]))
}
