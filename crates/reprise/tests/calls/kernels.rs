//! The kernels of `tests/guests/kernels`: parallel programs in the manner of SPLASH-2, PARSEC and Phoenix, at their small size.
//!
//! A kernel checks its own result, and its output follows from its size alone. So a recording must say what the kernel says by
//! itself, whatever the engine, and the replay must say it again.

use crate::common;

use common::{assert_same, knob, run, sources, Guest, Run, Workplace};
use std::collections::BTreeSet;

/// The engines that are to record every kernel.
const ENGINES: [&str; 2] = ["serial", "order"];
/// Its threads watch each other by plain loads and stores, which `order` sees only where `reprise cc` built the program (`compile.rs`).
const BY_PLAIN_LOADS: &str = "work_stealing";
/// Threads while recording.
const RECORDED_THREADS: u32 = 2;

/// One test for each kernel, and the list of all.
macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        const KERNELS: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

kernels! {
    fft, lu, radix, ocean, barnes_hut, water, raytrace, black_scholes, streamcluster, kmeans, histogram, word_count, pipeline,
    work_stealing, locks, private, malloc_mix, atomic_counter, condvar_pingpong, linear_regression, matrix_multiply, pca,
    reverse_index, string_match, swaptions, canneal, dedup, kmeans_threads, lock_pairs, pca_parts,
    histogram_once, word_count_sorted, reverse_index_sorted,
}

fn kernel(name: &str, threads: u32) -> Guest {
    let threads = threads.to_string();
    Guest::new(&format!("kernels/{name}")).args(["-s", "small", "-t", &threads])
}

/// The kernel by itself, with as many threads as it is recorded with.
fn native(place: &Workplace, name: &str) -> Run {
    let native = kernel(name, RECORDED_THREADS).native(place);
    assert!(native.status.success(), "{}", native.describe());
    assert_eq!(native.text().lines().count(), 1, "{}", native.describe());
    native
}

/// Records a kernel under each engine, replays it and compares.
fn check(name: &str) {
    let place = Workplace::new();
    let native = native(&place, name);
    for engine in ENGINES {
        if engine == "order" && name == BY_PLAIN_LOADS {
            continue;
        }
        let usual = if engine == "order" { 1 } else { 2 };
        for _ in 0..knob("REPRISE_TEST_RECORDINGS", usual) {
            let guest = kernel(name, RECORDED_THREADS);
            let recording = place.record_with(&guest, &["--engine", engine]);
            assert_same(&native, &recording.run);
            for _ in 0..knob("REPRISE_TEST_REPLAYS", 2) {
                let replay = place.replay(&recording.dir);
                replay.assert_civil();
                assert_same(&recording.run, &replay);
            }
            let verified = place.verify(&recording.dir);
            assert!(verified.status.success(), "{}", verified.describe());
            let info = place.info(&recording.dir);
            assert!(
                info.0["threads"].as_u64() >= Some(u64::from(RECORDED_THREADS)),
                "too few threads: {}",
                info.0
            );
            let _ = std::fs::remove_dir_all(&recording.dir);
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let place = Workplace::new();
    for name in KERNELS {
        let wanted = native(&place, name);
        for threads in [1, 3, 4, 8] {
            assert_same(&wanted, &kernel(name, threads).native(&place));
        }
    }
}

#[test]
fn they_behave_as_by_themselves_when_captured() {
    for name in KERNELS {
        let place = Workplace::new();
        let native = native(&place, name);
        let guest = kernel(name, RECORDED_THREADS);
        let mut command = place.reprise(["record", "--engine", "none", "--"]);
        command.arg(&guest.program).args(&guest.args);
        assert_same(&native, &run(&mut command, None));
    }
}

#[test]
fn they_tell_how_often_they_synchronise() {
    let place = Workplace::new();
    for name in KERNELS {
        let told = kernel(name, 4).args(["-v"]).native(&place);
        let text = String::from_utf8_lossy(&told.stderr);
        let times = text.lines().find_map(|line| {
            let (times, _) = line.strip_prefix("synchronised ")?.split_once(" times")?;
            times.parse::<u64>().ok()
        });
        // Three threads are started and end.
        assert!(times.is_some_and(|t| t >= 6), "{}", told.describe());
    }
}

#[test]
fn every_kernel_is_tested() {
    let named: BTreeSet<String> = KERNELS.iter().map(ToString::to_string).collect();
    let there: BTreeSet<String> = std::fs::read_dir(sources().join("kernels"))
        .expect("the kernels")
        .filter_map(|e| {
            let name = e.expect("an entry").file_name().into_string().ok()?;
            Some(name.strip_suffix(".c")?.to_string())
        })
        .collect();
    assert_eq!(named, there);
}
