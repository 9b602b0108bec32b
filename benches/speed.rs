//! `cargo bench -p reprise-bench`: measures every row, prints the table, and writes `docs/BENCHMARKS.md`.
//!
//! Options, after `--`: `--quick` (one round a row), `--only NAME` (may be given more than once), `--list`. With either of the first two the table
//! is only printed, because the document is to hold a whole run. `REPRISE=PATH` judges another build.

use anyhow::{bail, Result};
use reprise_bench::figure::Row;
use reprise_bench::reprise::{top, Reprise};
use reprise_bench::rows::{Bench, ALL, ROUNDS};
use reprise_bench::{machine, report};

/// Where the document lies.
const DOCUMENT: &str = "docs/BENCHMARKS.md";

/// What was asked for.
#[derive(Default)]
struct Options {
    bench: bool,
    quick: bool,
    only: Vec<String>,
    list: bool,
}

fn options() -> Result<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(a) = arguments.next() {
        match (a.as_str(), a.as_str() == "--only") {
            ("--quick", _) => options.quick = true,
            ("--list", _) => options.list = true,
            // `cargo bench` says so to every bench; `cargo test --all-targets`, which runs them too, doesn't.
            ("--bench", _) => options.bench = true,
            (_, true) => options.only.extend(arguments.next()),
            _ => bail!("unknown option {a}; there are --quick, --only NAME and --list"),
        }
    }
    for name in &options.only {
        if !ALL.iter().any(|e| e.name == name) {
            bail!("no row {name}; --list names them");
        }
    }
    Ok(options)
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
        return Ok(());
    }
    // Everything lies in here, traces too, and goes with it.
    let dir = tempfile::Builder::new()
        .prefix("reprise-bench.")
        .tempdir()?;
    let load = machine::load();
    let bench = Bench {
        reprise: Reprise::build(dir.path().join("traces"))?,
        dir: dir.path().to_path_buf(),
        rounds: if options.quick { 1 } else { ROUNDS },
    };
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|o| o == name);
    let mut rows = Vec::new();
    for e in ALL.iter().filter(|e| wanted(e.name)) {
        eprintln!("measuring {}", e.name);
        let row = (e.measure)(&bench).unwrap_or_else(|why| Row {
            name: e.name,
            title: e.name.into(),
            missing: Some(format!("{why:#}")),
            ..Row::default()
        });
        println!("{}", report::details(&row).trim());
        println!();
        rows.push(row);
    }
    println!("{}\n{}", report::table(&rows), report::traces(&rows));
    if options.quick || !options.only.is_empty() {
        return Ok(());
    }
    std::fs::write(
        top().join(DOCUMENT),
        report::document(&rows, bench.rounds, load),
    )?;
    println!("written to {DOCUMENT}");
    Ok(())
}
