//! A flight recorder's replay follows the recording, to forget what is old. When it is too far behind, events stay in the ring, and the
//! program waits: so the trace stays bounded.

use reprise_abi::session::{hold, Session};
use std::sync::atomic::Ordering::*;

/// What the replay wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Events are to be taken.
    No,
    /// For a moment none are.
    Wait,
    /// It is no more: the recording is over.
    Failed,
}

/// Asks it. One that was killed while the agent waited says nothing any more.
pub fn look(s: &Session) -> Hold {
    match s.hold.load(SeqCst) {
        hold::NO => Hold::No,
        hold::FAILED => Hold::Failed,
        until if until > now() => Hold::Wait,
        _ => Hold::Failed,
    }
}

/// The time, as [`Session::hold`] has it.
pub fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills a struct of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}
