//! `reprise run`: pages that one thread alone writes are its own until another one wants them (DThreads 5, lazy commits).

use crate::common;

use common::det::{counters, once_with, outputs_with};
use common::{Guest, Workplace};

/// Whoever wants such memory, and in whatever way, finds what its owner has written, always at the same point.
#[test]
fn whoever_wants_a_page_gets_it() {
    let delays = |n: usize| match n % 4 {
        0 => vec![format!("--delays={n}")],
        1 => vec![format!("--delays={n}"), "--without=lead".into()],
        2 => vec!["--pure".into()],
        _ => Vec::new(),
    };
    let all = outputs_with(&Guest::new("det_owned"), 16, delays);
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn commits_are_put_off() {
    let place = Workplace::new();
    let measured = |flags: &[&str]| {
        let r = once_with(&place, &Guest::new("det_owned"), flags, 0);
        assert!(r.status.success(), "{flags:?}: {}", r.describe());
        counters(&r)
    };
    let with = measured(&["--stats"]);
    let without = measured(&["--stats", "--without", "ownership"]);
    // Each of its stretches has 16 pages, and all are wanted at last.
    assert!(with["owned"] >= 18 * 16, "{with:?}");
    assert_eq!(with["owned"], with["claimed"]);
    assert_eq!(without["owned"], 0);
    assert!(with["early"] < without["early"], "{with:?} {without:?}");
}
