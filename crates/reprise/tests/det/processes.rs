//! `reprise run`: programs with threads make processes, each with a copy of the memory as it was in its parent's turn, and become other programs.

use crate::common;

use common::det::{once, once_with, outputs, outputs_with};
use common::{Guest, Workplace};

#[test]
fn threads_make_processes() {
    let place = Workplace::new();
    for name in [
        "fork_from_threads",
        "fork_with_threads",
        "vfork_spawn",
        "fork_wait",
        "process_pipes",
        "atfork_handlers",
        "fork_tree",
        "worker_tree",
        "exit_ways",
    ] {
        for n in 0..2 {
            let r = once(&place, &Guest::new(name), n);
            assert!(r.status.success(), "{name}: {}", r.describe());
        }
    }
}

/// When a child ends is not the program's to say. Where its parent learns of it is, and so is all that follows.
#[test]
fn children_are_waited_for_in_one_order() {
    let all = outputs(&Guest::new("det_forks"), 8);
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn a_child_may_need_another_thread() {
    let place = Workplace::new();
    for patience in ["1", "20"] {
        let guest = Guest::new("det_child_needs_thread");
        let r = once_with(&place, &guest, &["--patience", patience], 0);
        assert!(r.status.success(), "{}", r.describe());
        assert_eq!(r.stdout, b"the child has ended\n");
    }
}

/// The first thread does it for the others.
#[test]
fn any_thread_becomes_another_program() {
    let place = Workplace::new();
    for n in 0..5 {
        let r = once(&place, &Guest::new("exec_again"), n);
        assert!(r.status.success(), "{}", r.describe());
    }
}

/// Children, locks, limits, ids and timers belong to all threads.
#[test]
fn threads_are_one_process() {
    let place = Workplace::new();
    for n in 0..5 {
        let r = once(&place, &Guest::new("det_one_process"), n);
        assert!(r.status.success(), "{}", r.describe());
        assert_eq!(r.stdout, b"as one\n");
    }
}

/// What threads wait for in the kernel only for each other's sake comes in one order.
#[test]
fn locks_and_queues_of_the_kernel_have_one_order() {
    let delays = |n| vec![format!("--delays={n}")];
    let all = outputs_with(&Guest::new("det_kernel_locks"), 8, delays);
    assert_eq!(all.len(), 1, "{all:?}");
}
