//! What the tests of `reprise run` have in common.

use super::{run, system_program, Guest, Run, Workplace, REPRISE};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs a guest under the engine with these flags, in an environment of another size each time.
pub fn once_with(place: &Workplace, guest: &Guest, flags: &[&str], n: usize) -> Run {
    let start = std::iter::once("run").chain(flags.iter().copied());
    let mut command = place.reprise(start.chain(["--"]).map(OsString::from));
    command.arg(&guest.program).args(&guest.args);
    command.env("PADDING", "x".repeat(n * 97 % 4000));
    run(&mut command, None)
}

/// As [`once_with`], without flags.
pub fn once(place: &Workplace, guest: &Guest, n: usize) -> Run {
    once_with(place, guest, &[], n)
}

/// What `runs` runs print: all the different outputs.
///
/// # Panics
/// When one of them fails.
pub fn outputs(guest: &Guest, runs: usize) -> BTreeSet<Vec<u8>> {
    outputs_with(guest, runs, |_| Vec::new())
}

/// As [`outputs`], with flags for each run.
///
/// # Panics
/// As [`outputs`].
pub fn outputs_with(
    guest: &Guest,
    runs: usize,
    flags: impl Fn(usize) -> Vec<String>,
) -> BTreeSet<Vec<u8>> {
    let place = Workplace::new();
    let one = |n| {
        let flags = flags(n);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let r = once_with(&place, guest, &flags, n);
        assert!(r.status.success(), "run {n}: {}", r.describe());
        r.stdout
    };
    (0..runs).map(one).collect()
}

/// The counters that a run with `--stats` printed.
///
/// # Panics
/// When there are none.
pub fn counters(r: &Run) -> BTreeMap<String, u64> {
    let said = r.said();
    let lines = said.lines().filter_map(|l| l.strip_prefix("reprise: "));
    let all: BTreeMap<_, _> = lines
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(name, n)| Some((name.to_string(), n.parse().ok()?)))
        .collect();
    assert!(all.contains_key("rounds"), "{}", r.describe());
    all
}

/// What `runs` runs print, in all that should not matter: an environment of another size each time, every second half with all processors
/// at work on something else; with delays, with the addresses' randomisation forbidden, and on a terminal.
///
/// # Panics
/// When one of them fails.
pub fn signatures(guest: &Guest, runs: usize) -> BTreeSet<String> {
    let place = Workplace::new();
    let once = |n: usize| {
        let seed = n.to_string();
        let mut start = vec![OsString::from(REPRISE), "run".into()];
        if n % 4 == 1 {
            start.extend(["--delays".into(), seed.into()]);
        }
        start.push("--".into());
        start.push(guest.program.clone().into());
        start.extend(guest.args.iter().cloned());
        let mut command = match n % 4 {
            2 => {
                let mut c = Command::new(system_program("setarch"));
                c.arg("-R").args(start);
                c
            }
            3 => {
                let words: Vec<_> = start.iter().map(|w| w.to_string_lossy()).collect();
                let mut c = Command::new(system_program("script"));
                c.args(["-qec", &words.join(" "), "/dev/null"]);
                c
            }
            _ => {
                let mut c = Command::new(&start[0]);
                c.args(&start[1..]);
                c
            }
        };
        place.settle(&mut command);
        command.env("PADDING", "x".repeat(n * 97 % 4000));
        let r = run(&mut command, None);
        assert!(r.status.success(), "run {n}: {}", r.describe());
        r.text().replace('\r', "")
    };
    let idle: BTreeSet<_> = (0..runs / 2).map(once).collect();
    let loaded: BTreeSet<_> = under_load(|| (runs / 2..runs).map(once).collect());
    idle.union(&loaded).cloned().collect()
}

/// Does something while there is a thread that computes for each processor.
pub fn under_load<R>(f: impl FnOnce() -> R) -> R {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    let processors = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|s| {
        for _ in 0..processors {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let _ends = Ends(&over);
        f()
    })
}
