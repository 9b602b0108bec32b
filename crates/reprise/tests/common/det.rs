//! What the tests of `reprise run` have in common.

use super::{run, Guest, Run, Workplace};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

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
