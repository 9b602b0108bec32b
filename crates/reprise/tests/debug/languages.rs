//! `replay -d` of programs in other languages than C, and of many threads.

use crate::common;

use common::gdb::{assert_session, said};
use common::{built, Guest, Outcome};

guests! { debugged_rust, debugged_go }

#[test]
fn who_spoiled_a_variable_of_rust_is_found() {
    built("debugged_rust");
    let guest = Guest::new("debugged_rust").ends(Outcome::Signal(libc::SIGABRT));
    let commands = [
        "backtrace",
        "print debugged_rust::BALANCE",
        "watch -l *(int*)&debugged_rust::BALANCE",
        "reverse-continue",
        "backtrace 3",
        "print debugged_rust::BALANCE",
        "info threads",
        "delete",
        "break debugged_rust::deposit",
        "reverse-continue",
        "print amount",
        "print *total",
        "continue",
        "print amount",
        "reverse-finish",
    ];
    let wanted = [
        "in std::process::abort",
        "debugged_rust::main ()",
        "value = -7",
        "Old value = -7",
        "New value = 100",
        "debugged_rust::spoil (what=",
        "debugged_rust::main::{closure",
        "value: 100",
        "(runs) ",
        "hit Breakpoint 2, debugged_rust::deposit",
        "= 2\n",
        // As the compiler's own scripts show it.
        "{value: Vec(size=",
        "hit Breakpoint 2, debugged_rust::deposit",
        "debugged_rust::main::{closure",
    ];
    assert_session(&guest, &["--at", "crash"], &commands, &wanted);
}

#[test]
fn who_spoiled_a_variable_of_go_is_found() {
    built("debugged_go");
    let commands = [
        "print 'main.balance'",
        "watch 'main.balance'",
        "reverse-continue",
        "backtrace",
        "print 'main.balance'",
        "info threads",
        "delete",
        "break main.deposit",
        "reverse-continue",
        "print amount",
        "continue",
        "stepi",
        "reverse-stepi",
        "delete",
        "continue",
    ];
    let wanted = [
        "$1 = -7",
        "Old value = -7",
        "New value = 100",
        "main.spoil (what=",
        "in main.main.func1",
        "in runtime.goexit",
        "$2 = 100",
        "(at a gate) runtime.",
        "hit Breakpoint 2, main.deposit (lock=",
        "$3 = ",
        "No more reverse-execution history",
    ];
    assert_session(
        &Guest::new("debugged_go").ends(Outcome::Exit(3)),
        &["--at", "end"],
        &commands,
        &wanted,
    );
}

#[test]
fn two_hundred_threads_are_listed_and_crossed() {
    let commands = [
        "break body",
        "continue",
        "delete",
        // Each of them makes three steps.
        "watch steps if steps == 400",
        "continue",
        "print steps",
        "echo all threads:\\n",
        "info threads",
        "thread 150",
        "backtrace",
        "delete",
        // All are there.
        "watch alive",
        "reverse-continue",
        "echo all threads:\\n",
        "info threads",
        "print most",
        "reverse-continue",
        "print alive",
        "delete",
        "continue",
        "print steps",
    ];
    let wanted = [
        "hit Breakpoint 1, body",
        "New value = 400",
        "$1 = 400",
        "all threads:",
        "Switching to thread 150",
        "in body (p=",
        "in start_thread",
        "Old value = 200",
        "New value = 199",
        "all threads:",
        "$2 = 199",
        "Old value = 199",
        "New value = 198",
        "$3 = 198",
        "No more reverse-execution history",
        "$4 = 600",
    ];
    let run = assert_session(
        &Guest::new("threads_many").args(["200"]),
        &[],
        &commands,
        &wanted,
    );
    let text = said(&run);
    for list in text.split("all threads:").skip(1) {
        let listed = |line: &&str| line.contains("(at a gate)") || line.contains("(runs)");
        assert_eq!(list.lines().filter(listed).count(), 201, "{text}");
    }
}
