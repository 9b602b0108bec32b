//! The epochs of a leader, whose threads run ahead of the copy that is recorded: the agent has each end after a time, and hears when what one needs can't be
//! kept.

use reprise_abi::epoch::Why;
use reprise_abi::session::Session;
use reprise_abi::syscalls;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How long an epoch lasts.
const EPOCH: Duration = Duration::from_millis(200);

/// The epoch that goes on.
pub struct Epochs {
    begun: Instant,
}

impl Epochs {
    /// The first one begins.
    pub fn new() -> Epochs {
        Epochs {
            begun: Instant::now(),
        }
    }

    /// Asks for its end when it has lasted long enough. Why no more can be recorded, if so.
    pub fn look(&mut self, s: &Session) -> Option<String> {
        if self.begun.elapsed() > EPOCH {
            self.begun = Instant::now();
            s.epoch_due.store(1, Relaxed);
        }
        let lost = s.epoch_lost.load(Relaxed);
        let why = u64::from((lost & 0xff).checked_sub(1)?);
        let why = Why::from_u64(why).map_or("more than is kept of it", Why::name);
        let made = u64::from(lost >> 8).checked_sub(1);
        let behind = made.and_then(syscalls::lookup);
        let behind = behind.map_or(String::new(), |call| format!(", behind {}", call.name));
        Some(format!("{why}{behind}"))
    }
}

/// Is one going on? What was recorded of it is of no use before its end.
pub fn is_open(s: &Session) -> bool {
    s.epoch_open.load(Acquire) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_launch::SharedSession;

    #[test]
    fn an_epoch_ends_after_its_time_and_says_what_was_lost() {
        let shared = SharedSession::create().expect("a session");
        let s = shared.session();
        let mut epochs = Epochs::new();
        assert_eq!((epochs.look(s), s.epoch_due.load(Relaxed)), (None, 0));
        epochs.begun -= EPOCH * 2;
        assert_eq!((epochs.look(s), s.epoch_due.load(Relaxed)), (None, 1));
        assert!(epochs.begun.elapsed() < EPOCH, "the next one has begun");
        s.epoch_lost.store(0xff, Relaxed);
        assert_eq!(epochs.look(s).as_deref(), Some("more than is kept of it"));
        s.epoch_lost.store(0xff | 1 << 8, Relaxed);
        let behind = epochs.look(s);
        assert_eq!(
            behind.as_deref(),
            Some("more than is kept of it, behind read")
        );
        assert!(!is_open(s));
    }
}
