//! The flight recorder: `record --keep`, of which a trace has the last stretch only, and `snapshot`.

use crate::common;

use common::{run, Guest, Workplace, OWN_FAILURE};

sessions! { kept, &[];
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
fn what_it_does_not_do_is_said() {
    let place = Workplace::new();
    let guest = Guest::new("hello");
    let none = place.record_with(&guest, &["--keep", "1M", "--engine", "none"]);
    none.run.assert_own_failure(OWN_FAILURE);
    assert!(none
        .run
        .notes
        .contains("--keep wants --engine serial or order"));
    let nobody = run(&mut place.reprise(["snapshot", "1"]), None);
    nobody.assert_own_failure(OWN_FAILURE);
    for wrong in ["soon", "0s", "-1"] {
        let refused = place.record_with(&guest, &[&format!("--keep={wrong}")]);
        assert!(!refused.run.status.success());
    }
    place.keep();
}

/// A program of several processes goes on; its recording ends, which is said.
#[test]
fn several_processes_are_refused() {
    const SCRIPT: &str = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); sh -c 'echo $0 $$' $i; done";
    let place = Workplace::new();
    let guest = Guest::program(common::system_program("sh"))
        .args(["-c", &format!("(sleep 1000 & {SCRIPT}; kill $!)")]);
    let dir = place.fresh("trace");
    let mut command = place.record_command(&guest, &["--keep", "4K"], &dir);
    let recorded = run(common::expect_uncaptured(&mut command), None);
    assert!(recorded.status.success(), "{}", recorded.describe());
    assert_eq!(recorded.text().lines().count(), 300);
    assert!(
        recorded.notes.contains("several processes"),
        "{}",
        recorded.describe()
    );
    place.keep();
}
