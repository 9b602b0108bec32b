//! Traces as files: listing, packing, damage, limits, and the death of anything at any moment.

use crate::common;

use common::leftovers::descendants;
use common::{
    assert_same, full, knob, run, Guest, Numbers, Outcome, Recording, Run, Running, Workplace,
    OWN_FAILURE,
};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).expect("chmod");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("copy");
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600))
                .expect("chmod");
        }
    }
}

fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        if entry.file_type().expect("a type").is_dir() {
            files.extend(files_of(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

fn recorded(place: &Workplace, name: &str, args: &[&str]) -> Recording {
    let recording = place.record(&Guest::new(name).args(args.iter().copied()));
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    recording
}

fn with(place: &Workplace, words: &[&str], dir: &Path) -> Run {
    let mut args: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    args.push(dir.as_os_str());
    run(&mut place.reprise(args), None)
}

#[test]
fn a_trace_is_private_and_says_what_it_holds() {
    let place = Workplace::new();
    let recording = recorded(&place, "thread_create", &["4"]);
    let meta = std::fs::metadata(&recording.dir).expect("the trace");
    assert_eq!(
        meta.mode() & 0o777,
        0o700,
        "a trace holds everything the program saw, and is open to others"
    );
    let info = place.info(&recording.dir);
    let by_kind = info.0["events_by_kind"]
        .as_object()
        .expect("events_by_kind");
    let sum: u64 = by_kind
        .values()
        .map(|v| v.as_u64().expect("a number"))
        .sum();
    assert_eq!(sum, info.events(), "{}", info.0);
    assert_eq!(
        info.kind("thread-start"),
        info.kind("thread-exit"),
        "{}",
        info.0
    );
    let text = with(&place, &["info"], &recording.dir);
    assert!(
        text.status.success() && text.text().contains("thread_create"),
        "{}",
        text.describe()
    );
}

#[test]
fn dump_is_readable_and_complete() {
    let place = Workplace::new();
    let recording = recorded(&place, "files_read_write", &[]);
    let text = with(&place, &["dump"], &recording.dir);
    assert!(text.status.success(), "{}", text.describe());
    for word in [
        "pwrite64",
        "lseek",
        "ftruncate",
        "preadv",
        "exit_group",
        "ENOENT",
    ] {
        assert!(
            text.text().contains(word),
            "dump never says {word}: {}",
            text.describe()
        );
    }
    let json = with(&place, &["dump", "--json"], &recording.dir);
    assert!(json.status.success(), "{}", json.describe());
    let events = json
        .text()
        .lines()
        .filter(|l| serde_json::from_str::<serde_json::Value>(l).is_ok())
        .count() as u64;
    let array = serde_json::from_slice::<serde_json::Value>(&json.stdout)
        .ok()
        .and_then(|v| v.as_array().map(|a| a.len() as u64));
    assert_eq!(
        array.unwrap_or(events),
        place.info(&recording.dir).events(),
        "dump --json is not all events"
    );
}

#[test]
fn latest_and_ls_and_rm() {
    let place = Workplace::new();
    for status in ["3", "4"] {
        let out = run(
            place
                .reprise(["record", "--"])
                .arg(common::built("hello"))
                .arg(status),
            None,
        );
        assert_eq!(out.status.code(), status.parse().ok(), "{}", out.describe());
    }
    let list = run(&mut place.reprise(["ls"]), None);
    assert!(
        list.status.success() && list.text().matches("hello").count() >= 2,
        "{}",
        list.describe()
    );
    let replay = run(&mut place.reprise(["replay"]), None);
    assert_eq!(
        replay.status.code(),
        Some(4),
        "the latest trace is not the last one recorded: {}",
        replay.describe()
    );
    let latest = place.traces().join("latest");
    assert!(
        latest.exists(),
        "no link `latest` in {}",
        place.traces().display()
    );
    let dir = latest.canonicalize().expect("the latest trace");
    let removed = with(&place, &["rm"], &dir);
    assert!(
        removed.status.success() && !dir.exists(),
        "{}",
        removed.describe()
    );
    let list = run(&mut place.reprise(["ls"]), None);
    assert!(list.status.success(), "{}", list.describe());
    // What is no trace is not removed.
    let other = place.fresh_dir("other");
    std::fs::write(other.join("precious"), "data").expect("a file");
    with(&place, &["rm"], &other).assert_own_failure(OWN_FAILURE);
    assert!(other.join("precious").exists());
}

#[test]
fn no_trace_at_all() {
    let place = Workplace::new();
    run(&mut place.reprise(["replay"]), None).assert_own_failure(OWN_FAILURE);
    for words in [&["replay"][..], &["info"], &["dump"], &["verify"]] {
        with(&place, words, &place.fresh("nothing")).assert_own_failure(OWN_FAILURE);
        with(&place, words, &place.fresh_dir("empty")).assert_own_failure(OWN_FAILURE);
        with(&place, words, Path::new("/dev/null")).assert_own_failure(OWN_FAILURE);
    }
}

#[test]
fn a_packed_trace_replays_anywhere() {
    let place = Workplace::new();
    let recording = recorded(&place, "racey", &["4", "100000"]);
    let packed = place.fresh("packed").with_extension("reprise");
    let out = run(
        &mut place.reprise([
            OsStr::new("pack"),
            recording.dir.as_os_str(),
            OsStr::new("-o"),
            packed.as_os_str(),
        ]),
        None,
    );
    assert!(out.status.success(), "{}", out.describe());
    assert!(packed.is_file(), "pack wrote nothing: {}", out.describe());
    std::fs::remove_dir_all(&recording.dir).expect("remove the trace");
    std::fs::remove_dir_all(place.traces()).expect("remove the store");
    let elsewhere = Workplace::new();
    let moved = elsewhere.fresh("moved").with_extension("reprise");
    std::fs::copy(&packed, &moved).expect("copy");
    assert_same(&recording.run, &elsewhere.replay(&moved));
    let info = elsewhere.info(&moved);
    assert!(info.events() > 0);
}

#[test]
fn keep_on_failure_keeps_only_failures() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let good = run(
        &mut place.record_command(&Guest::new("hello"), &["--keep-on=failure"], &dir),
        None,
    );
    assert!(
        good.status.success() && !dir.exists(),
        "a good run was kept: {}",
        good.describe()
    );
    let bad = place.record_with(&Guest::new("hello").args(["9"]), &["--keep-on=failure"]);
    assert_eq!(bad.run.status.code(), Some(9), "{}", bad.run.describe());
    assert_same(&bad.run, &place.replay(&bad.dir));
    let crash = place.record_with(&Guest::new("crash").args(["segv"]), &["--keep-on=failure"]);
    assert!(
        Outcome::Signal(11).fits(crash.run.status),
        "{}",
        crash.run.describe()
    );
    assert_same(&crash.run, &place.replay(&crash.dir));
}

#[test]
fn until_failure_stops_at_the_first_failure() {
    let place = Workplace::new();
    // Fails in one run of four.
    let recording = place.record_with(
        &Guest::new("sometimes_fails").args(["4"]),
        &["--until-failure", "300"],
    );
    assert_eq!(
        recording.run.status.code(),
        Some(1),
        "{}",
        recording.run.describe()
    );
    let replay = place.replay(&recording.dir);
    assert_eq!(replay.status.code(), Some(1), "{}", replay.describe());
    assert!(
        recording.run.stdout.ends_with(&replay.stdout) && !replay.stdout.is_empty(),
        "not the failing run: {}",
        replay.describe()
    );
    // Never fails: says so by ending with 0.
    let out = run(
        &mut place.record_command(
            &Guest::new("hello"),
            &["--until-failure", "3"],
            &place.fresh("trace"),
        ),
        None,
    );
    assert!(out.status.success(), "{}", out.describe());
    assert_eq!(
        out.text().matches("hello, world").count(),
        3,
        "{}",
        out.describe()
    );
}

/// What a replay of a trace that ends early may print: a beginning of what the program printed.
fn assert_beginning(whole: &[u8], replay: &Run) {
    replay.assert_civil();
    assert!(
        whole.starts_with(&replay.stdout),
        "the replay of a cut-off trace printed something else\n  {}",
        common::difference("stdout", whole, &replay.stdout).unwrap_or_default()
    );
}

#[test]
fn a_full_trace_stops_or_goes_on() {
    let place = Workplace::new();
    let guest = Guest::new("big_output").args(["6"]);
    // The program's output goes into the trace, and does not fit.
    let native_length = guest.native(&place).stdout.len();
    let go_on = place.record_with(&guest, &["--max-size", "1M", "--on-full=continue"]);
    assert!(
        go_on.run.status.success() && go_on.run.stdout.len() == native_length,
        "the program did not go on: {}",
        go_on.run.describe()
    );
    assert_beginning(&go_on.run.stdout, &place.replay(&go_on.dir));
    let size: u64 = std::fs::metadata(go_on.dir.join("events.zst"))
        .expect("events")
        .len();
    assert!(
        size <= 1 << 20,
        "{size} bytes of events in a trace limited to 1 MiB"
    );
    let stop = place.record_with(
        &Guest::new("counter_lines"),
        &["--max-size", "300K", "--on-full=stop"],
    );
    assert!(
        !stop.run.status.success(),
        "a program without end was not stopped: {}",
        stop.run.describe()
    );
    assert!(!stop.run.said().is_empty(), "stopped without a word");
    assert_beginning(&stop.run.stdout, &place.replay(&stop.dir));
}

#[test]
fn a_full_disk() {
    // Small file systems, where this user may make them: one too small for the program's memory, and one too small for its output.
    let place = Workplace::new();
    let script = "mount -t tmpfs -o size=$1 none \"$2\" || exit 77; shift 2; \"$@\"; code=$?; \
                  [ $code -eq 125 ] || \"$0\" info \"$5\" >&2 || exit 78; exit $code";
    for (size, policy) in [
        ("1m", "stop"),
        ("1m", "continue"),
        ("12m", "stop"),
        ("12m", "continue"),
    ] {
        let small = place.fresh_dir("small");
        let trace = small.join("trace");
        let mut command = std::process::Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", script, common::REPRISE, size])
            .arg(&small);
        command
            .args([
                common::REPRISE,
                "record",
                &format!("--on-full={policy}"),
                "-o",
            ])
            .arg(&trace);
        // What a program reads is in the trace, and random bytes don't get smaller: 40 MB of them fit neither disk.
        command.args([
            "--",
            "dd",
            "if=/dev/urandom",
            "of=/dev/null",
            "bs=64k",
            "count=640",
        ]);
        place.settle(&mut command);
        let out = run(&mut command, None);
        if out.status.code() == Some(77) || out.said().contains("unshare:") {
            return common::skip("this user cannot mount a small file system here");
        }
        out.assert_civil();
        assert!(
            out.said().contains("full"),
            "{size}, {policy}: not a word about it: {}",
            out.describe()
        );
        assert_ne!(
            out.status.code(),
            Some(78),
            "{size}, {policy}: the trace cannot be read: {}",
            out.describe()
        );
        // Too full to begin at all: nothing was started.
        let refused = out.status.code() == Some(OWN_FAILURE) && out.stdout.is_empty();
        match policy {
            _ if size == "1m" && refused => {}
            "continue" => assert!(
                out.status.success(),
                "the program did not go on: {}",
                out.describe()
            ),
            _ => assert!(
                !out.status.success(),
                "the program was not stopped: {}",
                out.describe()
            ),
        }
    }
}

#[test]
fn a_trace_of_a_newer_version_is_refused_by_name() {
    let place = Workplace::new();
    let recording = recorded(&place, "hello", &[]);
    let path = recording.dir.join("manifest.json");
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("manifest")).expect("JSON");
    manifest["format_version"] = 4711.into();
    std::fs::write(&path, manifest.to_string()).expect("write");
    for words in [&["replay"][..], &["info"], &["dump"], &["verify"]] {
        let out = with(&place, words, &recording.dir);
        out.assert_own_failure(OWN_FAILURE);
        assert!(
            out.said().contains("newer") || out.said().contains("4711"),
            "does not say why: {}",
            out.describe()
        );
    }
}

/// Every command on a damaged trace ends in order, and a replay prints nothing that the program did not.
fn assert_survives(place: &Workplace, whole: &[u8], dir: &Path, what: &str) {
    for words in [
        &["info"][..],
        &["info", "--json"],
        &["dump"],
        &["verify", "-n", "1"],
        &["export", "--perfetto", "-o", "/dev/null"],
        &["view", "-o", "/dev/null"],
        &["replay"],
    ] {
        let out = with(place, words, dir);
        out.assert_civil();
        let code = out.status.code();
        assert!(code.is_some_and(|c| c < 128), "{what}: {}", out.describe());
        if words[0] == "replay" {
            assert_beginning(whole, &out);
        }
    }
}

#[test]
fn flipped_bits() {
    let place = Workplace::new();
    let recording = recorded(&place, "thread_create", &["3"]);
    let mut numbers = Numbers(7);
    for file in files_of(&recording.dir) {
        let name = file
            .strip_prefix(&recording.dir)
            .expect("inside")
            .to_path_buf();
        let length = std::fs::metadata(&file).expect("a file").len();
        let flips = if full() { 60 } else { 4 };
        for _ in 0..flips.min(length) {
            let damaged = place.fresh("damaged");
            copy_dir(&recording.dir, &damaged);
            let mut bytes = std::fs::read(&file).expect("a file");
            let (at, bit) = (numbers.below(length) as usize, numbers.below(8));
            bytes[at] ^= 1 << bit;
            std::fs::write(damaged.join(&name), bytes).expect("write");
            assert_survives(
                &place,
                &recording.run.stdout,
                &damaged,
                &format!("bit {bit} of byte {at} of {} flipped", name.display()),
            );
            let _ = std::fs::remove_dir_all(&damaged);
        }
    }
}

#[test]
fn cut_off_files() {
    let place = Workplace::new();
    let recording = recorded(&place, "counter_lines", &["300"]);
    let mut numbers = Numbers(11);
    for file in files_of(&recording.dir) {
        let name = file
            .strip_prefix(&recording.dir)
            .expect("inside")
            .to_path_buf();
        let length = std::fs::metadata(&file).expect("a file").len();
        let cuts = if full() { 40 } else { 3 };
        for i in 0..=cuts {
            let damaged = place.fresh("damaged");
            copy_dir(&recording.dir, &damaged);
            let target = damaged.join(&name);
            // The last one: the file is gone altogether.
            if i == cuts {
                std::fs::remove_file(&target).expect("remove");
            } else {
                let left = if i == 0 { 0 } else { numbers.below(length) };
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(&target)
                    .expect("open")
                    .set_len(left)
                    .expect("truncate");
            }
            assert_survives(
                &place,
                &recording.run.stdout,
                &damaged,
                &format!("{} cut off ({i})", name.display()),
            );
            let _ = std::fs::remove_dir_all(&damaged);
        }
    }
}

#[test]
fn an_unreadable_trace() {
    let place = Workplace::new();
    let recording = recorded(&place, "hello", &[]);
    std::fs::set_permissions(
        recording.dir.join("events.zst"),
        std::fs::Permissions::from_mode(0o000),
    )
    .expect("chmod");
    // SAFETY: asks for an id.
    if unsafe { libc::getuid() } == 0 {
        // Root reads everything; a directory in place of the file it can't.
        std::fs::remove_file(recording.dir.join("events.zst")).expect("remove");
        std::fs::create_dir(recording.dir.join("events.zst")).expect("a directory");
    }
    with(&place, &["replay"], &recording.dir).assert_own_failure(OWN_FAILURE);
}

/// kill -9 of the program, the agent or the launcher at a random moment: the trace stays readable and replays up to its last
/// whole frame, and nothing of the session is left behind.
#[test]
fn killed_at_random_moments() {
    let rounds = knob("REPRISE_TEST_KILLS", if full() { 100 } else { 12 });
    let place = Workplace::new();
    let mut numbers = Numbers(3);
    let mut replayed_something = 0;
    for round in 0..rounds {
        let dir = place.fresh("trace");
        let guest = Guest::new("counter_lines").args(["1000000"]);
        let mut running =
            Running::start_reading(&mut place.record_command(&guest, &[], &dir), None);
        // The moment is named by what the program has printed.
        let lines = 1 + numbers.below(3000);
        let mut reader = BufReader::new(running.child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        for _ in 0..lines {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                break;
            }
        }
        let everyone = descendants(running.pid());
        let victim = everyone[(round as usize + numbers.below(2) as usize) % everyone.len()];
        // SAFETY: sends a signal to a process that this test started.
        unsafe { libc::kill(victim, libc::SIGKILL) };
        // A program whose recorder is gone may go on; it is ended by its reader's end.
        drop(reader);
        let out = running.finish();
        out.assert_civil();
        for pid in everyone {
            assert!(
                !Path::new(&format!("/proc/{pid}/exe")).exists() || gone(pid),
                "process {pid} of the session is left, victim {victim}: {}",
                out.describe()
            );
        }
        let what = format!(
            "round {round}: victim {victim} of {} processes after {lines} lines",
            place.traces().display()
        );
        if !dir.join("manifest.json").exists() {
            continue;
        }
        let info = with(&place, &["info"], &dir);
        info.assert_civil();
        assert!(info.status.success(), "{what}: {}", info.describe());
        let replay = place.replay(&dir);
        replay.assert_civil();
        let text = replay.text();
        let mut wanted = 0;
        for line in text.lines() {
            wanted += 1;
            assert_eq!(
                line,
                format!("line {wanted}"),
                "{what}: {}",
                replay.describe()
            );
        }
        assert!(
            !replay.said().contains("diverg"),
            "{what}: {}",
            replay.describe()
        );
        replayed_something += u64::from(wanted > 0);
        let _ = std::fs::remove_dir_all(&dir);
    }
    assert!(
        replayed_something * 2 > rounds,
        "only {replayed_something} of {rounds} torn traces replayed anything"
    );
}

/// Waits until a process is gone, or the limit for hung runs is over.
fn gone(pid: i32) -> bool {
    let since = std::time::Instant::now();
    while since.elapsed() < common::hang_limit() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ") {
            return true;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    false
}
