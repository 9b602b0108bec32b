//! The flight recorder of `--engine order`: `record --keep`, and `snapshot`.

use crate::common;

use common::order::ORDER;
use common::{check_times, run, Guest, Workplace, OWN_FAILURE};

sessions! { kept, &ORDER;
    one_thread,
    several_threads,
    who_waits_for_a_lock_goes_on,
    the_stretch_before_a_crash,
    a_sleeper_holds_nobody_up,
    beginnings_anywhere,
    what_children_do_not_get,
    guard_pages_stay,
    a_long_run_stays_small,
    as_much_as_is_wanted,
    what_was_read_long_ago_is_forgotten,
    snapshots_while_it_runs,
    the_agent_is_killed,
    the_follower_is_killed,
}

#[test]
fn what_wants_the_whole_run_is_refused() {
    let place = Workplace::new();
    let guest = Guest::new("kept_sleeper").args(["2", "1500"]);
    let kept = place.record_with(&guest, &[&ORDER[..], &["--keep", "256K"]].concat());
    for args in [&["races"][..], &["replay", "--with", "/bin/true"]] {
        let refused = run(place.reprise(args).arg(&kept.dir), None);
        refused.assert_own_failure(OWN_FAILURE);
        let said = refused.said();
        assert!(
            said.contains("only the last stretch"),
            "{}",
            refused.describe()
        );
    }
}

/// Who waits is told of in the trace, while a replay follows; handlers that run meanwhile come at their places all the same.
#[test]
fn handlers_run_again_and_again_while_a_thread_waits() {
    for guest in [
        Guest::new("signals_while_waiting"),
        Guest::new("cpp_exceptions").args(["300"]),
    ] {
        check_times(&guest, &[&ORDER[..], &["--keep", "2GiB"]].concat(), 2, 2);
    }
}
