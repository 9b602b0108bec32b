//! Somebody who is not recorded changes files while they are read.
#![allow(clippy::print_stdout)]

use crate::common;

use common::inputs::{content, first_inexact, referred, settled};
use common::{full, knob, mismatch, Guest, Numbers, Workplace};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Bytes of a file.
const SIZE: u64 = 600_000;
/// Files that a recording reads at the same time, each of which somebody else changes.
const FILES: u64 = 8;
/// How often it reads each.
const ROUNDS: &str = "60";

/// What somebody does to a file.
fn meddle(path: &Path, numbers: &mut Numbers) -> std::io::Result<()> {
    let some = |numbers: &mut Numbers, most: u64| {
        let len = 1 + numbers.below(most) as usize;
        content(len, numbers.below(u64::MAX))
    };
    let open = || OpenOptions::new().read(true).write(true).open(path);
    match numbers.below(8) {
        0 => open()?.write_all_at(&some(numbers, SIZE / 8), numbers.below(SIZE * 4 / 3)),
        1 => {
            let file = open()?;
            file.write_all_at(&some(numbers, 5000), file.metadata()?.len())
        }
        2 => open()?.set_len(SIZE / 3 + numbers.below(SIZE)),
        3 => {
            let other = path.with_extension("new");
            std::fs::write(&other, content(SIZE as usize, numbers.below(u64::MAX)))?;
            std::fs::rename(other, path)
        }
        4 => {
            let file = open()?;
            let len = file.metadata()?.len() as usize;
            // SAFETY: a mapping of a file of this test's, which nobody else makes shorter.
            unsafe {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let fd = file.as_raw_fd();
                let at = libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    protection,
                    libc::MAP_SHARED,
                    fd,
                    0,
                );
                assert_ne!(at, libc::MAP_FAILED);
                let bytes = some(numbers, 50_000.min(len as u64 / 2));
                let to = at.cast::<u8>().add(numbers.below(len as u64 / 2) as usize);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                libc::munmap(at, len);
            }
            Ok(())
        }
        5 => {
            let file = open()?;
            let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let at = numbers.below(SIZE / 3) as i64;
            // SAFETY: integers only.
            unsafe { libc::fallocate(file.as_raw_fd(), how, at, SIZE as i64 / 10) };
            Ok(())
        }
        6 => File::open(path)?.set_modified(std::time::SystemTime::now()),
        _ => std::fs::set_permissions(path, std::fs::metadata(path)?.permissions()),
    }
}

/// Changes a file now and then, until `over`; how often.
fn outsider(path: &Path, seed: u64, over: &AtomicBool) -> u64 {
    let mut numbers = Numbers(seed);
    let mut done = 0;
    while !over.load(SeqCst) {
        // What it replaces may be gone at that moment.
        let _ = meddle(path, &mut numbers);
        done += 1;
        let pause = [0, 1000, 5000, 40_000, 80_000][numbers.below(5) as usize];
        std::thread::sleep(Duration::from_micros(pause));
    }
    done
}

/// What has come of recordings.
#[derive(Default, Debug)]
struct Tally {
    /// Replays that are exact, ...
    exact: u64,
    /// ... and recordings that say that theirs are not.
    told: u64,
    /// How often files were changed.
    changes: u64,
    /// Bytes that were referred to.
    referred: u64,
}

/// One recording.
fn record(engine: &str, seeds: std::ops::Range<u64>, tally: &mut Tally) {
    let place = Workplace::new();
    let what = format!("{engine}, seeds {seeds:?}");
    let files: Vec<(u64, PathBuf)> = seeds
        .map(|seed| {
            let bytes = content(SIZE as usize, seed);
            let path = place.path().join(format!("file-{seed}"));
            std::fs::write(&path, bytes).expect("a file");
            (seed, path)
        })
        .collect();
    settled(&place, "last", b"");
    let paths = files.iter().map(|(_, path)| path.as_os_str());
    let guest = Guest::new("reads_again").args(paths).args([ROUNDS]);
    let over = AtomicBool::new(false);
    let recording = std::thread::scope(|scope| {
        let all: Vec<_> = files
            .iter()
            .map(|(seed, path)| scope.spawn(|| outsider(path, *seed, &over)))
            .collect();
        let recording = place.record_with(&guest, &["--engine", engine]);
        over.store(true, SeqCst);
        for outsider in all {
            let changes = outsider.join().expect("an outsider");
            assert!(changes > 0);
            tally.changes += changes;
        }
        recording
    });
    let info = place.info(&recording.dir);
    tally.referred += referred(&info);
    let warnings = info.0["warnings"].to_string();
    let replayed = place.replay(&recording.dir);
    match mismatch(&recording.run, &replayed) {
        None => tally.exact += 1,
        Some(_) if warnings.contains("was changed by somebody") => {
            let from = first_inexact(&recording.dir);
            assert!(from.is_some(), "{what}: no event says so");
            tally.told += 1;
        }
        Some(why) => panic!("{what}: {why}"),
    }
}

/// Files are changed at random while they are read, in every way there is. Each replay is exact: the kernel makes whoever changes one wait until what was
/// read is kept. (Where it can't, the recording says so.)
#[test]
fn others_change_what_is_read() {
    let usual = if full() { 1000 } else { 48 };
    let schedules = knob("REPRISE_TEST_SCHEDULES", usual);
    let first = knob("REPRISE_TEST_SEED", 0);
    let mut tally = Tally::default();
    for (n, seed) in (first..first + schedules)
        .step_by(FILES as usize)
        .enumerate()
    {
        let engine = ["serial", "order"][n % 2];
        record(engine, seed..seed + FILES, &mut tally);
    }
    println!("{schedules} schedules: {tally:?}");
    assert!(tally.referred > schedules * 3 * SIZE, "{tally:?}");
    assert!(tally.exact > 5 * tally.told, "{tally:?}");
}
