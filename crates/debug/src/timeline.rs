//! What a debugger wants to know of a trace ahead: which thread each event belongs to, where the program crashes, which code the runtime
//! rewrites.

use crate::programs::{Program, Programs};
use crate::DebugError;
use reprise_abi::effect::Effect;
use reprise_abi::engine::TraceOrder;
use reprise_abi::event::{Event, EventHeader, Kind};
use reprise_abi::syscalls;
use reprise_replay::{checkpoints, Rings};
use reprise_trace::{beginning, Checkpoint, Known, Manifest, Reader};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// Most events of a trace that can be debugged: each takes four bytes here.
pub const MAX_EVENTS: u64 = 1 << 30;
/// A System V segment is not larger than this, mostly; what is larger is seen among the mappings once it is there.
const MOST_SEGMENT: u64 = 1 << 30;

/// An event, in short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief {
    /// Its kind's number.
    pub kind: u8,
    /// Its thread's slot.
    pub slot: u16,
}

/// A fault of the program's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The instruction.
    pub pc: u64,
    /// The signal.
    pub signal: u32,
    /// [`registers_hash`](reprise_abi::event::registers_hash) there; 0: not known.
    pub registers: u64,
}

impl Fault {
    fn of(h: &EventHeader) -> Fault {
        Fault {
            pc: h.value as u64,
            signal: h.detail,
            registers: h.input_hash,
        }
    }
}

/// A trace, looked through.
#[derive(Default)]
pub struct Timeline {
    /// Which process is debugged, in the order of their births.
    pub birth: u32,
    /// Number of the first event that the trace has: not 0 when only the last stretch was kept.
    pub first: u64,
    events: Vec<Brief>,
    faults: HashMap<u64, Fault>,
    /// What all events tell of files.
    pub known: Known,
    /// The programs that the debugged process is.
    pub programs: Vec<Program>,
    /// Between the lowest and the highest end of the heap.
    breaks: Option<Range<u64>>,
    /// Where memory was mapped at any time.
    pub mapped: Vec<Range<u64>>,
    /// The number of the first event that happens after the place where the first process ends by itself, or crashes; and the signal.
    pub end: u64,
    /// The signal by which it is killed, 0 when it ends by itself.
    pub signal: i32,
    /// The checkpoints on disk, of the first process.
    kept: RefCell<Vec<Checkpoint>>,
    /// Recorded by `order`, ...
    pub is_order: bool,
    /// ... and then what goes to which thread, ...
    pub rings: Rc<Rings>,
    /// ... and the faults, by slot and by how many events and entries of the slot come before.
    own_faults: HashMap<(usize, u64), Fault>,
    /// That of these by which the process ends.
    fatal: Option<(usize, u64)>,
}

/// Under `order` no number is known beforehand at which the process ends.
const NEVER: u64 = u64::MAX >> 1;
/// Most events of a recording by `order` that can be debugged: each takes 28 bytes here.
pub const MAX_EVENTS_OF_ORDER: u64 = 1 << 26;

impl Timeline {
    /// Looks through the trace in `dir`, for its process with this birth.
    ///
    /// # Errors
    /// When it can't be read, is too long, or has no such process.
    pub fn of(dir: &Path, birth: u32) -> Result<Timeline, DebugError> {
        let mut t = Timeline {
            birth,
            ..Timeline::default()
        };
        let manifest = Manifest::read(dir)?;
        let mut rings = Rings::default();
        if let Some((_, moment)) = beginning::open(dir)? {
            rings = Rings::beginning(&moment);
            t.known = moment.known;
        }
        t.is_order = manifest.engine().order == TraceOrder::Stamps;
        let most = match t.is_order {
            true => MAX_EVENTS_OF_ORDER,
            false => MAX_EVENTS,
        };
        let mut reader = Reader::open(dir)?;
        let there = reader.len() - reader.first();
        if there > most {
            return Err(DebugError::Refused(format!(
                "the trace has {there} events; the debugger takes {most} at most"
            )));
        }
        t.first = reader.first();
        let mut programs = Programs::of(birth, &manifest, t.first, &t.known);
        let mut last = HashMap::new();
        while let Some(e) = reader.next()? {
            let Ok(h) = EventHeader::parse(e.bytes) else {
                break;
            };
            t.events.push(Brief {
                kind: h.kind,
                slot: h.slot,
            });
            let number = e.number;
            if t.is_order {
                let slot = h.slot as usize;
                rings.note(number, &e.parse()?);
                let place = rings.items_before(slot, number).map(|own| (slot, own));
                t.note_own(&h, place, &mut last);
            }
            let kind = Kind::from_u8(h.kind);
            if kind.is_some_and(is_of_programs) {
                programs.follow(number, &h, &e.parse()?);
            }
            if Known::wants(kind, h.value) {
                t.known.note(number, &e.parse()?);
            }
            match kind {
                Some(Kind::Fault) => {
                    t.faults.insert(number, Fault::of(&h));
                }
                Some(Kind::Syscall | Kind::Exit) if h.value >= 0 => t.note_mapping(&e.parse()?),
                Some(Kind::End) => t.signal = (h.value & 0x7f) as i32,
                _ => {}
            }
        }
        t.mapped.extend(t.breaks.take());
        programs.look_into_images(dir, &manifest, &mut t.known)?;
        if programs.list.is_empty() {
            return Err(DebugError::Refused(
                "the trace ends before this process begins".into(),
            ));
        }
        t.programs = programs.list;
        if birth == 0 && !t.is_order {
            t.kept = checkpoints::list(dir, &reader).into();
        }
        t.find_end(programs.end);
        t.rings = Rc::new(rings);
        Ok(t)
    }

    /// Under `order`: the next event of a slot, and where it is among the slot's own. `last`: each slot's fault, if that was the last.
    fn note_own(
        &mut self,
        h: &EventHeader,
        place: Option<(usize, u64)>,
        last: &mut HashMap<usize, (usize, u64)>,
    ) {
        let Some(place) = place else { return };
        match Kind::from_u8(h.kind) {
            Some(Kind::Fault) => {
                self.own_faults.insert(place, Fault::of(h));
                last.insert(place.0, place);
            }
            Some(Kind::ProcessEnd) => self.fatal = last.remove(&place.0),
            _ => {
                last.remove(&place.0);
            }
        }
    }

    fn note_mapping(&mut self, e: &Event<'_>) {
        let at = e.header.value as u64;
        let len = match syscalls::effect(e.header.detail.into()) {
            Effect::Maps => e.arg(1),
            Effect::Remaps => e.arg(2),
            // It grows to there, from where it was last.
            Effect::Breaks => return self.note_break(at),
            Effect::Attaches => MOST_SEGMENT,
            _ => return,
        };
        self.mapped.push(at..at.saturating_add(len));
    }

    fn note_break(&mut self, at: u64) {
        match self.breaks.as_mut() {
            Some(known) => *known = known.start.min(at)..known.end.max(at),
            None => self.breaks = Some(at..at),
        }
    }

    /// A process that ends by itself is to be seen in its last call, one that is killed behind the last event of its own: in calls that had not
    /// come back.
    fn find_end(&mut self, told: Option<(u64, i32)>) {
        if self.is_order {
            self.end = NEVER;
            return;
        }
        let mut there = self.events.len();
        if let Some((event, status)) = told {
            self.signal = status & 0x7f;
            there = there.min((event - self.first) as usize);
        }
        let mut ends = vec![Kind::Syscall as u8, Kind::Fault as u8];
        if self.signal == libc::SIGKILL {
            ends.extend([Kind::Enter as u8, Kind::Exit as u8]);
        }
        let last = self.events[..there]
            .iter()
            .rposition(|e| ends.contains(&e.kind));
        let behind = last.map_or(there, |i| i + 1);
        self.end = self.first + behind as u64;
    }

    /// Which of the process's programs runs when so many events have happened.
    pub fn program_at(&self, events: u64) -> usize {
        let begun = self.programs.partition_point(|p| p.begins <= events);
        begun.saturating_sub(1)
    }

    /// With how many events the process begins.
    pub fn begins(&self) -> u64 {
        self.programs.first().map_or(self.first, |p| p.begins)
    }

    /// Where it becomes another program, if it does so after this.
    pub fn next_program(&self, events: u64) -> Option<u64> {
        let next = self.programs.get(self.program_at(events) + 1)?;
        (next.begins > events).then_some(next.begins)
    }

    /// The code of its program, when so many events have happened.
    pub fn code_at(&self, events: u64) -> &Known {
        match self.programs.get(self.program_at(events)) {
            Some(program) => &program.code,
            None => &self.known,
        }
    }

    /// The last checkpoint on disk at which no more events had happened.
    pub fn kept_before(&self, events: u64) -> Option<Checkpoint> {
        let kept = self.kept.borrow();
        let n = kept.partition_point(|c| c.event <= events);
        kept[..n].last().copied()
    }

    /// That one on disk can't be used.
    pub(crate) fn forget_kept(&self, damaged: Checkpoint) {
        self.kept.borrow_mut().retain(|c| *c != damaged);
    }

    /// How many events there are, those that were forgotten among them.
    pub fn len(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Has the trace no event?
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Event `number`.
    pub fn event(&self, number: u64) -> Option<Brief> {
        let i = number.checked_sub(self.first)?;
        self.events.get(usize::try_from(i).ok()?).copied()
    }

    /// The fault that is the next event of `slot`, `number` being the next event of all.
    pub fn fault(&self, number: u64, slot: usize) -> Option<Fault> {
        /// What else may come before it: the ends of others.
        const LOOK: u64 = 64;
        let mut after = number..(number + LOOK);
        let next = after.find(|n| self.event(*n).is_some_and(|e| e.slot as usize == slot))?;
        self.faults.get(&next).copied()
    }

    /// Under `order`: as [`Timeline::fault`], of a slot that has used up so many of its own, but perhaps for an entry that only counts; and
    /// whether the process ends by it.
    pub fn own_fault(&self, slot: usize, own: u64) -> Option<(Fault, bool)> {
        let at = (own..own + 2).find(|n| self.own_faults.contains_key(&(slot, *n)))?;
        let fault = self.own_faults.get(&(slot, at))?;
        Some((*fault, self.fatal == Some((slot, at))))
    }

    /// Under `order`: does the process end by a fault of its own?
    pub fn ends_by_fault(&self) -> bool {
        self.fatal.is_some()
    }

    /// Does a fault happen in this stretch of code at any time, or does the runtime rewrite some of it in the program that runs when so many
    /// events have happened?
    pub fn is_special(&self, stretch: &Range<u64>, events: u64) -> bool {
        let code = self.code_at(events);
        self.faults.values().any(|f| stretch.contains(&f.pc))
            || code.rewrites(stretch)
            || code.is_stub(stretch.start)
    }
}

/// Does it tell of processes, threads, programs or their code?
fn is_of_programs(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Syscall
            | Kind::Enter
            | Kind::ThreadStart
            | Kind::ProcessStart
            | Kind::ProcessEnd
            | Kind::Exec
            | Kind::Patch
    )
}
