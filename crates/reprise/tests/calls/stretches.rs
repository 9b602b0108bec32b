//! Stretches of a run that the program has named (`include/reprise.h`): listed, and gone to by the debugger.

use crate::common;

use common::gdb::{assert_said, said, session};
use common::{run, Guest, Workplace, OWN_FAILURE};
use std::path::Path;

guests! { stretches }

fn listed(place: &Workplace, dir: &Path) -> Vec<serde_json::Value> {
    let out = run(place.reprise(["stretches", "--json"]).arg(dir), None);
    assert!(out.status.success(), "{}", out.describe());
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn they_are_listed(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("stretches"), flags);
    let all = listed(&place, &trace.dir);
    let find = |name: &str| {
        let found = all.iter().find(|s| s["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {all:?}"))
    };
    let of = |name: &str, what: &str| find(name)[what].as_u64();
    assert_eq!(all.len(), 5, "{all:?}");
    let (outer, inner) = ("load", "parse: \u{e4}");
    assert!(of(outer, "first_event") < of(inner, "first_event"));
    assert!(of(inner, "first_event") < of(inner, "last_event"));
    assert!(of(inner, "last_event") < of(outer, "last_event"));
    assert_eq!(of("rest", "last_event"), None);
    let (one, two, main) = (
        of("thread one", "tid"),
        of("thread two", "tid"),
        of(outer, "tid"),
    );
    assert!(one != two && one != main && two != main, "{all:?}");
    assert_eq!(of("thread one", "pid"), main);
    let text = run(place.reprise(["stretches"]).arg(&trace.dir), None).text();
    assert!(text.lines().any(|l| l.ends_with("  thread two")), "{text}");
}

#[test]
fn they_are_listed_of_serial() {
    they_are_listed(&[]);
}

#[test]
fn they_are_listed_of_order() {
    they_are_listed(&["--engine", "order"]);
}

#[test]
fn a_program_that_names_none_has_none() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("hello"));
    assert!(listed(&place, &trace.dir).is_empty());
}

#[test]
fn a_session_begins_where_a_stretch_does() {
    a_session_begins_there(&[]);
}

#[test]
fn a_session_begins_where_a_stretch_does_of_order() {
    a_session_begins_there(&["--engine", "order"]);
}

fn a_session_begins_there(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("stretches"), flags);
    let at = ["--at", "stretch:parse: \u{e4}"];
    let commands = [
        "print sum",
        "backtrace",
        "break work",
        "continue",
        "print n",
        "reverse-continue",
        "print n",
    ];
    let found = session(&place, &trace.dir, &at, &commands);
    assert_said(
        &found,
        &[
            "$1 = 10",
            "reprise_begin (name=",
            "main ()",
            "$2 = 20",
            "$3 = 10",
        ],
    );
    let none = session(&place, &trace.dir, &["--at", "stretch:other"], &[]);
    assert_eq!(none.status.code(), Some(OWN_FAILURE), "{}", said(&none));
    assert!(
        said(&none).contains("no stretch `other`"),
        "{}",
        said(&none)
    );
}
