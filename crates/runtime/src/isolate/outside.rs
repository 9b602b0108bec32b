//! Signals from outside to the process as a whole: kill(2) by others, the terminal, timers, children. The kernel knows the program by its first thread, so
//! they come to that one, and the kernel would keep them while it blocks them, though another thread has them open, or waits for one.
//!
//! Signals that any thread **wants** in this way come to the runtime's handler whatever the first thread's mask says. From there they go through an **inbox** to
//! the threads: at the end of a round, when nobody runs and no mask changes, each is given to the first thread that takes it ([`shared_signals`]), or waits for one. What the
//! kernel does by default with a signal is done here then. When a signal comes is the world's business; from its round on all is the program's.
//!
//! A timer that signals a certain thread is the first thread's as well, and its signals are led on to that thread.

use super::call::{self, call};
use super::members::{hearing, is_ours, member};
use super::phases::{lives, phases, Whereabouts};
use super::{ending, proxy, shared_signals, space, split};
use crate::engine::waits::Wait;
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::signal::kernel;
use crate::signal::kernel::WANTED;
use crate::thread::process;
use crate::thread::signals::*;
use crate::thread::{current, session, slot, Block};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::effect::Effect;
use reprise_abi::spec::Mem;
use reprise_abi::syscalls::nr;

/// Signals that are more than that to the kernel, or are the runtime's own: SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGKILL, SIGCUT and faults.
const NEVER: u64 =
    bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(SIGKILL) | bit(SIGCUT) | SYNCHRONOUS;
/// Signals in the inbox, at most: of those that come while it is full the last ones are lost.
const INBOX: usize = 64;
/// Timers that signal a certain thread, at most.
const TIMERS: usize = 256;

const FREE: u32 = 0;
const BUSY: u32 = 1;
const FULL: u32 = 2;

/// Signals that the first thread blocked in its last turn, ...
static FIRST_BLOCKS: AtomicU64 = AtomicU64::new(0);
/// ... and those that any other thread had open in one of its turns.
static OTHERS_OPEN: AtomicU64 = AtomicU64::new(0);

/// A signal that has come.
struct Letter {
    state: AtomicU32,
    /// For this slot alone, plus 1; 0: for the process.
    only: AtomicU32,
    number: AtomicU64,
    info: [AtomicU64; 16],
}

static POSTED: [Letter; INBOX] = [const {
    Letter {
        state: AtomicU32::new(FREE),
        only: AtomicU32::new(0),
        number: AtomicU64::new(0),
        info: [const { AtomicU64::new(0) }; 16],
    }
}; INBOX];
static NEXT: AtomicU64 = AtomicU64::new(0);
/// Timers that signal a certain thread: the kernel's number plus 1, and the slot.
static TIMED: [(AtomicU64, AtomicU32); TIMERS] =
    [const { (AtomicU64::new(0), AtomicU32::new(0)) }; TIMERS];

/// At the beginning of a turn: signals that the first thread blocks, and another one has open, are wanted.
pub fn note_mask(t: &Block) {
    /// Only libc itself blocks its own signals, for a moment.
    const ALL_FOR_A_MOMENT: u64 = bit(32) | bit(33);
    if !phases().passes_signals_on() {
        return;
    }
    let m = t.saved_mask.unwrap_or(t.mask) & t.mask;
    let set = match ending::is_first() {
        true if m & ALL_FOR_A_MOMENT == ALL_FOR_A_MOMENT => return,
        true => {
            FIRST_BLOCKS.store(m, Relaxed);
            m & OTHERS_OPEN.load(Relaxed)
        }
        false if !m & !OTHERS_OPEN.load(Relaxed) == 0 => return,
        false => {
            OTHERS_OPEN.fetch_or(!m, Relaxed);
            FIRST_BLOCKS.load(Relaxed) & !m
        }
    };
    if set & !NEVER & !WANTED.load(Relaxed) != 0 {
        wants(t, set);
    }
}

/// In the first thread's last turn: whatever comes is another one's.
pub fn first_ends(t: &Block) {
    FIRST_BLOCKS.store(!0, Relaxed);
    wants(t, !0);
}

/// In a turn: these signals are wanted from now on.
pub fn wants(t: &Block, set: u64) {
    let new = set & !NEVER & !WANTED.load(Relaxed);
    if new == 0 || !phases().passes_signals_on() {
        return;
    }
    WANTED.fetch_or(new, SeqCst);
    learn(t.slot, true);
    space::tell_wants(t);
    // When the first thread has ended its process waits for nothing else.
    if let Some(first) = proxy::first().filter(|s| !lives(*s)) {
        call(first);
    }
}

/// The calling thread, of this slot, tells the kernel what is wanted. `opens`: it has a mask that can change now.
pub fn learn(s: u32, opens: bool) {
    let known = &member(s).wants;
    let new = WANTED.load(Relaxed) & !known.load(Relaxed);
    if new == 0 {
        return;
    }
    known.fetch_or(new, Relaxed);
    each(new, crate::gate::signals::tell_kernel);
    if opens && member(s).hearing.load(SeqCst) == hearing::HEARS {
        kernel::sync_own_mask(current());
    }
}

fn each(set: u64, f: impl FnMut(u32)) {
    (1..=SIGNALS as u32)
        .filter(|s| set & bit(*s) != 0)
        .for_each(f);
}

/// In a process that has left the memory of the threads.
pub fn undo() {
    let was = WANTED.swap(0, SeqCst);
    FIRST_BLOCKS.store(0, Relaxed);
    OTHERS_OPEN.store(0, Relaxed);
    each(was, crate::gate::signals::tell_kernel);
    POSTED.iter().for_each(|l| l.state.store(FREE, Relaxed));
    TIMED.iter().for_each(|t| t.0.store(0, Relaxed));
}

/// Is this the id of one of the program's threads for the kernel? Or of the program as it knows itself: what has waited in the runtime, and then
/// in the kernel ([`kernel::give_back_blocked`]), names that.
fn is_thread(pid: u32) -> bool {
    if pid == process::visible_pid() {
        return true;
    }
    let used = session().slots_used.load(Relaxed);
    (0..used).any(|s| is_ours(s) && slot(s).kernel_tid.load(Relaxed) == pid)
}

/// For whom a signal is.
enum For {
    /// The thread to which it came.
    This,
    Process,
    /// The thread of this slot.
    Slot(u32),
    /// It has come to all thread-processes, or to the first one in another way.
    Nobody,
}

fn receiver_of(info: &Siginfo) -> For {
    const SI_USER: i32 = 0;
    const SI_KERNEL: i32 = 0x80;
    const SI_QUEUE: i32 = -1;
    const SI_TIMER: i32 = -2;
    const SI_TKILL: i32 = -6;
    // si_pid or si_timerid is the first word of the union.
    let word = info.words[2] as u32;
    match info.code() {
        SI_TKILL => For::This,
        SI_USER | SI_QUEUE if is_thread(word) => For::This,
        SI_TIMER => match timer(word) {
            Some(t) => For::Slot(t.1.load(Relaxed)),
            None => For::Process,
        },
        // The terminal, and kill(2) to a group: all thread-processes are in it.
        SI_USER | SI_QUEUE | SI_KERNEL if !ending::is_first() => For::Nobody,
        _ => For::Process,
    }
}

/// In a handler: a signal has come to this thread. True: nothing is left to be done about it.
pub fn takes(t: &mut Block, info: &Siginfo) -> bool {
    let signal = info.signal();
    if !crate::thread::in_force::has_private_views()
        || !split::in_force()
        || !phases().passes_signals_on()
        || NEVER & bit(signal) != 0
    {
        return false;
    }
    let action = ACTIONS.get(signal).handler;
    let waits = member(t.slot).sigwait.load(SeqCst) & bit(signal) != 0;
    let open = t.mask & bit(signal) == 0;
    let whose = receiver_of(info);
    let mine = match whose {
        For::This => true,
        For::Slot(s) => s == t.slot,
        For::Process => (open || waits) && ending::is_first(),
        For::Nobody => false,
    };
    if mine && (waits || !open || action > IGNORE) {
        return false;
    }
    // The kernel knows of no wait that this ends.
    call::note_interruption(t);
    match whose {
        _ if mine => by_default(signal),
        For::Nobody => {}
        For::Slot(s) => post(info, Some(s)),
        _ => post(info, None),
    }
    true
}

/// What the kernel does with a signal that has no handler.
fn by_default(signal: u32) {
    if ACTIONS.is_fatal(signal) {
        ending::announce(signal);
        kernel::die_now(signal);
    }
}

/// Puts a signal into the inbox.
fn post(info: &Siginfo, only: Option<u32>) {
    let take = |l: &&Letter| l.state.compare_exchange(FREE, BUSY, SeqCst, SeqCst).is_ok();
    let Some(l) = POSTED.iter().find(take) else {
        return;
    };
    l.only.store(only.map_or(0, |s| s + 1), Relaxed);
    l.number.store(NEXT.fetch_add(1, Relaxed), Relaxed);
    for (to, from) in l.info.iter().zip(&info.words) {
        to.store(*from, Relaxed);
    }
    l.state.store(FULL, SeqCst);
    phases().signal_has_come();
}

/// At the end of a round: gives what has come to those who take it; whether somebody comes back for it.
pub fn distribute() -> bool {
    let mut any = false;
    loop {
        let full = POSTED.iter().filter(|l| l.state.load(SeqCst) == FULL);
        let Some(l) = full.min_by_key(|l| l.number.load(Relaxed)) else {
            return any;
        };
        let info = Siginfo {
            words: l.info.each_ref().map(|w| w.load(Relaxed)),
        };
        let only = l.only.load(Relaxed).checked_sub(1);
        l.state.store(FREE, SeqCst);
        any |= give(&info, only);
    }
}

/// Gives a signal to a thread that takes it; whether that one waits no more for it.
fn give(info: &Siginfo, only: Option<u32>) -> bool {
    let signal = info.signal();
    if only.is_some_and(|s| !lives(s)) {
        return false;
    }
    let taker = match only {
        Some(s) => Some(s).filter(|s| shared_signals::takes(*s, signal)),
        None => shared_signals::taker(signal),
    };
    let Some(s) = taker else {
        shared_signals::put(info, only);
        return false;
    };
    let m = member(s);
    if m.sigwait.load(SeqCst) & bit(signal) == 0 && ACTIONS.get(signal).handler <= IGNORE {
        if ACTIONS.is_fatal(signal) {
            ending::announce(signal);
            match ending::is_first() {
                true => kernel::die_now(signal),
                false => sys::exit_group(1),
            }
        }
        return false;
    }
    shared_signals::put(info, only);
    match phases().whereabouts(s) {
        Whereabouts::Waits => {
            m.sigwait.fetch_and(!bit(signal), SeqCst);
            phases().recall(s, Wait::Signal);
            true
        }
        Whereabouts::InKernel => {
            m.called.store(1, SeqCst);
            call(s);
            false
        }
        // It takes it in its next turn.
        _ => false,
    }
}

fn timer(id: u32) -> Option<&'static (AtomicU64, AtomicU32)> {
    TIMED.iter().find(|t| t.0.load(Relaxed) == id as u64 + 1)
}

/// The calls of timers, in a turn: all are the first thread's. `None`: another call.
pub fn timers(t: &mut Block, c: &Call) -> Option<i64> {
    const ITIMER_REAL: u64 = 0;
    const EFAULT: i64 = -14;
    let a = c.args;
    // Stacks of gates are shared by all.
    let mut room = [0u64; 8];
    let at = room.as_mut_ptr() as u64;
    let [first, second] = [at, at + 32];
    let is_other = |which: u64| c.nargs > 1 && which != ITIMER_REAL;
    match c.effect {
        Effect::MakesTimer => return Some(create_timer(t, a)),
        Effect::DeletesTimer => {
            if let Some(known) = timer(a[0] as u32) {
                known.0.store(0, Relaxed);
            }
            return Some(proxy::by_first(c.nr, &a));
        }
        Effect::SetsTimer(None) | Effect::TellsTimer => {}
        Effect::SetsIntervalTimer | Effect::TellsIntervalTimer if !is_other(a[0]) => {}
        _ => return None,
    }
    let (mut input, mut output, mut args) = (0, 0, a);
    for n in 0..c.nargs {
        match c.mem[n] {
            Mem::In(_) => (input, args[n]) = (a[n], first),
            Mem::Out { .. } => (output, args[n]) = (a[n], second),
            _ => {}
        }
    }
    if input != 0 {
        let Some(words) = guard::read::<[u64; 4]>(input) else {
            return Some(EFAULT);
        };
        room[..4].copy_from_slice(&words);
    } else if c.effect == Effect::SetsTimer(None) {
        return Some(-22);
    }
    let r = proxy::by_first(c.nr, &args);
    // SAFETY: the kernel, or another thread-process, has written to it.
    let words = unsafe { core::ptr::read_volatile(second as *const [u64; 4]) };
    if r == 0 && output != 0 && !guard::write(output, &words) {
        return Some(EFAULT);
    }
    Some(r)
}

fn create_timer(t: &mut Block, a: [u64; 6]) -> i64 {
    const SIGEV_SIGNAL: u64 = 0;
    const SIGEV_NONE: u64 = 1;
    const SIGEV_THREAD_ID: u64 = 4;
    const SIGALRM: u64 = 14;
    const EINVAL: i64 = -22;
    const EFAULT: i64 = -14;
    let (mut event, mut id) = ([0u64; 8], 0u32);
    let mut receiver = None;
    let mut signal = SIGALRM;
    if a[1] != 0 {
        let Some(given) = guard::read::<[u64; 8]>(a[1]) else {
            return EFAULT;
        };
        event = given;
        signal = event[1] & 0xffff_ffff;
        let how = event[1] >> 32;
        if how == SIGEV_THREAD_ID {
            let tid = event[2] as u32;
            let used = session().slots_used.load(Relaxed);
            let is = |s: &u32| slot(*s).visible_tid.load(Relaxed) == tid && lives(*s);
            let Some(s) = (0..used).find(is) else {
                return EINVAL;
            };
            receiver = Some(s);
            event[1] = signal | SIGEV_SIGNAL << 32;
        }
        if how == SIGEV_NONE {
            signal = 0;
        }
    }
    let free = TIMED.iter().find(|t| t.0.load(Relaxed) == 0);
    let (Some(free), true) = (free, signal <= SIGNALS as u64) else {
        return EINVAL;
    };
    if signal != 0 {
        wants(t, bit(signal as u32));
    }
    let given = if a[1] == 0 { 0 } else { event.as_ptr() as u64 };
    let r = proxy::by_first(
        nr::TIMER_CREATE,
        &[a[0], given, &mut id as *mut u32 as u64, 0, 0, 0],
    );
    if r != 0 {
        return r;
    }
    // SAFETY: a word of ours that the kernel has written.
    let id = unsafe { core::ptr::read_volatile(&id) };
    if let Some(s) = receiver {
        free.1.store(s, Relaxed);
        free.0.store(id as u64 + 1, Relaxed);
    }
    match guard::write(a[2], &id) {
        true => 0,
        false => EFAULT,
    }
}
