//! Calls that wait for each other's locks, queues and semaphores: flock(2), fcntl(2)'s locks, System V's semaphores and messages. They are tried in each turn, so that
//! who gets what follows from what the program's own threads do. To the kernel threads of the program share their table of files, to which fcntl(2)'s locks belong: so
//! these are one owner's, as they should be.

use super::calls::{idle, interrupted};
use super::idle::Limit;
use super::Det;
use super::{log, token, turns};
use crate::common::plain;
use crate::machine::guard;
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use crate::memory::opening::Opening;
use crate::thread::{Block, Frame};
use reprise_abi::det::question;
use reprise_abi::effect::{Effect, Timeout};
use reprise_abi::syscalls::{self, nr};

const EAGAIN: i64 = -11;
const EACCES: i64 = -13;
const ENOMSG: i64 = -42;
const IPC_NOWAIT: u64 = 0o4000;
/// Operations of one semop(2) that are tried, at most; more wait in the kernel.
const OPERATIONS: usize = 32;

/// Makes the call in turns, if it is one of these.
pub fn make(t: &mut Block, c: &mut Call, _frame: &Frame) -> Option<i64> {
    const F_SETLK: u64 = 6;
    const F_SETLKW: u64 = 7;
    const F_OFD_SETLK: u64 = 37;
    const F_OFD_SETLKW: u64 = 38;
    // struct sembuf: number, operation, flags.
    let mut operations = [[0u16; 3]; OPERATIONS];
    let mut limit = None;
    let spec = syscalls::lookup(c.nr)?;
    match (c.nr, spec.no_wait) {
        // Waits for children have threads of their own to look after.
        _ if spec.effect == Effect::AwaitsChild || c.is_told_not_to_wait() => return None,
        (_, Some(flag)) => c.local[flag.at as usize] |= flag.flag,
        (nr::FCNTL, _) => match c.args[1] as u32 as u64 {
            F_SETLKW => c.local[1] = F_SETLK,
            F_OFD_SETLKW => c.local[1] = F_OFD_SETLK,
            _ => return None,
        },
        (nr::SEMOP | nr::SEMTIMEDOP, _) => {
            let n = c.args[2] as usize;
            let all = operations.get_mut(..n).filter(|all| !all.is_empty())?;
            for (i, o) in all.iter_mut().enumerate() {
                *o = guard::read(c.args[1] + 6 * i as u64)?;
                if o[2] as u64 & IPC_NOWAIT != 0 {
                    return None;
                }
                o[2] |= IPC_NOWAIT as u16;
            }
            let timeout = match spec.timeout {
                Timeout::Timespec(n) => c.arg(n),
                _ => 0,
            };
            if timeout != 0 {
                let time = guard::read::<Timespec>(timeout)?;
                if time.sec < 0 || !(0..1_000_000_000).contains(&time.nsec) {
                    return None;
                }
                limit = Some(Limit::new(time.ns() as u64));
                c.local[3] = 0;
            }
            c.local[1] = operations.as_ptr() as u64;
        }
        _ => return None,
    }
    let mut waited = 0;
    let hash = log::ask::hash_of(t, c);
    loop {
        let mut r = EAGAIN;
        let made = log::decide(t, question::READY, |t| {
            r = plain::syscall::<Det>(t, c);
            !would_wait(c, r)
        });
        if made || limit.as_ref().is_some_and(|l| l.is_over(t, waited != 0)) {
            token::idles(false);
            return Some(log::ask::done(t, c, r, hash));
        }
        if log::signal_waits(t) {
            return Some(interrupted(t, c));
        }
        waited = idle(t);
        if waited != 0 {
            let time = Timespec::from_ns(waited as i64 * 1_000_000);
            sys::nanosleep(&time as *const Timespec as u64, 0);
        }
        turns::give_way(t);
    }
}

fn would_wait(c: &Call, r: i64) -> bool {
    match c.nr {
        nr::FCNTL => matches!(r, EAGAIN | EACCES),
        nr::MSGRCV => r == ENOMSG,
        _ => r == EAGAIN,
    }
}

/// Does this open(2) wait for another one, since it is of a pipe with a name?
pub fn opens_fifo(c: &Call) -> bool {
    const ACCESS: u64 = 3;
    const RDWR: u64 = 2;
    // O_NONBLOCK, O_PATH, O_DIRECTORY
    const NEVER_WAITS: u64 = 0o4000 | 0o10000000 | 0o200000;
    const S_IFMT: u32 = 0o170000;
    const S_IFIFO: u32 = 0o010000;
    let Some(Opening {
        dir,
        path: Some(path),
        flags: Some(flags),
    }) = Opening::of(c)
    else {
        return false;
    };
    if flags & NEVER_WAITS != 0 || flags & ACCESS == RDWR {
        return false;
    }
    // struct stat: st_mode is the lower half of its fourth word.
    let mut stat = [0u64; 18];
    let to = stat.as_mut_ptr() as u64;
    sys::newfstatat(dir, path, to, 0) == 0 && stat[3] as u32 & S_IFMT == S_IFIFO
}
