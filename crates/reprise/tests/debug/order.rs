//! `replay -d` of recordings by `--engine order`: they are debugged in total order, in which one thread runs at a time.

use crate::common;

use common::debugging::recorded;
use common::gdb::{assert_said, said, session, states};
use common::order::ORDER;
use common::{run, Guest, Outcome, Workplace};

/// Places that are gone to.
const PLACES: u64 = 10;

// As under `serial`: see `common/debugging.rs`. Where other threads are meanwhile, as the session with C++ wants to know, is another question here.
sessions! { debugging, &ORDER;
    a_session_stops_at_breakpoints_and_shows_the_source,
    steps_go_over_gates,
    every_change_of_a_watched_variable_is_told,
    a_crash_is_shown_where_it_happens,
    an_abort_is_shown_in_its_call,
    who_spoiled_a_variable_is_found_in_one_go,
    every_way_back_leads_where_the_way_forward_came_from,
    backward_stops_at_breakpoints_of_other_threads_and_at_the_beginning,
    one_goes_to_an_event_forward_and_back,
    a_program_writes_its_output_once_however_often_it_is_replayed,
    what_can_not_be_debugged_is_said,
    a_first_thread_that_has_ended_holds_up_nobody,
    a_replay_can_not_be_changed,
    all_threads_are_printed_where_they_were,
    a_write_that_led_here_is_taken_back,
    a_condition_that_does_not_hold_stops_nobody,
    a_condition_is_looked_for_backward,
    a_condition_that_can_not_be_tested_is_told,
    a_condition_holds_where_no_stub_can_be,
    a_condition_at_a_call_is_compiled,
}

/// Functions that gdb calls.
mod calls {
    use crate::common::order::ORDER;

    sessions! { debugging_calls, &ORDER;
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
}

#[test]
fn the_state_at_an_event_is_the_same_from_wherever_it_is_come_to() {
    let place = Workplace::new();
    let guest = Guest::new("rwlock_barrier_semaphore");
    let trace = place.record_with(&guest, &ORDER);
    let all = place.info(&trace.dir).events();
    // Not at its very end, where events are the recorder's own.
    let events: Vec<u64> = (1..=PLACES).map(|i| all * i / (PLACES + 2)).collect();
    let straight = states(&place, &trace.dir, "0", &events, 1);
    assert!(
        straight.windows(2).all(|w| w[0] != w[1]),
        "states do not differ: {straight:?}"
    );
    let mut back = events.clone();
    back.reverse();
    let mut found = states(&place, &trace.dir, "end", &back, 1);
    found.reverse();
    assert_eq!(found, straight);
    let mixed: Vec<usize> = (0..PLACES as usize)
        .map(|i| i * 3 % PLACES as usize)
        .collect();
    let wanted: Vec<u64> = mixed.iter().map(|i| events[*i]).collect();
    let expected: Vec<String> = mixed.iter().map(|i| straight[*i].clone()).collect();
    assert_eq!(states(&place, &trace.dir, "end", &wanted, 1), expected);
}

#[test]
fn a_place_that_is_remembered_is_the_same_when_it_is_come_to_again() {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("rwlock_barrier_semaphore"), &ORDER);
    let all = place.info(&trace.dir).events();
    let places: Vec<String> = (2..=PLACES)
        .map(|i| format!("run-to {}", all * i / (PLACES + 2)))
        .collect();
    let mut commands = Vec::new();
    for run_to in &places {
        // In the middle of code, too.
        let here = [run_to.as_str(), "checkpoint", "monitor state"];
        commands.extend([&here[..], &["stepi 40", "checkpoint", "monitor state"]].concat());
    }
    let kept = 2 * places.len();
    let restarts: Vec<String> = (1..=kept).rev().map(|n| format!("restart {n}")).collect();
    for restart in &restarts {
        commands.extend([restart.as_str(), "monitor state"]);
    }
    let run = session(&place, &trace.dir, &[], &commands);
    let text = said(&run);
    let states: Vec<&str> = text.lines().filter(|l| l.starts_with("memory ")).collect();
    assert_eq!(states.len(), 2 * kept, "{text}");
    let mut again = states[kept..].to_vec();
    again.reverse();
    assert_eq!(states[..kept], again, "{text}");
    assert!(states[..kept].windows(2).any(|w| w[0] != w[1]), "{text}");
}

/// The first thread waits for the others all the time, so that what comes next for it is far ahead in the trace.
#[test]
fn one_goes_back_where_much_of_the_trace_waits_for_others() {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("signal_between_threads"), &ORDER);
    let all = place.info(&trace.dir).events();
    let events = [all / 2, all / 4, all / 20];
    states(&place, &trace.dir, "end", &events, 2);
}

#[test]
fn hooked_functions_are_shown_as_the_program_has_them_and_are_one_step() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &ORDER);
    let commands = [
        "break deposit",
        "continue",
        "break *pthread_mutex_unlock",
        "continue",
        "print *(unsigned char *)$pc == 0xe9",
        "print $back = *(long *)$rsp",
        "stepi",
        "print (long)$pc == $back",
        "reverse-stepi",
        "print (long)$pc == (long)pthread_mutex_unlock",
        "backtrace",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    assert_said(
        &run,
        &[
            "hit Breakpoint 1, deposit",
            "pthread_mutex_unlock",
            "$1 = 0\n",
            "$3 = 1\n",
            "$4 = 1\n",
            "#0 ",
            "pthread_mutex_unlock",
            "saver (arg=",
            "start_thread",
        ],
    );
}

#[test]
fn ways_back_cross_hand_offs_between_threads() {
    let place = Workplace::new();
    let trace = recorded(&place, None, &ORDER);
    let mut commands = vec!["break deposit"];
    commands.extend([&["continue", "monitor state"][..]; 10].concat());
    commands.extend(["continue", "echo back\\n"]);
    commands.extend([&["reverse-continue", "monitor state"][..]; 10].concat());
    // From a thread's first hit to before it was made.
    commands.extend([
        "delete",
        "reverse-finish",
        "reverse-next",
        "reverse-stepi",
        "backtrace",
    ]);
    let run = session(&place, &trace.dir, &[], &commands);
    let text = said(&run);
    let (there, back) = text.split_once("back\n").expect("both ways");
    let hashes = |part: &str| -> Vec<String> {
        let lines = part.lines().filter(|l| l.starts_with("memory "));
        lines.map(str::to_string).collect()
    };
    let mut reversed = hashes(back);
    reversed.reverse();
    assert_eq!(hashes(there).len(), 10, "{text}");
    assert_eq!(hashes(there), reversed, "{text}");
    for amount in ["deposit (amount=1)", "deposit (amount=2)"] {
        assert!(there.contains(amount) && back.contains(amount), "{text}");
    }
    assert!(text.trim_end().contains("saver (arg="), "{text}");
}

#[test]
fn a_crash_is_printed() {
    let place = Workplace::new();
    let trace = recorded(&place, Some("crash"), &ORDER);
    let out = run(place.reprise(["backtrace", "--json"]).arg(&trace.dir), None);
    assert_eq!(out.status.code(), Some(0), "{}", out.describe());
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let thread = &json["threads"][0];
    assert_eq!(thread["stopped"], true, "{json}");
    assert_eq!(thread["frames"][0]["function"], "check", "{json}");
    assert_eq!(thread["frames"][1]["function"], "main", "{json}");
}

#[test]
fn recordings_of_several_processes_are_refused() {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("fork_wait").ends(Outcome::Any), &ORDER);
    let run = session(&place, &trace.dir, &[], &["when"]);
    assert_eq!(
        run.status.code(),
        Some(common::OWN_FAILURE),
        "{}",
        said(&run)
    );
    assert!(
        said(&run).contains("that have one process"),
        "{}",
        said(&run)
    );
}

/// A page is looked at more often than it is protected: the debugger stops at the visit that faulted, and at no other.
#[test]
fn a_fault_by_another_thread_is_met_once() {
    let place = Workplace::new();
    let guest = Guest::new("faults_between_threads-O2").args(["2", "2"]);
    let trace = place.record_with(&guest, &ORDER);
    let commands = [
        "break on_fault",
        "continue",
        "continue",
        "continue",
        "continue",
        "reverse-continue",
        "reverse-continue",
    ];
    let run = session(&place, &trace.dir, &[], &commands);
    let text = said(&run);
    let stops: Vec<bool> = text
        .lines()
        .filter_map(|l| match l {
            l if l.contains("received signal SIGSEGV") => Some(true),
            l if l.contains("hit Breakpoint 1, on_fault") => Some(false),
            _ => None,
        })
        .collect();
    // There and back: a fault of another thread may come before a handler begins, so that only their numbers are known.
    let forward = &stops[..4.min(stops.len())];
    assert_eq!(forward.iter().filter(|fault| **fault).count(), 2, "{text}");
    assert!(stops.len() >= 5, "{text}");
}
