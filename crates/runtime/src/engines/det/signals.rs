//! Signals between threads that are processes. Who sends one to another, in its turn, waits until it has come: so it comes where the program alone
//! says, between two phases of the other thread, or while that waits. Signals from outside come when they come.

use super::token::{self, hearing, member, state, why};
use super::wait::Word;
use super::{ending, idle, log, pure, wait};
use crate::engine::waits::Wait;
use crate::isolate::split;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::signals::{bit, Siginfo, ACTIONS, IGNORE, SIGNALS};
use crate::thread::{block_address, current, session, slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::det::question;
use reprise_abi::syscalls::nr;

const EINTR: i64 = -4;

/// A new thread has reached the place where signals may come to it.
pub fn hears(t: &Block) {
    kernel::sync_mask(t);
    member(t.slot).hearing.store(hearing::HEARS, SeqCst);
}

/// The calling thread ends: no signal comes to it any more.
pub fn hears_no_more(t: &Block) {
    if split::in_force() {
        member(t.slot).hearing.store(hearing::NO_MORE, SeqCst);
    }
    kernel::block_all();
}

/// tgkill(2) to a thread of the program, which the kernel knows as a process: whose slot that is. In a turn.
pub fn address_thread(c: &mut Call) -> Option<u32> {
    let (group, tid) = (c.args[0] as u32, c.args[1]);
    let used = session().slots_used.load(Relaxed);
    let is = |s: &u32| {
        slot(*s).visible_tid.load(Relaxed) == tid as u32
            && member(*s).state.load(SeqCst) != state::NOBODY
    };
    let receiver = (0..used)
        .find(is)
        .filter(|_| group == process::visible_pid())?;
    let kernel = slot(receiver).kernel_tid.load(Relaxed).into();
    c.local[0] = kernel;
    c.local[1] = kernel;
    Some(receiver)
}

/// A signal as the program is told of it: one that another of its threads has sent comes from the program.
pub fn received(info: &Siginfo) -> Siginfo {
    const SI_USER: i32 = 0;
    const SI_TKILL: i32 = -6;
    let mut info = *info;
    if pure::on() {
        pure::ids::in_signal(&mut info);
    }
    if !split::in_force() || !matches!(info.code(), SI_USER | SI_TKILL) {
        return info;
    }
    // si_pid is the first word of the union.
    let sender = info.words[2] as u32;
    let used = session().slots_used.load(Relaxed);
    let is = |s: &u32| {
        slot(*s).kernel_tid.load(Relaxed) == sender
            && slot(*s).process.load(Relaxed) == process::number()
    };
    if (0..used).any(|s| is(&s)) {
        info.words[2] = info.words[2] & !0xffff_ffff | process::visible_pid() as u64;
    }
    info
}

/// A signal that the program wants to be told of: will it come to this thread, and hasn't one like it come already?
fn will_come(receiver: u32, signal: u32) -> bool {
    if signal == 0 || signal > SIGNALS as u32 || ACTIONS.get(signal).handler <= IGNORE {
        return false;
    }
    while member(receiver).hearing.load(SeqCst) == hearing::NOT_YET {
        sys::call(nr::SCHED_YIELD, &[]);
    }
    // SAFETY: blocks are shared, and their thread waits for the end of this turn.
    let block = unsafe { &*(block_address(receiver) as *const Block) };
    member(receiver).hearing.load(SeqCst) == hearing::HEARS
        && (block.mask | block.pending.set()) & bit(signal) == 0
}

/// Sends `signal` to the thread of this slot, by `send`, in a turn.
pub fn send(
    t: &mut Block,
    receiver: u32,
    signal: u32,
    send: impl FnOnce(&mut Block) -> i64,
) -> i64 {
    let (m, t_slot) = (member(receiver), t.slot);
    let ask = |_: &mut Block| (receiver != t_slot && will_come(receiver, signal)).into();
    let waits = log::told(t, question::COMES, ask) != 0;
    let before = m.signals.load(SeqCst);
    let r = send(t);
    if r != 0 || !waits {
        return r;
    }
    // Who waits in the kernel may take it there, without a handler.
    let taken = || m.state.load(SeqCst) == state::OUTSIDE && idle::has_notified(receiver);
    let come = || m.signals.load(SeqCst) != before || taken();
    while !log::replays() && !come() && m.hearing.load(SeqCst) == hearing::HEARS {
        ending::look_after_threads();
        sys::call(nr::SCHED_YIELD, &[]);
    }
    if m.state.load(SeqCst) == state::WAITS {
        token::recall(receiver, why::SIGNAL);
    }
    r
}

/// pause(2), sigsuspend(2): waits for a signal. In a turn.
pub fn pause(t: &mut Block) -> i64 {
    kernel::sync_mask(t);
    while wait::wait(t, Word::NONE, None) != Wait::Signal {}
    EINTR
}

/// Is the call in the kernel that the thread makes to end, since a signal waits for it ([`super::outside`])?
pub fn is_called(t: &Block) -> bool {
    crate::thread::in_force::has_private_views()
        && split::in_force()
        && member(t.slot).called.load(SeqCst) != 0
}

/// A signal has come that has no handler: where the kernel doesn't do what it means, it is done here.
pub fn die_by_default(signal: u32) {
    if crate::thread::in_force::has_private_views() && split::in_force() && ACTIONS.is_fatal(signal)
    {
        ending::tell_of_death(current().slot, signal, None);
        ending::announce(signal);
        kernel::die_now(signal);
    }
}
