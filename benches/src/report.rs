//! Rows as text, and the text of `docs/BENCHMARKS.md`.

use crate::figure::{median, Figure, Row, Side};
use crate::kept::Kept;
use crate::reprise::top;
use crate::rows::ALL;
use crate::summary::summary;
use crate::{debug, det, events, order};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The whole document, from what was kept and nothing else.
pub fn document(kept: &Kept) -> String {
    let mut text = String::from(HEAD);
    text.push_str(&summary(kept));
    text.push_str("\nMachine:\n\n");
    for line in &kept.machine {
        let _ = writeln!(text, "- {line}");
    }
    let rows = rows_of(kept, ALL.iter().map(|e| e.name.to_string()));
    text.push_str("\n## With `--engine serial`\n\n");
    text.push_str(&when(kept, ALL.iter().map(|e| e.name.to_string())));
    text.push_str(&table(&rows));
    text.push_str("\nWhat a trace takes on disk, kept inputs included, beside a trace of the same program that reads an empty input (whose libraries it shares):\n\n");
    text.push_str(&traces(&rows));
    text.push_str(&of_order(kept));
    text.push_str(&of_debugger(kept));
    text.push_str(&of_det(kept));
    text.push_str("\n## Behind the figures\n");
    for row in &rows {
        text.push_str(&details(row));
    }
    text
}

/// The kept rows of these names, in their order.
fn rows_of(kept: &Kept, names: impl Iterator<Item = String>) -> Vec<Row> {
    names.flat_map(|name| kept.rows(&name).to_vec()).collect()
}

/// Names of the rows of `--engine order`, as they are kept.
fn order_names() -> impl Iterator<Item = String> {
    order::names().map(|r| format!("{}/{r}", order::NAME))
}

/// On which days these were measured, and in how many rounds; and which of them were not.
fn when(kept: &Kept, names: impl Iterator<Item = String>) -> String {
    let (mut days, mut rounds, mut missing) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for name in names {
        match kept.measured.get(&name) {
            Some(m) => {
                days.insert(m.day.as_str());
                rounds.insert(m.rounds);
            }
            None => missing.push(name),
        }
    }
    let mut text = String::new();
    let days: Vec<_> = days.into_iter().collect();
    if let (Some(first), Some(last)) = (days.first(), days.last()) {
        let rounds = rounds.iter().map(ToString::to_string).collect::<Vec<_>>();
        let until = if first == last {
            String::new()
        } else {
            format!(" to {last}")
        };
        let _ = writeln!(
            text,
            "Measured on {first}{until}, {} rounds a row.",
            rounds.join(" or ")
        );
    }
    if !missing.is_empty() {
        let _ = writeln!(text, "Not measured: {}.", missing.join(", "));
    }
    text.push('\n');
    text
}

/// The section of `--engine order`, with all that is behind its figures.
fn of_order(kept: &Kept) -> String {
    let order = rows_of(kept, order_names());
    let events = kept.rows(events::NAME);
    let mut text = String::from(ORDER);
    text.push_str(&when(kept, order_names().chain([events::NAME.to_string()])));
    text.push_str(&table(&order));
    text.push_str("\nWhat the log takes, compressed:\n\n");
    text.push_str(&logs(&order));
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
fn of_debugger(kept: &Kept) -> String {
    let names = [debug::NAME.to_string()].into_iter();
    let text = String::from(DEBUGGING) + &when(kept, names);
    text + &single(kept.rows(debug::NAME))
}

/// The section of `reprise run`.
fn of_det(kept: &Kept) -> String {
    let names = || det::names().map(|r| format!("{}/{r}", det::NAME));
    let text = String::from(DET) + &when(kept, names());
    text + &single(&rows_of(kept, names()))
}

/// Rows that have figures of one kind each, and their notes.
pub fn single(rows: &[Row]) -> String {
    let mut text = String::from("| what | figure | bar | |\n|---|---|---|---|\n");
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
        let n = |v: f64| number(v, &r.unit);
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

Made from `benches/figures.json`, which only `cargo bench -p reprise-bench -- --bless` writes; not by hand. Nothing is measured while other processes want to run.

    cargo bench -p reprise-bench                                # everything, printed only
    cargo bench -p reprise-bench -- --bless                     # everything, and this file anew: about an hour
    cargo bench -p reprise-bench -- --only sort --only order/fft --bless    # some rows anew, with the day on which that was
    cargo bench -p reprise-bench -- --quick                     # one round a row, printed only
    cargo bench -p reprise-bench -- --only kernels --engine serial    # parallel kernels (tests/guests/kernels), printed only

Each round of a row runs its command natively, recorded (`reprise record -q -- COMMAND`) and replayed (`reprise replay`), one after
the other; figures are medians over the rounds, against the native median of the same run. Programs with threads are compared with
themselves on one processor where recording gives them one. Times are those of whole commands, from start to end;
processor time is that of all processes of a command, Reprise's own included. Every replay's output is compared with its recording's.
";

const ORDER: &str = "
## With `--engine order`

Threads run on all processors, natively and recorded. Kernels (tests/guests/kernels) run with 2 threads at their large size, some seconds, so that
what every recording costs once (the first row) counts little; the bar of each follows from how often it synchronises. Kernels of a file (tests/guests/of_a_file.c)
read it by pread(2) from the page cache, after a recording that has made the copy to which events refer. Servers are built
from Debian's sources by `reprise cc`; their clients have the same processors.

    cargo bench -p reprise-bench -- --only order --only events --bless    # this section anew; --quick: with one round a row, printed only
    cargo bench -p reprise-bench -- --only order/memcached    # one row of it
    cargo bench -p reprise-bench -- --only events             # what one event costs

";

const DET: &str = "
## With `reprise run`

Programs that run deterministically (DThreads), against themselves with pthreads, two threads: kernels of the shapes and sizes that the original Dthreads was measured with.
The second figure of a row is how many times as fast two threads are as one.

    cargo bench -p reprise-bench -- --only det --bless        # this section anew; --quick: with one round a row, printed only
    cargo bench -p reprise-bench -- --only det/histogram      # one row of it

";

const DEBUGGING: &str = "
## Debugging

What gdb waits for on a recording of two threads that take turns at changing 16 MiB of memory (benches/guests/debugging.c), from `reprise replay -d` on.

    cargo bench -p reprise-bench -- --only debug --bless      # this section anew; --quick: of a shorter recording, printed only

";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::Measured;

    #[test]
    fn what_was_not_measured_is_said() {
        let measured = |day: &str, rounds| Measured {
            day: day.into(),
            rounds,
            rows: Vec::new(),
        };
        let mut kept = Kept::default();
        kept.measured.insert("a".into(), measured("2026-01-02", 5));
        kept.measured.insert("b".into(), measured("2026-01-01", 3));
        let names = ["a", "b", "c"].map(str::to_string);
        assert_eq!(
            when(&kept, names.into_iter()),
            "Measured on 2026-01-01 to 2026-01-02, 3 or 5 rounds a row.\nNot measured: c.\n\n"
        );
    }
}
