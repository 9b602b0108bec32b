//! `reprise run --det-report`: memory that two threads have written between the same two synchronisation points.

use crate::common;

use common::det::{once, once_with};
use common::{Guest, Workplace};
use std::collections::BTreeSet;

#[test]
fn conflicting_writes_are_told_with_both_stacks_and_nothing_else() {
    let place = Workplace::new();
    let guest = Guest::new("det_conflicts").args(["50"]);
    let r = once_with(&place, &guest, &["--det-report"], 0);
    let said = r.said();
    for wanted in [
        " at both (0x",
        "what thread 0 wrote is lost; it came to",
        "what thread 1 wrote stays; it came to",
        "pthread_mutex_lock (",
        "    body (",
        "    main (",
        "start_thread (",
        // A word of the heap, which has no name.
        "conflicting writes to 8 bytes at 0x",
    ] {
        assert!(said.contains(wanted), "{wanted}: {}", r.describe());
    }
    for ordered in ["mine", "neighbours", "locked", "handed"] {
        assert!(
            !said.contains(&format!(" at {ordered} (")),
            "{ordered}: {}",
            r.describe()
        );
    }
    // The program knows nothing of it.
    let plain = once(&place, &guest, 0);
    assert_eq!(r.stdout, plain.stdout);
}

#[test]
fn the_report_is_the_same_in_every_run() {
    let place = Workplace::new();
    for (name, args) in [
        ("det_conflicts", &["20"][..]),
        ("det_racey", &["4"]),
        ("racey", &["4", "50"]),
    ] {
        let guest = Guest::new(name).args(args);
        let one = |n: usize| {
            let seed = n.to_string();
            let delays = ["--delays", &seed];
            let flags = [&["--det-report"], &delays[..if n == 0 { 0 } else { 2 }]].concat();
            let r = once_with(&place, &guest, &flags, n);
            assert!(
                r.said().contains("conflicting writes to "),
                "{}",
                r.describe()
            );
            r.said()
        };
        let all: BTreeSet<String> = (0..8).map(one).collect();
        assert_eq!(all.len(), 1, "{name}: {all:#?}");
    }
}

#[test]
fn where_there_are_none_that_is_said() {
    let place = Workplace::new();
    for name in ["det_locks", "det_alone_again"] {
        let r = once_with(&place, &Guest::new(name), &["--det-report"], 0);
        assert!(
            r.said().contains("no conflicting writes"),
            "{}",
            r.describe()
        );
    }
}
