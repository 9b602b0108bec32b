//! `pthread_kill`.
//!
//! libc keeps a lock for each thread, so that none is sent a signal that is gone already; whether somebody has to wait for that lock is up to
//! who is faster. Here the thread's id is looked at instead.
//!
//! **Order.** The id is a value, 0 when the thread is gone. The signal is a system call, ordered as all are.

use super::error::EINVAL;
use crate::dispatch::with_engine;
use crate::engine::order::Order;
use crate::engine::{Engine, RESTART};
use crate::memory::capture::Call;
use crate::sync::hook::shim::Done;
use crate::thread::blocks;
use crate::thread::process;
use crate::thread::{Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::syscalls::{self, nr};

const ESRCH: i64 = -3;

/// `pthread_kill(thread, signal)`
pub fn kill<O: Order>(t: &mut Block, f: &mut Frame) -> Done {
    let (thread, signal) = (f.rdi, f.rsi as u32);
    // libc's own: for cancellation and timers, and for changes of ids.
    if matches!(signal, 32 | 33) {
        return Done::errno(EINVAL);
    }
    let tid = match thread == t.fs_base {
        true => t.slot().visible_tid.load(Relaxed),
        false => O::value(t, || {
            blocks::word_of_thread(thread).map_or(0, |w| w.load(Acquire) as u64)
        }) as u32,
    };
    if tid == 0 {
        return Done::errno(0);
    }
    let pid = process::visible_pid() as u64;
    let args = [pid, tid as u64, signal as u64, 0, 0, 0];
    let mut c = Call::new(nr::TGKILL, args, syscalls::lookup(nr::TGKILL));
    let result = with_engine!(E => E::syscall(t, &mut c, f));
    if thread == t.fs_base {
        O::sent_to_itself(t);
    }
    match result {
        // Another signal comes first; the function is called anew after its handler.
        RESTART => Done::by_frame(),
        // It has ended in this moment: nobody can tell that from having got the signal.
        0 | ESRCH => Done::errno(0),
        e => Done::errno(-e as u32),
    }
}
