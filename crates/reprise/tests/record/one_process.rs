//! One process of many: `ps` knows them all, `replay --pid` goes to one of them.

use crate::common;

use common::{run, system_program, Guest, Outcome, Recording, Run, Workplace, OWN_FAILURE};
use serde_json::Value;
use std::path::Path;

/// `reprise ps --json`, without what has been checked of it here.
fn processes(place: &Workplace, dir: &Path) -> Vec<Value> {
    let out = run(place.reprise(["ps", "--json"]).arg(dir), None);
    assert!(out.status.success(), "{}", out.describe());
    let list: Value = serde_json::from_str(&out.text()).expect("JSON");
    let list = list.as_array().expect("a list").clone();
    for p in &list {
        let (first, last) = (number(p, "first_event"), number(p, "last_event"));
        assert!(first <= last, "{p}");
        assert_eq!(p["ended"], true, "{p}");
        // Every parent is in the list, and was there before its child.
        if !p["parent"].is_null() {
            let parent = list.iter().find(|q| q["pid"] == p["parent"]);
            let parent = parent.unwrap_or_else(|| panic!("nobody is the parent of {p}"));
            assert!(number(parent, "first_event") < first, "{p}");
        }
    }
    list
}

fn number(p: &Value, name: &str) -> u64 {
    p[name].as_u64().unwrap_or_else(|| panic!("no {name}: {p}"))
}

fn replay_one(place: &Workplace, dir: &Path, pid: &str) -> Run {
    run(place.reprise(["replay", "--pid", pid]).arg(dir), None)
}

/// Events that `dump --pid` prints, by their numbers.
fn events_of(place: &Workplace, dir: &Path, pid: &str) -> Vec<u64> {
    let out = run(
        place.reprise(["dump", "--json", "--pid", pid]).arg(dir),
        None,
    );
    assert!(out.status.success(), "{}", out.describe());
    let text = out.text();
    let lines = text.lines().map(serde_json::from_str::<Value>);
    lines.map(|l| number(&l.expect("JSON"), "event")).collect()
}

/// Each process by itself ends as it did, and says what it said.
fn check_each(
    place: &Workplace,
    dir: &Path,
    list: &[Value],
    said: impl Fn(&Value) -> Option<Vec<String>>,
) {
    for p in list {
        let pid = p["pid"].to_string();
        let replay = replay_one(place, dir, &pid);
        let status = p["wait_status"].as_i64().expect("its end") as i32;
        let wanted = match status & 0x7f {
            0 => status >> 8,
            signal => 128 + signal,
        };
        assert_eq!(
            replay.status.code(),
            Some(wanted),
            "{p}: {}",
            replay.describe()
        );
        if let Some(said) = said(p) {
            let lines: Vec<String> = replay.text().lines().map(String::from).collect();
            assert_eq!(lines, said, "{p}");
        }
        let events = events_of(place, dir, &pid);
        let range = (events.first().copied(), events.last().copied());
        let known = (number(p, "first_event"), number(p, "last_event"));
        assert_eq!(range, (Some(known.0), Some(known.1)), "{p}");
    }
}

/// Who made a process is known also when that one was dead before it began.
#[test]
fn makers_that_are_gone() {
    let place = Workplace::new();
    for flags in [&[][..], &["--chaos"]] {
        let r = place.record_with(&Guest::new("orphans"), flags);
        assert!(Outcome::Exit(0).fits(r.run.status), "{}", r.run.describe());
        let list = processes(&place, &r.dir);
        let said = r.run.text();
        for line in said.lines() {
            let ids: Vec<u64> = line
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|n| n.parse().ok())
                .collect();
            let made = list
                .iter()
                .find(|p| number(p, "pid") == ids[1])
                .unwrap_or_else(|| panic!("not in the list: {line}"));
            assert_eq!(number(made, "parent"), ids[0], "{line}\n{list:?}");
        }
        assert_eq!(said.lines().count(), 7);
        check_each(&place, &r.dir, &list, |_| None);
    }
}

#[test]
fn one_child_of_many_crashes() {
    let place = Workplace::new();
    for flags in [&[][..], &["--chaos"]] {
        let guest = Guest::new("crash_of_one").args(["8"]);
        let r: Recording = place.record_with(&guest, flags);
        assert!(Outcome::Exit(0).fits(r.run.status), "{}", r.run.describe());
        let list = processes(&place, &r.dir);
        assert_eq!(list.len(), 1 + 8 + 7, "{list:?}");
        let crashed: Vec<&Value> = list
            .iter()
            .filter(|p| p["exit"] == "killed by SIGSEGV")
            .collect();
        assert_eq!(crashed.len(), 1, "{list:?}");
        let all = r.run.text();
        let number_of = |p: &Value| {
            let made = format!(": {}", p["pid"]);
            let line = all
                .lines()
                .find(|l| l.starts_with("made") && l.ends_with(&made));
            line.map(|l| l.split([' ', ':']).nth(2).expect("a number").to_string())
        };
        assert_eq!(number_of(crashed[0]).as_deref(), Some("5"));
        check_each(&place, &r.dir, &list, |p| {
            let lines = |start: String| {
                let lines = all.lines().filter(move |l| l.starts_with(&start));
                lines.map(String::from).collect::<Vec<_>>()
            };
            match (number_of(p), p["parent"].is_null()) {
                (Some(n), _) => Some(lines(format!("child {n} "))),
                (None, true) => Some(
                    lines("made".into())
                        .into_iter()
                        .chain(lines("1 crashed".into()))
                        .collect(),
                ),
                (None, false) => None,
            }
        });
        let became = list
            .iter()
            .find(|p| p["argv"][0] == "became")
            .expect("the one that became another");
        assert_eq!(
            (number(became, "execs"), &became["exit"]),
            (1, &Value::from("exited with 40"))
        );
    }
}

#[test]
fn pipelines_of_a_shell() {
    let place = Workplace::new();
    let script = "echo first | cat; for i in 1 2 3; do (echo $i >&2; exit $i) | (cat; kill -9 $BASHPID) ; done; seq 100 | sort -n | tail -1; (exec sh -c 'echo became; kill -TERM $$'); echo end; exit 9";
    let guest = Guest::program(system_program("bash"))
        .args(["-c", script])
        .ends(Outcome::Exit(9));
    let r = place.record(&guest);
    let list = processes(&place, &r.dir);
    check_each(&place, &r.dir, &list, |_| None);
    let ends = |how: &str| list.iter().filter(|p| p["exit"] == how).count();
    assert_eq!(
        (
            ends("killed by SIGKILL"),
            ends("killed by SIGTERM"),
            ends("exited with 9")
        ),
        (3, 1, 1),
        "{list:?}"
    );
    let became = list
        .iter()
        .find(|p| p["exit"] == "killed by SIGTERM")
        .expect("sh");
    assert_eq!(became["argv"][0], "sh");
    let replay = replay_one(&place, &r.dir, &became["pid"].to_string());
    assert_eq!(replay.text(), "became\n", "{}", replay.describe());
}

#[test]
fn make_with_jobs() {
    let place = Workplace::new();
    let dir = place.fresh_dir("project");
    let mut rules = String::from("all:");
    (0..12).for_each(|i| rules.push_str(&format!(" t{i}")));
    for i in 0..12 {
        let status = if i == 7 { "kill -SEGV $$$$" } else { "true" };
        rules.push_str(&format!(
            "\nt{i}:\n\t@echo begin {i}; seq {i}000 | sort -r | head -1; {status}\n"
        ));
    }
    std::fs::write(dir.join("Makefile"), rules).expect("a makefile");
    let guest = Guest::program(system_program("make"))
        .args(["-k", "-j4", "-C", dir.to_str().expect("a path")])
        .ends(Outcome::Exit(2));
    let r = place.record(&guest);
    assert!(guest.outcome.fits(r.run.status), "{}", r.run.describe());
    let list = processes(&place, &r.dir);
    assert!(list.len() > 40, "{list:?}");
    let crashed: Vec<&Value> = list
        .iter()
        .filter(|p| p["exit"] == "killed by SIGSEGV")
        .collect();
    assert_eq!(crashed.len(), 1, "{list:?}");
    let replay = replay_one(&place, &r.dir, &crashed[0]["pid"].to_string());
    assert_eq!(
        replay.status.code(),
        Some(128 + 11),
        "{}",
        replay.describe()
    );
    assert_eq!(replay.text(), "begin 7\n", "{}", replay.describe());
    let text = run(place.reprise(["ps"]).arg(&r.dir), None).text();
    let line = text
        .lines()
        .find(|l| l.contains("killed by SIGSEGV"))
        .expect("its line");
    for part in ["pid", "parent"] {
        assert!(line.contains(&crashed[0][part].to_string()), "{line}");
    }
    let range = format!("{}-{}", crashed[0]["first_event"], crashed[0]["last_event"]);
    assert!(line.contains(&range) && line.contains("begin 7"), "{line}");
}

#[test]
fn an_id_that_several_processes_had() {
    // In two namespaces, the first processes are both 1.
    let place = Workplace::new();
    let r = place.record(&Guest::new("sandbox_pids"));
    assert!(r.run.status.success(), "{}", r.run.describe());
    if r.run.text().contains("no ") {
        return common::skip("no pid namespaces here");
    }
    let list = processes(&place, &r.dir);
    let ones: Vec<&Value> = list.iter().filter(|p| p["pid"] == 1).collect();
    assert_eq!(ones.len(), 2, "{list:?}");
    let refused = replay_one(&place, &r.dir, "1");
    refused.assert_own_failure(OWN_FAILURE);
    for one in &ones {
        assert_eq!(
            (&one["parent"], &one["exit"]),
            (&list[0]["pid"], &Value::from("exited with 0"))
        );
        let name = format!("1@{}", one["first_event"]);
        assert!(refused.said().contains(&name), "{}", refused.describe());
        let replay = replay_one(&place, &r.dir, &name);
        assert!(replay.status.success(), "{}", replay.describe());
        let text = replay.text();
        assert_eq!(text.lines().count(), 4, "{}", replay.describe());
        assert!(
            text.lines().all(|l| l.starts_with("inside: ")),
            "{}",
            replay.describe()
        );
        let events = events_of(&place, &r.dir, &name);
        assert_eq!(events.first(), one["first_event"].as_u64().as_ref());
        assert_eq!(events.last(), one["last_event"].as_u64().as_ref());
    }
    assert_eq!(
        events_of(&place, &r.dir, "1").len(),
        ones.iter()
            .map(|one| events_of(&place, &r.dir, &format!("1@{}", one["first_event"])).len())
            .sum::<usize>()
    );
}

#[test]
fn a_process_that_is_not_there() {
    let place = Workplace::new();
    let r = place.record(&Guest::new("crash_of_one").args(["6"]));
    for (name, says) in [
        ("1", "no process 1"),
        ("1@3", "no process 1"),
        ("x", "PID@EVENT"),
        ("5@", "PID@EVENT"),
    ] {
        for command in ["replay", "dump"] {
            if command == "dump" && name == "1" {
                continue;
            }
            let out = run(place.reprise([command, "--pid", name]).arg(&r.dir), None);
            out.assert_own_failure(OWN_FAILURE);
            assert!(out.said().contains(says), "{}", out.describe());
        }
    }
}
