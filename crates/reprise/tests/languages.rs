//! Programs in other languages, with the run-time systems that come with them.

mod common;

use common::{built, check, check_times, full, sources, system_program, Guest};

guests! { cpp_threads, cpp_exceptions, cpp_terminate, go_channels, go_panics, go_network, rust_threads }

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

#[test]
fn python() {
    let guest =
        Guest::program(system_program("python3")).args([sources().join("python_threads.py")]);
    check_times(&guest, &[], times().0, times().1);
}
