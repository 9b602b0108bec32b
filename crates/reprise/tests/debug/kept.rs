//! `replay -d` on traces of which only the last stretch was kept: see `common/debugging_kept.rs`.

sessions! { debugging_kept, &[];
    the_kept_beginning_is_where_a_session_starts_and_where_all_ways_back_end,
    who_wrote_last_is_found_from_the_crash_back,
    a_place_is_the_same_forward_and_back,
    what_was_forgotten_is_said,
    scripts_work_on_a_kept_stretch,
    a_condition_is_looked_for_up_to_the_beginning_and_back,
}

/// As under `serial`; but which events can be gone to back to the beginning depends on how far each thread is there.
mod order {
    use crate::common::order::ORDER;

    sessions! { debugging_kept, &ORDER;
        the_kept_beginning_is_where_a_session_starts_and_where_all_ways_back_end,
        who_wrote_last_is_found_from_the_crash_back,
        a_place_is_the_same_forward_and_back,
        what_was_forgotten_is_said,
        scripts_work_on_a_kept_stretch,
        a_condition_is_looked_for_up_to_the_beginning_and_back,
    }
}
