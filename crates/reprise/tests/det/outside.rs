//! `reprise run`: signals from outside of the program.

use crate::common;

use common::det::{once, outputs_with};
use common::{Guest, Outcome, Workplace};
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

/// A thread that is killed ends the program, with the right status; so does a signal that the first thread blocks, or has not lived to see.
#[test]
fn the_end_is_that_of_one_process() {
    let place = Workplace::new();
    for (how, signal) in [
        ("fault", libc::SIGSEGV),
        ("abort", libc::SIGABRT),
        ("outside", libc::SIGTERM),
        ("last", libc::SIGTERM),
    ] {
        for n in 0..3 {
            let r = once(&place, &Guest::new("det_ends").args([how]), n);
            assert!(
                Outcome::Signal(signal).fits(r.status),
                "{how}: {}",
                r.describe()
            );
            // To the world only the first thread's process is the program: nobody else would say which one it was. Who sends a signal from
            // outside knows that.
            let (name, times) = match signal {
                libc::SIGSEGV => ("SIGSEGV", 1),
                libc::SIGABRT => ("SIGABRT", 1),
                _ => ("SIGTERM", 0),
            };
            let said = r.said();
            assert_eq!(
                said.matches(&format!("was ended by {name}")).count(),
                times,
                "{how}: {said}"
            );
            assert_eq!(
                said.matches("was ended by ").count(),
                times,
                "{how}: {said}"
            );
        }
    }
}
