//! `replay --with`: a rebuilt program replays the recording of another build, as long as it makes the same events.
//!
//! The programs are those of `tests/guests/rebuilt`, built with `CHANGED` and without: then they print, check and have variables and frames that the
//! others don't have.

use crate::common;

use common::{knob, run, sources, top, Guest, Recording, Run, Workplace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn compile(command: &mut Command, source: &str, flags: &[&str], program: &Path) {
    command
        .args(["-w", "-pthread", "-I"])
        .arg(top().join("include"))
        .args(flags)
        .arg(sources().join("rebuilt").join(source))
        .arg("-o")
        .arg(program);
    let out = run(command, None);
    assert!(out.status.success(), "{}", out.describe());
}

/// Builds one of the programs.
fn build(place: &Workplace, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = place.path().join(name);
    let compiler = if source.ends_with("pp") { "g++" } else { "gcc" };
    compile(&mut Command::new(compiler), source, flags, &program);
    program
}

/// As [`build`], by `reprise cc`.
fn build_ours(place: &Workplace, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = place.path().join(name);
    let mut command = place.reprise(["cc"]);
    command.env("XDG_CACHE_HOME", place.path().join("cache"));
    compile(&mut command, source, flags, &program);
    program
}

fn record(place: &Workplace, program: &Path) -> Recording {
    let guest = Guest::program(program)
        .stdin("hello\n")
        .ends(common::Outcome::Any);
    let recording = place.record_with(&guest, &["--engine", "order"]);
    let said = String::from_utf8_lossy(&recording.run.stdout).into_owned();
    assert!(said.contains("hello: sum"), "{}", recording.run.describe());
    recording
}

fn with(place: &Workplace, recording: &Recording, program: &Path, flags: &[&str]) -> Run {
    let mut command = place.reprise(["replay", "--with"]);
    command.arg(program).args(flags).arg(&recording.dir);
    run(&mut command, None)
}

/// What a changed program tells besides.
fn told(run: &Run) -> Vec<String> {
    let said = run.said();
    let lines = said.lines().filter(|l| l.starts_with("worker: "));
    let mut lines: Vec<String> = lines.map(str::to_string).collect();
    // Threads that nothing orders tell it in any order.
    lines.sort();
    lines
}

/// The same output and the same end, and so many lines that are told besides.
fn assert_replays(recording: &Recording, replay: &Run, tells: usize) {
    let was = &recording.run;
    assert_eq!(replay.stdout, was.stdout, "{}", replay.describe());
    assert_eq!(replay.status, was.status, "{}", replay.describe());
    assert_eq!(told(replay).len(), tells, "{}", replay.describe());
}

/// Lines that worker.c tells in 20 rounds.
const TOLD: usize = 3 * 20 + 2;

/// How often a program is recorded, and each recording replayed.
fn times() -> (u64, u64) {
    (
        knob("REPRISE_TEST_RECORDINGS", 2),
        knob("REPRISE_TEST_REPLAYS", 2),
    )
}

/// Records `old` and replays it by `new`, in both orders, and the other way round: what is told is what is true of the recorded run.
fn there_and_back(place: &Workplace, old: &Path, new: &Path) {
    let (recordings, replays) = times();
    for _ in 0..recordings {
        let recording = record(place, old);
        let first = with(place, &recording, new, &[]);
        let lines = told(&first);
        assert!(!lines.is_empty(), "{}", first.describe());
        for order in ["partial", "total"] {
            for _ in 0..replays {
                let replay = with(place, &recording, new, &["--order", order]);
                assert_replays(&recording, &replay, lines.len());
                assert_eq!(told(&replay), lines);
            }
        }
        // What was recorded with the prints is replayed without them, and by itself it prints the same.
        let recording = record(place, new);
        let itself = place.replay(&recording.dir);
        assert_replays(&recording, &itself, told(&recording.run).len());
        assert_eq!(told(&itself), told(&recording.run));
        assert_replays(&recording, &with(place, &recording, old, &[]), 0);
    }
}

fn compiled_with(source: &str, level: &str, new_level: &str) {
    let place = Workplace::new();
    let old = build(&place, source, "old", &[level]);
    let new = build(&place, source, "new", &[new_level, "-DCHANGED"]);
    there_and_back(&place, &old, &new);
}

#[test]
fn threads_without_optimization() {
    compiled_with("worker.c", "-O0", "-O0");
}

#[test]
fn threads_with_optimization() {
    compiled_with("worker.c", "-O2", "-O2");
}

#[test]
fn threads_with_another_optimization() {
    compiled_with("worker.c", "-O2", "-O0");
}

#[test]
fn objects_of_cpp() {
    compiled_with("objects.cpp", "-O0", "-O0");
}

#[test]
fn processes() {
    compiled_with("family.c", "-O2", "-O2");
}

/// Of several processes only the one that is asked for prints, and tells what the rebuilt program prints besides.
#[test]
fn one_process_of_several() {
    let place = Workplace::new();
    let old = build(&place, "family.c", "old", &["-O2"]);
    let new = build(&place, "family.c", "new", &["-O2", "-DCHANGED"]);
    let recording = record(&place, &old);
    let list = run(place.reprise(["ps", "--json"]).arg(&recording.dir), None);
    let list: Vec<Value> = serde_json::from_str(&list.text()).expect("JSON");
    let tells = |p: &Value| {
        let replay = with(&place, &recording, &new, &["--pid", &p["pid"].to_string()]);
        let status = p["wait_status"].as_i64().map(|s| (s >> 8) as i32);
        assert_eq!(replay.status.code(), status, "{}", replay.describe());
        let is_root = p["parent"].is_null();
        assert_eq!(replay.stdout.is_empty(), !is_root, "{}", replay.describe());
        told(&replay).len()
    };
    let all: Vec<(bool, usize)> = list
        .iter()
        .map(|p| (p["argv"][0].to_string().contains("/old"), tells(p)))
        .collect();
    assert_eq!(all.len(), 4, "{list:?}");
    for (is_rebuilt, lines) in all {
        assert_eq!(lines, if is_rebuilt { 9 } else { 0 }, "{list:?}");
    }
}

/// Loads, too, and words of which a thread knows the value.
#[test]
fn atomics_of_programs_that_reprise_cc_built() {
    for level in ["-O0", "-O2"] {
        let place = Workplace::new();
        let old = build_ours(&place, "polls.c", "old", &[level]);
        let new = build_ours(&place, "polls.c", "new", &[level, "-DCHANGED"]);
        there_and_back(&place, &old, &new);
    }
}

/// Other sizes and places of everything, and no symbols.
#[test]
fn however_it_is_linked() {
    let place = Workplace::new();
    let builds: [&[&str]; 4] = [
        &["-O1", "-s"],
        &["-O1", "-Wl,-z,now"],
        &["-O1", "-Wl,-z,noseparate-code"],
        &["-O1", "-no-pie"],
    ];
    for flags in builds {
        let old = build(&place, "worker.c", "old", flags);
        // The heap of a program at fixed addresses begins right behind it.
        let fixed = flags.contains(&"-no-pie");
        let more: &[&str] = match fixed {
            true => &["-DCHANGED", "-DSAME_VARIABLES", "-Wl,-z,noseparate-code"],
            false => &["-DCHANGED"],
        };
        let new = build(&place, "worker.c", "new", &[flags, more].concat());
        // What it is recorded with is the larger one, where that matters.
        let (recorded, other, tells) = match fixed {
            true => (&new, &old, 0),
            false => (&old, &new, TOLD),
        };
        let recording = record(&place, recorded);
        let replay = with(&place, &recording, other, &[]);
        if fixed && replay.said().contains("does not fit") {
            continue;
        }
        assert_replays(&recording, &replay, tells);
    }
}

/// What is named by the registers and the memory of the recorded program is refused, and nothing hangs.
#[test]
fn places_in_mid_code_are_refused() {
    let place = Workplace::new();
    let guest = Guest::new("signal_in_loop").args(["5"]);
    let recording = (0..20)
        .map(|_| place.record_with(&guest, &["--engine", "order"]))
        .find(|r| place.info(&r.dir).kind("cut") > 0)
        .expect("a recording with a signal in mid-code");
    let program = common::built("signal_in_loop");
    let replay = with(&place, &recording, &program, &[]);
    replay.assert_own_failure(125);
    let said = replay.said();
    assert!(said.contains("in the middle of code"), "{said}");
}

/// A child's memory, where it is recorded as it was.
#[test]
fn forks_among_threads_are_refused() {
    let place = Workplace::new();
    let guest = Guest::new("fork_with_threads").args(["6"]);
    let recording = place.record_with(&guest, &["--engine", "order"]);
    let program = common::built("fork_with_threads");
    let replay = with(&place, &recording, &program, &[]);
    replay.assert_own_failure(125);
    let said = replay.said();
    assert!(said.contains("a child that began"), "{said}");
}

#[test]
fn recordings_of_other_engines_are_refused() {
    let place = Workplace::new();
    let program = build(&place, "worker.c", "old", &["-O1"]);
    let guest = Guest::program(&program)
        .stdin("hello\n")
        .ends(common::Outcome::Any);
    let recording = place.record_with(&guest, &["--engine", "serial"]);
    let replay = with(&place, &recording, &program, &[]);
    replay.assert_own_failure(125);
    let said = replay.said();
    assert!(
        said.contains("--engine order, this one is of serial"),
        "{said}"
    );
}

#[test]
fn what_it_does_otherwise_is_told() {
    let place = Workplace::new();
    let old = build(&place, "worker.c", "old", &["-O1"]);
    let cases = [
        ("-DANOTHER_CALL", "getppid()"),
        ("-DPLAIN_PRINT", "worker: plainly"),
        // An assertion that fails: its message would be a call.
        ("-DFAILING", "called at main ("),
        ("-DANOTHER_MUTEX", "an operation on the object at"),
        ("-DANOTHER_LOCK", "an operation on object"),
        ("-DONE_LOCK_LESS", "recorded  an operation on the object at"),
    ];
    let recording = record(&place, &old);
    for (flag, what) in cases {
        let new = build(&place, "worker.c", "new", &["-O1", "-g", "-DCHANGED", flag]);
        for order in ["partial", "total"] {
            let replay = with(&place, &recording, &new, &["--order", order]);
            replay.assert_own_failure(125);
            let said = replay.said();
            assert!(said.contains(what), "{flag}: {said}");
            assert!(said.contains("the replay diverged"), "{flag}: {said}");
            assert!(said.contains("reprise_printf"), "{flag}: {said}");
        }
    }
}

/// The place of a divergence is one of the rebuilt program's source.
#[test]
fn reports_name_places_of_the_rebuilt_program() {
    let place = Workplace::new();
    let old = build(&place, "worker.c", "old", &["-O1", "-g"]);
    let flags = ["-O1", "-g", "-DCHANGED", "-DANOTHER_MUTEX"];
    let new = build(&place, "worker.c", "new", &flags);
    let recording = record(&place, &old);
    let replay = with(&place, &recording, &new, &[]);
    replay.assert_own_failure(125);
    let said = replay.said();
    assert!(
        said.contains("pass (") && said.contains("worker.c:"),
        "{said}"
    );
}

#[test]
fn bad_programs_are_refused() {
    let place = Workplace::new();
    let old = build(&place, "worker.c", "old", &["-O1"]);
    let recording = record(&place, &old);
    let text = place.path().join("text");
    std::fs::write(&text, "#!/bin/sh\n").expect("a file");
    let cut = place.path().join("cut");
    let whole = std::fs::read(&old).expect("a program");
    std::fs::write(&cut, &whole[..whole.len() / 8]).expect("a file");
    let fixed = build(&place, "worker.c", "fixed", &["-O1", "-no-pie"]);
    // A program at fixed addresses can't grow into its heap.
    let larger = build(
        &place,
        "worker.c",
        "larger",
        &["-O1", "-no-pie", "-DCHANGED"],
    );
    let of_fixed = record(&place, &fixed);
    let still = build(&place, "worker.c", "static", &["-O1", "-static"]);
    for (recording, program, what) in [
        (&of_fixed, larger, "does not fit"),
        (&recording, place.path().join("nothing"), "No such file"),
        (&recording, place.path().to_path_buf(), "Is a directory"),
        (&recording, text, "is no program"),
        (&recording, cut, "is no program"),
        (&recording, fixed, "linked in another way"),
        (&recording, still, "linked in another way"),
    ] {
        let replay = with(&place, recording, &program, &[]);
        replay.assert_own_failure(125);
        assert!(replay.said().contains(what), "{}", replay.describe());
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
    assert_eq!(told(&native).len(), TOLD, "{}", native.describe());
}
