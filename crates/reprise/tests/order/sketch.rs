//! `--engine sketch`: private views without an order, by an engine of 400 lines. Guests of one process whose threads do nothing to each other but by synchronising are
//! right under it: so what makes several processes look like one needs no token, no turns in an order, and no log.
//!
//! Programs as users have them carry no such engine: the image that does is built here, for this test.

use crate::common;
#[path = "../../../launch/image.rs"]
mod image;

use common::{run, shape, top, Guest, Run, Workplace};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The image with the engine in it.
fn runtime() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sketch");
        let wanted = image::Wanted {
            features: "image,sketch",
            quickly: true,
        };
        image::build(&top(), &target_dir, &wanted).unwrap_or_else(|said| panic!("{said}"))
    })
}

/// Runs it under the engine.
fn sketched(guest: &Guest) -> Run {
    let place = Workplace::new();
    let mut command = place.reprise(["record", "--engine", "sketch", "--test-runtime"]);
    command.arg(runtime()).arg("--");
    command.arg(&guest.program).args(&guest.args);
    let r = run(&mut command, None);
    assert!(r.status.success(), "{}", r.describe());
    r
}

/// Runs it by itself, too, and compares the shape of what it prints.
fn as_by_itself(name: &str, args: &[&str]) {
    let guest = Guest::new(name).args(args);
    let native = guest.native(&Workplace::new());
    assert!(native.status.success(), "by itself: {}", native.describe());
    let r = sketched(&guest);
    let (a, b) = (shape(&native.stdout), shape(&r.stdout));
    assert_eq!(a, b, "{}", r.describe());
}

tests! {
    as_by_itself;
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
        system_files,
    }
    memory {
        memory_anonymous,
        memory_files,
        memory_file_writes,
        memory_mapped,
        protections,
        growing_stack,
        sysv_shm,
        message_queues,
        generated_code,
    }
    signals_and_time {
        signal_at_gate,
        signal_at_unlock,
        signal_in_wait,
        signal_altstack,
        signal_faults,
        signal_nested,
        signals_queued,
        sleeps,
        time_values,
        timerfds,
        instructions,
        randomness,
    }
    threads {
        thread_create,
        condition_variables,
        rwlock_barrier_semaphore,
        main_ends_first,
        nested_events,
        loaded_libraries,
        thread_variables_of_libraries,
        clock_in_threads,
        det_alone_again,
        mutex_contention = "mutex_contention" ["4", "1000"],
        waits_to_the_end = "waits_to_the_end" ["3"],
        threads_many = "threads_many" ["100"],
        threads_short_lived = "threads_short_lived" ["300"],
        locked_forms = "locked_forms" ["30"],
        sites_among_threads = "sites_among_threads" ["4", "12"],
    }
    synchronisation {
        sync_faults,
        sync_signals,
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
    }
    signals_between_threads {
        signal_fp_environment,
        signal_interrupted_sleep,
        signal_mask,
        signal_sigsys,
        signal_stacks,
        signalfds,
        signal_between_threads = "signal_between_threads" ["12"],
        signal_alarm_in_calls = "signal_alarm_in_calls" ["500"],
    }
}

#[test]
fn what_prints_the_same_always_does_so_here() {
    let guests: [(&str, &[&str]); 11] = [
        ("hello", &[]),
        ("eventfds", &[]),
        ("poll_states", &[]),
        ("protections", &[]),
        ("signalfds", &[]),
        ("thread_variables_of_libraries", &[]),
        ("det_alone_again", &[]),
        ("waits_to_the_end", &["3"]),
        ("sync_cond", &["2", "100"]),
        ("sync_barrier", &["8", "40"]),
        ("sync_static", &["2"]),
    ];
    for (name, args) in guests {
        let guest = Guest::new(name).args(args);
        let native = guest.native(&Workplace::new());
        assert_eq!(native.stdout, sketched(&guest).stdout, "{name}");
    }
}

#[test]
fn what_a_thread_writes_is_its_own_until_it_comes_to_a_gate() {
    const ROUNDS: u64 = 300_000;
    let guest = Guest::new("racy_counter").args(["4", "300000"]);
    for _ in 0..5 {
        let r = sketched(&guest);
        let text = String::from_utf8_lossy(&r.stdout).to_string();
        let counted: u64 = text
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a count");
        // A thread adds all it has to add between two gates: its additions are lost together, or none is.
        assert_eq!(counted % ROUNDS, 0, "{text}");
    }
}

#[test]
fn an_image_without_the_engine_says_so() {
    let place = Workplace::new();
    let mut command = place.reprise(["record", "--engine", "sketch", "--"]);
    command.arg(Guest::new("hello").program);
    let r = run(&mut command, None);
    assert_eq!(r.status.code(), Some(125), "{}", r.describe());
    assert!(r.said().contains("no such engine"), "{}", r.describe());
}

#[test]
fn a_recording_has_the_runtime_that_is_inside() {
    let place = Workplace::new();
    let mut command = place.reprise(["record", "--test-runtime", "/dev/null", "--"]);
    command.arg(Guest::new("hello").program);
    let r = run(&mut command, None);
    assert_eq!(r.status.code(), Some(125), "{}", r.describe());
    assert!(r.said().contains("without a log"), "{}", r.describe());
}

#[test]
fn it_is_a_sketch() {
    let room = top().join("crates/runtime/src/engines/sketch");
    let files = std::fs::read_dir(room).expect("the engine's room");
    let lines: usize = files
        .map(|f| std::fs::read_to_string(f.expect("a file").path()).expect("its text"))
        .map(|text| text.lines().count())
        .sum();
    assert!((1..=400).contains(&lines), "{lines} lines");
}
