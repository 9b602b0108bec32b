//! What a program sends to the outputs that it was started with, by whatever call and through whatever descriptor: a replay shows it
//! again, and verify counts it.

use crate::common;

use common::{built, full, Source, Workplace, REPRISE};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

guests! { outputs_elsewhere }

/// Runs `reprise` with its standard output in a file.
fn to_file(place: &Workplace, args: &[&str], file: &Path) -> i32 {
    let mut command = Command::new(REPRISE);
    place.settle(command.args(args));
    let out = File::create(file).expect("a file");
    let status = command
        .current_dir(place.path())
        .stdin(Stdio::null())
        .stdout(out)
        .status();
    status.expect("reprise runs").code().unwrap_or(-1)
}

/// Records every way of the guest with its output in a file, and replays each into another file.
fn files_are_the_same(engine: &str) {
    let program = built("outputs_elsewhere");
    let program = program.to_str().expect("a path");
    let ways = Source::read("outputs_elsewhere").runs.into_iter();
    let random = [
        vec!["random".to_string()],
        vec!["random".into(), "threads".into()],
    ];
    for way in ways.map(|(way, _)| way).chain(random) {
        for _ in 0..if full() { 10 } else { 1 } {
            let place = Workplace::new();
            let [recorded, replayed, trace] =
                ["recorded", "replayed", "trace"].map(|n| place.path().join(n));
            let trace_name = trace.to_str().expect("a path");
            let mut args = vec![
                "record", "-q", "--engine", engine, "-o", trace_name, "--", program,
            ];
            args.extend(way.iter().map(String::as_str));
            assert_eq!(to_file(&place, &args, &recorded), 0, "{engine} {way:?}");
            let status = to_file(&place, &["replay", "-q", trace_name], &replayed);
            assert_eq!(status, 0, "{engine} {way:?}");
            let [recorded, replayed] =
                [recorded, replayed].map(|f| std::fs::read(f).expect("an output"));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&recorded), text(&replayed), "{engine} {way:?}");
            assert!(
                recorded.starts_with(b"first\n"),
                "{way:?}: {}",
                text(&recorded)
            );
            let verified = place.verify(&trace);
            assert!(
                verified.status.success(),
                "{engine} {way:?}: {}",
                verified.describe()
            );
            let counted = place.info(&trace).0["counters"]["stdout_bytes"].as_u64();
            assert_eq!(counted, Some(recorded.len() as u64), "{engine} {way:?}");
        }
    }
}

#[test]
fn an_output_that_is_a_file_is_written_again_under_serial() {
    files_are_the_same("serial");
}

#[test]
fn an_output_that_is_a_file_is_written_again_under_order() {
    files_are_the_same("order");
}

/// Nobody sees the bytes of a file whose extents become an output's. So that is refused, in the words of a file system that can't do it: the kernel would
/// say that the two are on different file systems.
#[test]
fn clones_of_files_to_outputs_are_refused() {
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let [out, err, trace] = ["out", "err", "trace"].map(|n| place.path().join(n));
        let mut command = Command::new(REPRISE);
        place.settle(command.args(["record", "-q", "--engine", engine, "-o"]));
        let status = command
            .args([trace.as_os_str(), "--".as_ref()])
            .arg(built("outputs_elsewhere"))
            .arg("clone")
            .stdout(File::create(&out).expect("a file"))
            .stderr(File::create(&err).expect("a file"))
            .status();
        assert!(status.expect("reprise runs").success(), "{engine}");
        let said = std::fs::read_to_string(&err).expect("what it said");
        assert!(said.contains("no clones"), "{engine}: {said}");
    }
}

/// A replay that loses a byte is not the same, and verify says how much it lost.
#[test]
fn verify_counts_what_is_written() {
    let place = Workplace::new();
    let recording = place.record(&common::Guest::new("outputs_elsewhere").args(["sendfile"]));
    assert!(place.verify(&recording.dir).status.success());
    let file = recording.dir.join("summary.json");
    let text = std::fs::read_to_string(&file).expect("a summary");
    let mut summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let count = &mut summary["counters"]["stdout_bytes"];
    let bytes = recording.run.stdout.len() as u64;
    assert_eq!(count.as_u64(), Some(bytes));
    *count = (bytes + 1).into();
    std::fs::write(&file, summary.to_string()).expect("a summary");
    let verified = place.verify(&recording.dir);
    assert_eq!(verified.status.code(), Some(125), "{}", verified.describe());
    let said = format!(
        "the program wrote {} bytes to its standard output, the replay {bytes}",
        bytes + 1
    );
    assert!(verified.text().contains(&said), "{}", verified.describe());
}
