//! `reprise run`: the same run every time (DThreads), data races included.

use crate::common;

use common::det::{once, outputs, outputs_with, signatures};
use common::{full, knob, Guest, Workplace};
use std::collections::BTreeSet;

/// How often each is run: with `REPRISE_TEST_DET_RACEY=2000` it is the long test.
fn runs() -> usize {
    knob("REPRISE_TEST_DET_RACEY", if full() { 2000 } else { 12 }) as usize
}

fn assert_one_signature(threads: &str) {
    let guest = Guest::new("det_racey").args([threads]);
    let all = signatures(&guest, runs());
    assert_eq!(all.len(), 1, "{threads} threads: {all:?}");
    assert!(all.iter().all(|o| o.starts_with("signature ")));
}

#[test]
fn racing_threads_leave_one_signature_2() {
    assert_one_signature("2");
}

#[test]
fn racing_threads_leave_one_signature_4() {
    assert_one_signature("4");
}

#[test]
fn racing_threads_leave_one_signature_8() {
    assert_one_signature("8");
}

/// By themselves they leave others: the signature tells an order from another.
#[test]
fn racing_threads_leave_several_signatures_natively() {
    let place = Workplace::new();
    let guest = Guest::new("racey").args(["4", "200000"]);
    let all: BTreeSet<_> = (0..50).map(|_| guest.native(&place).stdout).collect();
    assert!(all.len() > 1, "{all:?}");
}

/// What a thread does between two synchronisation points changes nothing in their order, however long it takes: memory taken and given back, computation.
#[test]
fn what_is_inserted_into_a_thread_changes_no_order() {
    let plain = outputs(&Guest::new("det_inserted"), 3);
    assert_eq!(plain.len(), 1, "{plain:?}");
    for inserted in ["memory", "work", "all"] {
        let all = outputs(&Guest::new("det_inserted").args([inserted]), 3);
        assert_eq!(all, plain, "{inserted}");
    }
}

#[test]
fn figure_1_of_the_paper_prints_the_same_always() {
    let runs = knob("REPRISE_TEST_DET_RACEY", if full() { 500 } else { 20 });
    let all = outputs(&Guest::new("det_figure1"), runs.min(500) as usize);
    assert_eq!(all, BTreeSet::from([b"1,1\n".to_vec()]));
}

#[test]
fn a_deadlock_is_shown() {
    let place = Workplace::new();
    let guest = Guest::new("det_deadlock");
    let r = once(&place, &guest, 0);
    assert!(r.status.success(), "{}", r.describe());
    assert_eq!(r.stdout, b"no deadlock\n");
    let r = once(&place, &guest.args(["deadlock"]), 0);
    assert_eq!(r.status.code(), Some(125), "{}", r.describe());
    let waits = r.said().matches("waits for the object at").count();
    assert_eq!(waits, 3, "{}", r.describe());
}

/// Eight threads in a circle, and the first one, which waits for their ends.
#[test]
fn a_deadlock_of_many_is_shown_the_same_way_always() {
    let place = Workplace::new();
    let guest = Guest::new("det_deadlock").args(["deadlock", "8"]);
    let said: BTreeSet<_> = (0..5)
        .map(|n| {
            let r = once(&place, &guest, n);
            assert_eq!(r.status.code(), Some(125), "{}", r.describe());
            r.said()
        })
        .collect();
    assert_eq!(said.len(), 1, "{said:?}");
    for said in &said {
        assert_eq!(said.matches("waits for the object at").count(), 9, "{said}");
    }
}

/// A guest's runs end as they do natively, and say the same always.
fn assert_same_always(name: &str, args: &[&str]) {
    let guest = Guest::new(name).args(args.iter().copied());
    let all = outputs(&guest, 5);
    assert_eq!(all.len(), 1, "{name} {args:?}: {all:?}");
}

#[test]
fn barriers_and_signals_to_who_waits_at_them() {
    assert_same_always("sync_barrier", &["2", "100"]);
}

/// A signal to the process is taken by the same thread always, whoever has it open or waits for it.
#[test]
fn signals_to_the_process_are_taken_by_the_same_threads() {
    let guest = Guest::new("signals_to_threads");
    let all = outputs_with(&guest, 10, |n| vec![format!("--delays={n}")]);
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn conditions_wake_in_one_order() {
    assert_same_always("sync_cond", &["8", "100"]);
}

#[test]
fn semaphores_with_handlers_cancellation_and_time_limits() {
    assert_same_always("sync_sem", &["2", "100"]);
}

#[test]
fn readers_and_writers_come_in_one_order() {
    assert_same_always("sync_rwlock", &["2", "200"]);
}
