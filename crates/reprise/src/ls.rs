//! `reprise ls`: the traces there are.

use crate::cli::LsArgs;
use crate::human;
use anyhow::Context;
use reprise_console::Output;
use reprise_trace::{Catalog, Entry};
use serde_json::{json, Value};
use std::io::Write;
use std::path::Path;

/// Most characters of a command line in the list.
const COMMAND_WIDTH: usize = 60;

/// `reprise ls`
pub fn run(args: &LsArgs) -> anyhow::Result<()> {
    let catalog = Catalog::from_env()?;
    let entries = catalog.list()?;
    let latest = catalog.latest().ok();
    let is_latest = |e: &Entry| latest.as_deref() == Some(&e.path);
    let text = if args.json {
        let all: Vec<Value> = entries.iter().map(|e| object(e, is_latest(e))).collect();
        serde_json::to_string_pretty(&all).context("can't write JSON")? + "\n"
    } else if entries.is_empty() {
        nothing(catalog.root())
    } else {
        let rows = std::iter::once(heading()).chain(entries.iter().map(|e| row(e, is_latest(e))));
        human::table(&rows.collect::<Vec<_>>(), &[2, 3, 4])
    };
    let printed = Output.write_all(text.as_bytes());
    printed.context("can't print the list")
}

fn nothing(root: &Path) -> String {
    let root = root.display();
    format!("no traces in {root}; make one with `reprise record -- PROGRAM`\n")
}

fn heading() -> Vec<String> {
    [
        "NAME", "RECORDED", "DURATION", "EVENTS", "SIZE", "END", "COMMAND",
    ]
    .map(String::from)
    .into()
}

fn arguments(entry: &Entry) -> Vec<String> {
    let argv = entry.manifest.iter().flat_map(|m| &m.argv);
    argv.map(ToString::to_string).collect()
}

fn end(entry: &Entry) -> String {
    match entry.summary.as_ref().map(|s| s.wait_status) {
        Some(Some(status)) => human::end(status),
        Some(None) => "not known".into(),
        None => "incomplete".into(),
    }
}

fn row(entry: &Entry, latest: bool) -> Vec<String> {
    let mark = if latest { " *" } else { "" };
    let name = format!("{}{mark}", human::tame(&entry.name, 100));
    let size = human::size(entry.own_bytes + entry.shared_bytes);
    let Some(manifest) = &entry.manifest else {
        let why = entry.problem.as_deref().unwrap_or("can't be read");
        let why = human::tame(why, 200);
        return [&name, "", "", "", &size, "unreadable", &why]
            .map(String::from)
            .into();
    };
    let dash = || "-".to_string();
    let summary = entry.summary.as_ref();
    let words = arguments(entry);
    let command = human::command_line(words.iter().map(String::as_str));
    vec![
        name,
        human::moment(manifest.started),
        summary.map_or_else(dash, |s| human::duration(s.duration_ns)),
        summary.map_or_else(dash, |s| human::count(s.events)),
        size,
        end(entry),
        human::tame(&command, COMMAND_WIDTH),
    ]
}

fn object(entry: &Entry, latest: bool) -> Value {
    let (manifest, summary) = (entry.manifest.as_ref(), entry.summary.as_ref());
    json!({
        "name": entry.name,
        "path": entry.path.display().to_string(),
        "latest": latest,
        "program": manifest.map(|m| m.exe.to_string()),
        "argv": manifest.map(|_| arguments(entry)),
        "engine": manifest.map(|m| m.engine.clone()),
        "started": manifest.map(|m| m.started),
        "complete": entry.complete(),
        "duration_ns": summary.map(|s| s.duration_ns),
        "events": summary.map(|s| s.events),
        "size_on_disk": entry.own_bytes + entry.shared_bytes,
        "own_bytes": entry.own_bytes,
        "shared_bytes": entry.shared_bytes,
        "wait_status": summary.and_then(|s| s.wait_status),
        "exit": end(entry),
        "problem": entry.problem,
    })
}
