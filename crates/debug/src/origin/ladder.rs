//! Ways back through a long stretch of computing, in which no event happens and so no checkpoint is: it is gone through once, with a checkpoint after
//! each piece of it. What is looked for is looked for from the last rung on, then from the one before, so each piece is searched once for
//! all locations that are followed back through it.

use super::written_by;
use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::history::{Base, Name, Steps, FEW_STEPS};
use crate::nearer::Piece;
use crate::target::Session;
use crate::DebugError;
use reprise_abi::event::Kind;
use reprise_trace::Reader;
use std::rc::Rc;
use std::time::Duration;

/// A piece of the way, in time of the processor.
const PIECE: Duration = Duration::from_millis(50);
/// Most events of one gate: a call, hashes, a signal.
const AT_A_GATE: usize = 16;
/// So many events before a gate those of its thread are that belong to it.
const NEAR: u64 = 256;
/// Most rungs: when there are more, every second one goes, and pieces are twice as long.
const MOST_RUNGS: usize = 64;

/// Who wrote last.
pub(super) enum Hit {
    /// The thread of this slot, or the kernel for it at the gate from which it comes: it is right behind that.
    Write(usize),
    /// The kernel, by this event of the slot's thread.
    Event(u64, usize),
}

/// Checkpoints behind a gate, in their order: the first one is at the gate.
#[derive(Default)]
pub(crate) struct Ladder {
    /// Events that had happened at the gate.
    gate: Option<u64>,
    rungs: Vec<Rc<Checkpoint>>,
}

impl Session {
    /// Makes the rungs between the gate behind so many events and `now`, if they are not those that there are; false where there can be none.
    fn make_ladder(&mut self, gate: u64, now: &Name) -> Result<bool, DebugError> {
        if self.ladder.gate == Some(gate) {
            return Ok(true);
        }
        self.ladder = Ladder::default();
        let d = self.rewind(gate)?;
        let rungs = d.unseen(|d| {
            let mut rungs = Vec::new();
            let Some(first) = d.checkpoint()? else {
                return Ok(rungs);
            };
            rungs.push(Rc::new(first));
            let mut piece = PIECE;
            while let Piece::Nearer(c) = d.go_a_piece(now, piece)? {
                rungs.push(c);
                if rungs.len() > MOST_RUNGS {
                    let mut n = 0;
                    rungs.retain(|_| {
                        n += 1;
                        n % 2 == 1
                    });
                    piece *= 2;
                }
            }
            Ok(rungs)
        })?;
        let there = !rungs.is_empty();
        self.ladder = Ladder {
            gate: there.then_some(gate),
            rungs,
        };
        Ok(there)
    }

    /// A place not far back, and how many steps of the thread of `slot` lead from there to `now`; as [`Session::way_here`].
    pub(super) fn way_by_ladder(
        &mut self,
        slot: usize,
        now: &Name,
    ) -> Result<Option<(Base, u64)>, DebugError> {
        if now.is_of(slot) && self.make_ladder(now.events, now)? {
            while let Some(rung) = self.ladder.rungs.last().cloned() {
                let d = self.debuggee()?;
                d.return_exactly(&rung)?;
                match d.steps_to(slot, now, FEW_STEPS)? {
                    Steps::Made(0) | Steps::Missed => {
                        self.ladder.rungs.pop();
                        continue;
                    }
                    Steps::Made(n) => {
                        let base = match self.ladder.rungs.len() {
                            1 => Base::Gate(now.events),
                            _ => Base::Kept(rung),
                        };
                        return Ok(Some((base, n)));
                    }
                    Steps::TooMany => {}
                }
                d.return_exactly(&rung)?;
                if let Some((nearer, n)) = d.come_nearer(slot, now)? {
                    return Ok(Some((Base::Kept(nearer), n)));
                }
                break;
            }
            // What is looked for next is before the gate.
            self.ladder = Ladder::default();
            match now.events {
                0 => {}
                _ => {
                    self.rewind(now.events)?.on_the_way(now, |_, _| ())?;
                }
            }
        }
        self.way_here(slot, now)
    }

    /// Back to right behind the last write to this memory, which is watched.
    pub(super) fn last_watched(&mut self, at: u64, len: u32) -> Result<Option<Hit>, DebugError> {
        let mut now = self.debuggee()?.name()?;
        if now.pc().is_none() {
            if let Some(hit) = self.written_at_gate(at, len)? {
                return Ok(Some(hit));
            }
        }
        if now.pc().is_some() && self.make_ladder(now.events, &now)? {
            while let Some(rung) = self.ladder.rungs.last().cloned() {
                let d = self.debuggee()?;
                d.return_exactly(&rung)?;
                let here = d.name()?;
                let hits = d.hits_before(&now, false)?;
                if let Some(slot) = self.go_to_hit(hits, |s| s.debuggee()?.return_exactly(&rung))? {
                    return Ok(Some(Hit::Write(slot)));
                }
                self.ladder.rungs.pop();
                now = here;
            }
            self.rewind(now.events)?;
            if let Some(hit) = self.written_at_gate(at, len)? {
                return Ok(Some(hit));
            }
            now = Name::of_gate(now.events);
        }
        self.ladder = Ladder::default();
        loop {
            let d = self.debuggee()?;
            let (first, earlier) = (d.begins(), d.earlier_than(now.events));
            let from = earlier.unwrap_or(first).max(first);
            let hits = self.rewind(from)?.hits_before(&now, false)?;
            if let Some(slot) = self.go_to_hit(hits, |s| s.rewind(from).map(|_| ()))? {
                return Ok(Some(Hit::Write(slot)));
            }
            if from == first {
                return Ok(None);
            }
            self.rewind(from)?;
            if let Some(hit) = self.written_at_gate(at, len)? {
                return Ok(Some(hit));
            }
            now = Name::of_gate(from);
        }
    }

    /// The event at whose gate we are, if the kernel wrote to this memory by it: who comes from before sees that only when the gate is over, and
    /// who comes from here does not see it.
    fn written_at_gate(&mut self, at: u64, len: u32) -> Result<Option<Hit>, DebugError> {
        let d = self.debuggee()?;
        let mut reader = Reader::open(&d.dir)?;
        let mut last: Option<(u64, usize)> = None;
        let slots: Vec<usize> = d.slots().collect();
        for slot in slots {
            let next = match d.live.rings() {
                Some(rings) => {
                    let next = rings.event_after(slot, d.live.own(slot));
                    next.unwrap_or(d.timeline.len())
                }
                None => d.events(),
            };
            let own = |n: &u64| {
                let event = d.timeline.event(*n);
                event.is_some_and(|e| e.slot as usize == slot)
            };
            let near = match d.timeline.is_order {
                true => d.timeline.first,
                false => next.saturating_sub(NEAR).max(d.timeline.first),
            };
            for number in (near..next).rev().filter(own).take(AT_A_GATE) {
                reader.seek(number)?;
                let Some(e) = reader.next()? else { break };
                let e = e.parse()?;
                if written_by(&e, at, len).is_some() {
                    last = last.max(Some((number, slot)));
                }
                // Behind all others the thread may have gone on.
                if ![Kind::Hash, Kind::Patch, Kind::Yield, Kind::Resume].contains(&e.kind) {
                    break;
                }
            }
        }
        Ok(last.map(|(number, slot)| Hit::Event(number, slot)))
    }

    /// Goes from where `begin` leads to the stop of this number, if there is one.
    fn go_to_hit(
        &mut self,
        number: u64,
        begin: impl FnOnce(&mut Session) -> Result<(), DebugError>,
    ) -> Result<Option<usize>, DebugError> {
        if number == 0 {
            return Ok(None);
        }
        begin(self)?;
        let d = self.debuggee()?;
        let mut stop = Stop::Limit;
        for _ in 0..number {
            stop = d.next_hit()?;
        }
        Ok(match stop {
            Stop::Watch(slot, _) => {
                d.current = slot;
                Some(slot)
            }
            _ => None,
        })
    }
}
