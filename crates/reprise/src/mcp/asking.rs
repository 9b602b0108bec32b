//! Tools that look at all of the run: `values`, `calls`, `where`. The scripts of these commands, in a gdb that is warm; what was found is kept, so that its next
//! page costs nothing.

use super::limits::Limits;
use super::page::page;
use super::reading::Id;
use super::sessions::Sessions;
use super::tool::Question;
use super::warm::{self, Found, Script};
use crate::ask::{calls, values, writers, COMMON};
use crate::cli::{CallsArgs, Part, ValuesArgs, WhereArgs};
use anyhow::{ensure, Result};
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::sync::Arc;

/// What is found, page by page.
async fn found(
    sessions: &Sessions,
    trace: Option<&str>,
    pid: Option<&Id>,
    script: Script,
    kind: &str,
    offset: usize,
    limits: &Limits,
) -> Result<Value> {
    let pid = pid.map(Id::text);
    let subject = sessions
        .subject(trace, pid.as_deref(), false, limits)
        .await?;
    let name = format!("{kind} {}", script.wanted);
    let found = warm::run(sessions, &subject, name, script, limits).await?;
    Ok(answer(&found, offset, limits))
}

fn answer(found: &Found, offset: usize, limits: &Limits) -> Value {
    let mut head = Map::new();
    head.insert("found".into(), found.len().into());
    if !found.notes.is_empty() {
        head.insert("notes".into(), json!(found.notes));
    }
    let last = found.len().checked_sub(1).and_then(|i| found.line(i));
    let last = last.and_then(|line| line["event"].as_u64());
    let from = match (found.is_full, found.ended_at) {
        (true, _) => last,
        (false, at) => at,
    };
    if let Some(from) = from {
        let why = match found.is_full {
            true => "there are more",
            false => "the time was over",
        };
        head.insert(
            "incomplete".into(),
            json!({"why": why, "next": {"from": from}}),
        );
    }
    let rest = (offset..found.len()).filter_map(|i| found.line(i));
    page(head, "list", rest, offset, limits)
}

/// Values of an expression.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// An expression in the program's language, as gdb takes it
    expression: String,
    /// Its value at each visit of this line, FILE:LINE (default: at each write to its memory)
    at_line: Option<String>,
    /// Its value at each call of this function
    function: Option<String>,
    /// At each write to its memory; what it names is looked up at at_line or in function, if one is given
    #[serde(default)]
    watch: bool,
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// Only of this thread, by its id
    thread: Option<u32>,
    /// From this event on
    from: Option<u64>,
    /// Up to this event
    to: Option<u64>,
    /// Of this process instead of the first one
    pid: Option<Id>,
    /// Where to go on, from `next` of the answer before
    #[serde(default)]
    offset: usize,
}

impl Question for Values {
    const NAME: &'static str = "values";
    const ABOUT: &'static str = "Every value that an expression had, in the order of the run: at each write to its memory (who wrote what, when), or at each visit of a line or call of a function. \
Shows lost updates, corruption and races at a glance.";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        ensure!(
            self.at_line.is_none() || self.function.is_none(),
            "at_line or function, not both"
        );
        let args = ValuesArgs {
            expression: self.expression,
            at: self.at_line,
            function: self.function,
            watch: self.watch,
            part: part(self.thread, self.from, self.to),
            json: true,
        };
        let script = Script {
            text: format!("{COMMON}\n{}", values::SCRIPT),
            wanted: values::wanted(&args).text(&args.part)?,
            read: Box::new(move |stream, put| values::lines(stream, &args, put)),
        };
        let kind = format!("values {:?}", self.thread);
        let (trace, pid) = (self.trace.as_deref(), self.pid.as_ref());
        found(&sessions, trace, pid, script, &kind, self.offset, &limits).await
    }
}

/// Calls of a function.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// The function, as gdb takes it
    function: String,
    /// With the values of its arguments
    #[serde(default)]
    arguments: bool,
    /// With what it returned, and when
    #[serde(default)]
    returns: bool,
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// Only of this thread, by its id
    thread: Option<u32>,
    /// From this event on
    from: Option<u64>,
    /// Up to this event
    to: Option<u64>,
    /// Of this process instead of the first one
    pid: Option<Id>,
    /// Where to go on, from `next` of the answer before
    #[serde(default)]
    offset: usize,
}

impl Question for Calls {
    const NAME: &'static str = "calls";
    const ABOUT: &'static str = "Every call of a function: when, by which thread, from where, with which arguments, and what came back.";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let args = CallsArgs {
            function: self.function,
            args: self.arguments,
            returns: self.returns,
            part: part(self.thread, self.from, self.to),
            json: true,
        };
        let script = Script {
            text: format!("{COMMON}\n{}", calls::SCRIPT),
            wanted: calls::wanted(&args).text(&args.part)?,
            read: Box::new(move |stream, put| calls::lines(stream, &args, put)),
        };
        let kind = format!("calls {:?}", self.thread);
        let (trace, pid) = (self.trace.as_deref(), self.pid.as_ref());
        found(&sessions, trace, pid, script, &kind, self.offset, &limits).await
    }
}

/// Writers of a location.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Where {
    /// An expression as gdb takes it, or an address
    location: String,
    /// What it names at this line, FILE:LINE, when that is come to first
    at_line: Option<String>,
    /// What it names in this function, when it is called first
    function: Option<String>,
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// Only of this thread, by its id
    thread: Option<u32>,
    /// From this event on
    from: Option<u64>,
    /// Up to this event
    to: Option<u64>,
    /// Of this process instead of the first one
    pid: Option<Id>,
    /// Where to go on, from `next` of the answer before
    #[serde(default)]
    offset: usize,
}

impl Question for Where {
    const NAME: &'static str = "where";
    const ABOUT: &'static str = "Who wrote to a variable or address: each place in the code with its number of writes, first and last event, threads, and the last value. `values` tells the writes one by one.";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        ensure!(
            self.at_line.is_none() || self.function.is_none(),
            "at_line or function, not both"
        );
        let args = WhereArgs {
            location: self.location,
            at: self.at_line,
            function: self.function,
            part: part(self.thread, self.from, self.to),
            json: true,
        };
        let script = Script {
            text: format!("{COMMON}\n{}", values::SCRIPT),
            wanted: writers::wanted(&args).text(&args.part)?,
            read: Box::new(move |stream, put| writers::lines(stream, &args, put)),
        };
        let kind = format!("where {:?}", self.thread);
        let (trace, pid) = (self.trace.as_deref(), self.pid.as_ref());
        found(&sessions, trace, pid, script, &kind, self.offset, &limits).await
    }
}

/// The trace and the process are those of the session.
fn part(thread: Option<u32>, from: Option<u64>, to: Option<u64>) -> Part {
    Part {
        trace: None,
        thread,
        from,
        to,
        pid: None,
    }
}
