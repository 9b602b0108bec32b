//! The kernels of `tests/guests/kernels` at their medium size: a group of rows that is only measured when it is asked for.
//!
//! Both sides may use every processor. The bar of a kernel follows from how often it synchronises, which it tells by itself.

use crate::figure::{median, Figure, Row, Side, Unit};
use crate::order;
use crate::program::Program;
use crate::reprise::top;
use crate::rows::Bench;
use anyhow::{bail, Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the group.
pub const NAME: &str = "kernels";
/// Threads, unless others are asked for.
pub const THREADS: usize = 2;
/// The size they are measured at.
pub const SIZE: &str = "medium";
/// Synchronising more often than this a second is being heavy on locks.
const OFTEN: f64 = 100_000.0;
/// Bytes of compressed events a minute that a kernel should stay below.
const LOG_A_MINUTE: f64 = 5e6;
/// Bytes of compressed events for a pair of locks that nobody else wants.
const LOG_OF_A_LOCK: f64 = 0.5;

/// What recording a kernel may cost, and replaying it, native being 1.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Bars {
    record: Option<f64>,
    replay: Option<f64>,
}

/// How the bars of a kernel are found.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// By how often it synchronises.
    Ordinary,
    /// A pipeline.
    TaskParallel,
    /// Work stealing by atomic operations, some of them plain loads: `order` records the build of `reprise cc`.
    Atomics,
    /// Nothing but pairs of locks that nobody else wants.
    Uncontended,
    /// Nothing but one primitive, at a size of its own: the time of one operation counts, and no ratio is demanded.
    Primitive(&'static str),
}

impl Kind {
    fn bars(self, rate: f64) -> Bars {
        let often = rate >= OFTEN;
        let record = match self {
            Kind::Ordinary if often => Some(1.10),
            Kind::Ordinary => Some(1.03),
            Kind::TaskParallel | Kind::Atomics => Some(1.15),
            Kind::Uncontended => Some(1.05),
            Kind::Primitive(_) => None,
        };
        let replay = match self {
            Kind::Primitive(_) => None,
            _ if often => Some(1.5),
            _ => Some(1.1),
        };
        Bars { record, replay }
    }
}

/// Every kernel.
const ALL: [(&str, Kind); 33] = [
    ("fft", Kind::Ordinary),
    ("lu", Kind::Ordinary),
    ("radix", Kind::Ordinary),
    ("ocean", Kind::Ordinary),
    ("barnes_hut", Kind::Ordinary),
    ("water", Kind::Ordinary),
    ("raytrace", Kind::Ordinary),
    ("black_scholes", Kind::Ordinary),
    ("streamcluster", Kind::Ordinary),
    ("kmeans", Kind::Ordinary),
    ("histogram", Kind::Ordinary),
    ("word_count", Kind::Ordinary),
    ("pipeline", Kind::TaskParallel),
    ("work_stealing", Kind::Atomics),
    ("locks", Kind::Ordinary),
    ("private", Kind::Uncontended),
    ("malloc_mix", Kind::Ordinary),
    ("linear_regression", Kind::Ordinary),
    ("matrix_multiply", Kind::Ordinary),
    ("pca", Kind::Ordinary),
    ("reverse_index", Kind::Ordinary),
    ("string_match", Kind::Ordinary),
    ("swaptions", Kind::Ordinary),
    ("canneal", Kind::Ordinary),
    ("dedup", Kind::Ordinary),
    ("kmeans_threads", Kind::Ordinary),
    ("lock_pairs", Kind::Ordinary),
    ("histogram_once", Kind::Ordinary),
    ("pca_parts", Kind::Ordinary),
    ("reverse_index_sorted", Kind::Ordinary),
    ("word_count_sorted", Kind::Ordinary),
    ("atomic_counter", Kind::Primitive("20000000")),
    ("condvar_pingpong", Kind::Primitive("medium")),
];

/// Builds the kernels.
///
/// # Errors
/// When one doesn't build.
pub fn build() -> Result<()> {
    let done = Command::new("sh")
        .arg(top().join("scripts/build-guests.sh"))
        .args(ALL.map(|(name, _)| name))
        .status()
        .context("sh")?;
    if !done.success() {
        bail!("the kernels do not build");
    }
    Ok(())
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// Measures one.
///
/// # Errors
/// When there is none of that name, when it fails, or when its replay differs.
pub fn measure(bench: &Bench, name: &str, threads: usize, size: &str) -> Result<Row> {
    let found = ALL.iter().find(|(n, _)| *n == name);
    let (name, kind) = *found.with_context(|| format!("no kernel {name}"))?;
    let path = top().join("tests/guests/bin/kernels").join(name);
    let size = match kind {
        Kind::Primitive(size) => size,
        _ => size,
    };
    let threads_shown = threads.to_string();
    let of = |path: &Path| {
        let mut program = Program::new([path]);
        let arguments = ["-t", &threads_shown, "-s", size];
        program.argv.extend(arguments.iter().map(Into::into));
        program
    };
    let program = of(&path);
    let is_compiled = kind == Kind::Atomics && bench.reprise.engine() == order::ENGINE;
    let recorded = match is_compiled {
        true => of(&compiled(bench, name)?),
        false => program.clone(),
    };

    let times = synchronisations(bench, &program)?;
    let rounds = bench.rounds(&program, &recorded)?;
    let mut row = rounds.row(name, name, 1.0, None);
    let native = row.runs.first().map_or(&[][..], |r| &r.values);
    // What else runs on the machine only makes it synchronise less often.
    let least = native.iter().copied().fold(f64::INFINITY, f64::min);
    let (native, rate) = (median(native), times as f64 / least);
    let bars = kind.bars(rate);
    for figure in &mut row.figures {
        figure.bar = match figure.side {
            Side::Record => bars.record,
            _ => bars.replay,
        };
    }
    let events = rounds.events() as f64;
    let log = |value, unit, bar| Figure {
        side: Side::Log,
        value,
        unit,
        bar,
    };
    let each = (kind == Kind::Uncontended).then_some(LOG_OF_A_LOCK);
    row.figures.push(log(
        events / native * 60.0 / 1e6,
        Unit::MegabytesAMinute,
        Some(LOG_A_MINUTE / 1e6),
    ));
    row.figures
        .push(log(events / times.max(1) as f64, Unit::BytesEach, each));
    row.title = format!("{name}, {threads} threads, {rate:.0} synchronisations a second");
    row.notes = vec![
        format!("synchronises {times} times, {rate:.0} times a second of the fastest native run"),
        format!(
            "engine {}: events take {:.2} MB",
            bench.reprise.engine(),
            events / 1e6
        ),
    ];
    if is_compiled {
        let note = "what is recorded was built by reprise cc; native is the ordinary build";
        row.notes.push(note.into());
    }
    Ok(row)
}

/// A kernel built by `reprise cc`, with the flags of the others.
fn compiled(bench: &Bench, name: &str) -> Result<PathBuf> {
    let guests = top().join("tests/guests");
    let out = bench.dir.join(format!("{name}-compiled"));
    let done = Command::new(bench.reprise.path())
        .args(["cc", "-std=gnu11", "-O2", "-pthread", "-I"])
        .arg(&guests)
        .arg(guests.join("kernels").join(format!("{name}.c")))
        .args(["-lm", "-o"])
        .arg(&out)
        .status()
        .context("reprise cc")?;
    if !done.success() {
        bail!("reprise cc does not build {name}");
    }
    Ok(out)
}

/// How often a kernel synchronises, as it tells when asked.
fn synchronisations(bench: &Bench, program: &Program) -> Result<u64> {
    let mut asked = program.clone();
    asked.argv.push("-v".into());
    let dir: &PathBuf = &bench.dir;
    let sample = asked.run(dir, "asked")?;
    if !sample.status.success() {
        bail!(
            "{} ended with {}: {}",
            asked.shown(),
            sample.status,
            sample.stderr
        );
    }
    told(&sample.stderr).with_context(|| format!("{} does not tell it", asked.shown()))
}

/// The number in a line "synchronised N times in ...".
fn told(text: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (times, _) = line.strip_prefix("synchronised ")?.split_once(" times")?;
        times.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_is_told() {
        let text =
            "stole 17 of 99 tasks\nsynchronised 240003 times in 494858 us: 484993 a second\n";
        assert_eq!(told(text), Some(240_003));
        assert_eq!(told("synchronised often"), None);
    }

    #[test]
    fn bars_follow_from_the_rate() {
        let (seldom, often) = (Kind::Ordinary.bars(99_999.0), Kind::Ordinary.bars(OFTEN));
        assert_eq!((seldom.record, seldom.replay), (Some(1.03), Some(1.1)));
        assert_eq!((often.record, often.replay), (Some(1.10), Some(1.5)));
        assert_eq!(Kind::TaskParallel.bars(1e6).record, Some(1.15));
        assert_eq!(Kind::Primitive("1").bars(1e6).record, None);
    }

    #[test]
    fn every_kernel_is_there() {
        for name in names() {
            let source = top().join("tests/guests/kernels").join(format!("{name}.c"));
            assert!(source.exists(), "{}", source.display());
        }
    }
}
