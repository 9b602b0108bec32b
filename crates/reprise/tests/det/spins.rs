//! `reprise run`: programs whose threads wait for each other by looking at plain memory come to their end, the same way each time; those that can't
//! end with a message.

use crate::common;

use common::det::{counters, once_with, outputs};
use common::{Guest, Workplace};

#[test]
fn threads_that_look_at_plain_memory_have_turns() {
    for (name, args) in [("det_spins", &[][..]), ("atomics", &["400"])] {
        let all = outputs(&Guest::new(name).args(args), 5);
        assert_eq!(all.len(), 1, "{name}: {all:?}");
    }
}

/// Each of them is had at the same place, however long somebody waited for it.
#[test]
fn the_turns_are_as_many_each_time() {
    let place = Workplace::new();
    let guest = Guest::new("det_spins");
    let spins = |n| {
        let r = once_with(&place, &guest, &["--stats"], n);
        assert!(r.status.success(), "{}", r.describe());
        let all = counters(&r);
        (all["spins"], all["rounds"])
    };
    let first = spins(0);
    assert!(first.0 >= 20, "{first:?}");
    for n in 1..5 {
        assert_eq!(spins(n), first);
    }
}

/// A thread that counts to the same number between two looks comes back to the same state after thousands of steps; that is found, too, and the run is
/// the same each time.
#[test]
fn long_cycles_are_found() {
    let place = Workplace::new();
    let guest = Guest::new("det_spins_long");
    let turns = |n| {
        let r = once_with(&place, &guest, &["--stats"], n);
        assert!(r.status.success(), "{}", r.describe());
        let all = counters(&r);
        assert!(all["spins"] >= 2, "{all:?}");
        (all["spins"], all["rounds"])
    };
    let first = turns(0);
    assert_eq!(turns(1), first);
}

/// A loop that counts is never twice in the same state.
#[test]
fn a_thread_that_runs_on_and_on_is_shown() {
    let place = Workplace::new();
    for (name, args) in [
        ("exit_while_others", &[][..]),
        ("exit_while_others", &["thread"]),
        ("exit_while_others", &["race"]),
        ("thread_cancel", &[]),
    ] {
        let guest = Guest::new(name).args(args);
        let r = once_with(&place, &guest, &["--patience", "1"], 0);
        assert_eq!(
            r.status.code(),
            Some(125),
            "{name} {args:?}: {}",
            r.describe()
        );
        let said = r.said();
        assert!(
            said.contains("runs on and on without synchronising"),
            "{said}"
        );
        assert!(said.contains("was last seen at 0x"), "{said}");
        assert!(said.contains("have been waiting for a long time"), "{said}");
    }
}
