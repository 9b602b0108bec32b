//! Which arguments of a call mean something. libc's wrappers of calls with a variable number of them, and syscall(2) itself, hand on whatever
//! lies in the registers and on the stack: that may depend on what other threads do (which of them is the first to have a function looked up),
//! without anything depending on it.

use super::nr;
use crate::{fcntl, futex, prctl};

/// Do two calls of this number ask for the same, by the first `count` of their arguments? What a call doesn't read may be anything.
pub fn asks_alike(number: u64, one: &[u64; 6], count: usize, other: impl Fn(usize) -> u64) -> bool {
    let used = used(number, one);
    (0..count).all(|i| one[i] == other(i) || used & 1 << i == 0)
}

/// One bit per argument that the call reads, from the lowest on.
pub fn used(number: u64, args: &[u64; 6]) -> u8 {
    const ALL: u8 = 0b11_1111;
    match number {
        nr::FUTEX => of_futex(args[1]),
        nr::FCNTL => match args[1] as u32 as u64 {
            fcntl::F_GETFD
            | fcntl::F_GETFL
            | fcntl::F_GETOWN
            | fcntl::F_GETSIG
            | fcntl::F_GETLEASE
            | fcntl::F_GETPIPE_SZ
            | fcntl::F_GET_SEALS => 0b11,
            _ => 0b111,
        },
        nr::OPEN if !creates(args[1]) => 0b011,
        nr::OPENAT if !creates(args[2]) => 0b0111,
        nr::MQ_OPEN if !creates(args[1]) => 0b0011,
        nr::MREMAP if args[3] & (move_flags::FIXED | move_flags::DONTUNMAP) == 0 => 0b1111,
        nr::PRCTL => match args[0] as u32 as u64 {
            prctl::REPRISE_STRETCH_BEGINS
            | prctl::PR_SET_NAME
            | prctl::PR_GET_NAME
            | prctl::PR_SET_PDEATHSIG
            | prctl::PR_GET_PDEATHSIG
            | prctl::PR_SET_DUMPABLE
            | prctl::PR_SET_KEEPCAPS
            | prctl::PR_SET_TIMERSLACK
            | prctl::PR_SET_CHILD_SUBREAPER
            | prctl::PR_GET_CHILD_SUBREAPER
            | prctl::PR_CAPBSET_READ
            | prctl::PR_CAPBSET_DROP
            | prctl::PR_SET_SECUREBITS => 0b11,
            prctl::REPRISE_STRETCH_ENDS
            | prctl::REPRISE_STOPS
            | prctl::PR_GET_DUMPABLE
            | prctl::PR_GET_KEEPCAPS
            | prctl::PR_GET_SECCOMP
            | prctl::PR_GET_SECUREBITS
            | prctl::PR_GET_TIMERSLACK => 0b1,
            prctl::PR_SET_SECCOMP => 0b111,
            _ => 0b1_1111,
        },
        _ => ALL,
    }
}

fn of_futex(op: u64) -> u8 {
    use futex::*;
    let Some(operation) = lookup(op) else {
        return 0b11_1111;
    };
    let mut used = match operation.nr {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 | FUTEX_TRYLOCK_PI | FUTEX_UNLOCK_PI => 0b011,
        _ => 0b111,
    };
    if operation.fourth != Fourth::Unused {
        used |= 1 << 3;
    }
    if operation.second {
        used |= 1 << 4;
    }
    match operation.nr {
        FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET | FUTEX_WAKE_OP | FUTEX_CMP_REQUEUE
        | FUTEX_CMP_REQUEUE_PI => used | 1 << 5,
        _ => used,
    }
}

/// Does open(2) read its third argument?
fn creates(flags: u64) -> bool {
    const O_CREAT: u64 = 0o100;
    /// Without O_DIRECTORY, which is in it.
    const TMPFILE: u64 = 0o20_000_000;
    flags & (O_CREAT | TMPFILE) != 0
}

/// Flags of mremap(2) with which it reads its fifth argument.
mod move_flags {
    pub const FIXED: u64 = 2;
    pub const DONTUNMAP: u64 = 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_does_not_read_does_not_count() {
        let futex = |op: u32| used(nr::FUTEX, &[0, op as u64, 0, 0, 0, 0]);
        assert_eq!(futex(futex::FUTEX_WAKE), 0b111);
        assert_eq!(futex(futex::FUTEX_WAIT | futex::FUTEX_PRIVATE_FLAG), 0b1111);
        assert_eq!(futex(futex::FUTEX_WAIT_BITSET), 0b10_1111);
        assert_eq!(futex(futex::FUTEX_WAKE_BITSET), 0b10_0111);
        assert_eq!(futex(futex::FUTEX_REQUEUE), 0b1_1111);
        assert_eq!(futex(futex::FUTEX_CMP_REQUEUE), 0b11_1111);
        assert_eq!(futex(futex::FUTEX_UNLOCK_PI), 0b11);
        let open = |flags: u64| used(nr::OPENAT, &[0, 0, flags, 0, 0, 0]);
        assert_eq!(open(0), 0b111);
        assert_eq!(open(0o101), 0b11_1111);
        assert_eq!(open(0o20_200_002), 0b11_1111);
        assert_eq!(open(0o200_000), 0b111);
        assert_eq!(used(nr::FCNTL, &[0, fcntl::F_GETFD, 9, 0, 0, 0]), 0b11);
        assert_eq!(used(nr::FCNTL, &[0, fcntl::F_SETFD, 1, 0, 0, 0]), 0b111);
        assert_eq!(used(nr::WRITE, &[0; 6]), 0b11_1111);
    }
}
