//! Record: whether bytes came from where a descriptor's position tells.
//!
//! Who has read `n` bytes, and finds the position that many bytes behind where it was before, knows where they came from only as long as nobody has moved it to another
//! place and back meanwhile. Reads and writes move it forward; only lseek(2) brings it back. Whose read overlaps a seek of another thread or process of the session,
//! on whatever descriptor (two descriptors of two processes may have one position), compares the bytes with the file.

use crate::machine::{guard, sys};
use crate::memory::capture;
use crate::thread::session;
use core::sync::atomic::Ordering::*;
use reprise_abi::inputs::inputs;
use reprise_abi::syscalls::nr;

/// Makes a call of which one thing is known: it may be an lseek(2).
#[inline(always)]
pub fn around(number: u64, args: &[u64; 6], make: impl FnOnce() -> i64) -> i64 {
    if number != nr::LSEEK || !goes_back(args[1] as i64, args[2]) || is_alone() {
        return make();
    }
    let all = inputs(session());
    all.seeks_begun.fetch_add(1, SeqCst);
    let r = make();
    all.seeks_ended.fetch_add(1, SeqCst);
    r
}

/// Can it lead to a place that was passed already?
fn goes_back(offset: i64, whence: u64) -> bool {
    const SEEK_CUR: u64 = 1;
    whence as u32 as u64 != SEEK_CUR || offset < 0
}

/// Nobody else in the session runs who could read meanwhile, nor begins to before the caller goes on.
fn is_alone() -> bool {
    session().live_threads.load(SeqCst) == 1
}

/// Before a read asks where its descriptor's position is.
#[derive(Clone, Copy, Default)]
pub struct Since(u64);

impl Since {
    /// This moment.
    pub fn now() -> Since {
        Since(inputs(session()).seeks_ended.load(SeqCst))
    }

    /// Was there no seek from then until now?
    pub fn is_quiet(self) -> bool {
        inputs(session()).seeks_begun.load(SeqCst) == self.0
    }
}

/// Are these the bytes of the file at `offset`, as it is now, which a read (by its number and local arguments) has brought?
#[cold]
pub fn is_from(number: u64, args: &[u64; 6], offset: u64, bytes: u64) -> bool {
    let (fd, len) = (args[0], bytes as usize);
    let (mut at, mut same) = (offset, true);
    let mut compare = |local: u64, n: usize| {
        same &= is_at(fd, at, local, n);
        at += n as u64;
    };
    match number {
        nr::READ => compare(args[1], len),
        _ => capture::iovecs(args[1], args[2], len, &mut compare),
    }
    same && at == offset + bytes
}

fn is_at(fd: u64, offset: u64, local: u64, len: usize) -> bool {
    const PIECE: usize = 4096;
    let (mut there, mut here) = ([0u8; PIECE], [0u8; PIECE]);
    (0..len).step_by(PIECE).all(|begin| {
        let n = PIECE.min(len - begin);
        let (there, here) = (&mut there[..n], &mut here[..n]);
        let (to, at) = (there.as_mut_ptr() as u64, offset + begin as u64);
        sys::pread64(fd, to, n as u64, at) == n as i64
            && guard::read_bytes(local + begin as u64, here)
            && there == here
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_lead_back() {
        const SEEK_SET: u64 = 0;
        const SEEK_END: u64 = 2;
        assert!(goes_back(0, SEEK_SET) && goes_back(100, SEEK_SET));
        assert!(goes_back(0, SEEK_END) && goes_back(-1, 1));
        // Where am I, and what is skipped.
        assert!(!goes_back(0, 1) && !goes_back(4096, 1));
    }
}
