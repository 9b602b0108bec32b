//! Mixtures of two schedules: a recording by `serial` is replayed up to one of its hand-offs, exactly, and from there on the program runs for itself, as it would with
//! long slices: a thread keeps the baton until it waits. So one hand-off after the other can be left out, with all that came of it (Choi and Zeller, "Isolating
//! Failure-Inducing Thread Schedules", ISSTA 2002, mix schedules in that way).
//!
//! Behind a hand-off's event every thread waits in the runtime, and comes out of it by an event that no trace has ([`Live::give`](reprise_replay::Live::give)): a call in
//! which it waits is made again. When all stand in the program the engine becomes `none`, and the session one that records, so that the runtime takes nothing from the
//! trace; `astray` lets one thread at a time run. All of it happens in a copy of the process, which is thrown away.

use crate::astray::{Astray, End};
use crate::checkpoint::Checkpoint;
use crate::control::{Catch, Stop};
use crate::debuggee::Debuggee;
use crate::diversion::NO_ENGINE;
use crate::history::never;
use crate::target::Session;
use crate::timeline::Timeline;
use crate::{os, DebugError};
use reprise_abi::engine::TraceOrder;
use reprise_abi::event::{EventHeader, Kind, FLAG_RESTARTED, HEADER_LEN};
use reprise_abi::layout::{MAX_SLOTS, SESSION_BASE};
use reprise_abi::session::MODE_RECORD;
use reprise_replay::{Live, Output};
use reprise_trace::{Manifest, Reader};
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::*;

/// A place at which one thread goes on instead of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandOff {
    /// The last event before it, which is that of the thread that loses its turn.
    pub event: u64,
    /// Slot of that thread.
    pub from: usize,
    /// Slot of the one that goes on.
    pub to: usize,
    /// What has ended the turn: a [cut](Kind::Cut) in the middle of code, a [yield](Kind::Yield) at a gate, a call that [waits](Kind::Enter).
    pub kind: Kind,
}

/// Who goes on at a hand-off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// The one that has lost its turn there in the recording.
    Before,
    /// The one that has got it.
    After,
}

/// Makes mixtures of one recording.
pub struct Mixtures {
    /// It is dropped before the session, whose processes it is of.
    here: Option<Checkpoint>,
    session: Session,
    timeline: Rc<Timeline>,
    /// Numbers of the calls that begin with these events.
    calls: HashMap<u64, u32>,
}

impl Mixtures {
    /// Of the recording in `dir`.
    ///
    /// # Errors
    /// When it can't be replayed, or is none of one process by the engine `serial`.
    pub fn of(dir: &Path) -> Result<Mixtures, DebugError> {
        let manifest = Manifest::read(dir)?;
        let timeline = Rc::new(Timeline::of(dir, 0)?);
        let refused = |why: &str| Err(DebugError::Refused(why.into()));
        if manifest.engine().order != TraceOrder::Slices || manifest.hooks {
            return refused("only recordings by the engine serial without --hooks have hand-offs of which one can be left out");
        }
        // Of threads that were there before the first event it isn't known what they wait in.
        if timeline.first != 0 || manifest.start.attached != 0 {
            return refused("this recording does not begin with the program: it was attached to, or only the last stretch was kept");
        }
        let mut calls = HashMap::new();
        let mut reader = Reader::open(dir)?;
        while let Some(e) = reader.next()? {
            let Ok(h) = EventHeader::parse(e.bytes) else {
                break;
            };
            match Kind::from_u8(h.kind) {
                Some(Kind::Enter) => {
                    calls.insert(e.number, h.detail);
                }
                Some(Kind::ProcessStart) => {
                    return refused("this recording has several processes; one is wanted")
                }
                Some(Kind::Exec) => {
                    return refused(
                        "the process becomes another program; one that stays what it is is wanted",
                    )
                }
                _ => {}
            }
        }
        let debuggee = Debuggee::start(dir, Rc::clone(&timeline), Output::unseen(), None)?;
        Ok(Mixtures {
            here: None,
            session: Session::new(debuggee),
            timeline,
            calls,
        })
    }

    /// All hand-offs from one thread that goes on later to another, in their order.
    pub fn hand_offs(&self) -> Vec<HandOff> {
        let t = &self.timeline;
        let numbers = t.begins()..t.end.saturating_sub(1);
        let hand_off = |event: u64| {
            let (now, next) = (t.event(event)?, t.event(event + 1)?);
            let mut kind = Kind::from_u8(now.kind)?;
            let goes_on = matches!(kind, Kind::Yield | Kind::Enter);
            let before = event.checked_sub(1).and_then(|n| t.event(n));
            if before.is_some_and(|e| e.kind == Kind::Cut as u8 && e.slot == now.slot) {
                kind = Kind::Cut;
            }
            let is_thread = |slot: u16| usize::from(slot) < MAX_SLOTS;
            let is_one = goes_on && now.slot != next.slot && is_thread(next.slot);
            is_one.then_some(HandOff {
                event,
                from: now.slot.into(),
                to: next.slot.into(),
                kind,
            })
        };
        numbers.filter_map(hand_off).collect()
    }

    /// Ids of the threads of a hand-off, as the program knew them: who loses its turn, who gets it.
    ///
    /// # Errors
    /// When the replay can't go there.
    pub fn threads(&mut self, at: &HandOff) -> Result<[u32; 2], DebugError> {
        self.go_to(at)?;
        let d = self.session.debuggee()?;
        Ok([at.from, at.to].map(|slot| d.visible(slot)))
    }

    fn go_to(&mut self, at: &HandOff) -> Result<(), DebugError> {
        let events = at.event + 1;
        if self.here.as_ref().is_some_and(|c| c.events == events) {
            return Ok(());
        }
        self.here = None;
        self.session.run_to(events, &mut never)?;
        let d = self.session.debuggee()?;
        self.here = d.checkpoint()?;
        match self.here {
            Some(_) => Ok(()),
            None => Err(DebugError::Refused(
                "the program can't be copied here: its first thread has ended before others, or it shares too much memory".into(),
            )),
        }
    }

    /// Replays the recording up to the hand-off, lets this one go on there, and the program run for itself: how that ends.
    ///
    /// # Errors
    /// When the replay can't go there, or the kernel refuses something.
    pub fn run(&mut self, at: &HandOff, who: Who) -> Result<End, DebugError> {
        self.go_to(at)?;
        let first = match who {
            Who::Before => at.from,
            Who::After => at.to,
        };
        let calls = &self.calls;
        let d = self.session.debuggee()?;
        let end = d.leave_recording(at, calls).and_then(|()| {
            let first = d.tid(first);
            Astray::new(d).run(first)
        });
        d.diverted = None;
        if let Some(here) = &self.here {
            d.return_exactly(here)?;
        }
        tracing::debug!(event = at.event, ?who, ?end, "mixture");
        end
    }
}

/// An event without arguments.
fn event(kind: Kind, slot: usize, detail: u32, flags: u32) -> EventHeader {
    EventHeader {
        len: HEADER_LEN as u32,
        kind: kind as u8,
        slot: slot as u16,
        detail,
        flags,
        ..EventHeader::default()
    }
}

impl Debuggee {
    /// Brings all threads out of the runtime, to where they go on, and leaves the recorded path.
    fn leave_recording(
        &mut self,
        at: &HandOff,
        calls: &HashMap<u64, u32>,
    ) -> Result<(), DebugError> {
        let Some(engine) = self.live.landmarks().engine else {
            return Err(DebugError::Refused(
                "the program was recorded by a reprise of which no thread can leave the recording: record it again".into(),
            ));
        };
        // Who waits for the next event holds the baton, and would take what is meant for another one.
        let others = self.slots().filter(|slot| *slot != at.from);
        let all: Vec<usize> = std::iter::once(at.from).chain(others).collect();
        for slot in all {
            let way = self.way_out(slot, at.event + 1, calls);
            let tid = self.tid(slot);
            self.diverted = Some(slot);
            let give = |live: &mut Live| live.give(slot, &way);
            match self.run_after(give, Catch::Thread(tid), false, &mut never)? {
                Stop::Stepped(s) if s == slot => {}
                stop => {
                    return Err(DebugError::Refused(format!(
                        "thread {} does not come out of what it waits in ({stop:?})",
                        self.visible(slot)
                    )))
                }
            }
        }
        let session = self.live.session();
        let process = self.live.slot(at.from).process.load(SeqCst) as usize;
        session.processes[process].debugged.store(0, SeqCst);
        let mode = SESSION_BASE + offset_of!(reprise_abi::session::Session, mode) as u64;
        self.memory
            .write_all_at(&MODE_RECORD.to_le_bytes(), mode)
            .and_then(|()| self.memory.write_all_at(&NO_ENGINE.to_le_bytes(), engine))
            .map_err(os("leave the recording"))
    }

    /// The events by which a thread comes out of the runtime: what it waits for is what follows its last event, of all before `next`.
    fn way_out(&self, slot: usize, next: u64, calls: &HashMap<u64, u32>) -> Vec<EventHeader> {
        let of_slot = |n: &u64| {
            let event = self.timeline.event(*n);
            event.is_some_and(|e| usize::from(e.slot) == slot)
        };
        let last = (self.timeline.first..next).rev().find(of_slot);
        let kind = last.and_then(|n| Kind::from_u8(self.timeline.event(n)?.kind));
        let first = match (kind, last) {
            // It is to make the call again.
            (Some(Kind::Enter), Some(n)) => {
                let call = calls.get(&n).copied().unwrap_or(0);
                Some(event(Kind::Exit, slot, call, FLAG_RESTARTED))
            }
            (Some(Kind::Yield), _) => Some(event(Kind::Resume, slot, 0, 0)),
            // It has done nothing yet, whoever had the slot before.
            (None | Some(Kind::ThreadExit), _) => Some(event(Kind::ThreadStart, slot, 0, 0)),
            _ => None,
        };
        // It only looks whose this is.
        let last = event(Kind::Syscall, slot, 0, 0);
        first.into_iter().chain([last]).collect()
    }
}
