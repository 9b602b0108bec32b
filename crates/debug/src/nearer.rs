//! To a place in the code that is far behind the last gate: nearer and nearer, in ever smaller pieces of the way.

use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::debuggee::{Debuggee, General};
use crate::history::{lost, Name};
use crate::DebugError;
use std::rc::Rc;
use std::time::Duration;

/// Pieces in which a way is gone that is to be made short, in time of the processor. Then come those that are as short as can be.
const PIECES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(2),
    Duration::from_micros(200),
    Duration::from_micros(40),
];
/// How often the shortest pieces are tried, from the nearest place on: some are shorter than others.
const TRIES: usize = 12;
/// How often a piece is gone on with when the thread had no processor for so long, ...
const MOST_ROUNDS: u32 = 200;
/// ... and so much longer each time.
const LONGER: Duration = Duration::from_micros(5);

/// What became of a piece of the way.
enum Piece {
    /// Here it ended.
    Nearer(Rc<Checkpoint>),
    /// The place that was looked for came first.
    Whole,
    /// The thread stayed where it was.
    NoStep,
}

impl Debuggee {
    /// On the way to `now`, from the gate before it: a place in the code that is near it. No event names such a place, so the way is gone
    /// again and again, each time from the last such place and in smaller pieces.
    pub(crate) fn come_nearer(&mut self, now: &Name) -> Result<Option<Rc<Checkpoint>>, DebugError> {
        self.unseen(|d| {
            let Some(mut nearest) = d.checkpoint()?.map(Rc::new) else {
                return Ok(None);
            };
            for piece in PIECES.into_iter().chain([Duration::ZERO; TRIES]) {
                d.return_exactly(&nearest)?;
                while let Piece::Nearer(c) = d.go_a_piece(now, piece)? {
                    nearest = c;
                }
            }
            Ok(Some(nearest))
        })
    }

    /// Goes on for so much time of the processor, or to the first visit of where it may be `now` after it: a checkpoint there.
    fn go_a_piece(&mut self, now: &Name, piece: Duration) -> Result<Piece, DebugError> {
        let events = match now.state {
            Some(_) => self.timeline.end.min(now.events + 1).max(now.events),
            None => now.events,
        };
        self.live.feed_up_to(self.live.limit().max(events));
        self.look_out_for(now)?;
        let (from, begun) = (self.rough_place()?, self.processor_time());
        let (mut rounds, mut moved) = (0, false);
        let whole = loop {
            let left = piece.saturating_sub(self.processor_time().saturating_sub(begun));
            let stop = self.go_on_for(left + LONGER * rounds)?;
            if self.is_at(now)? {
                break true;
            }
            if matches!(stop, Stop::Limit | Stop::Ended(_)) {
                return Err(lost());
            }
            // Where it was visited, the thread has come from somewhere else.
            rounds += 1;
            moved |= stop != Stop::Interrupted || self.rough_place()? != from;
            let is_long = self.processor_time().saturating_sub(begun) >= piece;
            if is_long && moved || rounds == MOST_ROUNDS {
                break false;
            }
        };
        self.look_out_no_more()?;
        if whole {
            return Ok(Piece::Whole);
        }
        let nearer = match moved {
            true => self.checkpoint()?,
            false => None,
        };
        Ok(nearer.map_or(Piece::NoStep, |c| Piece::Nearer(Rc::new(c))))
    }

    /// Where we are, as far as the general registers tell.
    fn rough_place(&self) -> Result<(u64, Option<usize>, General), DebugError> {
        let slot = self.holder();
        let registers = self.registers(slot.unwrap_or(self.current))?;
        Ok((self.events(), slot, registers))
    }

    /// How long the process had a processor. It is known to the nanosecond while nobody runs.
    fn processor_time(&self) -> Duration {
        let mut clock = 0;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel fills what is ours. Of a process that is gone there is no time.
        unsafe {
            if libc::clock_getcpuclockid(self.pid, &mut clock) == 0 {
                libc::clock_gettime(clock, &mut time);
            }
        }
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}
