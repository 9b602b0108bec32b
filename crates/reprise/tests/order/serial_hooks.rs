//! `record --engine serial --hooks`: slices of programs that use the runtime's own locks and heap, as they do under `order`. The guests are those of
//! `order`'s tests; here as well their threads may be cut anywhere.

use crate::common;

use common::{assert_same, check_times, run, Guest, Info, Outcome, Workplace};

const HOOKS: [&str; 3] = ["--engine", "serial", "--hooks"];
/// So many functions of glibc are replaced at the least, those of its heap with them.
const FUNCTIONS: u64 = 45;

/// Records a guest, replays it, and verifies it.
fn check(name: &str, args: &[&str]) {
    let infos = check_times(&Guest::new(name).args(args), &HOOKS, 1, 1);
    assert_hooked(&infos);
}

fn assert_hooked(infos: &[Info]) {
    for info in infos {
        let functions = info.counter("hooked");
        assert!(
            functions >= FUNCTIONS,
            "only {functions} functions: {}",
            info.0
        );
    }
}

tests! {
    check;
    calls {
        hello,
        bad_pointers,
        big_output,
        descriptors,
        epoll_edges,
        eventfds,
        pipes,
        tcp_loopback,
        unix_sockets,
        unknown_call,
    }
    files_and_memory {
        files_read_write,
        gaps_unmapped,
        memory_anonymous,
        address_space_limit,
        memory_mapped,
        protections,
        sysv_shm,
        generated_code,
    }
    signals_and_time {
        signal_at_gate,
        signal_at_unlock,
        signal_at_unlock_of_two = "signal_at_unlock"["2"],
        signal_in_wait,
        signal_altstack,
        signal_faults,
        signal_nested,
        signals_queued,
        sleeps,
        timerfds,
        instructions,
    }
    threads {
        thread_create,
        mutex_contention,
        condition_variables,
        rwlock_barrier_semaphore,
        timed_waits,
        timed_locks,
        mutex_kinds,
        rwlock_preference,
        c11_threads,
        cancel_points,
        thread_cancel,
        thread_keys,
        thread_stacks,
        robust_mutex,
        main_ends_first,
        mutex_starvation,
        detached_and_local,
        pi_mutex = "pi_mutex"["500"],
        waits_to_the_end = "waits_to_the_end"["3"],
        sites_among_threads = "sites_among_threads"["4", "12"],
        clock_in_threads,
        first_calls,
        nested_events,
        loaded_libraries,
        thread_variables_of_libraries,
        locked_forms = "locked_forms"["2000"],
        racy_counter = "racy_counter"["4", "300000"],
        racey = "racey"["4", "200000"],
    }
    // Guests that try every state of a primitive, with few threads and with more.
    synchronisation {
        sync_faults,
        sync_signals,
        sync_once,
        sync_mutex_2_300 = "sync_mutex"["2", "300"],
        sync_mutex_8_60 = "sync_mutex"["8", "60"],
        sync_cond_2_100 = "sync_cond"["2", "100"],
        sync_cond_8_40 = "sync_cond"["8", "40"],
        sync_sem_2_100 = "sync_sem"["2", "100"],
        sync_sem_8_40 = "sync_sem"["8", "40"],
        sync_barrier_2_100 = "sync_barrier"["2", "100"],
        sync_barrier_8_40 = "sync_barrier"["8", "40"],
        sync_rwlock = "sync_rwlock"["8", "60"],
        sync_static = "sync_static"["2"],
        cpp_shared_pointers = "cpp_shared_pointers"["200"],
    }
    who_was_first {
        mutex = "who_was_first"["mutex", "2000"],
        spin = "who_was_first"["spin", "2000"],
        rwlock = "who_was_first"["rwlock", "1000"],
        sem = "who_was_first"["sem", "1000"],
        cond = "who_was_first"["cond", "3000"],
        barrier = "who_was_first"["barrier", "1000"],
        once = "who_was_first"["once", "1000"],
        malloc = "who_was_first"["malloc", "6000"],
        cancel = "who_was_first"["cancel", "40"],
        join = "who_was_first"["join", "200"],
        stacks = "who_was_first"["stacks", "100"],
        statics = "static_winners"[],
    }
    // Handlers that run in the midst of code without gates, and in hooked functions: of timers, of other threads.
    signals_between_threads {
        signal_in_unlogged,
        signal_interrupted_sleep,
        signal_mask,
        signal_restart,
        signal_stacks,
        signal_timers,
        signal_waiting,
        signals_to_threads,
        signal_context,
        signal_in_loop = "signal_in_loop"["5"],
        signal_longjmp = "signal_longjmp"["20"],
        signal_between_threads = "signal_between_threads"["12"],
        signal_alarm_in_calls = "signal_alarm_in_calls"["500"],
    }
    processes {
        fork_wait,
        fork_tree,
        fork_from_threads,
        fork_with_threads,
        atfork_handlers,
        vfork_spawn,
        exec_again,
        wait_forms,
        process_pipes,
        robust_between_processes,
        robust_of_the_dead,
        locks_between_processes,
        atomics_between_processes,
        join_beside_vfork,
    }
}

/// A thread that computes between locks nobody else wants comes to no system call: its slices end where hooked functions do. And a thread that has to
/// wait hands the baton on inside the function.
#[test]
fn slices_end_in_hooked_functions() {
    let place = Workplace::new();
    let guest = Guest::new("mutex_contention").args(["4", "20000"]);
    let recording = place.record_with(&guest, &HOOKS);
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    let dump = run(place.reprise(["dump"]).arg(&recording.dir), None).text();
    let waits = dump.matches("FUTEX_WAIT_BITSET").count();
    assert!(waits > 0, "nobody had to wait");
    assert!(!dump.contains("FUTEX_WAKE"), "libc's own locks were used");
    let ends = dump.matches("at the end of hooked function").count();
    assert!(ends > 0, "no slice ended behind a hooked function");
    for _ in 0..3 {
        assert_same(&recording.run, &place.replay(&recording.dir));
    }
}

/// Slices of all lengths, which end in the midst of what the hooked functions protect.
#[test]
fn under_chaos() {
    for seed in ["--chaos=1", "--chaos=2", "--chaos=3", "--chaos=4"] {
        let flags = ["--engine", "serial", "--hooks", seed];
        for (name, args) in [
            ("mutex_contention", &["4", "2000"][..]),
            ("condition_variables", &[]),
            ("rwlock_barrier_semaphore", &[]),
            ("sync_static", &["2"]),
            ("who_was_first", &["malloc", "2000"]),
            ("who_was_first", &["spin", "500"]),
        ] {
            assert_hooked(&check_times(&Guest::new(name).args(args), &flags, 1, 1));
        }
    }
}

/// Memory and registers are those of the recording all along, the heap's with them.
#[test]
fn states_are_hashed() {
    let flags = ["--engine", "serial", "--hooks", "--checksum=10"];
    for name in ["hello", "mutex_contention", "sync_cond", "memory_anonymous"] {
        let infos = check_times(&Guest::new(name), &flags, 1, 2);
        assert!(infos[0].kind("hash") > 3, "{name}: {}", infos[0].0);
    }
}

/// The process ends while others wait in hooked functions.
#[test]
fn ends_while_others_wait() {
    for (way, status) in [("main", 5), ("thread", 6), ("race", 7)] {
        let guest = Guest::new("exit_while_others").args([way]);
        assert_hooked(&check_times(
            &guest.ends(Outcome::Exit(status)),
            &HOOKS,
            1,
            2,
        ));
    }
}

/// A list of free blocks that the program has spoilt: malloc(3) faults.
#[test]
fn a_fault_in_a_hooked_function_is_the_end() {
    let guest = Guest::new("use_after_free").ends(Outcome::Signal(libc::SIGSEGV));
    check_times(&guest, &HOOKS, 1, 2);
}

/// Where there is nothing to be hooked the switch changes nothing.
#[test]
fn a_static_program_has_no_hooks() {
    let infos = check_times(&Guest::new("auxv-static"), &HOOKS, 1, 1);
    assert_eq!(infos[0].counter("hooked"), 0);
}

/// Without the switch libc's own functions are used.
#[test]
fn nothing_is_hooked_unasked() {
    let infos = check_times(&Guest::new("mutex_contention"), &[], 1, 1);
    assert_eq!(infos[0].counter("hooked"), 0);
}
