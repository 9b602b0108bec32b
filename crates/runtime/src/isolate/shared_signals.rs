//! Signals to the process as a whole (kill(2), sigqueue(3); DThreads 4.3, "signals and sigwait"). Its threads are processes of their own, so the kernel
//! doesn't know who else could take one: it is the sender who says so, in its turn, when nobody runs and no mask changes. The first thread gets it if it has it open
//! or waits for it, else the first of the others, as they were made. When nobody does, it waits here, and whoever opens it or waits for it first takes it,
//! in its turn.
//!
//! Signals from outside come to the first thread, and go the same way from there ([`super::outside`]).

use super::layout::QUEUE_BASE;
use super::members::{hearing, member, number_of, slots};
use super::phases::{lives, phases, Whereabouts};
use crate::engine::waits::Wait;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::thread::process;
use crate::thread::signals::{bit, Siginfo, SIGKILL, SIGNALS, SIGSTOP};
use crate::thread::{block_address, Block};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
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
    /// For this slot's thread alone, plus 1; 0: for any.
    only: AtomicU32,
    _pad: AtomicU32,
}

impl Waiting {
    fn info(&self) -> Siginfo {
        let mut info = Siginfo::ZERO;
        for (to, from) in info.words.iter_mut().zip(&self.info) {
            *to = from.load(Relaxed);
        }
        info
    }

    fn set(&self, info: &Siginfo, only: u32) {
        for (to, from) in self.info.iter().zip(&info.words) {
            to.store(*from, Relaxed);
        }
        self.only.store(only, Relaxed);
    }

    fn is_for(&self, slot: u32) -> bool {
        let only = self.only.load(Relaxed);
        only == 0 || only == slot + 1
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
pub fn takes(s: u32, signal: u32) -> bool {
    let m = member(s);
    if !lives(s) || m.hearing.load(SeqCst) != hearing::HEARS {
        return false;
    }
    // SAFETY: blocks are shared, and their thread waits for the end of this turn.
    let block = unsafe { &*(block_address(s) as *const Block) };
    block.mask & bit(signal) == 0 || m.sigwait.load(SeqCst) & bit(signal) != 0
}

/// Who takes a signal to the process, when nobody runs: the first that has it open or waits for it, as they were made.
pub fn taker(signal: u32) -> Option<u32> {
    slots()
        .filter(|s| takes(*s, signal))
        .min_by_key(|s| number_of(*s))
}

/// Does the thread of this slot wait for this signal, in sigtimedwait(2)?
pub fn waits_for(s: u32, signal: u32) -> bool {
    (1..=SIGNALS as u32).contains(&signal) && member(s).sigwait.load(SeqCst) & bit(signal) != 0
}

/// In a turn: a thread that waits for this signal gets it.
pub fn hand(s: u32, info: &Siginfo) -> i64 {
    let (m, r) = (member(s), put(info, Some(s)));
    // It takes one.
    m.sigwait.store(0, SeqCst);
    if phases().whereabouts(s) == Whereabouts::Waits {
        phases().recall(s, Wait::Woken);
    }
    r
}

/// In a turn: tgkill(2) or rt_tgsigqueueinfo(2) to a thread that waits for the signal.
pub fn hand_over(s: u32, c: &Call) -> i64 {
    const SI_TKILL: u64 = -6i32 as u32 as u64;
    let signal = c.args[2] as u32;
    let info = match c.nr {
        nr::RT_TGSIGQUEUEINFO => guard::read::<Siginfo>(c.args[3]),
        _ => {
            let mut info = from_kill(signal);
            info.words[1] = SI_TKILL;
            Some(info)
        }
    };
    match info {
        Some(mut info) => {
            info.words[0] = info.words[0] & !0xffff_ffff | u64::from(signal);
            hand(s, &info)
        }
        None => EFAULT,
    }
}

/// What the call ([`is_for_us`]) tells; `None`: it can't be read.
pub fn told(c: &Call) -> Option<Siginfo> {
    let signal = c.args[1] as u32;
    let mut info = match c.nr {
        nr::KILL => from_kill(signal),
        _ => guard::read::<Siginfo>(c.args[2])?,
    };
    info.words[0] = info.words[0] & !0xffff_ffff | u64::from(signal);
    Some(info)
}

/// What kill(2) tells.
fn from_kill(signal: u32) -> Siginfo {
    let mut info = Siginfo::ZERO;
    info.words[0] = signal.into();
    let uid = sys::getuid() as u64;
    info.words[2] = u64::from(process::visible_pid()) | uid << 32;
    info
}

/// A signal waits for somebody who takes it, or for the thread of this slot.
pub fn put(info: &Siginfo, only: Option<u32>) -> i64 {
    let (s, signal) = (all(), info.signal());
    let only = only.map_or(0, |s| s + 1);
    let is_alike = |w: &Waiting| w.info().signal() == signal && w.only.load(Relaxed) == only;
    if signal < SIGRTMIN && list().iter().any(is_alike) {
        return 0;
    }
    let Some(free) = s.list.get(s.len.load(Relaxed) as usize) else {
        return EAGAIN;
    };
    free.set(info, only);
    s.len.fetch_add(1, Relaxed);
    0
}

/// Takes the first of the signals in `set` that have the lowest number.
fn take_one(slot: u32, set: u64) -> Option<Siginfo> {
    let for_me = list().iter().enumerate().filter(|(_, w)| w.is_for(slot));
    let all_infos = for_me.map(|(n, w)| (n, w.info()));
    let wanted = all_infos.filter(|(_, i)| set & bit(i.signal()) != 0);
    let (n, info) = wanted.min_by_key(|(n, i)| (i.signal(), *n))?;
    let left = list();
    for k in n + 1..left.len() {
        left[k - 1].set(&left[k].info(), left[k].only.load(Relaxed));
    }
    all().len.fetch_sub(1, Relaxed);
    Some(info)
}

/// As [`take_one`], of what waits for the calling thread and what has come to it already.
pub fn take_own(t: &mut Block, set: u64) -> Option<Siginfo> {
    t.pending.take(!set).or_else(|| take_one(t.slot, set))
}

/// In the calling thread's turn, or when it is the only one: signals that it has open come to it, one of each at a time.
pub fn take(t: &mut Block) {
    if is_empty() || member(t.slot).hearing.load(SeqCst) != hearing::HEARS {
        return;
    }
    let open = |t: &Block| !(t.mask | t.pending.set());
    if !list()
        .iter()
        .any(|w| w.is_for(t.slot) && open(t) & bit(w.info().signal()) != 0)
    {
        return;
    }
    // No handler may come in between.
    kernel::block_all();
    while let Some(info) = take_one(t.slot, open(t)) {
        if phases().delivers() {
            t.pending.push(info);
        }
    }
    kernel::sync_mask(t);
}

/// Signals that wait for this slot's thread, or for any.
pub fn waiting(slot: u32) -> u64 {
    let for_me = list().iter().filter(|w| w.is_for(slot));
    for_me.fold(0, |set, w| set | bit(w.info().signal()))
}
