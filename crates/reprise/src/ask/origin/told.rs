//! What `origin` says of a trail's steps: a line each, for people, or an object, for programs.

use super::script::{Start, Step};
use super::words::{
    bytes_of, hex, location, location_object, place_words, signed, value_words, Location,
};
use crate::ask::streams::{Birth, Input, Writer};
use crate::cli::OriginArgs;
use anyhow::Result;
use reprise_console::tell;
use serde_json::{json, Map, Value};
use std::path::Path;

/// What a step is for programs.
type Object = Map<String, Value>;

/// Who says it.
pub struct Teller<'a> {
    /// What was asked for.
    pub args: &'a OriginArgs,
    /// Ids of the processes, in the order of births; there are several.
    pub pids: Vec<i64>,
}

/// The step, or end, of this name.
fn named(key: &str, name: &str) -> Object {
    Map::from_iter([(key.into(), name.into())])
}

/// The end of a trail, of this kind.
fn end_of(kind: &str) -> Object {
    let mut one = named("step", "end");
    one.insert("end".into(), kind.into());
    one
}

impl Teller<'_> {
    /// A line, for people or for programs.
    fn put(&self, level: u32, text: &str, object: Object) -> Result<()> {
        let indent = "    ".repeat(level as usize);
        match self.args.json {
            true => {
                let mut all = Map::from_iter([("level".into(), level.into())]);
                all.extend(object);
                Ok(tell!("{}", Value::from(all))?)
            }
            false => Ok(tell!("{indent}{text}")?),
        }
    }

    /// `event 12  thread 4711  `, with the process where there are several.
    fn moment(&self, process: usize, event: Option<u64>, thread: Option<u32>) -> String {
        let mut text = String::new();
        if let Some(event) = event {
            text += &format!("event {event}  ");
        }
        if let Some(pid) = self.pids.get(process).filter(|_| self.pids.len() > 1) {
            text += &format!("process {pid}  ");
        }
        if let Some(thread) = thread {
            text += &format!("thread {thread}  ");
        }
        text
    }

    fn object(&self, step: &str, process: usize) -> Object {
        let mut one = named("step", step);
        if let Some(pid) = self.pids.get(process) {
            one.insert("process".into(), (*pid).into());
        }
        one
    }

    /// The value that was asked for.
    pub fn start(&self, start: &Start, process: usize) -> Result<()> {
        let mut one = self.object("value", process);
        one.insert("expression".into(), self.args.expression.as_str().into());
        one.insert("value".into(), start.value.as_str().into());
        one.insert("event".into(), start.event.into());
        one.insert("thread".into(), start.thread.into());
        one.insert("location".into(), location_object(&start.place));
        one.insert("place".into(), start.at.object());
        let text = format!(
            "{}{} = {}  ({}, in {})",
            self.moment(process, Some(start.event), Some(start.thread)),
            self.args.expression,
            start.value,
            place_words(&start.place, start.symbol.as_ref()),
            start.at.text()
        );
        self.put(0, &text, one)
    }

    /// A step of the trail, unless the events have more to tell of it.
    pub fn step(&self, step: &Step, process: usize, level: u32) -> Result<()> {
        let moment = self.moment(process, step.event, step.thread);
        let mut one = self.object(&step.what, process);
        describe(step, &mut one);
        let text = match (step.what.as_str(), step.kind.as_str()) {
            ("copy", _) => copied(step, &moment),
            ("part", _) => part(step, &mut one),
            ("operand", _) => operand(step, &mut one),
            // The rest of it is told where it ends.
            ("end", "input" | "born" | "result") => return Ok(()),
            ("end", _) => ended(step, &moment, &mut one),
            _ => return Ok(()),
        };
        self.put(level + step.level, &text, one)
    }

    /// It is the result of this call.
    pub fn result(
        &self,
        process: usize,
        event: u64,
        thread: Option<u32>,
        call: &str,
        level: u32,
    ) -> Result<()> {
        let mut one = self.object("end", process);
        one.insert("end".into(), "result".into());
        one.insert("event".into(), event.into());
        one.insert("call".into(), call.into());
        let moment = self.moment(process, Some(event), thread);
        self.put(level, &format!("{moment}result of {call}"), one)
    }

    /// A call brought it into memory.
    pub fn input(&self, input: &Input, event: u64, thread: Option<u32>, level: u32) -> Result<()> {
        let mut one = self.object("input", input.process);
        one.insert("event".into(), event.into());
        one.insert("call".into(), input.call.as_str().into());
        one.insert("bytes".into(), hex(&input.bytes).into());
        let moment = self.moment(input.process, Some(event), thread);
        self.put(level, &format!("{moment}read by {}", input.call), one)
    }

    /// It comes from this file.
    pub fn file(&self, path: &Path, offset: u64, input: Option<&Input>, level: u32) -> Result<()> {
        let mut one = end_of("file");
        one.insert("file".into(), path.to_string_lossy().into());
        one.insert("offset".into(), offset.into());
        if let Some(input) = input {
            one.insert("bytes".into(), hex(&input.bytes).into());
        }
        let text = format!("from {}, offset {offset}{}", path.display(), shown(input));
        self.put(level, &text, one)
    }

    /// The call itself made it, or somebody who was not recorded.
    pub fn made(&self, by: &str, input: Option<&Input>, level: u32) -> Result<()> {
        let mut one = end_of("call");
        one.insert("from".into(), by.into());
        self.put(level, &format!("from {by}{}", shown(input)), one)
    }

    /// Nobody has sent this byte of a stream.
    pub fn unsent(&self, position: u64, what: &str, level: u32) -> Result<()> {
        let mut one = end_of("unknown");
        one.insert("why".into(), "nobody who was recorded wrote it".into());
        let text = format!("byte {position} of {what}, which nobody who was recorded wrote");
        self.put(level, &text, one)
    }

    /// This call has sent a byte of a stream.
    pub fn sent(&self, writer: &Writer, position: u64, what: &str, level: u32) -> Result<()> {
        let mut one = self.object("sent", writer.process);
        one.insert("event".into(), writer.event.into());
        one.insert("through".into(), what.into());
        one.insert("position".into(), position.into());
        one.insert("call".into(), writer.call.as_str().into());
        let moment = self.moment(writer.process, Some(writer.event), None);
        let call = &writer.call;
        let text = format!("{moment}byte {position} of {what}, written by {call}");
        self.put(level, &text, one)
    }

    /// It is as its memory began; `at`, `len`: where that is.
    pub fn born(
        &self,
        step: &Step,
        process: usize,
        (at, len): (u64, u32),
        birth: &Birth,
        level: u32,
    ) -> Result<()> {
        let bytes = bytes_of(step.bytes.as_deref().unwrap_or_default());
        let value = value_words(&bytes);
        let place = place_words(
            step.to.as_deref().unwrap_or_default(),
            step.to_symbol.as_ref(),
        );
        let mut one = self.object("end", process);
        one.insert("end".into(), "born".into());
        one.insert("location".into(), json!({"address": at, "bytes": len}));
        if let Some(symbol) = &step.to_symbol {
            one.insert("symbol".into(), symbol.as_str().into());
        }
        let event = match birth {
            Birth::File { event, .. } | Birth::Zero { event } | Birth::Parent { event, .. } => {
                Some(*event)
            }
            Birth::Program => None,
        };
        let moment = self.moment(process, event, None);
        if let Some(event) = event {
            one.insert("event".into(), event.into());
        }
        let text = match birth {
            Birth::File { path, offset, .. } => {
                one.insert("file".into(), path.to_string_lossy().into());
                one.insert("offset".into(), (*offset).into());
                let path = path.display();
                format!("{moment}never written: {place} shows {path}, offset {offset}: {value}")
            }
            Birth::Zero { .. } => {
                format!("{moment}never written: {place} is zero since it was mapped")
            }
            Birth::Parent { pid, event, .. } => {
                one = self.object("inherited", process);
                one.insert("event".into(), (*event).into());
                one.insert("parent".into(), (*pid).into());
                format!("{moment}inherited from its parent, process {pid}")
            }
            Birth::Program => {
                format!("{moment}never written: {place} is {value} since the program began")
            }
        };
        self.put(level, &text, one)
    }
}

/// What a step of any kind has.
fn describe(step: &Step, one: &mut Object) {
    let thread = step.thread.map(u64::from);
    for (name, number) in [("event", step.event), ("thread", thread)] {
        if let Some(number) = number {
            one.insert(name.into(), number.into());
        }
    }
    for (name, place) in [("place", &step.place), ("caller", &step.caller)] {
        if let Some(place) = place {
            one.insert(name.into(), place.object());
        }
    }
    for (name, at) in [
        ("to", &step.to),
        ("from", &step.from),
        ("location", &step.at),
    ] {
        if let Some(at) = at {
            one.insert(name.into(), location_object(at));
        }
    }
    if let Some(bytes) = &step.bytes {
        one.insert("bytes".into(), bytes.as_str().into());
    }
}

fn copied(step: &Step, moment: &str) -> String {
    let from = step.from.as_deref().unwrap_or_default();
    let from = match location(from) {
        Some(Location::Memory { .. }) => {
            format!(", from {}", place_words(from, step.from_symbol.as_ref()))
        }
        _ => String::new(),
    };
    format!("{moment}copied by {}{from}", step.place_in_words())
}

fn part(step: &Step, one: &mut Object) -> String {
    let (first, count) = (step.first.unwrap_or(0), step.count.unwrap_or(0));
    one.insert("first".into(), first.into());
    one.insert("count".into(), count.into());
    let which = match count {
        1 => format!("byte {first}"),
        n => format!("bytes {first} to {}", first + n - 1),
    };
    format!("only {which} of it was written last; this is followed")
}

fn operand(step: &Step, one: &mut Object) -> String {
    let value = value_words(&bytes_of(step.bytes.as_deref().unwrap_or_default()));
    if let Some(at) = &step.at {
        let at = place_words(at, step.at_symbol.as_ref());
        return format!("  operand {at}: {value}");
    }
    let number = step.number.as_deref().unwrap_or_default();
    let number = u64::from_str_radix(number, 16).unwrap_or(0);
    one.insert("number".into(), number.into());
    format!("  operand {}", signed(number))
}

/// The end of a trail of which gdb's script knows all.
fn ended(step: &Step, moment: &str, one: &mut Object) -> String {
    one.insert("end".into(), step.kind.as_str().into());
    if let Some(code) = &step.code {
        one.insert("code".into(), code.as_str().into());
    }
    let place = step.place_in_words();
    match step.kind.as_str() {
        "constant" => {
            let bytes = bytes_of(step.bytes.as_deref().unwrap_or_default());
            format!("{moment}constant {} in {place}", value_words(&bytes))
        }
        "computed" => {
            let code = step.code.as_deref().unwrap_or("?");
            format!("{moment}computed by {place}: {code}")
        }
        "runtime" => format!("{moment}made by {place}, a function that Reprise has replaced"),
        "interrupted" => "interrupted: this is what was found up to there".into(),
        _ => {
            let why = step.why.as_deref().unwrap_or("no more is known");
            one.insert("why".into(), why.into());
            match step.place {
                Some(_) => format!("{moment}{why}: {place}"),
                None => format!("{moment}{why}"),
            }
        }
    }
}

/// What was read, with what was around it.
fn shown(input: Option<&Input>) -> String {
    let Some(input) = input else {
        return String::new();
    };
    let total = input.around.len();
    let around = crate::dump::quoted(&input.around, total, total as u64);
    format!(": {} in {around}", value_words(&input.bytes))
}
