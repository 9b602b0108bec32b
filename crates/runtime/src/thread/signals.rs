//! What the program believes about its signals: handlers, masks, stacks, and what waits for delivery.

use crate::machine::sys;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of the highest signal.
pub const SIGNALS: usize = 64;
/// `SIG_DFL`.
pub const DEFAULT: u64 = 0;
/// `SIG_IGN`.
pub const IGNORE: u64 = 1;

/// Signals by which the kernel reports faults of the running instruction.
pub const SYNCHRONOUS: u64 =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS);
/// The signal with which the agent asks a thread to leave its slice; no libc uses it.
pub const SIGCUT: u32 = 16;

#[allow(missing_docs)]
pub const SIGILL: u32 = 4;
#[allow(missing_docs)]
pub const SIGTRAP: u32 = 5;
#[allow(missing_docs)]
pub const SIGBUS: u32 = 7;
#[allow(missing_docs)]
pub const SIGFPE: u32 = 8;
#[allow(missing_docs)]
pub const SIGKILL: u32 = 9;
#[allow(missing_docs)]
pub const SIGSEGV: u32 = 11;
#[allow(missing_docs)]
pub const SIGSTOP: u32 = 19;
#[allow(missing_docs)]
pub const SIGTTOU: u32 = 22;
#[allow(missing_docs)]
pub const SIGSYS: u32 = 31;

#[allow(missing_docs)]
pub const SA_SIGINFO: u64 = 4;
/// `SA_NOCLDSTOP`
pub const SA_NOCLDSTOP: u64 = 1;
/// `SA_NOCLDWAIT`
pub const SA_NOCLDWAIT: u64 = 2;
#[allow(missing_docs)]
pub const SA_RESTORER: u64 = 0x0400_0000;
#[allow(missing_docs)]
pub const SA_ONSTACK: u64 = 0x0800_0000;
#[allow(missing_docs)]
pub const SA_RESTART: u64 = 0x1000_0000;
#[allow(missing_docs)]
pub const SA_NODEFER: u64 = 0x4000_0000;
#[allow(missing_docs)]
pub const SA_RESETHAND: u64 = 0x8000_0000;

/// The bit of a signal in a mask.
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// `struct sigaction` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Action {
    /// Address, [`DEFAULT`] or [`IGNORE`].
    pub handler: u64,
    /// SA_ flags.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Signals blocked while it runs.
    pub mask: u64,
}

/// An action as it is kept. Threads that set it at once race word by word, as the program would without us; under `serial` only the holder of the
/// baton does.
pub struct Kept([AtomicU64; 4]);

impl Kept {
    /// [`DEFAULT`].
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Kept {
        Kept([const { AtomicU64::new(0) }; 4])
    }

    /// The action.
    pub fn get(&self) -> Action {
        let [handler, flags, restorer, mask] = &self.0;
        Action {
            handler: handler.load(Relaxed),
            flags: flags.load(Relaxed),
            restorer: restorer.load(Relaxed),
            mask: mask.load(Relaxed),
        }
    }

    /// Changes it.
    pub fn set(&self, a: Action) {
        let words = [a.handler, a.flags, a.restorer, a.mask];
        for (kept, word) in self.0.iter().zip(words) {
            kept.store(word, Relaxed);
        }
    }
}

/// A `siginfo_t`, as bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Siginfo {
    /// si_signo, si_errno, si_code, then the union.
    pub words: [u64; 16],
}

impl Siginfo {
    /// All zero.
    pub const ZERO: Siginfo = Siginfo { words: [0; 16] };

    /// Signal number.
    pub fn signal(&self) -> u32 {
        self.words[0] as u32
    }

    /// `si_code`.
    pub fn code(&self) -> i32 {
        self.words[1] as i32
    }

    /// `si_addr` of a fault.
    pub fn address(&self) -> u64 {
        self.words[2]
    }
}

/// Sends [`SIGCUT`] to a thread of this process, with a `si_code` by which the runtime knows what it is to do; what the kernel answers.
pub fn send_own(pid: u64, tid: u32, code: i32) -> i64 {
    let mut info = Siginfo::ZERO;
    info.words[0] = SIGCUT as u64;
    info.words[1] = code as u32 as u64;
    let at = info.words.as_ptr() as u64;
    sys::rt_tgsigqueueinfo(pid, tid as u64, SIGCUT as u64, at)
}

/// `stack_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AltStack {
    /// Lowest byte.
    pub sp: u64,
    /// SS_ flags.
    pub flags: u32,
    /// Padding.
    pub pad: u32,
    /// Bytes.
    pub size: u64,
}

/// `SS_DISABLE`
pub const SS_DISABLE: u32 = 2;
/// `SS_ONSTACK`
pub const SS_ONSTACK: u32 = 1;
/// `SS_AUTODISARM`: there is no such stack while a handler runs on it.
pub const SS_AUTODISARM: u32 = 1 << 31;

impl AltStack {
    /// None.
    pub const DISABLED: AltStack = AltStack {
        sp: 0,
        flags: SS_DISABLE,
        pad: 0,
        size: 0,
    };

    /// Is this stack pointer on it? Never where the stack is gone while a handler runs on it.
    pub fn contains(&self, sp: u64) -> bool {
        self.flags & (SS_DISABLE | SS_AUTODISARM) == 0 && sp > self.sp && sp - self.sp <= self.size
    }
}

/// Most signals that can wait in the runtime for one thread. While one waits, its number is blocked in the kernel, which
/// keeps the rest: 64 is therefore enough.
pub const MAX_PENDING: usize = 64;

/// Signals that wait for a gate.
///
/// A handler adds to it while the code that it interrupted holds a reference: every access is volatile, so that the
/// compiler does not remember what it read before a call.
pub struct Pending {
    len: usize,
    list: [Siginfo; MAX_PENDING],
}

impl Pending {
    /// Nothing waits.
    pub const EMPTY: Pending = Pending {
        len: 0,
        list: [Siginfo::ZERO; MAX_PENDING],
    };

    fn len(&self) -> usize {
        // SAFETY: a field of ours.
        unsafe { core::ptr::read_volatile(&self.len) }
    }

    fn set_len(&mut self, n: usize) {
        // SAFETY: a field of ours.
        unsafe { core::ptr::write_volatile(&mut self.len, n) }
    }

    fn get(&self, i: usize) -> Siginfo {
        // SAFETY: an element of ours.
        unsafe { core::ptr::read_volatile(&self.list[i]) }
    }

    fn put(&mut self, i: usize, s: Siginfo) {
        // SAFETY: an element of ours.
        unsafe { core::ptr::write_volatile(&mut self.list[i], s) }
    }

    /// Adds one; false when the list is full.
    pub fn push(&mut self, s: Siginfo) -> bool {
        let n = self.len();
        if n == MAX_PENDING {
            return false;
        }
        self.put(n, s);
        self.set_len(n + 1);
        true
    }

    /// Adds all that wait in another list, as far as there is room.
    pub fn takes_all(&mut self, other: &mut Pending) {
        while let Some(s) = other.take(0) {
            self.push(s);
        }
    }

    /// Takes the first whose number is not in `blocked`.
    pub fn take(&mut self, blocked: u64) -> Option<Siginfo> {
        let n = self.len();
        let i = (0..n).find(|i| bit(self.get(*i).signal()) & blocked == 0)?;
        let s = self.get(i);
        for k in i + 1..n {
            let next = self.get(k);
            self.put(k - 1, next);
        }
        self.set_len(n - 1);
        Some(s)
    }

    /// The first whose number is not in `blocked`.
    pub fn first(&self, blocked: u64) -> Option<Siginfo> {
        (0..self.len())
            .map(|i| self.get(i))
            .find(|s| bit(s.signal()) & blocked == 0)
    }

    /// The numbers that wait.
    pub fn set(&self) -> u64 {
        (0..self.len()).fold(0, |m, i| m | bit(self.get(i).signal()))
    }
}

/// The handlers of the calling thread's process.
pub struct Actions;

/// The handlers of the calling thread's process.
pub static ACTIONS: Actions = Actions;

impl Actions {
    /// The action of a signal.
    pub fn get(&self, signal: u32) -> Action {
        crate::thread::process::own().actions[signal as usize].get()
    }

    /// Changes the action of a signal.
    pub fn set(&self, signal: u32, a: Action) {
        crate::thread::process::own().actions[signal as usize].set(a);
    }

    /// Does this signal, sent now, end the process by its default action?
    pub fn is_fatal(&self, signal: u32) -> bool {
        // Ignored by default: SIGCHLD, SIGCONT, SIGURG, SIGWINCH; stopping: SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
        let harmless = matches!(signal, 17..=23 | 28);
        signal != 0 && self.get(signal).handler == DEFAULT && !harmless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(signal: u64) -> Siginfo {
        let mut s = Siginfo::ZERO;
        s.words[0] = signal;
        s
    }

    #[test]
    fn pending_signals_keep_their_order_and_respect_the_mask() {
        let mut p = Pending::EMPTY;
        for n in [10, 12, 34] {
            assert!(p.push(info(n)));
        }
        assert_eq!(p.set(), bit(10) | bit(12) | bit(34));
        assert_eq!(p.take(bit(10)).map(|s| s.signal()), Some(12));
        assert_eq!(p.take(0).map(|s| s.signal()), Some(10));
        assert_eq!(p.take(bit(34)), None);
        assert_eq!(p.take(0).map(|s| s.signal()), Some(34));
        for _ in 0..MAX_PENDING {
            assert!(p.push(info(1)));
        }
        assert!(!p.push(info(1)), "the limit holds");
    }
}
