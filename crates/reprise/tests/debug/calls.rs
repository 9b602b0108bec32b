//! Functions of the program that gdb calls. What is tested is in `common/debugging_calls.rs`.

guests! { called }

sessions! { debugging_calls, &[];
    a_function_gives_its_result,
    a_function_allocates_and_prints,
    what_a_function_writes_is_gone_afterwards,
    a_function_that_crashes_is_shown_and_left,
    a_function_can_be_debugged_itself,
    a_function_can_be_called_in_a_thread_that_waits,
    nothing_reaches_the_outside_world,
    a_function_is_called_where_the_program_crashes,
    registers_and_memory_of_the_replay_can_not_be_changed,
    a_session_ends_after_a_call,
}
