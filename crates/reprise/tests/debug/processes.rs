//! `replay -d` on process trees: a process that becomes another program, and one that is not the first.

use crate::common;

use common::gdb::{assert_said, said, session, states};
use common::{run, Guest, Outcome, Recording, Workplace, OWN_FAILURE};

guests! { debugged_exec }

const NO_MORE: &str = "No more reverse-execution history";

fn recorded(place: &Workplace, args: &[&str], ends: Outcome) -> Recording {
    let guest = Guest::new("debugged_exec").args(args.iter().copied());
    place.record(&guest.ends(ends))
}

/// The ids of all processes, in the order of their births.
fn processes(place: &Workplace, trace: &Recording) -> Vec<String> {
    let listed = run(place.reprise(["ps", "--json"]).arg(&trace.dir), None);
    let all: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let list = all.as_array().expect("a list");
    list.iter().map(|p| p["pid"].to_string()).collect()
}

#[test]
fn a_session_goes_on_in_the_program_that_a_process_becomes() {
    let place = Workplace::new();
    let trace = recorded(&place, &["self"], Outcome::Exit(0));
    let run = session(
        &place,
        &trace.dir,
        &[],
        &[
            "break prepare",
            "continue",
            "print prepared",
            "delete",
            "set breakpoint pending on",
            "break deposit",
            "continue",
            "backtrace",
            "print total",
            "info threads",
            "finish",
            "print total",
            "delete",
            "continue",
        ],
    );
    assert_said(
        &run,
        &[
            "Breakpoint 1, prepare (amount=1)",
            "$1 = 0",
            "is executing new program: ",
            "bin/debugged",
            "hit Breakpoint 2",
            "deposit (amount=",
            "in saver (arg=",
            "$2 = 0",
            "saver (arg=",
            "$3 = ",
            "total 15",
            NO_MORE,
        ],
    );
}

#[test]
fn one_goes_back_from_the_crash_of_one_program_into_the_one_before() {
    let place = Workplace::new();
    let crash = Outcome::Signal(libc::SIGSEGV);
    let trace = recorded(&place, &["self", "crash"], crash);
    let run = session(
        &place,
        &trace.dir,
        &["--at", "crash"],
        &[
            "backtrace",
            "watch balance",
            "reverse-continue",
            "backtrace 1",
            "delete",
            "break main",
            "reverse-continue",
            "info symbol $pc",
            "set breakpoint pending on",
            "break prepare",
            "reverse-continue",
            "print amount",
            "print prepared",
            "reverse-continue",
            "print amount",
            "delete",
            "reverse-continue",
            "when",
            // And forward again, to where it came from.
            "continue",
        ],
    );
    assert_said(
        &run,
        &[
            "check (what=1)",
            "main (argc=2",
            "New value = 100",
            "spoil (what=",
            "hit Breakpoint 2, main (argc=2",
            "debugged_exec",
            "prepare (amount=3)",
            "$1 = 3",
            "$2 = 3",
            "prepare (amount=2)",
            "$3 = 2",
            NO_MORE,
            "event 0 of",
            "received signal SIGSEGV",
        ],
    );
}

#[test]
fn the_state_is_the_same_on_both_sides_of_an_exec_from_wherever_it_is_come_to() {
    let place = Workplace::new();
    let trace = recorded(&place, &["self"], Outcome::Exit(0));
    let dump = run(
        place
            .reprise(["dump", "--kind", "exec", "--json"])
            .arg(&trace.dir),
        None,
    );
    let line = dump.text();
    let event: serde_json::Value =
        serde_json::from_str(line.lines().next().expect("an exec")).expect("JSON");
    let exec = event["event"].as_u64().expect("its number");
    let way = [
        exec,
        exec + 1,
        exec + 20,
        exec - 5,
        exec,
        exec + 20,
        exec + 1,
    ];
    // At least one on each side.
    let there = states(&place, &trace.dir, "start", &way, 2);
    assert_eq!(there[0], there[4]);
    assert_eq!(there[1], there[6]);
    assert_eq!(there[2], there[5]);
    let there_from_the_end = states(&place, &trace.dir, "end", &way, 2);
    assert_eq!(there, there_from_the_end);
}

#[test]
fn a_child_is_debugged_from_its_birth() {
    let place = Workplace::new();
    let trace = recorded(&place, &["both"], Outcome::Exit(7));
    let pids = processes(&place, &trace);
    let commands = [
        "print prepared",
        "break prepare",
        "continue",
        "backtrace",
        "finish",
        "print prepared",
        "reverse-continue",
        "print prepared",
        "reverse-continue",
        "continue",
        "delete",
        "continue",
    ];
    let run = session(&place, &trace.dir, &["--pid", &pids[1]], &commands);
    assert_said(
        &run,
        &[
            "$1 = 6",
            "Breakpoint 1, prepare (amount=1)",
            "in_child (amount=1)",
            "main (argc=2",
            "$2 = 7",
            "Breakpoint 1, prepare (amount=1)",
            "$3 = 6",
            NO_MORE,
            "Breakpoint 1, prepare (amount=1)",
            NO_MORE,
        ],
    );
    // The parent waits for it, and says what it was told.
    let commands = ["break in_parent", "continue", "print status >> 8", "finish"];
    let run = session(&place, &trace.dir, &["--pid", &pids[0]], &commands);
    assert_said(
        &run,
        &["in_parent (status=", "$1 = 7", "Value returned is $2 = 7"],
    );
}

#[test]
fn a_child_is_debugged_on_when_it_becomes_another_program() {
    let place = Workplace::new();
    let trace = recorded(&place, &["child"], Outcome::Exit(0));
    let pids = processes(&place, &trace);
    let commands = [
        "set breakpoint pending on",
        "break deposit",
        "continue",
        "print total",
        "continue",
        "print total > 0",
        "reverse-continue",
        "print total",
        "delete",
        "break in_child",
        "reverse-continue",
        "backtrace",
        "delete",
        "continue",
    ];
    let run = session(&place, &trace.dir, &["--pid", &pids[1]], &commands);
    assert_said(
        &run,
        &[
            "is executing new program: ",
            "deposit (amount=",
            "$1 = 0",
            "deposit (amount=",
            "$2 = 1",
            "deposit (amount=",
            "$3 = 0",
            "in_child (amount=1)",
            "main (argc=2",
            "total 15",
            NO_MORE,
        ],
    );
}

#[test]
fn who_is_not_there_is_said() {
    let place = Workplace::new();
    let trace = recorded(&place, &["both"], Outcome::Exit(7));
    let nobody = session(&place, &trace.dir, &["--pid", "1"], &[]);
    assert_eq!(nobody.status.code(), Some(OWN_FAILURE), "{}", said(&nobody));
    assert!(said(&nobody).contains("no process 1"), "{}", said(&nobody));
    let pids = processes(&place, &trace);
    let early = session(&place, &trace.dir, &["--pid", &pids[1], "--at", "1"], &[]);
    assert_eq!(early.status.code(), Some(OWN_FAILURE), "{}", said(&early));
    assert!(
        said(&early).contains("this process begins at event "),
        "{}",
        said(&early)
    );
}

/// A child that crashed while its parent went on: what is asked without a session is told of it as of the first process.
#[test]
fn a_child_that_crashed_is_asked_without_a_session() {
    let place = Workplace::new();
    let trace = place.record(&Guest::new("crash_of_one"));
    let listed = run(place.reprise(["ps", "--json"]).arg(&trace.dir), None);
    let all: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let is_it = |p: &&serde_json::Value| p["exit"] == "killed by SIGSEGV";
    let crashed = all.as_array().expect("a list").iter().find(is_it);
    let pid = crashed.expect("one that crashed")["pid"].to_string();
    let hint = format!("debug it there with: reprise replay -d --pid {pid} --at crash ");
    assert!(trace.run.said().contains(&hint), "{}", trace.run.describe());
    let asked = |args: &[&str]| {
        let mut command = place.reprise(args);
        let answer = run(command.arg(&trace.dir), None);
        assert!(answer.status.success(), "{}", answer.describe());
        answer.text()
    };
    let stack = asked(&["backtrace", "--pid", &pid]);
    assert!(
        stack.starts_with(&format!("thread {pid} (stopped)\n  #0  work at ")),
        "{stack}"
    );
    let printed = asked(&["replay", "--print", "work", "me", "--pid", &pid]);
    assert!(printed.ends_with("work: me = 5\n"), "{printed}");
    let file = place.fresh("core");
    let to = file.to_str().expect("a plain name");
    asked(&["core", "-q", "--pid", &pid, "-o", to, "crash"]);
    assert!(file.metadata().expect("a core file").len() > 0);
    let unknown = ["backtrace", "--pid", "1"];
    run(place.reprise(unknown).arg(&trace.dir), None).assert_own_failure(OWN_FAILURE);
}
