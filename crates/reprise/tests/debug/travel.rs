//! Traces travel: packed, to another directory, user and environment, with programs and libraries gone or changed; and to machines with
//! another processor, or they are refused there with the reason.

use crate::common;

use common::{assert_same, built, run, Guest, Workplace, OWN_FAILURE, REPRISE};
use std::path::{Path, PathBuf};
use std::process::Command;

guests! { cpu_shown }

/// A copy of a guest with its own libraries and loader, to be destroyed later: the guest, and the files.
fn copied(place: &Workplace, name: &str) -> (Guest, PathBuf) {
    let dir = place.fresh_dir("copy");
    let program = dir.join(name);
    std::fs::copy(built(name), &program).expect("copy");
    let ldd = Command::new("ldd").arg(&program).output().expect("ldd");
    let text = String::from_utf8_lossy(&ldd.stdout).into_owned();
    for word in text.split_whitespace().filter(|w| w.starts_with('/')) {
        let from = Path::new(word);
        std::fs::copy(from, dir.join(from.file_name().expect("a name"))).expect("copy a library");
    }
    let guest = Guest::program(dir.join("ld-linux-x86-64.so.2")).args([
        "--library-path".into(),
        dir.clone().into_os_string(),
        program.into_os_string(),
    ]);
    (guest, dir)
}

/// Packs a trace and removes it, with the store beside it; the packed file.
fn packed(place: &Workplace, trace: &Path) -> PathBuf {
    let file = place.fresh("packed").with_extension("reprise");
    let out = run(
        &mut place.reprise([
            "pack".as_ref(),
            trace.as_os_str(),
            "-o".as_ref(),
            file.as_os_str(),
        ]),
        None,
    );
    assert!(out.status.success(), "{}", out.describe());
    std::fs::remove_dir_all(trace).expect("remove the trace");
    std::fs::remove_dir_all(place.traces()).expect("remove the store");
    std::fs::create_dir(place.traces()).expect("an empty directory");
    file
}

#[test]
fn a_packed_trace_replays_elsewhere_as_another_user_without_the_programs() {
    for name in ["cpp_threads", "thread_create"] {
        let place = Workplace::new();
        let (guest, dir) = copied(&place, name);
        let recording = place.record(&guest.env("SOMETHING", "recorded"));
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        let file = packed(&place, &recording.dir);
        // Some files are changed, the rest is gone.
        for entry in std::fs::read_dir(&dir).expect("a directory").flatten() {
            let path = entry.path();
            if path.ends_with("libc.so.6") {
                std::fs::write(&path, "another library").expect("change");
            } else {
                std::fs::remove_file(&path).expect("remove");
            }
        }
        let there = tempfile::tempdir().expect("another directory");
        let (moved, reprise) = (there.path().join("moved"), there.path().join("reprise"));
        std::fs::copy(&file, &moved).expect("move");
        std::fs::copy(REPRISE, &reprise).expect("copy reprise");
        // SAFETY: a plain call.
        let root = unsafe { libc::geteuid() } == 0;
        let mut command = match root {
            true => {
                let nobody = there.path().join("traces");
                std::fs::create_dir(&nobody).expect("a directory");
                for path in [there.path(), &nobody, &moved] {
                    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
                        .expect("a path");
                    // SAFETY: a path of ours.
                    assert_eq!(unsafe { libc::chown(path.as_ptr(), 65534, 65534) }, 0);
                }
                let mut command = Command::new(common::system_program("setpriv"));
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                command.arg(&reprise);
                command
            }
            false => Command::new(&reprise),
        };
        command
            .arg("replay")
            .arg(&moved)
            .env_clear()
            .env("REPRISE_TRACE_DIR", there.path().join("traces"))
            .env("ANOTHER", "environment")
            .current_dir("/");
        for _ in 0..2 {
            assert_same(&recording.run, &run(&mut command, None));
        }
    }
}

/// A trace of `hello`, whose manifest is changed by `change`; what a replay says.
fn replay_tampered(change: impl Fn(&mut serde_json::Value)) -> common::Run {
    let place = Workplace::new();
    let recording = place.record(&Guest::new("hello"));
    let path = recording.dir.join("manifest.json");
    let text = std::fs::read_to_string(&path).expect("a manifest");
    let mut manifest = serde_json::from_str(&text).expect("JSON");
    change(&mut manifest);
    std::fs::write(&path, manifest.to_string()).expect("write");
    let replay = place.replay(&recording.dir);
    if !replay.status.success() {
        // Nothing of the program was started.
        assert!(replay.stdout.is_empty(), "{}", replay.describe());
    }
    replay
}

/// Sets a bit in the recorded cpuid table; rows are leaf, subleaf and four registers.
fn show(manifest: &mut serde_json::Value, leaf: u64, subleaf: u64, register: usize, bit: u32) {
    let rows = manifest["start"]["cpuid"].as_array_mut().expect("rows");
    let row = rows
        .iter_mut()
        .find(|r| r[0].as_u64() == Some(leaf) && r[1].as_u64() == Some(subleaf))
        .expect("the leaf");
    let old = row[2 + register].as_u64().expect("a number");
    row[2 + register] = (old | 1 << bit).into();
}

#[test]
fn a_feature_that_this_machine_lacks_is_named_at_the_start() {
    // AMD had the one, another maker the other: no processor has both.
    let replay = replay_tampered(|m| {
        show(m, 0x8000_0001, u32::MAX.into(), 2, 11);
        show(m, 7, 0, 3, 3);
    });
    replay.assert_own_failure(OWN_FAILURE);
    let said = replay.said();
    assert!(
        said.contains("XOP") || said.contains("AVX512_4FMAPS"),
        "{said}"
    );
    assert!(said.contains("--cpu baseline"), "{said}");
}

#[test]
fn vector_state_that_this_machine_lacks_is_named_at_the_start() {
    let replay = replay_tampered(|m| {
        let mask = m["start"]["xsave_mask"].as_u64().expect("a mask");
        m["start"]["xsave_mask"] = (mask | 1 << 61).into();
    });
    replay.assert_own_failure(OWN_FAILURE);
    assert!(
        replay.said().contains("XCR0 component 61"),
        "{}",
        replay.said()
    );
}

#[test]
fn an_unchanged_trace_passes_the_same_checks() {
    let replay = replay_tampered(|_| {});
    assert!(replay.status.success(), "{}", replay.describe());
}

#[test]
fn recorded_for_the_baseline() {
    let place = Workplace::new();
    for (level, name, most) in [("baseline", "x86-64-v2", 2), ("v3", "x86-64-v3", 3)] {
        let recording = place.record_with(&Guest::new("cpu_shown"), &["--cpu", level]);
        let text = recording.run.text();
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        let info = place.info(&recording.dir);
        let shown: Vec<&str> = info.0["cpu_features"]
            .as_array()
            .expect("features")
            .iter()
            .filter_map(|f| f.as_str())
            .collect();
        assert!(
            info.0["cpu_level"].as_u64() <= Some(most),
            "{name}: {}",
            info.0
        );
        assert!(!shown.iter().any(|f| f.starts_with("AVX512")), "{shown:?}");
        assert!(shown.contains(&"POPCNT"), "{shown:?}");
        assert_eq!(shown.contains(&"AVX"), most == 3, "{shown:?}");
        assert!(text.contains("avx512f 0"), "{text}");
        assert_eq!(text.contains("avx 1"), most == 3, "{text}");
        for _ in 0..2 {
            assert_same(&recording.run, &place.replay(&recording.dir));
        }
    }
}

#[test]
fn glibc_picks_what_the_baseline_has() {
    let place = Workplace::new();
    let loader = Guest::program("/lib64/ld-linux-x86-64.so.2").args(["--help"]);
    let recording = place.record_with(&loader, &["--cpu", "baseline"]);
    let text = recording.run.text();
    assert!(text.contains("x86-64-v2 (supported"), "{text}");
    assert!(!text.contains("x86-64-v3 (supported"), "{text}");
    assert_same(&recording.run, &place.replay(&recording.dir));
}

#[test]
fn signals_and_threads_for_the_baseline() {
    // Frames hold the vector state of the level.
    for name in [
        "signal_registers",
        "signal_context",
        "cut_floating_point",
        "mutex_contention",
    ] {
        common::check_times(&Guest::new(name), &["--cpu", "baseline"], 1, 1);
    }
}

#[test]
fn reprise_recorded_by_reprise() {
    let place = Workplace::new();
    let traces = place.traces();
    let inner = place.record(&Guest::new("hello"));
    // What starts no program is a program like any other.
    let outer = place.record(
        &Guest::program(REPRISE)
            .args(["info".into(), inner.dir.clone().into_os_string()])
            .env("REPRISE_TRACE_DIR", traces.clone()),
    );
    assert!(outer.run.status.success(), "{}", outer.run.describe());
    assert_same(&outer.run, &place.replay(&outer.dir));
    // What starts one says why it does not.
    let hello = built("hello").into_os_string();
    for words in [
        vec!["record".into(), "--".into(), hello],
        vec!["replay".into(), inner.dir.clone().into_os_string()],
        vec!["verify".into(), inner.dir.clone().into_os_string()],
        vec!["demo".into()],
    ] {
        let outer = place.record(
            &Guest::program(REPRISE)
                .args(words)
                .env("REPRISE_TRACE_DIR", traces.clone()),
        );
        assert_eq!(
            outer.run.status.code(),
            Some(OWN_FAILURE),
            "{}",
            outer.run.describe()
        );
        assert!(
            outer.run.notes.contains("itself being recorded"),
            "{}",
            outer.run.describe()
        );
        let replay = place.replay(&outer.dir);
        assert_eq!(
            replay.status.code(),
            Some(OWN_FAILURE),
            "{}",
            replay.describe()
        );
        assert!(
            replay.notes.contains("itself being recorded"),
            "{}",
            replay.describe()
        );
    }
}

#[test]
fn cpuid_is_replaced_where_it_cannot_trap() {
    let place = Workplace::new();
    let switch = &["--no-cpuid-trapping"];
    for name in ["instructions", "instructions-static", "instructions-O0"] {
        let recording = place.record_with(&Guest::new(name), switch);
        let text = recording.run.text();
        assert!(text.contains("rdrand 0x0, rdseed 0x0"), "{name}: {text}");
        let dir = recording.dir.to_str().expect("a name");
        let dump = run(&mut place.reprise(["dump", "--kind", "patch", dir]), None).text();
        assert!(dump.contains("int3 for cpuid"), "{name}: {dump}");
        for _ in 0..2 {
            assert_same(&recording.run, &place.replay(&recording.dir));
        }
    }
    // Modules with a table of functions, and without one.
    for guest in [Guest::new("cpu_shown"), Guest::new("go_channels")] {
        let recording = place.record_with(&guest, switch);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}
