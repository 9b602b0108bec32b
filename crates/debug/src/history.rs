//! Places in the execution, and the way back to them: the replay starts anew and comes to them again.
//!
//! A place has a name: how many events have happened, and, between two gates, the state there, registers and memory (DESIGN 5: "the state
//! names it"). Between two events one thread runs code of the program, deterministically. So the first moment after that many events at which
//! the state is the same leads to the same future, and is that place.
//!
//! To go back is to go forward twice: once to find out how often the debugger would have stopped on the way here, once to the last of these
//! times.

use crate::control::Stop;
use crate::debuggee::{Debuggee, General};
use crate::target::Session;
use crate::{os, DebugError};
use gdbstub::common::Tid;
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::reverse_exec::ReplayLogPosition;
use reprise_abi::layout::PAGE;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many events back are looked through first, then, then all.
const WINDOWS: [u64; 3] = [64, 8192, u64::MAX];
/// Most steps that are made one by one to find the one before.
const MOST_STEPS: u64 = 200_000;
/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// A place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// Events that have happened.
    pub events: u64,
    /// Where between two gates; `None`: at a gate.
    pub state: Option<State>,
}

/// The state at a place in the program's code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    slot: usize,
    general: General,
    vectors: u64,
    memory: u64,
}

/// Where a stretch of steps begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Base {
    events: u64,
    /// Then this instruction was passed so many times.
    visits: Option<(u64, u64)>,
}

/// What is known of the way that led here.
#[derive(Default)]
pub struct Past {
    /// We are so many steps of a slot's thread behind a base.
    steps: Option<(Base, usize, u64)>,
    /// The debugger has been told of the crash at the end.
    told: bool,
}

fn never() -> bool {
    false
}

impl Session {
    /// A motion forward, up to the end of the recording.
    pub(crate) fn forward(
        &mut self,
        go: impl FnOnce(&mut Debuggee, &mut dyn FnMut() -> bool) -> Result<Stop, DebugError>,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        self.past.steps = None;
        let told = std::mem::replace(&mut self.past.told, true);
        let d = self.debuggee()?;
        let end = d.timeline.end;
        d.feed_to_end();
        let stop = go(d, wanted)?;
        let died = d.timeline.signal;
        let slot = d.current;
        if stop != Stop::Limit {
            self.past.told = false;
            return Ok(stop);
        }
        // A process that a signal ends at its gate is seen there, once.
        let by_call = d.timeline.fault(end - 1, slot).is_none();
        match died != 0 && by_call && !told {
            true => Ok(Stop::Signal(slot, died)),
            false => Ok(stop),
        }
    }

    /// Starts over, and goes to the gate behind so many events.
    fn rewind(&mut self, events: u64) -> Result<&mut Debuggee, DebugError> {
        let old = self.debuggee.take();
        let old = old.ok_or_else(|| DebugError::Refused("the replay is gone".into()))?;
        self.past = Past::default();
        let d = self.debuggee.insert(old.start_over()?);
        d.run_unseen(events)?;
        Ok(d)
    }

    /// Goes to where so many events have happened: forward, or from the beginning.
    ///
    /// # Errors
    /// When the replay can't go there.
    pub(crate) fn run_to(
        &mut self,
        events: u64,
        _wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        let events = events.min(d.timeline.end);
        if d.live.limit() <= events && d.events() < events {
            d.run_unseen(events)?;
            self.past = Past::default();
            return Ok(());
        }
        if d.events() == events && d.name_of_gate().is_some() {
            return Ok(());
        }
        self.rewind(events).map(|_| ())
    }

    fn begin(&mut self) -> Result<MultiThreadStopReason<u64>, DebugError> {
        let d = self.rewind(0)?;
        Ok(MultiThreadStopReason::ReplayLog {
            tid: Tid::new(d.visible(d.current) as usize),
            pos: ReplayLogPosition::Begin,
        })
    }

    /// Back to the last breakpoint or watchpoint before this place, or to the beginning.
    pub(crate) fn back(
        &mut self,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<MultiThreadStopReason<u64>, DebugError> {
        let now = self.debuggee()?.name()?;
        for window in WINDOWS {
            let from = now.events.saturating_sub(window);
            let hits = self.rewind(from)?.hits_before(&now)?;
            if hits > 0 {
                let d = self.rewind(from)?;
                d.feed_to_end();
                let mut stop = Stop::Limit;
                for _ in 0..hits {
                    stop = d.next_hit()?;
                }
                // Backward, memory changes when the instruction is taken back that changed it.
                if let Stop::Watch(slot, _) = stop {
                    self.step_back(slot, wanted)?;
                }
                return self.reason(stop);
            }
            if from == 0 {
                break;
            }
        }
        self.begin()
    }

    /// One step of the thread of `slot` back.
    pub(crate) fn step_back(
        &mut self,
        slot: usize,
        _wanted: &mut dyn FnMut() -> bool,
    ) -> Result<MultiThreadStopReason<u64>, DebugError> {
        let known = self.past.steps.filter(|(_, s, n)| *s == slot && *n > 0);
        let (base, steps) = match known {
            Some((base, _, steps)) => (base, steps),
            None => match self.way_here(slot)? {
                Some(way) => way,
                None => return self.begin(),
            },
        };
        self.rewind(base.events)?;
        let d = self.debuggee()?;
        d.go_to(base)?;
        for _ in 0..steps - 1 {
            d.unseen(|d| d.step(slot, &mut never))?;
        }
        d.current = slot;
        self.past.steps = Some((base, slot, steps - 1));
        self.reason(Stop::Stepped(slot))
    }

    /// A place not far back, and how many steps of the thread of `slot` lead from there to where we are; `None`: it had no step before.
    fn way_here(&mut self, slot: usize) -> Result<Option<(Base, u64)>, DebugError> {
        let d = self.debuggee()?;
        let now = d.name()?;
        let timeline = Rc::clone(&d.timeline);
        let runs = now.state.as_ref().is_some_and(|s| s.slot == slot);
        let earlier = (0..now.events)
            .rev()
            .filter(|n| timeline.event(*n).is_some_and(|e| e.slot as usize == slot));
        for events in runs.then_some(now.events).into_iter().chain(earlier) {
            let base = Base {
                events,
                visits: None,
            };
            let d = self.rewind(events)?;
            if !d.slots().any(|s| s == slot) {
                return Ok(None);
            }
            let base = match d.steps_to(slot, &now, MOST_STEPS)? {
                Steps::Made(0) | Steps::Missed => continue,
                Steps::Made(n) => return Ok(Some((base, n))),
                Steps::TooMany => self.nearer(base, &now)?,
            };
            self.rewind(events)?;
            let d = self.debuggee()?;
            d.go_to(base)?;
            return match d.steps_to(slot, &now, MOST_STEPS)? {
                Steps::Made(n) if n > 0 => Ok(Some((base, n))),
                _ => Err(too_far()),
            };
        }
        Ok(None)
    }

    /// The last time before `now` that its instruction was passed.
    fn nearer(&mut self, base: Base, now: &Name) -> Result<Base, DebugError> {
        let pc = now.state.as_ref().map(|s| s.general.rip);
        let pc = pc.ok_or_else(too_far)?;
        let d = self.rewind(base.events)?;
        let visits = d.visits_before(pc, now)?;
        match visits {
            0 => Err(too_far()),
            n => Ok(Base {
                visits: Some((pc, n)),
                ..base
            }),
        }
    }
}

fn too_far() -> DebugError {
    DebugError::Refused(format!(
        "the step before is more than {MOST_STEPS} instructions after the last place that can be found again"
    ))
}

/// How many steps there are.
enum Steps {
    Made(u64),
    Missed,
    TooMany,
}

impl Debuggee {
    /// All events may happen, up to the program's end.
    pub(crate) fn feed_to_end(&mut self) {
        let end = self.timeline.end.max(self.live.limit());
        self.live.feed_up_to(end);
    }

    /// Makes a motion without the debugger's breakpoints and watchpoints.
    fn unseen<T>(
        &mut self,
        go: impl FnOnce(&mut Debuggee) -> Result<T, DebugError>,
    ) -> Result<T, DebugError> {
        let points = std::mem::take(&mut self.points);
        let watches = points.is_watching();
        if watches {
            self.set_watchpoints()?;
        }
        let result = go(self);
        self.points = points;
        if watches {
            self.set_watchpoints()?;
        }
        result
    }

    /// Goes to the gate behind so many events, past everything.
    fn run_unseen(&mut self, events: u64) -> Result<(), DebugError> {
        self.live.feed_up_to(events);
        self.unseen(|d| loop {
            match d.go_on(&mut never)? {
                Stop::Limit => return Ok(()),
                Stop::Ended(_) => return Err(lost()),
                _ => {}
            }
        })
    }

    /// The name of this place, if it is a gate.
    fn name_of_gate(&self) -> Option<Name> {
        let runs = self.holder().and_then(|slot| self.in_program(slot));
        runs.is_none().then(|| Name {
            events: self.events(),
            state: None,
        })
    }

    /// The name of this place.
    ///
    /// # Errors
    /// When the state can't be read.
    pub fn name(&self) -> Result<Name, DebugError> {
        if let Some(name) = self.name_of_gate() {
            return Ok(name);
        }
        let slot = self.holder().unwrap_or(self.current);
        Ok(Name {
            events: self.events(),
            state: Some(State {
                slot,
                general: self.registers(slot)?,
                vectors: xxh3_64_with_seed(&self.vectors(slot)?, 0),
                memory: self.memory_hash()?,
            }),
        })
    }

    /// Is this place it? Each test is only made when the cheaper one before it passes.
    fn is_at(&self, name: &Name) -> Result<bool, DebugError> {
        if self.events() != name.events {
            return Ok(false);
        }
        let Some(state) = &name.state else {
            return Ok(self.name_of_gate().is_some());
        };
        if self.holder() != Some(state.slot) || self.in_program(state.slot).is_none() {
            return Ok(false);
        }
        Ok(self.registers(state.slot)? == state.general
            && xxh3_64_with_seed(&self.vectors(state.slot)?, 0) == state.vectors
            && self.memory_hash()? == state.memory)
    }

    /// Hash of all writable memory. Pages of zeros count as those that aren't there.
    fn memory_hash(&self) -> Result<u64, DebugError> {
        let zeros = [0; PAGE as usize];
        let mut sum = 0u64;
        let mut bytes = vec![0; CHUNK];
        for (start, len) in self.writable().map_err(os("read the mappings"))? {
            let mut at = start;
            while at < start + len {
                let n = bytes.len().min((start + len - at) as usize);
                let Ok(n @ 1..) = self.read_some(at, &mut bytes[..n]) else {
                    break;
                };
                for (page, i) in bytes[..n].chunks(PAGE as usize).zip(0..) {
                    if page != &zeros[..page.len()] {
                        sum = sum.wrapping_add(xxh3_64_with_seed(page, at + i * PAGE));
                    }
                }
                at += n as u64;
            }
        }
        Ok(sum)
    }

    /// On to the next place at which the debugger wants to stop.
    fn next_hit(&mut self) -> Result<Stop, DebugError> {
        loop {
            let stop = self.go_on(&mut never)?;
            match stop {
                Stop::Breakpoint(slot) if self.is_wanted_here(slot) => return Ok(stop),
                Stop::Watch(..) | Stop::Limit => return Ok(stop),
                Stop::Ended(_) => return Err(lost()),
                _ => {}
            }
        }
    }

    fn is_wanted_here(&self, slot: usize) -> bool {
        self.in_program(slot)
            .is_some_and(|r| self.points.is_wanted(r.rip))
    }

    /// How often the debugger wants to stop on the way to `now`.
    fn hits_before(&mut self, now: &Name) -> Result<u64, DebugError> {
        if self.is_at(now)? {
            return Ok(0);
        }
        let mut hits = 0;
        self.on_the_way(now, |d, stop| {
            let is_hit = match stop {
                Stop::Breakpoint(slot) => d.is_wanted_here(slot),
                stop => matches!(stop, Stop::Watch(..)),
            };
            hits += is_hit as u64;
        })?;
        Ok(hits)
    }

    /// How often the instruction at `pc` is passed on the way to `now`, where it is the next one.
    fn visits_before(&mut self, pc: u64, now: &Name) -> Result<u64, DebugError> {
        let mut visits = 0;
        self.unseen(|d| {
            d.on_the_way(now, |d, stop| {
                let here = |slot| d.in_program(slot).is_some_and(|r| r.rip == pc);
                visits += matches!(stop, Stop::Breakpoint(slot) if here(slot)) as u64;
            })
        })?;
        Ok(visits)
    }

    /// Goes on to `now`, and tells of all stops before it.
    fn on_the_way(
        &mut self,
        now: &Name,
        mut tell: impl FnMut(&Debuggee, Stop),
    ) -> Result<(), DebugError> {
        match &now.state {
            Some(s) => {
                self.points.set_own([s.general.rip]);
                self.feed_to_end();
            }
            None => self.live.feed_up_to(now.events),
        }
        loop {
            let stop = self.go_on(&mut never)?;
            if self.is_at(now)? {
                break;
            }
            if matches!(stop, Stop::Limit | Stop::Ended(_)) || self.events() > now.events {
                return Err(lost());
            }
            tell(self, stop);
        }
        self.points.set_own([]);
        Ok(())
    }

    /// From the gate of a base on to the base.
    fn go_to(&mut self, base: Base) -> Result<(), DebugError> {
        self.feed_to_end();
        let Some((pc, visits)) = base.visits else {
            return Ok(());
        };
        self.unseen(|d| {
            d.points.set_own([pc]);
            let mut seen = 0;
            while seen < visits {
                match d.go_on(&mut never)? {
                    Stop::Breakpoint(_) => seen += 1,
                    Stop::Limit | Stop::Ended(_) => return Err(lost()),
                    _ => {}
                }
            }
            d.points.set_own([]);
            Ok(())
        })
    }

    /// How many steps of the thread of `slot` lead to `now`?
    fn steps_to(&mut self, slot: usize, now: &Name, most: u64) -> Result<Steps, DebugError> {
        match now.state {
            Some(_) => self.feed_to_end(),
            None => self.live.feed_up_to(now.events),
        }
        self.unseen(|d| {
            let mut steps = 0;
            loop {
                if now.state.is_some() && d.is_at(now)? {
                    return Ok(Steps::Made(steps));
                }
                if d.events() > now.events {
                    return Ok(Steps::Missed);
                }
                if steps == most {
                    return Ok(Steps::TooMany);
                }
                match d.step(slot, &mut never)? {
                    // The step that led to the gate has not come to its end.
                    Stop::Limit if now.state.is_none() => return Ok(Steps::Made(steps + 1)),
                    Stop::Limit | Stop::Ended(_) => return Ok(Steps::Missed),
                    _ => steps += 1,
                }
            }
        })
    }
}

fn lost() -> DebugError {
    DebugError::Refused("the place was not found again: this is a bug in reprise".into())
}
