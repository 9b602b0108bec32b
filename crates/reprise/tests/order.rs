//! `--engine order`: threads run on all processors, system calls are stamped, every thread has a ring of its own.
//!
//! Here are guests whose threads, if they have several, meet in system calls and in libc's functions of synchronisation; the kernels are
//! in `kernels.rs`.

mod common;

use common::{check_times, message, Guest};

/// Records each guest and replays it twice.
fn each(names: &[&str]) {
    let mut failures = Vec::new();
    for name in names {
        let attempt = std::panic::catch_unwind(|| {
            check_times(&Guest::new(name), &["--engine", "order"], 1, 2);
        });
        if let Err(why) = attempt {
            failures.push(format!("{name}: {}", message(&*why)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn calls() {
    each(&[
        "hello",
        "bad_descriptors",
        "bad_pointers",
        "big_output",
        "descriptors",
        "environment",
        "errno_results",
        "eventfds",
        "epoll_edges",
        "poll_states",
        "pipes",
        "tcp_loopback",
        "tcp_states",
        "udp_loopback",
        "unix_sockets",
        "vectors",
        "unknown_call",
    ]);
}

#[test]
fn files() {
    each(&[
        "directories",
        "file_times",
        "files_read_write",
        "copies_between_files",
        "sparse_files",
        "splices",
        "system_files",
    ]);
}

#[test]
fn memory() {
    each(&[
        "memory_anonymous",
        "memory_files",
        "memory_file_writes",
        "memory_mapped",
        "protections",
        "growing_stack",
        "sysv_shm",
        "message_queues",
        "generated_code",
    ]);
}

#[test]
fn signals_and_time() {
    each(&[
        "signal_at_gate",
        "signal_altstack",
        "signal_faults",
        "signal_nested",
        "signals_queued",
        "sleeps",
        "time_values",
        "timerfds",
        "instructions",
        "randomness",
    ]);
}

/// Only in full size: the engine is in the making, and not every replay of these is exact yet.
#[test]
fn threads() {
    if !common::full() {
        return;
    }
    each(&[
        "thread_create",
        "mutex_contention",
        "condition_variables",
        "rwlock_barrier_semaphore",
    ]);
}

#[test]
fn the_end_of_a_program_that_is_killed() {
    let crash = Guest::new("crash").args(["abort"]);
    let place = common::Workplace::new();
    let recording = place.record_with(&crash, &["--engine", "order"]);
    assert!(
        !recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    common::assert_same(&recording.run, &place.replay(&recording.dir));
}

#[test]
fn small_buffers() {
    for name in ["big_output", "files_read_write"] {
        let flags = ["--engine", "order", "--buffers", "small"];
        check_times(&Guest::new(name), &flags, 1, 1);
    }
}

#[test]
fn another_process_is_refused() {
    let place = common::Workplace::new();
    let recording = place.record_with(&Guest::new("fork_wait"), &["--engine", "order"]);
    let said = recording.run.said();
    assert!(said.contains("--engine serial"), "{said}");
}
