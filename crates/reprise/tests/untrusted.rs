//! Trace directories that somebody else has made: what lies in them leads nowhere else, keeps nobody waiting, and says nothing to the terminal.

mod common;

use common::{run, Guest, Run, Workplace, OWN_FAILURE};
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A trace to be changed.
fn trace(place: &Workplace) -> PathBuf {
    let recording = place.record(&Guest::new("hello"));
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    recording.dir
}

/// All that reads a trace.
fn readers(place: &Workplace, dir: &Path) -> Vec<(&'static str, Run)> {
    let mut out = Vec::new();
    for words in [
        &["info"][..],
        &["dump"],
        &["replay"],
        &["verify", "-n", "1"],
    ] {
        let mut command = place.reprise(words);
        out.push((words[0], run(command.arg(dir), None)));
    }
    let packed = place.fresh("packed");
    let words = [OsStr::new("pack"), dir.as_os_str(), OsStr::new("-o")];
    out.push(("pack", run(place.reprise(words).arg(packed), None)));
    out
}

fn fifo(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().expect("text")).expect("no zero");
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

#[test]
fn what_is_no_regular_file_is_none_of_a_trace() {
    for name in ["manifest.json", "events.zst", "image"] {
        for with in ["fifo", "link", "device"] {
            let place = Workplace::new();
            let dir = trace(&place);
            let path = dir.join(name);
            std::fs::rename(&path, place.path().join("moved")).expect("moved");
            match with {
                "fifo" => fifo(&path),
                "link" => symlink(place.path().join("moved"), &path).expect("a link"),
                _ => symlink("/dev/zero", &path).expect("a link"),
            }
            for (reader, out) in readers(&place, &dir) {
                // What is said of a whole run needs no more than its manifest and its summary, and a list of events no image.
                let unread = match reader {
                    "info" => name != "manifest.json",
                    "dump" => name == "image",
                    _ => false,
                };
                if !unread {
                    out.assert_own_failure(OWN_FAILURE);
                }
            }
            let listed = run(&mut place.reprise(["ls"]), None);
            assert!(listed.status.success(), "{}", listed.describe());
        }
    }
}

#[test]
fn a_directory_of_files_elsewhere_is_not_followed() {
    let place = Workplace::new();
    let dir = trace(&place);
    let away = place.path().join("away");
    std::fs::rename(dir.join("files"), &away).expect("moved");
    std::fs::write(away.join("precious"), "precious").expect("a file");
    let count = || std::fs::read_dir(&away).expect("there").count();
    let before = count();
    symlink(&away, dir.join("files")).expect("a link");
    place.replay(&dir).assert_own_failure(OWN_FAILURE);
    let removed = run(place.reprise(["rm"]).arg(&dir), None);
    removed.assert_own_failure(OWN_FAILURE);
    assert_eq!(count(), before, "{}", removed.describe());
}

#[test]
fn only_what_a_trace_has_is_removed() {
    let place = Workplace::new();
    let dir = trace(&place);
    std::fs::write(dir.join("files/notes.txt"), "mine").expect("a file");
    let removed = run(place.reprise(["rm"]).arg(&dir), None);
    removed.assert_own_failure(OWN_FAILURE);
    let kept = std::fs::read(dir.join("files/notes.txt"));
    assert_eq!(kept.expect("it is there"), b"mine");
}

#[test]
fn contents_are_what_their_names_say() {
    let place = Workplace::new();
    let dir = trace(&place);
    assert!(place.verify(&dir).status.success());
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir.join("files"))
        .expect("there")
        .map(|e| e.expect("an entry").path())
        .collect();
    files.sort();
    for path in files {
        let bytes = std::fs::read(&path).expect("read");
        let mut other = bytes.clone();
        *other.last_mut().expect("not empty") ^= 1;
        // Contents are shared between traces: this one gets its own.
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, &other).expect("written");
        let verified = place.verify(&dir);
        verified.assert_own_failure(OWN_FAILURE);
        let name = path.file_name().expect("a name").to_string_lossy();
        assert!(verified.said().contains(&*name), "{}", verified.describe());
        std::fs::write(&path, &bytes).expect("written");
    }
    assert!(place.verify(&dir).status.success());
}

#[test]
fn no_text_of_a_trace_commands_the_terminal() {
    let place = Workplace::new();
    let dir = trace(&place);
    let path = dir.join("manifest.json");
    let text = std::fs::read_to_string(&path).expect("text");
    let mut manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    fn poison(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::String(s) if !s.chars().all(|c| c.is_ascii_hexdigit()) => {
                s.push_str("\u{1b}]0;taken\u{7}\u{9b}2J");
            }
            serde_json::Value::Array(list) => list.iter_mut().for_each(poison),
            serde_json::Value::Object(map) => map.values_mut().for_each(poison),
            _ => {}
        }
    }
    poison(&mut manifest);
    std::fs::write(&path, manifest.to_string()).expect("written");
    let clean = |what: &str, out: &Run| {
        let all = [&out.stdout[..], &out.stderr[..]].concat();
        let text = String::from_utf8_lossy(&all);
        let bad = text.chars().any(|c| c.is_control() && c != '\n');
        assert!(!bad, "{what}: {text:?}");
    };
    for (reader, out) in readers(&place, &dir) {
        clean(reader, &out);
    }
    for words in [&["ls"][..], &["info"], &["ps"]] {
        let out = run(place.reprise(words).arg(&dir), None);
        clean(words[0], &out);
    }
}
