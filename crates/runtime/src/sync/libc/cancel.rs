//! Cancellation of threads: `pthread_cancel`, `pthread_setcancelstate`, and the hooked functions that are cancellation points.
//!
//! glibc has a word for each thread (`cancelhandling`), and says to debuggers where it is. By itself it sends its signal only to a thread whose
//! word says that it can be cancelled anywhere, and otherwise changes the word, at which the thread may be looking just then. Which of the two
//! happens, and what the thread sees, is up to who is faster.
//!
//! **Order.** Here a thread that can be cancelled at all is always sent the signal, whose handler, glibc's own, changes the word: the thread
//! does that itself then, at a place that is recorded as that of every signal is. Only the word of a thread that has forbidden to be
//! cancelled is changed by others; when it forbids that, or allows it again, is ordered with it. So whatever a thread finds in its word, it
//! finds again. Whether the thread still lives, and its id, are values.
//!
//! A hooked function that is a cancellation point looks at the thread's own word where it begins: after the handler of a signal that ends
//! its wait it begins anew. It then ends by going on in the program's `pthread_testcancel`, which doesn't return, and unwinds as if the program
//! had called it in the function's place.
//!
//! glibc's `pthread_cancel` still runs: it installs the handler, loads the library that unwinds, and sends the signal. What it takes for the
//! thread is a place of ours that says what it is to do.

use super::{error::EINVAL, object};
use crate::engine::order::Order;
use crate::engine::waits::Wait;
use crate::sync::hook;
use crate::sync::hook::shim::Done;
use crate::thread::blocks;
use crate::thread::{block_address, Block, Frame, STAND_IN, STAND_IN_LEN};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

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
/// The signal (`SIGCANCEL`).
pub const SIGNAL: u32 = 32;

/// Where the original `pthread_cancel` is called.
pub static CANCEL: AtomicU64 = AtomicU64::new(0);
/// And `pthread_setcancelstate`.
pub static STATE: AtomicU64 = AtomicU64::new(0);

/// The word of the thread with this thread pointer.
fn word(thread: u64) -> Option<&'static AtomicU32> {
    let (_, at) = hook::cancellation(thread)?;
    // SAFETY: a word in the thread's control block, as libc says; a fault is the program's.
    Some(unsafe { object(at) })
}

/// Is the calling thread to end at this cancellation point?
pub fn is_due(t: &Block) -> bool {
    word(t.fs_base).is_some_and(|w| w.load(Relaxed) & (DISABLED | EXITING | CANCELLED) == CANCELLED)
}

/// Can the calling thread be cancelled?
pub fn is_enabled(t: &Block) -> bool {
    word(t.fs_base).is_some_and(|w| w.load(Relaxed) & DISABLED == 0)
}

/// Is this the calling thread's word, which nobody else changes?
pub fn is_own(t: &Block, address: u64) -> bool {
    hook::cancellation(t.fs_base).is_some_and(|(_, at)| at == address) && is_enabled(t)
}

/// The function ends in the program's `pthread_testcancel`.
pub fn go(t: &Block, f: &mut Frame) -> Done {
    if let Some((test, _)) = hook::cancellation(t.fs_base) {
        f.rip = test;
    }
    Done::by_frame()
}

/// `pthread_cancel(thread)`
pub fn cancel<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let thread = f.rdi;
    f.rip = CANCEL.load(Relaxed);
    let Some(word) = word(thread).filter(|_| thread != t.fs_base) else {
        return Done::by_frame();
    };
    let address = word.as_ptr() as u64;
    let forbidden = O::ordered(t, address, || {
        let forbidden = word.load(Acquire) & DISABLED != 0;
        if forbidden {
            word.fetch_or(CANCELLING | CANCELLED, AcqRel);
        } else {
            if let Some(b) = blocks::block_of_thread(thread) {
                b.cancels.store(1, Release);
            }
        }
        forbidden
    });
    let mut living = 0;
    if !forbidden {
        living = O::value(t, || {
            let over = word.load(Acquire) & (CANCELLED | EXITING) != 0;
            let tid = blocks::word_of_thread(thread).filter(|_| !over);
            tid.map_or(0, |tid| {
                (tid.as_ptr() as u64 - thread) << 32 | tid.load(Acquire) as u64
            })
        });
    }
    f.rdi = stand_in(t, address - thread, living);
    Done::by_frame()
}

/// What the original is to take for the thread: offset of its cancellation word, offset and value of its id.
fn stand_in(t: &Block, word: u64, living: u64) -> u64 {
    let at = block_address(t.slot) + STAND_IN;
    let put = |offset: u64, value: u32| {
        if offset < STAND_IN_LEN {
            // SAFETY: in the thread's own stand-in.
            unsafe { ((at + offset) as *mut u32).write_volatile(value) };
        }
    };
    // SAFETY: all of it.
    unsafe { core::ptr::write_bytes(at as *mut u8, 0, STAND_IN_LEN as usize) };
    if living as u32 == 0 {
        // Nothing is left to be done.
        put(word, CANCELLING | CANCELLED);
    } else {
        put(word, ASYNCHRONOUS);
        put(living >> 32, living as u32);
    }
    at
}

/// `pthread_setcancelstate(state, old)`
pub fn set_state<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let (wanted, old) = (f.rdi as u32, f.rsi);
    let Some(word) = word(t.fs_base) else {
        f.rip = STATE.load(Relaxed);
        return Done::by_frame();
    };
    if wanted > DISABLED {
        return Done::errno(EINVAL);
    }
    let address = word.as_ptr() as u64;
    // SAFETY: in the thread's own block, which is there as long as the thread is.
    let sent = unsafe { object::<AtomicU32>(t.cancels.as_ptr() as u64) };
    // A thread to which the signal was sent gets it before it can forbid it.
    let before = O::ordered(t, address, || {
        let now = word.load(Acquire);
        let is_sent = sent.load(Acquire) != 0 && now & (DISABLED | CANCELLED) == 0;
        if wanted == DISABLED && is_sent {
            return None;
        }
        match wanted {
            DISABLED => word.fetch_or(DISABLED, AcqRel),
            _ => word.fetch_and(!DISABLED, AcqRel),
        };
        Some(now)
    });
    let Some(before) = before else {
        while !O::handler_first(t, f.rip) && O::wait(t, sent, 1, None, false) != Wait::Signal {}
        return Done::by_frame();
    };
    if old != 0 {
        // SAFETY: the program's pointer: a fault is the program's.
        unsafe { core::ptr::write_volatile(old as *mut u32, before & DISABLED) };
    }
    let anywhere = ASYNCHRONOUS | CANCELLED;
    if before & DISABLED != 0 && wanted == 0 && before & anywhere == anywhere {
        return go(t, f);
    }
    Done::value(0)
}
