//! The epochs of a leader, whose threads run ahead of the copy that is recorded: the agent has each end after a time, and hears when what one needs can't be
//! kept.

use reprise_abi::epoch::Why;
use reprise_abi::layout::MAX_SLOTS;
use reprise_abi::session::Session;
use reprise_abi::syscalls;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How long an epoch lasts, ...
const EPOCH: Duration = Duration::from_millis(200);
/// ... and how long when it holds output (DoublePlay 5.2.1).
const HELD: Duration = Duration::from_millis(50);
/// So long a thread has to come to a gate then, until one is told to.
const TELL: Duration = Duration::from_millis(5);

/// The epoch that goes on.
pub struct Epochs {
    begun: Instant,
    /// Since when output is held.
    held: Option<Instant>,
    /// When a thread was told last, and of which slot.
    told: Option<(Instant, usize)>,
}

impl Epochs {
    /// The first one begins.
    pub fn new() -> Epochs {
        Epochs {
            begun: Instant::now(),
            held: None,
            told: None,
        }
    }

    /// Is there anything to be done soon?
    pub fn waits(&self) -> bool {
        self.held.is_some()
    }

    /// The slot whose thread is to be told that the open epoch should end, because there is output that waits for it and nobody comes to a gate.
    pub fn whom_to_tell(&mut self, s: &Session) -> Option<usize> {
        if s.epoch_holds.load(Relaxed) == 0 {
            (self.held, self.told) = (None, None);
            s.epoch_asked.store(0, Relaxed);
            return None;
        }
        if self.told.is_some() && s.epoch_due.load(Relaxed) == 0 {
            // It has ended; another one holds output, or some of it couldn't be written yet.
            (self.held, self.told) = (None, None);
            s.epoch_asked.store(0, Relaxed);
        }
        let since = *self.held.get_or_insert_with(Instant::now);
        if since.elapsed() < HELD {
            return None;
        }
        s.epoch_due.store(1, Relaxed);
        let (at, slot) = *self.told.get_or_insert((Instant::now(), 0));
        if at.elapsed() < TELL {
            return None;
        }
        s.epoch_asked.store(1, Relaxed);
        let used = (s.slots_used.load(Relaxed) as usize).clamp(1, MAX_SLOTS);
        self.told = Some((Instant::now(), (slot + 1) % used));
        Some(slot % used)
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
    fn threads_are_told_one_after_the_other_while_output_waits() {
        let shared = SharedSession::create().expect("a session");
        let s = shared.session();
        s.slots_used.store(2, Relaxed);
        let mut epochs = Epochs::new();
        assert_eq!((epochs.whom_to_tell(s), epochs.waits()), (None, false));
        s.epoch_holds.store(1, Relaxed);
        assert_eq!((epochs.whom_to_tell(s), epochs.waits()), (None, true));
        assert_eq!(s.epoch_due.load(Relaxed), 0, "its time isn't over");
        epochs.held = epochs.held.map(|since| since - HELD);
        assert_eq!(epochs.whom_to_tell(s), None, "somebody may come to a gate");
        assert_eq!(s.epoch_due.load(Relaxed), 1);
        for slot in [0, 1, 0] {
            epochs.told = epochs.told.map(|(at, slot)| (at - TELL, slot));
            assert_eq!(epochs.whom_to_tell(s), Some(slot));
            assert_eq!(s.epoch_asked.load(Relaxed), 1);
        }
        s.epoch_due.store(0, Relaxed);
        assert_eq!(epochs.whom_to_tell(s), None, "another one has begun");
        assert_eq!(s.epoch_asked.load(Relaxed), 0);
        s.epoch_holds.store(0, Relaxed);
        assert_eq!((epochs.whom_to_tell(s), epochs.waits()), (None, false));
    }

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
