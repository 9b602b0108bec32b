//! A replay in total order (`replay --order total`; Castor 3.2): one thread runs at a time, until it would have to wait or ends; then the next
//! one in the order of their slots.
//!
//! Nothing else decides who runs. So every such replay is the same as the next one, to the instruction, even where a data race makes it
//! another run than the recording was. What partial order allows is more: there, threads run at the same time until they come to something
//! that the recording ordered.
//!
//! A thread that waits for another one by looking at memory again and again, in code whose operations nobody orders, waits for ever here.

use crate::log::debugger;
use crate::machine::sys;
use crate::thread::rings::head;
use crate::thread::{current, session, Block};
use core::sync::atomic::{AtomicU32, Ordering::*};
use reprise_abi::session::FLAG_TOTAL;
use reprise_abi::total::{TURN, TURN_KEPT};

/// After so many threads that gave way one after the other, each of them for nothing, nobody is in a hurry any more.
const FEW: u32 = 1000;
/// How often each thread must have found that it can't go on, beyond these few times, before nobody is expected to change memory.
const SEVERAL: u32 = 16;
/// In a replay that looks for races, none of them can ever go on when, from there on, each has looked again, and the driver has found nothing to do
/// so often. (In all others it is the driver that sees it: `replay/tree/stuck.rs`.)
const ALL_WAIT: u32 = 300;
/// Nanoseconds that each of the others then waits.
const SHORT_NAP: i64 = 1_000_000;
/// A sleeper looks after this many nanoseconds whether the agent is still there.
const LONGEST_NAP: i64 = 1_000_000_000;

/// How often the driver had found nothing to do when threads had given way for nothing [`FEW`] times.
static IDLE: AtomicU32 = AtomicU32::new(0);

/// Does one thread run at a time?
#[inline(always)]
pub fn runs() -> bool {
    session().flags & FLAG_TOTAL != 0
}

/// The thread of this slot is about to begin.
pub fn join(slot: u32) {
    if runs() {
        head().total.join(slot as usize);
    }
}

/// The calling thread begins when its turn comes for the first time.
pub fn begin(t: &Block) {
    begin_unless(t, || false);
}

/// As [`begin`], nor does it wait any longer when all `is_over` for it: then it may have no turn, and needs none.
pub fn begin_unless(t: &Block, is_over: impl Fn() -> bool) {
    if runs() {
        wait_for_turn(t.slot, is_over);
    }
}

/// A trace of which only the last stretch was kept begins with threads that slept in a replay in partial order. In total order they go on when it
/// is their turn, and when a debugger gives them leave.
pub fn begin_asleep() {
    if runs() {
        let (slot, h) = (current().slot_number(), &head().total);
        let waits = || h.turn[slot as usize].load(SeqCst) == 0 && h.takes_part(slot as usize);
        if waits() {
            wait_for_turn(slot, || !waits());
        }
        debugger::await_leave();
    }
}

/// The calling thread does nothing more that others could see.
pub fn leave(slot: u32) {
    leave_after(slot, || ());
}

/// As [`leave`], after a last operation: the others see it done, and the slot may be somebody else's from then on.
pub fn leave_after(slot: u32, last: impl FnOnce()) {
    if runs() {
        head().total.leave(slot as usize);
    }
    last();
    if runs() {
        pass_on(slot);
    }
}

/// The calling thread is back after it had left.
pub fn come_back(t: &Block) {
    join(t.slot);
    begin(t);
}

/// Until [`keep_no_longer`] the calling thread runs alone. If the driver has taken its turn away, since all that was recorded of it is done, it waits
/// for the next one.
pub fn keep() {
    let slot = current().slot_number();
    let turn = &head().total.turn[slot as usize];
    while turn
        .compare_exchange(TURN, TURN_KEPT, SeqCst, SeqCst)
        .is_err()
    {
        join(slot);
        if runs() {
            wait_for_turn(slot, || false);
        }
    }
}

/// See [`keep`]. Who gave way meanwhile keeps nothing any more.
pub fn keep_no_longer() {
    let turn = &head().total.turn[current().slot_number() as usize];
    let _ = turn.compare_exchange(TURN_KEPT, TURN, SeqCst, SeqCst);
}

/// The calling thread can't go on now: the others run, until its turn comes again.
pub fn give_way() {
    let slot = current().slot_number();
    let head = head();
    let h = &head.total;
    let fruitless = h.fruitless.fetch_add(1, SeqCst);
    if fruitless == FEW {
        IDLE.store(h.idle.load(SeqCst), Relaxed);
    }
    let idle = h.idle.load(SeqCst).wrapping_sub(IDLE.load(Relaxed));
    if crate::thread::in_force::looks_for_races()
        && fruitless > FEW
        && fruitless - FEW > h.count()
        && idle > ALL_WAIT
    {
        session()
            .message
            .store(crate::thread::message::ALL_THREADS_WAIT, Relaxed);
        sys::exit_group(125);
    }
    let able = head.next_able(slot as usize);
    if able.is_none() || fruitless > FEW {
        // It may be the driver that all wait for: a process is to be made, or has to be gone.
        let soon = sys::Timespec::from_ns(sys::monotonic().ns() + SHORT_NAP);
        sys::futex_wait(h.fruitless.as_ptr(), fruitless + 1, Some(&soon));
        if !crate::thread::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
    match able.or_else(|| h.after(slot as usize)) {
        Some(next) if next != slot as usize => {
            pass_on(slot);
            wait_for_turn(slot, || false);
        }
        _ => {
            sys::call(reprise_abi::syscalls::nr::SCHED_YIELD, &[]);
        }
    }
}

/// The calling thread found what it waited for.
#[inline]
pub fn goes_on() {
    head().total.fruitless.store(0, SeqCst);
}

/// Has each thread found several times that it can't go on, and none that it can?
pub fn all_wait() -> bool {
    let h = &head().total;
    runs() && h.fruitless.load(SeqCst) > FEW + SEVERAL * h.count()
}

/// Lets other threads run: in total order all of them, else whom the kernel chooses.
pub fn let_others() {
    if runs() {
        give_way();
    } else {
        sys::call(reprise_abi::syscalls::nr::SCHED_YIELD, &[]);
    }
}

fn pass_on(slot: u32) {
    let h = head();
    if let Some(next) = h.pass_on(slot as usize) {
        sys::futex_wake(h.total.turn[next].as_ptr(), 1);
    }
}

fn wait_for_turn(slot: u32, is_over: impl Fn() -> bool) {
    let turn = &head().total.turn[slot as usize];
    while turn.load(SeqCst) == 0 && !is_over() {
        let until = sys::Timespec::from_ns(sys::monotonic().ns() + LONGEST_NAP);
        sys::futex_wait(turn.as_ptr(), 0, Some(&until));
        if !crate::thread::namespace::agent_lives() {
            sys::exit_group(125);
        }
    }
}
