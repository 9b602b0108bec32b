//! Are all threads of this process to stand ([`crate::gate::stand`])? One thread asks for it at a time.

use crate::machine::{split_mix, sys};
use crate::thread::signals::{send_own, Siginfo};
use crate::thread::{session, Block};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use reprise_abi::session::FLAG_EPOCHS;

/// `si_code` of the signal that tells a thread of it.
const STAND: i32 = -4712;

/// The number of the request that is open; 0: none is (a futex).
static OPEN: AtomicU32 = AtomicU32::new(0);
/// Requests so far.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// The number of the open request.
#[inline(always)]
pub fn wanted() -> Option<u32> {
    match OPEN.load(SeqCst) {
        0 => None,
        n => Some(n),
    }
}

/// Opens a request, unless one is open already; its number.
pub fn ask() -> Option<u32> {
    let n = REQUESTS.fetch_add(1, Relaxed) | 1 << 31;
    OPEN.compare_exchange(0, n, SeqCst, Relaxed).ok().map(|_| n)
}

/// All go on.
pub fn release() {
    OPEN.store(0, Release);
    sys::futex_wake_all(OPEN.as_ptr());
}

/// Waits until that request is over.
pub fn await_release(request: u32) {
    while OPEN.load(Acquire) == request {
        sys::futex_wait(OPEN.as_ptr(), request, None);
    }
}

/// Tells the thread with this id: wherever it is, it is to look whether it is to stand.
pub fn tell(tid: u32) {
    send_own(sys::getpid() as u64, tid, STAND);
}

/// Is this such a signal?
pub fn tells(info: &Siginfo) -> bool {
    info.code() == STAND
}

/// In the copy of a memory that fork(2) made: who asked isn't here.
pub fn after_fork() {
    OPEN.store(0, Relaxed);
}

/// Does the agent want that the open epoch ends although nobody comes to a gate?
#[inline(always)]
pub fn is_asked_for() -> bool {
    session().epoch_asked.load(Relaxed) != 0
}

/// A test (`record --test-reenter`): threads ask for it at random, and go on.
#[inline(always)]
pub fn is_tested() -> bool {
    session().test_reenter != 0
}

/// Does anybody ever ask for it?
#[inline(always)]
pub fn may_be_asked_for() -> bool {
    is_tested() || session().flags & FLAG_EPOCHS != 0
}

/// The test asks at one place in so many, ...
const ONCE_IN: u64 = 8;
/// ... and so many times.
const MOST: u64 = 10_000;

static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Does the test ask at this place? Which are drawn, the seed says, and the order in which threads come.
pub fn is_due() -> bool {
    if !is_tested() || session().stood.load(Relaxed) >= MOST {
        return false;
    }
    draw() % ONCE_IN == 0
}

/// Draws the next number of the seed's.
pub fn draw() -> u64 {
    let n = DRAWN.fetch_add(1, Relaxed) + (u64::from(session().test_reenter) << 32);
    split_mix::mix(n.wrapping_mul(split_mix::GAMMA))
}

/// A hooked function ends: it takes the long way out, where the thread may stand, when an epoch is to end; under the test now and then.
#[inline(always)]
pub fn draws_at_hook(t: &Block) {
    if session().epoch_due.load(Relaxed) != 0 || is_due() {
        t.slot().signal_pending.store(1, Release);
    }
}
