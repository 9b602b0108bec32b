//! No process escapes unseen: who is not in the trace is named, by `record` and by `info`.

use crate::common;

use common::{
    assert_same, built, expect_uncaptured, run, system_program, Guest, Run, Running, Workplace,
};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// What `info` says of the processes that are missing.
fn missing(place: &Workplace, dir: &Path) -> Vec<serde_json::Value> {
    let info = place.info(dir);
    let list = info.0["uncaptured"].as_array().expect("a list");
    list.clone()
}

/// Records a guest that loses processes.
fn record(place: &Workplace, guest: &Guest, dir: &Path) -> Run {
    let mut command = place.record_command(guest, &[], dir);
    run(expect_uncaptured(&mut command), None)
}

#[test]
fn exec_32_bits() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let recorded = record(&place, &Guest::new("exec_32_bits"), &dir);
    assert!(recorded.status.success(), "{}", recorded.describe());
    let pid = recorded.text();
    let pid = pid.strip_prefix("pid ").and_then(|t| t.split(',').next());
    let pid = pid.expect("its id");
    let missing = missing(&place, &dir);
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert_eq!(missing[0]["pid"].to_string(), pid);
    assert_eq!(missing[0]["name"], "small32");
    let named = format!("{pid} (small32)");
    assert!(recorded.notes.contains(&named), "{}", recorded.describe());
    let table = run(place.reprise(["info"]).arg(&dir), None);
    assert!(table.text().contains(&named), "{}", table.describe());
    assert_same(&recorded, &place.replay(&dir));
    // The events alone know nothing of it: the process itself is in the trace, up to its exec.
    std::fs::remove_file(dir.join("summary.json")).expect("removed");
    assert_eq!(place.info(&dir).0["uncaptured"], serde_json::json!([]));
}

/// Each is named as what it became, however soon its parent hears of its end.
#[test]
fn exec_32_bits_often() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let guest = built("exec_32_bits").display().to_string();
    let script = format!("for i in $(seq 20); do {guest} || exit 1; done");
    let shell = Guest::program(system_program("sh")).args(["-c", &script]);
    let recorded = record(&place, &shell, &dir);
    assert!(recorded.status.success(), "{}", recorded.describe());
    let missing = missing(&place, &dir);
    let all_named = missing.iter().all(|m| m["name"] == "small32");
    assert!(missing.len() == 20 && all_named, "{missing:?}");
}

#[test]
fn a_wait_that_tells_of_a_stranger() {
    // SAFETY: asks for an id.
    if unsafe { libc::geteuid() } != 0 {
        return common::skip("only root enters the namespaces of others");
    }
    let place = Workplace::new();
    let (dir, shared) = (place.fresh("trace"), place.fresh_dir("shared"));
    let guest = Guest::new("namespace_init").args([&shared]);
    let mut command = place.record_command(&guest, &[], &dir);
    let mut running = Running::start_reading(expect_uncaptured(&mut command), None);
    let mut out = BufReader::new(running.child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    out.read_line(&mut first).expect("its first line");
    let init: u32 = first.trim().parse().expect("an id");
    while !shared.join("ready").exists() {
        assert!(running.child.try_wait().expect("wait").is_none());
        std::thread::yield_now();
    }
    // A process that enters the namespace leaves its child there, whose new parent is the recorded first process.
    let mut enter = Command::new(system_program("nsenter"));
    enter
        .arg(format!("--pid=/proc/{init}/ns/pid"))
        .args(["sh", "-c", "(exit 3) & exit 0"]);
    let entered = run(&mut enter, None);
    assert!(entered.status.success(), "{}", entered.describe());
    let mut rest = String::new();
    out.read_line(&mut rest).expect("its last line");
    let mut recorded = running.finish();
    recorded.stdout = format!("{first}{rest}").into_bytes();
    assert!(recorded.status.success(), "{}", recorded.describe());
    let stranger = rest.split(' ').next().expect("an id").to_string();
    let missing_then = missing(&place, &dir);
    assert!(
        missing_then
            .iter()
            .any(|m| m["pid"].as_i64() == stranger.parse().ok() && m["why"] == "a wait told of it"),
        "{missing_then:?}"
    );
    assert!(
        recorded.notes.contains(&stranger),
        "{}",
        recorded.describe()
    );
    assert_same(&recorded, &place.replay(&dir));
    // The events say so by themselves.
    std::fs::remove_file(dir.join("summary.json")).expect("removed");
    let ids: Vec<String> = missing(&place, &dir)
        .iter()
        .map(|m| m["pid"].to_string())
        .collect();
    assert_eq!(ids, [stranger]);
}

#[test]
fn children_of_a_shell_that_became_reprise_are_nobodys_concern() {
    // They are the launcher's children, not the program's: natively the program would be told of them, as its own.
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let script = "(exit 3) & (exit 4) & exec \"$@\"";
    let mut command = Command::new(system_program("bash"));
    place.settle(&mut command);
    command
        .args(["-c", script, "bash", common::REPRISE, "record", "-o"])
        .arg(&dir)
        .args([
            "--",
            "sh",
            "-c",
            "(exit 5) & wait $!; echo $?; wait; exit 6",
        ]);
    let recorded = run(&mut command, None);
    assert_eq!(recorded.text(), "5\n", "{}", recorded.describe());
    assert_eq!(recorded.status.code(), Some(6), "{}", recorded.describe());
    assert!(missing(&place, &dir).is_empty());
    assert_same(&recorded, &place.replay(&dir));
}

#[test]
fn children_of_a_recorded_shell_stay_known_over_its_exec() {
    let place = Workplace::new();
    let script = "mkfifo fifo; (read x <fifo; exit 3) & exec python3 -c \"
import os
open('fifo', 'w').write('go')
print(os.waitstatus_to_exitcode(os.wait()[1]))\"";
    let recording = place.record(&Guest::program(system_program("bash")).args(["-c", script]));
    assert_eq!(recording.run.text(), "3\n", "{}", recording.run.describe());
    assert!(missing(&place, &recording.dir).is_empty());
    assert_same(&recording.run, &place.replay(&recording.dir));
}

#[test]
fn what_begins_after_the_end_of_a_recording() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let script =
        "head -c 3000000 /dev/urandom >f; cat f f f >/dev/null; (exit 3); sh -c 'exit 4'; echo $?";
    let guest = Guest::program(system_program("sh")).args(["-c", script]);
    let flags = ["--max-size=1M", "--on-full=continue"];
    let mut command = place.record_command(&guest, &flags, &dir);
    let recorded = run(expect_uncaptured(&mut command), None);
    assert_eq!(recorded.text(), "4\n", "{}", recorded.describe());
    let missing = missing(&place, &dir);
    assert!(!missing.is_empty(), "{}", recorded.describe());
    let why = "it began after the end of the recording";
    assert!(missing.iter().all(|m| m["why"] == why), "{missing:?}");
}
