//! Which checkpoints there are: spread evenly over the time that the replay takes, a bounded number of them, and a few more near the places
//! that were gone back to.
//!
//! They are made on the way forward, whenever so much time has passed since the last. When there are too many, or they take too much memory,
//! every second one goes, and from then on twice the time passes between them. So to go back costs about the same everywhere.

use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::debuggee::Debuggee;
use crate::rest::{MOST_LOOKS, SHORT};
use crate::DebugError;
use libc::pid_t;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most checkpoints that are spread over the time.
pub const MOST: usize = 128;
/// Most near places that were gone back to.
pub const MOST_NEAR: usize = 8;
/// Time between two of them, at the beginning.
const SPACING: Duration = Duration::from_millis(50);
/// All of them may take so many times the program's memory, ...
const MEMORY: u64 = 2;
/// ... or so many bytes.
const SMALL: u64 = 64 << 20;
/// After so many new ones their memory is looked at.
const LOOK_EVERY: u32 = 4;
/// Going somewhere for longer than this is worth a checkpoint there.
const LONG_WAY: Duration = Duration::from_millis(20);
/// A portion of events should take about this long.
const PORTION: Duration = Duration::from_millis(10);
/// Fewest and most events of a portion.
const PORTIONS: [u64; 2] = [1, 1 << 20];

/// A checkpoint, and how long it takes from the beginning to there.
struct Placed {
    after: Duration,
    checkpoint: Rc<Checkpoint>,
}

/// All checkpoints of a debuggee.
pub struct Checkpoints {
    /// In order. The first is the program's beginning.
    spread: Vec<Placed>,
    near: VecDeque<Placed>,
    spacing: Duration,
    /// New ones since their memory was looked at.
    unseen: u32,
    /// Events that are fed at a time.
    portion: u64,
    /// How long it took from the beginning to where the replay is.
    now: Duration,
}

impl Default for Checkpoints {
    fn default() -> Checkpoints {
        Checkpoints {
            spread: Vec::new(),
            near: VecDeque::new(),
            spacing: SPACING,
            unseen: 0,
            portion: 16,
            now: Duration::ZERO,
        }
    }
}

impl Checkpoints {
    fn all(&self) -> impl Iterator<Item = &Placed> {
        self.spread.iter().chain(&self.near)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all().count()
    }

    /// Bytes of memory that all of them take, beside what they share with the replay.
    pub fn memory(&self) -> u64 {
        let own = self.all().map(|p| memory(p.checkpoint.pid()).0);
        own.sum()
    }

    /// The last one at which at most so many events had happened.
    fn before(&self, events: u64) -> Option<&Placed> {
        self.all()
            .filter(|p| p.checkpoint.events <= events)
            .max_by_key(|p| p.checkpoint.events)
    }

    /// How many events had happened at the last one with less than so many; `None` when there is none.
    pub fn earlier_than(&self, events: u64) -> Option<u64> {
        let earlier = self.all().map(|p| p.checkpoint.events);
        earlier.filter(|e| *e < events).max()
    }

    /// Under `order`: how many events had happened at the last one before the thread of `slot` had used up so many of its own.
    pub fn before_own(&self, slot: usize, own: u64) -> u64 {
        let earlier = self.all().filter(|p| p.checkpoint.own(slot) < own);
        earlier.map(|p| p.checkpoint.events).max().unwrap_or(0)
    }

    /// Is it time for one?
    fn is_due(&self) -> bool {
        self.spread.iter().all(|p| {
            let away = match p.after > self.now {
                true => p.after - self.now,
                false => self.now - p.after,
            };
            away >= self.spacing
        })
    }

    fn add(&mut self, checkpoint: Checkpoint) {
        let after = self.now;
        let i = self
            .spread
            .partition_point(|p| p.checkpoint.events <= checkpoint.events);
        let checkpoint = Rc::new(checkpoint);
        self.spread.insert(i, Placed { after, checkpoint });
    }

    fn add_near(&mut self, checkpoint: Checkpoint) {
        while self.near.len() >= MOST_NEAR {
            self.near.pop_front();
        }
        self.near.push_back(Placed {
            after: self.now,
            checkpoint: Rc::new(checkpoint),
        });
    }

    /// Every second one goes.
    fn thin_out(&mut self) {
        self.spacing *= 2;
        let (mut last, spacing) = (None, self.spacing);
        self.spread.retain(|p| {
            let stays = last.is_none_or(|l| p.after.saturating_sub(l) >= spacing);
            if stays {
                last = Some(p.after);
            }
            stays
        });
    }

    /// How many events to feed next, after a portion took so long.
    fn pace(&mut self, took: Duration) {
        if took < PORTION / 2 {
            self.portion = (self.portion * 2).min(PORTIONS[1]);
        } else if took > PORTION * 2 {
            self.portion = (self.portion / 2).max(PORTIONS[0]);
        }
    }
}

/// A process's own memory and all of it, in bytes: shared pages count for each by its share (PSS, proc(5)).
fn memory(pid: pid_t) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        let kilobytes = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) << 10
    };
    (of("Pss:"), of("Rss:"))
}

impl Debuggee {
    /// A checkpoint at the beginning of a program.
    ///
    /// # Errors
    /// When it can't be made.
    pub(crate) fn mark_beginning(&mut self) -> Result<(), DebugError> {
        if let Some(c) = self.checkpoint()? {
            self.checkpoints.add(c);
        }
        Ok(())
    }

    /// Lets it run until so many events have happened or it stops before, and makes checkpoints on the way.
    ///
    /// # Errors
    /// As [`Debuggee::go_on`].
    pub fn go_far(
        &mut self,
        events: u64,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        let exec = self.timeline.next_program(self.events());
        let events = exec.map_or(events, |exec| exec.min(events));
        loop {
            self.feed_portion(events);
            let begun = Instant::now();
            let stop = self.go_on(wanted)?;
            let took = begun.elapsed();
            self.checkpoints.now += took;
            if stop != Stop::Limit {
                return Ok(stop);
            }
            self.checkpoints.pace(took);
            if self.live.has_stopped() || self.live.is_over() {
                return Ok(stop);
            }
            if exec == Some(self.events()) {
                self.outlive_former()?;
                if !self.points.has_own() {
                    self.mark_beginning()?;
                }
                return Ok(Stop::Exec);
            }
            self.make_due_checkpoint()?;
            if self.live.limit() >= events {
                return Ok(stop);
            }
        }
    }

    /// Waits until the kernel has ended what was the process before its exec: only then there can be a checkpoint.
    fn outlive_former(&mut self) -> Result<(), DebugError> {
        for _ in 0..MOST_LOOKS {
            self.live.look();
            self.see_to_stops()?;
            if !self.live.has_former() {
                break;
            }
            std::thread::sleep(SHORT);
        }
        Ok(())
    }

    /// One step of the thread of `slot`, up to the end of the recording.
    ///
    /// # Errors
    /// As [`Debuggee::step`].
    pub fn step_far(
        &mut self,
        slot: usize,
        events: u64,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        let exec = self.timeline.next_program(self.events());
        let events = exec.map_or(events, |exec| exec.min(events));
        loop {
            self.feed_portion(events);
            let stop = self.step(slot, wanted)?;
            if stop == Stop::Limit && exec == Some(self.events()) {
                self.outlive_former()?;
                self.mark_beginning()?;
                return Ok(Stop::Exec);
            }
            let is_end = self.live.limit() >= events || self.live.is_over();
            if stop != Stop::Limit || is_end {
                return Ok(stop);
            }
        }
    }

    fn feed_portion(&mut self, events: u64) {
        let (limit, portion) = (self.live.limit(), self.checkpoints.portion);
        let next = (self.events() + portion).min(events);
        if limit <= self.events() && next > limit {
            self.live.feed_up_to(next);
        }
    }

    fn make_due_checkpoint(&mut self) -> Result<(), DebugError> {
        if !self.checkpoints.is_due() || self.points.has_own() {
            return Ok(());
        }
        let Some(checkpoint) = self.checkpoint()? else {
            return Ok(());
        };
        let c = &mut self.checkpoints;
        c.add(checkpoint);
        c.unseen += 1;
        let mut too_many = c.spread.len() > MOST;
        if c.unseen >= LOOK_EVERY {
            c.unseen = 0;
            too_many |= c.memory() > SMALL.max(memory(self.pid).1 * MEMORY);
        }
        if too_many {
            self.checkpoints.thin_out();
        }
        Ok(())
    }

    /// Goes back to this checkpoint, which is kept elsewhere.
    ///
    /// # Errors
    /// When the replay can't go there.
    pub(crate) fn return_exactly(&mut self, to: &Checkpoint) -> Result<(), DebugError> {
        self.go_back(to)?;
        if let Some(placed) = self.checkpoints.before(to.events) {
            self.checkpoints.now = placed.after;
        }
        Ok(())
    }

    /// Goes back to the last checkpoint before so many events, and from there on to where they have happened. False when there is no
    /// such checkpoint.
    ///
    /// # Errors
    /// When the replay can't go there.
    pub(crate) fn return_to(
        &mut self,
        events: u64,
        mut forward: impl FnMut(&mut Debuggee, u64) -> Result<(), DebugError>,
    ) -> Result<bool, DebugError> {
        let Some(placed) = self.checkpoints.before(events) else {
            return Ok(false);
        };
        let (checkpoint, after) = (Rc::clone(&placed.checkpoint), placed.after);
        self.go_back(&checkpoint)?;
        self.checkpoints.now = after;
        // One shortly before as well: whoever goes back goes farther back, mostly.
        let shortly = 2 * self.checkpoints.portion;
        let mut last = checkpoint.events;
        for place in [events.saturating_sub(shortly), events] {
            if place <= last {
                continue;
            }
            let begun = Instant::now();
            forward(self, place)?;
            if begun.elapsed() > LONG_WAY {
                if let Some(c) = self.checkpoint()? {
                    self.checkpoints.add_near(c);
                    last = place;
                }
            }
        }
        forward(self, events)?;
        Ok(true)
    }
}
