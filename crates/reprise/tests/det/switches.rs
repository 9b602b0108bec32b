//! `reprise run`: each optimisation of DThreads' section 5 is real: without it the same run costs more of what it saves. And no delay changes the run.

use crate::common;

use common::det::{counters, once_with, outputs_with};
use common::{Guest, Workplace};
use std::collections::BTreeMap;

fn measured(place: &Workplace, without: Option<&str>) -> (Vec<u8>, BTreeMap<String, u64>) {
    let mut flags = vec!["--stats"];
    flags.extend(without.iter().flat_map(|name| ["--without", name]));
    let r = once_with(place, &Guest::new("det_locks"), &flags, 0);
    assert!(r.status.success(), "{without:?}: {}", r.describe());
    let all = counters(&r);
    (r.stdout, all)
}

#[test]
fn each_optimisation_saves_what_it_is_for() {
    let place = Workplace::new();
    let (output, with) = measured(&place, None);
    // What there is less of without it, or more of.
    for (name, less, more) in [
        ("alone", Some("alone"), Some("rounds")),
        ("kept-turns", Some("kept"), Some("rounds")),
        ("retaken", Some("kept"), Some("rounds")),
        ("scans", None, Some("scans")),
        ("copies", Some("renewed"), Some("scans")),
        ("twins", Some("whole"), Some("twins")),
        ("early-looks", Some("early"), None),
        ("objects", Some("spared"), None),
        ("lead", Some("led"), None),
        ("isolation", Some("whole"), None),
    ] {
        let (same, without) = measured(&place, Some(name));
        assert_eq!(output, same, "{name}");
        if let Some(less) = less {
            assert!(without[less] < with[less], "{name}: {with:?} {without:?}");
        }
        if let Some(more) = more {
            assert!(without[more] > with[more], "{name}: {with:?} {without:?}");
        }
    }
}

/// A thread's heap is its own (DThreads 4.4): thousands of blocks are taken and given back without a turn.
#[test]
fn memory_is_given_without_turns() {
    /// `swaptions` takes a block for each of 64 times so many paths.
    const PATHS: u64 = 60;
    let place = Workplace::new();
    let guest = Guest::new("kernels/swaptions").args(["-s", &PATHS.to_string()]);
    let r = once_with(&place, &guest, &["--stats"], 0);
    assert!(r.status.success(), "{}", r.describe());
    assert!(counters(&r)["rounds"] < PATHS, "{}", r.describe());
}

#[test]
fn what_is_left_out_must_be_known() {
    let place = Workplace::new();
    let r = once_with(&place, &Guest::new("hello"), &["--without", "nothing"], 0);
    assert_eq!(r.status.code(), Some(125), "{}", r.describe());
    assert!(r.said().contains("kept-turns"), "{}", r.describe());
}

/// Random delays at every gate: the signature stays.
#[test]
fn delays_change_nothing() {
    for (name, args) in [("det_racey", &["4"][..]), ("det_spins", &[])] {
        let guest = Guest::new(name).args(args);
        let delayed = |n: usize| match n {
            0 => Vec::new(),
            _ => vec!["--delays".into(), n.to_string()],
        };
        let all = outputs_with(&guest, 10, delayed);
        assert_eq!(all.len(), 1, "{name}: {all:?}");
    }
}
