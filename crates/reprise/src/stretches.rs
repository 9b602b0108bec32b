//! `reprise stretches`: stretches of a run that the program itself has named, by `include/reprise.h`.

use crate::cli::PsArgs;
use crate::human;
use crate::timeline::Timeline;
use anyhow::{bail, Context, Result};
use reprise_abi::event::{Event, Kind, Tag};
use reprise_abi::prctl::{REPRISE_STRETCH_BEGINS, REPRISE_STRETCH_ENDS};
use reprise_abi::syscalls::nr;
use reprise_console::Output;
use reprise_trace::{Catalog, Manifest, Reader};
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

/// Most stretches of a trace that are told of.
const MOST: usize = 1 << 20;
/// Most characters of a name in the list.
const NAME_WIDTH: usize = 100;

/// A stretch. The names are those of `--json`.
#[derive(Serialize, Debug)]
struct Stretch {
    name: String,
    /// The thread, as itself knew it; none of which the trace does not have the beginning.
    tid: Option<i64>,
    pid: Option<i64>,
    /// The call by which it begins.
    first_event: u64,
    /// That by which it ends; none when it is open at the end.
    last_event: Option<u64>,
}

/// What a thread says by an event.
enum Mark {
    Begins(String),
    Ends,
}

/// `reprise stretches`
pub fn run(args: &PsArgs) -> Result<()> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let all = stretches(&dir)?;
    let text = if args.json {
        serde_json::to_string_pretty(&all).context("can't write JSON")? + "\n"
    } else {
        let head = ["THREAD", "EVENTS", "NAME"].map(String::from);
        let rows = std::iter::once(head.to_vec()).chain(all.iter().map(row));
        human::table(&rows.collect::<Vec<_>>(), &[0])
    };
    let printed = Output.write_all(text.as_bytes());
    printed.context("can't print the list")
}

fn row(s: &Stretch) -> Vec<String> {
    let last = s.last_event.map_or_else(String::new, |e| e.to_string());
    vec![
        s.tid.map_or_else(|| "-".into(), |t| t.to_string()),
        format!("{}-{last}", s.first_event),
        human::tame(&s.name, NAME_WIDTH),
    ]
}

/// The event with which the first stretch with this name begins.
///
/// # Errors
/// When there is none.
pub fn beginning_of(name: &str, dir: &Path) -> Result<u64> {
    let all = stretches(dir)?;
    match all.iter().find(|s| s.name == name) {
        Some(stretch) => Ok(stretch.first_event),
        None => bail!("the program has named no stretch `{name}`; see `reprise stretches` for those that it has"),
    }
}

fn stretches(dir: &Path) -> Result<Vec<Stretch>> {
    let manifest = Manifest::read(dir)?;
    let mut timeline = Timeline::new(&manifest);
    let mut reader = Reader::open(dir)?;
    let mut all: Vec<Stretch> = Vec::new();
    // Of each slot, those that are open.
    let mut open: HashMap<u16, Vec<usize>> = HashMap::new();
    while let Some(e) = reader.next()? {
        let event = e.parse()?;
        let step = timeline.follow(e.number, &event);
        let slot = event.header.slot;
        match mark(&event) {
            Some(Mark::Begins(name)) if all.len() < MOST => {
                let thread = step.thread.map(|i| &timeline.threads[i]);
                open.entry(slot).or_default().push(all.len());
                all.push(Stretch {
                    name,
                    tid: thread.map(|t| t.tid),
                    pid: thread.map(|t| timeline.processes.list[t.process].pid),
                    first_event: e.number,
                    last_event: None,
                });
            }
            Some(Mark::Ends) => {
                if let Some(i) = open.get_mut(&slot).and_then(Vec::pop) {
                    all[i].last_event = Some(e.number);
                }
            }
            _ if matches!(event.kind, Kind::ThreadStart | Kind::ProcessStart) => {
                open.remove(&slot);
            }
            _ => {}
        }
    }
    Ok(all)
}

fn mark(e: &Event) -> Option<Mark> {
    let is_call = matches!(e.kind, Kind::Syscall) && u64::from(e.header.detail) == nr::PRCTL;
    match e.arg(0) {
        REPRISE_STRETCH_BEGINS if is_call => {
            let name = e.sections().find(|s| s.tag == Tag::Path)?;
            Some(Mark::Begins(String::from_utf8_lossy(name.bytes).into()))
        }
        REPRISE_STRETCH_ENDS if is_call => Some(Mark::Ends),
        _ => None,
    }
}
