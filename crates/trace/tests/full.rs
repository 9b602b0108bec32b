//! Streams that meet a limit: the trace stays readable up to there.

mod common;

use common::{event, noise};
use reprise_trace::error::FullReason;
use reprise_trace::{Reader, StreamStats, Tail, TraceError, Writer, WriterOptions, EVENTS_FILE};
use std::path::Path;

/// Pushes incompressible events until there is no room; returns what was pushed and what the finished stream says.
fn fill(dir: &Path, options: WriterOptions, expected: FullReason) -> (Vec<Vec<u8>>, StreamStats) {
    let mut writer = Writer::with_options(dir, options).unwrap();
    let mut pushed = Vec::new();
    for n in 0..100_000 {
        let e = event(n, &noise(n + 1, 1000));
        match writer.push(&e) {
            Ok(()) => pushed.push(e),
            Err(TraceError::TraceFull { reason, .. }) => {
                assert_eq!(reason, expected);
                break;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(writer.full(), Some(expected));
    assert!(
        writer.push(&pushed[0]).unwrap_err().is_full(),
        "full stays full"
    );
    (pushed, writer.finish().unwrap())
}

fn check_prefix(dir: &Path, pushed: &[Vec<u8>], stats: &StreamStats) {
    let mut reader = Reader::open(dir).unwrap();
    assert_eq!(reader.tail(), &Tail::Complete);
    assert_eq!(reader.len(), stats.events);
    assert!(stats.events > 0);
    let mut n = 0;
    while let Some(e) = reader.next().unwrap() {
        assert!(e.bytes == pushed[n]);
        n += 1;
    }
}

#[test]
fn max_size_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        max_size: Some(300_000),
        frame_raw: 10_000,
        ..WriterOptions::default()
    };
    let (pushed, stats) = fill(dir.path(), options, FullReason::MaxSize);
    check_prefix(dir.path(), &pushed, &stats);
    let size = std::fs::metadata(dir.path().join(EVENTS_FILE))
        .unwrap()
        .len();
    assert!(size <= 300_000 && size > 280_000, "{size}");
    assert_eq!(size, stats.bytes_compressed);
}

/// `ulimit -f` is of the whole process, so these run in one of their own: this test binary, with a variable set.
const CHILD: &str = "REPRISE_TEST_FILE_LIMIT";

fn in_child(test: &str, preallocate: bool) {
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe().unwrap();
        let out = std::process::Command::new(me)
            .args(["--exact", test])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stdout)
        );
        return;
    }
    let limit = libc::rlimit {
        rlim_cur: 500_000,
        rlim_max: 500_000,
    };
    // SAFETY: plain calls; this process runs only this test.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        frame_raw: 10_000,
        preallocate,
        ..WriterOptions::default()
    };
    let (pushed, stats) = fill(dir.path(), options, FullReason::FileSize);
    let len = std::fs::metadata(dir.path().join(EVENTS_FILE))
        .unwrap()
        .len();
    assert!(len > 480_000 && len <= 500_000, "{len}");
    if preallocate {
        check_prefix(dir.path(), &pushed, &stats);
    } else {
        // Nothing was reserved for the seek table; if it did not fit, all frames are there nevertheless.
        let mut reader = Reader::open(dir.path()).unwrap();
        assert_eq!(reader.check().unwrap().events, stats.events);
        assert!(!matches!(reader.tail(), Tail::Damaged { .. }));
    }
}

#[test]
fn file_size_limit_with_reserved_room() {
    in_child("file_size_limit_with_reserved_room", true);
}

#[test]
fn file_size_limit_met_while_writing() {
    in_child("file_size_limit_met_while_writing", false);
}

/// A disk of 1 MiB: a tmpfs in a mount namespace of its own, where the system lets us have one.
#[test]
fn a_full_disk_leaves_a_complete_trace() {
    const DISK: &str = "REPRISE_TEST_SMALL_DISK";
    if let Some(dir) = std::env::var_os(DISK) {
        let options = WriterOptions {
            frame_raw: 10_000,
            ..WriterOptions::default()
        };
        let dir = Path::new(&dir);
        let (pushed, stats) = fill(dir, options, FullReason::Disk);
        check_prefix(dir, &pushed, &stats);
        assert!(stats.bytes_compressed > 800_000, "{stats:?}");
        let summary = reprise_trace::Summary::of_stream(&stats);
        summary.write(dir).expect("room was kept for the summary");
        assert_eq!(reprise_trace::Summary::read(dir).unwrap(), Some(summary));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let unshare = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command
            .env(DISK, dir.path())
            .env("ME", std::env::current_exe().unwrap());
        command.output().map_err(|e| e.to_string())
    };
    let mount = "mount -t tmpfs -o size=1m none \"$REPRISE_TEST_SMALL_DISK\"";
    match unshare(mount) {
        Ok(out) if out.status.success() => {}
        other => return skip(&format!("no mount namespace here ({other:?})")),
    }
    let test = "exec \"$ME\" --exact a_full_disk_leaves_a_complete_trace";
    let out = unshare(&format!("{mount} && {test}")).unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
}

/// As `skip` of the end-to-end tests (`crates/reprise/tests/common`): counted, listed in the end, and not allowed with `REPRISE_TEST_STRICT=1`.
fn skip(why: &str) {
    use std::io::Write;
    if let Some(journal) = std::env::var_os("REPRISE_TEST_JOURNAL") {
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(journal);
        let line = format!("skipped\tfull\t{why}\n");
        file.and_then(|mut f| f.write_all(line.as_bytes())).unwrap();
    }
    assert_ne!(
        std::env::var("REPRISE_TEST_STRICT").as_deref(),
        Ok("1"),
        "{why}"
    );
}
