//! What a leader's thread may do before it is known whether an epoch is good: which calls end the epoch first (its commits, Respec 4.2), which wait as long as the program is ahead, and whose output is
//! held.

use super::{is_on, RACES};
use crate::engine::wish::CLONE_THREAD;
use crate::gate::epochs::ahead::{self, Before};
use crate::gate::epochs::{back, output};
use crate::gate::{signals, stand};
use crate::log::epoch;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::memory::futex;
use crate::memory::identity::identity_of;
use crate::memory::{self, as_then};
use crate::signal::kernel;
use crate::thread::{process, standing, Block, Entered, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::effect::Effect;
use reprise_abi::layout::RING_SIZE;
use reprise_abi::spec::{Replay, Syscall};
use reprise_abi::syscalls::{self, nr};

/// Does such a call say something to others?
fn says_something(number: u64) -> bool {
    matches!(
        syscalls::effect(number),
        Effect::Writes(..) | Effect::Sends(_) | Effect::Puts(_) | Effect::Moves(_)
    )
}

/// The registers at the gate of a call as they are when that call is to be made once more.
pub fn before_call(frame: &Frame) -> Frame {
    let mut before = *frame;
    before.rip -= 2;
    before.rax = u64::from(frame.rax as u32);
    before
}

pub(super) fn makes_thread(frame: &Frame) -> bool {
    frame.rax as u32 as u64 == nr::CLONE && frame.rdi & CLONE_THREAD != 0
}

/// In the leader: is the call one that a copy can't make?
#[inline(always)]
pub fn ends_before(t: &Block, frame: &Frame) -> bool {
    is_on(t) && is_commit(t, frame)
}

pub(super) fn is_commit(t: &Block, frame: &Frame) -> bool {
    let number = frame.rax as u32 as u64;
    let args = frame.args();
    if syscalls::may_hide_process(number, &args) {
        return true;
    }
    match syscalls::effect(number) {
        does @ (Effect::Maps | Effect::Unmaps | Effect::Remaps) => maps_for_good(does, &args),
        Effect::Attaches | Effect::Detaches | Effect::Execs | Effect::EndsProcess => true,
        Effect::EndsThread => process::entry().live_threads.load(Relaxed) == 1,
        Effect::Signals(_) => {
            let c = Call::new(number, args, syscalls::lookup(number));
            signals::ends_us(t, &c, process::visible_pid()).is_some()
        }
        // Those that may wait for another thread can't be made while that stands.
        Effect::Futex => {
            let c = Call::new(number, args, syscalls::lookup(number));
            futex::word_changed_at_once(&c).is_some()
        }
        Effect::Reads(fd, _) => {
            let c = Call::new(number, args, syscalls::lookup(number));
            brings_much(&c, args[usize::from(fd)])
        }
        effect => effect.makes_thread() && !makes_thread(frame),
    }
}

/// Does the call map or unmap something else than private memory that is nobody's file? That could not be undone.
fn maps_for_good(does: Effect, args: &[u64; 6]) -> bool {
    let [start, len, new_len, ..] = *args;
    let could_come_back = |start: u64, len: u64| {
        as_then::could_come_back(start, start.saturating_add(memory::up(len)))
    };
    match does {
        Effect::Maps => {
            let flags = args[3];
            let is_plain =
                flags & sys::MAP_ANONYMOUS != 0 && flags & sys::MAP_TYPE == sys::MAP_PRIVATE;
            let replaces = flags & sys::MAP_FIXED != 0;
            !is_plain || replaces && !could_come_back(start, len)
        }
        Effect::Remaps => {
            let moves_to = (args[3] & sys::MREMAP_FIXED != 0).then_some(args[4]);
            !could_come_back(start, len) || moves_to.is_some_and(|to| !could_come_back(to, new_len))
        }
        _ => !could_come_back(start, len),
    }
}

/// Does the call, which reads from this descriptor, bring more than the log of an epoch has room for beside all else? Of a regular file alone, for which it never waits: one thread makes the call while all
/// others stand.
fn brings_much(c: &Call, fd: u64) -> bool {
    const MUCH: usize = RING_SIZE as usize / 16;
    c.scratch_needed() > MUCH && identity_of(fd) != 0
}

/// In the leader, before a call: is the thread to leave the gate, and to come to it again? A program that is ahead waits here until it is known that it needs
/// not go back. Whoever wants all to stand doesn't wait for that.
#[inline(always)]
pub fn keeps_back(t: &mut Block, frame: &Frame) -> bool {
    if !is_on(t) {
        return false;
    }
    let number = frame.rax as u32 as u64;
    if leaves_nothing(number) {
        return false;
    }
    let lasts = syscalls::lasts(number) && !makes_thread(frame);
    let c = Call::new(number, frame.args(), syscalls::lookup(number));
    if let Some(target) = lasts.then(|| output::may_be_held(&c)).flatten() {
        const EAGAIN: i64 = -11;
        let is_full = output::is_left_over(Some(target.fd));
        if is_full && !output::is_impatient(&c, target.fd) {
            // Then the call is looked at once more.
            awaits_output(t, Some(target.fd));
            return true;
        }
        t.held = match is_full {
            true => Some(EAGAIN),
            false => output::holds(&c, &target).then_some(target.len as i64),
        };
        if t.held.is_some() {
            return false;
        }
    }
    if ahead::is_ahead() && keeps_back_now(t) {
        return true;
    }
    if lasts && output::is_seen_by(&c) {
        // All of it is written first, as far as that can be.
        t.goes_back = true;
        t.shows = true;
        return true;
    }
    let depends = says_something(number) || lasts && RACES.load(Relaxed);
    if depends && !epoch::begins_at(t.slot, &before_call(frame)) {
        // What it says is to be what the recording has: the epoch ends before it.
        t.goes_back = true;
        return true;
    }
    if lasts {
        if let Effect::Closes(_) | Effect::ClosesRange(..) | Effect::Replaces(_) = c.effect {
            epoch::has_closed();
        }
        if !syscalls::only_asks(number, &c.args) {
            back::does_what_lasts(number);
        }
    }
    false
}

/// What is left over for this descriptor, or for any, is waited for, as at a pipe that is full. False: the thread is to leave its gate first, and to come to it again.
fn awaits_output(t: &mut Block, fd: Option<u64>) -> bool {
    let is_wanted =
        |t: &Block| standing::wanted().is_some() || t.slot().signal_pending.load(Relaxed) != 0;
    while output::is_left_over(fd) {
        if is_wanted(t) {
            return false;
        }
        output::awaits_room(fd);
        kernel::block_all();
        output::pushes();
        kernel::sync_mask(t);
    }
    true
}

/// In the leader, before a call that ends the epoch: if it may end the program, too, what is left over is waited for while others can go on. False: see [`keeps_back`].
pub fn has_written_all(t: &mut Block, frame: &Frame) -> bool {
    !may_be_last(frame) || awaits_output(t, None)
}

/// Can this call be made while it isn't known whether the epoch before is good? Then nothing of it is left if the program has to go back.
fn leaves_nothing(number: u64) -> bool {
    let is_refused = |call: &Syscall| matches!(call.replay, Replay::Refuse(_));
    match syscalls::effect(number) {
        Effect::Tells(_) | Effect::Yields => true,
        // Which of them are refused depends on what is asked for.
        Effect::Commands(_) => false,
        _ => syscalls::lookup(number).is_some_and(is_refused),
    }
}

#[cold]
fn keeps_back_now(t: &mut Block) -> bool {
    loop {
        match ahead::before() {
            Before::Good => return false,
            Before::Unknown => {}
            Before::Other | Before::Lost => {
                t.goes_back = true;
                return true;
            }
        }
        if standing::wanted().is_some() {
            return true;
        }
        ahead::await_news();
    }
}

/// In the leader: a call comes back whose beginning is logged. A program that is ahead is told of it when it is known that it needs not go back; it stands in the call meanwhile, if
/// that is wanted, and all go back from there: also who waits here, if nothing is left of the call, and it `may_forget` what it has come to.
#[inline(always)]
pub fn comes_back(t: &mut Block, call: Entered, c: &Call, may_forget: bool) {
    let lasts = syscalls::lasts(c.nr) && !syscalls::only_asks(c.nr, &c.args);
    // Once is not enough: while it stands in the call another epoch may end.
    while ahead::is_ahead() {
        comes_back_late(t, call, may_forget && !lasts);
    }
    if is_on(t) && lasts {
        back::does_what_lasts(c.nr);
    }
}

#[cold]
fn comes_back_late(t: &mut Block, call: Entered, forgets: bool) {
    let waits = |t: &mut Block| loop {
        match ahead::before() {
            Before::Good => return,
            Before::Unknown => ahead::await_news(),
            Before::Other | Before::Lost => super::ask_in_call(t),
        }
    };
    match forgets {
        true => stand::staying_for_news(t, call, waits),
        false => stand::staying(t, call, waits),
    }
}

/// In the leader, in the middle of a hooked function, which can't wait until all stand: a call that shapes memory. Where all have to go back it isn't made, if the program can go on without; what
/// it would have come to.
pub fn shapes_memory(c: &Call) -> Option<i64> {
    const ENOMEM: i64 = -12;
    while ahead::before() == Before::Unknown {
        ahead::await_news();
    }
    match (ahead::before(), c.effect) {
        (Before::Good, _) | (_, Effect::Maps) => None,
        (_, Effect::Remaps) => Some(ENOMEM),
        _ => Some(0),
    }
}

/// Is the call, of which these are the registers before it, one with which the program may end in this process?
pub(super) fn may_be_last(frame: &Frame) -> bool {
    matches!(
        syscalls::effect(frame.rax as u32 as u64),
        Effect::Execs | Effect::EndsProcess | Effect::EndsThread | Effect::Signals(_)
    )
}
