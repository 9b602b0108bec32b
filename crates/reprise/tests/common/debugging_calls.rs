//! Functions of the program that gdb calls: they run in a copy of it, and the replay is what it was.

use super::gdb::{assert_said, said, session};
use super::{Guest, Outcome, Recording, Run, Workplace};

fn recorded(place: &Workplace, argument: Option<&str>, flags: &[&str]) -> Recording {
    let ends = match argument {
        Some(_) => Outcome::Signal(libc::SIGSEGV),
        None => Outcome::Exit(0),
    };
    place.record_with(&Guest::new("called").args(argument).ends(ends), flags)
}

/// What leads to the first call of `here`.
const TO_HERE: [&str; 3] = ["break here", "continue", "monitor state"];
/// What goes on from there, past the other calls of `here`, to the end.
const TO_THE_END: [&str; 5] = [
    "monitor state",
    "continue",
    "print counter",
    "delete",
    "continue",
];
/// What is said on that way.
const AT_THE_END: [&str; 4] = [
    "hit Breakpoint 1, here (local=",
    "=2)",
    "= 8\n",
    "No more reverse-execution history",
];

/// A session that calls functions where `here` is first called, and then goes to the end.
fn calls(place: &Workplace, trace: &Recording, commands: &[&str]) -> Run {
    let all = [&TO_HERE[..], commands, &TO_THE_END[..]].concat();
    let run = session(place, &trace.dir, &[], &all);
    let text = said(&run);
    let states: Vec<&str> = text.lines().filter(|l| l.starts_with("memory ")).collect();
    assert_eq!(states.len(), 2, "{text}");
    assert_eq!(states[0], states[1], "the replay was changed: {text}");
    assert_said(&run, &AT_THE_END);
    // What the recorded program wrote is shown all the same, each line once.
    for line in ["here 8 1\n", "here 10 2\n", "here 13 3\n"] {
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }
    run
}

pub fn a_function_gives_its_result(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = calls(
        &place,
        &trace,
        &["print add(2, 3)", "print half(3.0)", "call add(1, 1)"],
    );
    assert_said(&run, &["$1 = 5\n", "$2 = 1.5\n", "$3 = 2\n"]);
}

pub fn a_function_allocates_and_prints(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = calls(
        &place,
        &trace,
        &["print shout(\"abc\")", "print allocate()"],
    );
    assert_said(&run, &["$1 = 0x", "\"ABC\"", "$2 = 2080\n"]);
    assert_eq!(
        said(&run).matches("shouted ABC\n").count(),
        1,
        "{}",
        said(&run)
    );
}

pub fn what_a_function_writes_is_gone_afterwards(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = calls(
        &place,
        &trace,
        &[
            "print bump(&fields[1])",
            "print counter",
            "print fields[1]",
            "print bump(&local)",
            "print local",
            "print shout(shout(\"xy\"))",
            "print counter",
        ],
    );
    assert_said(
        &run,
        &[
            "$1 = 8\n", "$2 = 7\n", "$3 = 2\n", "$4 = 8\n", "$5 = 1\n", "\"XY\"", "$7 = 7\n",
        ],
    );
}

pub fn a_function_that_crashes_is_shown_and_left(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let left: &[&str] = &[
        "print crash()",
        "backtrace 1",
        "print counter",
        "reverse-stepi",
        "print counter",
    ];
    let run = calls(&place, &trace, left);
    assert_said(
        &run,
        &[
            "received signal SIGSEGV",
            "in crash ()",
            "$1 = 1000\n",
            "this is the replay again",
            "here (local=",
            "$2 = 7\n",
        ],
    );
    // It is killed, or gdb takes it back at once.
    let run = calls(
        &place,
        &trace,
        &["print crash()", "continue", "print counter"],
    );
    assert_said(
        &run,
        &["in crash ()", "was killed by signal 11", "$1 = 7\n"],
    );
    let run = calls(
        &place,
        &trace,
        &["set unwindonsignal on", "print crash()", "print counter"],
    );
    assert_said(&run, &["SIGSEGV", "$1 = 7\n"]);
}

pub fn a_function_can_be_debugged_itself(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let commands = [
        "break bump",
        "print bump(&fields[0])",
        "next",
        "next",
        "print fields[0]",
        "finish",
        "print fields[0]",
        "delete 2",
    ];
    let run = calls(&place, &trace, &commands);
    assert_said(
        &run,
        &["Breakpoint 2, bump", "$1 = 99\n", "$2 = 8", "$3 = 1\n"],
    );
}

pub fn a_function_can_be_called_in_a_thread_that_waits(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = calls(
        &place,
        &trace,
        &[
            "thread 2",
            "print add(20, 3)",
            "thread 1",
            "print add(30, 3)",
        ],
    );
    assert_said(&run, &["$1 = 23\n", "$2 = 33\n"]);
}

pub fn nothing_reaches_the_outside_world(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = calls(
        &place,
        &trace,
        &["print outside()", "print (void)exit(3)", "print counter"],
    );
    assert_said(&run, &["$1 = 1\n", "ended with status 3", "$2 = 7\n"]);
}

pub fn a_function_is_called_where_the_program_crashes(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), flags);
    let run = session(
        &place,
        &trace.dir,
        &["--at", "crash"],
        &[
            "monitor state",
            "print add(2, 3)",
            "print bump(&fields[0])",
            "print counter",
            "checkpoint",
            "monitor state",
            "reverse-stepi",
            "stepi",
            "restart 1",
            "continue",
        ],
    );
    assert_said(
        &run,
        &[
            "$1 = 5\n",
            "$2 = 14\n",
            "$3 = 13\n",
            "No more reverse-execution history",
        ],
    );
    let text = said(&run);
    let states: Vec<&str> = text.lines().filter(|l| l.starts_with("memory ")).collect();
    assert_eq!(states[0], states[1], "{text}");
}

pub fn registers_and_memory_of_the_replay_can_not_be_changed(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, None, flags);
    let run = calls(
        &place,
        &trace,
        &[
            "print counter = 5",
            "print $from = $rbx",
            "print $rbx = 77",
            "stepi",
            "print $rbx == $from",
            "reverse-stepi",
        ],
    );
    assert_said(
        &run,
        &["Cannot access memory", "$1 = ", "is taken back", "= 1\n"],
    );
}

pub fn a_session_ends_after_a_call(flags: &[&str]) {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), flags);
    let run = session(&place, &trace.dir, &["--at", "crash"], &["print add(2, 3)"]);
    assert_said(&run, &["$1 = 5\n", "detached"]);
}
