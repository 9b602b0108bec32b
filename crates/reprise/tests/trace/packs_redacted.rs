//! Packed traces out of which values were taken: nothing of them is left, and what does not look at them is replayed as it was.

use crate::common;

use common::{assert_same, run, Guest, Recording, Run, Workplace, OWN_FAILURE};
use reprise_trace::{ImageSet, Reader};
use std::path::{Path, PathBuf};

/// The value of a variable, and one that stands in a file.
const VARIABLE: &str = "hunter2-of-the-environment";
const IN_FILE: &str = "correct horse battery staple";

guests! { carries_values }

/// A recording of the guest that has a secret in its environment, and another one in a file that it reads and maps, across a page's end.
fn recorded(place: &Workplace, flags: &[&str], shows: bool) -> Recording {
    let file = place.fresh("input");
    let mut text = vec![b'.'; 20_000];
    for at in [100, 4096 - 7, 4096 * 4 - 1] {
        text[at..at + IN_FILE.len()].copy_from_slice(IN_FILE.as_bytes());
    }
    std::fs::write(&file, text).expect("written");
    let mut guest = Guest::new("carries_values").args([file.into_os_string()]);
    if shows {
        guest.args.push("show".into());
    }
    let recording = place.record_with(&guest.env("GUEST_SECRET_VALUE", VARIABLE), flags);
    let said = recording.run.describe();
    assert!(recording.run.status.success(), "{said}");
    recording
}

/// Packs a trace with `--redact` of these.
fn packed(place: &Workplace, trace: &Path, redact: &[&str]) -> (Run, PathBuf) {
    let file = place.fresh("bug.reprise");
    let mut command = place.reprise(["pack", "-o"]);
    command.arg(&file).arg(trace);
    for value in redact {
        command.args(["--redact", value]);
    }
    (run(&mut command, None), file)
}

/// All bytes of a trace as a reader of it would find them: files, events, and memory of the images.
fn readable(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for dir in [dir, &dir.join("files")] {
        for entry in std::fs::read_dir(dir).expect("there").flatten() {
            if entry.path().is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                all.push((name, std::fs::read(entry.path()).expect("read")));
            }
        }
    }
    let mut reader = Reader::open(dir).expect("the events");
    let mut events = Vec::new();
    while let Some(event) = reader.next().expect("an event") {
        events.extend_from_slice(event.bytes);
    }
    all.push(("events".into(), events));
    let mut set = ImageSet::new(dir);
    for n in set.numbers().expect("the images") {
        let mut image = set.image(n).expect("an image");
        let mut blob = vec![0; image.blob_len() as usize];
        image.read_blob(0, &mut blob).expect("its memory");
        all.push((format!("memory {n}"), blob));
    }
    all
}

/// Where a value stands.
fn places(dir: &Path, value: &str) -> Vec<String> {
    let has = |bytes: &[u8]| memory_has(bytes, value.as_bytes());
    let all = readable(dir).into_iter().filter(|(_, bytes)| has(bytes));
    all.map(|(name, _)| name).collect()
}

fn memory_has(bytes: &[u8], value: &[u8]) -> bool {
    bytes.windows(value.len()).any(|w| w == value)
}

/// Unpacks a packed trace.
fn unpacked(place: &Workplace, file: &Path) -> PathBuf {
    let dir = place.fresh("unpacked");
    reprise_trace::pack::unpack(file, &dir, 1 << 32).expect("unpacked");
    dir
}

fn command(place: &Workplace, words: &[&str], pack: &Path) -> Run {
    run(place.reprise(words).arg(pack), None)
}

#[test]
fn nothing_of_a_value_is_left_and_the_replay_is_the_same() {
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let recording = recorded(&place, &["--engine", engine], false);
        let value = format!("={IN_FILE}");
        // In the image, in what was read, in what was mapped: or the test would prove nothing.
        let before = places(&recording.dir, VARIABLE);
        assert!(before.iter().any(|p| p == "memory 0"), "{before:?}");
        let before = places(&recording.dir, IN_FILE);
        assert!(before.iter().any(|p| p == "events"), "{before:?}");
        assert!(before.iter().any(|p| p.len() == 32), "{before:?}");

        let (pack, file) = packed(&place, &recording.dir, &["GUEST_SEC*", &value]);
        assert!(pack.status.success(), "{}", pack.describe());
        assert!(
            pack.text().contains("redacted: 2 values"),
            "{}",
            pack.text()
        );
        let dir = unpacked(&place, &file);
        for value in [VARIABLE, IN_FILE] {
            assert_eq!(places(&dir, value), [""; 0], "{engine}");
        }
        let fill = "X".repeat(VARIABLE.len());
        assert!(!places(&dir, &fill).is_empty());
        // What it was made of is as it was.
        assert!(!places(&recording.dir, VARIABLE).is_empty());
        assert_same(&recording.run, &command(&place, &["replay"], &file));
        let verify = command(&place, &["verify", "-n", "2"], &file);
        assert!(verify.status.success(), "{}", verify.describe());
        let info = command(&place, &["info"], &file).text();
        assert!(
            info.contains("redacted") && info.contains("2 values"),
            "{info}"
        );
        let info = command(&place, &["info", "--env"], &file).text();
        assert!(!info.contains(VARIABLE), "{info}");
    }
}

#[test]
fn a_replay_that_depends_on_a_value_diverges_and_says_why() {
    let place = Workplace::new();
    let recording = recorded(&place, &[], true);
    assert!(recording.run.text().contains(VARIABLE));
    let (pack, file) = packed(&place, &recording.dir, &["GUEST_SECRET_VALUE"]);
    assert!(pack.status.success(), "{}", pack.describe());
    let replay = command(&place, &["replay"], &file);
    let said = replay.describe();
    assert_eq!(replay.status.code(), Some(OWN_FAILURE), "{said}");
    assert!(said.contains("diverged"), "{said}");
    assert!(said.contains("this trace was redacted"), "{said}");
    assert!(!said.contains(VARIABLE), "{said}");
    let verify = command(&place, &["verify", "-n", "1"], &file);
    assert!(verify.text().contains("redacted"), "{}", verify.describe());
    // The trace itself is another matter.
    assert_same(&recording.run, &place.replay(&recording.dir));
}

#[test]
fn programs_that_others_became_lose_it_too() {
    let place = Workplace::new();
    let script = "exec env -u NOTHING cat /dev/null";
    let shell = Guest::program("/bin/sh").args(["-c", script]);
    let recording = place.record(&shell.env("GUEST_SECRET_VALUE", VARIABLE));
    let said = recording.run.describe();
    assert!(recording.run.status.success(), "{said}");
    let before = places(&recording.dir, VARIABLE);
    assert!(before.iter().any(|p| p == "memory 1"), "{before:?}");
    let (pack, file) = packed(&place, &recording.dir, &["GUEST_SECRET_VALUE"]);
    assert!(pack.status.success(), "{}", pack.describe());
    assert_eq!(places(&unpacked(&place, &file), VARIABLE), [""; 0]);
}

#[test]
fn what_can_not_be_redacted_is_refused() {
    let place = Workplace::new();
    let recording = recorded(&place, &[], false);
    for (value, said) in [
        ("=abc", "fewer than 4 bytes"),
        ("=XXXXXX", "nothing but X"),
        ("NO_SUCH_VARIABLE", "no NO_SUCH_VARIABLE in its environment"),
    ] {
        let (pack, file) = packed(&place, &recording.dir, &[value]);
        pack.assert_own_failure(OWN_FAILURE);
        assert!(pack.said().contains(said), "{}", pack.describe());
        assert!(!file.exists());
    }
    // Nothing else is left there either.
    let left = std::fs::read_dir(place.path()).expect("there").flatten();
    let left: Vec<_> = left
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.starts_with(".redacted"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let (pack, _) = packed(&place, &recording.dir, &["=nowhere in this trace"]);
    assert!(pack.status.success(), "{}", pack.describe());
    assert!(pack.notes.contains("no such value"), "{}", pack.describe());
}
