//! `reprise run`: the guests of the `order` engine's tests are right under it, or end with a message.

use crate::common;

use common::det::once_with;
use common::{Guest, Outcome, Workplace};

/// Runs it twice.
fn twice(name: &str, args: &[&str]) {
    let place = Workplace::new();
    for n in 0..2 {
        let guest = Guest::new(name).args(args);
        let r = once_with(&place, &guest, &["--patience", "20"], n);
        assert!(r.status.success(), "{name} {args:?}: {}", r.describe());
    }
}

tests! {
    twice;
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
        det_time_limits,
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
        memory_anonymous,
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
        signal_waiting,
        signals_to_threads,
        signal_altstack,
        signal_faults,
        signal_nested,
        signals_queued,
        signal_kept,
        sleeps,
        time_values,
        timerfds,
        instructions,
        randomness,
        signal_timers,
    }
    threads {
        thread_create,
        condition_variables,
        rwlock_barrier_semaphore,
        timed_waits,
        timed_locks,
        mutex_kinds,
        robust_mutex,
        main_ends_first,
        nested_events,
        loaded_libraries,
        thread_variables_of_libraries,
        order_junk,
        clock_in_threads,
        det_alone_again,
        mutex_contention = "mutex_contention" ["4", "1000"],
        waits_while_others_contend = "waits_while_others_contend" ["3", "1000"],
        pi_mutex = "pi_mutex" ["500"],
        waits_to_the_end = "waits_to_the_end" ["3"],
        threads_many = "threads_many" ["100"],
        threads_short_lived = "threads_short_lived" ["300"],
        locked_forms = "locked_forms" ["30"],
        sites_among_threads = "sites_among_threads" ["4", "12"],
        spins_on_word,
        cut_spin_flag,
    }
    synchronisation {
        sync_faults,
        sync_signals,
        sync_once,
        sync_mutex_2 = "sync_mutex" ["2", "300"],
        sync_mutex_8 = "sync_mutex" ["8", "60"],
        sync_cond_2 = "sync_cond" ["2", "100"],
        sync_cond_8 = "sync_cond" ["8", "40"],
        sync_sem_2 = "sync_sem" ["2", "100"],
        sync_sem_8 = "sync_sem" ["8", "40"],
        sync_barrier_2 = "sync_barrier" ["2", "100"],
        sync_barrier_8 = "sync_barrier" ["8", "40"],
        sync_rwlock = "sync_rwlock" ["8", "60"],
        sync_static = "sync_static" ["2"],
        static_winners,
        cpp_shared_pointers = "cpp_shared_pointers" ["200"],
    }
    signals_in_code {
        signal_context,
        signal_in_loop = "signal_in_loop" ["5"],
        signal_registers = "signal_registers" ["5"],
        signal_longjmp = "signal_longjmp" ["20"],
        signal_after_atomic,
    }
    signals_between_threads {
        signal_fp_environment,
        signal_interrupted_sleep,
        signal_mask,
        signal_restart,
        signal_sigsys,
        signal_stacks,
        signalfds,
        signal_between_threads = "signal_between_threads" ["12"],
        signal_alarm_in_calls = "signal_alarm_in_calls" ["500"],
    }
}

#[test]
fn the_end_of_a_program_that_is_killed() {
    let place = Workplace::new();
    for (name, args, signal) in [
        ("crash", &["abort"][..], libc::SIGABRT),
        ("locked_faults", &[], libc::SIGSEGV),
    ] {
        let guest = Guest::new(name).args(args);
        let r = once_with(&place, &guest, &[], 0);
        assert!(Outcome::Signal(signal).fits(r.status), "{}", r.describe());
    }
}
