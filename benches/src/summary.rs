//! The summary on top of the document: one row a workload, one column an engine or another tool.

use crate::figure::{median, Figure, Row, Side};
use crate::kept::Kept;
use crate::{det, order};
use std::fmt::Write;

/// A row of the summary: what it says, and the names under which the engines' rows are kept.
struct Workload {
    title: &'static str,
    serial: Option<&'static str>,
    order: Option<&'static str>,
    others: &'static str,
}

/// Programs; the kernels that have rows of both `order` and `run` follow by themselves.
const PROGRAMS: [Workload; 10] = [
    program("dd, a million calls", Some("dd"), None, "dd"),
    program("python3, one thread", Some("python"), None, "python3"),
    program("sort, 2 threads", Some("sort"), Some("sort"), "sort"),
    program(
        "pbzip2, 2 threads",
        Some("pbzip2"),
        Some("pbzip2"),
        "pbzip2",
    ),
    program("xz, 2 threads", Some("xz"), Some("xz"), ""),
    program(
        "memcached, throughput",
        Some("memcached"),
        Some("memcached"),
        "memcached",
    ),
    program("redis, throughput", Some("redis"), Some("redis"), ""),
    program("nginx, throughput", Some("nginx"), None, ""),
    program("PostgreSQL, throughput", Some("postgres"), None, ""),
    program("make -j4", Some("make"), None, ""),
];

const fn program(
    title: &'static str,
    serial: Option<&'static str>,
    order: Option<&'static str>,
    others: &'static str,
) -> Workload {
    Workload {
        title,
        serial,
        order,
        others,
    }
}

/// Kernels that both `order` and `run` have rows of: the kernel's name, and the row's of `run`.
const KERNELS: [(&str, &str); 10] = [
    ("histogram", "histogram_once"),
    ("kmeans", "kmeans_threads"),
    ("word_count", "word_count_sorted"),
    ("streamcluster", "streamcluster"),
    ("swaptions", "swaptions"),
    ("black_scholes", "black_scholes"),
    ("canneal", "canneal"),
    ("dedup", "dedup"),
    ("reverse_index", "reverse_index_sorted"),
    ("matrix_multiply", "matrix_multiply"),
];

/// Another tool, and what it took of the workloads that it was measured with. Tools that no package registry has were measured on another
/// machine of the same kind; their day is told with them.
struct Tool {
    name: &'static str,
    day: &'static str,
    times: &'static [(&'static str, &'static str)],
    otherwise: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool {
        name: "rr",
        day: "2026-11-21",
        times: &[],
        otherwise: "refuses",
    },
    Tool {
        name: "rr.soft",
        day: "2026-11-21",
        times: &[
            ("dd", "14×"),
            ("python3", "36×"),
            ("sort", "11×"),
            ("pbzip2", "15×"),
            ("memcached", "0.22"),
        ],
        otherwise: "-",
    },
    Tool {
        name: "Hermit",
        day: "2026-11-21",
        times: &[("dd", "850×"), ("pbzip2", "fails")],
        otherwise: "-",
    },
    Tool {
        name: "gdb",
        day: "2026-11-21",
        times: &[],
        otherwise: "-",
    },
];

/// The summary's text.
pub fn summary(kept: &Kept) -> String {
    let mut text = String::from(HEAD);
    text.push_str("| workload | native | serial | order | run |");
    for tool in &TOOLS {
        let _ = write!(text, " {} |", tool.name);
    }
    text.push_str("\n|---|---|---|---|---|---|---|---|---|\n");
    for w in &PROGRAMS {
        let serial = w.serial.map(str::to_string);
        let order = w.order.map(of_order);
        text.push_str(&line(kept, w.title, [serial, order, None], w.others));
    }
    for (kernel, of_det) in KERNELS {
        let det = Some(format!("{}/{of_det}", det::NAME));
        text.push_str(&line(kept, kernel, [None, Some(of_order(kernel)), det], ""));
    }
    text.push('\n');
    text.push_str(FOOT);
    let days = TOOLS.iter().map(|t| format!("{} on {}", t.name, t.day));
    let _ = writeln!(
        text,
        "Other tools: {}.",
        days.collect::<Vec<_>>().join(", ")
    );
    text
}

fn of_order(name: &str) -> String {
    format!("{}/{name}", order::NAME)
}

/// One line: the native time or rate, then what each engine made of it.
fn line(kept: &Kept, title: &str, engines: [Option<String>; 3], others: &str) -> String {
    let rows = engines.map(|name| name.and_then(|n| kept.rows(&n).first()));
    let native = rows.iter().flatten().find_map(|row| native_of(row));
    let native = native.unwrap_or_else(|| "-".into());
    let mut text = format!("| {title} | {native} |");
    for row in rows {
        let figure = row.and_then(|r| r.figures.iter().find(|f| f.side == Side::Record));
        let shown = figure.map_or("-".into(), Figure::shown);
        let _ = write!(text, " {shown} |");
    }
    for tool in &TOOLS {
        let found = tool.times.iter().find(|(name, _)| *name == others);
        let _ = write!(text, " {} |", found.map_or(tool.otherwise, |(_, t)| t));
    }
    text.push('\n');
    text
}

/// What the native runs of a row came to.
fn native_of(row: &Row) -> Option<String> {
    let runs = row.runs.iter().find(|r| r.name == "native")?;
    let value = median(&runs.values);
    Some(match runs.unit.as_ref() {
        "s" => format!("{value:.2} s"),
        unit => format!("{value:.0} {}", unit.replace("requests/s", "a second")),
    })
}

/// What the figures' units mean to a reader is said once.
const HEAD: &str = "
## Summary

What recording takes of a program's time (×, less is better) or leaves of a server's throughput (no sign, more is better). `serial` is compared with the
program on one processor, which is what it gets; `order` and `run` with the program on both.

";

const FOOT: &str = "\
rr refuses to start where there are no hardware performance counters; rr.soft is its fork with software counters (`-W`), whose replay hangs on a spinning thread; gdb's `record full` takes 50 µs an
instruction, and was not waited for.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ALL;

    #[test]
    fn every_name_in_the_summary_is_a_rows() {
        for w in &PROGRAMS {
            assert!(
                w.serial.is_none_or(|s| ALL.iter().any(|e| e.name == s)),
                "{}",
                w.title
            );
            assert!(
                w.order.is_none_or(|o| order::names().any(|n| n == o)),
                "{}",
                w.title
            );
        }
        for (kernel, of_det) in KERNELS {
            assert!(order::names().any(|n| n == kernel), "{kernel}");
            assert!(det::names().any(|n| n == of_det), "{of_det}");
        }
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let text = line(&Kept::default(), "dd", [Some("dd".into()), None, None], "");
        assert_eq!(text, "| dd | - | - | - | - | refuses | - | - | - |\n");
    }
}
