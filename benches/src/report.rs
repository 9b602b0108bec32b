//! Prints rows, and writes `docs/BENCHMARKS.md`.

use crate::det::ROUNDS as DET_ROUNDS;
use crate::figure::{median, Figure, Row, Side};
use crate::machine;
use crate::order::ROUNDS as ORDER_ROUNDS;
use crate::reprise::top;
use std::fmt::Write;

/// The whole document.
pub fn document(
    rows: &[Row],
    [order, events]: [&[Row]; 2],
    [debug, of_det]: [&[Row]; 2],
    rounds: usize,
    load: f64,
) -> String {
    let mut text = String::new();
    text.push_str(HEAD);
    for line in machine::describe() {
        let _ = writeln!(text, "- {line}");
    }
    let _ = writeln!(
        text,
        "- measured on {}, {rounds} rounds a row; {load:.1} other processes wanted to run when it began",
        machine::today()
    );
    text.push_str("\n## Figures\n\n");
    text.push_str(&table(rows));
    text.push_str("\nWhat a trace takes on disk, kept files and libraries included:\n\n");
    text.push_str(&traces(rows));
    text.push_str(&section(order, events, rounds.min(ORDER_ROUNDS), load));
    text.push_str(&debugging(debug, load));
    text.push_str(&det(of_det, rounds.min(DET_ROUNDS), load));
    text.push_str(COMPARISON);
    text.push_str("\n## Behind the figures\n");
    for row in rows {
        text.push_str(&details(row));
    }
    text
}

/// The section of `--engine order`, with all that is behind its figures.
pub fn section(order: &[Row], events: &[Row], rounds: usize, load: f64) -> String {
    let mut text = String::from(ORDER);
    let _ = writeln!(
        text,
        "Measured on {}, {rounds} rounds a row; {load:.1} other processes wanted to run when it began.\n",
        machine::today()
    );
    text.push_str(&table(order));
    text.push_str("\nWhat the log takes, compressed:\n\n");
    text.push_str(&logs(order));
    text.push_str("\n### One event\n\n");
    for row in events.iter().filter(|r| !r.table.is_empty()) {
        text.push_str(&row.table);
        text.push('\n');
    }
    text.push_str(&table(events.iter().filter(|r| r.table.is_empty())));
    for row in order.iter().chain(events) {
        text.push_str(&details(row));
    }
    text
}

/// The section of the debugger.
pub fn debugging(rows: &[Row], load: f64) -> String {
    single(DEBUGGING, rows, "one round", load)
}

/// The section of `reprise run`.
pub fn det(rows: &[Row], rounds: usize, load: f64) -> String {
    single(DET, rows, &format!("{rounds} rounds a row"), load)
}

/// A section whose rows have figures of one kind each.
fn single(head: &str, rows: &[Row], rounds: &str, load: f64) -> String {
    let mut text = String::from(head);
    let _ = writeln!(
        text,
        "Measured on {}, {rounds}; {load:.1} other processes wanted to run when it began.\n",
        machine::today()
    );
    text.push_str("| what | figure | bar | |\n|---|---|---|---|\n");
    for row in rows {
        for f in &row.figures {
            text.push_str(&line_of(row, f));
        }
        if let Some(why) = &row.missing {
            let why = why.lines().next().unwrap_or_default();
            let _ = writeln!(text, "| {} | not measured: {why} | | |", row.title);
        }
    }
    for row in rows.iter().filter(|r| !r.notes.is_empty()) {
        let _ = writeln!(text, "\n{}: {}.", row.title, row.notes.join("; "));
    }
    text
}

/// The document with this section in the place of the one that it has.
pub fn with_section(document: &str, section: &str) -> String {
    let heading = section.lines().find(|l| !l.is_empty()).unwrap_or_default();
    let begins = document.find(heading).map(|at| at - 1);
    let ends = |from: usize| {
        let next = document[from + 1..].find("\n## ").map(|n| from + 1 + n);
        // The heading of the section itself is the first.
        let own = next.filter(|at| document[at + 1..].starts_with(heading));
        match own {
            Some(own) => document[own + 1..].find("\n## ").map(|n| own + 1 + n),
            None => next,
        }
    };
    match begins {
        Some(from) => {
            let end = ends(from).unwrap_or(document.len());
            format!("{}{section}{}", &document[..from], &document[end..])
        }
        None => {
            let at = document
                .find(COMPARISON.trim_end())
                .unwrap_or(document.len());
            format!("{}{section}{}", &document[..at], &document[at..])
        }
    }
}

/// The table of times.
pub fn table<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let mut text = String::from(
        "| workload | record | bar | | replay | bar | |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = write!(text, "| {} |", row.title);
        if let Some(why) = &row.missing {
            // The rest of it stands behind the figures.
            let why = why.lines().next().unwrap_or_default();
            let _ = writeln!(text, " not measured: {why} | | | | | |");
            continue;
        }
        for side in [Side::Record, Side::Replay] {
            match row.figures.iter().find(|f| f.side == side) {
                Some(f) => {
                    let _ = write!(
                        text,
                        " {} | {} | {} |",
                        f.shown(),
                        f.bar_shown(),
                        f.verdict()
                    );
                }
                None => text.push_str(" - | - | |"),
            }
        }
        text.push('\n');
    }
    text
}

/// The table of traces.
pub fn traces(rows: &[Row]) -> String {
    table_of(rows, Side::Trace, "trace | bar: input read + 1 MB")
}

/// The table of logs.
pub fn logs(rows: &[Row]) -> String {
    table_of(rows, Side::Log, "log | bar")
}

/// A figure's line in a table.
fn line_of(row: &Row, f: &Figure) -> String {
    let (shown, bar) = (f.shown(), f.bar_shown());
    format!("| {} | {shown} | {bar} | {} |\n", row.title, f.verdict())
}

/// A table of the figures of one side, under these headings.
fn table_of(rows: &[Row], side: Side, headings: &str) -> String {
    let mut text = format!("| workload | {headings} | |\n|---|---|---|---|\n");
    for row in rows {
        for f in row.figures.iter().filter(|f| f.side == side) {
            text.push_str(&line_of(row, f));
        }
    }
    text
}

/// Medians and spread of a row, and its notes.
pub fn details(row: &Row) -> String {
    let mut text = format!("\n### {}\n\n", row.title);
    // As from the top of the project, wherever that lies.
    let here = format!("{}/", top().display());
    for command in &row.commands {
        let _ = writeln!(text, "    {}\n", command.replace(&here, ""));
    }
    if let Some(why) = &row.missing {
        let _ = writeln!(text, "Not measured: {}.", why.replace(&here, ""));
        return text;
    }
    text.push_str(&row.table);
    if !row.runs.is_empty() {
        text.push_str("| | median | least | most | processor time |\n|---|---|---|---|---|\n");
    }
    for r in &row.runs {
        let least = r.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = r.values.iter().copied().fold(0.0, f64::max);
        let n = |v: f64| number(v, r.unit);
        let processor = if r.processor.is_empty() {
            "-".into()
        } else {
            number(median(&r.processor), "s")
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {processor} |",
            r.name,
            n(median(&r.values)),
            n(least),
            n(most)
        );
    }
    text.push('\n');
    for note in &row.notes {
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "s" if value < 0.1 => format!("{:.2} ms", value * 1e3),
        "s" => format!("{value:.3} s"),
        "ns" => format!("{value:.1} ns"),
        "ms" => format!("{value:.3} ms"),
        _ => format!("{value:.0} {unit}"),
    }
}

const HEAD: &str = "\
# What recording and replaying cost

Written by `cargo bench -p reprise-bench`; not by hand. It takes some minutes, and changes this file.

    cargo bench -p reprise-bench                              # everything, and this file anew
    cargo bench -p reprise-bench -- --quick                   # one round a row, printed only
    cargo bench -p reprise-bench -- --only sort --only dd     # some rows, printed only
    cargo bench -p reprise-bench -- --only kernels --engine serial    # parallel kernels (tests/guests/kernels), printed only

Each round of a row runs its command natively, recorded (`reprise record -q -- COMMAND`) and replayed (`reprise replay`), one after
the other; figures are medians over the rounds, against the native median of the same run. Programs with threads are compared with
themselves on one processor, because that is what they get while recording. Times are those of whole commands, from start to end;
processor time is that of all processes of a command, Reprise's own included. Every replay's output is compared with its recording's.

Machine:

";

const ORDER: &str = "
## With `--engine order`

Threads run on all processors, natively and recorded. Kernels (tests/guests/kernels) run with 2 threads at their large size, some seconds, so that
what every recording costs once (the first row) counts little; the bar of each follows from how often it synchronises. Servers are built
from Debian's sources by `reprise cc`; their clients have the same processors.

    cargo bench -p reprise-bench -- --only order --only events    # this section anew; --quick: with one round a row
    cargo bench -p reprise-bench -- --only order/memcached    # one row of it
    cargo bench -p reprise-bench -- --only events             # what one event costs

";

const DET: &str = "
## With `reprise run`

Programs that run deterministically (DThreads), against themselves with pthreads, two threads: kernels of the shapes and sizes that the original Dthreads was measured with.
The second figure of a row is how many times as fast two threads are as one.

    cargo bench -p reprise-bench -- --only det                # this section anew; --quick: with one round a row, printed only
    cargo bench -p reprise-bench -- --only det/histogram      # one row of it

";

const DEBUGGING: &str = "
## Debugging

What gdb waits for on a recording of two threads that take turns at changing 16 MiB of memory (benches/guests/debugging.c), from `reprise replay -d` on.

    cargo bench -p reprise-bench -- --only debug              # this section anew; --quick: of a shorter recording, printed only

";

const COMPARISON: &str = "
## Other tools

Measured with those tools on the same kind of machine (a virtual machine without hardware performance counters), against native:

| tool | dd | python3 | sort | pbzip2 | memcached, throughput | |
|---|---|---|---|---|---|---|
| rr | - | - | - | - | - | refuses to start without performance counters |
| rr's fork with software counters (`-W`), record | 14× | 36× | 11× | 15× | 0.22 | its replay hangs on a spinning thread |
| Hermit | 850× | - | - | fails | - | |
| gdb `record full` | - | - | - | - | - | 50 µs an instruction |
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_takes_the_place_of_its_elder() {
        let new = section(&[], &[], 3, 0.0);
        let without = format!("# Head\n\n## Figures\n\nsome\n{COMPARISON}\n## Behind\n");
        let with = with_section(&without, &new);
        let parts: Vec<_> = with.lines().filter(|l| l.starts_with("## ")).collect();
        let expected = [
            "## Figures",
            "## With `--engine order`",
            "## Other tools",
            "## Behind",
        ];
        assert_eq!(parts, expected);
        assert_eq!(with_section(&with, &new), with);
        let other = section(&[], &[], 4, 0.0);
        assert_eq!(with_section(&with_section(&with, &other), &new), with);
    }
}
