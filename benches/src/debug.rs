//! The rows of the debugger: how long gdb waits for what goes back, and what memory that takes.
//!
//! One program is recorded (`benches/guests/debugging.c`), and one session of gdb, driven by `debug.py`, times all of it from the program's end.

use crate::figure::{Figure, Row, Runs, Side, Unit};
use crate::program::Program;
use crate::reprise::own_failure;
use crate::rows::Bench;
use anyhow::{bail, Context, Result};
use std::collections::HashMap;
use std::fs::{read_to_string, write};

/// The name of the group.
pub const NAME: &str = "debug";
/// Seconds of processor time that the recorded program uses, in a whole run and in a quick one.
const SECONDS: [u32; 2] = [60, 6];
/// To start at the end may take so many times a replay.
const END_BAR: f64 = 1.2;
/// Milliseconds of the first step back at a place, and of one after it.
const STEP_BARS: [f64; 2] = [1000.0, 50.0];
/// Going back a second at the end, against doing so near the beginning.
const BACK_BAR: f64 = 2.0;
/// To the previous hit, in the time that two intervals between checkpoints take to be replayed.
const HIT_BAR: f64 = 1.0;
/// Milliseconds of 10,000 hits of a breakpoint whose condition does not hold.
const FALSE_HITS_BAR: f64 = 50.0;
/// Memory of all checkpoints, against the program's.
const MEMORY_BAR: f64 = 2.0;

const SCRIPT: &str = include_str!("debug.py");

/// All rows of the group.
///
/// # Errors
/// When they can't be measured.
pub fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let guest = bench.compiled("debugging", "-g -O2")?;
    let seconds = SECONDS[usize::from(bench.rounds == 1)].to_string();
    let mut program = Program::new([&guest]);
    program.argv.push(seconds.clone().into());
    let recorded = bench
        .reprise
        .recording(&program)
        .run(&bench.dir, "record")?;
    own_failure(&recorded)?;
    let resident: f64 = read_to_string(&recorded.stdout)?.trim().parse()?;
    let replay = bench.reprise.replay(&bench.dir)?.wall.as_secs_f64();

    let script = bench.dir.join("debug.py");
    write(&script, SCRIPT)?;
    let session = |more: &[&str]| {
        let words = ["replay", "-d", "--at", "end", "--", "-nx", "-batch"];
        let words = words.iter().chain(more).copied();
        bench.reprise.command(words)
    };
    // What gdb and the reading of symbols take is no part of the way to the end; it takes as long at the start.
    let at_start = bench
        .reprise
        .command(["replay", "-d", "--", "-nx", "-batch"]);
    let at_start = at_start.run(&bench.dir, "start")?.wall.as_secs_f64();
    let at_end = session(&[]).run(&bench.dir, "end")?.wall.as_secs_f64();
    let times = bench.dir.join("times");
    let shown = script.display().to_string();
    let timed = session(&["-x", &shown])
        .with_env("REPRISE_TIMES", &times)
        .with_env("REPRISE_SECONDS", &seconds);
    let sample = timed.run(&bench.dir, "session")?;
    own_failure(&sample)?;
    let told = read_to_string(&times).context("gdb timed nothing (is it one with python?)")?;
    let told: HashMap<&str, f64> = told
        .lines()
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    bench.reprise.forget()?;

    let of = |name: &str| {
        let value = told.get(name).copied();
        value.with_context(|| format!("gdb did not come to {name}: {}", sample.stderr.trim()))
    };
    if of("hit")? as i64 != 10_000 {
        bail!("the condition held at another hit");
    }
    let interval = replay / of("checkpoints")?;
    let row = |title: &str, value, unit, bar| Row {
        name: NAME.into(),
        title: title.into(),
        commands: vec![program.shown()],
        figures: vec![Figure {
            side: Side::Replay,
            value,
            unit,
            bar: Some(bar),
        }],
        ..Row::default()
    };
    let mut rows = vec![
        row(
            "start at the end, over a replay",
            (at_end - at_start) / replay,
            Unit::Times,
            END_BAR,
        ),
        row(
            "reverse-stepi, the first at a place",
            of("step-back-first")? * 1e3,
            Unit::Milliseconds,
            STEP_BARS[0],
        ),
        row(
            "reverse-stepi after it",
            of("step-back-again")? * 1e3,
            Unit::Milliseconds,
            STEP_BARS[1],
        ),
        row(
            "going back a second at the end, over doing so at second 5",
            of("back-at-the-end")? / of("back-early")?,
            Unit::Times,
            BACK_BAR,
        ),
        row(
            "reverse-continue to the previous hit, over replaying two intervals between checkpoints",
            of("to-the-hit-before")? / (2.0 * interval),
            Unit::Times,
            HIT_BAR,
        ),
        row(
            "10,000 hits of a breakpoint whose condition does not hold",
            of("false-hits")? * 1e3,
            Unit::Milliseconds,
            FALSE_HITS_BAR,
        ),
        row(
            "memory of all checkpoints, over the program's",
            of("memory")? / (resident * 1024.0),
            Unit::Times,
            MEMORY_BAR,
        ),
    ];
    rows[0].runs.push(Runs {
        name: "replay".into(),
        values: vec![replay],
        unit: "s".into(),
        processor: Vec::new(),
    });
    rows[0].notes.push(format!(
        "{seconds} s of processor time of two threads; {} checkpoints at the end",
        of("checkpoints")?
    ));
    rows[3].notes.push(format!(
        "{:.0} ms at the end, {:.0} ms at second 5",
        of("back-at-the-end")? * 1e3,
        of("back-early")? * 1e3
    ));
    rows[4].notes.push(format!(
        "{:.0} ms; an interval is {:.0} ms",
        of("to-the-hit-before")? * 1e3,
        interval * 1e3
    ));
    Ok(rows)
}
