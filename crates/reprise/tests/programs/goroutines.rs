//! Go programs that `reprise go` has built, recorded at the level of goroutines: each guest of `tests/guests/goroutines` has one behaviour. What it prints
//! depends on which goroutine was first, on clocks and on random numbers, so a replay that lets anything happen otherwise prints something else.

use crate::common;

use common::tampered::tampered;
use common::{check_times, knob, run, Guest, Outcome, Recording, Workplace, OWN_FAILURE};
use reprise_trace::Reader;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The guests, and their exit statuses.
const GUESTS: [(&str, i32); 15] = [
    ("atomics", 0),
    ("channels", 0),
    ("coroutines", 0),
    ("deadlock", 2),
    ("exits", 9),
    ("files", 0),
    ("http", 3),
    ("killed", 137),
    ("locks", 0),
    ("maps", 0),
    ("panics", 2),
    ("random", 0),
    ("signals", 0),
    ("taking_turns", 0),
    ("timers", 0),
];

/// Numbers of the log's kinds, as in `detail` of the trace's events.
const SELECT: u32 = 5;
const LOCK: u32 = 6;

/// `reprise go` in the guests' directory.
fn go(words: &[&str]) -> Command {
    let mut command = Command::new(common::REPRISE);
    command
        .arg("go")
        .args(words)
        .current_dir(common::sources().join("goroutines"));
    command.env_remove("GOFLAGS").env_remove("CGO_ENABLED");
    command
}

/// A guest, built by `reprise go build` with all others when the first is asked for.
fn guest(name: &str) -> Guest {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let dir = BUILT.get_or_init(|| {
        let dir = common::sources().join("bin/goroutines");
        std::fs::create_dir_all(&dir).expect("a directory");
        let run = run(
            &mut go(&["build", "-o", &format!("{}/", dir.display()), "./..."]),
            None,
        );
        assert_eq!(run.status.code(), Some(0), "{}", run.describe());
        dir
    });
    let (_, status) = GUESTS.iter().find(|(n, _)| *n == name).expect("a guest");
    let ends = match status {
        137 => Outcome::Signal(9),
        status => Outcome::Exit(*status),
    };
    Guest::program(dir.join(name)).ends(ends)
}

#[test]
fn every_guest_replays_exactly() {
    let (recordings, replays) = (
        knob("REPRISE_TEST_RECORDINGS", 2),
        knob("REPRISE_TEST_REPLAYS", 1),
    );
    for (name, _) in GUESTS {
        for info in check_times(&guest(name), &[], recordings, replays) {
            assert!(info.kind("goroutine") > 10, "{name}: {}", info.0);
        }
    }
}

#[test]
fn unrecorded_they_run_as_ever() {
    let place = Workplace::new();
    for name in ["channels", "http", "timers"] {
        let guest = guest(name);
        let run = guest.native(&place);
        assert!(guest.outcome.fits(run.status), "{}", run.describe());
    }
}

/// Two events of a kind that follow each other in the order of all, of different goroutines: their numbers.
fn neighbours(dir: &Path, kind: u32) -> [u64; 2] {
    let mut reader = Reader::open(dir).expect("the trace");
    let mut last = None;
    while let Some(e) = reader.next().expect("an event") {
        let number = e.number;
        let e = e.parse().expect("an event");
        let this = (e.header.detail, e.header.flags, number);
        if let Some((detail, goroutine, before)) = last {
            if detail == kind && this.0 == kind && goroutine != this.1 {
                return [before, number];
            }
        }
        last = Some(this);
    }
    panic!("no two goroutines do this one after the other");
}

fn record(place: &Workplace, name: &str) -> Recording {
    let guest = guest(name);
    let recording = place.record(&guest);
    assert!(
        guest.outcome.fits(recording.run.status),
        "{}",
        recording.run.describe()
    );
    recording
}

#[test]
fn a_changed_schedule_is_a_divergence() {
    let place = Workplace::new();
    let dir = record(&place, "taking_turns").dir;
    let swapped = neighbours(&dir, LOCK);
    let mut first = Vec::new();
    tampered(&place, &dir, |number, bytes| {
        if number == swapped[0] {
            first = bytes.clone();
        }
        true
    });
    let mut second = Vec::new();
    tampered(&place, &dir, |number, bytes| {
        if number == swapped[1] {
            second = bytes.clone();
        }
        true
    });
    let other = tampered(&place, &dir, |number, bytes| {
        if number == swapped[0] {
            *bytes = second.clone();
        } else if number == swapped[1] {
            *bytes = first.clone();
        }
        true
    });
    let replay = place.replay(&other);
    replay.assert_own_failure(OWN_FAILURE);
    assert!(replay.said().contains("diverged"), "{}", replay.describe());
    assert!(
        replay.said().contains("goroutine "),
        "{}",
        replay.describe()
    );
    // It reports on standard output.
    let verify = place.verify(&other);
    assert_eq!(
        verify.status.code(),
        Some(OWN_FAILURE),
        "{}",
        verify.describe()
    );
}

#[test]
fn a_divergence_names_the_event_the_goroutine_and_the_line() {
    let place = Workplace::new();
    let dir = record(&place, "channels").dir;
    let mut left = 20;
    // A select becomes a lock.
    let other = tampered(&place, &dir, |_, bytes| {
        let detail = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if bytes[4] == 23 && detail == SELECT {
            left -= 1;
            if left == 0 {
                bytes[8..12].copy_from_slice(&LOCK.to_le_bytes());
            }
        }
        true
    });
    let replay = place.replay(&other);
    replay.assert_own_failure(OWN_FAILURE);
    let said = replay.said();
    for part in [
        "does: select in main.main",
        "channels/main.go:",
        "recorded was: Mutex.Lock",
        "(event ",
    ] {
        assert!(said.contains(part), "{part}: {}", replay.describe());
    }
}

#[test]
fn a_recording_that_breaks_off_replays_as_far_as_it_goes() {
    let place = Workplace::new();
    let dir = record(&place, "locks").dir;
    let cut = tampered(&place, &dir, |number, _| number < 500);
    std::fs::remove_file(cut.join("summary.json")).expect("no summary");
    let verify = place.verify(&cut);
    assert_eq!(verify.status.code(), Some(65), "{}", verify.describe());
}

#[test]
fn commands_that_read_traces_know_it_or_say_that_they_do_not() {
    let place = Workplace::new();
    let dir = record(&place, "http").dir;
    let dump = run(place.reprise(["dump"]).arg(&dir), None);
    assert_eq!(dump.status.code(), Some(0), "{}", dump.describe());
    for part in [
        "goroutine 1: go = ",
        ": select at 0x",
        ": accept4 = ",
        ": descriptor's lock",
    ] {
        assert!(dump.text().contains(part), "{part} is not in the dump");
    }
    for words in [
        &["replay", "-d"][..],
        &["backtrace"],
        &["checkpoint"],
        &["races"],
        &["where", "stdout"],
        &["values", "1"],
        &["replay", "--from", "3"],
    ] {
        let refused = run(place.reprise(words).arg(&dir), None);
        refused.assert_own_failure(OWN_FAILURE);
    }
}

#[test]
fn who_can_not_be_recorded_so_is_refused() {
    let place = Workplace::new();
    let refused = run(
        &mut place.reprise(["record", "--engine", "goroutines", "--", "/bin/true"]),
        None,
    );
    refused.assert_own_failure(OWN_FAILURE);
    assert!(
        refused.said().contains("reprise go build"),
        "{}",
        refused.describe()
    );
    for (words, said) in [
        (&["build", "-race", "./locks"][..], "-race"),
        (&["build", "-gcflags=-N", "./locks"], "-gcflags"),
        (&["test", "-overlay", "x", "./locks"], "-overlay"),
    ] {
        let refused = run(&mut go(words), None);
        refused.assert_own_failure(OWN_FAILURE);
        assert!(refused.said().contains(said), "{}", refused.describe());
    }
    let refused = run(go(&["build", "./locks"]).env("CGO_ENABLED", "1"), None);
    refused.assert_own_failure(OWN_FAILURE);
}

/// A command `go` that says this of itself.
fn pretended(place: &Workplace, version: &str, root: &Path) -> PathBuf {
    let path = place.fresh("go");
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' {version} {} linux amd64 ''\n",
        root.display()
    );
    std::fs::write(&path, text).expect("a script");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its mode");
    path
}

#[test]
fn other_versions_and_changed_sources_are_refused() {
    let place = Workplace::new();
    let there = run(Command::new("go").args(["env", "GOROOT"]), None).text();
    let there = Path::new(there.trim()).join("src");
    let other = pretended(&place, "go1.25.3", &there);
    let refused = run(go(&["build", "./locks"]).env("REPRISE_GO", &other), None);
    refused.assert_own_failure(OWN_FAILURE);
    assert!(
        refused.said().contains("go1.25.3"),
        "{}",
        refused.describe()
    );
    // A root with a function that says something else.
    let root = place.fresh_dir("goroot");
    let edits = common::top().join("crates/goroutines/overlay/edits-1.26.8.txt");
    let edits = std::fs::read_to_string(edits).expect("the edits");
    for file in edits.lines().filter_map(|l| l.strip_prefix("@file ")) {
        let to = root.join("src").join(file);
        std::fs::create_dir_all(to.parent().expect("a parent")).expect("directories");
        let text = std::fs::read_to_string(there.join(file)).expect("Go's source");
        let text = text.replace("c.closed = 1", "c.closed = 2");
        std::fs::write(to, text).expect("a file");
    }
    let changed = pretended(&place, "go1.26.8", &root);
    let refused = run(go(&["build", "./locks"]).env("REPRISE_GO", &changed), None);
    refused.assert_own_failure(OWN_FAILURE);
    assert!(
        refused.said().contains("runtime/chan.go: func closechan"),
        "{}",
        refused.describe()
    );
}
