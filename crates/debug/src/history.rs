//! Places in the execution, and the way back to them: the replay goes on from a checkpoint before them and comes to them again.
//!
//! A place has a name: how many events have happened, and, between two gates, the state there, registers and memory (DESIGN 5: "the state
//! names it"). Between two events one thread runs code of the program, deterministically. So the first moment after that many events at which
//! the state is the same leads to the same future, and is that place.
//!
//! To go back is to go forward twice: once to find out how often the debugger would have stopped on the way here, once to the last of these
//! times.

use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::debuggee::{Debuggee, General};
use crate::moving::WAY_HOME;
use crate::origin::Ladder;
use crate::target::Session;
use crate::{os, DebugError};
use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::reverse_exec::ReplayLogPosition;
use reprise_abi::layout::PAGE;
use reprise_console::say;
use std::rc::Rc;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most steps that are made one by one to find the one before, where the way has been made short, ...
const MOST_STEPS: u64 = 500_000;
/// ... and before that is tried.
pub(crate) const FEW_STEPS: u64 = 2_000;
/// More steps than this are not made again each time: a checkpoint is made near their end, ...
const LONG_WAY: u64 = 256;
/// ... so many steps before it.
const SHORT_WAY: u64 = 64;
/// Between two looks whether the debugger wants to be heard.
const STEPS_AT_A_TIME: u64 = 64;
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

impl Name {
    /// The gate behind so many events.
    pub(crate) fn of_gate(events: u64) -> Name {
        Name {
            events,
            state: None,
        }
    }

    /// Is it a place in the program's code, at which the thread of `slot` is?
    pub(crate) fn is_of(&self, slot: usize) -> bool {
        self.state.as_ref().is_some_and(|s| s.slot == slot)
    }

    /// Address of the instruction that is next there, between two gates.
    pub(crate) fn pc(&self) -> Option<u64> {
        self.state.as_ref().map(|s| s.general.rip)
    }
}

/// Where a stretch of steps begins.
#[derive(Clone)]
pub(crate) enum Base {
    /// Where so many events had happened.
    Gate(u64),
    /// Anywhere.
    Kept(Rc<Checkpoint>),
}

/// We are so many steps of a slot's thread behind a base.
#[derive(Clone)]
struct Way {
    base: Base,
    slot: usize,
    steps: u64,
}

/// What is known of the way that led here.
#[derive(Default)]
pub struct Past {
    /// From the farthest base to the nearest.
    ways: Vec<Way>,
    /// The debugger has been told of the crash at the end.
    told: bool,
}

pub(crate) fn never() -> bool {
    false
}

impl Session {
    /// A motion forward, up to the end of the recording.
    pub(crate) fn forward(
        &mut self,
        go: impl FnOnce(&mut Debuggee, u64, &mut dyn FnMut() -> bool) -> Result<Stop, DebugError>,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        self.past.ways.clear();
        let told = std::mem::replace(&mut self.past.told, true);
        let d = self.debuggee()?;
        let end = d.timeline.end;
        let until = d.collecting.end(end);
        let stop = go(d, until, wanted)?;
        let died = d.timeline.signal;
        let slot = d.current;
        if stop != Stop::Limit || until < end {
            self.past.told = false;
            return Ok(stop);
        }
        // A process that a signal ends at its gate is seen there, once.
        let by_call = match d.timeline.is_order {
            true => !d.timeline.ends_by_fault(),
            false => d.timeline.fault(end - 1, slot).is_none(),
        };
        match died != 0 && by_call && !told {
            true => Ok(Stop::Signal(slot, died)),
            false => Ok(stop),
        }
    }

    /// Starts anew at a checkpoint on disk before this, if that is shorter than the way there from here. `is_ahead`: all that is on the way is ahead.
    fn jump(&mut self, events: u64, is_ahead: bool) -> Result<bool, DebugError> {
        if self.stays || self.diversion.is_some() {
            return Ok(false);
        }
        let d = self.debuggee()?;
        let Some(kept) = d.timeline.kept_before(events) else {
            return Ok(false);
        };
        if is_ahead && kept.event <= d.events()
            || !d.checkpoints.is_farther(events, kept.after(), is_ahead)
        {
            return Ok(false);
        }
        let is_lost = !d.checkpoints.has_before(events);
        // What is followed back is looked for before these, or not at all.
        self.ladder = Ladder::default();
        if !is_lost && !self.debuggee()?.can_be_left() {
            return Ok(false);
        }
        tracing::debug!(event = kept.event, "starts at a checkpoint on disk");
        self.start_over(Some(kept))?;
        Ok(true)
    }

    /// The same place in a replay that has been at the program's beginning: from there on it never begins anew.
    pub(crate) fn begin_at_first(&mut self) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        if d.checkpoints.has_before(d.timeline.begins()) {
            return Ok(());
        }
        let now = d.name()?;
        self.past = Past::default();
        let d = self.start_over(None)?;
        d.run_unseen(now.events)?;
        d.on_the_way(&now, |_, _| ())
    }

    /// Starts the replay anew.
    fn start_over(
        &mut self,
        from: Option<reprise_trace::Checkpoint>,
    ) -> Result<&mut Debuggee, DebugError> {
        self.ladder = Ladder::default();
        if !self.kept.is_empty() {
            self.kept.clear();
            say!("the checkpoints that were made by hand are gone: the replay begins anew, before them");
        }
        let old = self.debuggee.take();
        let old = old.ok_or_else(|| DebugError::Refused("the replay is gone".into()))?;
        let new = self.debuggee.insert(old.start_over(from)?);
        if let Some(damaged) = from.filter(|from| from.event != new.events()) {
            new.timeline.forget_kept(damaged);
        }
        Ok(new)
    }

    /// Makes the way to there shorter, where a checkpoint on disk is before it.
    pub(crate) fn jump_towards(&mut self, events: u64) -> Result<(), DebugError> {
        if self.debuggee()?.events() < events && self.jump(events, true)? {
            self.past = Past::default();
        }
        Ok(())
    }

    /// Goes back as far as it must, and from there to the gate behind so many events.
    pub(crate) fn rewind(&mut self, events: u64) -> Result<&mut Debuggee, DebugError> {
        tracing::debug!(to = events, "goes back");
        self.past = Past::default();
        self.debuggee()?.go_on_if_wanted()?;
        if self.jump(events, false)? {
            self.debuggee()?.run_unseen(events)?;
            return self.debuggee();
        }
        if !self.debuggee()?.return_to(events, Debuggee::run_unseen)? {
            self.start_over(None)?.run_unseen(events)?;
        }
        self.debuggee()
    }

    /// Goes to where so many events have happened: forward, or back.
    ///
    /// # Errors
    /// When the replay can't go there.
    pub(crate) fn run_to(
        &mut self,
        events: u64,
        _wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        let events = events.min(d.timeline.end).max(d.timeline.begins());
        if d.live.limit() <= events && d.events() < events {
            self.past = Past::default();
            self.jump(events, true)?;
            let begun = Instant::now();
            let d = self.debuggee()?;
            tracing::debug!(from = d.events(), to = events, "goes forward");
            d.run_unseen(events)?;
            if d.events() < d.timeline.end {
                d.mark_arrival(begun)?;
            }
            self.past = Past::default();
            return Ok(());
        }
        if d.events() == events && d.name_of_gate().is_some() {
            return Ok(());
        }
        self.rewind(events).map(|_| ())
    }

    /// A motion back from `origin` was given up: there again, if that doesn't take long. What is shown then is no place that was looked for.
    pub(crate) fn give_up(
        &mut self,
        origin: &Name,
    ) -> Result<MultiThreadStopReason<u64>, DebugError> {
        self.past = Past::default();
        let d = self.debuggee()?;
        d.moving.hurry(WAY_HOME);
        let is_near = d.checkpoints.has_before(origin.events);
        let there = match is_near {
            true => self
                .rewind(origin.events)
                .and_then(|d| d.on_the_way(origin, |_, _| ())),
            false => Err(DebugError::GivenUp),
        };
        match there {
            Ok(()) => {}
            Err(DebugError::GivenUp) => {
                let d = self.debuggee()?;
                let (from, all) = (origin.events, d.timeline.len());
                let order = d.timeline.is_order;
                let origin = match order {
                    true => String::new(),
                    false => format!(" (it began at event {from} of {all})"),
                };
                let here = d.next_event();
                d.moving.say(&format!(
                    "the way back was given up at event {here}{origin}"
                ));
            }
            Err(e) => return Err(e),
        }
        self.reason(Stop::Interrupted)
    }

    fn begin(&mut self) -> Result<MultiThreadStopReason<u64>, DebugError> {
        let begins = self.debuggee()?.begins();
        if begins > self.debuggee()?.timeline.begins() {
            // It was another program before: gdb is told, and then asks again.
            self.rewind(begins - 1)?;
            return self.reason(Stop::Exec);
        }
        let d = self.rewind(begins)?;
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
        let mut now = self.debuggee()?.name()?;
        let mut is_origin = true;
        loop {
            // From checkpoint to checkpoint: each stretch is looked through once.
            let d = self.debuggee()?;
            let (first, earlier) = (d.begins(), d.earlier_than(now.events));
            let from = earlier.unwrap_or(first).max(first);
            let hits = self.rewind(from)?.hits_before(&now, is_origin)?;
            if hits > 0 {
                let d = self.rewind(from)?;
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
            if from == first {
                return self.begin();
            }
            now = Name {
                events: from,
                state: None,
            };
            is_origin = false;
        }
    }

    /// One step of the thread of `slot` back. A gate in the midst of an instruction, or before a handler's first one, is no step of its own.
    pub(crate) fn step_back(
        &mut self,
        slot: usize,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<MultiThreadStopReason<u64>, DebugError> {
        loop {
            let (from, was_gate) = self.shown_at(slot)?;
            let reason = self.place_back(slot, wanted)?;
            let (to, is_gate) = self.shown_at(slot)?;
            // Otherwise that is the beginning, or as far as it goes.
            let stepped = matches!(reason, MultiThreadStopReason::SignalWithThread { signal, .. } if signal == Signal::SIGTRAP);
            if !stepped || from != to || !(was_gate || is_gate) {
                return Ok(reason);
            }
        }
    }

    /// The registers that are shown of the thread of `slot`, if it is there; and whether we are at a gate.
    fn shown_at(&mut self, slot: usize) -> Result<(Option<General>, bool), DebugError> {
        let d = self.debuggee()?;
        let there = d.slots().any(|s| s == slot);
        let registers = there.then(|| d.registers(slot)).transpose()?;
        Ok((registers, d.name_of_gate().is_some()))
    }

    /// Back to the last place that has a name, at which the thread of `slot` was: a step, or the gate in one.
    fn place_back(
        &mut self,
        slot: usize,
        _wanted: &mut dyn FnMut() -> bool,
    ) -> Result<MultiThreadStopReason<u64>, DebugError> {
        let mut ways = std::mem::take(&mut self.past.ways);
        ways.retain(|w| w.slot == slot && w.steps > 0);
        if ways.is_empty() {
            let now = self.debuggee()?.name()?;
            match self.way_here(slot, &now) {
                Ok(Some((base, steps))) => ways.push(Way { base, slot, steps }),
                Ok(None) => return self.begin(),
                Err(DebugError::Refused(why)) => {
                    say!("{why}");
                    self.rewind(now.events)?.on_the_way(&now, |_, _| ())?;
                    // Not a step that led nowhere: gdb would try that for ever where it wants to leave a breakpoint.
                    return self.reason(Stop::Interrupted);
                }
                Err(e) => return Err(e),
            }
        }
        let Some(nearest) = ways.last().cloned() else {
            return self.begin();
        };
        self.go_to_base(&nearest.base)?;
        ways.iter_mut().for_each(|w| w.steps -= 1);
        let d = self.debuggee()?;
        let mut steps = nearest.steps - 1;
        if steps > LONG_WAY {
            d.make_steps(slot, steps - SHORT_WAY)?;
            steps = SHORT_WAY;
            if let Some(c) = d.checkpoint()? {
                let base = Base::Kept(Rc::new(c));
                ways.push(Way { base, slot, steps });
            }
        }
        d.make_steps(slot, steps)?;
        d.current = slot;
        self.past.ways = ways;
        self.reason(Stop::Stepped(slot))
    }

    pub(crate) fn go_to_base(&mut self, base: &Base) -> Result<(), DebugError> {
        match base {
            Base::Gate(events) => self.rewind(*events).map(|_| ()),
            Base::Kept(checkpoint) => self.debuggee()?.return_exactly(checkpoint),
        }
    }

    /// A place not far back, and how many steps of the thread of `slot` lead from there to where we are; `None`: it had no step before.
    pub(crate) fn way_here(
        &mut self,
        slot: usize,
        now: &Name,
    ) -> Result<Option<(Base, u64)>, DebugError> {
        let runs = now.state.as_ref().is_some_and(|s| s.slot == slot);
        let is_order = self.debuggee()?.timeline.is_order;
        let mut last = match is_order {
            true => self.debuggee()?.live.own(slot) + 1,
            false => now.events + u64::from(runs),
        };
        while let Some((events, from)) = self.gate_before(slot, last, now)? {
            last = from;
            if is_order && now.state.is_none() && events == now.events {
                // That is where we are.
                continue;
            }
            let d = self.rewind(events)?;
            if !d.slots().any(|s| s == slot) {
                return Ok(None);
            }
            // Before it, others may have run for long: the thread's last step ends where it comes to the next gate.
            let end = match (runs, is_order) {
                (true, true) => now.clone(),
                (true, false) if events == now.events => now.clone(),
                (false, true) => Name {
                    events: now.events,
                    state: None,
                },
                _ => Name {
                    events: events + 1,
                    state: None,
                },
            };
            match d.steps_to(slot, &end, FEW_STEPS)? {
                Steps::Made(0) | Steps::Missed => continue,
                Steps::Made(n) => return Ok(Some((Base::Gate(events), n))),
                Steps::TooMany => {}
            }
            if let Some((nearer, steps)) = self.rewind(events)?.come_nearer(slot, &end)? {
                return Ok(Some((Base::Kept(nearer), steps)));
            }
            // Where there can be no checkpoint, all steps are made from the gate on.
            return match self.rewind(events)?.steps_to(slot, &end, MOST_STEPS)? {
                Steps::Made(n) if n > 0 => Ok(Some((Base::Gate(events), n))),
                _ => Err(too_far()),
            };
        }
        Ok(None)
    }
}

pub(crate) fn too_far() -> DebugError {
    DebugError::Refused(format!(
        "the step before is more than {MOST_STEPS} instructions after the last place at which the program could be stopped"
    ))
}

/// How many steps there are.
pub(crate) enum Steps {
    Made(u64),
    Missed,
    TooMany,
}

impl Debuggee {
    /// With how many events the program began that runs here.
    pub(crate) fn begins(&self) -> u64 {
        let timeline = &self.timeline;
        let program = timeline.programs.get(timeline.program_at(self.events()));
        program.map_or(timeline.first, |p| p.begins)
    }

    /// Makes a motion without the debugger's breakpoints and watchpoints.
    pub(crate) fn unseen<T>(
        &mut self,
        go: impl FnOnce(&mut Debuggee) -> Result<T, DebugError>,
    ) -> Result<T, DebugError> {
        // The copies of the process that it becomes on the way know nothing of them.
        self.uncompile()
            .map_err(os("take breakpoints out of the code"))?;
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
        self.unseen(|d| loop {
            match d.go_far(events, &mut never)? {
                Stop::Limit => return Ok(()),
                Stop::Ended(_) => return Err(lost()),
                _ => d.go_on_if_wanted()?,
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
                vectors: vectors_hash(&self.vectors(slot)?),
                memory: self.memory_hash()?,
            }),
        })
    }

    /// Is this place it? Each test is only made when the cheaper one before it passes.
    pub(crate) fn is_at(&self, name: &Name) -> Result<bool, DebugError> {
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
            && vectors_hash(&self.vectors(state.slot)?) == state.vectors
            && self.memory_hash()? == state.memory)
    }

    /// Hashes of all that the program can see here: its memory, and the registers of each thread, in words.
    ///
    /// # Errors
    /// When something can't be read.
    pub fn state_in_words(&self) -> Result<String, DebugError> {
        let mut words = format!("memory {:016x}", self.memory_hash()?);
        for slot in self.slots() {
            let g = self.registers(slot)?;
            let all = g.r.into_iter().chain([g.rip, g.flags, g.fs_base]);
            let bytes: Vec<u8> = all.flat_map(u64::to_le_bytes).collect();
            let general = xxh3_64_with_seed(&bytes, 0);
            let vectors = vectors_hash(&self.vectors(slot)?);
            words += &format!(
                ", thread {} {general:016x} {vectors:016x}",
                self.visible(slot)
            );
        }
        Ok(words)
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
    pub(crate) fn next_hit(&mut self) -> Result<Stop, DebugError> {
        loop {
            let stop = self.go_far(self.timeline.end, &mut never)?;
            match stop {
                Stop::Breakpoint(slot) if self.is_wanted_here(slot) => return Ok(stop),
                Stop::Watch(..) | Stop::Call(..) | Stop::Limit => return Ok(stop),
                Stop::Ended(_) => return Err(lost()),
                _ => self.go_on_if_wanted()?,
            }
        }
    }

    fn is_wanted_here(&self, slot: usize) -> bool {
        self.in_program(slot)
            .is_some_and(|r| self.condition_holds(&r))
    }

    /// How often the debugger wants to stop on the way to `now`, which is where the way back began, or was not looked at yet.
    pub(crate) fn hits_before(&mut self, now: &Name, is_origin: bool) -> Result<u64, DebugError> {
        if self.is_at(now)? {
            return Ok(0);
        }
        let mut hits = 0;
        self.on_the_way(now, |d, stop| {
            let is_hit = match stop {
                Stop::Breakpoint(slot) => d.is_wanted_here(slot),
                stop => matches!(stop, Stop::Watch(..) | Stop::Call(..)),
            };
            let is_where_it_began =
                is_origin && matches!(stop, Stop::Call(..)) && d.is_at(now).unwrap_or(false);
            hits += (is_hit && !is_where_it_began) as u64;
        })?;
        Ok(hits)
    }

    /// Goes on to `now`, and tells of all stops before it.
    pub(crate) fn on_the_way(
        &mut self,
        now: &Name,
        mut tell: impl FnMut(&Debuggee, Stop),
    ) -> Result<(), DebugError> {
        // Only when its events have happened can it be `now`. Who is behind their gate already would not stop before the next one.
        let is_near =
            now.state.is_some() && self.events() == now.events && self.name_of_gate().is_none();
        loop {
            if is_near {
                break;
            }
            let stop = self.go_far(now.events, &mut never)?;
            if self.is_at(now)? {
                self.tell_of_write(stop, &mut tell);
                return Ok(());
            }
            match stop {
                Stop::Limit => break,
                Stop::Ended(_) => return Err(lost()),
                stop => tell(self, stop),
            }
            self.go_on_if_wanted()?;
        }
        self.look_out_for(now)?;
        loop {
            let stop = self.go_far(self.timeline.end.max(now.events), &mut never)?;
            if self.is_at(now)? {
                self.tell_of_write(stop, &mut tell);
                break;
            }
            if matches!(stop, Stop::Limit | Stop::Ended(_)) || self.events() > now.events {
                return Err(lost());
            }
            tell(self, stop);
            self.go_on_if_wanted()?;
        }
        self.look_out_no_more()
    }

    /// A write that led to `now` itself is taken back on the way back from there; a call has ended there.
    fn tell_of_write(&self, stop: Stop, tell: &mut impl FnMut(&Debuggee, Stop)) {
        if matches!(stop, Stop::Watch(..) | Stop::Call(..)) {
            tell(self, stop);
        }
    }

    /// From here on there is a stop wherever it may be `now`.
    pub(crate) fn look_out_for(&mut self, now: &Name) -> Result<(), DebugError> {
        if let Some(s) = &now.state {
            self.points.look_for(s.general);
        }
        Ok(())
    }

    pub(crate) fn look_out_no_more(&mut self) -> Result<(), DebugError> {
        self.points.forget_own();
        self.uncompile()
            .map_err(os("take a breakpoint out of the code"))
    }

    pub(crate) fn make_steps(&mut self, slot: usize, steps: u64) -> Result<(), DebugError> {
        let end = self.timeline.end;
        self.unseen(|d| {
            for i in 0..steps {
                let stop = d.step_far(slot, end, &mut never)?;
                if i % STEPS_AT_A_TIME == 0 || stop == Stop::Interrupted {
                    d.go_on_if_wanted()?;
                }
            }
            Ok(())
        })
    }

    /// How many steps of the thread of `slot` lead to `now`?
    pub(crate) fn steps_to(
        &mut self,
        slot: usize,
        now: &Name,
        most: u64,
    ) -> Result<Steps, DebugError> {
        let events = match now.state {
            Some(_) => self.timeline.end,
            None => now.events,
        };
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
                let stop = d.step_far(slot, events, &mut never)?;
                if steps % STEPS_AT_A_TIME == 0 || stop == Stop::Interrupted {
                    d.go_on_if_wanted()?;
                }
                match stop {
                    // The step that led to the gate has not come to its end.
                    Stop::Limit if now.state.is_none() => return Ok(Steps::Made(steps + 1)),
                    Stop::Limit | Stop::Ended(_) => return Ok(Steps::Missed),
                    _ => steps += 1,
                }
            }
        })
    }
}

/// Hash of vector registers as XSAVE stores them. Registers in their initial state can be stored, or left out: that is not the program's doing.
fn vectors_hash(area: &[u8]) -> u64 {
    /// Which parts are stored, and of what form the area is (Intel SDM 1, 13.4.2).
    const HEADER: std::ops::Range<usize> = 512..576;
    /// What FNINIT sets (SDM 1, 8.1.5).
    const X87_CONTROL: [u8; 2] = [0x7f, 0x03];
    const X87_POINTERS: std::ops::Range<usize> = 2..24;
    const X87: std::ops::Range<usize> = 32..160;
    const XMM: std::ops::Range<usize> = 160..416;
    /// x87 and SSE have their place in the legacy region.
    const FIRST_EXTENDED: u32 = 2;
    const CPUID_XSAVE: u32 = 0xd;
    let mut area = area.to_vec();
    let Some(header) = area.get(HEADER) else {
        return xxh3_64_with_seed(&area, 0);
    };
    let mut stored = [0; 8];
    stored.copy_from_slice(&header[..8]);
    let stored = u64::from_le_bytes(stored);
    if stored & 1 == 0 {
        area[X87_POINTERS].fill(0);
        area[X87].fill(0);
        area[..2].copy_from_slice(&X87_CONTROL);
    }
    if stored & 2 == 0 {
        area[XMM].fill(0);
    }
    for part in (FIRST_EXTENDED..63).filter(|i| stored & 1 << i == 0) {
        let about = std::arch::x86_64::__cpuid_count(CPUID_XSAVE, part);
        let (at, len) = (about.ebx as usize, about.eax as usize);
        if about.ecx & 1 != 0 {
            // A state of the system, which is not in this area.
            continue;
        }
        if let Some(left_out) = area.get_mut(at..at + len) {
            left_out.fill(0);
        }
    }
    area[HEADER].fill(0);
    xxh3_64_with_seed(&area, 0)
}

pub(crate) fn lost() -> DebugError {
    DebugError::Refused("the place was not found again: this is a bug in reprise".into())
}
