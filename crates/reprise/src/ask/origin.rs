//! `origin`: where a value comes from. In one process a replay finds the trail (`reprise_debug::origin`), and gdb names its places; from what was
//! read on, the events tell of which byte of which file or stream that was ([`super::streams`]), and in the process that sent it the search goes on.

use super::stream::{Ended, Next, Place};
use super::streams::{self, Birth, Came, Mappings, Sent};
use super::{converse, Here, COMMON, INTERRUPTED};
use crate::cli::{At, OriginArgs};
use crate::debug;
use crate::dump::Narrator;
use anyhow::{Context, Result};
use reprise_console::{say, tell};
use reprise_debug::Place as When;
use reprise_trace::{Catalog, Manifest};
use serde::{Deserialize, Serialize};
use serde_json::{json, Map, Value};
use std::path::Path;

/// What gdb is told to run.
const SCRIPT: &str = include_str!("origin.py");
/// Most processes that a value is followed through.
const MOST_PROCESSES: u32 = 64;

/// What the script is asked.
#[derive(Serialize, Clone)]
struct Question {
    #[serde(skip_serializing_if = "Option::is_none")]
    expression: Option<String>,
    depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Value>,
}

/// What the script tells.
#[derive(Deserialize)]
struct Told {
    start: Option<Start>,
    step: Option<Step>,
}

/// What was asked for.
#[derive(Deserialize)]
struct Start {
    place: String,
    value: String,
    event: u64,
    thread: u32,
    at: Place,
    symbol: Option<String>,
}

/// A step of the trail.
#[derive(Deserialize, Clone, Default)]
#[serde(default)]
struct Step {
    level: u32,
    what: String,
    kind: String,
    place: Option<Place>,
    caller: Option<Place>,
    /// The place is in a library.
    library: bool,
    event: Option<u64>,
    thread: Option<u32>,
    to: Option<String>,
    from: Option<String>,
    at: Option<String>,
    to_symbol: Option<String>,
    from_symbol: Option<String>,
    at_symbol: Option<String>,
    bytes: Option<String>,
    number: Option<String>,
    first: Option<u32>,
    count: Option<u32>,
    register: Option<String>,
    code: Option<String>,
    why: Option<String>,
}

/// A location as the server names it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Location<'a> {
    Memory { at: u64, len: u32 },
    Register { name: &'a str, from: u32, len: u32 },
}

fn location(text: &str) -> Option<Location<'_>> {
    let words: Vec<&str> = text.split(':').collect();
    match words[..] {
        ["m", at, len] => Some(Location::Memory {
            at: u64::from_str_radix(at, 16).ok()?,
            len: len.parse().ok()?,
        }),
        ["r", name, from, len] => Some(Location::Register {
            name,
            from: from.parse().ok()?,
            len: len.parse().ok()?,
        }),
        _ => None,
    }
}

/// In words: what lies there, if that has a name, else the address.
fn place_words(text: &str, symbol: Option<&String>) -> String {
    let bytes = |n: u32| if n == 1 { "1 byte" } else { "" };
    match (location(text), symbol) {
        (Some(Location::Memory { at, len }), symbol) => {
            let count = match len {
                1 => bytes(1).to_string(),
                n => format!("{n} bytes"),
            };
            match symbol {
                Some(symbol) => format!("{symbol}, {count} at {at:#x}"),
                None => format!("{count} at {at:#x}"),
            }
        }
        (Some(Location::Register { name, from, len }), _) => match (from, len) {
            (0, 8) => name.to_string(),
            (0, n) => format!("{name} (its lowest {})", counted(n)),
            (from, 1) => format!("{name} (its byte {from})"),
            (from, n) => format!("{name} (its bytes {from} to {})", from + n - 1),
        },
        _ => text.to_string(),
    }
}

fn counted(n: u32) -> String {
    match n {
        1 => "byte".into(),
        n => format!("{n} bytes"),
    }
}

/// Bytes from hexadecimal.
fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}

/// A few bytes as people read them: a number, and text where they are some.
fn value_words(bytes: &[u8]) -> String {
    let is_text = |b: &u8| (b' '..=b'~').contains(b);
    let text = match bytes.iter().all(is_text) && !bytes.is_empty() {
        true => format!(
            " {}",
            crate::dump::quoted(bytes, bytes.len(), bytes.len() as u64)
        ),
        false => String::new(),
    };
    match bytes.len() {
        0 => "?".into(),
        1..=8 => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let number = u64::from_le_bytes(word);
            match number {
                0..=9 => format!("{number}{text}"),
                _ => format!("{number} ({number:#x}){text}"),
            }
        }
        _ => {
            let all: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
            format!("{}{text}", all.join(" "))
        }
    }
}

/// The search.
struct Search<'a> {
    dir: &'a Path,
    args: &'a OriginArgs,
    /// Ids of the processes, in the order of births; there are several.
    pids: Vec<i64>,
    processes: u32,
    status: i32,
    /// Once they were asked for.
    mappings: Option<Mappings>,
}

/// Where the search goes on.
struct Onward {
    process: usize,
    at: When,
    start: Value,
}

/// Runs `origin`.
///
/// # Errors
/// When the trace can't be debugged, or gdb doesn't understand what is asked.
pub fn run(args: &OriginArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let crashed = Manifest::read(&dir).is_ok() && has_crashed(&dir, args)?;
    let usual = if crashed { When::Crash } else { When::End };
    let at = debug::place(args.at.as_ref(), &dir, usual)?;
    let asks_for_crash = matches!(at, When::Crash | When::Panic);
    let pids = streams::pids(&dir)?;
    if args.pid.is_none() && !asks_for_crash && pids.len() > 1 {
        say!(
            "the trace has {} processes; this is asked of the first one (--pid names others, see `reprise ps`)",
            pids.len()
        );
    }
    let birth = debug::birth(args.pid, at, &dir)?;
    let mut search = Search {
        dir: &dir,
        args,
        pids,
        processes: 0,
        status: 0,
        mappings: None,
    };
    let here = Here {
        dir: &dir,
        birth,
        at,
    };
    let question = Question {
        expression: Some(args.expression.clone()),
        depth: args.depth,
        start: None,
    };
    search.follow(&here, &question, 0)?;
    Ok(search.status)
}

/// Is there a crash, of the process that is asked for?
fn has_crashed(dir: &Path, args: &OriginArgs) -> Result<bool> {
    if matches!(args.at, Some(At::Place(_) | At::Stretch(_))) {
        return Ok(false);
    }
    let processes = crate::processes::Processes::of_trace(dir)?.0;
    Ok(match args.pid {
        Some(name) => {
            let one = &processes.list[processes.named(name)?];
            one.wait_status
                .is_some_and(|status| libc::WIFSIGNALED(status))
        }
        None => processes.crashed(false).is_some(),
    })
}

impl Search<'_> {
    /// Follows a value in one process, and on into those from which it came.
    fn follow(&mut self, here: &Here<'_>, question: &Question, level: u32) -> Result<()> {
        self.processes += 1;
        let process = here.birth as usize;
        let mut steps: Vec<Step> = Vec::new();
        let mut begun = None;
        let script = format!("{COMMON}\n{SCRIPT}");
        let (ended, status) = converse(here, &script, question, |stream| loop {
            match stream.next::<Told>()? {
                Next::Told(told) => {
                    if let Some(start) = told.start {
                        self.tell_start(&start, process)?;
                        begun = Some((start.place, start.event));
                    }
                    steps.extend(told.step);
                }
                Next::Row(_) | Next::Rest => {}
                Next::Ended(ended) => return Ok(ended),
            }
        })?;
        match ended {
            Ended::Whole => {}
            Ended::Interrupted(_) => {
                say!("interrupted: this is what was found up to there");
                self.status = INTERRUPTED;
                return Ok(());
            }
            Ended::Cut => {
                self.status = status;
                return Ok(());
            }
        }
        let begun = begun.or_else(|| match (&question.start, here.at) {
            (Some(start), When::Behind(event)) => {
                let at = start["at"].as_u64();
                at.map(|at| (format!("m:{at:x}:1"), event))
            }
            _ => None,
        });
        self.cut_at_births(&mut steps, process, begun)?;
        if !self.args.json {
            steps = merged(steps);
        }
        for step in &steps {
            self.tell_step(step, process, level)?;
            if step.what == "end" {
                if let Some(onward) = self.end(step, process, level)? {
                    self.go_on(&onward, question.depth, level + step.level)?;
                }
            }
        }
        Ok(())
    }

    fn mappings(&mut self) -> Result<&Mappings> {
        if self.mappings.is_none() {
            self.mappings = Some(Mappings::of(self.dir)?);
        }
        self.mappings.as_ref().context("the mappings were read")
    }

    /// What was written before its memory was mapped anew is not where the value comes from. `begun`: what is looked for, and at which event.
    fn cut_at_births(
        &mut self,
        steps: &mut Vec<Step>,
        process: usize,
        begun: Option<(String, u64)>,
    ) -> Result<()> {
        let Some(mut now) = begun else { return Ok(()) };
        for n in 0..steps.len() {
            if steps[n].kind == "born" {
                // Its memory began before it was read for the last time, as far as that is known.
                steps[n].event = Some(now.1).filter(|_| steps[n].level == 0);
                continue;
            }
            let step = &steps[n];
            if step.level > 0 {
                continue;
            }
            let Some(event) = step.event.filter(|e| *e <= now.1) else {
                continue;
            };
            if let Some(Location::Memory { at, .. }) = location(&now.0) {
                // That of the call itself which maps it comes before.
                let between = self.mappings()?.between(process, at, event..now.1);
                if between.is_some() {
                    let (to, event) = now;
                    steps.truncate(n);
                    steps.push(Step {
                        what: "end".into(),
                        kind: "born".into(),
                        event: Some(event),
                        to: Some(to),
                        ..Step::default()
                    });
                    return Ok(());
                }
            }
            now = (steps[n].from.clone().unwrap_or_default(), event);
        }
        Ok(())
    }

    fn go_on(&mut self, onward: &Onward, depth: u32, level: u32) -> Result<()> {
        if self.processes >= MOST_PROCESSES {
            say!("the value was followed through {MOST_PROCESSES} processes; this is as far as it goes");
            return Ok(());
        }
        let here = Here {
            dir: self.dir,
            birth: onward.process as u32,
            at: onward.at,
        };
        let question = Question {
            expression: None,
            depth,
            start: Some(onward.start.clone()),
        };
        self.follow(&here, &question, level)
    }

    /// A line, for people or for programs.
    fn put(&self, level: u32, text: &str, object: Map<String, Value>) -> Result<()> {
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

    fn object(&self, step: &str, process: usize) -> Map<String, Value> {
        let mut one = Map::from_iter([("step".into(), step.into())]);
        if let Some(pid) = self.pids.get(process) {
            one.insert("process".into(), (*pid).into());
        }
        one
    }

    fn tell_start(&self, start: &Start, process: usize) -> Result<()> {
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

    fn tell_step(&self, step: &Step, process: usize, level: u32) -> Result<()> {
        let level = level + step.level;
        let moment = self.moment(process, step.event, step.thread);
        let place = place_of(step);
        let mut one = self.object(&step.what, process);
        for (name, number) in [
            ("event", step.event),
            ("thread", step.thread.map(u64::from)),
        ] {
            if let Some(number) = number {
                one.insert(name.into(), number.into());
            }
        }
        if let Some(p) = &step.place {
            one.insert("place".into(), p.object());
        }
        if let Some(p) = &step.caller {
            one.insert("caller".into(), p.object());
        }
        for (name, l) in [
            ("to", &step.to),
            ("from", &step.from),
            ("location", &step.at),
        ] {
            if let Some(l) = l {
                one.insert(name.into(), location_object(l));
            }
        }
        if let Some(bytes) = &step.bytes {
            one.insert("bytes".into(), bytes.as_str().into());
        }
        let text = match (step.what.as_str(), step.kind.as_str()) {
            ("copy", _) => {
                let from = step.from.as_deref().unwrap_or_default();
                let from = match location(from) {
                    Some(Location::Memory { .. }) => {
                        format!(", from {}", place_words(from, step.from_symbol.as_ref()))
                    }
                    _ => String::new(),
                };
                format!("{moment}copied by {place}{from}")
            }
            ("part", _) => {
                let (first, count) = (step.first.unwrap_or(0), step.count.unwrap_or(0));
                one.insert("first".into(), first.into());
                one.insert("count".into(), count.into());
                let which = match count {
                    1 => format!("byte {first}"),
                    n => format!("bytes {first} to {}", first + n - 1),
                };
                format!("only {which} of it was written last; this is followed")
            }
            ("operand", _) => {
                let value = value_words(&bytes_of(step.bytes.as_deref().unwrap_or_default()));
                match (&step.at, &step.number) {
                    (Some(at), _) => {
                        let at = place_words(at, step.at_symbol.as_ref());
                        format!("  operand {at}: {value}")
                    }
                    (None, number) => {
                        let number = number.as_deref().unwrap_or_default();
                        let number = u64::from_str_radix(number, 16).unwrap_or(0);
                        one.insert("number".into(), number.into());
                        format!("  operand {}", signed(number))
                    }
                }
            }
            // The rest of it is told where it ends.
            ("end", "input" | "born" | "result") => return Ok(()),
            ("end", kind) => {
                one.insert("end".into(), kind.into());
                if let Some(code) = &step.code {
                    one.insert("code".into(), code.as_str().into());
                }
                match kind {
                    "constant" => {
                        let bytes = bytes_of(step.bytes.as_deref().unwrap_or_default());
                        format!("{moment}constant {} in {place}", value_words(&bytes))
                    }
                    "computed" => {
                        let code = step.code.as_deref().unwrap_or("?");
                        format!("{moment}computed by {place}: {code}")
                    }
                    "runtime" => {
                        format!("{moment}made by {place}, a function that Reprise has replaced")
                    }
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
            _ => return Ok(()),
        };
        self.put(level, &text, one)
    }

    /// The end of a trail, as far as the events tell more of it; where it goes on.
    fn end(&mut self, step: &Step, process: usize, level: u32) -> Result<Option<Onward>> {
        let level = level + step.level;
        let memory = step.to.as_deref().and_then(location);
        match (step.kind.as_str(), memory, step.event) {
            ("input", Some(Location::Memory { at, len }), Some(event)) => {
                self.input(event, at, len, step.thread, level)
            }
            ("result", _, Some(event)) => {
                let mut one = self.object("end", process);
                one.insert("end".into(), "result".into());
                one.insert("event".into(), event.into());
                let call = match streams::words(self.dir, event)? {
                    Some(call) => call,
                    None => narrated(self.dir, event)?,
                };
                one.insert("call".into(), call.as_str().into());
                let moment = self.moment(process, Some(event), step.thread);
                self.put(level, &format!("{moment}result of {call}"), one)?;
                Ok(None)
            }
            ("born", Some(Location::Memory { at, len }), _) => {
                self.born(step, process, at, len, level)
            }
            ("interrupted", ..) => {
                self.status = INTERRUPTED;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn input(
        &mut self,
        event: u64,
        at: u64,
        len: u32,
        thread: Option<u32>,
        level: u32,
    ) -> Result<Option<Onward>> {
        let input = streams::input(self.dir, event, at, len)?;
        let mut one = self.object("input", input.process);
        one.insert("event".into(), event.into());
        one.insert("call".into(), input.call.as_str().into());
        one.insert("bytes".into(), hex(&input.bytes).into());
        let moment = self.moment(input.process, Some(event), thread);
        self.put(level, &format!("{moment}read by {}", input.call), one)?;
        self.came(&input.came, Some(&input), len, level)
    }

    fn came(
        &mut self,
        came: &Came,
        input: Option<&streams::Input>,
        len: u32,
        level: u32,
    ) -> Result<Option<Onward>> {
        match came {
            Came::File { path, offset } => {
                self.tell_file(path, *offset, input, level)?;
                Ok(None)
            }
            Came::Stream {
                stream,
                position,
                what,
            } => self.sender(*stream, *position, what, len, level),
            Came::Call(what) => {
                let mut one = Map::from_iter([("step".into(), "end".into())]);
                one.insert("end".into(), "call".into());
                one.insert("from".into(), (*what).into());
                self.put(level, &format!("from {what}{}", shown(input)), one)?;
                Ok(None)
            }
        }
    }

    fn tell_file(
        &self,
        path: &Path,
        offset: u64,
        input: Option<&streams::Input>,
        level: u32,
    ) -> Result<()> {
        let mut one = Map::from_iter([("step".into(), "end".into())]);
        one.insert("end".into(), "file".into());
        one.insert("file".into(), path.to_string_lossy().into());
        one.insert("offset".into(), offset.into());
        if let Some(input) = input {
            one.insert("bytes".into(), hex(&input.bytes).into());
        }
        let text = format!("from {}, offset {offset}{}", path.display(), shown(input));
        self.put(level, &text, one)
    }

    /// The search goes on with who wrote this byte of a stream.
    fn sender(
        &mut self,
        stream: usize,
        position: u64,
        what: &str,
        len: u32,
        level: u32,
    ) -> Result<Option<Onward>> {
        let Some(writer) = streams::writer(self.dir, stream, position)? else {
            let mut one = Map::from_iter([("step".into(), "end".into())]);
            one.insert("end".into(), "unknown".into());
            one.insert("why".into(), "nobody who was recorded wrote it".into());
            let text = format!("byte {position} of {what}, which nobody who was recorded wrote");
            self.put(level, &text, one)?;
            return Ok(None);
        };
        let mut one = self.object("sent", writer.process);
        one.insert("event".into(), writer.event.into());
        one.insert("through".into(), what.into());
        one.insert("position".into(), position.into());
        one.insert("call".into(), writer.call.as_str().into());
        let moment = self.moment(writer.process, Some(writer.event), None);
        let text = format!(
            "{moment}byte {position} of {what}, written by {}",
            writer.call
        );
        self.put(level, &text, one)?;
        let start = match writer.from {
            Err(came) => return self.came(&came, None, len, level),
            Ok(Sent::At(at)) => json!({"at": at, "len": len}),
            Ok(Sent::Vector { at, count, skip }) => {
                json!({"vector": at, "count": count, "skip": skip, "len": len})
            }
            Ok(Sent::Message { at, skip }) => json!({"message": at, "skip": skip, "len": len}),
        };
        Ok(Some(Onward {
            process: writer.process,
            at: When::Behind(writer.event),
            start,
        }))
    }

    fn born(
        &mut self,
        step: &Step,
        process: usize,
        at: u64,
        len: u32,
        level: u32,
    ) -> Result<Option<Onward>> {
        let before = step.event.unwrap_or(u64::MAX);
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
        let text = match self.mappings()?.birth(process, at, before) {
            Birth::File {
                event,
                path,
                offset,
            } => {
                one.insert("event".into(), event.into());
                one.insert("file".into(), path.to_string_lossy().into());
                one.insert("offset".into(), offset.into());
                let moment = self.moment(process, Some(event), None);
                format!(
                    "{moment}never written: {place} shows {}, offset {offset}: {value}",
                    path.display()
                )
            }
            Birth::Zero { event } => {
                one.insert("event".into(), event.into());
                let moment = self.moment(process, Some(event), None);
                format!("{moment}never written: {place} is zero since it was mapped")
            }
            Birth::Parent {
                process: parent,
                pid,
                event,
            } => {
                let mut one = self.object("inherited", process);
                one.insert("event".into(), event.into());
                one.insert("parent".into(), pid.into());
                let moment = self.moment(process, Some(event), None);
                let text = format!("{moment}inherited from its parent, process {pid}");
                self.put(level, &text, one)?;
                return Ok(Some(Onward {
                    process: parent,
                    at: When::Behind(event),
                    start: json!({"at": at, "len": len}),
                }));
            }
            Birth::Program => format!(
                "{}never written: {place} is {value} since the program began",
                self.moment(process, None, None)
            ),
        };
        self.put(level, &text, one)?;
        Ok(None)
    }
}

/// Copies by one line of the program, or by one call of a library, as one.
fn merged(steps: Vec<Step>) -> Vec<Step> {
    let key = |s: &Step| {
        let place = s.place.clone().unwrap_or_default();
        let line = place.line.filter(|_| !s.library);
        let caller = s.caller.as_ref().map(|c| (c.function.clone(), c.line));
        (s.level, s.thread, place.function, line, caller)
    };
    let mut all: Vec<Step> = Vec::new();
    for step in steps {
        match all.last_mut() {
            Some(last) if last.what == "copy" && step.what == "copy" && key(last) == key(&step) => {
                (last.from, last.from_symbol) = (step.from, step.from_symbol);
            }
            _ => all.push(step),
        }
    }
    all
}

/// The place of a step in words: that of the library's caller with it.
fn place_of(step: &Step) -> String {
    match (&step.place, &step.caller) {
        (Some(place), Some(caller)) => format!("{}, called by {}", place.text(), caller.text()),
        (Some(place), None) => place.text(),
        _ => "??".into(),
    }
}

fn location_object(text: &str) -> Value {
    match location(text) {
        Some(Location::Memory { at, len }) => json!({"address": at, "bytes": len}),
        Some(Location::Register { name, from, len }) => {
            json!({"register": name, "first": from, "bytes": len})
        }
        None => Value::Null,
    }
}

/// What was read, with what was around it.
fn shown(input: Option<&streams::Input>) -> String {
    let Some(input) = input else {
        return String::new();
    };
    let total = input.around.len();
    let around = crate::dump::quoted(&input.around, total, total as u64);
    format!(": {} in {around}", value_words(&input.bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn signed(number: u64) -> String {
    match number as i64 {
        n @ (..=-1 | 0..=9) => n.to_string(),
        n => format!("{n} ({n:#x})"),
    }
}

/// An event that is no call, as `dump` prints it.
fn narrated(dir: &Path, number: u64) -> Result<String> {
    let manifest = Manifest::read(dir)?;
    let mut reader = reprise_trace::Reader::open(dir)?;
    reader.seek(number)?;
    Ok(match reader.next()? {
        Some(e) => Narrator::of(dir, manifest.pid, 32)
            .tell(number, &e.parse()?)
            .text()
            .to_string(),
        None => "?".into(),
    })
}
