//! The signal calls of the program, answered by the runtime.

use crate::engine::Engine;
use crate::machine::guard;
use crate::memory::capture::Call;
use crate::signal::frame::{self, FpState};
use crate::signal::kernel;
use crate::thread::signals::*;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::{Relaxed, Release};
use reprise_abi::effect::{Effect, Receiver};
use reprise_abi::session::slot_state;
use reprise_abi::syscalls;

const EINVAL: i64 = -22;
const EFAULT: i64 = -14;
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// rt_sigaction(2)
pub fn sigaction<E: Engine>(t: &mut Block, c: &Call) -> i64 {
    let [signal, new, old, size, ..] = c.args;
    let r = (|| {
        if size != 8 || signal == 0 || signal > SIGNALS as u64 {
            return EINVAL;
        }
        let signal = signal as u32;
        let mut wanted = None;
        if new != 0 {
            let Some(mut a) = guard::read::<Action>(new) else {
                return EFAULT;
            };
            if bit(signal) & UNBLOCKABLE != 0 {
                return EINVAL;
            }
            a.mask &= !UNBLOCKABLE;
            wanted = Some(a);
        }
        let before = ACTIONS.get(signal);
        if let Some(a) = wanted {
            ACTIONS.set(signal, a);
            if E::LIVE {
                tell_kernel(signal);
            }
        }
        if old != 0 && !guard::write(old, &before) {
            return EFAULT;
        }
        0
    })();
    E::computed(t, c, r)
}

/// Tells the kernel what the program wants of this signal.
pub fn tell_kernel(signal: u32) {
    if bit(signal) & SYNCHRONOUS != 0 || signal == SIGCUT {
        return;
    }
    let a = ACTIONS.get(signal);
    let wanted = crate::signal::kernel::WANTED.load(Relaxed) & bit(signal) != 0;
    match a.handler {
        DEFAULT | IGNORE if !wanted => kernel::uninstall(signal, a.handler, a.flags),
        _ => kernel::install(signal, a.flags),
    }
}

/// rt_sigprocmask(2)
pub fn sigprocmask<E: Engine>(t: &mut Block, c: &Call) -> i64 {
    let [how, new, old, size, ..] = c.args;
    let before = t.mask;
    let r = (|| {
        if size != 8 {
            return EINVAL;
        }
        if new != 0 {
            let Some(m) = guard::read::<u64>(new) else {
                return EFAULT;
            };
            let m = m & !UNBLOCKABLE;
            t.mask = match how as u32 {
                0 => t.mask | m,
                1 => t.mask & !m,
                2 => m,
                _ => return EINVAL,
            };
        }
        if old != 0 && !guard::write(old, &before) {
            return EFAULT;
        }
        0
    })();
    if E::LIVE && t.mask != before {
        kernel::give_back_blocked(t);
        kernel::sync_mask(t);
    }
    E::computed(t, c, r)
}

/// sigaltstack(2)
pub fn sigaltstack<E: Engine>(t: &mut Block, c: &Call, sp: u64) -> i64 {
    let [new, old, ..] = c.args;
    let on = t.alt_stack.contains(sp);
    let mut before = t.alt_stack;
    if on {
        before.flags |= SS_ONSTACK;
    }
    let r = (|| {
        if new != 0 {
            let Some(s) = guard::read::<AltStack>(new) else {
                return EFAULT;
            };
            let mode = s.flags & !SS_AUTODISARM;
            if on {
                return EPERM;
            }
            if mode & !(SS_DISABLE | SS_ONSTACK) != 0 {
                return EINVAL;
            }
            if mode & SS_DISABLE != 0 {
                t.alt_stack = AltStack::DISABLED;
            } else if s.size < 2048 {
                return ENOMEM;
            } else {
                t.alt_stack = AltStack {
                    flags: s.flags & SS_AUTODISARM,
                    pad: 0,
                    ..s
                };
            }
        }
        if old != 0 && !guard::write(old, &before) {
            return EFAULT;
        }
        0
    })();
    E::computed(t, c, r)
}

/// rt_sigreturn(2): `to` becomes what the handler's frame says.
pub fn sigreturn<E: Engine>(t: &mut Block, c: &Call, to: &mut Frame) {
    E::computed(t, c, 0);
    if !frame::restore(t, to) {
        // A bad frame is a fault, as it is in the kernel.
        let handler = ACTIONS.get(SIGSEGV);
        let caught = handler.handler > IGNORE && t.mask & bit(SIGSEGV) == 0;
        let info = frame::forced_fault();
        to.rax = 0;
        if !caught || !frame::deliver(t, to, FpState::Live, &info, &handler, [0; 3]) {
            E::process_dies(t, SIGSEGV);
            kernel::die_now(SIGSEGV);
        }
    }
    if E::LIVE {
        kernel::sync_mask(t);
    }
}

/// Does this call send a signal?
pub fn sends_signal(n: u64) -> bool {
    matches!(syscalls::effect(n), Effect::Signals(s) if s.to != Receiver::Descriptor)
}

/// Does this call wait under a mask of its own?
#[inline]
pub fn replaces_mask(n: u64) -> bool {
    syscalls::mask(n).is_some()
}

/// Makes a call that replaces the mask while it waits (sigsuspend, ppoll, pselect6, epoll_pwait).
pub fn masked<E: Engine>(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let Some(place) = syscalls::mask(c.nr) else {
        return E::syscall(t, c, frame);
    };
    let index = place.at as usize;
    let pair = place.size.is_none();
    let mut at = c.args[index];
    let mut size = place.size.map_or(8, |i| c.arg(i));
    if !pair && size != 8 {
        // The kernel doesn't look at the mask then, and says what else is wrong first.
        return E::syscall(t, c, frame);
    }
    if pair && at != 0 {
        let Some([p, n]) = guard::read::<[u64; 2]>(at) else {
            return E::computed(t, c, EFAULT);
        };
        (at, size) = (p, n);
    }
    if at == 0 {
        return E::syscall(t, c, frame);
    }
    let Some(mask) = guard::read::<u64>(at) else {
        return E::computed(t, c, EFAULT);
    };
    if size != 8 {
        return E::computed(t, c, EINVAL);
    }
    t.saved_mask = Some(t.mask);
    t.mask = mask & !UNBLOCKABLE;
    // What the old mask kept waiting in the runtime, and the new one lets in, is not with the kernel, which would wait for it.
    if E::LIVE && t.pending.first(t.mask).is_some() {
        t.slot().signal_pending.store(1, Release);
    }
    let for_kernel = kernel::kernel_mask(t, t.mask);
    let words = [&for_kernel as *const u64 as u64, 8];
    c.mem[index] = reprise_abi::spec::Mem::None;
    c.local[index] = if pair {
        words.as_ptr() as u64
    } else {
        words[0]
    };
    // The saved mask goes into the handler's frame; without a handler the gate puts it back.
    E::syscall(t, c, frame)
}

/// At the end of a gate: the mask that a call replaced comes back when no handler took it along.
pub fn restore_mask<E: Engine>(t: &mut Block) {
    if let Some(m) = t.saved_mask.take() {
        t.mask = m;
        if E::LIVE {
            kernel::sync_mask(t);
        }
    }
}

/// The signal by which this kill, tkill, tgkill or its kin, if it succeeds, ends this process before it returns.
pub fn ends_us(t: &Block, c: &Call, pid: u32) -> Option<u32> {
    const SIGINFO_LEN: usize = 128;
    let readable = |info: u64| guard::read::<[u8; SIGINFO_LEN]>(info).is_some();
    let target = c.args[0] as i32;
    // A process is known by the ids of all its threads.
    let is_us = target == pid as i32 || target > 0 && is_our_thread(t, target as u32);
    // Only kill takes more than the id of a process: its group, or 0 for our own one.
    let Effect::Signals(sent) = c.effect else {
        return None;
    };
    let (signal, info) = (c.arg(sent.signal), sent.info.map(|n| c.arg(n)));
    let reaches_us = match sent.to {
        Receiver::Process if info.is_some() => is_us,
        Receiver::Process => is_us || target == 0 || target == -(pid as i32),
        Receiver::Thread => reaches(t, c.args[0], signal),
        Receiver::ThreadOf => target == pid as i32 && reaches(t, c.args[1], signal),
        Receiver::Descriptor => return None,
    };
    let ours = reaches_us && info.is_none_or(readable);
    if signal == 0 || signal > SIGNALS as u64 {
        return None;
    }
    // With nothing to be read the kernel sends nothing.
    if info.is_some_and(|info| guard::read::<[u8; 48]>(info).is_none()) {
        return None;
    }
    let signal = signal as u32;
    let fatal = signal == SIGKILL || ACTIONS.is_fatal(signal);
    let arrives = signal == SIGKILL || t.mask & bit(signal) == 0;
    (ours && fatal && arrives).then_some(signal)
}

/// May this kill or its kin stop this process, if it succeeds?
///
/// Whom it reaches is the kernel's business: ids of groups and of threads, descriptors. A stop of anybody costs no more than a hand-off that
/// was not needed.
pub fn may_stop_us(c: &Call) -> bool {
    let Effect::Signals(sent) = c.effect else {
        return false;
    };
    let signal = c.arg(sent.signal);
    (SIGSTOP as u64..=SIGTTOU as u64).contains(&signal)
}

/// Does a signal to a thread reach the calling one, or one that can't block it? What others block is their own business, and may be changing.
fn reaches(t: &Block, tid: u64, signal: u64) -> bool {
    let own = tid as u32 == t.slot().visible_tid.load(Relaxed);
    own || signal as u32 == SIGKILL && is_our_thread(t, tid as u32)
}

/// Is this the id of a thread of the calling thread's process?
fn is_our_thread(t: &Block, tid: u32) -> bool {
    let used = crate::thread::session().slots_used.load(Relaxed);
    (0..used).map(crate::thread::slot).any(|s| {
        s.visible_tid.load(Relaxed) == tid
            && s.process.load(Relaxed) == t.slot_process()
            && s.state.load(Relaxed) != slot_state::FREE
    })
}
