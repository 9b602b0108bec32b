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
use reprise_abi::effect::{Effect, Told};

/// Is this a call that is to be made for the process as a whole?
pub fn is_for_all(c: &Call) -> bool {
    match c.effect {
        Effect::Tells(Told::ProcessId) | Effect::Limits(_) => true,
        Effect::Family => c.nargs == 0 || is_own(c.args[0]),
        _ => false,
    }
}

fn is_own(pid: u64) -> bool {
    matches!(pid as u32, 0) || pid as u32 == process::visible_pid()
}

/// Makes it, in a turn. `make`: for the calling thread.
pub fn make(t: &mut Block, c: &mut Call, make: impl FnOnce(&mut Block, &mut Call) -> i64) -> i64 {
    let Effect::Limits(l) = c.effect else {
        if c.effect == Effect::Tells(Told::ProcessId) {
            return process::visible_pid().into();
        }
        // To the first thread the process is itself, whatever ids the program knows.
        let group = if c.nargs > 1 { c.local[1] } else { 0 };
        return proxy::by_first(c.nr, &[0, group, 0, 0, 0, 0]);
    };
    let names_process = l.resource != 0;
    let own = !names_process || is_own(c.args[0]);
    if names_process && own {
        c.local[0] = 0;
    }
    let limit = if own { c.arg(l.new) } else { 0 };
    let which = c.arg(l.resource);
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
