//! `cargo bench -p reprise-bench`: measures every row, prints the table, and writes `docs/BENCHMARKS.md`.
//!
//! Options, after `--`: `--quick` (one round a row), `--only NAME` (may be given more than once), `--list`, `--engine NAME` (the engine that
//! records), `--threads N` (of the kernels). With any of them the table is only printed, because the document is to hold a whole run.
//! `REPRISE=PATH` judges another build.
//!
//! `--only kernels` measures the kernels, which are in no whole run, and `--only kernels/NAME` one of them.

use anyhow::{bail, Context, Result};
use reprise_bench::figure::Row;
use reprise_bench::reprise::{top, Reprise};
use reprise_bench::rows::{Bench, ALL, ROUNDS};
use reprise_bench::{kernels, machine, report};

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

    /// Whether a kernel is.
    fn wants_kernel(&self, name: &str) -> bool {
        self.only.iter().any(|o| {
            let rest = o.strip_prefix(kernels::NAME);
            rest.is_some_and(|r| r.is_empty() || r.strip_prefix('/') == Some(name))
        })
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
        let kernel = *name == kernels::NAME
            || kernels::names().any(|k| *name == format!("{}/{k}", kernels::NAME));
        if !kernel && !ALL.iter().any(|e| e.name == name) {
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
        for k in kernels::names() {
            println!("{}/{k}", kernels::NAME);
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
    let mut add = |name: &'static str, measure: &dyn Fn() -> Result<Row>| {
        eprintln!("measuring {name}");
        let row = measure().unwrap_or_else(|why| Row {
            name,
            title: name.into(),
            missing: Some(format!("{why:#}")),
            ..Row::default()
        });
        println!("{}", report::details(&row).trim());
        println!();
        rows.push(row);
    };
    for e in ALL.iter().filter(|e| options.wants(e.name)) {
        add(e.name, &|| (e.measure)(&bench));
    }
    if kernels::names().any(|k| options.wants_kernel(k)) {
        kernels::build()?;
    }
    let threads = options.threads.unwrap_or(kernels::THREADS);
    for k in kernels::names().filter(|k| options.wants_kernel(k)) {
        add(k, &|| kernels::measure(&bench, k, threads));
    }
    println!("{}\n{}", report::table(&rows), report::traces(&rows));
    if !options.whole() {
        return Ok(());
    }
    std::fs::write(
        top().join(DOCUMENT),
        report::document(&rows, bench.rounds, load),
    )?;
    println!("written to {DOCUMENT}");
    Ok(())
}
