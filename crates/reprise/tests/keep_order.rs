//! The flight recorder of `--engine order`: `record --keep`, and `snapshot`.

mod common;

use common::order::ORDER;
use common::{run, Guest, Workplace, OWN_FAILURE};

sessions! { kept, &ORDER;
    one_thread,
    several_threads,
    the_stretch_before_a_crash,
    a_sleeper_holds_nobody_up,
    beginnings_anywhere,
    what_children_do_not_get,
    a_long_run_stays_small,
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
