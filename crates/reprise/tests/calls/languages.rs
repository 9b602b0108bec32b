//! Programs in other languages, with the run-time systems that come with them.

use crate::common;

use common::{
    assert_same, built, check, check_times, full, sources, system_program, Guest, Workplace,
};

// C++.
guests! {
    cpp_threads, cpp_exceptions, cpp_terminate, cpp_futures, cpp_shared_locks, cpp_atomic_wait, cpp_stop_tokens, cpp_coroutines,
}

// Go.
guests! {
    go_channels, go_panics, go_network, go_contexts, go_processes, go_garbage, go_unix_http, go_recover,
}

// Rust.
guests! { rust_threads, rust_scoped, rust_poisoned, rust_command, rust_network, rust_panics }

// Languages that are interpreted.
guests! {
    python_threads, python_threading, python_asyncio, python_multiprocessing, python_subprocess, python_files, shell_jobs,
    perl_processes,
}

/// Recordings and replays of the heavier ones.
fn times() -> (u64, u64) {
    if full() {
        (5, 5)
    } else {
        (2, 1)
    }
}

#[test]
fn go_tight() {
    let facts = check("go_tight");
    for (label, infos) in facts {
        let delivered = infos
            .iter()
            .map(|i| i.counter("signals_in_code") + i.counter("signals_at_gates"))
            .sum::<u64>();
        assert!(delivered > 0, "{label}: Go's SIGURG never came");
    }
}

/// The heap is a file in memory of 8 GiB, of which pieces are mapped as they are needed, in three views.
#[test]
fn java_with_a_large_heap_in_a_file() {
    built("java/JavaThreads.class");
    let place = Workplace::new();
    let guest = Guest::program(system_program("java")).args([
        "-XX:+UseZGC".into(),
        "-Xmx8g".into(),
        "-cp".into(),
        sources().join("bin/java").into_os_string(),
        "JavaThreads".into(),
        "4".into(),
        "200".into(),
    ]);
    let recording = place.record(&guest);
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    assert_same(&recording.run, &place.replay(&recording.dir));
    let info = place.info(&recording.dir);
    let size = info.0["size_on_disk"].as_u64().expect("a size");
    assert!(size < 512 << 20, "the trace takes {size} bytes");
}

#[test]
fn java() {
    built("java/JavaThreads.class");
    let guest = Guest::program(system_program("java")).args([
        "-cp".into(),
        sources().join("bin/java").into_os_string(),
        "JavaThreads".into(),
    ]);
    check_times(&guest, &[], times().0, times().1);
}

#[test]
fn node() {
    let guest = Guest::program(system_program("node")).args([sources().join("node_workers.js")]);
    check_times(&guest, &[], times().0, times().1);
}
