//! Which checkpoints there are: spread evenly over the time that the replay takes, a bounded number of them, and a few more near the places
//! that were gone back to.
//!
//! They are made on the way forward, whenever so much time has passed since the last. When there are too many, or they take too much memory,
//! every second one goes, and from then on twice the time passes between them. So to go back costs about the same everywhere. Only new ground
//! makes them fewer: on a way that was gone before, one is made where there is room for it. Behind the farthest place there are some more, a second
//! apart, as long as they don't make the others fewer.
//!
//! What memory they take the kernel tells, but it looks at every page for that. A page that they keep was written since the last of them was made,
//! by a page fault, so the faults are counted, and the kernel is only asked when they may be too many.

use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::debuggee::Debuggee;
use crate::rest::{MOST_LOOKS, SHORT};
use crate::DebugError;
use libc::pid_t;
use reprise_abi::layout::PAGE;
use reprise_launch::proc_files::Stat;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most checkpoints that are spread over the time.
pub const MOST: usize = 128;
/// So much time of a replay is worth the start of another one, at a checkpoint on disk.
const WORTH_A_START: Duration = Duration::from_millis(500);

/// Is that a time that a checkpoint on disk saves?
pub(crate) fn is_worth_a_start(time: Duration) -> bool {
    time > worth_a_start()
}

/// [`WORTH_A_START`], but in a test, whose programs run for less.
fn worth_a_start() -> Duration {
    match std::env::var_os("REPRISE_TEST_CHECKPOINTS") {
        Some(_) => Duration::ZERO,
        None => WORTH_A_START,
    }
}

/// Most near places that were gone back to.
pub const MOST_NEAR: usize = 8;
/// So many of these there may always be, however large they are.
const FEW_NEAR: usize = 2;
/// Most that only wait for whether somebody goes back from the farthest place, ...
const MOST_RECENT: usize = 4;
/// ... and the time between two of them.
const RECENT: Duration = Duration::from_secs(1);
/// Time between two of them, at the beginning.
const SPACING: Duration = Duration::from_millis(50);
/// All of them may take so many halves of the program's memory, ...
const HALVES: u64 = 3;
/// ... or so many bytes.
const SMALL: u64 = 32 << 20;
/// Making them may take this part of the time, ...
const SHARE: u32 = 16;
/// ... and so much at the beginning.
const START: Duration = Duration::from_millis(50);
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
    /// The last ones of the new ground.
    recent: VecDeque<Placed>,
    spacing: Duration,
    /// So many events have happened at the last of those that are spread, or at one that was behind it, ...
    frontier: u64,
    /// ... after so long.
    reached: Duration,
    /// How long it took to make those that are spread.
    making: Duration,
    /// Memory that they take, or less: what was known of it last, and what was written since.
    estimate: u64,
    /// So much may be.
    limit: u64,
    /// The process that was looked at last, and its page faults until then.
    faults: (pid_t, u64),
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
            recent: VecDeque::new(),
            spacing: SPACING,
            frontier: 0,
            reached: Duration::ZERO,
            making: Duration::ZERO,
            estimate: 0,
            limit: SMALL,
            faults: (0, 0),
            portion: 16,
            now: Duration::ZERO,
        }
    }
}

impl Checkpoints {
    /// The replay has come to its first place without the time that it takes from the beginning to there.
    pub(crate) fn begin_after(&mut self, time: Duration) {
        self.now = time;
        self.reached = time;
    }

    /// Is one on disk, at which a replay has run for so long, so much nearer to `events` than what there is here that it is to be taken? `is_there`: the
    /// replay is not to go back.
    pub(crate) fn is_farther(&self, events: u64, time: Duration, is_there: bool) -> bool {
        let here = match is_there {
            true => Some(self.now),
            false => self.before(events).map(|p| p.after),
        };
        here.is_none_or(|here| here + worth_a_start() < time)
    }

    fn all(&self) -> impl Iterator<Item = &Placed> {
        self.spread.iter().chain(&self.near).chain(&self.recent)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all().count()
    }

    /// Bytes of memory that all of them take, beside what they share with the replay, which is the process `replay`.
    pub fn memory(&self, replay: pid_t) -> u64 {
        let (own, there) = memory(replay);
        let all = self.all().map(|p| memory(p.checkpoint.pid()).0);
        // Shared pages are divided among all who share them.
        (own + all.sum::<u64>()).saturating_sub(there)
    }

    /// The same, of those near places that were gone back to: those that nobody else has.
    fn memory_near(&self) -> u64 {
        let all = self.near.iter().map(|p| memory(p.checkpoint.pid()).0);
        all.sum()
    }

    /// Counts what `replay` has written since it was looked at last.
    fn count_faults(&mut self, replay: pid_t) {
        let now = faults(replay);
        let before = match self.faults {
            (pid, before) if pid == replay => before,
            _ => 0,
        };
        self.faults = (replay, now);
        self.estimate += now.saturating_sub(before) * PAGE;
    }

    /// Are they more than there may be, as far as is known?
    fn are_too_large(&mut self, replay: pid_t) -> bool {
        if self.estimate <= self.limit {
            return false;
        }
        self.estimate = self.memory(replay);
        self.limit = SMALL.max(memory(replay).1 / 2 * HALVES);
        self.estimate > self.limit
    }

    /// Is there one from which so many events can be come to?
    pub(crate) fn has_before(&self, events: u64) -> bool {
        self.before(events).is_some()
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

    /// Under `order`: how many the slot had used up at the beginning.
    pub fn own_at_first(&self, slot: usize) -> u64 {
        self.spread.first().map_or(0, |p| p.checkpoint.own(slot))
    }

    /// Under `order`: how many events had happened at the last one before the thread of `slot` had used up so many of its own.
    pub fn before_own(&self, slot: usize, own: u64) -> u64 {
        let earlier = self.all().filter(|p| p.checkpoint.own(slot) < own);
        let first = self.spread.first().map_or(0, |p| p.checkpoint.events);
        earlier.map(|p| p.checkpoint.events).max().unwrap_or(first)
    }

    /// Has nobody else a checkpoint, of those of which `waiting` processes wait?
    fn are_all(&self, waiting: usize) -> bool {
        waiting == self.count() && self.all().all(|p| Rc::strong_count(&p.checkpoint) == 1)
    }

    /// Is it time for one that is only to be there for a while?
    fn is_recent_due(&self, events: u64) -> bool {
        let last = self.spread.iter().chain(&self.recent).map(|p| p.after);
        let apart = last.max().is_none_or(|last| self.now >= last + RECENT);
        events > self.frontier && apart && self.has_time()
    }

    /// Has it taken little time to make them up to now?
    fn has_time(&self) -> bool {
        self.making <= START + self.reached.max(self.now) / SHARE
    }

    /// Is it time for one, where so many events have happened?
    fn is_due(&self, events: u64) -> bool {
        let is_new = events > self.frontier;
        if !self.has_time() || !is_new && self.spread.len() >= MOST {
            return false;
        }
        self.spread.iter().all(|p| {
            let away = match p.after > self.now {
                true => p.after - self.now,
                false => self.now - p.after,
            };
            away >= self.spacing
        })
    }

    /// Where it is put.
    fn add(&mut self, checkpoint: Checkpoint) -> usize {
        let after = self.now;
        let i = self
            .spread
            .partition_point(|p| p.checkpoint.events <= checkpoint.events);
        let checkpoint = Rc::new(checkpoint);
        self.spread.insert(i, Placed { after, checkpoint });
        i
    }

    fn add_near(&mut self, checkpoint: Checkpoint, replay: pid_t) {
        self.count_faults(replay);
        while self.near.len() >= MOST_NEAR
            || self.near.len() >= FEW_NEAR && self.are_too_large(replay)
        {
            self.near.pop_front();
        }
        self.near.push_back(Placed {
            after: self.now,
            checkpoint: Rc::new(checkpoint),
        });
    }

    fn add_recent(&mut self, checkpoint: Checkpoint, replay: pid_t) {
        while self.recent.len() >= MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Placed {
            after: self.now,
            checkpoint: Rc::new(checkpoint),
        });
        if self.are_too_large(replay) {
            self.recent.clear();
            self.estimate = self.memory(replay);
        }
    }

    /// Adds one, and makes room. `is_new`: it is on new ground.
    fn add_spread(&mut self, checkpoint: Checkpoint, is_new: bool, replay: pid_t) {
        let place = self.add(checkpoint);
        let mut large = self.are_too_large(replay);
        if large && is_new && !self.recent.is_empty() {
            self.recent.clear();
            self.estimate = self.memory(replay);
            large = self.estimate > self.limit;
        }
        if large && self.memory_near() > self.estimate / 2 {
            // The next one shows whether that was enough.
            self.near.pop_front();
        } else if is_new && (large || self.spread.len() > MOST) {
            self.thin_out();
            self.estimate = self.memory(replay);
        } else if large && place > 0 {
            self.spread.remove(place);
        }
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
        tracing::debug!(
            left = self.spread.len(),
            ?spacing,
            "checkpoints thinned out"
        );
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

/// How often a process has had a page that was not there, or was to be written and another's as well (minflt, proc(5)).
fn faults(pid: pid_t) -> u64 {
    const MINFLT: usize = 10;
    let stat = Stat::of_process(pid).ok();
    stat.and_then(|stat| stat.field(MINFLT)).unwrap_or(0)
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
    /// Has nobody a checkpoint that would be lost if the replay began anew?
    pub(crate) fn can_be_left(&self) -> bool {
        let waiting = self.waiting.borrow().len();
        self.diverted.is_none() && self.checkpoints.are_all(waiting)
    }

    /// Where so many events had happened at the last checkpoint, in memory or on disk, with less than so many.
    pub(crate) fn earlier_than(&self, events: u64) -> Option<u64> {
        let here = self.checkpoints.earlier_than(events);
        let on_disk = self.timeline.kept_before(events.checked_sub(1)?);
        here.max(on_disk.map(|c| c.event))
    }

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
    pub(crate) fn go_past_calls(
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
        let (replay, events) = (self.pid, self.events());
        let is_due = self.checkpoints.is_due(events);
        let is_needed = is_due || self.checkpoints.is_recent_due(events);
        if !is_needed || self.points.has_own() || self.is_collecting() {
            return Ok(());
        }
        let begun = Instant::now();
        let Some(checkpoint) = self.checkpoint()? else {
            return Ok(());
        };
        let c = &mut self.checkpoints;
        let is_new = events > c.frontier;
        c.frontier = c.frontier.max(events);
        c.reached = c.reached.max(c.now);
        c.count_faults(replay);
        match is_due {
            true => c.add_spread(checkpoint, is_new, replay),
            false => c.add_recent(checkpoint, replay),
        }
        c.making += begun.elapsed();
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

    /// After a long way forward to a gate: a checkpoint there, to go back to from what comes next.
    ///
    /// # Errors
    /// When it can't be made.
    pub(crate) fn mark_arrival(&mut self, begun: Instant) -> Result<(), DebugError> {
        let events = self.events();
        let is_near = |p: &Placed| p.checkpoint.events == events;
        if begun.elapsed() <= LONG_WAY || self.checkpoints.all().any(is_near) {
            return Ok(());
        }
        if let Some(c) = self.checkpoint()? {
            let replay = self.pid;
            self.checkpoints.add_near(c, replay);
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
                    let replay = self.pid;
                    self.checkpoints.add_near(c, replay);
                    last = place;
                }
            }
        }
        forward(self, events)?;
        Ok(true)
    }
}
