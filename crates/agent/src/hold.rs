//! A flight recorder's replay follows the recording, to forget what is old. When it is too far behind, events stay in the ring, and the
//! program waits: so the trace stays bounded.

use reprise_abi::session::{hold, Session};
use reprise_launch::process;
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

/// Asks it, when the stream has so many bytes.
pub fn look(s: &Session, written: u64) -> Hold {
    match s.hold.load(SeqCst) {
        hold::NO => Hold::No,
        hold::FAILED => Hold::Failed,
        limit if written < limit => Hold::No,
        // Who has started it sees its end, too, unless both are killed.
        _ if is_gone(s.follower_pid.load(SeqCst)) => Hold::Failed,
        _ => Hold::Wait,
    }
}

fn is_gone(pid: u64) -> bool {
    pid != 0 && !process::is_there(pid as i32)
}
