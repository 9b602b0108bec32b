//! What a program reads of files is recorded as places in a copy of the file: every replay is exact, whatever becomes of the file.

use crate::common;

use common::inputs::{content, on_disk, referred, settled, TICK};
use common::{assert_same, check_times, run, Guest, Workplace};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

const ENGINES: [&str; 3] = ["serial", "order", "det"];

#[test]
fn the_ways_to_read() {
    for engine in ENGINES {
        let place = Workplace::new();
        let bytes = content(2_000_000, 1);
        let path = settled(&place, "file", &bytes);
        // `det` records one process.
        let mut variants = vec![vec![path.as_os_str().to_owned(), "threads".into()]];
        if engine != "det" {
            variants.push(vec![path.as_os_str().to_owned()]);
        }
        for args in variants {
            std::fs::write(&path, &bytes).expect("a file");
            std::thread::sleep(TICK);
            let alone = args.len() == 1;
            let guest = Guest::new("reads_of_files").args(args);
            let native = guest.native(&place);
            let recording = place.record_with(&guest, &["--engine", engine]);
            if alone {
                assert_eq!(native.stdout, recording.run.stdout, "{engine}");
            }
            let info = place.info(&recording.dir);
            assert!(
                referred(&info) > 10_000_000,
                "{engine}: {}",
                info.0["inputs"]
            );
            // A replay knows nothing of the file.
            std::fs::write(&path, b"something else").expect("a file");
            for _ in 0..2 {
                assert_same(&recording.run, &place.replay(&recording.dir));
            }
            let verified = place.verify(&recording.dir);
            assert!(
                verified.status.success(),
                "{engine}: {}",
                verified.describe()
            );
        }
    }
}

/// What a program sends past its own memory is shown by a replay, from the copy.
#[test]
fn what_is_sent_to_an_output() {
    for engine in ENGINES {
        let place = Workplace::new();
        let bytes = content(2_000_000, 3);
        for to_file in [false, true] {
            let path = settled(&place, "file", &bytes);
            let guest = Guest::new("sends_a_file").args([path.as_os_str()]);
            let dir = place.fresh("trace");
            let mut command = place.record_command(&guest, &["--engine", engine], &dir);
            let out = place.path().join("out");
            let sent = match to_file {
                false => run(&mut command, None).stdout,
                true => {
                    let file = File::create(&out).expect("a file");
                    let status = command.stdout(file).status().expect("a recorder");
                    assert!(status.success(), "{engine}: {status}");
                    std::fs::read(&out).expect("what was sent")
                }
            };
            // A pipe takes what splice(2) brings, a file what copy_file_range(2) does, and each what sendfile(2) does.
            assert!(sent.len() > 5_000_000, "{engine}: {}", sent.len());
            let info = place.info(&dir);
            assert!(
                referred(&info) > sent.len() as u64 - 300_000,
                "{engine}: {} of {}",
                info.0["inputs"],
                sent.len()
            );
            let events = on_disk(&dir, "events.zst");
            assert!(events < 300_000, "{engine}: {events} bytes of events");
            std::fs::write(&path, b"something else").expect("a file");
            assert!(
                place.replay(&dir).stdout == sent,
                "{engine}: another output"
            );
            let packed = place.path().join("packed");
            let mut pack = place.reprise(["pack".as_ref(), dir.as_os_str()]);
            let pack = run(pack.arg("-o").arg(&packed), None);
            assert!(pack.status.success(), "{engine}: {}", pack.describe());
            assert!(place.replay(&packed).stdout == sent, "{engine}: packed");
            std::fs::remove_file(&packed).expect("remove");
            // Another content of the copy is noticed.
            let copy = dir.join("files/input.1");
            let mut other = std::fs::read(&copy).expect("a copy");
            other[1_500_000] ^= 1;
            std::fs::remove_file(&copy).expect("remove");
            std::fs::write(&copy, other).expect("another");
            let tampered = place.replay(&dir);
            assert!(
                !tampered.status.success(),
                "{engine}: {}",
                tampered.describe()
            );
        }
    }
}

#[test]
fn as_it_is_read_where_that_is_asked_for() {
    let place = Workplace::new();
    let path = settled(&place, "file", &content(2_000_000, 2));
    let guest = Guest::new("reads_of_files").args([path.as_os_str()]);
    let recording = place.record_with(&guest, &["--inputs", "copy"]);
    let info = place.info(&recording.dir);
    assert!(
        info.0["inputs"].as_array().is_some_and(Vec::is_empty),
        "{}",
        info.0
    );
    std::fs::remove_file(&path).expect("remove");
    assert_same(&recording.run, &place.replay(&recording.dir));
}

/// Whoever is recorded waits until what was read is kept before he changes it.
#[test]
fn what_was_read_is_changed_by_the_program_itself() {
    for engine in ENGINES {
        let place = Workplace::new();
        let path = place.path().join("file");
        let mut guest = Guest::new("rewrites_what_it_read").args([path.as_os_str(), "14".as_ref()]);
        if engine == "det" {
            guest = guest.args(["alone"]);
        }
        let recording = place.record_with(&guest, &["--engine", engine]);
        let info = place.info(&recording.dir);
        assert!(
            referred(&info) > 5_000_000,
            "{engine}: {}",
            info.0["inputs"]
        );
        assert_eq!(info.0["warnings"], serde_json::json!([]), "{engine}");
        for _ in 0..2 {
            assert_same(&recording.run, &place.replay(&recording.dir));
        }
    }
}

/// A copy that the store has is not made again.
#[test]
fn a_file_is_copied_once() {
    let place = Workplace::new();
    // A part of every system, whose times are old.
    let program = common::system_program("gdb");
    let len = program.metadata().expect("metadata").len();
    assert!(len > 4_000_000);
    let guest = Guest::new("reads_again").args([program.as_os_str(), "1".as_ref()]);
    let kept: Vec<u64> = (0..2)
        .map(|_| {
            let recording = place.record(&guest);
            assert_same(&recording.run, &place.replay(&recording.dir));
            let info = place.info(&recording.dir);
            assert!(referred(&info) > len - 300_000, "{}", info.0["inputs"]);
            info.0["inputs"][0]["bytes_kept"]
                .as_u64()
                .expect("a number")
        })
        .collect();
    assert!(kept[0] > len - 300_000);
    assert_eq!(kept[1], 0);
}

/// Of a large file only what was read is kept, and packed.
/// What is a hole in the file is one in the copy, whether it was read or mapped, and nobody reads it.
#[test]
fn holes_cost_nothing() {
    for engine in ENGINES {
        let place = Workplace::new();
        let path = place.path().join("sparse");
        let file = File::create(&path).expect("a file");
        file.set_len(1 << 40).expect("a hole");
        file.write_all_at(&content(300_000, 4), 1 << 30)
            .expect("some data");
        drop(file);
        std::thread::sleep(TICK);
        let guest = Guest::new("reads_a_hole").args([path.as_os_str()]);
        let native = guest.native(&place);
        let recording = place.record_with(&guest, &["--engine", engine]);
        assert_eq!(native.stdout, recording.run.stdout, "{engine}");
        let info = place.info(&recording.dir);
        assert!(referred(&info) > 1 << 40, "{engine}: {}", info.0["inputs"]);
        let kept = on_disk(&recording.dir, "files/input.1");
        assert!((200_000..1 << 20).contains(&kept), "{engine}: {kept} bytes");
        std::fs::remove_file(&path).expect("remove");
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}

#[test]
fn only_what_was_read_is_kept() {
    let place = Workplace::new();
    let path = place.path().join("file");
    let file = File::create(&path).expect("a file");
    file.set_len(50 << 30).expect("a long file");
    let part = content(3_000_000, 4);
    file.write_all_at(&part, 40 << 30).expect("write");
    drop(file);
    std::thread::sleep(TICK);
    let script = format!(
        "dd if={} bs=1M skip=40960 count=2 status=none | sha1sum",
        path.display()
    );
    let guest = Guest::program("/bin/sh").args(["-c", &script]);
    let recording = place.record(&guest);
    std::fs::remove_file(&path).expect("remove");
    assert_same(&recording.run, &place.replay(&recording.dir));
    assert!(referred(&place.info(&recording.dir)) == 2 << 20);
    let kept = on_disk(&recording.dir, "files/input.1");
    assert!((2 << 20..3 << 20).contains(&kept), "{kept} bytes");
    let pack = place.fresh("pack.reprise");
    let packed = common::run(
        &mut place.reprise([
            "pack".as_ref(),
            recording.dir.as_os_str(),
            "-o".as_ref(),
            pack.as_os_str(),
        ]),
        None,
    );
    assert!(packed.status.success(), "{}", packed.describe());
    assert!(pack.metadata().expect("a pack").len() < 20 << 20);
    assert_same(&recording.run, &place.replay(&pack));
}

/// The copies count where the trace's size is limited.
#[test]
fn copies_count_as_the_trace() {
    for engine in &ENGINES[..2] {
        let place = Workplace::new();
        let path = settled(&place, "file", &content(6_000_000, 7));
        let guest = Guest::new("reads_again").args([path.as_os_str(), "2".as_ref()]);
        let recording = place.record_with(&guest, &["--engine", engine, "--max-size", "2M"]);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        assert!(
            recording.run.notes.contains("ends early"),
            "{}",
            recording.run.describe()
        );
        let kept = on_disk(&recording.dir, "files/input.1");
        assert!((1 << 20..3 << 20).contains(&kept), "{kept} bytes");
    }
}

/// A copy that is damaged, or gone, is no reason to guess.
#[test]
fn a_damaged_copy_is_found() {
    for engine in ENGINES {
        let place = Workplace::new();
        let path = settled(&place, "file", &content(1_500_000, 5));
        let guest = Guest::new("reads_again").args([path.as_os_str(), "2".as_ref()]);
        let recording = place.record_with(&guest, &["--engine", engine]);
        let copy = recording.dir.join("files/input.1");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&copy)
            .expect("open");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 777_777).expect("read");
        file.write_all_at(&[byte[0] ^ 1], 777_777).expect("write");
        let replayed = place.replay(&recording.dir);
        replayed.assert_own_failure(common::OWN_FAILURE);
        assert!(
            replayed.notes.contains("input.1"),
            "{}",
            replayed.describe()
        );
        std::fs::remove_file(&copy).expect("remove");
        let replayed = place.replay(&recording.dir);
        replayed.assert_own_failure(common::OWN_FAILURE);
        assert!(
            replayed.notes.contains("input.1"),
            "{}",
            replayed.describe()
        );
    }
}

/// Files that the program itself writes, too.
#[test]
fn reads_and_writes_by_bytes() {
    check_times(&Guest::new("files_read_write"), &["--inputs", "copy"], 1, 1);
}
