//! `reprise run --pure`: a run depends on nothing but the program's inputs.

use crate::common;

use common::det::{once_with, outputs_with};
use common::{run, Guest, Workplace};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// Time, random bytes, ids and addresses are the same, whatever the delays, and however long the environment is. The guest sleeps for more than an hour.
#[test]
fn time_chance_and_ids_are_the_same_always() {
    let begun = Instant::now();
    let all = outputs_with(&Guest::new("det_pure").args(["long"]), 6, |n| match n {
        0 => vec!["--pure".into()],
        n => vec!["--pure".into(), format!("--delays={n}")],
    });
    assert_eq!(all.len(), 1, "{}", shown(&all));
    assert!(begun.elapsed() < Duration::from_secs(3600));
}

/// What the test above compares does differ without `--pure`.
#[test]
fn without_it_they_differ() {
    let guest = Guest::new("randomness");
    assert_eq!(outputs_with(&guest, 3, |_| vec![]).len(), 3);
    // The boot's id and the kernel's own generator of them are files.
    let of_the_program = |out: &[u8]| {
        let text = String::from_utf8_lossy(out).into_owned();
        let lines = text.lines().filter(|l| !l.starts_with("/proc/"));
        lines.map(str::to_string).collect::<Vec<_>>()
    };
    let all: BTreeSet<_> = outputs_with(&guest, 3, |_| vec!["--pure".into()])
        .iter()
        .map(|out| of_the_program(out))
        .collect();
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn the_seed_changes_what_is_random() {
    let place = Workplace::new();
    let with = |seed: &str, n| {
        let r = once_with(
            &place,
            &Guest::new("det_pure").args(["long"]),
            &["--pure", "--seed", seed],
            n,
        );
        assert!(r.status.success(), "{}", r.describe());
        String::from_utf8_lossy(&r.stdout).into_owned()
    };
    let random = |out: &str| {
        let line = out.lines().find(|l| l.starts_with("random "));
        line.expect("a line").to_string()
    };
    let (one, two) = (with("1", 0), with("2", 1));
    assert_ne!(random(&one), random(&two));
    assert_eq!(one, with("1", 2));
}

/// Guests that check what kernel and libc promise of time, signals and processes find it so.
fn promises_are_kept(name: &str, args: &[&str]) {
    let guest = Guest::new(name).args(args);
    let r = once_with(
        &Workplace::new(),
        &guest,
        &["--pure", "--patience", "20"],
        0,
    );
    assert!(r.status.success(), "{}", r.describe());
}

tests! {
    promises_are_kept;
    promises {
        hello,
        time_values,
        sleeps,
        timerfds,
        timed_waits,
        timed_locks,
        det_time_limits,
        poll_states,
        instructions,
        clock_in_threads,
        signals_queued,
        signal_kept,
        signal_at_gate,
        signal_waiting,
        signals_to_threads,
        fork_wait,
        child_signals,
        pipes,
        thread_create,
    }
}

/// An interpreter that hashes by random numbers, and has threads.
#[test]
fn python_is_the_same_always() {
    let program = "
import random, time, os, threading, tempfile
out = []
lock = threading.Lock()
def work(n):
    for i in range(50):
        with lock:
            out.append((n, i, hash('x' + str(i)), random.random(), time.time()))
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for t in threads: t.start()
for t in threads: t.join()
print(hash('hello'), random.random(), time.time(), time.monotonic(), os.getpid(), threading.get_ident(), threading.get_native_id(), id(object()))
print(hash(tuple(out)), os.urandom(8), list({str(i) for i in range(10)}))
time.sleep(2)
print(time.perf_counter(), next(tempfile._get_candidate_names()))
";
    let place = Workplace::new();
    let python = common::system_program("python3");
    let python = python.to_string_lossy();
    let mut all = BTreeSet::new();
    for n in 0..4 {
        let delays = format!("--delays={n}");
        let arguments = ["run", "--pure", &delays, "--", &python, "-B", "-c", program];
        let mut command = place.reprise(arguments.map(OsString::from));
        command.env("PADDING", "x".repeat(1000 + n * 97));
        let r = run(&mut command, None);
        assert!(r.status.success(), "{}", r.describe());
        all.insert(r.stdout);
    }
    assert_eq!(all.len(), 1, "{}", shown(&all));
}

fn shown(all: &BTreeSet<Vec<u8>>) -> String {
    let texts = all.iter().map(|o| String::from_utf8_lossy(o));
    texts.collect::<Vec<_>>().join("\n-----\n")
}
