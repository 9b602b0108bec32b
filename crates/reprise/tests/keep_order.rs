//! The flight recorder of `--engine order`: `record --keep`, and `snapshot`.

mod common;

use common::order::ORDER;

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
