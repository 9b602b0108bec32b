//! Slices that end in the middle of code, named by the machine's state (DESIGN 5, `serial`).

use crate::common;

use common::{check, check_times, large_enough_to_be_cut, Guest, Info, Source};
use std::collections::BTreeSet;

// Where a slice may as well end at a gate, or which are too short to be cut for certain.
guests! { cut_call_loop, cut_clock_loop, cut_string_functions, cut_floating_point }

/// In every way to build and run it, a recording is really cut in mid-code: if need be one of more work.
fn assert_cut(name: &str) {
    let cut: BTreeSet<String> = check(name)
        .into_iter()
        .filter(|(_, infos)| infos.iter().any(|i| i.counter("cuts") > 0))
        .map(|(label, _)| label)
        .collect();
    for guest in Source::read(name).guests() {
        if !cut.contains(&guest.label()) {
            large_enough_to_be_cut(&guest, 0);
        }
    }
}

macro_rules! cut_guests {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { assert_cut(stringify!($name)); })* };
}

cut_guests! {
    cut_spin_flag, cut_spin_counting, cut_spin_exchange, cut_third_answers, cut_counter, cut_sampling, cut_rep_stosb, cut_tiny_loops,
    cut_generated_code, cut_recursion, cut_big_heap, cut_signals,
}

#[test]
fn string_functions_are_cut_when_they_run_for_long() {
    large_enough_to_be_cut(&Guest::new("cut_string_functions").args(["40000"]), 0);
}

#[test]
fn low_addresses() {
    for (label, infos) in check("low_addresses") {
        let is_cut = |i: &Info| i.counter("cuts") > 0;
        assert!(infos.iter().all(is_cut), "{label}: no cut");
    }
}

#[test]
fn loops_of_calls_are_cut_at_gates() {
    let infos = check_times(&Guest::new("cut_call_loop"), &[], 1, 1);
    assert!(
        infos[0].counter("handoffs") > 0,
        "two busy threads, and no hand-off: {}",
        infos[0].0
    );
}

#[test]
fn places_are_found_again_under_chaos() {
    for name in [
        "cut_counter",
        "cut_sampling-O0",
        "cut_recursion",
        "cut_spin_counting",
    ] {
        check_times(&Guest::new(name), &["--chaos=7"], 1, 1);
    }
}
