//! Traces that earlier builds made, replayed by today's: an upgrade orphans no trace.
//!
//! `tests/corpus/DAY.tar.zst` has what the build of that day recorded, all engines: directories, one packed trace, and beside each what it printed
//! (`NAME.out`) and its exit status (`NAME.status`). They were recorded with `--cpu baseline`, so that any processor can replay them. A trace is never
//! made anew here: when the format changes, a new day's archive comes beside the old ones.

use crate::common;

use common::{run, Outcome, Run, Workplace};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The archives.
fn archive(day: &str) -> PathBuf {
    common::top()
        .join("tests/corpus")
        .join(format!("{day}.tar.zst"))
}

/// The window that the archive was compressed with (`zstd --long=27`): traces share their runtime and libraries.
const WINDOW_LOG: u32 = 27;

/// Calls `with` for each entry of a day's archive.
fn each_entry(day: &str, mut with: impl FnMut(&Path, &mut tar::Entry<'_, Box<dyn std::io::Read>>)) {
    let file = File::open(archive(day)).expect("an archive of traces");
    let mut decoder = zstd::Decoder::new(file).expect("a zstd stream");
    decoder
        .window_log_max(WINDOW_LOG)
        .expect("a window of 128 MiB");
    let reader: Box<dyn std::io::Read> = Box::new(decoder);
    for entry in tar::Archive::new(reader).entries().expect("a tar archive") {
        let mut entry = entry.expect("a whole entry");
        let path = entry.path().expect("a path").into_owned();
        with(&path, &mut entry);
    }
}

/// One trace out of an archive.
struct Old {
    trace: PathBuf,
    printed: Vec<u8>,
    status: i32,
}

/// Unpacks the trace `name`, or the packed trace when it ends with `.reprise`.
fn unpacked(place: &Workplace, day: &str, name: &str) -> Old {
    let dir = place.fresh_dir("corpus");
    let stem = name.trim_end_matches(".reprise");
    let (out, status) = (format!("{stem}.out"), format!("{stem}.status"));
    each_entry(day, |path, entry| {
        let first = path.iter().next().expect("a name");
        if first == name || first == out.as_str() || first == status.as_str() {
            assert!(entry.unpack_in(&dir).expect("unpacked"));
        }
    });
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let status = String::from_utf8(read(&status)).expect("digits");
    Old {
        trace: dir.join(name),
        printed: read(&out),
        status: status.trim().parse().expect("a status"),
    }
}

/// It ends as it did when it was recorded, and prints the same.
fn assert_replays(old: &Old, replay: &Run) {
    let ended = match old.status {
        status @ 129..=192 => Outcome::Signal(status - 128),
        status => Outcome::Exit(status),
    };
    assert!(ended.fits(replay.status), "{}", replay.describe());
    assert!(
        replay.stdout == old.printed,
        "another output than then: {}",
        replay.describe()
    );
}

fn replays(day: &str, name: &str, ways: &[&[&str]]) {
    let place = Workplace::new();
    let old = unpacked(&place, day, name);
    assert_replays(&old, &place.replay(&old.trace));
    for way in ways {
        assert_replays(&old, &place.replay_with(&old.trace, way));
    }
    let verified = place.verify(&old.trace);
    assert!(verified.status.success(), "{}", verified.describe());
    assert!(place.info(&old.trace).events() > 0);
    let dumped = run(
        &mut place.reprise(["dump".as_ref(), old.trace.as_os_str()]),
        None,
    );
    assert!(dumped.status.success(), "{}", dumped.describe());
}

/// `TEST: DAY NAME WAYS;` a trace that is replayed, and in which other ways as well.
macro_rules! traces {
    ($($test:ident: $day:literal $name:literal $ways:expr;)*) => {
        const NAMES: &[(&str, &str)] = &[$(($day, $name)),*];
        $(#[test]
        fn $test() {
            replays($day, $name, $ways);
        })*
    };
}

const TOTAL: &[&[&str]] = &[&["--order", "total"]];

traces! {
    serial_hello: "2026-11-24" "serial-hello" &[];
    serial_static: "2026-11-24" "serial-hello-static" &[];
    serial_races: "2026-11-24" "serial-racey" &[];
    serial_cuts: "2026-11-24" "serial-cut_counter" &[];
    serial_signals: "2026-11-24" "serial-signal_in_loop" &[];
    serial_tree: "2026-11-24" "serial-fork_tree" &[];
    serial_execs: "2026-11-24" "serial-exec_again" &[];
    serial_mappings: "2026-11-24" "serial-memory_mapped" &[];
    serial_pipes: "2026-11-24" "serial-pipes" &[];
    serial_shell: "2026-11-24" "serial-shell" &[];
    serial_packed: "2026-11-24" "serial-shell.reprise" &[];
    serial_chaos: "2026-11-24" "serial-chaos" &[];
    serial_kept: "2026-11-24" "serial-kept" &[];
    serial_crash: "2026-11-24" "serial-crash" &[];
    order_mutexes: "2026-11-24" "order-mutex_contention" TOTAL;
    order_conditions: "2026-11-24" "order-condition_variables" TOTAL;
    order_processes: "2026-11-24" "order-locks_between_processes" TOTAL;
    order_robust: "2026-11-24" "order-robust_mutex" TOTAL;
    order_rwlocks: "2026-11-24" "order-sync_rwlock" TOTAL;
    order_signals: "2026-11-24" "order-signals_to_threads" TOTAL;
    order_pipes: "2026-11-24" "order-pipes" TOTAL;
    order_kept: "2026-11-24" "order-kept" TOTAL;
    det_locks: "2026-11-24" "det-det_locks" &[];
    det_races: "2026-11-24" "det-det_racey" &[];
    det_prints: "2026-11-24" "det-det_printed" &[];
}

/// No trace of an archive is left out above, and no archive.
#[test]
fn every_trace_of_the_corpus_is_replayed() {
    let mut days = BTreeSet::new();
    for entry in std::fs::read_dir(common::top().join("tests/corpus")).expect("the corpus") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        days.insert(name.trim_end_matches(".tar.zst").to_string());
    }
    let mut there = BTreeSet::new();
    for day in &days {
        each_entry(day, |path, _| {
            let first = path.iter().next().expect("a name").to_string_lossy();
            if !first.ends_with(".out") && !first.ends_with(".status") {
                there.insert((day.clone(), first.into_owned()));
            }
        });
    }
    let named = NAMES.iter().map(|(d, n)| (d.to_string(), n.to_string()));
    assert_eq!(there, named.collect::<BTreeSet<_>>());
}
