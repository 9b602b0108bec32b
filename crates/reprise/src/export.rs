//! `reprise export`: a trace for other tools to show.

mod trace_events;

use crate::cli::ExportArgs;
use crate::dump::Narrator;
use crate::human;
use crate::output;
use crate::timeline::Timeline;
use flate2::write::GzEncoder;
use flate2::Compression;
use reprise_console::{say, tell, Output};
use reprise_trace::{Catalog, Manifest, Reader, Tail};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use trace_events::TraceEvents;

/// What stands for standard output.
const STDOUT: &str = "-";
const BUFFER: usize = 1 << 18;

/// What was written.
struct Counts {
    events: u64,
    threads: usize,
    /// What made the trace end before its end, if something did.
    damage: Option<anyhow::Error>,
}

/// `reprise export`
pub fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let named = args.trace.as_deref().filter(|p| p.is_file());
    let file = args
        .output
        .clone()
        .unwrap_or_else(|| usual_name(named.unwrap_or(&dir)));
    let counts = match file.to_str() {
        Some(STDOUT) => export(&dir, args, BufWriter::with_capacity(BUFFER, Output))?,
        _ => output::make(&file, |handle| to_file(&dir, args, &file, handle))?,
    };
    if !args.quiet && file.to_str() != Some(STDOUT) {
        let size = std::fs::metadata(&file).map_or(0, |m| m.len());
        tell!(
            "{} events of {} threads written to {} ({}); open it at https://ui.perfetto.dev or chrome://tracing",
            human::count(counts.events),
            human::count(counts.threads as u64),
            file.display(),
            human::size(size)
        )?;
    }
    counts.damage.map_or(Ok(()), Err)
}

/// `NAME.json.gz` in the working directory.
fn usual_name(trace: &Path) -> PathBuf {
    let whole = trace.canonicalize().unwrap_or_else(|_| trace.into());
    let name = match whole.is_file() {
        true => whole.file_stem(),
        false => whole.file_name(),
    };
    let mut name = name.unwrap_or("trace".as_ref()).to_os_string();
    name.push(".json.gz");
    name.into()
}

/// Compressed, if the file's name says so.
fn to_file(dir: &Path, args: &ExportArgs, file: &Path, handle: File) -> anyhow::Result<Counts> {
    let out = BufWriter::with_capacity(BUFFER, handle);
    if file.extension().is_none_or(|e| e != "gz") {
        return export(dir, args, out);
    }
    let mut packer = GzEncoder::new(out, Compression::fast());
    // What it is given in small pieces it packs at a tenth of the speed.
    let counts = export(dir, args, BufWriter::with_capacity(BUFFER, &mut packer))?;
    packer.finish()?.flush()?;
    Ok(counts)
}

/// Reads the trace once and writes as it goes: what is kept in memory does not grow with the events.
fn export(dir: &Path, args: &ExportArgs, out: impl Write) -> anyhow::Result<Counts> {
    let manifest = Manifest::read(dir)?;
    let mut reader = Reader::open(dir)?;
    let mut narrator = Narrator::of(dir, manifest.pid, args.string_limit);
    let mut timeline = Timeline::new(&manifest);
    let mut page = TraceEvents::begin(out, &manifest)?;
    let mut damage = None;
    loop {
        let event = match reader.next() {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(e) => {
                damage = Some(e.into());
                break;
            }
        };
        let number = event.number;
        let event = event.parse()?;
        let line = narrator.tell(number, &event);
        let step = timeline.follow(number, &event);
        page.event(number, &event, &line, &step, &timeline)?;
    }
    let torn = match reader.tail() {
        Tail::Complete => None,
        Tail::Torn { events_good, .. } => Some(format!(
            "the recording of this trace did not end in order; {events_good} events are good"
        )),
        Tail::Damaged { why, .. } => Some(format!("the trace is damaged: {why}")),
    };
    let events = reader.position();
    page.end(events, torn.as_deref(), &timeline)?;
    if let (Some(note), None) = (torn, &damage) {
        say!("{note}");
    }
    Ok(Counts {
        events,
        threads: timeline.threads.len(),
        damage,
    })
}
