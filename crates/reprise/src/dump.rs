//! `reprise dump`: the events of a trace, readable like strace.
//!
//! A line is the event's number, the thread (its slot and the id that the program knew), and what happened. A call inside which
//! other threads ran is two events, printed as strace does it: `<unfinished ...>`, `<... resumed>`.

mod call;
mod event;
mod narrator;
mod siginfo;
mod structures;
mod text;

use crate::cli::DumpArgs;
use crate::processes::{Process, Processes};
use anyhow::Context;
pub use call::name as call_name;
pub use event::command_of;
pub use narrator::{Line, Narrator};
use reprise_console::{say, Output};
use reprise_trace::{Catalog, Manifest, Reader, Tail};
use serde_json::Value;
use std::io::{BufWriter, Write};
use std::path::Path;
pub use text::quoted;

/// `reprise dump`
pub fn run(args: &DumpArgs) -> anyhow::Result<()> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let manifest = Manifest::read(&dir)?;
    let mut out = BufWriter::with_capacity(1 << 16, Output);
    let result = dump(&dir, &manifest, args, &mut out);
    // What is good of a damaged trace is printed before the error.
    out.flush().context("can't print the events")?;
    result
}

fn dump(
    dir: &Path,
    manifest: &Manifest,
    args: &DumpArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut reader = Reader::open(dir)?;
    let (from, to) = (args.from.unwrap_or(0), args.to.unwrap_or(u64::MAX));
    let mut narrator = Narrator::of(dir, manifest.pid, args.string_limit);
    let mut processes = Processes::new(manifest);
    // Where several processes had one id, an event tells which is meant.
    let only = match args.pid {
        Some(name) if name.event.is_some() => {
            let (all, _) = Processes::of_trace(dir)?;
            Some(all.list[all.named(name)?].first)
        }
        _ => None,
    };
    if follow_to(&mut reader, from, &mut narrator, &mut processes).is_err() {
        // Damage before the events that are wanted costs only what was to be learned from there.
        say!("the trace is damaged before event {from}: some threads and arguments are not known");
        reader.seek(from)?;
    }
    while reader.position() <= to {
        let Some(event) = reader.next()? else { break };
        let number = event.number;
        let event = event.parse()?;
        let line = narrator.tell(number, &event);
        let whose = processes.follow(number, &event).map(|i| &processes.list[i]);
        if let Some(name) = args.pid {
            let fits = |p: &Process| p.pid == name.pid && only.is_none_or(|first| first == p.first);
            if !whose.is_some_and(fits) {
                continue;
            }
        }
        let thread_fits = args.thread.is_none_or(|t| t == event.header.slot);
        if !thread_fits || !(args.kind.is_empty() || args.kind.contains(&event.kind)) {
            continue;
        }
        let printed = match args.json {
            true => writeln!(out, "{}", Value::Object(line.json())),
            false => writeln!(out, "{}", line.plain()),
        };
        printed.context("can't print the events")?;
    }
    if let Tail::Torn { events_good, .. } = reader.tail() {
        say!("the recording of this trace did not end in order; {events_good} events are good");
    }
    Ok(())
}

/// Reads the events before `from`, so that the narrator knows the threads and the calls they are in.
fn follow_to(
    reader: &mut Reader,
    from: u64,
    narrator: &mut Narrator,
    processes: &mut Processes,
) -> anyhow::Result<()> {
    while reader.position() < from {
        let Some(event) = reader.next()? else { break };
        let number = event.number;
        let event = event.parse()?;
        processes.follow(number, &event);
        narrator.follow(&event);
    }
    Ok(())
}
