//! Programs that do little but read a file of 300 MB, from the page cache. The file is older than a minute, and was recorded before: its copy is there, as it is
//! for whoever records a program on the same data again.

use crate::figure::Row;
use crate::program::Program;
use crate::rows::Bench;
use anyhow::Result;
use std::time::{Duration, SystemTime};

/// Bytes of the file.
const INPUT: usize = 300_000_000;
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
        ["python3", "-c", script],
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
    let path = b.input("read.in", INPUT)?;
    let made = path.metadata()?.modified()?;
    let age = SystemTime::now().duration_since(made).unwrap_or_default();
    std::thread::sleep(SETTLED.saturating_sub(age));
    let path = path.to_string_lossy();
    let program = Program::new(command.into_iter().chain([&*path]));
    // The first recording makes the copy.
    b.many_rounds(&program, &program, 1)?;
    let rounds = b.rounds(&program, &program)?;
    Ok(rounds.row(name, title, bar, Some(1.1)))
}
