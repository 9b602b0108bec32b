//! `reprise info`: what is in a trace, without replaying it.

use crate::cli::InfoArgs;
use crate::human;
use anyhow::Context;
use reprise_abi::event::{EndReason, Kind};
use reprise_console::Output;
use reprise_launch::features;
use reprise_trace::manifest::InputFile;
use reprise_trace::{
    beginning, Catalog, Census, Checkpoints, Manifest, Reader, Redaction, Summary, Tail,
    Uncaptured, FILES_DIR,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// All that is said of a trace. The names are those of `--json`, which others may rely on.
#[derive(Serialize, Debug)]
pub struct Info {
    name: String,
    path: String,
    /// Who has signed the packed trace, in words.
    signed: Option<String>,
    /// What was taken out of it by `pack --redact`.
    redacted: Option<Redaction>,
    program: String,
    argv: Vec<String>,
    cwd: String,
    engine: String,
    /// When the recording began, in nanoseconds of Unix time.
    started: u64,
    /// Whether the recording ended in order and nothing is damaged.
    complete: bool,
    events: u64,
    /// Of a run of which only the last stretch was kept: the event with which that begins.
    kept_from: Option<u64>,
    /// Checkpoints on disk, and the bytes of their file.
    checkpoints: usize,
    checkpoint_bytes: u64,
    events_by_kind: BTreeMap<String, u64>,
    bytes_raw: u64,
    bytes_compressed: u64,
    size_on_disk: u64,
    /// None when the recording did not end in order.
    duration_ns: Option<u64>,
    counters: BTreeMap<String, u64>,
    /// As of wait(2); None when it is not known.
    wait_status: Option<i32>,
    /// How the program ended, in words.
    exit: String,
    warnings: Vec<String>,
    /// Processes that the kernel told of and that the trace does not have, or not to their end.
    uncaptured: Vec<Uncaptured>,
    /// Files in which cpuid may have answered as the processor does.
    native_cpuid: Vec<String>,
    /// Files to whose copies events refer.
    inputs: Vec<InputFile>,
    chaos_seed: Option<u64>,
    /// Threads that ran, all in all.
    threads: u64,
    /// Processes that ran, all in all.
    processes: u64,
    format_version: u32,
    reprise_version: String,
    machine: String,
    /// What the program was shown of the processor: a machine that replays it must have that.
    cpu_features: Vec<&'static str>,
    /// The level of x86-64 that these make up, 1 to 4.
    cpu_level: u32,
    /// The program's environment, when that is asked for: `NAME=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<Vec<String>>,
}

/// `reprise info`
pub fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let catalog = Catalog::from_env()?;
    let dir = catalog.resolve(args.trace.as_deref())?;
    let mut info = gather(&dir)?;
    if args.env {
        let env = Manifest::read(&dir)?.env;
        info.env = Some(env.iter().map(ToString::to_string).collect());
    }
    // A packed trace is unpacked where nobody looks for it: it keeps the name that the user gave.
    if let Some(file) = args.trace.as_deref().filter(|p| p.is_file()) {
        info.name = base_name(file);
        info.path = file.display().to_string();
        info.signed = catalog.signer(file)?.map(|signer| signer.to_string());
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&info).context("can't write JSON")? + "\n",
        false => info.table(),
    };
    let printed = Output.write_all(text.as_bytes());
    printed.context("can't print what is in the trace")
}

/// Reads what the trace in `dir` says of itself; its events only when its summary is missing.
pub fn gather(dir: &Path) -> anyhow::Result<Info> {
    let manifest = Manifest::read(dir)?;
    let summary = Summary::read(dir)?;
    let mut warnings = Vec::new();
    let complete = summary.is_some();
    let summary = match summary {
        Some(summary) => summary,
        None => {
            let census = Census::with_children(manifest.pid, &manifest.children);
            count_events(dir, census, &mut warnings)?
        }
    };
    let reader = Reader::open(dir);
    let checkpoints = reader.and_then(|reader| Checkpoints::open(dir, &reader));
    let checkpoints = checkpoints.unwrap_or_else(|e| {
        warnings.push(e.to_string());
        None
    });
    let argv: Vec<String> = manifest.argv.iter().map(ToString::to_string).collect();
    warnings.extend(summary.warnings);
    Ok(Info {
        name: base_name(dir),
        path: std::path::absolute(dir)
            .unwrap_or_else(|_| dir.into())
            .display()
            .to_string(),
        signed: None,
        redacted: manifest.redacted,
        program: manifest.exe.to_string(),
        argv,
        cwd: manifest.cwd.to_string(),
        engine: human::tame(&manifest.engine, 40),
        started: manifest.started,
        complete,
        events: summary.events,
        checkpoints: checkpoints.as_ref().map_or(0, |c| c.list().len()),
        checkpoint_bytes: checkpoints.map_or(0, |c| c.bytes()),
        kept_from: beginning::open(dir)?.map(|(_, moment)| moment.event),
        threads: 1
            + kind_count(&summary.events_by_kind, Kind::ThreadStart)
            + kind_count(&summary.events_by_kind, Kind::ProcessStart),
        processes: 1 + kind_count(&summary.events_by_kind, Kind::ProcessStart),
        events_by_kind: summary.events_by_kind,
        bytes_raw: summary.bytes_raw,
        bytes_compressed: summary.bytes_compressed,
        size_on_disk: size_on_disk(dir),
        duration_ns: complete.then_some(summary.duration_ns),
        counters: summary.counters,
        wait_status: summary.wait_status,
        exit: summary
            .wait_status
            .map_or_else(|| not_known(&summary.end_reason), human::end),
        warnings,
        uncaptured: summary.uncaptured,
        native_cpuid: summary.native_cpuid,
        inputs: summary.inputs,
        chaos_seed: manifest.chaos_seed,
        cpu_features: features::present(&manifest.start.cpuid),
        cpu_level: features::level(&manifest.start.cpuid),
        env: None,
        format_version: manifest.format_version,
        reprise_version: human::tame(&manifest.reprise_version, 80),
        machine: format!(
            "{}, {} CPUs, Linux {}",
            human::tame(&manifest.machine.cpu, 80),
            manifest.machine.cpus,
            human::tame(&manifest.machine.kernel, 80)
        ),
    })
}

fn not_known(reason: &str) -> String {
    match reason {
        "" => "not known".into(),
        reason => format!("not known ({reason})"),
    }
}

fn base_name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.into());
    whole
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn kind_count(kinds: &BTreeMap<String, u64>, kind: Kind) -> u64 {
    kinds.get(kind.name()).copied().unwrap_or(0)
}

/// What the summary would say, as far as the events tell: for a recording that was killed, or still runs.
fn count_events(
    dir: &Path,
    mut census: Census,
    warnings: &mut Vec<String>,
) -> anyhow::Result<Summary> {
    let mut reader = Reader::open(dir)?;
    let mut stats = reader.stats();
    (stats.events, stats.bytes_raw) = (0, 0);
    let mut wait_status = None;
    loop {
        let event = match reader.next() {
            Ok(Some(event)) => event.parse()?,
            Ok(None) => break,
            Err(damage) => {
                warnings.push(damage.to_string());
                break;
            }
        };
        census.follow(&event);
        stats.events += 1;
        stats.bytes_raw += u64::from(event.header.len);
        stats.by_kind[event.kind as usize] += 1;
        if event.kind == Kind::End && event.header.detail == EndReason::Ended as u32 {
            wait_status = Some(event.header.value as i32);
        }
    }
    if matches!(reader.tail(), Tail::Torn { .. }) {
        warnings.push(format!(
            "the recording did not end in order; its {} events are good",
            stats.events
        ));
    }
    let counted = Summary::of_stream(&stats);
    Ok(Summary {
        wait_status,
        end_reason: "the recording did not end in order".into(),
        uncaptured: census.missing(),
        ..counted
    })
}

/// Bytes that the trace takes on disk, contents shared with other traces included.
pub fn size_on_disk(dir: &Path) -> u64 {
    let of = |dir: &Path| -> u64 {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let sizes = entries.filter_map(|e| e.metadata().ok().map(|m| m.blocks() * 512));
        sizes.sum()
    };
    of(dir) + of(&dir.join(FILES_DIR))
}

impl Info {
    /// For people.
    fn table(&self) -> String {
        let words = self.argv.iter().map(String::as_str);
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut row = |name: &str, value: String| rows.push(vec![name.into(), value]);
        row("trace", self.path.clone());
        if let Some(signed) = &self.signed {
            row("", signed.clone());
        }
        if let Some(redacted) = self.redacted {
            let (values, places) = (redacted.values, redacted.places);
            let (values, places) = (human::count(values), human::count(places));
            row("redacted", format!("{values} values, in {places} places"));
        }
        row("command", human::tame(&human::command_line(words), 400));
        row("program", human::tame(&self.program, 400));
        row("directory", human::tame(&self.cwd, 400));
        row("recorded", human::moment(self.started));
        row(
            "with",
            format!("reprise {} on {}", self.reprise_version, self.machine),
        );
        row(
            "processor",
            format!(
                "x86-64-v{}: {}",
                self.cpu_level,
                human::tame(&self.cpu_features.join(" "), 600)
            ),
        );
        let chaos = self
            .chaos_seed
            .map_or(String::new(), |s| format!(", chaos seed {s}"));
        row("engine", format!("{}{chaos}", self.engine));
        row("end", self.exit.clone());
        if let Some(ns) = self.duration_ns {
            row("duration", human::duration(ns));
        }
        row("processes", human::count(self.processes));
        row("threads", human::count(self.threads));
        let complete = if self.complete { "" } else { ", incomplete" };
        row(
            "events",
            format!(
                "{} in {}, {} compressed{complete}",
                human::count(self.events),
                human::size(self.bytes_raw),
                human::size(self.bytes_compressed)
            ),
        );
        if self.checkpoints > 0 {
            let n = human::count(self.checkpoints as u64);
            row(
                "checkpoints",
                format!("{n}, {}", human::size(self.checkpoint_bytes)),
            );
        }
        if let Some(first) = self.kept_from {
            row(
                "kept",
                format!("the last stretch, from event {} on", human::count(first)),
            );
        }
        row("on disk", human::size(self.size_on_disk));
        let mut text = human::table(&rows, &[]);
        for (title, list) in [
            ("events by kind", &self.events_by_kind),
            ("counters", &self.counters),
        ] {
            let used = list.iter().filter(|(_, n)| **n > 0);
            let rows: Vec<Vec<String>> = used
                .map(|(name, n)| vec![format!("  {name}"), human::count(*n)])
                .collect();
            if !rows.is_empty() {
                text.push_str(&format!("\n{title}\n{}", human::table(&rows, &[1])));
            }
        }
        for input in &self.inputs {
            let kept = match input.bytes_kept {
                0 => "which was there already".into(),
                bytes => human::size(bytes),
            };
            text.push_str(&format!(
                "\ninput {}: {}: {} reads of {} refer to a copy ({kept})\n",
                input.number,
                human::tame(&input.name.to_string(), 400),
                human::count(input.references),
                human::size(input.bytes_referred),
            ));
        }
        for file in &self.native_cpuid {
            text.push_str(&format!(
                "\nnative cpuid: {}: what may be one there was not replaced\n",
                human::tame(file, 400)
            ));
        }
        for u in &self.uncaptured {
            let name = u.name.as_ref().map_or(String::new(), |n| format!(" ({n})"));
            let line = format!("{}{name}: {}", u.pid, u.why);
            text.push_str(&format!("\nuncaptured: {}\n", human::tame(&line, 200)));
        }
        if let Some(env) = &self.env {
            text.push_str(
                "\nenvironment (its memory, which the trace has as well, has all values)\n",
            );
            for entry in env {
                text.push_str(&format!("  {}\n", human::tame(entry, 400)));
            }
        }
        for warning in &self.warnings {
            text.push_str(&format!("\nwarning: {}\n", crate::exit::one_line(warning)));
        }
        text
    }
}
