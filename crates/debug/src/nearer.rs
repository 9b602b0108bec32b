//! To a place in the code that is far behind the last gate: nearer and nearer, in ever smaller pieces of the way.

use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::debuggee::{Debuggee, General};
use crate::history::{lost, never, too_far, Name, Steps, FEW_STEPS};
use crate::DebugError;
use std::rc::Rc;
use std::time::Duration;

/// Pieces in which a way is gone that is to be made short, in time of the processor. What is left then is found by counting.
const PIECES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(2)];
/// How often what is left is made shorter, by at least [`FEW_STEPS`] each time.
const MOST_COUNTS: usize = 250;
/// Where an instruction is visited more often than this, so many visits are left: who goes back one step goes back more.
const MANY_VISITS: u64 = 64;
/// How often a piece is gone on with when the thread had no processor for so long, ...
const MOST_ROUNDS: u32 = 200;
/// ... and so much longer each time.
const LONGER: Duration = Duration::from_micros(5);

/// What became of a piece of the way.
pub(crate) enum Piece {
    /// Here it ended.
    Nearer(Rc<Checkpoint>),
    /// The place that was looked for came first.
    Whole,
    /// The thread stayed where it was.
    NoStep,
}

impl Debuggee {
    /// On the way to `now`, from the gate before it: a place in the code that is near it, and how many steps of the thread of `slot` lead from
    /// there to `now`; `None` where there can be no checkpoint. No event names such a place. So the way is gone in pieces first, each from the
    /// last such place, and then to the last visit of an instruction on it: it ends in a loop, or is long by one.
    pub(crate) fn come_nearer(
        &mut self,
        slot: usize,
        now: &Name,
    ) -> Result<Option<(Rc<Checkpoint>, u64)>, DebugError> {
        self.unseen(|d| {
            let Some(mut nearest) = d.checkpoint()?.map(Rc::new) else {
                return Ok(None);
            };
            for piece in PIECES {
                d.return_exactly(&nearest)?;
                while let Piece::Nearer(c) = d.go_a_piece(now, piece)? {
                    nearest = c;
                }
            }
            for _ in 0..MOST_COUNTS {
                d.return_exactly(&nearest)?;
                match d.steps_to(slot, now, FEW_STEPS)? {
                    Steps::Made(n) => return Ok(Some((nearest, n))),
                    Steps::Missed => return Err(lost()),
                    Steps::TooMany => {}
                }
                let (Some(r), Some(c)) = (d.in_program(slot), d.checkpoint()?) else {
                    return Ok(None);
                };
                nearest = Rc::new(c);
                let begun = d.processor_time();
                let visits = d.visits_before(now, r.rip, u64::MAX)?;
                let took = d.processor_time().saturating_sub(begun);
                d.return_exactly(&nearest)?;
                let nearer = match visits {
                    // Not in a loop yet, or no more.
                    0 => match d.go_a_piece(now, took / 2)? {
                        Piece::Nearer(c) => Some(c),
                        Piece::Whole | Piece::NoStep => None,
                    },
                    _ => {
                        let back = if visits > MANY_VISITS { MANY_VISITS } else { 0 };
                        d.visits_before(now, r.rip, visits - back)?;
                        d.checkpoint()?.map(Rc::new)
                    }
                };
                nearest = nearer.unwrap_or(nearest);
            }
            Err(too_far())
        })
    }

    /// Goes on to the visit of this number, from now on, of the instruction at `at`, or to `now` if that comes first; how many there were.
    fn visits_before(&mut self, now: &Name, at: u64, most: u64) -> Result<u64, DebugError> {
        self.feed_for(now);
        self.points.count_visits(at, most);
        self.look_out_for(now)?;
        let mut stops = 0;
        let visits = loop {
            let stop = self.go_on(&mut never)?;
            let visits = match self.visits_left(at)? {
                Some(left) => most - left,
                // Each visit is a stop.
                None => {
                    stops += u64::from(
                        matches!(stop, Stop::Breakpoint(slot) if self.in_program(slot).is_some_and(|r| r.rip == at)),
                    );
                    stops
                }
            };
            if self.is_at(now)? {
                // That is none before it.
                let is_visit = now.pc() == Some(at);
                break visits - u64::from(is_visit);
            }
            if visits == most {
                break visits;
            }
            self.go_on_if_wanted()?;
            if matches!(stop, Stop::Limit | Stop::Ended(_)) {
                return Err(lost());
            }
        };
        self.look_out_no_more()?;
        Ok(visits)
    }

    /// Lets as many events happen as it takes to come to `now`.
    fn feed_for(&mut self, now: &Name) {
        let events = match now.state {
            Some(_) => self.timeline.end.min(now.events + 1).max(now.events),
            None => now.events,
        };
        self.live.feed_up_to(self.live.limit().max(events));
    }

    /// Goes on for so much time of the processor, or to the first visit of where it may be `now` after it: a checkpoint there.
    pub(crate) fn go_a_piece(&mut self, now: &Name, piece: Duration) -> Result<Piece, DebugError> {
        self.feed_for(now);
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
            self.go_on_if_wanted()?;
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
