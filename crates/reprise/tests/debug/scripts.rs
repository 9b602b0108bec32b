//! What the debugger does without a session: the way from a recorded crash to it, core files, expressions printed in retrospect.

use crate::common;

use common::gdb::assert_said;
use common::{built, run, Guest, Outcome, Run, Workplace, REPRISE};
use std::process::Command;

/// How often the guest's threads call `deposit`.
const DEPOSITS: usize = 10;

/// Runs `reprise` with these arguments.
fn reprise(place: &Workplace, arguments: &[&str]) -> Run {
    let mut command = Command::new(REPRISE);
    place.settle(&mut command);
    let run = run(command.args(arguments), None);
    run.assert_civil();
    run
}

const ORDER: &[&str] = &["--engine", "order"];

#[test]
fn a_recorded_crash_says_how_to_debug_it() {
    a_crash_says_how_to_debug_it(&[]);
}

#[test]
fn a_crash_recorded_by_order_says_how_to_debug_it() {
    a_crash_says_how_to_debug_it(ORDER);
}

fn a_crash_says_how_to_debug_it(flags: &[&str]) {
    let place = Workplace::new();
    // A shell must be able to read the name.
    let dir = place.path().join("it's crashed");
    let mut command = Command::new(REPRISE);
    place.settle(&mut command);
    command.args(["record", "-o"]).arg(&dir).args(flags);
    command.arg(built("debugged")).arg("crash");
    let recorded = run(&mut command, None);
    let text = recorded.said();
    let hint = text.split("debug it there with: reprise ").nth(1);
    let Some(hint) = hint.and_then(|h| h.lines().next()) else {
        panic!("no hint: {text}");
    };
    let mut command = Command::new("sh");
    place.settle(&mut command);
    command.args([
        "-c",
        &format!("'{REPRISE}' {hint} -- -nx -batch -ex backtrace"),
    ]);
    let debugged = run(&mut command, None);
    assert_said(&debugged, &["#0  ", "check (what=1)"]);
}

#[test]
fn a_core_file_shows_the_program_at_an_event() {
    a_core_file_shows_the_program(&[]);
}

#[test]
fn a_core_file_shows_a_program_recorded_by_order() {
    a_core_file_shows_the_program(ORDER);
}

fn a_core_file_shows_the_program(flags: &[&str]) {
    let place = Workplace::new();
    let crash = Outcome::Signal(libc::SIGSEGV);
    let guest = Guest::new("debugged").args(["crash"]).ends(crash);
    let trace = place.record_with(&guest, flags);
    let dir = trace.dir.to_string_lossy();
    let file = place.path().join("core of it");
    let wanted = file.to_string_lossy();
    let made = reprise(&place, &["core", "crash", &dir, "-o", &wanted]);
    assert!(made.status.success(), "{}", made.describe());
    let mut command = Command::new("gdb");
    place.settle(&mut command);
    command.args(["-nx", "-batch", "-ex", "backtrace", "-ex", "print balance"]);
    let shown = run(command.arg(built("debugged")).arg(&file), None);
    assert_said(
        &shown,
        &["#0  ", "check (what=1)", "#1  ", "main (argc=2", "$1 = -7"],
    );
    // At an event in the midst: both threads are there, or one that has just begun.
    let middle = reprise(&place, &["core", "60", &dir, "-o", &wanted]);
    assert!(middle.status.success(), "{}", middle.describe());
    let mut command = Command::new("gdb");
    place.settle(&mut command);
    command.args([
        "-nx",
        "-batch",
        "-ex",
        "print balance",
        "-ex",
        "info threads",
    ]);
    let shown = run(command.arg(built("debugged")).arg(&file), None);
    assert_said(&shown, &["$1 = ", "* 1 "]);
    let none = reprise(&place, &["core", "999999999", &dir, "-o", &wanted]);
    assert!(!none.status.success());
    assert!(
        none.said().contains("no event 999999999"),
        "{}",
        none.said()
    );
}

#[test]
fn an_expression_is_printed_whenever_a_line_is_passed() {
    an_expression_is_printed(&[]);
}

#[test]
fn an_expression_is_printed_of_a_recording_by_order() {
    an_expression_is_printed(ORDER);
}

fn an_expression_is_printed(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("debugged"), flags);
    let dir = trace.dir.to_string_lossy();
    let printed = reprise(&place, &["replay", "--print", "deposit", "total", &dir]);
    assert!(printed.status.success(), "{}", printed.describe());
    let text = printed.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), DEPOSITS, "{text}");
    assert!(lines[0].ends_with("deposit: total = 0"), "{text}");
    let last = lines[DEPOSITS - 1];
    assert!(
        last.starts_with("event ") && last.contains("  thread "),
        "{text}"
    );
    // What the program itself writes is left out.
    assert!(!text.contains("total 15"), "{text}");
    let wrong = reprise(
        &place,
        &["replay", "--print", "nowhere.c:12", "total", &dir],
    );
    assert!(!wrong.status.success());
    assert!(wrong.said().contains("nowhere.c"), "{}", wrong.said());
}
