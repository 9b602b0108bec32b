//! Programs built with sanitizers: their shadows lie where they want them, their reports and statuses are replayed.

use crate::common;

use common::{assert_same, built, run, Guest, Recording, Workplace};
use std::ffi::OsStr;

/// A build of the sanitized guests, and the variable by which its sanitizer is told how to report.
const BUILDS: [(&str, &str); 9] = [
    ("gcc-address", "ASAN_OPTIONS"),
    ("gcc-thread", "TSAN_OPTIONS"),
    ("gcc-undefined", "UBSAN_OPTIONS"),
    ("clang-address", "ASAN_OPTIONS"),
    ("clang-thread", "TSAN_OPTIONS"),
    ("clang-memory", "MSAN_OPTIONS"),
    ("clang-undefined", "UBSAN_OPTIONS"),
    ("gcc-leak", "LSAN_OPTIONS"),
    ("clang-leak", "LSAN_OPTIONS"),
];

fn guest(source: &str, build: &str, how: &str) -> Guest {
    let (_, variable) = BUILDS.iter().find(|b| b.0 == build).expect("a build");
    // No symbolizer: that is another program, and large.
    let options = "symbolize=0:print_stacktrace=1";
    Guest::program(built(&format!("{source}-{build}")))
        .args([how])
        .env(*variable, options)
}

/// Records and replays; the recording must say this on standard error, or, when it is to say nothing, end with 0.
fn check_report(place: &Workplace, source: &str, build: &str, how: &str, report: &str) {
    let guest = guest(source, build, how);
    let recording = place.record(&guest);
    let said = String::from_utf8_lossy(&recording.run.stderr).into_owned();
    let label = format!("{source} {how} by {build}");
    if report.is_empty() {
        assert!(
            recording.run.status.success() && said.is_empty(),
            "{label}: {}",
            recording.run.describe()
        );
    } else {
        assert!(
            said.contains(report),
            "{label} reports no {report}: {}",
            recording.run.describe()
        );
        let native = guest.native(place);
        assert_eq!(
            native.status,
            recording.run.status,
            "{label}: by itself {}",
            native.describe()
        );
    }
    same_twice(place, &recording);
    let _ = std::fs::remove_dir_all(&recording.dir);
}

fn same_twice(place: &Workplace, recording: &Recording) {
    for _ in 0..2 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
    let verified = place.verify(&recording.dir);
    assert!(verified.status.success(), "{}", verified.describe());
}

#[test]
fn well_behaved_programs_run_under_every_sanitizer() {
    let place = Workplace::new();
    for source in ["san_memory", "san_threads", "san_objects"] {
        for (build, _) in BUILDS {
            // The C++ library would have to be instrumented, too: without that MemorySanitizer reports what is none.
            if (source, build) == ("san_objects", "clang-memory") {
                continue;
            }
            check_report(&place, source, build, "clean", "");
        }
    }
}

#[test]
fn errors_of_one_thread_are_reported_and_replayed() {
    let place = Workplace::new();
    for (build, how, report) in [
        ("gcc-address", "overflow", "heap-buffer-overflow"),
        ("gcc-address", "after_free", "heap-use-after-free"),
        ("clang-address", "overflow", "heap-buffer-overflow"),
        ("clang-address", "after_free", "heap-use-after-free"),
        (
            "gcc-undefined",
            "undefined",
            "runtime error: shift exponent 40",
        ),
        (
            "clang-undefined",
            "undefined",
            "runtime error: shift exponent 40",
        ),
        (
            "clang-memory",
            "uninitialised",
            "use-of-uninitialized-value",
        ),
    ] {
        check_report(&place, "san_memory", build, how, report);
    }
}

#[test]
fn errors_of_threads_are_reported_and_replayed() {
    let place = Workplace::new();
    for source in ["san_threads", "san_objects"] {
        for (build, how, report) in [
            ("gcc-address", "overflow", "heap-buffer-overflow"),
            ("clang-address", "overflow", "heap-buffer-overflow"),
            ("gcc-thread", "race", "ThreadSanitizer: data race"),
            ("clang-thread", "race", "ThreadSanitizer: data race"),
        ] {
            check_report(&place, source, build, how, report);
        }
    }
}

#[test]
fn leaks_are_found_as_without_a_recording() {
    // LeakSanitizer makes a process that shares the memory and attaches to its threads by ptrace.
    let place = Workplace::new();
    for build in ["gcc-address", "clang-address", "gcc-leak", "clang-leak"] {
        check_report(&place, "san_memory", build, "leak", "detected memory leaks");
        check_report(
            &place,
            "san_threads",
            build,
            "leak",
            "detected memory leaks",
        );
    }
}

#[test]
fn reports_name_functions_by_the_symbolizer() {
    let place = Workplace::new();
    let guest = Guest::program(built("san_memory-clang-address")).args(["overflow"]);
    let recording = place.record(&guest);
    let said = String::from_utf8_lossy(&recording.run.stderr).into_owned();
    assert!(
        said.contains("in overflow "),
        "{}",
        recording.run.describe()
    );
    same_twice(&place, &recording);
}

#[test]
fn with_addresses_randomised() {
    // Under Docker's filter, which refuses personality(2), the addresses are random.
    let place = Workplace::new();
    for (build, _) in BUILDS {
        let guest = guest("san_threads", build, "clean");
        let dir = place.fresh("trace");
        let record = place.record_command(&guest, &[], &dir);
        let mut command = std::process::Command::new(built("docker_filter"));
        command.arg(record.get_program()).args(record.get_args());
        command.envs(record.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let cwd = record.get_current_dir().expect("a directory");
        let recorded = run(command.current_dir(cwd), None);
        assert!(
            recorded.status.success(),
            "{build}: {}",
            recorded.describe()
        );
        let manifest = std::fs::read_to_string(dir.join("manifest.json")).expect("a manifest");
        let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("JSON");
        assert_eq!(manifest["aslr"], true, "{build}");
        assert_same(&recorded, &place.replay(&dir));
    }
}

#[test]
fn shadows_of_terabytes_are_hashed_by_their_pages() {
    let place = Workplace::new();
    for build in ["gcc-address", "clang-thread", "clang-memory"] {
        let recording =
            place.record_with(&guest("san_memory", build, "clean"), &["--checksum=100"]);
        assert!(
            recording.run.status.success(),
            "{build}: {}",
            recording.run.describe()
        );
        let info = place.info(&recording.dir);
        let (hashes, bytes) = (info.counter("hashes"), info.counter("hashed"));
        assert!(
            hashes > 2 && bytes / hashes < 4 << 30,
            "{build}: {bytes} bytes in {hashes} hashes"
        );
        let replay = place.reprise([OsStr::new("replay"), recording.dir.as_os_str()]);
        assert_same(&recording.run, &run(&mut { replay }, None));
    }
}
