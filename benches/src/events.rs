//! What one event costs: schemes that give it its place in an order, side by side (Castor, figure 2), and what a recording adds to it.
//!
//! The schemes are those of `benches/guests/events.c`, run natively. What is recorded are an addition in one step, and a lock of a mutex with
//! its unlock, in unmodified code.

use crate::figure::{median, Figure, Row, Runs, Side, Unit};
use crate::program::{processors, Program};
use crate::reprise::own_failure;
use crate::rows::Bench;
use anyhow::{bail, Context, Result};
use std::fmt::Write as _;
use std::path::Path;

/// The name of the group.
pub const NAME: &str = "events";
/// Events of each thread in a run.
const EVENTS: u64 = 3_000_000;
/// What an event may cost more while it is recorded, private and contended, in nanoseconds.
const PRIVATE_BAR: f64 = 20.0;
const CONTENDED_BAR: f64 = 60.0;
/// Threads of the table's columns, as far as there are processors.
const THREADS: [usize; 3] = [1, 2, 4];

/// The schemes, and what each is.
const SCHEMES: [(&str, &str); 5] = [
    ("plain", "the event alone, without a log"),
    ("lock", "one lock for everything"),
    ("counter", "one atomic counter"),
    ("tsc", "fenced time stamp counter"),
    ("shard", "sharded sequence"),
];

/// All rows of the group.
///
/// # Errors
/// When they can't be measured.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let guest = bench.compiled("events", "-O2")?;
    let threads: Vec<usize> = THREADS
        .into_iter()
        .filter(|n| *n <= processors(0).len())
        .collect();
    let most = threads.last().copied().unwrap_or(1);
    let mut rows = vec![schemes(bench, &guest, &threads)?];
    for (name, what, kind, n, bar) in [
        (
            "plain",
            "an atomic addition",
            "private",
            1,
            Some(PRIVATE_BAR),
        ),
        (
            "plain",
            "an atomic addition",
            "contended",
            most,
            Some(CONTENDED_BAR),
        ),
        ("mutex", "a mutex locked and unlocked", "private", 1, None),
        (
            "mutex",
            "a mutex locked and unlocked",
            "contended",
            most,
            None,
        ),
    ] {
        let title = format!("{what}, {kind}, {n} threads: recorded, over native");
        rows.push(recorded(
            bench,
            &command(&guest, name, kind, n),
            title,
            bar,
        )?);
    }
    Ok(rows)
}

fn command(guest: &Path, scheme: &str, kind: &str, threads: usize) -> Program {
    let mut program = Program::new([guest]);
    let (threads, events) = (threads.to_string(), EVENTS.to_string());
    let arguments = [scheme, kind, &threads, &events];
    program.argv.extend(arguments.map(Into::into));
    program
}

/// Nanoseconds of an event, as a run tells them.
fn told(bench: &Bench, program: &Program) -> Result<f64> {
    let sample = program.run(&bench.dir, "event")?;
    own_failure(&sample)?;
    if !sample.status.success() {
        bail!("{} ended with {}", program.shown(), sample.status);
    }
    let text = std::fs::read_to_string(&sample.stdout)?;
    text.trim().parse().context("no number")
}

/// The table of schemes.
fn schemes(bench: &Bench, guest: &Path, threads: &[usize]) -> Result<Row> {
    let columns: Vec<(usize, &str)> = threads
        .iter()
        .flat_map(|n| [(*n, "private"), (*n, "contended")])
        .filter(|(n, kind)| *n > 1 || *kind == "private")
        .collect();
    let mut table = String::from("| nanoseconds an event |");
    for (n, kind) in &columns {
        let _ = write!(table, " {n} threads, {kind} |");
    }
    table.push_str("\n|---|");
    table.push_str(&"---|".repeat(columns.len()));
    table.push('\n');
    for (scheme, what) in SCHEMES {
        let _ = write!(table, "| {what} |");
        for (n, kind) in &columns {
            let program = command(guest, scheme, kind, *n);
            let runs = (0..bench.rounds).map(|_| told(bench, &program));
            let _ = write!(
                table,
                " {:.1} |",
                median(&runs.collect::<Result<Vec<_>>>()?)
            );
        }
        table.push('\n');
    }
    Ok(Row {
        name: NAME.into(),
        title: "one event: schemes of ordering, native".into(),
        commands: vec![command(guest, "SCHEME", "private|contended", 1).shown()],
        table,
        ..Row::default()
    })
}

/// What a recording adds to an event.
fn recorded(bench: &Bench, program: &Program, title: String, bar: Option<f64>) -> Result<Row> {
    let recording = bench.reprise.recording(program);
    let (mut native, mut record) = (Vec::new(), Vec::new());
    let mut bytes = 0.0;
    for _ in 0..bench.rounds {
        native.push(told(bench, program)?);
        record.push(told(bench, &recording)?);
        bytes = bench.reprise.size()?.events as f64 / EVENTS as f64;
        bench.reprise.forget()?;
    }
    let runs = |name: &'static str, values: &Vec<f64>| Runs {
        name: name.into(),
        values: values.clone(),
        unit: "ns".into(),
        processor: Vec::new(),
    };
    Ok(Row {
        name: NAME.into(),
        title,
        commands: vec![program.shown()],
        figures: vec![Figure {
            side: Side::Record,
            value: median(&record) - median(&native),
            unit: Unit::Nanoseconds,
            bar,
        }],
        runs: vec![runs("native", &native), runs("record", &record)],
        notes: vec![format!(
            "{bytes:.3} bytes of compressed log for each event of a thread"
        )],
        ..Row::default()
    })
}
