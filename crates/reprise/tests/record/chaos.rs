//! `record --chaos`: programs with a known fault (`tests/guests/chaos`), which chaos finds, and whose failing run is replayed. The ordinary suite
//! takes those that show within a few runs; with `REPRISE_TEST_FULL=1` all.

use crate::common;

use common::{built, full, run, sources, Workplace};
use std::collections::BTreeSet;

/// Status of a program whose fault was hit (`fault.h`).
const FAULT: i32 = 42;
/// In so many runs chaos is to find each.
const RUNS: u64 = 100;

/// In which run chaos found the program's fault; the recording of it is replayed.
fn found_in_run(name: &str) -> u64 {
    let place = Workplace::new();
    let program = built(&format!("chaos/{name}"));
    let runs = RUNS.to_string();
    let runs = runs.as_str();
    let mut command = place.reprise(["record", "--chaos=1", "--until-failure", runs, "--"]);
    let found = run(command.arg(&program), None);
    assert_eq!(
        found.status.code(),
        Some(FAULT),
        "{name}: {}",
        found.describe()
    );
    // "reprise: run 7 failed, with chaos seed 7; ..."
    let said = found.notes.clone();
    let number_after = |words: &str| -> Option<u64> {
        let digits = said.split_once(words)?.1;
        let end = digits.find(|c: char| !c.is_ascii_digit())?;
        digits[..end].parse().ok()
    };
    let in_run = number_after("reprise: run ").expect("the number of the run");
    let seed = number_after("with chaos seed ").expect("the seed");
    assert_eq!(seed, in_run, "each run has the next seed: {said}");
    let replay = run(&mut place.reprise(["replay"]), None);
    assert_eq!(replay.status.code(), Some(FAULT), "{}", replay.describe());
    // The runs before it said other things.
    assert!(
        !replay.stdout.is_empty() && found.stdout.ends_with(&replay.stdout),
        "{}",
        replay.describe()
    );
    let verify = run(&mut place.reprise(["verify", "-n", "2"]), None);
    assert!(verify.status.success(), "{name}: {}", verify.describe());
    in_run
}

/// All of them.
fn all() -> BTreeSet<String> {
    let files = std::fs::read_dir(sources().join("chaos")).expect("the programs");
    let names = files.flatten().map(|e| e.path());
    names
        .filter(|p| p.extension().is_some_and(|e| e == "c"))
        .filter_map(|p| Some(p.file_stem()?.to_str()?.to_string()))
        .collect()
}

#[test]
fn chaos_finds_known_faults() {
    // They take a dozen runs as a rule, and now and then three dozen.
    const RARER: [&str; 3] = ["aba", "missed_signal", "removed_element"];
    let wanted = |name: &String| full() || !RARER.contains(&name.as_str());
    for name in all().into_iter().filter(wanted) {
        println!("{name}: found in run {}", found_in_run(&name));
    }
}

/// What is in the directory of traces.
fn traces(place: &Workplace) -> usize {
    let listed = run(&mut place.reprise(["ls", "--json"]), None);
    let all: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    all.as_array().expect("a list").len()
}

#[test]
fn several_runs_at_a_time_find_a_fault_and_keep_one_trace() {
    let place = Workplace::new();
    let flags = ["--chaos=1", "--until-failure", "100", "--jobs", "3"];
    let mut command = place.reprise(["record"]);
    let program = built("chaos/lost_update");
    let found = run(command.args(flags).arg("--").arg(&program), None);
    assert_eq!(found.status.code(), Some(FAULT), "{}", found.describe());
    assert_eq!(traces(&place), 1, "{}", found.describe());
    assert!(found.notes.contains("with chaos seed "), "{}", found.notes);
    let replay = run(&mut place.reprise(["replay"]), None);
    assert_eq!(replay.status.code(), Some(FAULT), "{}", replay.describe());
    // Only the failing run's words are shown.
    assert_eq!(found.stdout, replay.stdout, "{}", found.describe());
}

#[test]
fn a_run_that_takes_too_long_fails_and_is_kept() {
    let place = Workplace::new();
    let flags = ["--until-failure", "9", "--jobs", "2", "--time-limit", "1"];
    let mut command = place.reprise(["record"]);
    command
        .args(flags)
        .args(["--", "sh", "-c", "echo waits; sleep 1000000; echo no"]);
    let found = run(&mut command, None);
    assert_eq!(found.status.code(), Some(128 + 9), "{}", found.describe());
    assert_eq!(found.text(), "waits\n");
    assert!(
        found.notes.contains("was ended after 1 s"),
        "{}",
        found.notes
    );
    assert_eq!(traces(&place), 1, "{}", found.describe());
    let replay = run(&mut place.reprise(["replay"]), None);
    assert_eq!(replay.text(), "waits\n", "{}", replay.describe());
}

#[test]
fn a_single_run_has_a_limit_too_and_takes_all_with_it() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    // The first process has ended when the time is over, and what it has left waits for ever.
    for (script, status) in [
        ("read line; echo $line; sleep 1000000", 137),
        ("sleep 1000000 & echo left", 0),
    ] {
        let mut command = place.reprise(["record", "--time-limit", "1", "-o"]);
        let ended = run(
            command.arg(&dir).args(["--", "sh", "-c", script]),
            Some(b"left\n"),
        );
        assert_eq!(ended.status.code(), Some(status), "{}", ended.describe());
        assert_eq!(ended.text(), "left\n", "{}", ended.describe());
        let said = "the program was ended after 1 s (--time-limit)";
        assert!(ended.notes.contains(said), "{}", ended.describe());
        let replay = place.replay(&dir);
        assert_eq!(replay.text(), "left\n", "{}", replay.describe());
        std::fs::remove_dir_all(&dir).expect("removed");
    }
    // One that ends before has nothing of it.
    let mut command = place.reprise(["record", "--time-limit", "1000000", "--", "true"]);
    let well = run(&mut command, None);
    assert_eq!(well.status.code(), Some(0), "{}", well.describe());
    assert!(!well.notes.contains("--time-limit"), "{}", well.describe());
}

#[test]
fn runs_that_all_end_well_leave_nothing() {
    let place = Workplace::new();
    let runs = |program: &str| {
        let mut command = place.reprise(["record", "--until-failure", "5", "--jobs", "3", "--"]);
        run(command.arg(program), None)
    };
    let well = runs("true");
    assert_eq!(well.status.code(), Some(0), "{}", well.describe());
    assert!(
        well.notes.contains("none of 5 runs failed"),
        "{}",
        well.notes
    );
    let missing = runs("/no/such/program");
    assert_eq!(missing.status.code(), Some(127), "{}", missing.describe());
    assert!(
        missing.said().contains("not found"),
        "{}",
        missing.describe()
    );
    assert_eq!(traces(&place), 0);
}

#[test]
fn there_are_twenty_programs_with_a_fault() {
    assert_eq!(all().len(), 20, "{:?}", all());
}
