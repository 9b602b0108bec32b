//! `cargo bench -p reprise-bench`: measures every row, prints the table, and writes `docs/BENCHMARKS.md`.
//!
//! Options, after `--`: `--quick` (one round a row), `--only NAME` (may be given more than once), `--list`, `--engine NAME` (the engine that
//! records), `--threads N` (of the kernels). With any of them the table is only printed, because the document is to hold a whole run.
//! `REPRISE=PATH` judges another build.
//!
//! A whole run has the rows of [`ALL`], and those of `--engine order`: `--only order`, `--only order/NAME` and `--only events` measure them alone.
//! `--only debug` measures the debugger alone, `--only det` and `--only det/NAME` the rows of `reprise run`.
//! `--only kernels` measures the kernels with any engine, at a smaller size, and `--only kernels/NAME` one of them.
#![allow(clippy::print_stdout)]

use anyhow::{bail, Context, Result};
use reprise_bench::figure::Row;
use reprise_bench::reprise::{top, Reprise};
use reprise_bench::rows::{Bench, ALL, ROUNDS};
use reprise_bench::{debug, det, events, kernels, machine, order, report};

/// Where the document lies.
const DOCUMENT: &str = "docs/BENCHMARKS.md";

/// What was asked for.
#[derive(Default)]
struct Options {
    bench: bool,
    quick: bool,
    only: Vec<String>,
    list: bool,
    engine: Option<String>,
    threads: Option<usize>,
}

impl Options {
    /// Whether a row of the whole run is to be measured.
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == name)
    }

    /// Whether a row of a group is, which is asked for by the group's name or by both names.
    fn wants_of(&self, group: &str, name: &str) -> bool {
        self.only.iter().any(|o| {
            let rest = o.strip_prefix(group);
            rest.is_some_and(|r| r.is_empty() || r.strip_prefix('/') == Some(name))
        })
    }

    /// Whether a row of `--engine order` is.
    fn wants_order(&self, name: &str) -> bool {
        self.whole() || self.wants_of(order::NAME, name)
    }

    /// Whether this is all that the document's section on `--engine order` holds.
    fn is_section(&self) -> bool {
        let chosen = self.engine.is_some() || self.threads.is_some();
        let only = |name: &str| self.only.iter().any(|o| o == name);
        !chosen && self.only.len() == 2 && only(order::NAME) && only(events::NAME)
    }

    /// Whether this is all that the document's section on the debugger holds.
    fn is_debugging(&self) -> bool {
        !self.quick && self.engine.is_none() && self.only == [debug::NAME]
    }

    /// Whether this is all that the document's section on `reprise run` holds.
    fn is_det(&self) -> bool {
        !self.quick && self.engine.is_none() && self.only == [det::NAME]
    }

    /// Whether this is a whole run, as the document holds it.
    fn whole(&self) -> bool {
        let chosen = self.engine.is_some() || self.threads.is_some();
        !self.quick && self.only.is_empty() && !chosen
    }
}

fn options() -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(a) = arguments.next() {
        match a.as_str() {
            "--quick" => options.quick = true,
            "--list" => options.list = true,
            // `cargo bench` says so to every bench; `cargo test --all-targets`, which runs them too, doesn't.
            "--bench" => options.bench = true,
            "--only" => options.only.extend(arguments.next()),
            "--engine" => options.engine = arguments.next(),
            "--threads" => {
                let number = arguments.next().context("--threads needs a number")?;
                options.threads = Some(number.parse().context("--threads")?);
            }
            _ => bail!(
                "unknown option {a}; there are --quick, --only NAME, --engine NAME, --threads N and --list"
            ),
        }
    }
    for name in &options.only {
        let named = |group: &str, row: &str| *name == format!("{group}/{row}");
        let groups = [
            kernels::NAME,
            order::NAME,
            events::NAME,
            debug::NAME,
            det::NAME,
        ];
        let grouped = groups.contains(&name.as_str())
            || kernels::names().any(|k| named(kernels::NAME, k))
            || order::names().any(|r| named(order::NAME, r))
            || det::names().any(|r| named(det::NAME, r));
        if !grouped && !ALL.iter().any(|e| e.name == name) {
            bail!("no row {name}; --list names them");
        }
    }
    Ok(options)
}

/// Prints what was measured, or why it wasn't.
fn shown(name: &'static str, measured: Result<Row>) -> Row {
    let row = measured.unwrap_or_else(|why| Row {
        name,
        title: name.into(),
        missing: Some(format!("{why:#}")),
        ..Row::default()
    });
    println!("{}\n", report::details(&row).trim());
    row
}

fn main() -> Result<()> {
    let options = options()?;
    if !options.bench {
        println!("nothing is measured in a test: use cargo bench -p reprise-bench");
        return Ok(());
    }
    if options.list {
        for e in &ALL {
            println!("{}", e.name);
        }
        for k in kernels::names() {
            println!("{}/{k}", kernels::NAME);
        }
        for r in order::names() {
            println!("{}/{r}", order::NAME);
        }
        println!("{}", events::NAME);
        println!("{}", debug::NAME);
        for r in det::names() {
            println!("{}/{r}", det::NAME);
        }
        return Ok(());
    }
    // Everything lies in here, traces too, and goes with it.
    let dir = tempfile::Builder::new()
        .prefix("reprise-bench.")
        .tempdir()?;
    let load = machine::load();
    let bench = Bench {
        reprise: Reprise::build(dir.path().join("traces"), options.engine.clone())?,
        dir: dir.path().to_path_buf(),
        rounds: if options.quick { 1 } else { ROUNDS },
    };
    let mut rows = Vec::new();
    for e in ALL.iter().filter(|e| options.wants(e.name)) {
        rows.push(shown(e.name, (e.measure)(&bench)));
    }
    let threads = options.threads.unwrap_or(kernels::THREADS);
    if kernels::names().any(|k| options.wants_of(kernels::NAME, k) || options.wants_order(k)) {
        kernels::build()?;
    }
    for k in kernels::names().filter(|k| options.wants_of(kernels::NAME, k)) {
        rows.push(shown(
            k,
            kernels::measure(&bench, k, threads, kernels::SIZE),
        ));
    }
    let with_order = Bench {
        reprise: bench.reprise.with_engine(order::ENGINE),
        dir: bench.dir.clone(),
        rounds: bench.rounds.min(order::ROUNDS),
    };
    let mut of_order = Vec::new();
    for r in order::names().filter(|r| options.wants_order(r)) {
        of_order.push(shown(r, order::measure(&with_order, r, threads)));
    }
    let mut of_events = Vec::new();
    if options.whole() || options.only.iter().any(|o| o == events::NAME) {
        match events::measure(&with_order) {
            Ok(rows) => of_events.extend(rows.into_iter().map(|r| shown(events::NAME, Ok(r)))),
            Err(why) => of_events.push(shown(events::NAME, Err(why))),
        }
    }
    let mut of_debugger = Vec::new();
    if options.whole() || options.only.iter().any(|o| o == debug::NAME) {
        match debug::measure(&bench) {
            Ok(rows) => of_debugger.extend(rows),
            Err(why) => of_debugger.push(shown(debug::NAME, Err(why))),
        }
        println!("{}", report::debugging(&of_debugger, load));
    }
    let mut of_det = Vec::new();
    let wants_det = |r: &&str| options.whole() || options.wants_of(det::NAME, r);
    if det::names().any(|r| wants_det(&r)) {
        kernels::build()?;
    }
    for r in det::names().filter(wants_det) {
        of_det.push(shown(r, det::measure(&bench, r)));
    }
    if !of_det.is_empty() {
        println!(
            "{}",
            report::det(&of_det, bench.rounds.min(det::ROUNDS), load)
        );
    }
    println!("{}\n{}", report::table(&rows), report::traces(&rows));
    println!("{}\n{}", report::table(&of_order), report::logs(&of_order));
    println!("{}", report::table(&of_events));
    let path = top().join(DOCUMENT);
    let document = if options.whole() {
        report::document(
            &rows,
            [&of_order, &of_events],
            [&of_debugger, &of_det],
            bench.rounds,
            load,
        )
    } else if options.is_section() {
        let section = report::section(&of_order, &of_events, with_order.rounds, load);
        report::with_section(&std::fs::read_to_string(&path)?, &section)
    } else if options.is_debugging() {
        let section = report::debugging(&of_debugger, load);
        report::with_section(&std::fs::read_to_string(&path)?, &section)
    } else if options.is_det() {
        let section = report::det(&of_det, bench.rounds.min(det::ROUNDS), load);
        report::with_section(&std::fs::read_to_string(&path)?, &section)
    } else {
        return Ok(());
    };
    std::fs::write(&path, document)?;
    println!("written to {DOCUMENT}");
    Ok(())
}
