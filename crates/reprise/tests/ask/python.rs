//! Stacks of Python beside native ones: `backtrace` of threads that have C between their functions, at a crash and elsewhere, of each interpreter that there is;
//! and of an interpreter whose structures are damaged.

use crate::common;

use common::{pythons, run, skip, Guest, Outcome, Recording, Workplace};
use serde_json::Value;
use std::path::{Path, PathBuf};

guests! { debugged_python }

/// What the guest is called in its own file.
const SCRIPT: &str = "debugged_python.py";

fn script() -> PathBuf {
    common::sources().join(SCRIPT)
}

/// The number of the guest's line that has this text.
fn line_with(text: &str) -> u64 {
    let all = std::fs::read_to_string(script()).expect("a guest's source");
    let at = all.lines().position(|l| l.contains(text));
    at.expect("a line") as u64 + 1
}

fn recorded(place: &Workplace, python: &Path, how: &str) -> Recording {
    let guest = Guest::program(python).args([script().into_os_string(), how.into()]);
    let trace = place.record(&guest.ends(Outcome::Signal(libc::SIGABRT)));
    let is_so = Outcome::Signal(libc::SIGABRT).fits(trace.run.status);
    assert!(is_so, "{}", trace.run.describe());
    trace
}

fn text(place: &Workplace, dir: &Path, more: &[&str]) -> String {
    let mut command = place.reprise(["backtrace"]);
    let run = run(command.arg(dir).args(more), None);
    assert!(run.status.success(), "{}", run.describe());
    run.text()
}

/// All threads, as JSON.
fn threads(place: &Workplace, dir: &Path, more: &[&str]) -> Vec<Value> {
    let more: Vec<&str> = more.iter().copied().chain(["--json"]).collect();
    let told: Value = serde_json::from_str(&text(place, dir, &more)).expect("JSON");
    told["threads"].as_array().expect("threads").clone()
}

/// Python's functions of a thread, innermost first.
fn functions(thread: &Value) -> Vec<Value> {
    let frames = thread["frames"].as_array().expect("frames").iter();
    let of_one = |f: &Value| f["python"].as_array().cloned().unwrap_or_default();
    frames.flat_map(of_one).collect()
}

fn names(thread: &Value) -> Vec<String> {
    let name = |f: &Value| f["function"].as_str().expect("a name").to_string();
    functions(thread).iter().map(name).collect()
}

/// The thread in which this function is.
fn thread_with<'a>(threads: &'a [Value], function: &str) -> &'a Value {
    let is_it = |t: &&Value| names(t).iter().any(|n| n == function);
    let found = threads.iter().find(is_it);
    found.unwrap_or_else(|| panic!("nobody is in {function}: {threads:?}"))
}

fn local(function: &Value, name: &str) -> String {
    let all = function["locals"].as_array().cloned().unwrap_or_default();
    let one = all.iter().find(|l| l["name"] == name);
    let one = one.unwrap_or_else(|| panic!("{name}: {function}"));
    one["value"].as_str().expect("a text").to_string()
}

/// The number of the event in which the guest says this.
fn event_of(place: &Workplace, dir: &Path, said: &str) -> u64 {
    let dump = run(place.reprise(["dump", "--json"]).arg(dir), None);
    let events = dump.text();
    let mut events = events
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
    let is_it = |e: &Value| {
        let text = e["text"].as_str().unwrap_or_default();
        text.starts_with("write(1") && text.contains(said)
    };
    let found = events.find(is_it).expect("an event");
    found["event"].as_u64().expect("a number")
}

/// Does this for each interpreter that there is.
fn with_each(test: impl Fn(&Workplace, &Path)) {
    let all = pythons();
    if all.is_empty() {
        return skip("python3 is older than 3.11, or not CPython");
    }
    for python in all {
        test(&Workplace::new(), &python);
    }
}

#[test]
fn functions_of_python_stand_where_they_run() {
    with_each(|place, python| {
        let trace = recorded(place, python, "abort");
        let all = threads(place, &trace.dir, &[]);
        assert_eq!(all[0]["stopped"], true);
        let functions = functions(&all[0]);
        let wanted = [
            ("compare", "here it aborts"),
            ("sort", "here it sorts"),
            ("lists", "here it yields"),
            ("work", "here it works"),
        ];
        for (function, (name, line)) in functions.iter().zip(wanted) {
            assert_eq!(function["function"], name, "{python:?} {functions:?}");
            assert_eq!(function["line"], line_with(line), "{python:?} {function}");
            let file = function["file"].as_str().expect("a file");
            assert_eq!(Path::new(file), script(), "{python:?}");
        }
        assert!(functions.len() > wanted.len(), "{functions:?}");
        assert_eq!(all[0]["python_is_cut"], Value::Null);
        // C is between those that it is between: the library's sort, and only this.
        let text = text(place, &trace.dir, &[]);
        let at = |what: &str| {
            let found = text.find(what);
            found.unwrap_or_else(|| panic!("{what}: {python:?} {text}"))
        };
        let order = ["abort ", "py  compare", "qsort_r ", "py  sort", "py  lists"];
        let places: Vec<usize> = order.iter().map(|what| at(what)).collect();
        assert!(places.is_sorted(), "{python:?} {places:?} {text}");
        let between = &text[at("py  sort")..at("py  lists")];
        assert!(!between.contains('#'), "{python:?} {between}");
        let loops = |one: &str, other: &str| {
            let between = &text[at(one)..at(other)];
            between.matches("_PyEval_EvalFrameDefault").count()
        };
        let has_names = text.contains("_PyEval_EvalFrameDefault");
        // A generator's function has a loop of its own in some versions.
        assert!(
            !has_names || loops("py  compare", "py  sort") == 1,
            "{text}"
        );
        assert!(!has_names || loops("py  lists", "py  work") <= 1, "{text}");
    });
}

#[test]
fn variables_of_python_are_shown() {
    with_each(|place, python| {
        let trace = recorded(place, python, "abort");
        let all = threads(place, &trace.dir, &[]);
        let of = |function: &str| {
            let functions = functions(thread_with(&all, function));
            let found = functions.into_iter().find(|f| f["function"] == function);
            found.expect("it is there")
        };
        let waits = of("wait_for");
        assert_eq!(waits["line"], line_with("here it waits"), "{python:?}");
        for (name, value) in [
            ("name", "'waiter'"),
            ("pi", "3.5"),
            ("big", "-1180591620717411303424"),
            ("small", "-7"),
            ("flag", "True"),
            ("text", "'it\\'s\\nü€\u{1F40D}'"),
            ("data", "b'\\x00\\'a'"),
            ("table", "{'one': [2, (3,), {4}], 'two': 1, 5: ()}"),
            ("numbers", "[0, 1, 2, 3, 4, 5, 6, 7, ... 92 more]"),
            ("kind", "<class int>"),
        ] {
            assert_eq!(local(&waits, name), value, "{python:?} {name}");
        }
        let event = local(&waits, "event");
        assert!(event.starts_with("<Event at 0x"), "{event}");
        // One that has none any more isn't shown.
        assert!(!waits.to_string().contains("\"nothing\""), "{waits}");
        let sorts = of("sort");
        assert_eq!(local(&sorts, "numbers"), "[30, 20, 10]");
        assert_eq!(local(&sorts, "label"), "'of a call'");
        assert_eq!(local(&sorts, "options"), "{'depth': 0}");
        // One that two functions share, before it is written again.
        assert_eq!(local(&of("work"), "total"), "0", "{python:?}");
        let said = text(place, &trace.dir, &[]);
        assert!(said.contains("\n        pi = 3.5\n"), "{said}");
    });
}

#[test]
fn stacks_of_python_are_told_at_any_event() {
    with_each(|place, python| {
        let trace = recorded(place, python, "abort");
        // Behind the call, before it returns.
        let event = (event_of(place, &trace.dir, "it begins") + 1).to_string();
        let all = threads(place, &trace.dir, &["--at", &event]);
        let begins = thread_with(&all, "say");
        assert_eq!(
            names(begins)[..3],
            ["say", "main", "<module>"],
            "{python:?}"
        );
        let functions = functions(begins);
        assert_eq!(
            functions[0]["line"],
            line_with("here it says"),
            "{python:?}"
        );
        assert_eq!(local(&functions[0], "text"), "b'it begins\\n'");
        // The other thread waits, and the one that sorts isn't there yet.
        assert_eq!(
            names(thread_with(&all, "wait_for")).last(),
            Some(&"Thread._bootstrap".into())
        );
        assert_eq!(all.len(), 2, "{all:?}");
        // At the beginning there is no interpreter.
        let all = threads(place, &trace.dir, &["--at", "0"]);
        assert!(all.iter().all(|t| names(t).is_empty()), "{all:?}");
    });
}

#[test]
fn a_damaged_interpreter_has_short_stacks() {
    with_each(|place, python| {
        for how in ["circle", "wild", "code"] {
            let trace = recorded(place, python, how);
            let all = threads(place, &trace.dir, &[]);
            let what = format!("{python:?} {how} {}", all[0]);
            match how {
                // What called it isn't known.
                "circle" | "wild" => {
                    assert_eq!(names(&all[0]), ["damage"], "{what}");
                    assert_eq!(all[0]["python_is_cut"], true, "{what}");
                    let said = text(place, &trace.dir, &[]);
                    assert!(said.contains("there are more"), "{said}");
                }
                // Only its file isn't.
                _ => {
                    let names = names(&all[0]);
                    assert_eq!(names[..3], ["damage", "compare", "sort"], "{what}");
                    assert_eq!(functions(&all[0])[0]["file"], "??", "{what}");
                }
            }
            let line = functions(&all[0])[0]["line"].clone();
            assert_eq!(line, line_with("here it is damaged"), "{what}");
            // Nobody else's is damaged.
            let others = names(thread_with(&all, "wait_for"));
            assert!(others.contains(&"Thread.run".to_string()), "{others:?}");
        }
    });
}

#[test]
fn nothing_of_python_is_told_of_other_programs() {
    let place = Workplace::new();
    let guest = Guest::new("asked").args(["crash"]);
    let trace = place.record(&guest.ends(Outcome::Signal(libc::SIGSEGV)));
    for thread in threads(&place, &trace.dir, &[]) {
        let keys: Vec<&String> = thread.as_object().expect("a thread").keys().collect();
        assert_eq!(keys, ["frames", "stopped", "thread"]);
        let known = ["file", "function", "line", "object", "pc"];
        for frame in thread["frames"].as_array().expect("frames") {
            let keys = frame.as_object().expect("a frame").keys();
            assert!(
                keys.into_iter().all(|k| known.contains(&k.as_str())),
                "{frame}"
            );
        }
    }
    let text = text(&place, &trace.dir, &[]);
    let is_usual = |l: &str| l.starts_with("thread ") || l.starts_with("  #");
    assert!(text.lines().all(is_usual), "{text}");
}
