//! The tool `summary`: what there is to know first of a recording, and what looks suspicious in it.

use super::child::{json, lines, words};
use super::limits::Limits;
use super::reading::{races, Id};
use super::sessions::Sessions;
use super::standing::{stacks, subject};
use super::tool::Question;
use anyhow::Result;
use reprise_abi::engine::{can, Engine};
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Events that are told of the end.
const EVENTS: u64 = 8;
/// Frames of each thread.
const FRAMES: u64 = 4;
/// Threads that are told.
const THREADS: usize = 12;
/// Processes that are told.
const PROCESSES: usize = 12;
/// So many descriptors of one kind that are never closed are taken for a leak.
const LEAK: u64 = 8;
/// What looking for races may take of the time.
const RACES: Duration = Duration::from_secs(10);

/// What there is to know first.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// A trace: a name, a directory or a packed file (default: the latest)
    trace: Option<String>,
    /// Threads of this process instead of the first one, or the one that crashed
    pid: Option<Id>,
}

impl Question for Summary {
    const NAME: &'static str = "summary";
    const ABOUT: &'static str = "What there is to know first of a recording: the command, how it ended, processes, threads with the tops of their stacks, the last events, and what is suspicious: a crash, a deadlock, \
threads that all wait, descriptors that are never closed, data races (where the recording can tell).";

    async fn answer(self, sessions: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let mut arguments = words([&"info", &"--json"]);
        arguments.extend(self.trace.iter().map(Into::into));
        let info = json(&arguments, &[0], &limits).await?;
        let path = info["path"].as_str().unwrap_or_default().to_string();
        let trace = self.trace.as_deref().unwrap_or(&path);
        let mut told = Map::new();
        for (name, from) in [
            ("trace", "name"),
            ("command", "argv"),
            ("end", "exit"),
            ("engine", "engine"),
            ("events", "events"),
            ("kept_from", "kept_from"),
            ("chaos_seed", "chaos_seed"),
        ] {
            if !info[from].is_null() {
                told.insert(name.into(), info[from].clone());
            }
        }
        let mut suspicious = Vec::new();
        if info["complete"] == false {
            suspicious.push(json!({"what": "the recording did not end in order"}));
        }
        if let Some(warnings) = info["warnings"].as_array() {
            suspicious.extend(
                warnings
                    .iter()
                    .map(|w| json!({"what": "warning", "text": w})),
            );
        }
        if info["processes"].as_u64().is_some_and(|n| n > 1) {
            let list = processes(trace, &limits).await?;
            suspicious.extend(crashes(&list));
            told.insert("processes".into(), short_processes(list));
        } else if info["exit"].as_str().is_some_and(is_crash) {
            suspicious.push(json!({"what": "crash", "how": info["exit"]}));
        }
        match self.threads(trace, &sessions, &limits).await {
            Ok(mut found) => {
                let threads = found["threads"].as_array_mut().map(std::mem::take);
                let mut threads = threads.unwrap_or_default();
                suspicious.extend(waits(&threads));
                let count = threads.len();
                threads.truncate(THREADS);
                told.insert("at".into(), found["event"].clone());
                told.insert("threads".into(), json!({"count": count, "list": threads}));
            }
            Err(why) => {
                let why = crate::exit::line_of(&why).unwrap_or_default();
                told.insert("threads".into(), json!({"not_known": why}));
            }
        }
        suspicious.extend(leaks(trace, &limits).await);
        suspicious.extend(raced(trace, &info, &limits).await);
        told.insert("suspicious".into(), suspicious.into());
        told.insert(
            "last_events".into(),
            last_events(trace, &info, &limits).await?.into(),
        );
        Ok(fit(told, &limits))
    }
}

impl Summary {
    async fn threads(&self, trace: &str, sessions: &Sessions, limits: &Limits) -> Result<Value> {
        let (subject, at) = subject(sessions, Some(trace), self.pid.as_ref(), None, limits).await?;
        let question = json!({"ask": "backtrace", "at": at, "frames": FRAMES});
        stacks(sessions, &subject, &question, limits).await
    }
}

/// Nobody crashes by SIGKILL: he is ended by somebody else, as by a limit of time.
fn is_crash(end: &str) -> bool {
    end.starts_with("killed") && !end.contains("SIGKILL")
}

async fn processes(trace: &str, limits: &Limits) -> Result<Vec<Value>> {
    let mut all = json(&words([&"ps", &"--json", &trace]), &[0], limits).await?;
    Ok(all.as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn crashes(processes: &[Value]) -> Vec<Value> {
    let crashed = processes
        .iter()
        .filter(|p| p["exit"].as_str().is_some_and(is_crash));
    let told = crashed.map(
        |p| json!({"what": "crash", "pid": p["pid"], "how": p["exit"], "event": p["last_event"]}),
    );
    told.collect()
}

fn short_processes(list: Vec<Value>) -> Value {
    let count = list.len();
    let short = list.into_iter().take(PROCESSES).map(|p| {
        json!({
            "pid": p["pid"], "argv": p["argv"], "exit": p["exit"], "first": p["first_event"], "last": p["last_event"],
        })
    });
    json!({"count": count, "list": short.collect::<Vec<_>>()})
}

/// Circles of threads that wait for each other, and threads that all wait.
fn waits(threads: &[Value]) -> Vec<Value> {
    let waits_for: BTreeMap<u64, (u64, &Value)> = threads
        .iter()
        .filter_map(|t| {
            let held_by = t["waits_for"]["held_by"].as_u64()?;
            Some((t["thread"].as_u64()?, (held_by, &t["waits_for"]["mutex"])))
        })
        .collect();
    let mut told = Vec::new();
    let mut seen = Vec::new();
    for first in waits_for.keys() {
        let (mut circle, mut now) = (Vec::new(), *first);
        while let Some((next, mutex)) = waits_for.get(&now).filter(|_| !seen.contains(&now)) {
            seen.push(now);
            circle.push(json!({"thread": now, "waits_for": mutex, "held_by": next}));
            now = *next;
        }
        // The way into a circle is no part of it.
        if let Some(begin) = circle.iter().position(|c| c["thread"] == now) {
            told.push(json!({"what": "deadlock", "threads": circle[begin..]}));
        }
    }
    let all_wait = threads.iter().all(|t| t["waits"] == true);
    if told.is_empty() && !threads.is_empty() && all_wait {
        told.push(json!({"what": "all threads wait for locks, conditions or other threads"}));
    }
    told
}

/// What was opened again and again, and never closed.
async fn leaks(trace: &str, limits: &Limits) -> Vec<Value> {
    let found = json(&words([&"mcp", &"--descriptors-of", &trace]), &[0], limits).await;
    let Ok(found) = found else { return Vec::new() };
    let processes = found.as_array().into_iter().flatten();
    let groups = processes.flat_map(|p| {
        let groups = p["what"].as_array().into_iter().flatten();
        groups.map(move |g| (p, g))
    });
    let leaked = groups.filter(|(_, g)| g["count"].as_u64().is_some_and(|n| n >= LEAK));
    let told = leaked.map(|(p, g)| {
        json!({
            "what": "descriptors that are never closed", "pid": p["pid"], "of": g["what"], "count": g["count"],
            "first": g["first"], "last": g["last"],
        })
    });
    told.collect()
}

/// Races, where the recording can tell of them in time.
async fn raced(trace: &str, info: &Value, limits: &Limits) -> Option<Value> {
    let engine = info["engine"].as_str().and_then(Engine::named)?;
    if !engine.can(can::FIND_RACES) {
        return None;
    }
    let end = limits.end.min(Instant::now() + RACES);
    let found = races(Some(trace), false, &Limits { end, ..*limits }).await;
    let found = found.ok()?;
    let first = found["list"].get(0)?;
    Some(json!({"what": "data race", "variable": first["variable"], "see": "races"}))
}

async fn last_events(trace: &str, info: &Value, limits: &Limits) -> Result<Vec<Value>> {
    let all = info["events"].as_u64().unwrap_or(0);
    let from = all.saturating_sub(EVENTS).to_string();
    let arguments = words([&"dump", &"--json", &"--from", &from, &trace]);
    let (found, _) = lines(&arguments, EVENTS as usize, |_| true, limits).await?;
    let short = found
        .into_iter()
        .map(|e| json!({"event": e["event"], "thread": e["tid"], "text": e["text"]}));
    Ok(short.collect())
}

/// Leaves out what can be asked of other tools, until it fits.
fn fit(mut told: Map<String, Value>, limits: &Limits) -> Value {
    let size = |told: &Map<String, Value>| Value::Object(told.clone()).to_string().len();
    for (name, tool) in [
        ("threads", "backtrace"),
        ("processes", "events"),
        ("last_events", "events"),
        ("suspicious", ""),
    ] {
        loop {
            if size(&told) <= limits.bytes {
                return told.into();
            }
            let whole = told.get_mut(name);
            let list = whole.and_then(|v| match v {
                Value::Object(o) => o.get_mut("list").and_then(Value::as_array_mut),
                other => other.as_array_mut(),
            });
            if list.is_none_or(|l| l.pop().is_none()) {
                break;
            }
            if !tool.is_empty() {
                told.insert(
                    "left_out".into(),
                    json!(format!("more by {tool}, or with more max_bytes")),
                );
            }
        }
    }
    told.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: u64, held_by: Option<u64>) -> Value {
        match held_by {
            Some(by) => {
                json!({"thread": id, "waits": true, "waits_for": {"mutex": "0x10", "held_by": by}})
            }
            None => json!({"thread": id}),
        }
    }

    #[test]
    fn a_circle_of_waits_is_a_deadlock_and_a_queue_is_none() {
        let queue = [thread(1, Some(2)), thread(2, Some(3)), thread(3, None)];
        assert!(waits(&queue).is_empty());
        let circle = [thread(1, Some(2)), thread(2, Some(3)), thread(3, Some(2))];
        let found = waits(&circle);
        assert_eq!(found.len(), 1);
        let threads: Vec<_> = found[0]["threads"]
            .as_array()
            .expect("threads")
            .iter()
            .collect();
        assert_eq!(threads.len(), 2);
        assert!(threads.iter().all(|t| t["thread"] != 1));
        assert_eq!(waits(&[thread(5, Some(5))]).len(), 1);
    }
}
