//! The command line: what is printed where, exit statuses, JSON, and mistakes of the user.

use crate::common;

use common::{run, Guest, Run, Workplace, OWN_FAILURE};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;

fn reprise(place: &Workplace, args: &[&str]) -> Run {
    run(&mut place.reprise(args), None)
}

fn ok(place: &Workplace, args: &[&str]) -> String {
    let out = reprise(place, args);
    assert_eq!(out.status.code(), Some(0), "{}", out.describe());
    out.text()
}

/// A line of our own on standard error, and only there.
fn complaint(place: &Workplace, args: &[&str], status: i32) -> String {
    let out = reprise(place, args);
    out.assert_own_failure(status);
    assert!(out.stdout.is_empty(), "{}", out.describe());
    assert_eq!(out.said().lines().count(), 1, "{}", out.describe());
    assert!(out.said().starts_with("reprise: "), "{}", out.describe());
    out.said()
}

/// A workplace with one trace, recorded without a name.
fn with_trace(name: &str) -> Workplace {
    let place = Workplace::new();
    let mut command = place.reprise([OsStr::new("record"), OsStr::new("-q"), OsStr::new("--")]);
    command.arg(Guest::new(name).program);
    let out = run(&mut command, None);
    assert!(
        out.status.success() && out.notes.is_empty(),
        "{}",
        out.describe()
    );
    place
}

fn lines(text: &str) -> Vec<Value> {
    let parsed = text.lines().map(serde_json::from_str);
    parsed
        .map(|l| l.expect("one JSON object in each line"))
        .collect()
}

#[test]
fn help_names_every_command() {
    let place = Workplace::new();
    let help = ok(&place, &["--help"]);
    for command in [
        "record", "replay", "verify", "dump", "ls", "info", "rm", "pack", "doctor", "demo",
    ] {
        assert!(
            help.lines().any(|l| l.trim_start().starts_with(command)),
            "{command}: {help}"
        );
        assert!(ok(&place, &[command, "--help"]).contains("Usage: reprise"));
    }
    assert!(ok(&place, &["--version"]).starts_with("reprise "));
    assert!(
        !ok(&place, &["record", "--help"]).contains("no-patch"),
        "test switches are hidden"
    );
}

#[test]
fn mistakes_end_with_125_and_one_line() {
    let place = Workplace::new();
    for args in [
        &["recrod"][..],
        &["record"],
        &["record", "--"],
        &["record", "--chaos=many", "--", "true"],
        &["record", "--checksum=0", "--", "true"],
        &["record", "--max-size", "huge", "--", "true"],
        &["record", "--engine", "diesel", "--", "true"],
        &["record", "--forget-syscall", "raed", "--", "true"],
        &["replay", "a", "b"],
        &["verify", "-n", "none"],
        &["dump", "--kind", "miracle"],
        &["completions", "tcsh"],
        &["rm"],
    ] {
        let said = complaint(&place, args, OWN_FAILURE);
        assert!(said.contains("--help`"), "{said}");
    }
}

#[test]
fn a_program_that_cannot_be_run_is_never_taken_for_one_that_failed() {
    let place = Workplace::new();
    let missing = complaint(&place, &["record", "--", "there-is-no-such-program"], 127);
    assert!(missing.contains("there-is-no-such-program"), "{missing}");
    complaint(&place, &["record", "--", "/no/such/program"], 127);
    let plain = place.fresh("plain-file");
    std::fs::write(&plain, "not a program").expect("a file");
    complaint(
        &place,
        &["record", "--", plain.to_str().expect("a name")],
        126,
    );
    complaint(&place, &["record", "--", "/"], 126);
    // Nothing of a trace is left behind.
    assert_eq!(ok(&place, &["ls", "--json"]).trim(), "[]");
}

#[test]
fn without_traces_everything_says_how_to_make_one() {
    let place = Workplace::new();
    for command in ["replay", "verify", "dump", "info", "pack"] {
        let said = complaint(&place, &[command], OWN_FAILURE);
        assert!(said.contains("reprise record"), "{said}");
        let said = complaint(&place, &[command, "nothing-of-this-name"], OWN_FAILURE);
        assert!(said.contains("nothing-of-this-name"), "{said}");
    }
    assert!(ok(&place, &["ls"]).contains("reprise record"));
    complaint(&place, &["rm", "nothing-of-this-name"], OWN_FAILURE);
}

#[test]
fn info_has_the_promised_fields() {
    let place = with_trace("hello");
    let info: Value = serde_json::from_str(&ok(&place, &["info", "--json"])).expect("JSON");
    for name in [
        "name",
        "path",
        "program",
        "argv",
        "engine",
        "complete",
        "events",
        "events_by_kind",
        "bytes_raw",
        "bytes_compressed",
        "size_on_disk",
        "duration_ns",
        "counters",
        "wait_status",
        "exit",
        "warnings",
        "chaos_seed",
        "threads",
    ] {
        assert!(info.get(name).is_some(), "no `{name}` in {info}");
    }
    assert_eq!(info["engine"], "serial");
    assert_eq!(info["complete"], true);
    assert_eq!(info["wait_status"], 0);
    assert_eq!(info["exit"], "exited with 0");
    assert_eq!(info["chaos_seed"], Value::Null);
    assert_eq!(info["threads"], 1);
    let kinds = info["events_by_kind"].as_object().expect("an object");
    let sum: u64 = kinds.values().filter_map(Value::as_u64).sum();
    assert_eq!(info["events"].as_u64(), Some(sum));
    assert!(info["size_on_disk"].as_u64() >= info["bytes_compressed"].as_u64());
    let table = ok(&place, &["info"]);
    assert!(
        table.contains("hello") && table.contains("exited with 0"),
        "{table}"
    );
}

#[test]
fn what_dump_prints_is_what_info_counts() {
    let place = with_trace("hello");
    let info: Value = serde_json::from_str(&ok(&place, &["info", "--json"])).expect("JSON");
    let events = lines(&ok(&place, &["dump", "--json"]));
    assert_eq!(Some(events.len() as u64), info["events"].as_u64());
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event["event"], i);
        assert!(event["kind"].is_string() && event["text"].is_string() && event["slot"] == 0);
    }
    let plain = ok(&place, &["dump"]);
    assert_eq!(plain.lines().count(), events.len());
    assert!(plain.contains("write(1, \""), "{plain}");
    assert!(
        plain.trim_end().ends_with("+++ exited with 0 +++"),
        "{plain}"
    );
}

#[test]
fn dump_can_be_narrowed() {
    let place = with_trace("thread_create");
    let all = lines(&ok(&place, &["dump", "--json"]));
    let some = lines(&ok(&place, &["dump", "--json", "--from", "5", "--to", "9"]));
    // What is printed of an event does not depend on where the printing begins.
    assert_eq!(some, all[5..=9]);
    let narrowed = |args: &[&str], keep: &dyn Fn(&Value) -> bool| {
        let mut command = vec!["dump", "--json"];
        command.extend(args);
        let wanted: Vec<Value> = all.iter().filter(|e| keep(e)).cloned().collect();
        assert!(!wanted.is_empty(), "{args:?} keeps nothing");
        assert_eq!(lines(&ok(&place, &command)), wanted, "{args:?}");
    };
    narrowed(&["--thread", "1"], &|e| e["slot"] == 1);
    narrowed(&["--kind", "thread-start"], &|e| {
        e["kind"] == "thread-start"
    });
    narrowed(&["--kind", "end", "--kind", "thread-exit"], &|e| {
        e["kind"] == "end" || e["kind"] == "thread-exit"
    });
    assert_eq!(ok(&place, &["dump", "--from", "1000000000"]), "");
}

#[test]
fn dump_ends_quietly_when_nobody_reads_it() {
    let place = with_trace("big_output");
    let mut command = place.reprise(["dump"]);
    command.stdout(std::process::Stdio::piped());
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("reprise");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("its end");
    assert!(
        out.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn traces_are_listed_named_packed_and_removed() {
    let place = with_trace("hello");
    let list: Value = serde_json::from_str(&ok(&place, &["ls", "--json"])).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(1));
    assert_eq!(list[0]["name"], "hello-0");
    assert_eq!(list[0]["latest"], true);
    assert_eq!(list[0]["complete"], true);
    assert_eq!(list[0]["wait_status"], 0);
    assert!(ok(&place, &["ls"]).contains("hello-0 *"));

    let file = place.fresh("packed.reprise");
    let file = file.to_str().expect("a name");
    assert!(ok(&place, &["pack", "hello-0", "-o", file]).contains(file));
    complaint(&place, &["pack", "hello-0", "-o", file], OWN_FAILURE);
    complaint(&place, &["pack", file], OWN_FAILURE);
    let events = ok(&place, &["dump", "hello-0"]);

    assert!(ok(&place, &["rm", "hello-0"]).contains("hello-0"));
    assert_eq!(ok(&place, &["ls", "--json"]).trim(), "[]");
    // The packed trace needs nothing of what was removed.
    assert_eq!(ok(&place, &["dump", file]), events);
    let info: Value = serde_json::from_str(&ok(&place, &["info", "--json", file])).expect("JSON");
    assert!(
        info["name"]
            .as_str()
            .is_some_and(|n| n.starts_with("packed.reprise")),
        "{info}"
    );
    complaint(&place, &["rm", file], OWN_FAILURE);
}

#[test]
fn one_trace_that_cannot_be_removed_does_not_save_the_others() {
    let place = with_trace("hello");
    let out = reprise(&place, &["rm", "nothing", "hello-0"]);
    out.assert_own_failure(OWN_FAILURE);
    assert!(out.text().contains("hello-0"), "{}", out.describe());
    assert_eq!(ok(&place, &["ls", "--json"]).trim(), "[]");
}

#[test]
fn traces_are_private() {
    let place = with_trace("hello");
    let mode = |p: &std::path::Path| std::fs::metadata(p).expect("a file").permissions().mode();
    let dir = place.traces().join("hello-0");
    assert_eq!(mode(&dir) & 0o777, 0o700);
    for entry in std::fs::read_dir(&dir).expect("the trace").flatten() {
        assert_eq!(mode(&entry.path()) & 0o077, 0, "{}", entry.path().display());
    }
}

#[test]
fn damaged_traces_are_said_to_be_damaged() {
    let place = with_trace("hello");
    let dir = place.traces().join("hello-0");
    let manifest = dir.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).expect("the manifest");
    let version = |n: u32| format!("\"format_version\": {n},");
    let newer = text.replace(&version(reprise_trace::FORMAT_VERSION), &version(99));
    assert_ne!(text, newer);
    for (content, says) in [(newer.as_str(), "upgrade"), ("{", "damaged")] {
        std::fs::write(&manifest, content).expect("written");
        for command in ["replay", "verify", "dump", "info", "pack"] {
            let said = complaint(&place, &[command, "hello-0"], OWN_FAILURE);
            assert!(said.contains(says), "{command}: {said}");
        }
        // The list goes on, and removing it still works.
        let list = ok(&place, &["ls"]);
        assert!(list.contains("unreadable"), "{list}");
    }
    ok(&place, &["rm", "hello-0"]);
}

#[test]
fn a_trace_without_its_summary_is_counted_from_its_events() {
    let place = with_trace("hello");
    let before: Value = serde_json::from_str(&ok(&place, &["info", "--json"])).expect("JSON");
    std::fs::remove_file(place.traces().join("hello-0/summary.json")).expect("removed");
    let after: Value = serde_json::from_str(&ok(&place, &["info", "--json"])).expect("JSON");
    assert_eq!(after["complete"], false);
    for name in [
        "events",
        "events_by_kind",
        "bytes_raw",
        "wait_status",
        "exit",
        "threads",
    ] {
        assert_eq!(before[name], after[name], "{name}");
    }
}

#[test]
fn the_doctor_says_whether_recording_works() {
    let place = Workplace::new();
    let report: Value = serde_json::from_str(&ok(&place, &["doctor", "--json"])).expect("JSON");
    assert_eq!(report["ready"], true);
    for check in report["checks"].as_array().expect("checks") {
        assert!(
            check["name"].is_string()
                && ["ok", "missing"].contains(&check["status"].as_str().unwrap_or_default())
        );
    }
    let text = ok(&place, &["doctor"]);
    assert!(text.lines().count() <= 25, "more than one screen:\n{text}");
    // A place where nothing can be written.
    let mut command = place.reprise(["doctor"]);
    let out = run(command.env("REPRISE_TRACE_DIR", "/proc/traces"), None);
    assert_eq!(out.status.code(), Some(OWN_FAILURE), "{}", out.describe());
    assert!(
        out.text().contains("MISSING") && out.text().contains("REPRISE_TRACE_DIR"),
        "{}",
        out.describe()
    );
}

#[test]
fn completions_and_manual_pages_are_made_from_the_commands() {
    let place = Workplace::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(&place, &["completions", shell]).contains("until-failure"));
    }
    assert!(ok(&place, &["man"]).contains(".TH reprise 1"));
    let page = ok(&place, &["man", "record"]);
    assert!(
        page.contains("until") && page.contains("reprise record")
            || page.contains("reprise\\-record"),
        "{page}"
    );
    complaint(&place, &["man", "nothing"], OWN_FAILURE);
    let dir = place.fresh("man");
    ok(&place, &["man", "-o", dir.to_str().expect("a name")]);
    assert!(dir.join("reprise.1").is_file() && dir.join("reprise-record.1").is_file());
}

/// Values that look like secrets, or that the user names, are the program's; the manifest only names them.
#[test]
fn secrets_of_the_environment_are_not_told() {
    let place = Workplace::new();
    let mut guest = Guest::program(common::system_program("env"));
    for (name, value) in [
        ("GITHUB_TOKEN", "hunter2"),
        ("MY_PLACE", "hideout"),
        ("SEEN", "seen"),
    ] {
        guest.env.push((name.into(), value.into()));
    }
    let r = place.record_with(&guest, &["--env-deny", "MY_*,OTHER"]);
    for value in ["hunter2", "hideout", "seen"] {
        assert!(r.run.text().contains(value), "{}", r.run.describe());
    }
    assert_eq!(place.replay(&r.dir).text(), r.run.text());
    let manifest = std::fs::read_to_string(r.dir.join("manifest.json")).expect("a manifest");
    let dir = r.dir.to_str().expect("a path");
    let told = [
        manifest,
        ok(&place, &["info", "--env", dir]),
        ok(&place, &["info", "--env", "--json", dir]),
    ];
    for text in told {
        assert!(
            !text.contains("hunter2") && !text.contains("hideout"),
            "{text}"
        );
        assert!(
            text.contains("GITHUB_TOKEN=[cut]") && text.contains("SEEN=seen"),
            "{text}"
        );
    }
    assert!(!ok(&place, &["info", dir]).contains("SEEN"));
    let allowed = place.record_with(&guest, &["--env-allow", "GITHUB_*"]);
    let allowed = allowed.dir.to_str().expect("a path");
    assert!(ok(&place, &["info", "--env", allowed]).contains("GITHUB_TOKEN=hunter2"));
}
