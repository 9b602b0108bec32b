//! `reprise run`: every guest of the `order` engine's tests, and every kernel, does under it what it does by itself; or ends with a message that says what it
//! would have needed.
//!
//! `det_guests.rs` has more runs of some of them.

use crate::common;

use common::det::once_with;
use common::{all_sources, message, shape, sources, sources_of_tests, Guest, Outcome, Workplace};
use std::collections::BTreeSet;

/// What runs of a guest have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alike {
    /// All that they print.
    All,
    /// What they print but for numbers and the order of lines: they tell times and ids, or what processes did to each other.
    Shape,
}

/// A guest, its arguments, and how it ends.
type Row = (&'static str, &'static [&'static str], Outcome);

const FINE: Outcome = Outcome::Exit(0);

/// By itself, and twice under the engine, the second time with delays at gates.
fn each(rows: &[Row], alike: Alike) {
    each_with(rows, alike, |_| vec!["--delays", "1"]);
}

/// As [`each`], without delays: guests for which they would take long.
fn each_undelayed(rows: &[Row], alike: Alike) {
    each_with(rows, alike, |_| vec![]);
}

fn each_with(rows: &[Row], alike: Alike, second: impl Fn(&str) -> Vec<&'static str>) {
    let place = Workplace::new();
    let mut failures = Vec::new();
    for (name, args, outcome) in rows {
        let guest = guest(name).args(args.iter().copied());
        let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let native = guest.native(&place);
            assert!(outcome.fits(native.status), "{}", native.describe());
            let runs: Vec<_> = [vec![], second(name)]
                .iter()
                .enumerate()
                .map(|(n, flags)| once_with(&place, &guest, flags, n))
                .collect();
            for r in &runs {
                assert!(outcome.fits(r.status), "{}", r.describe());
                assert_eq!(shape(&native.stdout), shape(&r.stdout));
            }
            if alike == Alike::All {
                assert_eq!(runs[0].text(), runs[1].text());
            }
        }));
        failures.extend(
            attempt
                .err()
                .map(|why| format!("{}: {}", guest.label(), message(&*why))),
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A guest, or a script that one of Debian's programs runs.
fn guest(name: &str) -> Guest {
    match sources().join(format!("{name}.py")) {
        script if script.exists() => {
            Guest::program(common::system_program("python3")).args([script])
        }
        _ => Guest::new(name),
    }
}

fn plain(names: &[&'static str]) -> Vec<Row> {
    names.iter().map(|n| (*n, &[][..], FINE)).collect()
}

#[test]
fn threads() {
    let mut rows = plain(&[
        "address_space_limit",
        "allocators",
        "called",
        "cancel_points",
        "changing_ids",
        "debugged",
        "debugged_conditions",
        "debugged_cpp",
        "det_fences",
        "detached_and_local",
        "first_calls",
        "futex_raw",
        "locked_memory",
        "mutex_starvation",
        "other_mutex",
        "others_change_blocking",
        "rwlock_preference",
        "sections_at_once",
        "thread_keys",
        "thread_stacks",
    ]);
    rows.extend([
        ("append_races", &["4", "100"][..], FINE),
        ("atomic_handover", &["300"], FINE),
        ("atomic_operations", &["2", "30"], FINE),
        ("contexts", &["200"], FINE),
        ("debugged", &["crash"], Outcome::Signal(libc::SIGSEGV)),
        ("abort_handled", &[], Outcome::Signal(libc::SIGABRT)),
        ("exit_race", &[], Outcome::Any),
        ("idle_threads", &["20", "2000"], FINE),
        ("learned_forms", &["200"], FINE),
        ("plain_handover", &["200"], FINE),
        ("plain_leaf", &["200"], FINE),
        ("racy_counter", &["4", "3000000"], FINE),
        ("racy_sum", &["4", "300"], FINE),
        ("waits_for_thread", &["join"], FINE),
        ("waits_for_thread", &["end"], FINE),
        ("waits_for_thread", &["once"], FINE),
        ("waits_for_thread", &["shared"], FINE),
        ("waits_for_thread", &["slot"], FINE),
        // Who finds it out depends on whose heap it is.
        ("use_after_free", &[], Outcome::Any),
    ]);
    each(&rows, Alike::All);
    // They tell the time, or a processor.
    each(
        &plain(&["c11_threads", "tiny_stacks", "epoll", "processor_number"]),
        Alike::Shape,
    );
    // Two threads meet some hundred thousand times.
    each_undelayed(&plain(&["whole_results"]), Alike::All);
}

#[test]
fn languages() {
    let rows = [
        ("cpp_coroutines", &["100"][..], FINE),
        ("cpp_futures", &[], FINE),
        ("cpp_shared_locks", &["30"], FINE),
        ("cpp_stop_tokens", &[], FINE),
        ("debugged_rust", &[], Outcome::Signal(libc::SIGABRT)),
        ("rust_poisoned", &[], FINE),
        ("rust_scoped", &["300"], FINE),
    ];
    each(&rows, Alike::All);
}

/// Who is first in them may have an id in what they say.
#[test]
fn languages_and_their_processes() {
    let rows = [
        ("cpp_exceptions", &["5"][..], FINE),
        ("cpp_terminate", &[], Outcome::Signal(libc::SIGABRT)),
        ("cpp_threads", &["40"], FINE),
        ("python_files", &[], FINE),
        ("python_multiprocessing", &[], FINE),
        ("python_subprocess", &[], FINE),
        ("python_threading", &["3"], FINE),
        ("python_threads", &[], FINE),
        ("rust_command", &[], FINE),
        ("rust_network", &["4", "20"], FINE),
        ("rust_panics", &[], Outcome::Any),
        ("rust_threads", &["40"], FINE),
    ];
    each_undelayed(&rows, Alike::Shape);
}

/// Who was first is the same in every run.
#[test]
fn races_for_each_kind_of_object() {
    let rows: Vec<Row> = [
        &["mutex", "100"],
        &["spin", "100"],
        &["rwlock", "50"],
        &["sem", "50"],
        &["cond", "50"],
        &["barrier", "50"],
        &["once", "50"],
        &["malloc", "100"],
        &["stacks", "10"],
        &["join", "20"],
    ]
    .map(|args| ("who_was_first", &args[..], FINE))
    .to_vec();
    each(&rows, Alike::All);
}

#[test]
fn processes() {
    let mut rows = plain(&[
        "child_signals",
        "clone_pidfd",
        "exec_by_descriptor",
        "exec_errors",
        "exec_kept_and_lost",
        "fork_deaths",
        "futex_between_processes",
        "groups_and_sessions",
        "job_control",
        "join_beside_vfork",
        "names_that_are_no_text",
        "orphaned_group",
        "pidfds",
        "robust_between_processes",
        "shared_files",
        "signals_across_fork",
        "spawn_attributes",
        "subreaper",
        "wait_forms",
    ]);
    rows.extend([
        ("exec_killed", &["20"][..], FINE),
        ("fork_chain", &["20"], FINE),
        ("killed_among_atomics", &["6"], FINE),
        ("signals_while_waiting", &["12"], FINE),
        ("stopped_anywhere", &[], FINE),
        ("vfork_failures", &["4", "5"], FINE),
    ]);
    each(&rows, Alike::All);
    let mut rows = plain(&[
        "clone_by_syscall",
        "daemon_service",
        "exit_at_new_site",
        "ipc_tables",
        "robust_of_the_dead",
        "semaphore_undo",
    ]);
    rows.extend([
        ("atomics_between_processes", &["4", "300"][..], FINE),
        ("crash_of_one", &["8"], FINE),
        ("fork_killed_at_once", &["60"], FINE),
        ("fork_shared_memory", &["3", "200"], FINE),
        ("kept_sleeper", &["2", "300"], FINE),
        ("kept_stretch", &["2", "300"], FINE),
        (
            "kept_stretch",
            &["3", "200", "crash"],
            Outcome::Signal(libc::SIGSEGV),
        ),
        ("killed_while_sharing", &["alarm", "3"], FINE),
        ("locks_between_processes", &["4", "30"], FINE),
        ("orphans", &["6"], FINE),
        ("processes_at_work", &["2", "100000"], FINE),
        ("signal_in_unlogged", &["40"], FINE),
        ("signal_near_atomic", &["15"], FINE),
        ("sysv_shm_threads", &["4", "2000"], FINE),
    ]);
    each(&rows, Alike::Shape);
}

/// Hundreds of threads that wait.
#[test]
fn many_idle_threads() {
    each_undelayed(&[("idle_threads", &["400", "2000"], FINE)], Alike::All);
}

/// Hundreds of threads that begin and end.
#[test]
fn many_new_threads() {
    each_undelayed(&[("threads_many", &["400"], FINE)], Alike::All);
    // It tells of ids.
    each_undelayed(&[("threads_short_lived", &["700"], FINE)], Alike::Shape);
}

/// Up to 64 threads that all want the same: whose turn it is.
#[test]
fn many_threads_that_take_turns() {
    let rows = [
        ("sync_mutex", &["32", "3"][..], FINE),
        ("sync_once", &["16"], FINE),
        ("sync_rwlock", &["64", "1"], FINE),
        ("sync_sem", &["64", "2"], FINE),
    ];
    each_undelayed(&rows, Alike::All);
}

/// Up to 64 threads that wait for one another.
#[test]
fn many_threads_that_meet() {
    let rows = [
        ("sync_barrier", &["64", "3"][..], FINE),
        ("sync_cond", &["32", "10"], FINE),
    ];
    each_undelayed(&rows, Alike::All);
}

/// Each kernel, with 2 threads and with 4.
#[test]
fn kernels() {
    let names: BTreeSet<String> = std::fs::read_dir(sources().join("kernels"))
        .expect("the kernels")
        .filter_map(|e| {
            let name = e.expect("an entry").file_name().into_string().ok()?;
            Some(format!("kernels/{}", name.strip_suffix(".c")?))
        })
        .collect();
    assert!(names.len() > 20, "{names:?}");
    let names: &'static BTreeSet<String> = Box::leak(Box::new(names));
    for threads in [&["-s", "small", "-t", "2"], &["-s", "small", "-t", "4"]] {
        let rows: Vec<Row> = names
            .iter()
            .map(|n| (n.as_str(), &threads[..], FINE))
            .collect();
        each_undelayed(&rows, Alike::All);
    }
}

/// Programs that need what isolation, or the engine by now, can't give: what the message says.
#[test]
fn what_cannot_be_ends_with_a_message() {
    let place = Workplace::new();
    let endless = "runs on and on without synchronising";
    for (name, args, status, wanted) in [
        // They count while they look at plain memory.
        ("atomic_polling", &["40"][..], 125, endless),
        ("place_never_found", &[], 125, endless),
        ("who_was_first", &["cancel", "40"], 125, endless),
        // What threads share is mapped before the first of them, whatever the program's limit.
        (
            "address_space_room",
            &[],
            125,
            "no room for the memory that threads share",
        ),
        (
            "buffers_seen_by_others",
            &[],
            99,
            "in its memory that runs beside it",
        ),
    ] {
        let guest = Guest::new(name).args(args.iter().copied());
        let r = once_with(&place, &guest, &["--patience", "2"], 0);
        assert_eq!(r.status.code(), Some(status), "{name}: {}", r.describe());
        assert!(r.said().contains(wanted), "{name}: {}", r.describe());
    }
}

/// libstdc++ 12 can lose a wake-up of a counting_semaphore (its bug 104928). Natively that is rare; here it is in every run, or in none.
#[test]
fn a_lost_wake_up_of_the_programs_own_is_a_deadlock_that_is_shown() {
    let place = Workplace::new();
    let guest = Guest::new("cpp_atomic_wait").args(["20"]);
    let runs = [0, 1, 2].map(|n| once_with(&place, &guest, &[], n));
    for r in &runs {
        assert_eq!(r.status, runs[0].status, "{}", r.describe());
        assert_eq!(r.stdout, runs[0].stdout, "{}", r.describe());
    }
    if !runs[0].status.success() {
        assert_eq!(runs[0].status.code(), Some(125), "{}", runs[0].describe());
        assert!(runs[0].said().contains("reprise: deadlock"));
    }
}

/// No guest of the other engine's tests is forgotten.
#[test]
fn all_guests_of_the_order_engine_are_here() {
    /// Not for this engine: why.
    const ELSEWHERE: [(&str, &str); 6] = [
        (
            "fork_outlives",
            "its daemon's last word comes when it comes",
        ),
        ("signal_groups", "it wants to be no leader of a session"),
        (
            "parent_death_signal",
            "the kernel tells a child the id of a thread-process",
        ),
        ("exec_races", "other threads than the first can't exec"),
        ("terminal_job_control", "it wants a terminal"),
        (
            "faults_between_threads",
            "its threads count while they look at memory that another one changes",
        ),
    ];
    /// What is tested beside the engine itself.
    const BESIDE: [&str; 6] = [
        "epochs.rs",
        "interposed.rs",
        "serial_hooks.rs",
        "sketch.rs",
        "stand.rs",
        "uniparallel.rs",
    ];
    let of_order = sources_of_tests("order", |file| !BESIDE.contains(&file));
    let of_det = sources_of_tests("det", |_| true);
    // Names stand in quotes; under det some are those of tests.
    let order: BTreeSet<&str> = of_order.split('"').collect();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let det: BTreeSet<&str> = of_det.split(|c| !word(c)).collect();
    let missing: Vec<_> = all_sources()
        .into_iter()
        .filter(|n| order.contains(n.as_str()) && !det.contains(n.as_str()))
        .filter(|n| ELSEWHERE.iter().all(|(e, _)| e != n))
        .collect();
    assert!(
        missing.is_empty(),
        "guests that no test of det names: {missing:?}"
    );
}
