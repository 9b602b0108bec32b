//! Places that are known by a thread's own: under `order` the trace's order is not the one in which events are used up, so an event is come to by stopping
//! its thread where it has used up as many of its own.

use crate::control::Stop;
use crate::debuggee::Debuggee;
use crate::history::{lost, never, Name, Past};
use crate::target::Session;
use crate::DebugError;
use std::rc::Rc;

impl Session {
    /// Goes to where event `number` of the trace is the next one, under `order` of its thread.
    ///
    /// # Errors
    /// As [`Session::run_to`].
    pub(crate) fn run_to_event(
        &mut self,
        number: u64,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        let timeline = Rc::clone(&d.timeline);
        if !timeline.is_order {
            return self.run_to(number, wanted);
        }
        // Some events are the recorder's own.
        let place = (number..timeline.len()).find_map(|n| {
            let slot = timeline.event(n)?.slot as usize;
            let own = timeline.rings.items_before(slot, n)?;
            Some((slot, own.max(d.checkpoints.own_at_first(slot))))
        });
        match place {
            Some((slot, own)) => self.run_to_own(slot, own),
            None => self.run_to(timeline.end, wanted),
        }
    }

    /// Goes to where event `number` of the trace is the last that its thread has used up.
    ///
    /// # Errors
    /// As [`Session::run_to`].
    pub(crate) fn run_behind(&mut self, number: u64) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        let timeline = Rc::clone(&d.timeline);
        if !timeline.is_order {
            return self.run_to(number + 1, &mut never);
        }
        let slot = timeline.event(number).map(|e| e.slot as usize);
        let place = slot.and_then(|slot| Some((slot, timeline.rings.items_before(slot, number)?)));
        let (slot, own) = place.ok_or_else(lost)?;
        self.run_to_own(slot, own + 1)
    }

    /// Under `order`: goes to where the thread of `slot` has used up so many events and entries of its own.
    fn run_to_own(&mut self, slot: usize, own: u64) -> Result<(), DebugError> {
        let timeline = Rc::clone(&self.debuggee()?.timeline);
        self.past = Past::default();
        if self.debuggee()?.live.own(slot) >= own {
            let d = self.debuggee()?;
            let from = d.checkpoints.before_own(slot, own);
            self.rewind(from)?;
        }
        let d = self.debuggee()?;
        match d.unseen(|d| d.come_to(slot, own, timeline.end))? {
            true => Ok(()),
            // The end of the process is only seen, not made.
            false if d.live.is_over() => Ok(()),
            false => Err(lost()),
        }
    }

    /// The last gate before one that is known, at which the thread of `slot` was: how many events had happened, and by what number the gate is
    /// known in its turn. That is under `order` how many the thread had used up itself.
    pub(crate) fn gate_before(
        &mut self,
        slot: usize,
        known: u64,
        now: &Name,
    ) -> Result<Option<(u64, u64)>, DebugError> {
        let timeline = Rc::clone(&self.debuggee()?.timeline);
        if !timeline.is_order {
            let of_slot = |n: &u64| {
                *n == now.events || timeline.event(*n).is_some_and(|e| e.slot as usize == slot)
            };
            let begins = self.debuggee()?.begins();
            let found = (begins..known).rev().find(of_slot);
            return Ok(found.map(|n| (n, n)));
        }
        let first = self.debuggee()?.checkpoints.own_at_first(slot);
        for own in (first..known).rev() {
            let d = self.debuggee()?;
            let from = d.checkpoints.before_own(slot, own).min(now.events);
            let d = self.rewind(from)?;
            if d.unseen(|d| d.come_to(slot, own, now.events))? {
                return Ok(Some((d.events(), own)));
            }
        }
        Ok(None)
    }
}

impl Debuggee {
    /// Goes on to where the thread of `slot` has used up so many events and entries of its own and wants more; not farther than to where `events`
    /// have happened. False: it did not come there.
    fn come_to(&mut self, slot: usize, own: u64, events: u64) -> Result<bool, DebugError> {
        self.live.stop_at(slot, own);
        let come = loop {
            match self.go_far(events, &mut never)? {
                Stop::Limit => break self.live.has_stopped(),
                Stop::Ended(_) => return Err(lost()),
                _ => {}
            }
        };
        self.live.stop_nowhere();
        Ok(come)
    }
}
