//! The simplest guests: arguments, status, environment, identity, time, instructions, registers, memory.

use crate::common;

use common::{assert_same, check_times, Guest, Outcome, Workplace};

guests! {
    hello, bare, errno_results, identity, auxv, vdso_functions, time_values, instructions, randomness, sleeping, deep_recursion,
    exit_handlers, registers_across_calls, jump_to_syscall, big_output, counter_lines, full_signal_mask, closes_everything,
    refused_calls, call_of_32_bits, scribbles, environment,
}

// Memory.
guests! { gaps_unmapped, memory_anonymous, memory_places, memory_mapped, memory_files, memory_file_writes, memory_mapped_by_threads, memory_big, generated_code, growing_stack, stack_limit_raised }

#[test]
fn exit_statuses_pass_through() {
    for status in [0, 1, 2, 77, 124, 126, 127, 128, 200, 255] {
        let guest = Guest::new("hello")
            .args([status.to_string()])
            .ends(Outcome::Exit(status));
        check_times(&guest, &[], 1, 1);
    }
}

#[test]
fn our_own_status_as_a_programs_status_passes_through_too() {
    let place = Workplace::new();
    let recording = place.record(&Guest::new("hello").args(["125"]));
    assert_eq!(
        recording.run.status.code(),
        Some(125),
        "{}",
        recording.run.describe()
    );
    assert_same(&recording.run, &place.replay(&recording.dir));
}

#[test]
fn big_environment_and_arguments() {
    let mut guest = Guest::new("environment").args([
        "x".repeat(100_000),
        String::new(),
        "with \n newline".into(),
    ]);
    for i in 0..300 {
        guest = guest.env(format!("VARIABLE_{i}"), "value ".repeat(i + 1));
    }
    check_times(&guest, &[], 1, 2);
}

#[test]
fn standard_input_is_recorded() {
    for bytes in [Vec::new(), b"one line\n".to_vec(), vec![7; 1_000_000]] {
        check_times(&Guest::new("echo_input").stdin(bytes), &[], 2, 2);
    }
}

#[test]
fn the_recorded_program_runs_in_the_callers_directory_and_says_what_it_says() {
    let place = Workplace::new();
    let guest = Guest::new("hello");
    let native = guest.native(&place);
    let recording = place.record(&guest);
    assert_eq!(
        native.stdout,
        recording.run.stdout,
        "{}",
        recording.run.describe()
    );
    assert_eq!(
        native.stderr,
        recording.run.stderr,
        "{}",
        recording.run.describe()
    );
}

#[test]
fn two_recordings_differ_where_the_world_differs() {
    // Would a recorder that makes everything constant pass all other tests? It must not.
    let place = Workplace::new();
    let guest = Guest::new("randomness");
    let (a, b) = (place.record(&guest), place.record(&guest));
    assert_ne!(
        a.run.stdout,
        b.run.stdout,
        "two recordings got the same random numbers: {}",
        a.run.describe()
    );
}

#[test]
fn sites_are_rewritten_and_calls_dispatched() {
    let infos = check_times(
        &Guest::new("registers_across_calls").args(["3000"]),
        &[],
        1,
        1,
    );
    assert!(
        infos[0].counter("patched") > 0,
        "no site was rewritten: {}",
        infos[0].0
    );
    assert!(
        infos[0].counter("dispatched") > 0,
        "no call was dispatched: {}",
        infos[0].0
    );
    assert!(
        infos[0].kind("syscall") >= 3000,
        "calls are missing: {}",
        infos[0].0
    );
}

#[test]
fn state_is_hashed_at_the_end_at_least() {
    for guest in [Guest::new("hello"), Guest::new("thread_create").args(["4"])] {
        let infos = check_times(&guest, &[], 1, 1);
        assert!(
            infos[0].counter("hashes") > 0 && infos[0].counter("hashed") > 0,
            "nothing was hashed: {}",
            infos[0].0
        );
    }
}

#[test]
fn more_hashes_on_request() {
    for name in ["mutex_contention", "signal_at_gate", "memory_big", "racey"] {
        let few = check_times(&Guest::new(name), &[], 1, 1);
        let many = check_times(&Guest::new(name), &["--checksum=50"], 1, 2);
        assert!(
            many[0].counter("hashes") > few[0].counter("hashes") || few[0].events() < 100,
            "{name}: --checksum=50 took {} hashes, the default {}",
            many[0].counter("hashes"),
            few[0].counter("hashes")
        );
    }
}

/// A stack that may grow further than to what is mapped below it is no larger for that: what hashes and searches look at is the program's memory alone.
#[test]
fn a_raised_limit_makes_no_larger_stack() {
    let guest = Guest::new("stack_limit_raised").args(["3"]);
    let infos = check_times(&guest, &["--checksum=1"], 2, 1);
    for info in infos {
        let mean = info.counter("hashed") / info.counter("hashes");
        assert!(mean < 3 << 20, "{mean} bytes at a time");
    }
}

#[test]
fn without_rewriting_of_sites() {
    // Dispatch alone, which is what stands behind every site that can't be rewritten.
    for name in [
        "registers_across_calls",
        "jump_to_syscall",
        "thread_create",
        "signal_restart",
        "signal_alarm_in_calls",
        "pipes",
        "generated_code",
        "go_channels",
        "racey",
    ] {
        let infos = check_times(&Guest::new(name), &["--no-patch"], 1, 1);
        assert_eq!(infos[0].counter("patched"), 0, "{name}: {}", infos[0].0);
    }
}
