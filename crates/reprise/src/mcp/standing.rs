//! Tools that look at one place of the run: `backtrace`, `source`, `evaluate`, `last_write`. A warm replay goes there, and gdb at its side looks.

use super::limits::Limits;
use super::page::page;
use super::reading::Id;
use super::sessions::{Sessions, Subject};
use super::tool::Question;
use super::warm;
use crate::cli::At;
use crate::debug::place;
use crate::python;
use anyhow::{bail, ensure, Result};
use reprise_debug::python::Stack;
use reprise_debug::Place;
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{json, Value};
use std::sync::Arc;

/// Frames of a thread that are told when nobody says how many, ...
const FRAMES: u64 = 8;
/// ... and at most.
const MOST_FRAMES: u64 = 200;
/// This part of an answer may be variables of one thread's.
const VARIABLES: usize = 4;
/// Lines of source before and after a line, ...
const CONTEXT: u64 = 8;
/// ... and at most.
const MOST_CONTEXT: u64 = 200;
/// Expressions in one question.
const MOST_EXPRESSIONS: usize = 50;

/// A place in the run.
#[derive(Deserialize, JsonSchema, Clone)]
#[serde(untagged)]
pub enum Where {
    /// So many events have happened.
    Event(u64),
    /// `crash`, `end`, `panic`, `start`, `stretch:NAME`, or `here`: where the last answer about this process has led.
    Named(String),
}

/// The process that is meant, and the place as gdb's script takes it.
///
/// # Errors
/// When there is no such trace, process or place.
pub async fn subject(
    sessions: &Sessions,
    trace: Option<&str>,
    pid: Option<&Id>,
    at: Option<&Where>,
    limits: &Limits,
) -> Result<(Subject, Value)> {
    let named = match at {
        Some(Where::Named(name)) => Some(name.as_str()),
        _ => None,
    };
    // Who names no place wants to know of the crash, if there was one.
    let asks_for_crash = at.is_none() || matches!(named, Some("crash" | "panic"));
    let pid = pid.map(Id::text);
    let subject = sessions.subject(trace, pid.as_deref(), asks_for_crash, limits);
    let subject = subject.await?;
    let word = match (at, named) {
        (Some(Where::Event(n)), _) => json!(n),
        (_, None | Some("end")) => json!("last"),
        (_, Some("start")) => json!("first"),
        (_, Some(word @ ("crash" | "panic" | "here"))) => json!(word),
        (_, Some(word)) => match (word.strip_prefix("stretch:"), word.parse::<u64>()) {
            (_, Ok(n)) => json!(n),
            (Some(name), _) => {
                let (name, dir) = (At::Stretch(name.into()), subject.dir.clone());
                let find = move || place(Some(&name), &dir, Place::Start);
                match tokio::task::spawn_blocking(find).await?? {
                    Place::Behind(n) => json!(format!("behind {n}")),
                    _ => json!("first"),
                }
            }
            _ => bail!("at is the number of an event, crash, end, panic, start, here or stretch:NAME, not {word}"),
        },
    };
    Ok((subject, word))
}

/// Where threads are: what gdb answers to this question, with the functions of Python's at the frames that run them.
///
/// # Errors
/// What gdb says.
pub async fn stacks(
    sessions: &Sessions,
    subject: &Subject,
    question: &Value,
    limits: &Limits,
) -> Result<Value> {
    let mut found = warm::ask(sessions, subject, question, limits).await?;
    let stacks = found.as_object_mut().and_then(|f| f.remove("python"));
    let stacks: Vec<Stack> = serde_json::from_value(stacks.unwrap_or(json!([])))?;
    let most = question["frames"].as_u64().unwrap_or(FRAMES) as usize;
    let threads = found["threads"].as_array_mut();
    for thread in threads.into_iter().flatten() {
        let is_it = |s: &&Stack| thread["thread"] == s.thread;
        if let Some(stack) = stacks.iter().find(is_it) {
            python::place_in(thread, stack, most, limits.bytes / VARIABLES);
        }
    }
    Ok(found)
}

/// Where threads are.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backtrace {
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// Where: the number of an event, crash, end, panic, start, stretch:NAME, or here, where the last answer has led (default: the crash, else the end)
    at: Option<Where>,
    /// Only this thread, by its id
    thread: Option<u64>,
    /// Frames of each thread (8)
    frames: Option<u64>,
    /// With the arguments of functions
    #[serde(default)]
    arguments: bool,
    /// Of this process instead of the first one, or the one that crashed
    pid: Option<Id>,
    /// Where to go on, from `next` of the answer before
    #[serde(default)]
    offset: usize,
}

impl Question for Backtrace {
    const NAME: &'static str = "backtrace";
    const ABOUT: &'static str = "Where all threads are, at the crash, at the end, or at any event, and for which locks they wait; Go's goroutines after the threads.";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let (subject, at) = subject(
            &sessions,
            self.trace.as_deref(),
            self.pid.as_ref(),
            self.at.as_ref(),
            &limits,
        )
        .await?;
        let question = json!({
            "ask": "backtrace", "at": at, "thread": self.thread, "arguments": self.arguments,
            "frames": self.frames.unwrap_or(FRAMES).clamp(1, MOST_FRAMES),
            "goroutines": self.thread.is_none(),
        });
        let mut found = stacks(&sessions, &subject, &question, &limits).await?;
        let threads = found["threads"].as_array_mut().map(std::mem::take);
        let threads = threads.unwrap_or_default();
        let mut head = found.as_object().cloned().unwrap_or_default();
        head.insert("threads".into(), threads.len().into());
        if head.get("goroutines_are_cut") == Some(&json!(false)) {
            head.remove("goroutines_are_cut");
        }
        let goroutines = match head.remove("goroutines") {
            Some(Value::Array(all)) if !all.is_empty() => all,
            _ => Vec::new(),
        };
        if !goroutines.is_empty() {
            head.insert("goroutines".into(), goroutines.len().into());
        }
        let rest = threads.into_iter().chain(goroutines).skip(self.offset);
        Ok(page(head, "list", rest, self.offset, &limits))
    }
}

/// Source code.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// The file, as its compiler knew it; else the place is meant at which a thread is
    file: Option<String>,
    /// The line in this file
    line: Option<u64>,
    /// Without a file: where in the run, as for `backtrace`
    at: Option<Where>,
    /// Without a file: which thread (default: the one that stopped)
    thread: Option<u64>,
    /// Without a file: which frame of the thread (0, the innermost)
    frame: Option<u64>,
    /// Lines before and after (8)
    context: Option<u64>,
    /// Of this process
    pid: Option<Id>,
}

impl Question for Source {
    const NAME: &'static str = "source";
    const ABOUT: &'static str = "Source code around a line (file and line), or around where a thread is (at, thread, frame). Read from where the compiler found it: traces have no sources.";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        ensure!(
            self.file.is_some() == self.line.is_some(),
            "file and line go together"
        );
        let (subject, at) = subject(
            &sessions,
            self.trace.as_deref(),
            self.pid.as_ref(),
            self.at.as_ref(),
            &limits,
        )
        .await?;
        let question = json!({
            "ask": "source", "at": at, "file": self.file, "line": self.line, "thread": self.thread, "frame": self.frame,
            "context": self.context.unwrap_or(CONTEXT).min(MOST_CONTEXT),
        });
        warm::ask(&sessions, &subject, &question, &limits).await
    }
}

/// Values at a place.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Evaluate {
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// Expressions in the program's language, as gdb takes them
    expressions: Vec<String>,
    /// Where in the run, as for `backtrace`
    at: Option<Where>,
    /// Which thread (default: the one that stopped)
    thread: Option<u64>,
    /// Which frame of the thread (default: the nearest that knows the names)
    frame: Option<u64>,
    /// Of this process
    pid: Option<Id>,
}

impl Question for Evaluate {
    const NAME: &'static str = "evaluate";
    const ABOUT: &'static str = "Values of expressions at a place of the run: variables, members, array[3]@4, $rax, also calls of the program's functions (made in a copy that is thrown away).";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let n = self.expressions.len();
        ensure!(
            (1..=MOST_EXPRESSIONS).contains(&n),
            "from 1 to {MOST_EXPRESSIONS} expressions are wanted, not {n}"
        );
        let (subject, at) = subject(
            &sessions,
            self.trace.as_deref(),
            self.pid.as_ref(),
            self.at.as_ref(),
            &limits,
        )
        .await?;
        let question = json!({
            "ask": "evaluate", "at": at, "expressions": self.expressions, "thread": self.thread, "frame": self.frame,
        });
        warm::ask(&sessions, &subject, &question, &limits).await
    }
}

/// Who wrote something last.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LastWrite {
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// A variable, a member, or *(TYPE *) ADDRESS
    expression: String,
    /// From where to go back, as for `backtrace`; `here` goes on from the write that was found before
    at: Option<Where>,
    /// In whose frames names are looked up (default: those of the thread that stopped)
    thread: Option<u64>,
    /// In which frame (default: the nearest that knows the names)
    frame: Option<u64>,
    /// Of this process
    pid: Option<Id>,
}

impl Question for LastWrite {
    const NAME: &'static str = "last_write";
    const ABOUT: &'static str = "Go back from a place to the instruction that changed a variable or memory last: thread, stack, the value before and after, and the event number there.";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let (subject, at) = subject(
            &sessions,
            self.trace.as_deref(),
            self.pid.as_ref(),
            self.at.as_ref(),
            &limits,
        )
        .await?;
        let question = json!({
            "ask": "last_write", "at": at, "expression": self.expression, "thread": self.thread, "frame": self.frame,
            "frames": FRAMES,
        });
        warm::ask(&sessions, &subject, &question, &limits).await
    }
}
