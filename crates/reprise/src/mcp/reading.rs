//! Tools that only read traces, or replay one by themselves: `list`, `events`, `origin`, `races`, `diff`, `bisect`. Each is a command of this program.

use super::child::{json, lines, words};
use super::limits::Limits;
use super::page::page;
use super::sessions::Sessions;
use super::tool::Question;
use anyhow::Result;
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::ffi::OsString;
use std::sync::Arc;

/// Exit status of `races` when there are some.
const RACES: i32 = 66;
/// Steps of a trail at most.
const MOST_STEPS: usize = 10_000;
/// Events that are told when nobody says how many, ...
const EVENTS: u64 = 50;
/// ... and at most.
const MOST_EVENTS: u64 = 1000;

/// Lists traces.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Where to go on, from `next` of the answer before
    #[serde(default)]
    offset: usize,
}

impl Question for List {
    const NAME: &'static str = "list";
    const ABOUT: &'static str =
        "The recordings there are, newest first: name, command, how it ended, events.";

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let mut all = json(&words([&"ls", &"--json"]), &[0], &limits).await?;
        let mut list = all.as_array_mut().map(std::mem::take).unwrap_or_default();
        list.sort_by_key(|e| std::cmp::Reverse(e["started"].as_u64()));
        let mut head = Map::new();
        head.insert("traces".into(), list.len().into());
        let short = list.into_iter().skip(self.offset).map(|e| {
            let mut one = Map::new();
            for name in [
                "name", "argv", "exit", "events", "engine", "latest", "problem",
            ] {
                if !e[name].is_null() && e[name] != false {
                    one.insert(name.into(), e[name].clone());
                }
            }
            one.into()
        });
        Ok(page(head, "list", short, self.offset, &limits))
    }
}

/// A part of the events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// The first event (default: so that the last ones are told)
    from: Option<u64>,
    /// The last event
    to: Option<u64>,
    /// How many at most (50)
    count: Option<u64>,
    /// Only of this thread, by its id
    thread: Option<u64>,
    /// Only of this kind: syscall, enter, exit, signal, thread-start, thread-exit, process-start, process-end, exec, ...
    kind: Option<String>,
    /// Only of this process, by its id
    pid: Option<Id>,
}

/// What is named by a number or by a word: a process (PID@EVENT where several had its id), a place.
#[derive(Deserialize, JsonSchema, Clone)]
#[serde(untagged)]
pub enum Id {
    /// Its number.
    Number(u64),
    /// The word.
    Text(String),
}

impl Id {
    /// As a command takes it.
    pub fn text(&self) -> String {
        match self {
            Id::Number(n) => n.to_string(),
            Id::Text(text) => text.clone(),
        }
    }
}

impl Question for Events {
    const NAME: &'static str = "events";
    const ABOUT: &'static str = "What threads did, readable like strace: system calls with arguments, results and data, signals, beginnings and ends of threads and processes. Each with its event number.";

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let count = self.count.unwrap_or(EVENTS).clamp(1, MOST_EVENTS);
        let from = match self.from {
            Some(from) => from,
            None => {
                let mut arguments = words([&"info", &"--json"]);
                arguments.extend(self.trace.iter().map(OsString::from));
                let all = json(&arguments, &[0], &limits).await?["events"].as_u64();
                let end = all.unwrap_or(0).min(self.to.map_or(u64::MAX, |to| to + 1));
                end.saturating_sub(count)
            }
        };
        let mut arguments = words([&"dump", &"--json", &"--from", &from.to_string()]);
        if let Some(to) = self.to {
            arguments.extend(words([&"--to", &to.to_string()]));
        }
        if let Some(kind) = &self.kind {
            arguments.extend(words([&"--kind", kind]));
        }
        if let Some(pid) = &self.pid {
            arguments.extend(words([&"--pid", &pid.text()]));
        }
        arguments.extend(self.trace.iter().map(OsString::from));
        let fits = |e: &Value| self.thread.is_none_or(|t| e["tid"] == t);
        let (found, more) = lines(&arguments, count as usize, fits, &limits).await?;
        let numbers: Vec<u64> = found.iter().filter_map(|e| e["event"].as_u64()).collect();
        let short = found.into_iter().map(|e| {
            let mut one = Map::new();
            one.insert("event".into(), e["event"].clone());
            one.insert("thread".into(), e["tid"].clone());
            one.insert("text".into(), e["text"].clone());
            one.into()
        });
        let mut answer = page(Map::new(), "list", short, 0, &limits);
        // Events go on by their numbers.
        let next = match answer["next"]["offset"].as_u64() {
            Some(cut) => numbers.get(cut as usize).copied(),
            None if more => numbers.last().map(|n| n + 1),
            None => None,
        };
        match next {
            Some(next) => answer["next"] = json!({"from": next}),
            None => drop(answer.as_object_mut().and_then(|a| a.remove("next"))),
        }
        Ok(answer)
    }
}

/// Where a value comes from.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// An expression in the program's language, as gdb takes it, or an address
    expression: String,
    /// When: crash, end, panic, or the number of an event (default: the crash, else the end)
    at: Option<Id>,
    /// Go on through so many computations behind each other, along all operands of each (0)
    depth: Option<u32>,
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// In this process instead of the first one
    pid: Option<Id>,
    /// Where to go on, from `next` of the answer before
    #[serde(default)]
    offset: usize,
}

impl Question for Origin {
    const NAME: &'static str = "origin";
    const ABOUT: &'static str = "Where a value comes from: back through every copy (registers, structures, memcpy, threads, pipes and sockets between recorded processes) to the computation, the constant, \
or the file and offset that it was read from; each step with its event and line. The first question about a wrong value.";

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let mut arguments = words([&"origin", &"--json"]);
        let depth = self.depth.unwrap_or(0).to_string();
        arguments.extend(words([&"--depth", &depth]));
        for (option, value) in [("--at", &self.at), ("--pid", &self.pid)] {
            if let Some(value) = value {
                arguments.extend(words([&option, &value.text()]));
            }
        }
        arguments.extend(words([&"--", &self.expression]));
        arguments.extend(self.trace.iter().map(OsString::from));
        let (steps, more) = lines(&arguments, MOST_STEPS, |_| true, &limits).await?;
        let mut head = Map::new();
        head.insert("steps".into(), steps.len().into());
        if more {
            head.insert("incomplete".into(), json!({"why": "there are more"}));
        }
        let rest = steps.into_iter().skip(self.offset);
        Ok(page(head, "list", rest, self.offset, &limits))
    }
}

/// Data races.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Races {
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// Go on after the first race (later ones may follow from it)
    #[serde(default)]
    all: bool,
}

impl Question for Races {
    const NAME: &'static str = "races";
    const ABOUT: &'static str = "Which accesses to memory nothing orders: both threads, both stacks, the variable. Only of recordings with engine `order` of a program that was built with `reprise cc --races` \
(or `reprise c++ --races`); else look with `values` or `where` at who writes a variable, and with `backtrace` at which locks they hold.";

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        races(self.trace.as_deref(), self.all, &limits).await
    }
}

/// What `reprise races` says.
///
/// # Errors
/// When that can't be said.
pub async fn races(trace: Option<&str>, all: bool, limits: &Limits) -> Result<Value> {
    let mut arguments = words([&"races", &"--json"]);
    if all {
        arguments.push("--all".into());
    }
    arguments.extend(trace.map(OsString::from));
    let mut found = json(&arguments, &[0, RACES], limits).await?;
    let list = found["races"].as_array_mut().map(std::mem::take);
    let list = list.unwrap_or_default();
    let mut head = Map::new();
    head.insert("races".into(), list.len().into());
    for name in ["accesses", "incomplete"] {
        if !found[name].is_null() {
            head.insert(name.into(), found[name].clone());
        }
    }
    Ok(page(head, "list", list.into_iter(), 0, limits))
}

/// Two recordings compared.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// A trace
    a: String,
    /// Another one of the same program
    b: String,
}

impl Question for Diff {
    const NAME: &'static str = "diff";
    const ABOUT: &'static str = "The first difference of two recordings of one program, a good and a bad run for instance: which thread did what else, or what else came of it; and where threads first took turns \
in another order.";

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let arguments = words([&"diff", &"--json", &self.a, &self.b]);
        let mut found = json(&arguments, &[0, 1], &limits).await?;
        let mut short = |side: &str| {
            let event = found.pointer_mut(&format!("/first/{side}"));
            if let Some(event) = event.filter(|e| e.is_object()) {
                *event =
                    json!({"event": event["event"], "thread": event["tid"], "text": event["text"]});
            }
        };
        short("a");
        short("b");
        let same = found["first"].is_null() && found["turns"].is_null();
        found["same"] = same.into();
        Ok(found)
    }
}

/// Which hand-off makes a run fail.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bisect {
    /// A trace of the run that fails
    failing: String,
    /// One of the same program that passes
    passing: String,
}

impl Question for Bisect {
    const NAME: &'static str = "bisect";
    const ABOUT: &'static str = "Of a recording that fails and one of the same program that passes (engine serial, one process): the one hand-off between two threads whose place decides, with both stacks. \
The program is replayed up to a hand-off and runs on by itself from there, some dozen times.";

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        /// Innermost frames that are told of each stack.
        const FRAMES: usize = 8;
        let arguments = words([&"bisect", &"--json", &self.failing, &self.passing]);
        let mut found = json(&arguments, &[0, 1], &limits).await?;
        for side in ["/from/frames", "/to/frames"] {
            if let Some(Value::Array(frames)) = found.pointer_mut(side) {
                frames.truncate(FRAMES);
            }
        }
        Ok(found)
    }
}
