//! `reprise run`: the same run every time (DThreads), data races included.

mod common;

use common::det::{once, outputs, outputs_with};
use common::{Guest, Workplace};
use std::collections::BTreeSet;

fn assert_one_signature(threads: &str) {
    let guest = Guest::new("det_racey").args([threads]);
    let all = outputs(&guest, 50);
    assert_eq!(all.len(), 1, "{threads} threads: {all:?}");
    assert!(all.iter().all(|o| o.starts_with(b"signature ")));
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
fn figure_1_of_the_paper_prints_the_same_always() {
    let all = outputs(&Guest::new("det_figure1"), 20);
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
