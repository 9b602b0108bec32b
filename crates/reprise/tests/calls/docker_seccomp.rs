//! Under a seccomp filter with the rules of Docker's default profile, where `personality`, `userfaultfd` and others are refused.

use crate::common;

use common::{assert_same, built, run, Guest, Run, Source, Workplace, REPRISE};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// `reprise` with these arguments, under the filter.
fn filtered(place: &Workplace, args: &[&OsStr]) -> Run {
    let mut command = Command::new(built("docker_filter"));
    command.arg(REPRISE).args(args);
    place.settle(&mut command);
    run(&mut command, None)
}

#[test]
fn the_filter_refuses_what_docker_refuses() {
    let place = Workplace::new();
    let mut command = Command::new(built("docker_filter"));
    command.arg(built("docker_probe"));
    place.settle(&mut command);
    let out = run(&mut command, None);
    assert!(out.status.success(), "{}", out.describe());
}

fn record_and_replay(name: &str) {
    for guest in Source::read(name).guests() {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let mut args: Vec<&OsStr> = vec![
            OsStr::new("record"),
            OsStr::new("-o"),
            dir.as_os_str(),
            OsStr::new("--"),
            guest.program.as_os_str(),
        ];
        args.extend(guest.args.iter().map(|a| a.as_os_str()));
        let recorded = filtered(&place, &args);
        assert!(
            guest.outcome.fits(recorded.status),
            "{}",
            recorded.describe()
        );
        for _ in 0..2 {
            assert_same(
                &recorded,
                &filtered(&place, &[OsStr::new("replay"), dir.as_os_str()]),
            );
        }
        // A trace made there replays here.
        assert_same(&recorded, &place.replay(&dir));
    }
}

#[test]
fn recorded_and_replayed_under_the_filter() {
    for name in [
        "hello",
        "randomness",
        "thread_create",
        "signal_at_gate",
        "memory_anonymous",
        "memory_mapped",
        "tcp_loopback",
        "auxv",
    ] {
        record_and_replay(name);
    }
}

#[test]
fn races_and_cuts_under_the_filter() {
    for name in ["racey", "cut_counter", "cut_sampling", "signal_in_loop"] {
        record_and_replay(name);
    }
}

#[test]
fn a_trace_made_outside_replays_under_the_filter() {
    let place = Workplace::new();
    let recording = place.record(&Guest::new("racey"));
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    assert_same(
        &recording.run,
        &filtered(&place, &[OsStr::new("replay"), recording.dir.as_os_str()]),
    );
}

#[test]
fn the_doctor_says_what_is_missing() {
    let place = Workplace::new();
    let out = filtered(&place, &[OsStr::new("doctor")]);
    assert!(out.status.success(), "{}", out.describe());
    let words = out.text().to_lowercase();
    assert!(
        words.contains("userfaultfd") || words.contains("personality") || words.contains("randomi"),
        "{}",
        out.describe()
    );
    assert!(Path::new(REPRISE).exists());
}
