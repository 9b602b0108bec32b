//! A diversion: a copy of a replayed process in which a debugger calls functions of the program, and which is thrown away. The debugger
//! sets the engine to `none` in it, so that nothing is taken from the trace and nobody waits for a baton.
//!
//! The kernel does for it what stays within the process: memory, clocks, sleeps, futexes, signals to itself. Descriptors are those of
//! the recording, which aren't there: only what is written to the standard output and error is shown. There are no new threads and
//! processes, and nothing reaches the world outside.

use crate::log::output;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::signals::{Siginfo, ACTIONS, IGNORE};
use crate::thread::{session, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::effect::{Effect, Receiver, Told};
use reprise_abi::session::MODE_REPLAY;
use reprise_abi::spec::{Mem, Print, Syscall};
use reprise_abi::syscalls::{self, nr};

const EPERM: i64 = -1;
const ESRCH: i64 = -3;
const EBADF: i64 = -9;
/// No more threads and processes.
pub const EAGAIN: i64 = -11;
const EACCES: i64 = -13;
const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;

/// Is this process a diversion? To be asked only under the engine `none`.
pub fn is_on() -> bool {
    session().mode == MODE_REPLAY
}

/// The answer to a call; `None`: the kernel gives it.
pub fn answer(t: &mut Block, c: &Call) -> Option<i64> {
    let a = c.args;
    let spec = syscalls::lookup(c.nr);
    if spec.is_some_and(|call| call.local) {
        return None;
    }
    let answer = match c.effect {
        Effect::Tells(Told::ProcessId) => process::visible_pid() as i64,
        Effect::Tells(Told::ThreadId) => t.slot().visible_tid.load(Relaxed) as i64,
        // Limits are read, not set.
        _ if c.nr == nr::PRLIMIT64 && a[2] == 0 && a[0] == 0 => return None,
        // What the receiver is told of it would be the caller's to say.
        Effect::Signals(sent) if sent.info.is_none() => match sent.to {
            Receiver::Process if is_us(a[0]) => send(t, c, a[1]),
            Receiver::Thread if is_own(t, a[0]) => send(t, c, a[1]),
            Receiver::ThreadOf if is_us(a[0]) && is_own(t, a[1]) => send(t, c, a[2]),
            _ => ESRCH,
        },
        Effect::Writes(..) => output::divert(c).unwrap_or(EBADF),
        // So that the program takes the stream for what the recording's was, or for a file.
        _ if c.nr == nr::FSTAT && output::is_stream(a[0]) => return None,
        Effect::OpensFile(_) => EACCES,
        _ if spec.is_some_and(is_on_descriptor) => EBADF,
        _ => ENOSYS,
    };
    Some(answer)
}

/// Is it a call on a descriptor, and not one on a name, for which the descriptor is where that begins?
fn is_on_descriptor(call: &Syscall) -> bool {
    call.args.first().is_some_and(|a| a.print == Print::Fd)
        && call.args.iter().all(|a| a.mem != Mem::Path)
}

/// May a call shape the address space? What shows files or others' memory may not.
pub fn may_shape(c: &Call) -> bool {
    match c.effect {
        Effect::Maps => c.args[3] & sys::MAP_ANONYMOUS != 0,
        Effect::Attaches | Effect::Detaches => false,
        _ => true,
    }
}

/// The answer to a call that shapes the address space and may not be made.
pub const NO_SHAPE: i64 = EPERM;

fn is_us(pid: u64) -> bool {
    pid as u32 == process::visible_pid()
}

fn is_own(t: &Block, tid: u64) -> bool {
    tid as u32 == t.slot().visible_tid.load(Relaxed)
}

/// The thread sends itself a signal. One that the program handles waits for the end of the gate; the kernel does what others mean.
fn send(t: &mut Block, c: &Call, signal: u64) -> i64 {
    /// si_code of what tgkill(2) sends.
    const SI_TKILL: u64 = -6i32 as u32 as u64;
    if signal == 0 {
        return 0;
    }
    if signal > 64 {
        return EINVAL;
    }
    if ACTIONS.get(signal as u32).handler > IGNORE {
        let mut info = Siginfo::ZERO;
        info.words[0] = signal;
        info.words[1] = match c.effect {
            Effect::Signals(sent) if sent.to == Receiver::Process => 0,
            _ => SI_TKILL,
        };
        info.words[2] = process::visible_pid() as u64;
        t.pending.push(info);
        t.slot().signal_pending.store(1, Release);
        return 0;
    }
    kernel::sync_mask(t);
    kernel::send_self(signal as u32);
    0
}
