//! The rows of `reprise run`: kernels in the shapes and sizes that the original Dthreads was measured with, against themselves with pthreads.
//!
//! Their threads are made and waited for by one that does nothing else, as in Phoenix. What it costs when that one takes part is told beside it.

use crate::figure::{median, Figure, Row, Side, Unit};
use crate::program::Program;
use crate::reprise::{own_failure, top};
use crate::rows::Bench;
use anyhow::{bail, Result};

/// The name of the group.
pub const NAME: &str = "det";
/// Most rounds of a row.
pub const ROUNDS: usize = 3;
/// Threads at work.
const THREADS: &str = "2";
/// The paper's "sync-only". Its "prot-only" can't be had: copies that the kernel makes silently have no base but the beginning of a phase, which all share.
const SYNC_ONLY: [&str; 2] = ["--without", "isolation"];
/// Two threads are to be so many times as fast as one.
const PARALLEL_BAR: f64 = 1.8;

/// A row: kernel, size, what it is, the bar, and what Dthreads took on a machine of this kind.
type Wanted = (
    &'static str,
    &'static str,
    &'static str,
    Option<f64>,
    &'static str,
);

/// The rows that the paper has, in its shapes; and behind them some that are harder, which Dthreads was not measured with.
const ALL: [Wanted; 19] = [
    (
        "histogram_once",
        "50000000",
        "histogram of 150 MB",
        Some(1.10),
        "1.31",
    ),
    (
        "kmeans_threads",
        "50000",
        "kmeans of 50,000 points, 1,040 threads",
        Some(1.60),
        "3.46",
    ),
    (
        "linear_regression",
        "50000000",
        "linear regression of 100 MB",
        Some(1.0),
        "1.75",
    ),
    (
        "matrix_multiply",
        "1000",
        "matrix multiply, 1000²",
        Some(1.02),
        "1.02",
    ),
    ("pca_parts", "1000", "pca, 1000²", Some(1.15), "1.37"),
    (
        "reverse_index_sorted",
        "40000000",
        "reverse index of 40 MB",
        Some(1.60),
        "2.11",
    ),
    (
        "string_match",
        "100000000",
        "string match of 100 MB",
        Some(1.05),
        "1.10",
    ),
    (
        "word_count_sorted",
        "50000000",
        "word count of 50 MB",
        Some(1.03),
        "1.03",
    ),
    (
        "streamcluster",
        "medium",
        "streamcluster",
        Some(1.25),
        "1.44",
    ),
    ("swaptions", "medium", "swaptions", Some(1.05), "1.30"),
    (
        "black_scholes",
        "medium",
        "black-scholes",
        Some(1.05),
        "1.10",
    ),
    (
        "lock_pairs",
        "20000",
        "20,000 lock pairs a thread",
        Some(10.0),
        "55",
    ),
    ("canneal", "medium", "canneal", Some(4.0), "not run"),
    ("dedup", "medium", "dedup", Some(4.0), "not run"),
    (
        "locks",
        "1000000",
        "1,000,000 lock pairs, with work between them",
        None,
        "not run",
    ),
    (
        "histogram",
        "50000000",
        "histogram of 150 MB, 40 times, added up under a lock",
        None,
        "not run",
    ),
    (
        "pca",
        "1000",
        "pca, 1000², rows handed out under a lock, both halves written",
        None,
        "not run",
    ),
    (
        "reverse_index",
        "40000000",
        "reverse index of 40 MB, one index under a lock",
        None,
        "not run",
    ),
    (
        "word_count",
        "6000000",
        "word count, blocks handed out under a lock, hash tables",
        None,
        "not run",
    ),
];

/// Names of the rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, ..)| *name)
}

/// How a kernel is run.
#[derive(Clone, Copy)]
struct Way<'a> {
    name: &'a str,
    size: &'a str,
    threads: &'a str,
    /// The thread that makes the others only waits for them.
    only_waits: bool,
}

/// Seconds that it takes natively and under `reprise run`, and whether both said the same.
fn once(bench: &Bench, way: Way<'_>, flags: &[&str]) -> Result<[f64; 2]> {
    let path = top().join("tests/guests/bin/kernels").join(way.name);
    let mut words = vec!["-t", way.threads, "-s", way.size];
    if way.only_waits {
        words.push("-w");
    }
    let mut native = Program::new([&path]);
    native.argv.extend(words.iter().map(Into::into));
    let mut det = Program::new([bench.reprise.path()]);
    det.argv.push("run".into());
    det.argv.extend(flags.iter().map(Into::into));
    det.argv.extend(["--".into(), path.into()]);
    det.argv.extend(words.iter().map(Into::into));
    let (n, d) = (
        native.run(&bench.dir, "native")?,
        det.run(&bench.dir, "det")?,
    );
    own_failure(&d)?;
    let said = |s: &crate::program::Sample| std::fs::read(&s.stdout);
    if said(&n)? != said(&d)? {
        bail!("{} says something else under reprise run", way.name);
    }
    Ok([n.wall.as_secs_f64(), d.wall.as_secs_f64()])
}

/// Medians of several runs.
fn medians(bench: &Bench, way: Way<'_>, flags: &[&str]) -> Result<[f64; 2]> {
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..bench.rounds.min(ROUNDS) {
        let seconds = once(bench, way, flags)?;
        all.iter_mut().zip(seconds).for_each(|(a, s)| a.push(s));
    }
    Ok(all.map(|a| median(&a)))
}

/// Measures one row.
///
/// # Errors
/// When there is none of that name, or it fails.
pub fn measure(bench: &Bench, name: &'static str) -> Result<Row> {
    let found = ALL.iter().find(|(n, ..)| *n == name);
    let Some((name, size, title, bar, theirs)) = found.copied() else {
        bail!("no row {name}");
    };
    let way = Way {
        name,
        size,
        threads: THREADS,
        only_waits: true,
    };
    let [native, det] = medians(bench, way, &[])?;
    let [native_shared, shared] = medians(bench, way, &SYNC_ONLY)?;
    let [native_part, det_part] = medians(
        bench,
        Way {
            only_waits: false,
            ..way
        },
        &[],
    )?;
    let [native_one, det_one] = medians(
        bench,
        Way {
            threads: "1",
            ..way
        },
        &[],
    )?;
    let times = |value, bar| Figure {
        side: Side::Record,
        value,
        unit: Unit::Times,
        bar,
    };
    let is_parallel = ["matrix_multiply", "histogram_once"].contains(&name);
    let mut row = Row {
        name: name.into(),
        title: title.into(),
        figures: vec![times(det / native, bar)],
        ..Row::default()
    };
    if is_parallel {
        row.figures.push(Figure {
            side: Side::Replay,
            value: det_one / det,
            unit: Unit::Share,
            bar: Some(PARALLEL_BAR),
        });
    }
    row.notes = vec![
        format!(
            "{:.0} ms natively, {:.0} ms under reprise run",
            native * 1e3,
            det * 1e3
        ),
        format!("the original Dthreads, with its own kernel of this shape: {theirs}"),
        format!(
            "{:.2}× with the order of synchronisation only (the paper's sync-only)",
            shared / native_shared
        ),
        format!(
            "{:.2}× when the first thread takes part",
            det_part / native_part
        ),
        format!(
            "two threads are {:.2} times as fast as one, natively {:.2} times",
            det_one / det,
            native_one / native
        ),
    ];
    Ok(row)
}
