//! Making a call while recording: until its result is one that the program may see.

use crate::log::inputs;
use crate::log::output;
use crate::log::seeks;
use crate::machine::asm::rt_blocking;
use crate::machine::{guard, sys};
use crate::memory::capture::Call;
use crate::memory::scratch::Scratch;
use crate::memory::{address_limit, memory_file};
use crate::thread::signals::{ACTIONS, SA_RESTART};
use crate::thread::Block;
use core::sync::atomic::Ordering::*;
use reprise_abi::spec::{Blocking, Mem, Restart};
use reprise_abi::syscalls::nr;

const EINTR: i64 = -4;
/// A call that a waiting signal kept from being made.
pub const NOT_MADE: i64 = -512;

/// What a call's result means for the program, now that signals are known.
pub enum Outcome {
    /// The program gets this.
    Result(i64),
    /// The call is made again after the handler.
    Restart,
    /// Nothing happened that the program may see: make the call again at once.
    Again,
}

/// What the result `r` of a call means, now.
pub fn outcome(t: &Block, c: &Call, r: i64) -> Outcome {
    if r != EINTR && r != NOT_MADE {
        return Outcome::Result(r);
    }
    match t.pending.first(t.mask) {
        None => {
            // What waits is blocked now: it must not keep calls from being made. A signal that comes in between is seen.
            let flag = &t.slot().signal_pending;
            flag.store(0, Release);
            if t.pending.first(t.mask).is_some() {
                flag.store(1, Release);
            }
            Outcome::Again
        }
        // The handler runs before the call begins, as it would if the signal had come a moment earlier.
        Some(_)
            if r == NOT_MADE
                && !matches!(
                    c.nr,
                    nr::RT_SIGSUSPEND | nr::PPOLL | nr::PSELECT6 | nr::PAUSE
                )
                && t.saved_mask.is_none() =>
        {
            Outcome::Restart
        }
        Some(s) => {
            let flags = ACTIONS.get(s.signal()).flags;
            if c.restart == Restart::Handler && flags & SA_RESTART != 0 {
                Outcome::Restart
            } else {
                Outcome::Result(EINTR)
            }
        }
    }
}

/// Puts scratch memory in the place of all the call's buffers. On failure the errno that the program shall see.
pub fn into_scratch(t: &mut Block, c: &mut Call) -> Result<(), i64> {
    let masked = c.local;
    let mut scratch = Scratch::new(t, c.scratch_needed());
    c.localise(&mut scratch)?;
    if t.saved_mask.is_some() {
        // The mask argument of ppoll and its kin was replaced before.
        for (i, m) in masked.iter().enumerate() {
            if c.mem[i] == Mem::None {
                c.local[i] = *m;
            }
        }
    }
    Ok(())
}

/// The wait status of a process that ends by itself.
pub fn exit_status(argument: u64) -> i32 {
    (argument as i32 & 0xff) << 8
}

/// rt_sigpending(2): what waits in the runtime is pending, too.
pub fn add_pending(t: &Block, c: &Call) {
    let blocked = t.pending.set() & t.mask;
    if blocked != 0 {
        if let Some(set) = guard::read::<u64>(c.local[0]) {
            guard::write(c.local[0], &(set | blocked));
        }
    }
}

/// rt_sigtimedwait(2): a blocked signal that waits in the runtime is taken from there.
fn take_pending(t: &mut Block, c: &Call) -> Option<i64> {
    let [set, info, _, size, ..] = c.local;
    if c.nr != nr::RT_SIGTIMEDWAIT || size != 8 {
        return None;
    }
    let wanted = guard::read::<u64>(set)?;
    let found = t.pending.take(!wanted)?;
    if info != 0 {
        guard::write(info, &found);
    }
    Some(found.signal().into())
}

/// Asks the kernel.
pub fn make(t: &mut Block, c: &Call) -> i64 {
    if t.pending.set() != 0 {
        if let Some(r) = take_pending(t, c) {
            return r;
        }
    }
    if let Some(r) = address_limit::call(c) {
        return r;
    }
    if c.blocking == Blocking::Never && c.known {
        // SAFETY: the program's own call, with its own arguments.
        return unsafe { sys::syscall6(c.nr, c.local) };
    }
    if let Some(r) = output::moved::make(c) {
        return r;
    }
    inputs::before(t, c);
    let r = seeks::around(c.nr, &c.local, || {
        // SAFETY: as above; the pending word belongs to the session.
        unsafe { rt_blocking(c.nr, &c.local, t.slot().signal_pending.as_ptr()) }
    });
    inputs::after(t, c, r);
    memory_file::opened(c, r)
}
