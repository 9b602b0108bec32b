//! `cargo bench -p reprise-bench`: measures rows and prints their tables.
//!
//! Options, after `--`: `--quick` (one round a row), `--only NAME` (may be given more than once), `--list`, `--engine NAME` (the engine that
//! records), `--threads N` (of the kernels), `--bless` (keeps what was measured, and makes `docs/BENCHMARKS.md` anew), `--busy` (measures on a machine that
//! has other things to do, which is refused otherwise; nothing of that is kept), `--render` (makes the document anew from what is kept). `REPRISE=PATH` judges another build.
//!
//! A whole run has the rows of [`ALL`], and those of `--engine order`: `--only order`, `--only order/NAME` and `--only events` measure them alone.
//! `--only debug` measures the debugger alone, `--only det` and `--only det/NAME` the rows of `reprise run`.
//! `--only kernels` measures the kernels with any engine, at a smaller size, and `--only kernels/NAME` one of them.
#![allow(clippy::print_stdout)]

use anyhow::{bail, Context, Result};
use reprise_bench::figure::Row;
use reprise_bench::kept::{Kept, Measured, DOCUMENT};
use reprise_bench::reprise::Reprise;
use reprise_bench::rows::{Bench, ALL, ROUNDS};
use reprise_bench::{debug, det, events, kernels, machine, order, quiet, report};
use std::collections::BTreeMap;

/// What was asked for.
#[derive(Default)]
struct Options {
    bench: bool,
    quick: bool,
    only: Vec<String>,
    list: bool,
    bless: bool,
    busy: bool,
    render: bool,
    engine: Option<String>,
    threads: Option<usize>,
}

impl Options {
    /// Whether a row is to be measured: everything was asked for, or it by its name, or its group.
    fn wants(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or(name, |(group, _)| group);
        self.only.is_empty() || self.only.iter().any(|o| o == name || o == group)
    }

    /// Why the figures of such a run can't be kept.
    fn not_kept(&self) -> Option<&'static str> {
        let choices = [
            (self.quick, "one round is too little"),
            (self.busy, "figures of a busy machine are wrong"),
            (
                self.engine.is_some() || self.threads.is_some(),
                "the document has no room for a chosen --engine or --threads",
            ),
        ];
        choices.iter().find(|(so, _)| *so).map(|(_, why)| *why)
    }
}

/// Where a row is measured, and how.
enum Place {
    Serial(&'static reprise_bench::rows::Entry),
    Kernel(&'static str),
    Order(&'static str),
    Events,
    Debugger,
    Det(&'static str),
}

/// All that can be measured, by name, in the order of the document.
fn places() -> Vec<(String, Place)> {
    let of = |group: &str, name: &str| format!("{group}/{name}");
    let mut all = Vec::new();
    all.extend(ALL.iter().map(|e| (e.name.to_string(), Place::Serial(e))));
    all.extend(kernels::names().map(|k| (of(kernels::NAME, k), Place::Kernel(k))));
    all.extend(order::names().map(|r| (of(order::NAME, r), Place::Order(r))));
    all.push((events::NAME.into(), Place::Events));
    all.push((debug::NAME.into(), Place::Debugger));
    all.extend(det::names().map(|r| (of(det::NAME, r), Place::Det(r))));
    all
}

fn options() -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(a) = arguments.next() {
        match a.as_str() {
            "--quick" => options.quick = true,
            "--list" => options.list = true,
            "--bless" => options.bless = true,
            "--busy" => options.busy = true,
            "--render" => options.render = true,
            // `cargo bench` says so to every bench; `cargo test --all-targets`, which runs them too, doesn't.
            "--bench" => options.bench = true,
            "--only" => options.only.extend(arguments.next()),
            "--engine" => options.engine = arguments.next(),
            "--threads" => {
                let number = arguments.next().context("--threads needs a number")?;
                options.threads = Some(number.parse().context("--threads")?);
            }
            _ => bail!(
                "unknown option {a}; there are --quick, --only NAME, --engine NAME, --threads N, --list, --bless, --busy and --render"
            ),
        }
    }
    for name in &options.only {
        let is_group = |known: &str| known.split_once('/').is_some_and(|(g, _)| g == name);
        if !places().iter().any(|(n, _)| n == name || is_group(n)) {
            bail!("no row {name}; --list names them");
        }
    }
    if let (true, Some(why)) = (options.bless, options.not_kept()) {
        bail!("--bless: {why}");
    }
    Ok(options)
}

/// Prints what was measured, or why it wasn't.
fn shown(name: &str, measured: Result<Vec<Row>>) -> Vec<Row> {
    let rows = measured.unwrap_or_else(|why| {
        vec![Row {
            name: name.to_string().into(),
            title: name.into(),
            missing: Some(format!("{why:#}")),
            ..Row::default()
        }]
    });
    for row in &rows {
        println!("{}\n", report::details(row).trim());
    }
    rows
}

fn main() -> Result<()> {
    let options = options()?;
    if !options.bench {
        println!("nothing is measured in a test: use cargo bench -p reprise-bench");
        return Ok(());
    }
    if options.list {
        for (name, _) in places() {
            println!("{name}");
        }
        return Ok(());
    }
    if options.render {
        Kept::read()?.write()?;
        println!("{DOCUMENT} is made anew");
        return Ok(());
    }
    // Everything lies in here, traces too, and goes with it.
    let dir = tempfile::Builder::new()
        .prefix("reprise-bench.")
        .tempdir()?;
    let bench = Bench {
        reprise: Reprise::build(dir.path().join("traces"), options.engine.clone())?,
        dir: dir.path().to_path_buf(),
        rounds: if options.quick { 1 } else { ROUNDS },
    };
    let with_order = Bench {
        reprise: bench.reprise.with_engine(order::ENGINE),
        dir: bench.dir.clone(),
        rounds: bench.rounds.min(order::ROUNDS),
    };
    let threads = options.threads.unwrap_or(kernels::THREADS);
    kernels::build()?;
    let mut measured = BTreeMap::new();
    let mut tables = Tables::default();
    for (name, place) in places() {
        // The kernels at their smaller size are no part of a whole run.
        let asked = match place {
            Place::Kernel(_) => !options.only.is_empty() && options.wants(&name),
            _ => options.wants(&name),
        };
        if !asked {
            continue;
        }
        if !options.busy {
            quiet::wait()?;
        }
        let one = |row: Result<Row>| row.map(|r| vec![r]);
        let (rounds, rows) = match place {
            Place::Serial(e) => (bench.rounds, one((e.measure)(&bench))),
            Place::Kernel(k) => (
                bench.rounds,
                one(kernels::measure(&bench, k, threads, kernels::SIZE)),
            ),
            Place::Order(r) => (
                with_order.rounds,
                one(order::measure(&with_order, r, threads)),
            ),
            Place::Events => (with_order.rounds, events::measure(&with_order)),
            Place::Debugger => (1, debug::measure(&bench)),
            Place::Det(r) => (bench.rounds.min(det::ROUNDS), one(det::measure(&bench, r))),
        };
        let rows = shown(&name, rows);
        let group = match place {
            Place::Serial(_) | Place::Kernel(_) => &mut tables.times,
            Place::Order(_) => &mut tables.order,
            Place::Events => &mut tables.events,
            Place::Debugger | Place::Det(_) => &mut tables.single,
        };
        group.extend(rows.iter().cloned());
        // Wherever it was measured, what is kept names no directory of that machine.
        let rows = rows.into_iter().map(|r| without(r, &bench)).collect();
        let day = machine::today();
        measured.insert(name, Measured { day, rounds, rows });
    }
    tables.print();
    if options.bless {
        let mut kept = Kept::read()?;
        kept.take_in(measured)?;
        kept.write()?;
        println!("written to {DOCUMENT}");
    }
    Ok(())
}

/// The row, naming neither the project's directory nor that of this run.
fn without(mut row: Row, bench: &Bench) -> Row {
    let tops = [
        format!("{}/", reprise_bench::reprise::top().display()),
        format!("{}/", bench.dir.display()),
    ];
    let clean = |text: &mut String| {
        for top in &tops {
            *text = text.replace(top, "");
        }
        *text = text.replace(&bench.dir.display().to_string(), ".");
    };
    row.commands.iter_mut().for_each(clean);
    row.missing.iter_mut().for_each(clean);
    row
}

/// What is printed at the end.
#[derive(Default)]
struct Tables {
    times: Vec<Row>,
    order: Vec<Row>,
    events: Vec<Row>,
    single: Vec<Row>,
}

impl Tables {
    fn print(&self) {
        if !self.times.is_empty() {
            println!(
                "{}\n{}",
                report::table(&self.times),
                report::traces(&self.times)
            );
        }
        if !self.order.is_empty() {
            println!(
                "{}\n{}",
                report::table(&self.order),
                report::logs(&self.order)
            );
        }
        if !self.events.is_empty() {
            println!("{}", report::table(&self.events));
        }
        if !self.single.is_empty() {
            println!("{}", report::single(&self.single));
        }
    }
}
