//! The picture in tiles, as maps have them: a tile of level 0 is [`BINS`] events with their texts, one of level L as many bins of
//! [`ZOOM`]^L events each, of which only counts are told. The page asks for the few that it shows.

use super::index::{Index, Span};
use crate::dump::Narrator;
use reprise_trace::{Manifest, Reader};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bins of a tile.
pub const BINS: u64 = 1024;
/// How many bins of a level are one of the next.
pub const ZOOM: u64 = 4;
/// Most bytes of a buffer that are shown where one event is looked at.
const CLOSE_LIMIT: usize = 4096;

/// Marks of a bin: something in it should be seen from afar.
const SIGNAL: u8 = 1;
const CUT: u8 = 2;
const LIFE: u8 = 4;

/// What is told of a thread's events in a bin.
struct Bin {
    first: u64,
    count: u64,
    /// The label of most of them, if it is that of more than half.
    label: u16,
    balance: u64,
    marks: u8,
}

/// Makes tiles.
pub struct Tiles {
    /// What is known of all events.
    pub index: Index,
    manifest: Manifest,
    reader: Reader,
    dir: PathBuf,
    /// Most bytes of a buffer that are shown.
    limit: usize,
}

impl Tiles {
    /// Of the trace in `dir`.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn of_trace(dir: &Path, limit: usize) -> anyhow::Result<Tiles> {
        let manifest = Manifest::read(dir)?;
        Ok(Tiles {
            index: Index::read(dir, &manifest)?,
            manifest,
            reader: Reader::open(dir)?,
            dir: dir.into(),
            limit,
        })
    }

    /// Levels that there are: the last one is a single tile.
    pub fn levels(&self) -> u32 {
        let one = |level: &u32| BINS * ZOOM.pow(*level) >= self.index.len();
        (0..).find(one).unwrap_or(0) + 1
    }

    /// Tiles of a level.
    pub fn tiles(&self, level: u32) -> u64 {
        self.index.len().div_ceil(BINS * ZOOM.pow(level)).max(1)
    }

    /// What the page has to know before it asks for tiles.
    pub fn about(&self) -> Value {
        let index = &self.index;
        let m = &self.manifest;
        let words: Vec<String> = m.argv.iter().map(ToString::to_string).collect();
        let threads = index.threads.iter().map(|t| {
            json!({
                "process": t.process, "tid": t.tid, "slot": t.slot, "name": t.name,
                "first": t.first, "last": t.last, "ended": t.ended,
            })
        });
        let processes = index.processes.iter().map(|p| {
            let command = crate::human::command_line(p.command.iter().map(String::as_str));
            json!({ "pid": p.pid, "parent": p.parent, "command": command, "first": p.first, "last": p.last })
        });
        let labels = index.labels.iter().map(|l| json!([l.name, l.category]));
        json!({
            "command": crate::human::command_line(words.iter().map(String::as_str)),
            "engine": m.engine,
            "recorded": crate::human::moment(m.started),
            "events": index.len(),
            "incomplete": index.incomplete,
            "threads": threads.collect::<Vec<_>>(),
            "processes": processes.collect::<Vec<_>>(),
            "labels": labels.collect::<Vec<_>>(),
            "bins": BINS,
            "zoom": ZOOM,
            "levels": self.levels(),
        })
    }

    /// A tile; None: there is no such one.
    ///
    /// # Errors
    /// When the trace can't be read there.
    pub fn tile(&mut self, level: u32, number: u64) -> anyhow::Result<Option<Value>> {
        if level >= self.levels() || number >= self.tiles(level) {
            return Ok(None);
        }
        let width = ZOOM.pow(level);
        let from = number * BINS * width;
        let to = (from + BINS * width).min(self.index.len());
        let tile = match level {
            0 => self.events(from, to)?,
            _ => self.bins(from, to, width),
        };
        Ok(Some(tile))
    }

    /// Events, one by one: thread, label, the other end of its call (or -1), and the text.
    fn events(&mut self, from: u64, to: u64) -> anyhow::Result<Value> {
        let mut rows = Vec::new();
        let mut narrator = self.narrator_at(from, to)?;
        self.reader.seek(from)?;
        for number in from..to {
            let Some(event) = self.reader.next()? else {
                break;
            };
            let event = event.parse()?;
            let owner = self.index.owner(number);
            if let Some(t) = owner {
                narrator.knows(event.header.slot, self.index.threads[t].tid);
            }
            let line = narrator.tell(number, &event);
            let other = owner.and_then(|t| self.index.span_at(t, number));
            let other = other.map_or(-1, |s| other_end(&s, number));
            let owner = owner.map_or(-1, |t| t as i64);
            rows.push(json!([
                owner,
                self.index.label(number),
                other,
                line.plain()
            ]));
        }
        let flows = self.index.flows(from, to).into_iter();
        let flows =
            flows.map(|f| json!([f.from.event, f.from.thread, f.to.event, f.to.thread, f.name]));
        Ok(json!({
            "from": from,
            "rows": rows,
            "spans": self.long_calls(from, to, 0),
            "flows": flows.collect::<Vec<_>>(),
        }))
    }

    /// Counts: thread, bin, first event, how many, what most are, marks.
    fn bins(&self, from: u64, to: u64, width: u64) -> Value {
        let index = &self.index;
        let (mut all, mut busiest) = (Vec::new(), Vec::new());
        for (number, first) in (from..to).step_by(width as usize).enumerate() {
            let mut bins: BTreeMap<usize, Bin> = BTreeMap::new();
            for event in first..(first + width).min(to) {
                let Some(thread) = index.owner(event) else {
                    continue;
                };
                let bin = bins.entry(thread).or_insert(Bin {
                    first: event,
                    count: 0,
                    label: 0,
                    balance: 0,
                    marks: 0,
                });
                bin.add(index, event);
            }
            let most = bins.iter().max_by_key(|(_, bin)| bin.count);
            busiest.push(most.map_or(-1, |(thread, _)| *thread as i64));
            let rows = bins.into_iter();
            all.extend(
                rows.map(|(thread, b)| json!([thread, number, b.first, b.count, b.label, b.marks])),
            );
        }
        json!({
            "from": from,
            "bins": all,
            "busiest": busiest,
            "spans": self.long_calls(from, to, width),
        })
    }

    /// Calls of at least this length: thread, beginning, end, label.
    fn long_calls(&self, from: u64, to: u64, least: u64) -> Vec<Value> {
        let mut all = Vec::new();
        for thread in 0..self.index.threads.len() {
            let t = &self.index.threads[thread];
            if t.last < from || t.first >= to {
                continue;
            }
            let spans = self.index.spans(thread, from, to).iter();
            let long = spans.filter(|s| s.ended - s.began >= least);
            all.extend(long.map(|s| json!([thread, s.began, s.ended, s.label])));
        }
        all
    }

    /// Who knows the calls that threads are in at event `from`, and that end before `to`.
    fn narrator_at(&mut self, from: u64, to: u64) -> anyhow::Result<Narrator> {
        let mut narrator = Narrator::of(&self.dir, self.manifest.pid, self.limit);
        let mut begun: Vec<u64> = Vec::new();
        for event in from..to {
            let owner = self.index.owner(event);
            let span = owner.and_then(|t| self.index.span_at(t, event));
            begun.extend(span.map(|s| s.began).filter(|began| *began < from));
        }
        begun.sort_unstable();
        begun.dedup();
        for began in begun {
            self.reader.seek(began)?;
            if let Some(event) = self.reader.next()? {
                narrator.follow(&event.parse()?);
            }
        }
        Ok(narrator)
    }

    /// All that there is to say of an event; None: there is no such one.
    ///
    /// # Errors
    /// When the trace can't be read there.
    pub fn event(&mut self, number: u64) -> anyhow::Result<Option<Value>> {
        if number >= self.index.len() {
            return Ok(None);
        }
        let usual = std::mem::replace(&mut self.limit, CLOSE_LIMIT);
        let narrator = self.narrator_at(number, number + 1);
        self.limit = usual;
        let mut narrator = narrator?;
        self.reader.seek(number)?;
        let Some(event) = self.reader.next()? else {
            return Ok(None);
        };
        let event = event.parse()?;
        if let Some(t) = self.index.owner(number) {
            narrator.knows(event.header.slot, self.index.threads[t].tid);
        }
        let line = narrator.tell(number, &event);
        Ok(Some(Value::Object(line.json())))
    }
}

impl Bin {
    fn add(&mut self, index: &Index, event: u64) {
        let label = index.label(event);
        self.count += 1;
        match self.balance {
            0 => (self.label, self.balance) = (label, 1),
            _ if self.label == label => self.balance += 1,
            _ => self.balance -= 1,
        }
        self.marks |= match index.labels[usize::from(label)].category {
            "signal" | "fault" => SIGNAL,
            "cut" => CUT,
            "thread-start" | "thread-exit" | "process-start" | "process-end" | "exec" => LIFE,
            _ => 0,
        };
    }
}

fn other_end(span: &Span, event: u64) -> i64 {
    let other = if span.began == event {
        span.ended
    } else {
        span.began
    };
    other as i64
}
