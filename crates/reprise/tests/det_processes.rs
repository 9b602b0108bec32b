//! `reprise run`: programs with threads make processes, each with a copy of the memory as it was in its parent's turn, and become other programs.

mod common;

use common::det::once;
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
        "det_forks",
    ] {
        for n in 0..2 {
            let r = once(&place, &Guest::new(name), n);
            assert!(r.status.success(), "{name}: {}", r.describe());
        }
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
