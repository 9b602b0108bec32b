//! Programs that read a large file from the page cache: some do little else, and kernels compute on it with several threads. The file is older than a minute, and
//! was recorded before: its copy is there, as it is for whoever records a program on the same data again.

use crate::figure::Row;
use crate::program::Program;
use crate::reprise::top;
use crate::rows::Bench;
use anyhow::{bail, Context, Result};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Bytes of the file.
const INPUT: usize = 300_000_000;
/// Bytes of the file that kernels read.
const KERNELS_INPUT: usize = 200_000_000;
/// Times native that a replay may take, ...
const REPLAY_BAR: f64 = 1.1;
/// ... and the recording of a kernel.
const KERNEL_BAR: f64 = 1.15;
/// Younger files may still change without a trace in their times, and their copies are made anew for each recording.
const SETTLED: Duration = Duration::from_secs(61);

/// `wc -l`, which reads faster than a hash can be taken.
pub fn wc(b: &Bench) -> Result<Row> {
    read(b, "wc", "wc -l of 300 MB", ["wc", "-l"], 2.0)
}

/// cat to nowhere, likewise.
pub fn cat(b: &Bench) -> Result<Row> {
    read(
        b,
        "cat",
        "cat of 300 MB",
        ["sh", "-c", "exec cat \"$0\" >/dev/null"],
        2.0,
    )
}

/// A program that computes on what it reads.
pub fn sha1sum(b: &Bench) -> Result<Row> {
    read(b, "sha1sum", "sha1sum of 300 MB", ["sha1sum"], 1.15)
}

/// All in one call.
pub fn whole(b: &Bench) -> Result<Row> {
    let script = "import sys; print(len(open(sys.argv[1], 'rb').read()))";
    read(
        b,
        "read",
        "python3 reads 300 MB",
        ["/usr/bin/python3", "-c", script],
        1.3,
    )
}

fn read<const N: usize>(
    b: &Bench,
    name: &'static str,
    title: &'static str,
    command: [&str; N],
    bar: f64,
) -> Result<Row> {
    let path = settled(b, "read.in", INPUT)?;
    let path = path.to_string_lossy();
    let program = Program::new(command.into_iter().chain([&*path]));
    measure(b, &program, name, title, bar)
}

/// An input that may be referred to, and whose copy is kept.
fn settled(b: &Bench, name: &str, len: usize) -> Result<PathBuf> {
    let path = b.input(name, len)?;
    let made = path.metadata()?.modified()?;
    let age = SystemTime::now().duration_since(made).unwrap_or_default();
    std::thread::sleep(SETTLED.saturating_sub(age));
    Ok(path)
}

fn measure(b: &Bench, program: &Program, name: &'static str, title: &str, bar: f64) -> Result<Row> {
    // The first recording makes the copy.
    b.many_rounds(program, program, 1)?;
    let rounds = b.rounds(program, program)?;
    Ok(rounds.row(name, title, bar, Some(REPLAY_BAR)))
}

/// A kernel of `tests/guests/of_a_file.c`: the row's name, its own, and how many times it reads the file, so that it takes half a second or more.
type Kernel = (&'static str, &'static str, u32);

const KERNELS: [Kernel; 5] = [
    ("histogram_of_file", "histogram", 5),
    ("linear_regression_of_file", "linear_regression", 7),
    ("string_match_of_file", "string_match", 2),
    ("reverse_index_of_file", "reverse_index", 5),
    ("dedup_of_file", "dedup", 1),
];

/// The kernels' rows.
pub fn kernels() -> impl Iterator<Item = &'static str> {
    KERNELS.iter().map(|(name, ..)| *name)
}

/// Measures the row of a kernel, if it is one.
///
/// # Errors
/// When it fails, or when its replay differs.
pub fn kernel(b: &Bench, name: &str, threads: usize) -> Option<Result<Row>> {
    let kernel = KERNELS.iter().find(|(n, ..)| *n == name)?;
    Some(measure_kernel(b, *kernel, threads))
}

fn measure_kernel(b: &Bench, (name, kernel, times): Kernel, threads: usize) -> Result<Row> {
    let built = Command::new("sh")
        .arg(top().join("scripts/build-guests.sh"))
        .arg("of_a_file")
        .status()
        .context("sh")?;
    if !built.success() {
        bail!("the kernels of a file do not build");
    }
    let path = settled(b, "kernels.in", KERNELS_INPUT)?;
    let mut program = Program::new([top().join("tests/guests/bin/of_a_file")]);
    program.argv.push(kernel.into());
    program.argv.push(path.into());
    let numbers = [threads.to_string(), times.to_string()];
    program.argv.extend(numbers.map(Into::into));
    let title = format!(
        "{} of {} MB read {times} times, {threads} threads",
        kernel.replace('_', " "),
        KERNELS_INPUT / 1_000_000
    )
    .replace("read 1 times", "read once");
    measure(b, &program, name, &title, KERNEL_BAR)
}
