//! Threads stand under `serial`, so that an epoch begins: the only one of them, the one for which all others stand, or all of those that have run one at a time for a while, since the
//! program has gone back ([`leader`]; Respec 3: after an epoch that was run serially the next one is run as ever).
//!
//! All of them: who has the baton asks for it, says that it stands, and gives the baton on. Each of the others does so when it has the baton next, at the first end of a gate or hooked function that
//! it comes to; who waits in a call, or in a hooked function, is interrupted by the signal that tells it to. In the trace this is the end of an epoch for each of them, as a copy writes
//! it, and a replay does there what it does at that.
//!
//! A thread that computes, or waits by looking for one that stands already, comes to no such place: then all go on, one at a time, and it is tried again later.

use super::{arrived, baton, cut, hooked};
use crate::common::make::NOT_MADE;
use crate::common::time_left::TimeLeft;
use crate::gate::{leader, stand};
use crate::log::events;
use crate::log::quiet;
use crate::log::ring::Writer;
use crate::memory::capture::Call;
use crate::signal::frame::Ucontext;
use crate::sync::{self, locked};
use crate::thread::{session, Block, Entered, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::event::{EventHeader, Kind, ENDS_IN_CODE, FLAG_RESTARTED, YIELD_AT_EPOCH_END};
use reprise_abi::syscalls;

/// The end of a gate or of a hooked function.
#[inline(always)]
pub fn passes_point(t: &mut Block, frame: &Frame) {
    if leader::is_next(t) {
        ends_at_point(t, frame);
        let says = |t: &mut Block, first| {
            if first {
                locked::before_thread(t);
                sync::libc::makes_tables();
            }
            says_end(t, t.deferred.into());
        };
        leader::begin(t, says, |t, request| {
            stand::stands_first(t, frame, None, request);
        });
    } else if let Some((request, asks)) = leader::pause::gathers(t) {
        ends_at_point(t, frame);
        says_end(t, 0);
        match asks {
            true => leader::pause::gathers_others(t, frame, request),
            false => leader::pause::gathers_with_others(t, frame, None, request),
        }
    }
}

fn ends_at_point(t: &mut Block, frame: &Frame) {
    cut::record::abandon(t);
    hooked::tells_end(t, frame);
}

/// The thread's epoch ends, in this way.
fn says_end(t: &Block, how: i64) {
    events::plain(Kind::Yield, t.slot, YIELD_AT_EPOCH_END, how, &[]);
}

/// The thread, which is alone, was told of a signal. What its handler waits for the others may have to do, by looking even: so they go on now, and not at its first gate.
pub fn told_alone(t: &mut Block, frame: &Frame, in_code: bool) {
    cut::record::abandon(t);
    let how = if in_code { ENDS_IN_CODE } else { 0 };
    let says = |t: &mut Block, _| says_end(t, how);
    leader::begin(t, says, |t, request| {
        stand::stands_first(t, frame, None, request);
    });
}

/// As [`told_alone`], of a fault: the kernel is about to let it go on there.
pub fn told_of_fault_alone(t: &mut Block, uc: &Ucontext) {
    cut::record::abandon(t);
    let says = |t: &mut Block, _| says_end(t, ENDS_IN_CODE);
    leader::begin(t, says, |t, request| {
        stand::stands_first_in_code(t, uc, request);
    });
}

/// What becomes of a thread in its call when all are to stand.
pub enum Stands {
    /// It stands there.
    In(Entered),
    /// It is not to be interrupted.
    Never,
}

/// Before a call that may wait: what becomes of the thread there, if all may be wanted to stand.
pub fn in_calls(t: &Block, c: &Call, hash: u64) -> Option<Stands> {
    if !leader::pause::is_on(t) {
        return None;
    }
    Some(match stand::happens_once(c) {
        true => Stands::Never,
        false => Stands::In(Entered {
            deadline: TimeLeft::of(c, 0).deadline,
            ..stand::entered(c, hash)
        }),
    })
}

/// A signal of the runtime's has interrupted the thread in this call, of which nothing is done: it stands there, if all are to. It has `held` the baton, if nobody has taken it meanwhile.
pub fn in_call(t: &mut Block, call: &Entered, held: bool) {
    let Some(request) = leader::pause::is_wanted(t) else {
        return;
    };
    match held && baton::leave_call(t) {
        true => events::enter(t.slot, 0),
        false => {
            baton::acquire(t);
            arrived::arrived(t);
        }
    }
    stands_in_call(t, call, request)
}

/// As [`in_call`], with the baton; the call's beginning is logged.
pub fn stands_in_call(t: &mut Block, call: &Entered, request: u32) -> ! {
    says_end(t, 0);
    let frame = stand::gate_frame(t);
    leader::pause::gathers_with_others(t, &frame, Some(*call), request)
}

/// A thread that stood goes on under `serial`: when it has the baton.
pub fn reenters(t: &mut Block, frame: &mut Frame) {
    if session().baton.load(Relaxed) != t.slot + 1 {
        // All go on, one at a time.
        baton::acquire(t);
    }
    quiet::restart(t);
    if t.pending.first(t.mask).is_some() {
        // It was about to be told of that when all stood.
        t.slot().signal_pending.store(1, Release);
    }
    let Some(call) = t.entered.take() else {
        return events::plain(Kind::Resume, t.slot, 0, 0, &[]);
    };
    let number = frame.rax as u32 as u64;
    let c = Call::new(number, frame.args(), syscalls::lookup(number));
    let h = EventHeader {
        detail: number as u32,
        ..events::header(Kind::Exit, t.slot, 0, 0)
    };
    // The call that it stood in is another engine's: it is made once more, unless what it waited for has come.
    let h = match stand::is_over(&c, &call) {
        true => {
            frame.rax = 0;
            h
        }
        false => {
            *frame = leader::calls::before_call(frame);
            EventHeader {
                value: NOT_MADE,
                flags: FLAG_RESTARTED,
                ..h
            }
        }
    };
    Writer::begin(&h).finish();
}
