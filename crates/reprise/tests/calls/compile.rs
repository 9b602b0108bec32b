//! `reprise cc`, `reprise c++` and `reprise cargo`: what they build runs as ever, and its atomic operations are seen by `--engine order`.

use crate::common;

use common::{check_times, knob, run, sources, Guest, Workplace};
use std::path::{Path, PathBuf};

/// Builds a program with one of the wrappers. The cache of objects is the workplace's own.
fn build(place: &Workplace, wrapper: &str, args: &[&str]) {
    let cache = place.path().join("cache");
    let mut command = place.reprise([wrapper]);
    command.args(args).env("XDG_CACHE_HOME", cache);
    let out = run(&mut command, None);
    assert!(out.status.success(), "{}", out.describe());
}

fn guest(place: &Workplace, name: &str, flags: &[&str]) -> PathBuf {
    let source = sources().join(format!("{name}.c"));
    let program = place.path().join(name);
    let mut args = vec!["-O2", "-pthread", "-I"];
    let include = sources();
    args.push(include.to_str().expect("UTF-8"));
    args.extend(flags);
    args.extend([source.to_str().expect("UTF-8"), "-o"]);
    args.push(program.to_str().expect("UTF-8"));
    build(place, "cc", &args);
    program
}

fn recordings() -> u64 {
    knob("REPRISE_TEST_RECORDINGS", 3)
}

fn exact(program: &Path, args: &[&str]) {
    let guest = Guest::program(program).args(args.iter().copied());
    check_times(&guest, &["--engine", "order"], recordings(), 2);
}

#[test]
fn every_operation_in_every_size() {
    let place = Workplace::new();
    let program = guest(&place, "atomic_operations", &["-mcx16"]);
    // Without Reprise the operations are what they were.
    let native = Guest::program(&program).args(["2", "300"]).native(&place);
    assert!(native.status.success(), "{}", native.describe());
    exact(&program, &["2", "300"]);
    exact(&program, &["8", "100"]);
}

#[test]
fn words_that_are_only_loaded_and_stored() {
    let place = Workplace::new();
    exact(&guest(&place, "atomic_handover", &[]), &["3000"]);
}

/// Loads that find what the thread knows take a short way (the runtime's `hook/loads.rs`): signals and faults find it as the long one.
#[test]
fn words_that_are_polled_while_signals_and_faults_come() {
    let place = Workplace::new();
    exact(&guest(&place, "atomic_polling", &[]), &["40"]);
}

/// The kernels that synchronise by atomics of their own say what they say without Reprise.
#[test]
fn kernels_with_atomics_of_their_own() {
    let place = Workplace::new();
    let include = sources().display().to_string();
    for name in ["atomic_counter", "work_stealing"] {
        let source = sources().join("kernels").join(format!("{name}.c"));
        let program = place.path().join(name);
        let (source, out) = (source.display().to_string(), program.display().to_string());
        build(
            &place,
            "cc",
            &[
                "-O2", "-pthread", "-I", &include, &source, "-lm", "-o", &out,
            ],
        );
        exact(&program, &["-s", "small", "-t", "2"]);
    }
}

/// Threads and atomics of C++, an object file at a time, in a library and a program that uses it.
#[test]
fn a_library_and_a_program_in_cxx() {
    const LIBRARY: &str = "
        #include <atomic>
        std::atomic<unsigned> ticket{0}, serving{0};
        void enter() { unsigned mine = ticket++; while (serving.load(std::memory_order_acquire) != mine) __builtin_ia32_pause(); }
        void leave() { serving.store(serving.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    ";
    const PROGRAM: &str = "
        #include <cstdio>
        #include <memory>
        #include <mutex>
        #include <thread>
        #include <vector>
        void enter();
        void leave();
        static std::once_flag once;
        int main() {
            std::vector<int> order;
            auto shared = std::make_shared<int>(7);
            std::vector<std::thread> all;
            for (int i = 0; i < 3; i++)
                all.emplace_back([&order, shared, i] {
                    std::call_once(once, [] { std::puts(\"once\"); });
                    for (int n = 0; n < 200; n++) {
                        enter();
                        order.push_back(i);
                        leave();
                        if (n % 16 == 0) std::this_thread::yield();
                    }
                });
            for (auto &t : all) t.join();
            unsigned long hash = *shared;
            for (int i : order) hash = hash * 31 + i;
            std::printf(\"%zu entries, %lx, %ld owners\\n\", order.size(), hash, shared.use_count());
        }
    ";
    let place = Workplace::new();
    let path = |name: &str| place.path().join(name).display().to_string();
    std::fs::write(path("tickets.cc"), LIBRARY).expect("write");
    std::fs::write(path("main.cc"), PROGRAM).expect("write");
    let cxx = |args: &[&str]| build(&place, "c++", args);
    cxx(&[
        "-O2",
        "-fPIC",
        "-c",
        &path("tickets.cc"),
        "-o",
        &path("tickets.o"),
    ]);
    cxx(&["-shared", &path("tickets.o"), "-o", &path("libtickets.so")]);
    cxx(&[
        "-O2",
        "-pthread",
        "-c",
        &path("main.cc"),
        "-o",
        &path("main.o"),
    ]);
    let rpath = format!("-Wl,-rpath,{}", place.path().display());
    cxx(&[
        "-pthread",
        &path("main.o"),
        &path("libtickets.so"),
        &rpath,
        "-o",
        &path("main"),
    ]);
    exact(&place.path().join("main"), &[]);
}

/// A crate built by cargo.
#[test]
fn a_crate() {
    const MAIN: &str = "
        use std::sync::atomic::{AtomicUsize, Ordering::*};
        use std::sync::Arc;
        static TURN: AtomicUsize = AtomicUsize::new(0);
        fn main() {
            let spins: Vec<_> = (0..2)
                .map(|me| {
                    let hits = Arc::new(AtomicUsize::new(0));
                    let told = hits.clone();
                    (std::thread::spawn(move || {
                        let mut waited = 0usize;
                        for _ in 0..300 {
                            while TURN.load(Acquire) % 2 != me { waited += 1; std::hint::spin_loop(); if waited % 64 == 0 { std::thread::yield_now(); } }
                            hits.fetch_add(1, Relaxed);
                            TURN.fetch_add(1, AcqRel);
                        }
                        waited
                    }), told)
                })
                .collect();
            for (thread, hits) in spins {
                println!(\"waited {} times, {} hits\", thread.join().unwrap(), hits.load(SeqCst));
            }
        }
    ";
    let place = Workplace::new();
    let dir = place.fresh_dir("crate");
    std::fs::create_dir(dir.join("src")).expect("a folder");
    std::fs::write(dir.join("src/main.rs"), MAIN).expect("write");
    let manifest =
        "[package]\nname = \"turns\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    std::fs::write(dir.join("Cargo.toml"), manifest).expect("write");
    let manifest = dir.join("Cargo.toml").display().to_string();
    let target = dir.join("target").display().to_string();
    build(
        &place,
        "cargo",
        &[
            "build",
            "--release",
            "--offline",
            "--manifest-path",
            &manifest,
            "--target-dir",
            &target,
        ],
    );
    exact(&dir.join("target/release/turns"), &[]);
}
