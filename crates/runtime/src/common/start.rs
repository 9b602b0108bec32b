//! Threads and processes that a recording has and this machine refuses.

use crate::machine::sys;
use crate::thread::session;
use core::sync::atomic::Ordering::*;

/// A recorded thread or process can't be started here.
pub fn cannot_start(error: i64) -> ! {
    let s = session();
    s.message
        .store(crate::thread::message::CANNOT_START_THREAD, Relaxed);
    s.message_arg.store(-error as u64, Relaxed);
    sys::exit_group(125);
}
