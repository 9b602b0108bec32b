//! Threads, their synchronisation, and their races.

use crate::common;

use common::{assert_same, check_times, full, knob, large_enough_to_be_cut, Guest, Workplace};

guests! {
    thread_create, epochs, idle_threads, threads_many, threads_short_lived, mutex_contention, waits_while_others_contend, condition_variables, rwlock_barrier_semaphore, timed_waits,
    detached_and_local, thread_cancel, robust_mutex, pi_mutex, exit_while_others, main_ends_first, exit_race, futex_raw, futex_wake_op, tiny_stacks,
    changing_ids, racy_counter, racey, atomics, who_was_first, faults_between_threads,
}

guests! { timed_locks, mutex_kinds, rwlock_preference, thread_stacks, thread_keys, cancel_points, c11_threads, contexts, mutex_starvation, nested_events, loaded_libraries, sites_among_threads }

/// The issue's own bar: 1,000 recordings of a racy program, each replayed once, signature for signature.
#[test]
fn racey_signatures_again_and_again() {
    let recordings = knob("REPRISE_TEST_RACEY", if full() { 1000 } else { 25 });
    let place = Workplace::new();
    let guest = large_enough_to_be_cut(&Guest::new("racey").args(["4", "2000000"]), 1);
    let mut signatures = std::collections::BTreeMap::<Vec<u8>, u64>::new();
    for i in 0..recordings {
        let recording = place.record(&guest);
        assert!(
            recording.run.status.success(),
            "recording {i}: {}",
            recording.run.describe()
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
        *signatures.entry(recording.run.stdout).or_default() += 1;
        let _ = std::fs::remove_dir_all(&recording.dir);
    }
    assert!(
        signatures.len() > 1,
        "{recordings} recordings all had the same signature: the test proves nothing"
    );
}

#[test]
fn chaos_finds_other_orders_and_replays_them() {
    let place = Workplace::new();
    let guest = Guest::new("mutex_contention").args(["4", "2000"]);
    let mut outputs = std::collections::BTreeSet::new();
    for seed in 1..=6 {
        let recording = place.record_with(&guest, &[&format!("--chaos={seed}")]);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        assert_same(&recording.run, &place.replay(&recording.dir));
        outputs.insert(recording.run.stdout);
    }
    assert!(
        outputs.len() >= 3,
        "six seeds gave only {} different runs",
        outputs.len()
    );
}

#[test]
fn chaos_without_a_seed() {
    for name in [
        "racey",
        "condition_variables",
        "atomics",
        "signal_between_threads",
        "tcp_loopback",
    ] {
        check_times(&Guest::new(name), &["--chaos"], 1, 2);
    }
}

#[test]
fn the_baton_changes_hands() {
    let infos = check_times(
        &Guest::new("condition_variables").args(["3", "3", "500"]),
        &[],
        1,
        1,
    );
    assert!(
        infos[0].counter("handoffs") > 100,
        "only {} hand-offs",
        infos[0].counter("handoffs")
    );
    assert_eq!(
        infos[0].kind("thread-start"),
        infos[0].kind("thread-exit"),
        "{}",
        infos[0].0
    );
}
