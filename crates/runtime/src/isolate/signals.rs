//! Signals between threads that are processes. To the kernel their ids are those of processes, and so is what it does with a signal that has no handler.

use super::ending;
use super::members::{hearing, is_ours, member};
use super::phases::lives;
use super::split;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::signals::{bit, Siginfo, ACTIONS, IGNORE, SIGNALS};
use crate::thread::{block_address, current, session, slot, Block};
use core::sync::atomic::Ordering::*;
use reprise_abi::syscalls::nr;

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

/// tgkill(2) or rt_tgsigqueueinfo(2) to a thread of the program, which the kernel knows as a process: whose slot that is. In a turn.
pub fn address_thread(c: &mut Call) -> Option<u32> {
    if !matches!(c.nr, nr::TGKILL | nr::RT_TGSIGQUEUEINFO) {
        return None;
    }
    let (group, tid) = (c.args[0] as u32, c.args[1]);
    let used = session().slots_used.load(Relaxed);
    let is = |s: &u32| slot(*s).visible_tid.load(Relaxed) == tid as u32 && lives(*s);
    let receiver = (0..used)
        .find(is)
        .filter(|_| group == process::visible_pid())?;
    let kernel = slot(receiver).kernel_tid.load(Relaxed).into();
    c.local[0] = kernel;
    c.local[1] = kernel;
    Some(receiver)
}

/// In a turn: a signal that the program wants to be told of: will it come to this thread, and hasn't one like it come already?
pub fn will_come(receiver: u32, signal: u32) -> bool {
    if signal == 0 || signal > SIGNALS as u32 || ACTIONS.get(signal).handler <= IGNORE {
        return false;
    }
    while member(receiver).hearing.load(SeqCst) == hearing::NOT_YET {
        sys::sched_yield();
    }
    // SAFETY: blocks are shared, and their thread waits for the end of this turn.
    let block = unsafe { &*(block_address(receiver) as *const Block) };
    member(receiver).hearing.load(SeqCst) == hearing::HEARS
        && (block.mask | block.pending.set()) & bit(signal) == 0
}

/// A signal as the program is told of it: one that another of its threads has sent comes from the program.
pub fn received(info: &Siginfo) -> Siginfo {
    const SI_USER: i32 = 0;
    const SI_TKILL: i32 = -6;
    let mut info = *info;
    if !split::in_force() || !matches!(info.code(), SI_USER | SI_TKILL) {
        return info;
    }
    // si_pid is the first word of the union.
    let sender = info.words[2] as u32;
    let used = session().slots_used.load(Relaxed);
    if (0..used).any(|s| is_ours(s) && slot(s).kernel_tid.load(Relaxed) == sender) {
        info.words[2] = info.words[2] & !0xffff_ffff | process::visible_pid() as u64;
    }
    info
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
        ending::tell_of_death(current().slot_number(), signal, None);
        ending::announce(signal);
        kernel::die_now(signal);
    }
}
