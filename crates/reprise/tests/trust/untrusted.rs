//! Trace directories that somebody else has made: what lies in them leads nowhere else, keeps nobody waiting, and says nothing to the terminal.

use crate::common;

use common::{run, Guest, Run, Workplace, OWN_FAILURE};
use reprise_trace::ContentHash;
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

/// Where the replayed process opens contents by itself, it would wait for a fifo.
#[test]
fn a_fifo_among_the_contents_keeps_nobody_waiting() {
    let place = Workplace::new();
    let dir = trace(&place);
    // One that no image names: the program maps it later, if at all.
    fifo(&dir.join("files").join("0".repeat(32)));
    let replay = place.replay(&dir);
    assert_eq!(
        replay.status.code(),
        Some(OWN_FAILURE),
        "{}",
        replay.describe()
    );
    assert!(
        replay.notes.contains("is no regular file"),
        "{}",
        replay.describe()
    );
}

#[test]
fn a_packed_trace_becomes_as_large_as_it_may() {
    let place = Workplace::new();
    let dir = trace(&place);
    let packed = place.fresh("packed.reprise");
    let words = [OsStr::new("pack"), dir.as_os_str(), OsStr::new("-o")];
    let pack = run(place.reprise(words).arg(&packed), None);
    assert!(pack.status.success(), "{}", pack.describe());
    let info = |flags: &[&str]| run(place.reprise(["info"]).arg(&packed).args(flags), None);
    let refused = info(&["--max-unpacked", "100k"]);
    assert_eq!(
        refused.status.code(),
        Some(OWN_FAILURE),
        "{}",
        refused.describe()
    );
    assert!(
        refused.notes.contains("--max-unpacked"),
        "{}",
        refused.describe()
    );
    assert!(info(&["--max-unpacked", "100M"]).status.success());
    assert!(info(&[]).status.success());
}

/// Code that writes a file, in the place of a runtime's first instructions in a replay: open(2), exit_group(2) of 0.
fn another_runtime(path: &Path) -> Vec<u8> {
    use object::{Object, ObjectSection, ObjectSymbol};
    let mut image = reprise_launch::runtime::EMBEDDED.to_vec();
    let file = object::File::parse(&*image).expect("an ELF file");
    let mut symbols = file.symbols();
    let start = symbols.find(|s| s.name() == Ok("rt_start_replay"));
    let start = start.expect("its start").address();
    let text = file
        .sections()
        .find(|s| s.address() <= start && start < s.address() + s.size());
    let text = text.expect("its section");
    let at = text.file_range().expect("in the file").0 + (start - text.address());
    let mut code = vec![
        0x48, 0x8d, 0x3d, 0x1d, 0, 0, 0, // lea path(%rip), %rdi
        0xbe, 0x41, 0, 0, 0, // mov $O_CREAT | O_WRONLY, %esi
        0xba, 0x80, 1, 0, 0, // mov $0600, %edx
        0xb8, 2, 0, 0, 0, // mov $SYS_open, %eax
        0x0f, 0x05, // syscall
        0x31, 0xff, // xor %edi, %edi
        0xb8, 231, 0, 0, 0, // mov $SYS_exit_group, %eax
        0x0f, 0x05, // syscall
        0x0f, 0x0b, 0x90, // ud2; nop
    ];
    code.extend(path.to_str().expect("text").bytes());
    code.push(0);
    image[at as usize..at as usize + code.len()].copy_from_slice(&code);
    image
}

#[test]
fn a_runtime_that_nobody_knows_runs_only_when_that_is_wanted_and_reaches_nothing() {
    let place = Workplace::new();
    let dir = trace(&place);
    let target = place.path().join("written");
    let manifest = std::fs::read_to_string(dir.join("manifest.json")).expect("its manifest");
    let (_, name) = manifest
        .split_once("\"runtime_hash\": \"")
        .expect("its runtime");
    // By a name of its own: in the place of the genuine one nobody would look at it.
    let another = another_runtime(&target);
    let hash = ContentHash::of(&another).to_hex();
    std::fs::write(dir.join("files").join(&hash), another).expect("another one");
    let changed = manifest.replace(&name[..32], &hash);
    std::fs::write(dir.join("manifest.json"), changed).expect("its manifest");
    for words in [
        &["replay"][..],
        &["verify", "-n", "1"],
        &["backtrace"],
        &["core"],
    ] {
        let core = place.fresh("core");
        let command = |flags: &[&str]| {
            let mut command = place.reprise(words);
            if words[0] == "core" {
                command.arg("end").arg("-o").arg(&core);
            }
            command.arg(&dir).args(flags);
            run(&mut command, None)
        };
        let refused = command(&[]);
        assert_eq!(
            refused.status.code(),
            Some(OWN_FAILURE),
            "{}",
            refused.describe()
        );
        if words[0] != "verify" {
            assert!(
                refused.notes.contains("--trust-runtime"),
                "{}",
                refused.describe()
            );
        }
        let said = command(&["--trust-runtime"]).describe();
        assert!(!target.exists(), "{said}");
        if words[0] == "replay" {
            assert!(said.contains("was refused: open"), "{said}");
        }
    }
    // It would have.
    let mut command = place.reprise(["replay", "--trust-runtime"]);
    let said = run(command.arg(&dir).env("REPRISE_UNCONFINED", "1"), None).describe();
    assert!(target.exists(), "{said}");
}

/// Who records with today's Reprise replays it with tomorrow's.
#[test]
fn what_was_recorded_with_is_remembered() {
    let place = Workplace::new();
    trace(&place);
    let list = std::fs::read_to_string(place.traces().join(".runtimes")).expect("the list");
    let own = blake3::hash(reprise_launch::runtime::EMBEDDED).to_hex();
    assert!(list.starts_with(own.as_str()), "{list}");
}
