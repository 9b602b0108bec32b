//! `reprise races`: what two threads do to the same memory without any order is found, with both stacks, and nothing else is.

use crate::common;

use common::{check_times, knob, run, sources, Guest, Recording, Run, Workplace};
use std::path::PathBuf;

/// Exit status when a race was found.
const FOUND: i32 = 66;

/// Builds a program of `tests/guests/races`. The cache of objects is the workplace's own.
fn build(place: &Workplace, wrapper: &str, name: &str, flags: &[&str]) -> PathBuf {
    let source = sources().join("races").join(name);
    let (stem, _) = name.split_once('.').expect("an extension");
    let program = place.path().join(stem);
    let mut command = place.reprise([wrapper]);
    command.args(flags).args(["-pthread", "-mcx16"]);
    command.arg(&source).arg("-o").arg(&program);
    command.env("XDG_CACHE_HOME", place.path().join("cache"));
    let out = run(&mut command, None);
    assert!(out.status.success(), "{}", out.describe());
    program
}

fn built(place: &Workplace, name: &str, level: &str) -> PathBuf {
    build(place, "cc", name, &["--races", level])
}

fn record(place: &Workplace, program: &PathBuf, kind: &str) -> Recording {
    let guest = Guest::program(program).args([kind]);
    let recording = place.record_with(&guest, &["--engine", "order"]);
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    recording
}

fn races(place: &Workplace, recording: &Recording, flags: &[&str]) -> Run {
    let mut command = place.reprise(["races"]);
    run(command.arg(&recording.dir).args(flags), None)
}

/// Kinds of `ordered.c`, each of them a way to order all accesses.
const ORDERED: [&str; 33] = [
    "mutex",
    "trylock",
    "recursive",
    "robust",
    "robust-orphan",
    "c11",
    "spin",
    "cond",
    "sem",
    "handover",
    "barrier",
    "rwlock",
    "once",
    "joins",
    "release",
    "fence",
    "count",
    "owners",
    "reset",
    "exchange",
    "wide",
    "sees-or-not",
    "pipe",
    "socketpair",
    "epoll",
    "eventfd",
    "signal",
    "handler",
    "blocks",
    "handed-on",
    "stacks",
    "beside",
    "endless",
];

fn ordered(level: &str) {
    let place = Workplace::new();
    let program = built(&place, "ordered.c", level);
    let mut failures = Vec::new();
    for kind in ORDERED {
        let recording = record(&place, &program, kind);
        let out = races(&place, &recording, &[]);
        if out.status.code() != Some(0) || !out.text().starts_with("no race: ") {
            failures.push(format!("{kind}: {}", out.describe()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn what_is_ordered_is_no_race() {
    ordered("-O0");
}

#[test]
fn what_is_ordered_is_no_race_in_optimised_code() {
    ordered("-O2");
}

/// A kind of `unordered.c`: the variable, if it has a name; the functions that access it, of which the first may be that of either thread; and
/// words of the report.
type Unordered = (
    &'static str,
    &'static str,
    [&'static [&'static str]; 2],
    &'static [&'static str],
);

const UNORDERED: [Unordered; 18] = [
    ("plain", "(shared)", [&["add", "plainly"]; 2], &["4 bytes"]),
    (
        "read",
        "(shared)",
        [&["add", "plainly"], &["only_reads"]],
        &["read"],
    ),
    (
        "one-side",
        "(shared)",
        [&["add", "plainly"], &["add", "locked"]],
        &[],
    ),
    (
        "two-locks",
        "(shared)",
        [&["add", "otherwise_locked"], &["add", "locked"]],
        &[],
    ),
    // The same instruction, by two ways.
    (
        "two-ways",
        "(shared)",
        [
            &["add", "left", "goes_left"],
            &["add", "right", "goes_right"],
        ],
        &[],
    ),
    (
        "read-lock",
        "(shared)",
        [&["add", "reads_and_changes"]; 2],
        &[],
    ),
    ("heap", "", [&["on_heap"]; 2], &["4 bytes"]),
    ("copy", "(bytes", [&["copies"], &["fills"]], &[]),
    ("free", "", [&["uses"], &["frees"]], &["64 bytes"]),
    (
        "plain-flag",
        "(plain_flag)",
        [&["publishes_plainly"], &["sees_plainly"]],
        &[],
    ),
    (
        "flag-awaited",
        "(plain_flag)",
        [&["publishes_plainly"], &["sees_plainly"]],
        &[],
    ),
    // The replay leaves the recorded path before the race is complete.
    (
        "astray",
        "(shared)",
        [&["reads_late"], &["add", "plainly"]],
        &[],
    ),
    (
        "relaxed",
        "(shared)",
        [&["add", "publishes_relaxed"], &["add", "sees_relaxed"]],
        &[],
    ),
    (
        "log",
        "(shared)",
        [&["add", "logs"], &["add", "logs_first"]],
        &[],
    ),
    (
        "unset",
        "(shared)",
        [&["add", "looks_and_goes_on"], &["add", "sets_later"]],
        &[],
    ),
    (
        "mixed",
        "(mixed)",
        [&["atomically"], &["not_atomically"]],
        &["by an atomic operation"],
    ),
    ("stack", "", [&["on_a_stack"]; 2], &[]),
    (
        "create",
        "(shared)",
        [&["add", "plainly"], &["add", "main"]],
        &[],
    ),
];

/// The names of the functions on both stacks of the first race.
fn stacks(text: &str) -> Vec<Vec<String>> {
    let mut stacks: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with('#') {
            let name = line.split_whitespace().nth(1).expect("a name");
            stacks.last_mut().expect("a thread").push(name.into());
        } else if line.starts_with("thread ") || line.starts_with("the main thread") {
            stacks.push(Vec::new());
        }
    }
    stacks
}

fn unordered(level: &str) {
    let place = Workplace::new();
    let program = built(&place, "unordered.c", level);
    let mut failures = Vec::new();
    for (kind, variable, functions, words) in UNORDERED {
        let recording = record(&place, &program, kind);
        let out = races(&place, &recording, &[]);
        let text = out.text();
        let found = stacks(&text);
        let fit = |a: usize, b: usize| {
            let begins = |i: usize, with: &[&str]| {
                found.get(i).is_some_and(|s: &Vec<String>| {
                    s.iter()
                        .map(String::as_str)
                        .take(with.len())
                        .eq(with.iter().copied())
                })
            };
            begins(a, functions[0]) && begins(b, functions[1])
        };
        let good = out.status.code() == Some(FOUND)
            && found.len() == 2
            && (fit(0, 1) || fit(1, 0))
            && text.contains(variable)
            && text.contains("unordered.c:")
            && words.iter().all(|w| text.contains(w));
        if !good {
            failures.push(format!("{kind}: {}", out.describe()));
        }
        // Every look says the same.
        let again = races(&place, &recording, &[]);
        if again.text() != text {
            failures.push(format!("{kind}, once more: {}", again.describe()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn what_nothing_orders_is_found() {
    unordered("-O0");
}

/// Functions that were inlined are on the stacks all the same.
#[test]
fn what_nothing_orders_is_found_in_optimised_code() {
    unordered("-O2");
}

#[test]
fn the_library_of_cxx() {
    let place = Workplace::new();
    for level in ["-O0", "-O2"] {
        let flags = ["--races", "-std=c++17", level];
        let program = build(&place, "c++", "threads.cpp", &flags);
        let out = races(&place, &record(&place, &program, "all"), &[]);
        assert_eq!(out.status.code(), Some(0), "{}", out.describe());
        let out = races(&place, &record(&place, &program, "racy"), &[]);
        assert_eq!(out.status.code(), Some(FOUND), "{}", out.describe());
        assert!(out.text().contains("(racy)"), "{}", out.describe());
        assert!(out.text().contains("threads.cpp:"), "{}", out.describe());
    }
}

/// All of them, as data.
#[test]
fn all_races_as_json() {
    let place = Workplace::new();
    let program = built(&place, "unordered.c", "-O0");
    let recording = record(&place, &program, "plain-flag");
    let out = races(&place, &recording, &["--all", "--json"]);
    assert_eq!(out.status.code(), Some(FOUND), "{}", out.describe());
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert!(all["incomplete"].is_null(), "{all}");
    let races = all["races"].as_array().expect("a list");
    let names: Vec<_> = races.iter().map(|r| r["variable"].as_str()).collect();
    assert_eq!(names, [Some("plain_flag"), Some("shared")], "{all}");
    for r in races {
        for side in ["earlier", "later"] {
            let a = &r[side];
            assert_eq!(a["size"], 4, "{all}");
            assert!(a["event"].is_u64(), "{all}");
            let stack = a["stack"].as_array().expect("a stack");
            assert!(stack.len() > 1, "{all}");
        }
        let kinds = [&r["earlier"]["kind"], &r["later"]["kind"]];
        assert!(kinds.contains(&&"write".into()), "{all}");
    }
}

/// Who was not built for it, or was recorded by the wrong engine, is told what to do.
#[test]
fn what_cannot_be_looked_at_is_said() {
    let place = Workplace::new();
    let plain = build(&place, "cc", "unordered.c", &["-O1"]);
    let out = races(&place, &record(&place, &plain, "plain"), &[]);
    out.assert_own_failure(125);
    assert!(out.said().contains("reprise cc --races"), "{}", out.said());
    let guest = Guest::program(&plain).args(["plain"]);
    let serial = place.record_with(&guest, &["--engine", "serial"]);
    let out = races(&place, &serial, &[]);
    out.assert_own_failure(125);
    assert!(out.said().contains("--engine order"), "{}", out.said());
    let forks = place.record_with(&Guest::new("fork_wait"), &["--engine", "order"]);
    // Also of a recording that ended in its midst.
    for summary in [true, false] {
        if !summary {
            std::fs::remove_file(forks.dir.join(reprise_trace::SUMMARY_FILE)).expect("a summary");
        }
        let out = races(&place, &forks, &[]);
        out.assert_own_failure(125);
        assert!(out.said().contains("of one process"), "{}", out.said());
    }
    let mut cargo = place.reprise(["cargo", "--races", "build"]);
    let out = run(&mut cargo, None);
    out.assert_own_failure(125);
    assert!(out.said().contains("cc and c++"), "{}", out.said());
}

/// A program that was built for it is recorded and replayed as any other one, and is what it was without Reprise.
#[test]
fn what_is_built_for_it_runs_as_ever() {
    let place = Workplace::new();
    let recordings = knob("REPRISE_TEST_RECORDINGS", 2);
    let program = built(&place, "ordered.c", "-O2");
    for kind in ["mutex", "exchange", "barrier", "blocks"] {
        let guest = Guest::program(&program).args([kind]);
        let native = guest.native(&place);
        assert!(native.status.success(), "{}", native.describe());
        check_times(&guest, &["--engine", "order"], recordings, 2);
        check_times(&guest, &["--engine", "serial"], recordings, 1);
    }
}
