//! Stand and re-enter: now and then all threads of a process are taken out of the runtime, down to what the program can see of them, and brought back.
//! Neither the program nor its log shows anything of it: a replay, in which nobody stands, is exact.

use crate::common;

use common::{check_times, Guest, Outcome};

/// The threads stood so often at the least, in a recording that is to show something.
const OFTEN: u64 = 5;

/// Records a guest and replays it; how often its threads stood.
fn stood(guest: &Guest, seed: u32) -> u64 {
    let seed = format!("--test-reenter={seed}");
    let infos = check_times(guest, &["--engine", "order", &seed], 1, 1);
    infos[0].counter("stood")
}

fn check(name: &str, args: &[&str]) {
    let guest = Guest::new(name).args(args);
    let often = stood(&guest, 1);
    assert!(often >= OFTEN, "{name}: only {often} times");
}

tests! {
    check;
    in_hooked_functions {
        sync_mutex = "sync_mutex"["4", "60"],
        sync_cond = "sync_cond"["4", "40"],
        sync_sem = "sync_sem"["4", "40"],
        sync_barrier = "sync_barrier"["4", "40"],
        sync_rwlock = "sync_rwlock"["4", "40"],
        timed_locks,
        timed_waits,
        condition_variables,
        registers_after_waits,
        robust_mutex,
        cancel_points,
        thread_cancel,
        static_winners = "static_winners"[],
    }
    in_calls {
        pipes,
        tcp_loopback,
        epoll_edges,
        eventfds,
        futex_raw,
        futex_wake_op = "futex_wake_op"["4", "60"],
        // Time limits are what the program said, however often a wait is interrupted.
        limits_of_waits = "limits_of_waits"["60"],
    }
    with_signals {
        signal_between_threads = "signal_between_threads"["12"],
        signal_alarm_in_calls = "signal_alarm_in_calls"["300"],
        signal_in_loop = "signal_in_loop"["5"],
        signal_mask,
    }
    // Registers, vector registers with them, and memory.
    states {
        registers_across_calls,
        memory_anonymous,
        generated_code,
    }
}

/// Whoever waits for a process, or forks, or ends while others stand.
#[test]
fn processes_and_ends() {
    for name in ["fork_from_threads", "fork_with_threads", "main_ends_first"] {
        let often = stood(&Guest::new(name), 3);
        assert!(often > 0, "{name}");
    }
    for (way, status) in [("main", 5), ("thread", 6), ("race", 7)] {
        let guest = Guest::new("exit_while_others").args([way]);
        let often = stood(&guest.ends(Outcome::Exit(status)), 3);
        assert!(often > 0, "{way}");
    }
}

/// While all stand a copy of the process is made, with all its threads: it is the same, and one bit of it that is changed is found. The program, which
/// waits for children and for the ends of pipes, notices nothing.
#[test]
fn copies_are_the_same_and_what_differs_is_found() {
    for (name, args) in [
        ("sync_sem", &["4", "20"][..]),
        ("sync_cond", &["4", "10"]),
        ("pipes", &[]),
        ("signal_between_threads", &["6"]),
        ("idle_threads", &["50", "20"]),
        ("fork_from_threads", &[]),
        ("copied_memory", &[]),
        ("signal_groups", &[]),
    ] {
        let flags = ["--engine", "order", "--test-reenter=1", "--test-copies"];
        let infos = check_times(&Guest::new(name).args(args), &flags, 1, 1);
        let [made, found, after_epochs] =
            ["copies", "copies_found", "copies_after_epochs"].map(|which| infos[0].counter(which));
        assert!(made >= OFTEN, "{name}: only {made} copies");
        assert_eq!(found, made, "{name}");
        // A child of the program's own makes the set unknown until the next copy.
        assert!(after_epochs > 0, "{name}: no set was looked at");
    }
}

/// Unasked nobody stands.
#[test]
fn nobody_stands_unasked() {
    let infos = check_times(
        &Guest::new("mutex_contention"),
        &["--engine", "order"],
        1,
        1,
    );
    assert_eq!(infos[0].counter("stood"), 0);
}
