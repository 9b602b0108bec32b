//! `reprise run`: programs with threads make processes, each with a copy of the memory as it was in its parent's turn, and become other programs.

mod common;

use common::det::{once, once_with, outputs};
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

/// Another thread than the first would have to take the first one's place.
#[test]
fn only_the_first_thread_becomes_another_program() {
    let place = Workplace::new();
    let r = once(&place, &Guest::new("exec_again"), 0);
    assert_eq!(r.status.code(), Some(99), "{}", r.describe());
    let said = r.said();
    assert!(
        said.contains("only the first of several threads can exec"),
        "{said}"
    );
}
