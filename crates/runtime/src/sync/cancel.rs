//! Cancellation of threads that wait in a hooked function which is a cancellation point.
//!
//! glibc has a word for each thread (`cancelhandling`), and says to debuggers where it is. While a thread waits in such a function, the word
//! says that it can be cancelled at any time, so that `pthread_cancel` sends the signal that ends the wait. The cancellation itself is left to
//! glibc: the hooked function ends by going on in `pthread_testcancel`, which then doesn't return, and unwinds as if the program had called it
//! in the function's place.
//!
//! That a thread was cancelled here is logged as a failure (`ECANCELED`). The word itself is not ordered: whether whoever cancels has to send
//! a signal is for the one who orders `pthread_cancel` to record. In a replay nobody waits long, and nothing is to be interrupted.

use super::wait::{pause, wait, Wait};
use crate::hook;
use crate::hook::shim::Done;
use crate::order::Order;
use crate::thread::{Block, Frame};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// The thread wants not to be cancelled.
const DISABLED: u32 = 1;
/// It can be cancelled anywhere.
const ASYNCHRONOUS: u32 = 2;
/// The signal for it is on its way.
const CANCELLING: u32 = 4;
/// It is cancelled.
const CANCELLED: u32 = 8;
/// It ends already, or has ended.
const EXITING: u32 = 0x30;

fn word(t: &Block) -> Option<&'static AtomicU32> {
    let (_, at) = hook::cancellation(t.fs_base)?;
    // SAFETY: a word in the thread's own control block, as libc says.
    Some(unsafe { &*(at as *const AtomicU32) })
}

/// Does a thread with this word have to end here?
fn is_due(value: u32) -> bool {
    value & (DISABLED | EXITING) == 0 && value & (CANCELLING | CANCELLED) != 0
}

/// Is the calling thread to be cancelled now?
pub fn is_requested(t: &Block) -> bool {
    word(t).is_some_and(|w| is_due(w.load(Acquire)))
}

/// A wait begins. The result is for [`end`].
pub fn begin<O: Order>(t: &mut Block) -> bool {
    !O::REPLAYS && word(t).is_some_and(|w| w.fetch_or(ASYNCHRONOUS, AcqRel) & ASYNCHRONOUS == 0)
}

/// It is over.
pub fn end<O: Order>(t: &mut Block, begun: bool) {
    if let Some(w) = word(t).filter(|_| begun) {
        w.fetch_and(!ASYNCHRONOUS, AcqRel);
    }
}

/// The function ends in the program's `pthread_testcancel`.
pub fn go<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let Some(((test, _), w)) = hook::cancellation(t.fs_base).zip(word(t)) else {
        return Done::value(0);
    };
    loop {
        let v = w.load(Acquire);
        if v & CANCELLED != 0 {
            break;
        }
        // Whoever cancels has not got so far yet; its signal's handler sets the bit.
        if O::REPLAYS {
            pause();
        } else if wait(t, w, v, None, false) == Wait::Signal {
            break;
        }
    }
    f.rip = test;
    Done::by_frame()
}
