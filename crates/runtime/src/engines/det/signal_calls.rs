//! Calls by which threads that are processes send signals to the program, or wait for some. Who sends one to another thread, in its turn, waits until it has
//! come: so it comes where the program alone says, between two phases of the other thread, or while that waits. Signals from outside come when they come.
//! Those to the process as a whole go to whoever takes them ([`shared_signals`]).

use super::clock::Moment;
use super::token::{self, state, why};
use super::wait::Word;
use super::{idle, log, wait};
use crate::engine::waits::Wait;
use crate::isolate::members::{hearing, member};
use crate::isolate::{ending, outside, shared_signals, signals};
use crate::machine::guard;
use crate::machine::sys::{self, Timespec};
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::{slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::det::question;
use reprise_abi::syscalls::nr;

const EINTR: i64 = -4;
const EFAULT: i64 = -14;
const EAGAIN: i64 = -11;

/// Sends `signal` to the thread of this slot, by `send`, in a turn.
pub fn send_to(
    t: &mut Block,
    receiver: u32,
    signal: u32,
    send: impl FnOnce(&mut Block) -> i64,
) -> i64 {
    let (m, t_slot) = (token::member(receiver), t.slot);
    let ask = |_: &mut Block| (receiver != t_slot && signals::will_come(receiver, signal)).into();
    let waits = log::told(t, question::COMES, ask) != 0;
    let before = m.signals.load(SeqCst);
    let r = send(t);
    if r != 0 || !waits {
        return r;
    }
    // Who waits in the kernel may take it there, without a handler.
    let taken = || m.state.load(SeqCst) == state::OUTSIDE && idle::has_notified(receiver);
    let come = || m.signals.load(SeqCst) != before || taken();
    while !log::replays() && !come() && member(receiver).hearing.load(SeqCst) == hearing::HEARS {
        ending::look_after_threads();
        sys::sched_yield();
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

/// Sends a signal to the process, in a turn.
pub fn send(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let signal = c.args[1] as u32;
    let Some(info) = shared_signals::told(c) else {
        return EFAULT;
    };
    let taker = log::told(t, question::TAKER, |_| {
        shared_signals::taker(signal).map_or(-1, i64::from)
    });
    let Ok(taker) = u32::try_from(taker) else {
        t.det().signals_wait = true;
        return shared_signals::put(&info, None);
    };
    if shared_signals::waits_for(taker, signal) {
        return shared_signals::hand(taker, &info);
    }
    c.local[0] = slot(taker).kernel_tid.load(Relaxed).into();
    send_to(t, taker, signal, |t| log::ask::ask(t, c, frame))
}

/// A call of the program's only thread: others may come, and what waited for somebody is for the one that is left. `None`: the call is one as all
/// others.
pub fn alone(t: &mut Block, c: &mut Call, frame: &Frame) -> Option<i64> {
    shared_signals::take(t);
    match c.nr {
        _ if shared_signals::is_for_us(c) && !shared_signals::takes(t.slot, c.args[1] as u32) => {
            Some(send(t, c, frame))
        }
        nr::RT_SIGTIMEDWAIT => taken_at_once(t, c, frame),
        _ => None,
    }
}

/// rt_sigpending(2): the thread's own, and those of the process.
pub fn pending(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let r = log::ask::ask(t, c, frame);
    let of_process = shared_signals::waiting(t.slot);
    if let Some(own) = guard::read::<u64>(c.args[0]).filter(|_| r == 0) {
        guard::write(c.args[0], &(own | of_process));
    }
    r
}

/// rt_sigtimedwait(2), in a turn: what is there already, of the thread's own and then of the process's; `None`: it has to wait.
fn taken_at_once(t: &mut Block, c: &mut Call, frame: &Frame) -> Option<i64> {
    let none = Timespec::from_ns(0);
    let limit = c.local[2];
    c.local[2] = &none as *const Timespec as u64;
    let r = log::ask::ask(t, c, frame);
    c.local[2] = limit;
    if r != EAGAIN && r != EINTR {
        return Some(r);
    }
    let set = guard::read::<u64>(c.args[0])?;
    if let Some(info) = shared_signals::take_own(t, set) {
        // The kernel may tell of the next one.
        kernel::sync_mask(t);
        if c.args[1] != 0 && !guard::write(c.args[1], &info) {
            return Some(EFAULT);
        }
        return Some(info.signal().into());
    }
    let asks_only = guard::read::<[u64; 2]>(c.args[2]) == Some([0; 2]);
    asks_only.then_some(EAGAIN)
}

/// rt_sigtimedwait(2), in a turn.
pub fn wait(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    if let Some(r) = taken_at_once(t, c, frame) {
        return r;
    }
    let set = guard::read::<u64>(c.args[0]).unwrap_or(0);
    let limit = guard::read::<Timespec>(c.args[2]).filter(|_| c.args[2] != 0);
    let end = limit.map(|l| sys::monotonic().ns().saturating_add(l.ns()));
    outside::wants(t, set);
    let mut first = true;
    loop {
        member(t.slot).sigwait.store(set, SeqCst);
        let waited = match (limit, end) {
            (Some(l), _) if first => wait::wait_for(t, Word::NONE, l.ns() as u64),
            (_, end) => {
                let realtime = false;
                wait::wait(t, Word::NONE, end.map(|ns| Moment { ns, realtime }))
            }
        };
        first = false;
        member(t.slot).sigwait.store(0, SeqCst);
        if let Some(r) = taken_at_once(t, c, frame) {
            return r;
        }
        match waited {
            Wait::TimedOut => return EAGAIN,
            _ if t.pending.first(t.mask).is_some() => return EINTR,
            _ => {}
        }
    }
}
