//! `reprise ps`: the processes of a trace.

use crate::cli::PsArgs;
use crate::human;
use crate::processes::{Process, Processes};
use anyhow::Context;
use reprise_console::Output;
use reprise_trace::Catalog;
use serde_json::{json, Value};
use std::io::Write;

/// Most characters of a command line in the list.
const COMMAND_WIDTH: usize = 100;

/// `reprise ps`
pub fn run(args: &PsArgs) -> anyhow::Result<()> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let (Processes { list, .. }, damage) = Processes::of_trace(&dir)?;
    let text = if args.json {
        let all: Vec<Value> = list.iter().map(object).collect();
        serde_json::to_string_pretty(&all).context("can't write JSON")? + "\n"
    } else {
        let head = ["PID", "PARENT", "EVENTS", "END", "COMMAND"].map(String::from);
        let rows = std::iter::once(head.to_vec()).chain(list.iter().map(row));
        human::table(&rows.collect::<Vec<_>>(), &[0, 1])
    };
    let printed = Output.write_all(text.as_bytes());
    printed.context("can't print the list")?;
    match damage {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

fn end(p: &Process) -> String {
    match (p.wait_status, p.ended) {
        (Some(status), _) => human::end(status),
        (None, true) => "not known".into(),
        (None, false) => "-".into(),
    }
}

fn row(p: &Process) -> Vec<String> {
    let command = human::command_line(p.command.iter().map(String::as_str));
    let command = human::tame(&command, COMMAND_WIDTH);
    vec![
        p.pid.to_string(),
        p.parent.map_or_else(|| "-".into(), |p| p.to_string()),
        format!("{}-{}", p.first, p.last),
        end(p),
        // A process that never became another program is its parent's copy.
        match (p.execs, p.parent) {
            (0, Some(_)) => format!("({command})"),
            _ => command,
        },
    ]
}

fn object(p: &Process) -> Value {
    json!({
        "pid": p.pid,
        "parent": p.parent,
        "argv": p.command,
        "execs": p.execs,
        "first_event": p.first,
        "last_event": p.last,
        "ended": p.ended,
        "wait_status": p.wait_status,
        "exit": end(p),
    })
}
