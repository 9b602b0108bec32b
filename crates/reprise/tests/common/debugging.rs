//! Sessions of gdb that go the same way with recordings of every engine that can be debugged.
//!
//! Each is a test by itself: `flags` are those of `reprise record`, and it fails with what was said.

use super::gdb::{assert_said, said, session};
use super::{run, Guest, Outcome, Recording, Workplace, OWN_FAILURE};

/// A recording of the C guest.
pub fn recorded(place: &Workplace, argument: Option<&str>, flags: &[&str]) -> Recording {
    let ends = match argument {
        Some("crash") => Outcome::Signal(libc::SIGSEGV),
        Some("abort") => Outcome::Signal(libc::SIGABRT),
        _ => Outcome::Exit(0),
    };
    place.record_with(&Guest::new("debugged").args(argument).ends(ends), flags)
}

pub fn a_session_stops_at_breakpoints_and_shows_the_source(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = session(
        &place,
        &trace.dir,
        &[],
        &[
            "when",
            "break main",
            "continue",
            "print argc",
            "break deposit",
            "continue",
            "backtrace",
            "print amount",
            "next",
            "print total",
            "finish",
            "info threads",
            "delete",
            "continue",
        ],
    );
    assert_said(
        &run,
        &[
            "event 0 of",
            "Breakpoint 1, main (argc=1",
            "$1 = 1",
            "hit Breakpoint 2, deposit (amount=",
            "#1  ",
            "in saver (arg=",
            "start_thread",
            "$2 = ",
            "$3 = ",
            "saver (arg=",
            "* ",
            "total 15",
            "No more reverse-execution history",
        ],
    );
    // The amount is what was added.
    let value = |name: &str| {
        let all = run.text();
        let at = all.find(name).expect("a value") + name.len();
        all[at..].lines().next().map(str::to_string)
    };
    assert_eq!(value("$2 = "), value("$3 = "), "{}", run.text());
}

pub fn steps_go_over_gates(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let script = place.fresh("script");
    let lines = [
        "break syscall",
        "continue",
        // To the instruction itself, and over it.
        "while *(unsigned short *)$pc != 0x050f",
        "stepi",
        "end",
        "print/x *(unsigned short *)$pc",
        "print $from = (long)$pc",
        "stepi",
        "print (long)$pc - $from",
        "print $rax",
    ];
    std::fs::write(&script, lines.join("\n")).expect("a script");
    let source = format!("source {}", script.display());
    let run = session(&place, &trace.dir, &[], &[&source]);
    assert_said(&run, &["Breakpoint 1, ", "= 0x50f", "= 2\n", "= 0\n"]);
}

pub fn every_change_of_a_watched_variable_is_told(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let mut commands = vec!["break main", "continue", "watch total"];
    commands.extend(["continue"; 11]);
    let run = session(&place, &trace.dir, &[], &commands);
    let changes = run.text().matches("New value = ").count();
    assert_eq!(changes, 10, "{}", said(&run));
    assert_said(
        &run,
        &["Hardware watchpoint 2: total", "New value = 15", "total 15"],
    );
}

pub fn a_crash_is_shown_where_it_happens(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), flags);
    for flags in [&["--at", "crash"][..], &[]] {
        let run = session(
            &place,
            &trace.dir,
            flags,
            &["continue", "backtrace", "print balance", "continue"],
        );
        assert_said(
            &run,
            &[
                "check (what=1)",
                "here it crashes",
                "#0  ",
                "check (what=1)",
                "#1  ",
                "main (argc=2",
                "$1 = -7",
                "No more reverse-execution history",
            ],
        );
        if flags.is_empty() {
            assert_said(&run, &["received signal SIGSEGV"]);
        }
    }
}

pub fn an_abort_is_shown_in_its_call(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, Some("abort"), flags);
    let run = session(&place, &trace.dir, &[], &["continue", "backtrace"]);
    assert_said(
        &run,
        &[
            "received signal SIGABRT",
            "abort (",
            "check (what=2)",
            "main (argc=2",
        ],
    );
}

pub fn who_spoiled_a_variable_is_found_in_one_go(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), flags);
    let run = session(
        &place,
        &trace.dir,
        &["--at", "crash"],
        &[
            "print balance",
            "watch balance",
            "reverse-continue",
            "backtrace",
            "print balance",
        ],
    );
    assert_said(
        &run,
        &[
            "$1 = -7",
            "Old value = -7",
            "New value = 100",
            "spoil (what=",
            "here it is spoiled",
            "saver (arg=0x2)",
            "$2 = 100",
        ],
    );
}

pub fn every_way_back_leads_where_the_way_forward_came_from(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = session(
        &place,
        &trace.dir,
        &[],
        &[
            "break spoil",
            "continue",
            "print $a = (long)$pc",
            "stepi",
            "stepi",
            "print $c = (long)$pc",
            "reverse-stepi",
            "reverse-stepi",
            "print (long)$pc == $a",
            "next",
            "reverse-next",
            "print (long)$pc == $a",
            "reverse-finish",
            "delete",
            "next",
            "print balance",
            "reverse-next",
            "print balance",
            "next",
            "reverse-step",
            "info symbol $pc",
            "print balance",
        ],
    );
    assert_said(
        &run,
        &[
            "hit Breakpoint 1, spoil",
            "$3 = 1",
            "$4 = 1",
            "spoil(&balance)",
            "$5 = -7",
            "$6 = 100",
            "spoil + ",
            "$7 = -7",
        ],
    );
}

pub fn backward_stops_at_breakpoints_of_other_threads_and_at_the_beginning(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let mut commands = vec!["break deposit"];
    commands.extend(["reverse-continue"; 11]);
    commands.push("when");
    let run = session(&place, &trace.dir, &["--at", "end"], &commands);
    let hits = run.text().matches("hit Breakpoint 1, deposit").count();
    assert_eq!(hits, 10, "{}", said(&run));
    for amount in ["deposit (amount=1)", "deposit (amount=2)"] {
        assert_eq!(run.text().matches(amount).count(), 5, "{}", said(&run));
    }
    assert_said(&run, &["No more reverse-execution history", "event 0 of"]);
}

pub fn one_goes_to_an_event_forward_and_back(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = session(
        &place,
        &trace.dir,
        &["--at", "20"],
        &[
            "when",
            "run-to 30",
            "when",
            "run-to 10",
            "when",
            "break main",
            "continue",
            "run-to 20",
            "when",
        ],
    );
    assert_said(
        &run,
        &[
            "event 20 of",
            "event 30 of",
            "event 10 of",
            "Breakpoint 1, main",
            "event 20 of",
        ],
    );
}

pub fn a_program_writes_its_output_once_however_often_it_is_replayed(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = session(
        &place,
        &trace.dir,
        &["--at", "end"],
        &[
            "break deposit",
            "reverse-continue",
            "reverse-continue",
            "delete",
            "continue",
        ],
    );
    assert_eq!(run.text().matches("total 15").count(), 1, "{}", said(&run));
}

pub fn threads_and_containers_of_cpp_are_shown(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("debugged_cpp"), flags);
    let run = session(
        &place,
        &trace.dir,
        &[],
        &[
            "break Account::add if amount == 9",
            "continue",
            "print amount",
            "print this->entries._M_impl._M_finish - this->entries._M_impl._M_start",
            "info threads",
            "thread 1",
            "backtrace",
            "thread 2",
            "finish",
            "print account.entries._M_impl._M_finish - account.entries._M_impl._M_start",
            "reverse-continue",
            "print amount",
        ],
    );
    assert_said(
        &run,
        &[
            "Account::add",
            "$1 = 9",
            "$2 = 2",
            // It joins the thread, or is in the call that made it still: that is chance.
            "main ()",
            "$3 = 3",
            "$4 = 9",
        ],
    );
}

pub fn what_can_not_be_debugged_is_said(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = session(&place, &trace.dir, &["--at", "crash"], &[]);
    assert_eq!(run.status.code(), Some(OWN_FAILURE), "{}", said(&run));
    assert!(said(&run).contains("did not crash"), "{}", said(&run));
    let run = session(&place, &trace.dir, &["--at", "1000000"], &[]);
    assert_eq!(run.status.code(), Some(OWN_FAILURE), "{}", said(&run));
    assert!(said(&run).contains("no event 1000000"), "{}", said(&run));
}

pub fn a_first_thread_that_has_ended_holds_up_nobody(flags: &[&str]) {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("main_ends_first"), flags);
    let commands = [
        "watch main_thread",
        "reverse-continue",
        "backtrace",
        "continue",
    ];
    let run = session(&place, &trace.dir, &["--at", "end"], &commands);
    assert_said(
        &run,
        &[
            "Hardware watchpoint 1: main_thread",
            "New value = 0",
            "in main (argc=1",
            "Old value = 0",
        ],
    );
}

pub fn a_replay_can_not_be_changed(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = session(
        &place,
        &trace.dir,
        &[],
        &[
            "break deposit",
            "continue",
            "print $before = total",
            "print total = 99",
        ],
    );
    assert!(
        said(&run).contains("Cannot access memory"),
        "{}",
        said(&run)
    );
}

pub fn all_threads_are_printed_where_they_were(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), flags);
    let out = run(place.reprise(["backtrace"]).arg(&trace.dir), None);
    assert_eq!(out.status.code(), Some(0), "{}", out.describe());
    let lines: Vec<String> = out.text().lines().map(str::to_string).collect();
    assert!(lines[0].ends_with("(stopped)"), "{}", out.text());
    assert!(lines[1].starts_with("  #0  check at ") && lines[1].contains("debugged.c:"));
    assert!(lines[2].starts_with("  #1  main at "), "{}", out.text());
    // While both threads live.
    let json = run(
        place
            .reprise(["backtrace", "--json", "--at", "100"])
            .arg(&trace.dir),
        None,
    );
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let threads = json["threads"].as_array().expect("threads");
    assert!(
        !threads.is_empty() && threads[0]["stopped"] == true,
        "{json}"
    );
    let known = |t: &serde_json::Value| {
        let frames = t["frames"].as_array().expect("frames").clone();
        frames.iter().any(|f| f["function"].is_string())
    };
    assert!(threads.iter().all(known), "{json}");
}

pub fn a_write_that_led_here_is_taken_back(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), flags);
    let commands = [
        "watch balance",
        "reverse-continue",
        "stepi",
        "print balance",
        "reverse-continue",
        "print balance",
        "reverse-continue",
    ];
    let run = session(&place, &trace.dir, &["--at", "crash"], &commands);
    assert_said(
        &run,
        &[
            "New value = 100",
            "New value = -7",
            "$1 = -7",
            "Old value = -7",
            "New value = 100",
            "$2 = 100",
            "No more reverse-execution history",
        ],
    );
}

/// The guest whose places are passed tens of thousands of times.
fn recorded_conditions(place: &Workplace, flags: &[&str]) -> Recording {
    place.record_with(&Guest::new("debugged_conditions"), flags)
}

/// So many visits were stops of the program that nobody wanted.
fn false_stops(run: &super::Run) -> u64 {
    let text = run.text();
    let mut lines = text.lines().filter_map(|l| {
        let (_, rest) = l.split_once("compiled into the code; ")?;
        rest.split(' ').next()?.parse().ok()
    });
    lines
        .next_back()
        .unwrap_or_else(|| panic!("no number: {text}"))
}

pub fn a_condition_that_does_not_hold_stops_nobody(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded_conditions(&place, flags);
    let forward = [
        "set print entry-values no",
        "break visit if which == 2 && i == 30000",
        "continue",
        "print i * 10 + which",
        "info breakpoints",
        "monitor conditions",
    ];
    // Arithmetic, a variable in memory, another condition at the same place, memory of the stack.
    let more = [
        "delete",
        "break visit if which == 2 && i % 7777 == 5000 && i > 31000",
        "continue",
        "print i",
        "delete",
        "break visit if sums[1] + sums[2] == 2 * 39998L * 39999 / 2",
        "break visit if *(long *)($rsp - 512 + 8 * 64) == 1",
        "break visit if i == 39999 && which == 2",
        "continue",
        "print i",
        "monitor conditions",
    ];
    let run = session(&place, &trace.dir, &[], &[&forward[..], &more].concat());
    let wanted = [
        "hit Breakpoint 1, visit (which=2, i=30000)",
        "$1 = 300002\n",
        "stop only if which == 2 && i == 30000 (target evals)",
        "breakpoint already hit 1 time",
        "1 conditions are compiled",
        "hit Breakpoint 2, visit (which=2, i=36108)",
        "visit (which=2, i=39999)",
    ];
    assert_said(&run, &wanted);
    assert_eq!(false_stops(&run), 0, "{}", said(&run));
}

pub fn a_condition_is_looked_for_backward(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded_conditions(&place, flags);
    let commands = [
        "set print entry-values no",
        "break visit if i == 20000 || (i == 30000 && which == 1)",
        "reverse-continue",
        "reverse-continue",
        "reverse-continue",
        "monitor state",
        "continue",
        "continue",
        "reverse-continue",
        "reverse-continue",
        "monitor state",
        "reverse-continue",
        "monitor conditions",
    ];
    let run = session(&place, &trace.dir, &["--at", "end"], &commands);
    let text = said(&run);
    for (hit, times) in [
        ("visit (which=1, i=20000)", 1),
        ("visit (which=2, i=20000)", 1),
        ("visit (which=1, i=30000)", 1),
    ] {
        assert!(text.matches(hit).count() >= times, "{hit}: {text}");
    }
    assert_eq!(text.matches("hit Breakpoint 1, visit").count(), 7, "{text}");
    assert_said(&run, &["No more reverse-execution history"]);
    let states: Vec<&str> = text.lines().filter(|l| l.starts_with("memory ")).collect();
    assert!(states.len() == 2 && states[0] == states[1], "{text}");
    assert_eq!(false_stops(&run), 0, "{text}");
}

pub fn a_condition_that_can_not_be_tested_is_told(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded_conditions(&place, flags);
    let commands = [
        "set print entry-values no",
        "break look if p->value == 8",
        "continue",
        "print p",
        "delete",
        "reverse-stepi",
        "stepi",
        "print $rdi",
        "continue",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    let wanted = [
        "Error in testing breakpoint condition:\nCannot access memory at address 0x8",
        "look (p=0x0)",
        "$1 = (struct item *) 0x0",
        "look (p=0x0)",
        "$2 = 0\n",
        "sums 700 ",
        "No more reverse-execution history",
    ];
    assert_said(&run, &wanted);
}

/// Where the instruction can't be moved into a stub, the program is stopped, and gdb is not asked.
pub fn a_condition_holds_where_no_stub_can_be(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded_conditions(&place, flags);
    let commands = [
        "break *at_call if $rdi == 77",
        "continue",
        "print $rdi",
        "monitor conditions",
        "reverse-continue",
        "when",
        "continue",
        "print $rdi",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    let wanted = [
        "Breakpoint 1, ",
        "$1 = 77\n",
        "0 conditions are compiled into the code; 77 visits",
        "No more reverse-execution history",
        "Breakpoint 1, ",
        "$2 = 77\n",
    ];
    assert_said(&run, &wanted);
}

/// The called function sees the address that it is called from.
pub fn a_condition_at_a_call_is_compiled(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded_conditions(&place, flags);
    let commands = [
        "break *at_direct if passed == 4",
        "continue",
        "print passed",
        "stepi",
        "print *(long *)$rsp - (long)&at_direct",
        "monitor conditions",
        "continue",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    let wanted = [
        "Breakpoint 1, ",
        "$1 = 4\n",
        "$2 = 5\n",
        "1 conditions are compiled",
        "sums 700 799980000 799980000",
        "No more reverse-execution history",
    ];
    assert_said(&run, &wanted);
    assert_eq!(false_stops(&run), 0, "{}", said(&run));
}
