//! `reprise run`: signals from outside of the program.

mod common;

use common::det::outputs_with;
use common::Guest;
use std::collections::BTreeSet;

/// Whoever has a signal open, waits for it or reads it gets it, though the first thread blocks it.
#[test]
fn signals_come_to_the_thread_that_takes_them() {
    let all = outputs_with(&Guest::new("det_signals_from_outside"), 10, |n| {
        vec![format!("--delays={n}")]
    });
    let wanted = b"0 is done\n1 is done\n2 is done\n3 is done\n5 handled\n".to_vec();
    assert_eq!(all, BTreeSet::from([wanted]));
}
