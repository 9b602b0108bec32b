//! What belongs to the process as a whole, while to the kernel each thread is a process: who its parent is, its group and session are the first thread's; its
//! limits are the same for all.

use super::members::slots;
use super::phases::lives;
use super::proxy;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::process;
use crate::thread::{slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::syscalls::nr;

/// Is this a call that is to be made for the process as a whole?
pub fn is_for_all(c: &Call) -> bool {
    match c.nr {
        nr::GETPID | nr::GETPPID | nr::GETPGRP | nr::SETSID | nr::SETRLIMIT | nr::PRLIMIT64 => true,
        nr::GETPGID | nr::GETSID | nr::SETPGID => is_own(c.args[0]),
        _ => false,
    }
}

fn is_own(pid: u64) -> bool {
    matches!(pid as u32, 0) || pid as u32 == process::visible_pid()
}

/// Makes it, in a turn. `make`: for the calling thread.
pub fn make(t: &mut Block, c: &mut Call, make: impl FnOnce(&mut Block, &mut Call) -> i64) -> i64 {
    let limit = match c.nr {
        nr::SETRLIMIT => c.args[1],
        nr::PRLIMIT64 if is_own(c.args[0]) => c.args[2],
        nr::PRLIMIT64 => 0,
        nr::GETPID => return process::visible_pid().into(),
        // To the first thread the process is itself, whatever ids the program knows.
        nr::GETPGID | nr::GETSID => return proxy::by_first(c.nr, &[0; 6]),
        nr::SETPGID => return proxy::by_first(c.nr, &[0, c.local[1], 0, 0, 0, 0]),
        _ => return proxy::by_first(c.nr, &c.args),
    };
    if c.nr == nr::PRLIMIT64 && is_own(c.args[0]) {
        c.local[0] = 0;
    }
    let which = if c.nr == nr::SETRLIMIT {
        c.args[0]
    } else {
        c.args[1]
    };
    let r = make(t, c);
    if r == 0 && limit != 0 {
        for s in slots().filter(|s| *s != t.slot) {
            let tid = slot(s).kernel_tid.load(Relaxed);
            if tid != 0 && (lives(s) || tid == process::kernel_pid()) {
                sys::prlimit64(tid.into(), which, limit, 0);
            }
        }
    }
    r
}
