//! `--engine order`: threads run on all processors, system calls are stamped, every thread has a ring of its own.
//!
//! Here are guests whose threads, if they have several, meet in system calls and in libc's functions of synchronisation; the kernels are
//! in `kernels.rs`.

use crate::common;

use common::order::{check, ORDER};
use common::{assert_same, check_times, run, Guest, Outcome, Workplace};

tests! {
    check;
    calls {
        hello,
        bad_descriptors,
        bad_pointers,
        big_output,
        descriptors,
        environment,
        errno_results,
        eventfds,
        epoll_edges,
        poll_states,
        pipes,
        tcp_loopback,
        tcp_states,
        udp_loopback,
        unix_sockets,
        vectors,
        unknown_call,
    }
    files {
        directories,
        file_times,
        files_read_write,
        copies_between_files,
        sparse_files,
        splices,
        system_files,
    }
    memory {
        gaps_unmapped,
        memory_anonymous,
        address_space_limit,
        address_space_room,
        locked_memory,
        memory_files,
        memory_file_writes,
        memory_mapped,
        protections,
        growing_stack,
        stack_limit_raised,
        sysv_shm,
        message_queues,
        generated_code,
    }
    signals_and_time {
        signal_at_gate,
        signal_at_unlock,
        signal_in_wait,
        signal_at_unlock_of_two = "signal_at_unlock"["2"],
        signal_altstack,
        signal_faults,
        signal_nested,
        signals_queued,
        signal_kept,
        sleeps,
        time_values,
        timerfds,
        instructions,
        processor_number,
        randomness,
    }
    threads {
        thread_create,
        mutex_contention,
        waits_while_others_contend,
        condition_variables,
        futex_raw,
        futex_wake_op,
        rwlock_barrier_semaphore,
        timed_locks,
        timed_waits,
        thread_cancel,
        robust_mutex,
        main_ends_first,
        pi_mutex = "pi_mutex"["500"],
        waits_to_the_end = "waits_to_the_end"["3"],
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
    // One thread protects what another one looks at.
    faults_of_others {
        faults_between_threads = "faults_between_threads"["2", "20"],
        faults_between_threads_o0 = "faults_between_threads-O0"["2", "20"],
        faults_between_three_threads = "faults_between_threads-O2"["3", "6"],
    }
    // Handlers that run in the midst of code without gates: of timers, of other threads.
    arguments_that_are_not_read {
        order_junk,
    }
    signals_between_threads {
        signal_fp_environment,
        signal_interrupted_sleep,
        signal_mask,
        signal_restart,
        signal_sigsys,
        signal_stacks,
        signal_timers,
        signal_waiting,
        signalfds,
        signals_to_threads,
        signal_between_threads = "signal_between_threads"["12"],
        signal_alarm_in_calls = "signal_alarm_in_calls"["500"],
    }
}

/// Threads for which reading the clock doesn't trap: until code comes of which nothing is known.
#[test]
fn the_clock_in_threads() {
    let place = Workplace::new();
    let trace = place.record_with(&Guest::new("clock_in_threads"), &ORDER);
    let dump = run(place.reprise(["dump"]).arg(&trace.dir), None);
    assert!(
        dump.text().contains("int3 for a clock's reading"),
        "nothing was replaced"
    );
    check("clock_in_threads", &[]);
}

#[test]
fn signals_in_code() {
    for (name, args) in [
        ("signal_context", &[][..]),
        ("signal_in_loop", &["5"]),
        ("signal_registers", &["5"]),
        ("signal_longjmp", &["20"]),
        ("signal_after_atomic", &[]),
        ("thread_cancel", &[]),
    ] {
        let guest = Guest::new(name).args(args);
        let infos = check_times(&guest, &ORDER, 1, 2);
        assert!(infos[0].counter("signals_in_code") > 0, "{name}: none");
    }
}

#[test]
fn signals_in_calls_that_leave_nothing_in_the_log() {
    let infos = check_times(&Guest::new("signal_in_unlogged"), &ORDER, 2, 2);
    for info in infos {
        // Their handlers run when the call returns.
        let there = info.counter("signals_at_gates");
        assert!(there > 20, "{there} of 40");
    }
}

/// Many threads at once, and many one after the other, in both orders of a replay.
#[test]
fn very_many_threads() {
    let place = Workplace::new();
    for (name, threads) in [("threads_many", "1000"), ("threads_short_lived", "10000")] {
        let recording = place.record_with(&Guest::new(name).args([threads]), &ORDER);
        let run = &recording.run;
        assert!(run.status.success(), "{}", run.describe());
        for order in ["partial", "total"] {
            let replay = place.replay_with(&recording.dir, &["--order", order]);
            assert_same(run, &replay);
        }
    }
}

/// The agent looks where there is news: idle threads, however many, give it nothing to do.
#[test]
fn idle_threads_cost_the_agent_nothing() {
    let threads = 1000;
    let guest = Guest::new("idle_threads").args(["1000", "100000"]);
    let infos = check_times(&guest, &ORDER, 1, 1);
    let [looks, news] = ["ring_looks", "ring_news"].map(|name| infos[0].counter(name));
    assert!(news > threads, "each thread has begun and ended");
    // Three more looks where there was news, and some at everybody in the end.
    assert!(
        looks <= 4 * news + 8 * threads,
        "{looks} looks, {news} news"
    );
}

#[test]
fn states_are_hashed() {
    for name in [
        "hello",
        "files_read_write",
        "memory_anonymous",
        "mutex_contention",
    ] {
        let flags = ["--engine", "order", "--checksum=10"];
        let infos = check_times(&Guest::new(name), &flags, 1, 2);
        assert!(infos[0].kind("hash") > 3, "{name}: {}", infos[0].0);
    }
}

/// Who of several threads looks for a function is in no order, and leaves no trace in the registers of the next call.
#[test]
fn first_calls_of_functions() {
    let flags = ["--engine", "order", "--checksum=1"];
    let infos = check_times(&Guest::new("first_calls"), &flags, 2, 2);
    assert!(infos[0].kind("hash") > 40, "{}", infos[0].0);
}

/// Instructions that change memory in one step, in unmodified code: in each of their forms, and as libc has them inlined.
#[test]
fn locked_instructions() {
    check("locked_forms", &[]);
    let guest = Guest::new("locked_faults").ends(Outcome::Signal(libc::SIGSEGV));
    check_times(&guest, &ORDER, 1, 2);
}

/// Places in the code around them are the same in a replay, where their stubs lie elsewhere.
#[test]
fn signals_near_locked_instructions() {
    let guest = Guest::new("signal_near_atomic");
    let infos = check_times(&guest, &ORDER, 2, 2);
    assert!(infos[0].kind("cut") > 0, "{}", infos[0].0);
}

/// Without their order a replay is another run: the switch shows that it is the stubs that make it exact.
#[test]
fn locked_instructions_matter() {
    let place = common::Workplace::new();
    let guest = Guest::new("locked_forms").args(["2000"]);
    let unlike = (0..10).any(|_| {
        let recording =
            place.record_with(&guest, &["--engine", "order", "--test-without", "locked"]);
        let replay = place.replay(&recording.dir);
        replay.stdout != recording.run.stdout || replay.status != recording.run.status
    });
    assert!(unlike, "ten replays without any order were all the same");
}

/// How many there are, and that nearly all of them are jumps, not traps.
#[test]
fn locked_instructions_are_found() {
    let place = common::Workplace::new();
    let recording = place.record_with(&Guest::new("locked_forms"), &ORDER);
    let info = place.info(&recording.dir);
    let [sites, traps, missed] =
        ["locked_sites", "locked_traps", "locked_missed"].map(|name| info.counter(name));
    assert!(sites > 300, "{sites} sites in libc and the guest");
    assert!(traps * 20 < sites, "{traps} traps beside {sites} jumps");
    assert_eq!(missed, 0);
}

/// What was found in code is kept for the next recordings and replays, which are the same with it and without it; a damaged file counts as none.
#[test]
fn what_was_found_is_kept() {
    let place = Workplace::new();
    let file = place.traces().join(".found-in-code");
    let guest = Guest::new("locked_forms").args(["200"]);
    let record = || {
        let recording = place.record_with(&guest, &ORDER);
        assert!(recording.run.status.success());
        let info = place.info(&recording.dir);
        (recording, info.counter("locked_sites"))
    };
    let (searched, sites) = record();
    let kept = std::fs::read(&file).expect("what was found");
    let (known, same) = record();
    assert_eq!(sites, same);
    assert_eq!(kept, std::fs::read(&file).expect("nothing new"));
    let replayed = || {
        for recording in [&searched, &known] {
            assert_same(&recording.run, &place.replay(&recording.dir));
        }
    };
    replayed();
    let mut damaged = kept.clone();
    damaged[kept.len() / 2] ^= 1;
    std::fs::write(&file, damaged).expect("a file");
    replayed();
    let (_, again) = record();
    assert_eq!(sites, again);
    assert_eq!(kept, std::fs::read(&file).expect("the same found again"));
    std::fs::remove_file(&file).expect("a file");
    replayed();
}

/// Functions that call back into the program.
#[test]
fn events_inside_events() {
    check_times(&Guest::new("nested_events"), &ORDER, 3, 2);
}

/// Libraries that come, with threads of their own, and go.
#[test]
fn libraries_at_any_time() {
    check_times(&Guest::new("loaded_libraries"), &ORDER, 3, 2);
}

/// Variables that threads have in them.
#[test]
fn thread_variables_of_libraries() {
    check_times(&Guest::new("thread_variables_of_libraries"), &ORDER, 3, 2);
}

/// Sites of system calls that become hot while several threads run them are rewritten as well.
#[test]
fn call_sites_are_rewritten_among_threads() {
    let guest = Guest::new("sites_among_threads").args(["4", "12"]);
    for info in check_times(&guest, &ORDER, 3, 2) {
        assert!(info.counter("patched") > 3 * 48, "{}", info.0);
        // Four threads call 3 x 48 sites 12 times each; most of these calls must not be dispatched by signals.
        let dispatched = info.counter("dispatched");
        assert!(dispatched < 4 * 3 * 48 * 12 / 2, "{dispatched} dispatched");
    }
}

#[test]
fn the_end_of_a_program_that_is_killed() {
    let crash = Guest::new("crash").args(["abort"]);
    let place = common::Workplace::new();
    let recording = place.record_with(&crash, &ORDER);
    assert!(
        !recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    common::assert_same(&recording.run, &place.replay(&recording.dir));
}

/// A list of free blocks that the program has spoilt: malloc(3) faults, once it has taken the list from where it was. Called again, it would
/// find nothing wrong.
#[test]
fn a_fault_in_a_hooked_function_is_the_end() {
    let place = common::Workplace::new();
    let recording = place.record_with(&Guest::new("use_after_free"), &ORDER);
    let run = &recording.run;
    let killed = Outcome::Signal(libc::SIGSEGV);
    assert!(killed.fits(run.status), "{}", run.describe());
    common::assert_same(run, &place.replay(&recording.dir));
    common::assert_same(
        run,
        &place.replay_with(&recording.dir, &["--order", "total"]),
    );
}
