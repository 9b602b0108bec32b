//! What `view` keeps of a trace in memory: a few bytes for each event, so that any stretch of it can be drawn at once at any scale. The
//! texts of events are read from the trace when they are wanted.

use crate::processes::Process;
use crate::timeline::{label, Flow, Mark, Thread, Timeline};
use anyhow::bail;
use reprise_abi::event::{Event, Kind};
use reprise_trace::{Manifest, Reader, Tail};
use std::collections::HashMap;
use std::path::Path;

/// Most events of a trace that is viewed.
pub const MAX_EVENTS: u64 = 1 << 26;
/// Most flows that are kept; later ones are not shown.
const MAX_FLOWS: usize = 1 << 22;
/// Most different names of events; later ones are shown as the last.
const MAX_LABELS: usize = 1 << 15;
/// Nobody's event.
const NOBODY: u32 = u32::MAX;

/// What an event is called, and what it is a kind of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// `call`, or the name of its [`Kind`].
    pub category: &'static str,
}

/// A call during which other threads ran.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The event that begins it.
    pub began: u64,
    /// The event that ends it; the end of the trace where there is none.
    pub ended: u64,
    /// Its label.
    pub label: u16,
}

/// The trace in memory.
pub struct Index {
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Its processes.
    pub processes: Vec<Process>,
    /// Labels, by their numbers.
    pub labels: Vec<Label>,
    /// What flows from thread to thread, in order of the ends.
    pub flows: Vec<Flow>,
    /// The same in order of the beginnings: places in `flows`.
    pub flows_by_start: Vec<u32>,
    /// What keeps the trace from being whole.
    pub incomplete: Option<String>,
    owners: Vec<u32>,
    label_numbers: Vec<u16>,
    /// Of each thread, in order.
    spans: Vec<Vec<Span>>,
}

/// While the index is made.
struct Making {
    index: Index,
    numbers: HashMap<Label, u16>,
}

impl Index {
    /// Reads the whole trace in `dir` once.
    ///
    /// # Errors
    /// When there is none, or it is larger than [`MAX_EVENTS`]. Of a damaged one the events before the damage are there.
    pub fn read(dir: &Path, manifest: &Manifest) -> anyhow::Result<Index> {
        let mut reader = Reader::open(dir)?;
        if reader.len() > MAX_EVENTS {
            bail!(
                "the trace has {} events, and `reprise view` shows {MAX_EVENTS} at most; `reprise export` takes any number",
                reader.len()
            );
        }
        let mut timeline = Timeline::new(manifest);
        let mut making = Making::new(reader.len() as usize);
        let mut incomplete = None;
        loop {
            match reader.next() {
                Ok(Some(event)) => {
                    let number = event.number;
                    making.event(number, &event.parse()?, &mut timeline);
                }
                Ok(None) => break,
                Err(damage) => {
                    incomplete = Some(damage.to_string());
                    break;
                }
            }
        }
        if let Tail::Torn { events_good, .. } = reader.tail() {
            let why = format!("the recording did not end in order; {events_good} events are good");
            incomplete = incomplete.or(Some(why));
        }
        Ok(making.finish(timeline, incomplete))
    }

    /// Number of events.
    pub fn len(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Whose an event is: place in `threads`.
    pub fn owner(&self, event: u64) -> Option<usize> {
        let owner = self.owners.get(event as usize).copied();
        owner.filter(|o| *o != NOBODY).map(|o| o as usize)
    }

    /// Number of an event's label.
    pub fn label(&self, event: u64) -> u16 {
        self.label_numbers[event as usize]
    }

    /// The call of a thread that begins or ends with this event.
    pub fn span_at(&self, thread: usize, event: u64) -> Option<Span> {
        let spans = &self.spans[thread];
        let at = spans.partition_point(|s| s.began <= event);
        let span = at.checked_sub(1).map(|i| spans[i])?;
        (span.began == event || span.ended == event).then_some(span)
    }

    /// Calls of a thread that have to do with events `from` to `to` (exclusive).
    pub fn spans(&self, thread: usize, from: u64, to: u64) -> &[Span] {
        let spans = &self.spans[thread];
        let first = spans.partition_point(|s| s.ended < from);
        let end = spans.partition_point(|s| s.began < to);
        &spans[first..end.max(first)]
    }

    /// Flows that begin or end at events `from` to `to` (exclusive).
    pub fn flows(&self, from: u64, to: u64) -> Vec<&Flow> {
        let start = |i: &u32| self.flows[*i as usize].from.event;
        let first = self.flows.partition_point(|f| f.to.event < from);
        let ending = self.flows[first..].iter().take_while(|f| f.to.event < to);
        let first = self.flows_by_start.partition_point(|i| start(i) < from);
        let starting = self.flows_by_start[first..].iter();
        let starting = starting.take_while(|i| start(i) < to);
        let beyond = starting
            .map(|i| &self.flows[*i as usize])
            .filter(|f| f.to.event >= to);
        ending.chain(beyond).collect()
    }
}

impl Making {
    fn new(events: usize) -> Making {
        Making {
            index: Index {
                threads: Vec::new(),
                processes: Vec::new(),
                labels: Vec::new(),
                flows: Vec::new(),
                flows_by_start: Vec::new(),
                incomplete: None,
                owners: Vec::with_capacity(events),
                label_numbers: Vec::with_capacity(events),
                spans: Vec::new(),
            },
            numbers: HashMap::new(),
        }
    }

    fn event(&mut self, number: u64, event: &Event, timeline: &mut Timeline) {
        let step = timeline.follow(number, event);
        let own = self.label(event);
        let index = &mut self.index;
        index.owners.push(step.thread.map_or(NOBODY, |t| t as u32));
        index.label_numbers.push(own);
        index.spans.resize(timeline.threads.len(), Vec::new());
        for thread in step.cut_off {
            if let Some(span) = index.spans[thread].last_mut() {
                span.ended = span.ended.min(number);
            }
        }
        match (step.mark, step.thread) {
            (Mark::Enter(_), Some(thread)) => index.spans[thread].push(Span {
                began: number,
                ended: u64::MAX,
                label: own,
            }),
            (Mark::Exit(_), Some(thread)) => {
                if let Some(span) = index.spans[thread].last_mut() {
                    span.ended = number;
                }
            }
            _ => {}
        }
        let room = MAX_FLOWS.saturating_sub(index.flows.len());
        index.flows.extend(step.flows.into_iter().take(room));
    }

    fn label(&mut self, event: &Event) -> u16 {
        let is_call = matches!(event.kind, Kind::Syscall | Kind::Enter | Kind::Exit);
        let label = Label {
            name: label(event).into_owned(),
            category: if is_call { "call" } else { event.kind.name() },
        };
        if let Some(number) = self.numbers.get(&label) {
            return *number;
        }
        if self.index.labels.len() == MAX_LABELS {
            return (MAX_LABELS - 1) as u16;
        }
        let number = self.index.labels.len() as u16;
        self.index.labels.push(label.clone());
        self.numbers.insert(label, number);
        number
    }

    fn finish(self, timeline: Timeline, incomplete: Option<String>) -> Index {
        let mut index = self.index;
        let end = index.len();
        for span in index.spans.iter_mut().flatten() {
            span.ended = span.ended.min(end);
        }
        index.spans.resize(timeline.threads.len(), Vec::new());
        index.flows_by_start = (0..index.flows.len() as u32).collect();
        let flows = &index.flows;
        index
            .flows_by_start
            .sort_by_key(|i| flows[*i as usize].from.event);
        index.threads = timeline.threads;
        index.processes = timeline.processes.list;
        index.incomplete = incomplete;
        index
    }
}
