//! Signals that are read from descriptors (signalfd(2)). To the kernel the reader's signals are those of its own thread-process; the program's wait with the
//! runtime ([`shared_signals`]). So while a thread looks at descriptors, in its turn, those that descriptors are for wait in the kernel, for that thread; what it has not
//! read afterwards comes back.

use super::phases::phases;
use super::{outside, shared_signals};
use crate::machine::guard;
use crate::machine::sys::{self, Timespec};
use crate::signal::kernel;
use crate::thread::signals::Siginfo;
use crate::thread::Block;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Signals that any descriptor is for.
static READ: AtomicU64 = AtomicU64::new(0);

/// In a turn: a descriptor for the signals at this address was made, or changed.
pub fn made(t: &Block, mask: u64) {
    let set = guard::read(mask).unwrap_or(0);
    READ.fetch_or(set, Relaxed);
    outside::wants(t, set);
}

/// In a turn: looks at descriptors, by `f`.
pub fn with<R>(t: &mut Block, f: impl FnOnce(&mut Block) -> R) -> R {
    let set = READ.load(Relaxed) & t.mask;
    if !phases().delivers() || set == 0 || shared_signals::is_empty() && t.pending.set() & set == 0
    {
        return f(t);
    }
    let mask = kernel::kernel_mask(t, t.mask) | set;
    let at = &mask as *const u64 as u64;
    sys::rt_sigprocmask(2, at, 0, 8);
    let me = u64::from(t.kernel_tid);
    while let Some(info) = shared_signals::take_own(t, set) {
        let at = &info as *const Siginfo as u64;
        sys::rt_tgsigqueueinfo(me, me, info.signal().into(), at);
    }
    let r = f(t);
    let none = Timespec::from_ns(0);
    loop {
        const SI_TKILL: i32 = -6;
        let mut info = Siginfo::ZERO;
        let (set, to) = (&set as *const u64 as u64, &mut info as *mut Siginfo as u64);
        let none = &none as *const Timespec as u64;
        if sys::rt_sigtimedwait(set, to, none, 8) <= 0 {
            break;
        }
        shared_signals::put(&info, (info.code() == SI_TKILL).then_some(t.slot));
    }
    kernel::sync_mask(t);
    r
}
