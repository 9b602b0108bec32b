//! Signals to the process as a whole (kill(2), sigqueue(3); DThreads 4.3, "signals and sigwait"). Its threads are processes of their own, so the kernel
//! doesn't know who else could take one: it is the sender who says so, in its turn, when nobody runs and no mask changes. The first thread gets it if it has it open
//! or waits for it, else the first of the others, as they were made. When nobody does, it waits here, and whoever opens it or waits for it first takes it,
//! in its turn.
//!
//! Signals from outside come to the first thread.

use super::token::{hearing, member, state};
use super::{log, rest, signals};
use crate::capture::Call;
use crate::guard;
use crate::isolate::layout::QUEUE_BASE;
use crate::process;
use crate::signal::state::{bit, Siginfo, SIGKILL, SIGNALS, SIGSTOP};
use crate::sys::{self, Timespec};
use crate::thread::{block_address, session, slot, Block, Frame};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::det::question;
use reprise_abi::syscalls::nr;

const EFAULT: i64 = -14;
const EAGAIN: i64 = -11;
/// Most signals that wait.
const MOST: usize = 1024;
/// The first of those that wait as often as they were sent.
const SIGRTMIN: u32 = 32;
/// SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU: they are more to the kernel than signals.
const JOB_CONTROL: u64 = bit(18) | bit(20) | bit(21) | bit(22);

/// What all threads share; changed in turns.
#[repr(C)]
struct State {
    len: AtomicU32,
    _pad: AtomicU32,
    list: [Waiting; MOST],
}

/// A signal that waits.
#[repr(C)]
struct Waiting {
    info: [AtomicU64; 16],
}

impl Waiting {
    fn info(&self) -> Siginfo {
        let mut info = Siginfo::ZERO;
        for (to, from) in info.words.iter_mut().zip(&self.info) {
            *to = from.load(Relaxed);
        }
        info
    }

    fn set(&self, info: &Siginfo) {
        for (to, from) in self.info.iter().zip(&info.words) {
            to.store(*from, Relaxed);
        }
    }
}

fn all() -> &'static State {
    // SAFETY: mapped before there is a second thread; zero at first; only atomics.
    unsafe { &*(QUEUE_BASE as *const State) }
}

fn list() -> &'static [Waiting] {
    let s = all();
    &s.list[..(s.len.load(Relaxed) as usize).min(MOST)]
}

/// Does no signal wait?
pub fn is_empty() -> bool {
    all().len.load(Relaxed) == 0
}

/// Is this kill(2) or rt_sigqueueinfo(2) for the process itself, of a signal that a thread is to take?
pub fn is_for_us(c: &Call) -> bool {
    let sends = matches!(c.nr, nr::KILL | nr::RT_SIGQUEUEINFO);
    let signal = c.args[1];
    let is_one = (1..=SIGNALS as u64).contains(&signal);
    sends
        && c.args[0] as u32 == process::visible_pid()
        && is_one
        && bit(signal as u32) & (bit(SIGKILL) | bit(SIGSTOP) | JOB_CONTROL) == 0
}

/// Has this thread the signal open, or does it wait for it? In a turn of another one, or in its own.
fn takes(s: u32, signal: u32) -> bool {
    let m = member(s);
    if m.state.load(SeqCst) == state::NOBODY || m.hearing.load(SeqCst) != hearing::HEARS {
        return false;
    }
    // SAFETY: blocks are shared, and their thread waits for the end of this turn.
    let block = unsafe { &*(block_address(s) as *const Block) };
    block.mask & bit(signal) == 0 || m.sigwait.load(SeqCst) & bit(signal) != 0
}

/// Sends a signal to the process, in a turn.
pub fn send(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let signal = c.args[1] as u32;
    let info = match c.nr {
        nr::KILL => Some(from_kill(signal)),
        _ => guard::read::<Siginfo>(c.args[2]),
    };
    let Some(info) = info else {
        return EFAULT;
    };
    let used = session().slots_used.load(Relaxed);
    let of_us = |s: &u32| slot(*s).process.load(Relaxed) == process::number();
    let taker = log::told(t, question::TAKER, |_| {
        let takers = (0..used).filter(|s| of_us(s) && takes(*s, signal));
        let first = takers.min_by_key(|s| member(*s).index.load(Relaxed));
        first.map_or(-1, i64::from)
    });
    let Ok(taker) = u32::try_from(taker) else {
        t.det.signals_wait = true;
        return wait_here(signal, info);
    };
    c.local[0] = slot(taker).kernel_tid.load(Relaxed).into();
    let m = member(taker);
    let sigwaits = m.sigwait.load(SeqCst) & bit(signal) != 0;
    let r = signals::send(t, taker, signal, |t| log::ask::ask(t, c, frame));
    if r == 0 && sigwaits {
        // It takes one.
        m.sigwait.store(0, SeqCst);
        while !log::replays()
            && !rest::has_knocked(taker)
            && m.hearing.load(SeqCst) == hearing::HEARS
        {
            super::ending::look_after_threads();
            sys::call(nr::SCHED_YIELD, &[]);
        }
    }
    r
}

/// A call of the program's only thread: others may come, and what waited for somebody is for the one that is left. `None`: the call is one as all
/// others.
pub fn alone(t: &mut Block, c: &mut Call, frame: &Frame) -> Option<i64> {
    take(t);
    match c.nr {
        _ if is_for_us(c) && !takes(t.slot, c.args[1] as u32) => Some(send(t, c, frame)),
        nr::RT_SIGTIMEDWAIT if !is_empty() => taken_at_once(t, c, frame),
        _ => None,
    }
}

/// What kill(2) tells.
fn from_kill(signal: u32) -> Siginfo {
    let mut info = Siginfo::ZERO;
    info.words[0] = signal.into();
    let uid = sys::call(nr::GETUID, &[]) as u64;
    info.words[2] = u64::from(process::visible_pid()) | uid << 32;
    info
}

fn wait_here(signal: u32, info: Siginfo) -> i64 {
    let s = all();
    if signal < SIGRTMIN && list().iter().any(|w| w.info().signal() == signal) {
        return 0;
    }
    let Some(free) = s.list.get(s.len.load(Relaxed) as usize) else {
        return EAGAIN;
    };
    let mut info = info;
    info.words[0] = info.words[0] & !0xffff_ffff | u64::from(signal);
    free.set(&info);
    s.len.fetch_add(1, Relaxed);
    0
}

/// Takes the first of the signals in `set` that have the lowest number.
fn take_one(set: u64) -> Option<Siginfo> {
    let all_infos = list().iter().map(Waiting::info).enumerate();
    let wanted = all_infos.filter(|(_, i)| set & bit(i.signal()) != 0);
    let (n, info) = wanted.min_by_key(|(n, i)| (i.signal(), *n))?;
    let left = list();
    for k in n + 1..left.len() {
        left[k - 1].set(&left[k].info());
    }
    all().len.fetch_sub(1, Relaxed);
    Some(info)
}

/// In the calling thread's turn, or when it is the only one: signals that it has open come to it.
pub fn take(t: &mut Block) {
    while !is_empty() {
        let Some(info) = take_one(!t.mask) else {
            return;
        };
        if log::replays() {
            // The log says where it came.
            continue;
        }
        let (me, signal) = (u64::from(t.kernel_tid), u64::from(info.signal()));
        let at = &info as *const Siginfo as u64;
        sys::call(nr::RT_TGSIGQUEUEINFO, &[me, me, signal, at]);
    }
}

/// rt_sigpending(2): the thread's own, and those of the process.
pub fn pending(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    let r = log::ask::ask(t, c, frame);
    let of_process = list().iter().fold(0, |set, w| set | bit(w.info().signal()));
    if let Some(own) = guard::read::<u64>(c.args[0]).filter(|_| r == 0) {
        guard::write(c.args[0], &(own | of_process));
    }
    r
}

/// rt_sigtimedwait(2), in a turn: what is there already, of the thread's own and then of the process's; `None`: it has to wait.
pub fn taken_at_once(t: &mut Block, c: &mut Call, frame: &Frame) -> Option<i64> {
    let none = Timespec::from_ns(0);
    let limit = c.local[2];
    c.local[2] = &none as *const Timespec as u64;
    let r = log::ask::ask(t, c, frame);
    c.local[2] = limit;
    if r != EAGAIN {
        return Some(r);
    }
    if let Some(info) = guard::read::<u64>(c.args[0]).and_then(take_one) {
        if c.args[1] != 0 && !guard::write(c.args[1], &info) {
            return Some(EFAULT);
        }
        return Some(info.signal().into());
    }
    let asks_only = guard::read::<[u64; 2]>(c.args[2]) == Some([0; 2]);
    asks_only.then_some(EAGAIN)
}
