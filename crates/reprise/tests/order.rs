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

/// Instructions that change memory in one step, in unmodified code: in each of their forms, and as libc has them inlined.
#[test]
fn locked_instructions() {
    each(&[
        "locked_forms",
        "locked_faults",
        "thread_create",
        "threads_many",
    ]);
}

/// Without their order a replay is another run: the switch shows that it is the stubs that make it exact.
#[test]
fn locked_instructions_matter() {
    let place = common::Workplace::new();
    let guest = Guest::new("locked_forms").args(["2000"]);
    let unlike = (0..10).any(|_| {
        let recording = place.record_with(&guest, &["--engine", "order", "--no-locked"]);
        let replay = place.replay(&recording.dir);
        replay.stdout != recording.run.stdout || replay.status != recording.run.status
    });
    assert!(unlike, "ten replays without any order were all the same");
}

/// How many there are, and that nearly all of them are jumps, not traps.
#[test]
fn locked_instructions_are_found() {
    let place = common::Workplace::new();
    let recording = place.record_with(&Guest::new("locked_forms"), &["--engine", "order"]);
    let info = place.info(&recording.dir);
    let [sites, traps, missed] =
        ["locked_sites", "locked_traps", "locked_missed"].map(|name| info.counter(name));
    assert!(sites > 300, "{sites} sites in libc and the guest");
    assert!(traps * 20 < sites, "{traps} traps beside {sites} jumps");
    assert_eq!(missed, 0);
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
