//! `replay -d` of real programs, as their distribution has built them: without debugging information, with the names that they export.

use crate::common;

use common::gdb::{assert_said, said, session};
use common::redis::redis;
use common::{connect, free_port, system_program, Outcome, Recording, Running, Workplace};
use std::io::{BufRead, BufReader, Write};

/// redis, which some requests lead to write where it must not.
fn crashed_redis(place: &Workplace) -> Recording {
    let port = free_port();
    let (data, dir) = (place.fresh_dir("data"), place.fresh("trace"));
    // Its own check of memory would write to all that /proc/self/maps shows.
    let flags = "--enable-debug-command yes --crash-memcheck-enabled no";
    let flags: Vec<&str> = flags.split(' ').collect();
    let guest = redis(system_program("redis-server"), port, &data, &flags);
    let mut server = Running::start(&mut place.record_command(&guest, &[], &dir), None);
    let mut stream = connect(&mut server, port);
    let mut answers = BufReader::new(stream.try_clone().expect("a clone"));
    let mut line = String::new();
    for i in 0..200 {
        write!(stream, "SET key:{i} value:{i}\r\n").expect("a request");
        answers.read_line(&mut line).expect("an answer");
    }
    assert_eq!(line, "+OK\r\n".repeat(200));
    write!(stream, "DEBUG SEGFAULT\r\n").expect("a request");
    let run = server.finish();
    let outcome = Outcome::Signal(libc::SIGSEGV);
    assert!(outcome.fits(run.status), "{}", run.describe());
    Recording { run, dir }
}

#[test]
fn redis_is_walked_back_from_its_crash_to_the_command_that_caused_it() {
    let place = Workplace::new();
    let trace = crashed_redis(&place);
    // Its own words for who asked, by a call of its function in a copy.
    let who = "print (char *)((char *(*)(char *, void *))catClientInfoString)(((char *(*)(void))sdsempty)(), (void *)$rdi)";
    let commands = [
        "set print elements 0",
        // Its handler has told of the fault, and ends it by the same signal.
        "backtrace 3",
        "break sigsegvHandler",
        "reverse-continue",
        "backtrace 4",
        "delete",
        "break debugCommand",
        "reverse-continue",
        "info symbol $pc",
        who,
        "delete",
        // The request before it, and the one before that, by the same client.
        "break setCommand",
        "reverse-continue",
        who,
        "print $client = $rdi",
        "reverse-continue",
        "print $rdi == $client",
        "delete",
        // And forward again, to the instruction that wrote.
        "continue",
        "info symbol $pc",
        "x/i $pc",
    ];
    let run = session(&place, &trace.dir, &["--at", "crash"], &commands);
    let text = said(&run);
    assert_said(
        &run,
        &[
            "bugReportEnd",
            "Breakpoint 1, ",
            "sigsegvHandler",
            "<signal handler called>",
            "debugCommand",
            "call ()",
            "Breakpoint 2, ",
            "debugCommand in section .text",
            "cmd=debug",
            "Breakpoint 3, ",
            "setCommand",
            "cmd=set",
            "= 1\n",
            "received signal SIGSEGV",
            "debugCommand + ",
            "mov",
        ],
    );
    assert!(!text.contains("No symbol"), "{text}");
}

/// Conditions on registers need no debugging information.
#[test]
fn a_request_of_redis_is_found_by_a_condition() {
    let place = Workplace::new();
    let trace = crashed_redis(&place);
    let commands = [
        // All 200 requests miss it.
        "break setCommand if $rdi == 0",
        "break debugCommand if $rdi != 0",
        "continue",
        "info symbol $pc",
        "info breakpoints",
        "monitor conditions",
        "reverse-continue",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    assert_said(
        &run,
        &[
            "Breakpoint 2, ",
            "debugCommand in section .text",
            "(target evals)",
            "(target evals)",
            "breakpoint already hit 1 time",
            "2 conditions are compiled into the code; 0 visits",
            "No more reverse-execution history",
        ],
    );
}
