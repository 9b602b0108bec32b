//! Requests to the agent (record) or the driver (replay), answered before the program goes on.

use crate::machine::sys::{self, Timespec};
use crate::thread::{current, session};
use core::sync::atomic::Ordering::*;
use reprise_abi::session::request;

/// Between two looks whether the other side still is there.
const LOOK_NS: i64 = 50_000_000;

/// Asks, and waits for the answer: the status and the answer's words. `None`: nobody is there to ask.
pub fn ask(kind: u32, args: &[u64]) -> Option<(u32, [u64; 4])> {
    let s = session();
    let q = &s.request;
    let me = current().slot_number() + 1;
    while let Err(other) = q.taken.compare_exchange(0, me, Acquire, Relaxed) {
        let t = Timespec::from_ns(sys::monotonic().ns() + LOOK_NS / 50);
        sys::futex_wait(q.taken.as_ptr(), other, Some(&t));
        if !someone_answers() {
            return None;
        }
    }
    for (to, a) in q.args.iter().zip(args) {
        to.store(*a, Relaxed);
    }
    q.kind.store(kind, SeqCst);
    wake_agent();
    let mut answered = true;
    while q.kind.load(Acquire) != request::NONE {
        let t = Timespec::from_ns(sys::monotonic().ns() + LOOK_NS);
        sys::futex_wait(q.kind.as_ptr(), kind, Some(&t));
        if !someone_answers() {
            answered = false;
            break;
        }
    }
    let status = q.status.load(Relaxed);
    let mut words = [0; 4];
    for (w, from) in words.iter_mut().zip(&q.answer) {
        *w = from.load(Relaxed);
    }
    q.taken.store(0, Release);
    sys::futex_wake(q.taken.as_ptr(), 1);
    answered.then_some((status, words))
}

/// The agent looks after a thread that has to come to the end of what it computes, where there is one.
pub fn ask_for_end_of_slice() {
    session().slice_over.store(1, Relaxed);
    wake_agent();
}

/// Wakes the agent if it sleeps.
pub fn wake_agent() {
    let s = session();
    if s.agent_asleep.swap(0, SeqCst) != 0 {
        sys::futex_wake(s.agent_asleep.as_ptr(), 1);
    }
}

fn someone_answers() -> bool {
    let lives = crate::thread::namespace::agent_lives();
    if !lives {
        session().recording_lost.store(1, Relaxed);
    }
    lives
}
