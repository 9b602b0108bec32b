//! `reprise cc`, `reprise c++` and `reprise cargo`: what they build runs as ever, and its atomic operations are seen by `--engine order`.

mod common;

use common::{check_times, knob, run, sources, Guest, Workplace};
use std::path::{Path, PathBuf};

/// Builds a program with one of the wrappers. The cache of objects is the workplace's own.
fn build(place: &Workplace, wrapper: &str, args: &[&str]) {
    let cache = place.path().join("cache");
    let mut command = place.reprise([wrapper]);
    command.args(args).env("XDG_CACHE_HOME", cache);
    let out = run(&mut command, None);
    assert!(out.status.success(), "{}", out.describe());
}

fn guest(place: &Workplace, name: &str, flags: &[&str]) -> PathBuf {
    let source = sources().join(format!("{name}.c"));
    let program = place.path().join(name);
    let mut args = vec!["-O2", "-pthread", "-I"];
    let include = sources();
    args.push(include.to_str().expect("UTF-8"));
    args.extend(flags);
    args.extend([source.to_str().expect("UTF-8"), "-o"]);
    args.push(program.to_str().expect("UTF-8"));
    build(place, "cc", &args);
    program
}

fn recordings() -> u64 {
    knob("REPRISE_TEST_RECORDINGS", 3)
}

fn exact(program: &Path, args: &[&str]) {
    let guest = Guest::program(program).args(args.iter().copied());
    check_times(&guest, &["--engine", "order"], recordings(), 2);
}

#[test]
fn every_operation_in_every_size() {
    let place = Workplace::new();
    let program = guest(&place, "atomic_operations", &["-mcx16"]);
    // Without Reprise the operations are what they were.
    let native = Guest::program(&program).args(["2", "300"]).native(&place);
    assert!(native.status.success(), "{}", native.describe());
    exact(&program, &["2", "300"]);
    exact(&program, &["8", "100"]);
}

#[test]
fn words_that_are_only_loaded_and_stored() {
    let place = Workplace::new();
    exact(&guest(&place, "atomic_handover", &[]), &["3000"]);
}
