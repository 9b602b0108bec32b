//! `replay --with`: a rebuilt program replays the recording of another build, as long as it makes the same events.

mod common;

use common::{run, sources, top, Guest, Recording, Run, Workplace};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `tests/guests/rebuilt/worker.c`.
fn build(place: &Workplace, name: &str, flags: &[&str]) -> PathBuf {
    let program = place.path().join(name);
    let mut command = Command::new("gcc");
    command
        .args(["-std=gnu11", "-w", "-pthread", "-I"])
        .arg(top().join("include"))
        .args(flags)
        .arg(sources().join("rebuilt/worker.c"))
        .arg("-o")
        .arg(&program);
    let out = run(&mut command, None);
    assert!(out.status.success(), "{}", out.describe());
    program
}

fn record(place: &Workplace, program: &Path, engine: &[&str]) -> Recording {
    let guest = Guest::program(program)
        .stdin("hello\n")
        .ends(common::Outcome::Any);
    let recording = place.record_with(&guest, engine);
    let said = String::from_utf8_lossy(&recording.run.stdout).into_owned();
    assert!(said.contains("hello: sum"), "{}", recording.run.describe());
    recording
}

fn with(place: &Workplace, recording: &Recording, program: &Path, flags: &[&str]) -> Run {
    let mut command = place.reprise(["replay", "--with"]);
    command.arg(program).args(flags).arg(&recording.dir);
    run(&mut command, None)
}

/// The same output and the same end, and what the rebuilt program tells besides.
fn assert_replays(recording: &Recording, replay: &Run, tells: usize) {
    let was = &recording.run;
    assert_eq!(replay.stdout, was.stdout, "{}", replay.describe());
    assert_eq!(replay.status, was.status, "{}", replay.describe());
    let told = replay.said();
    let told = told.lines().filter(|l| l.starts_with("worker: ")).count();
    assert_eq!(told, tells, "{}", replay.describe());
}

/// Lines that worker.c tells in 20 rounds.
const TOLD: usize = 3 * 20 + 2;
const ORDER: [&str; 2] = ["--engine", "order"];

#[test]
fn under_order() {
    let place = Workplace::new();
    for level in ["-O0", "-O2"] {
        let old = build(&place, "old", &[level]);
        let new = build(&place, "new", &[level, "-DCHANGED"]);
        let recording = record(&place, &old, &ORDER);
        for order in ["partial", "total"] {
            for _ in 0..3 {
                let replay = with(&place, &recording, &new, &["--order", order]);
                assert_replays(&recording, &replay, TOLD);
            }
        }
        // What was recorded with the prints is replayed without them, and by itself it prints them.
        let recording = record(&place, &new, &ORDER);
        assert_replays(&recording, &recording.run, TOLD);
        assert_replays(&recording, &place.replay(&recording.dir), TOLD);
        assert_replays(&recording, &with(&place, &recording, &old, &[]), 0);
    }
}

/// Other sizes and places of everything. Without symbols variables are known by their places in their sections.
#[test]
fn however_it_is_linked() {
    let place = Workplace::new();
    let builds: [&[&str]; 3] = [
        &["-O1", "-s", "-DSAME_VARIABLES"],
        &["-O1", "-Wl,-z,now"],
        &["-O1", "-Wl,-z,noseparate-code"],
    ];
    for flags in builds {
        let old = build(&place, "old", flags);
        let new = build(&place, "new", &[flags, &["-DCHANGED"]].concat());
        let recording = record(&place, &old, &ORDER);
        let replay = with(&place, &recording, &new, &[]);
        assert_replays(&recording, &replay, TOLD);
    }
}

/// A recording of threads that take turns, where no turn ended in the midst of the program's code.
#[test]
fn under_serial() {
    let place = Workplace::new();
    let old = build(&place, "old", &["-O1"]);
    let new = build(&place, "new", &["-O1", "-DCHANGED"]);
    let recording = (0..20)
        .map(|_| record(&place, &old, &["--engine", "serial"]))
        .find(|r| place.info(&r.dir).kind("cut") == 0)
        .expect("a recording without cuts");
    for _ in 0..3 {
        assert_replays(&recording, &with(&place, &recording, &new, &[]), TOLD);
    }
}

/// Places in mid-code are known by what can't be compared: that is said, and nothing hangs.
#[test]
fn cuts_are_not_found() {
    let place = Workplace::new();
    let guest = Guest::new("racy_sum").args(["2", "3000000"]);
    let recording = (0..10)
        .map(|_| place.record_with(&guest, &["--engine", "serial", "--chaos"]))
        .find(|r| place.info(&r.dir).kind("cut") > 0)
        .expect("a recording with cuts");
    let program = common::built("racy_sum");
    let replay = with(&place, &recording, &program, &[]);
    replay.assert_own_failure(125);
    let said = replay.said();
    assert!(said.contains("the middle of its code"), "{said}");
}

#[test]
fn what_it_does_otherwise_is_told() {
    let place = Workplace::new();
    let old = build(&place, "old", &["-O1"]);
    let cases = [
        ("-DANOTHER_CALL", "getppid()"),
        ("-DPLAIN_PRINT", "worker: plainly"),
        ("-DFAILING", "Assertion `line[0] == 'x'' failed"),
    ];
    for engine in ["order", "serial"] {
        let recording = record(&place, &old, &["--engine", engine]);
        for (flag, told) in cases {
            let new = build(&place, "new", &["-O1", "-DCHANGED", flag]);
            let replay = with(&place, &recording, &new, &[]);
            replay.assert_own_failure(125);
            let said = replay.said();
            assert!(said.contains(told), "{said}");
            assert!(said.contains("reprise_printf"), "{said}");
        }
    }
}

/// A program at fixed addresses can't grow into its brk area.
#[test]
fn bad_programs_are_refused() {
    let place = Workplace::new();
    let recording = record(&place, &build(&place, "old", &["-O1"]), &ORDER);
    let text = place.path().join("text");
    std::fs::write(&text, "#!/bin/sh\n").expect("a file");
    let cut = place.path().join("cut");
    let whole = std::fs::read(place.path().join("old")).expect("a program");
    std::fs::write(&cut, &whole[..whole.len() / 8]).expect("a file");
    let pie = build(&place, "other", &["-O1", "-no-pie"]);
    let fixed = record(&place, &pie, &ORDER);
    let larger = build(&place, "larger", &["-O1", "-no-pie", "-DCHANGED"]);
    let replay = with(&place, &fixed, &larger, &[]);
    replay.assert_own_failure(125);
    assert!(
        replay.said().contains("does not fit"),
        "{}",
        replay.describe()
    );
    let still = build(&place, "static", &["-O1", "-static"]);
    for (program, told) in [
        (place.path().join("nothing"), "No such file"),
        (place.path().to_path_buf(), "Is a directory"),
        (text, "is no program"),
        (cut, "is no program"),
        (pie, "linked in another way"),
        (still, "linked in another way"),
    ] {
        let replay = with(&place, &recording, &program, &[]);
        replay.assert_own_failure(125);
        assert!(replay.said().contains(told), "{}", replay.describe());
        assert!(replay.stdout.is_empty(), "{}", replay.describe());
    }
}

/// The header comes with the command, and `reprise cc` finds it.
#[test]
fn the_header() {
    let place = Workplace::new();
    let printed = run(&mut place.reprise(["header"]), None);
    let header = std::fs::read(top().join("include/reprise.h")).expect("the header");
    assert_eq!(printed.stdout, header);
    let program = place.path().join("worker");
    let mut command = place.reprise(["cc", "-DCHANGED", "-pthread", "-w"]);
    command.arg(sources().join("rebuilt/worker.c"));
    command.arg("-o").arg(&program);
    command.env("XDG_CACHE_HOME", place.path().join("cache"));
    let out = run(&mut command, None);
    assert!(out.status.success(), "{}", out.describe());
    let native = Guest::program(&program).stdin("hello\n").native(&place);
    let said = native.said();
    let told = said.lines().filter(|l| l.starts_with("worker: ")).count();
    assert_eq!(told, TOLD, "{said}");
}
