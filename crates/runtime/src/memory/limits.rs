//! The limit of the stack. It shapes faults that come later: where the kernel lets the stack grow to. A replay sets no limits but this one, and
//! only the soft one, since a hard one could not be raised again.

use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::process;
use crate::thread::session;
use core::sync::atomic::Ordering::Relaxed;
use reprise_abi::effect::Effect;
use reprise_abi::syscalls::nr;

const RLIMIT_STACK: u64 = 3;

/// The soft and the hard limit of the calling process's stack.
pub fn of_stack() -> Option<[u64; 2]> {
    let mut limits = [0u64; 2];
    let args = [0, RLIMIT_STACK, 0, limits.as_mut_ptr() as u64];
    (sys::call(nr::PRLIMIT64, &args) == 0).then_some(limits)
}

/// Does this call set a limit of the stack?
#[inline]
pub fn sets_stack(c: &Call) -> bool {
    match c.effect {
        Effect::Limits(l) => c.arg(l.resource) as u32 as u64 == RLIMIT_STACK && c.arg(l.new) != 0,
        _ => false,
    }
}

/// Replay: does what the call did to the limit of the process's own stack, or of another recorded one's.
#[cold]
pub fn again(c: &Call) {
    let Effect::Limits(l) = c.effect else {
        return;
    };
    let names_process = l.resource != 0;
    let who = if names_process { c.args[0] as u32 } else { 0 };
    let from = c.arg(l.new);
    let pid = match who {
        0 => 0,
        pid if pid == process::visible_pid() => 0,
        pid => {
            let mut all = session().processes.iter();
            match all.find(|p| p.visible_pid.load(Relaxed) == pid) {
                Some(p) => p.kernel_pid.load(Relaxed) as u64,
                // It isn't recorded.
                None => return,
            }
        }
    };
    let Some([soft, _]) = guard::read::<[u64; 2]>(from) else {
        return;
    };
    let mut limits = [0u64; 2];
    sys::prlimit64(pid, RLIMIT_STACK, 0, limits.as_mut_ptr() as u64);
    limits[0] = soft.min(limits[1]);
    sys::prlimit64(pid, RLIMIT_STACK, limits.as_ptr() as u64, 0);
}
