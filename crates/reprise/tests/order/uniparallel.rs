//! Recordings in epochs (DoublePlay; `record --engine uniparallel`): threads run on all processors, copies run what they did again, one thread at a time, and that is the
//! trace: one of slices, which is replayed as any other of `serial`. Races are in it.

use crate::common;

use common::{check_times, Guest, Info, Outcome, Running, Workplace};
use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::thread;

/// Epochs go on also where they cost more than they bring: it is they that are tested.
const FLAGS: [&str; 3] = ["--engine", "uniparallel", "--test-keep-epochs"];

/// Of epochs: how many came to the same state, how many did not, and in how many of those the program took over what its copy had come to.
fn epochs(info: &Info) -> [u64; 3] {
    ["epochs_same", "epochs_unlike", "epochs_recovered"].map(|which| info.counter(which))
}

/// Records a guest, and verifies it: nothing of it is lost.
fn check(name: &str, args: &[&str]) {
    let infos = check_times(&Guest::new(name).args(args), &FLAGS, 2, 1);
    for info in infos {
        let [same, unlike, recovered] = epochs(&info);
        let in_all = same + recovered + info.counter("epochs_in_code");
        assert!(in_all > 0, "no epoch became a part of it");
        assert_eq!(unlike, recovered, "{same} came to the program's state");
    }
}

/// Users are told what it came to, in a line, and `info` has the engine's name and the counts.
#[test]
fn what_users_are_told() {
    let place = Workplace::new();
    let recording = place.record_with(&Guest::new("barriers"), &FLAGS[..2]);
    let said = recording.run.said();
    assert!(said.contains("on all processors in "), "{said}");
    let info = place.info(&recording.dir);
    assert_eq!(info.0["engine"], "uniparallel");
    let [same, _, recovered] = epochs(&info);
    assert!(same + recovered > 0, "no epoch became a part of it");
    common::assert_same(&recording.run, &place.replay(&recording.dir));
    let quiet = place.record_with(
        &Guest::new("barriers"),
        &[&FLAGS[..2], &["--quiet"]].concat(),
    );
    assert!(
        !quiet.run.said().contains("processors"),
        "{}",
        quiet.run.said()
    );
}

/// From a moment on no copy of the program can be looked into: it goes on one thread at a time, and nothing of it is lost.
#[test]
fn who_may_not_look_into_itself_runs_one_thread_at_a_time() {
    for info in check_times(&Guest::new("user_changed"), &FLAGS, 3, 2) {
        let [same, _, recovered] = epochs(&info);
        let before = same + recovered + info.counter("epochs_in_code");
        assert!(before > 0, "no epoch became a part of it");
        assert!(info.counter("epochs_serial") > 0, "epochs went on");
    }
}

tests! {
    check;
    locks_and_waits {
        epochs = "epochs"["3", "300"],
        mutex_contention,
        condition_variables,
        barriers,
        rwlock_barrier_semaphore,
        // Waits that look again and again.
        c11_threads,
        cpp_threads,
        cpp_futures,
        // Interrupted by handlers, woken, or both.
        registers_after_waits,
        // Functions that call back, and handlers in them.
        nested_events = "nested_events"["4", "20"],
    }
    // Each ends an epoch, and is made while all others stand.
    commits {
        threads_short_lived = "threads_short_lived"["50"],
        signal_kept,
        // A child becomes another program, and makes threads.
        address_space_room,
        // What one call brings an epoch's log has no room for.
        large_reads,
        // One makes a process that has their memory for a while (vfork(2), posix_spawn(3)).
        join_beside_vfork,
    }
    // Which thread initialises an object is who comes first.
    initialises {
        static_winners,
        sync_once = "sync_once"["2"],
    }
    // Locked instructions of the program's own.
    instructions {
        atomics,
        cpp_shared_pointers,
    }
    // Threads that come to no gate while others want to end an epoch: it ends in the middle of code.
    computes {
        thread_cancel,
        racey = "racey"["4", "2000000"],
        // A copy comes to pages that its program hasn't come to, of memory that it didn't get by fork(2).
        memory_not_forked,
        // What they come to is said: a copy comes to something else, and that is what was said.
        cut_counter = "cut_counter"["3"],
    }
    // A signal waits for a thread that stands for another one's request; calls that are not made twice.
    comes_first {
        signal_stacks,
        message_batches,
    }
    // Signals are delivered under the mask of the call that they end, and while all others stand.
    under_the_mask_of_a_call {
        cancel_points,
        det_signals_from_outside,
    }
    // What a handler waits for others do: they go on when it begins.
    handlers {
        faults_between_threads = "faults_between_threads"["2", "6"],
        faults_between_threads_o2 = "faults_between_threads-O2"["3", "6"],
    }
    // Waits of a library's own, by looking, some of them at places that have stubs.
    libraries {
        openmp_loops,
    }
    // Waiters sleep in the kernel while one thread is alone.
    futexes_of_who_is_alone {
        futex_wake_op = "futex_wake_op"["4", "60"],
        pi_mutex = "pi_mutex"["3000"],
    }
    // Threads wait with plain loads, in loops without any call: copies end their slices in there.
    waits_by_looking {
        cut_spin_flag_o0 = "cut_spin_flag-O0"["40"],
        cut_spin_flag_o2 = "cut_spin_flag-O2"["40"],
        spins_on_word,
    }
}

/// As above; how often a handler looks is a race.
#[test]
fn a_handler_waits_by_looking() {
    for info in check_times(&Guest::new("handlers_wait"), &FLAGS, 3, 1) {
        let [same, _, recovered] = epochs(&info);
        assert!(same + recovered > 0, "no epoch became a part of it");
    }
}

/// A program that ends by a signal that it sends to itself, as abort(3) does: its last epoch is in the recording.
#[test]
fn abort_is_recorded() {
    for name in ["cpp_terminate", "debugged_rust"] {
        let guest = Guest::new(name).ends(Outcome::Signal(libc::SIGABRT));
        check_times(&guest, &FLAGS, 3, 2);
    }
}

/// Where one epoch ends after the other the program goes on with one thread at a time, for a while: this one made 2,400 of them in its first minute, and had not ended then.
#[test]
fn epochs_that_cost_more_than_they_bring() {
    let guest = Guest::new("cpp_exceptions");
    let flags = ["--engine", "uniparallel"];
    for info in check_times(&guest, &flags, 2, 1) {
        assert!(info.counter("epochs_paused") > 0);
        assert!(info.counter("epochs_same") > 0);
    }
}

/// Threads race, and what the race came to is told to nobody before the epoch is over: the program takes over what its copy came to, and goes on with that.
#[test]
fn a_race_is_recorded() {
    let guest = Guest::new("race_before_mapping").args(["3", "2000000"]);
    let infos = check_times(&guest, &FLAGS, 5, 2);
    let recovered: u64 = infos.iter().map(|info| epochs(info)[2]).sum();
    assert!(recovered > 0, "no addition was lost in five recordings");
}

/// The program has gone on by then, and goes back. What it did meanwhile was to compute: its calls have waited.
#[test]
fn a_program_that_is_ahead_goes_back() {
    let guest = Guest::new("race_ahead").args(["3", "60"]);
    let infos = check_times(&guest, &FLAGS, 5, 2);
    let [ahead, recovered] = ["epochs_ahead", "epochs_recovered"]
        .map(|which| infos.iter().map(|info| info.counter(which)).sum::<u64>());
    assert!(ahead > 0, "the program has stood while its copies ran");
    assert!(recovered > 0, "no addition was lost in five recordings");
}

/// Programs that compute for some epochs, and meet in barriers and conditions.
#[test]
fn kernels() {
    for name in ["fft", "lu", "kmeans", "streamcluster"] {
        let guest = Guest::new(&format!("kernels/{name}")).args(["-s", "medium", "-t", "2"]);
        for info in check_times(&guest, &FLAGS, 1, 1) {
            let [same, unlike, recovered] = epochs(&info);
            assert_eq!(
                unlike, recovered,
                "{name}: {same} came to the program's state"
            );
            assert!(info.counter("epochs_ahead") > 0, "{name} was never ahead");
        }
    }
}

/// A race decides within its epoch what threads do next: the copy goes on without the log, and the program takes over what it comes to.
#[test]
fn a_copy_goes_on_without_the_log() {
    let guests = [
        Guest::new("race_ways").args(["2", "300"]),
        Guest::new("race_ways").args(["2", "2000"]),
        // It maps memory then, where the kernel says.
        Guest::new("race_maps").args(["3", "40"]),
    ];
    for guest in guests {
        let infos = check_times(&guest, &FLAGS, 4, 2);
        let recovered: u64 = infos.iter().map(|info| epochs(info)[2]).sum();
        assert!(recovered > 0, "no race showed in four recordings");
        for info in infos {
            let [same, unlike, recovered] = epochs(&info);
            assert_eq!(unlike, recovered, "{same} came to the program's state");
        }
    }
}

/// As if such a race showed, wherever the program can go back. It goes on with one thread at a time then, until all stand, and epochs begin again.
#[test]
fn epochs_that_fail_are_run_serially() {
    let guests: [(&str, &[&str]); 12] = [
        ("race_ways", &["2", "2000"]),
        ("race_ahead", &["3", "60"]),
        ("c11_threads", &[]),
        ("registers_after_waits", &[]),
        ("signal_kept", &[]),
        // Threads wait by locked instructions, which keep their stubs.
        ("cut_spin_exchange", &["100", "4"]),
        // Waits in calls and in hooked functions, with and without time limits.
        ("futex_wake_op", &["4", "60"]),
        ("condition_variables", &[]),
        ("nested_events", &["4", "20"]),
        // Each thread sends itself a signal.
        ("tiny_stacks", &[]),
        // What can't come back isn't unmapped in the middle of an epoch.
        ("mappings_replaced", &["3", "40"]),
        // Who stood in a call under one engine ends it under the other one.
        ("asks_in_threads", &["3", "1000"]),
    ];
    let (mut serial, mut again) = (0, 0);
    for (name, args) in guests {
        for seed in ["1", "2", "3"] {
            let flags = [&FLAGS[..], &["--test-fail-epochs", seed]].concat();
            let guest = Guest::new(name).args(args.iter().copied());
            let infos = check_times(&guest, &flags, 1, 1);
            for times in infos.iter().map(|info| info.counter("epochs_serial")) {
                serial += u64::from(times > 0);
                again += u64::from(times > 1);
            }
        }
    }
    assert!(serial >= 8, "only {serial} of 36 recordings went back");
    assert!(again >= 4, "only in {again} of them epochs began again");
}

/// The same in a program that makes calls meanwhile, which others see: they are what they were. Who stood in such a call when all went back makes it once.
#[test]
fn a_race_among_calls_is_recorded() {
    let mut in_all = 0;
    for info in check_times(&Guest::new("race_calls").args(["4", "200"]), &FLAGS, 3, 1) {
        let [_, unlike, recovered] = epochs(&info);
        assert_eq!(unlike, recovered);
        in_all += recovered;
    }
    assert!(in_all > 0, "no race showed in three recordings");
}

/// What others may write a copy doesn't have: one thread at a time from there on.
#[test]
fn memory_that_others_may_write() {
    let guest = Guest::new("memory_mapped_by_threads").args(["4", "400"]);
    for info in check_times(&guest, &FLAGS, 2, 1) {
        assert_eq!(info.counter("epochs_serial"), 1);
    }
}

/// A race shows in what a thread says, within its epoch: nobody has seen that before the copy comes to it, and what the copy says is what is seen.
#[test]
fn what_a_race_has_said_is_what_the_recording_says() {
    let guest = Guest::new("epochs").args(["4", "200", "races"]);
    let infos = check_times(&guest, &FLAGS, 4, 2);
    let recovered: u64 = infos.iter().map(|info| epochs(info)[2]).sum();
    assert!(recovered > 0, "no race showed in four recordings");
}

/// What threads write is held until its epoch is good: an epoch has many calls that write, and who could notice that something isn't there yet finds it there.
#[test]
fn output_is_held() {
    for info in check_times(&Guest::new("held_output").args(["3", "300"]), &FLAGS, 3, 2) {
        let [same, _, recovered] = epochs(&info);
        let held = info.counter("outputs_held");
        assert!(held > 900, "only {held} calls were held");
        assert!(
            same + recovered < held / 4,
            "{same} epochs for {held} calls"
        );
    }
}

/// Nobody comes to a gate any more, since all wait for each other or compute: what was written is to be seen soon all the same.
#[test]
fn held_output_is_seen_while_the_program_goes_on() {
    for way in ["waits", "computes"] {
        let place = Workplace::new();
        let guest = Guest::new("held_output").args(["2", "3", way]);
        let mut command = place.record_command(&guest, &FLAGS, &place.fresh("trace"));
        let mut running = Running::start_reading(&mut command, None);
        let lines = BufReader::new(running.child.stdout.take().expect("a pipe")).lines();
        let (sender, seen) = mpsc::channel();
        thread::spawn(move || {
            if lines.map_while(Result::ok).any(|line| line == "three") {
                let _ = sender.send(());
            }
        });
        let is_seen = seen.recv_timeout(common::hang_limit()).is_ok();
        // SAFETY: a group that this test started; its leader is not reaped yet.
        unsafe { libc::kill(-running.pid(), libc::SIGKILL) };
        running.child.wait().expect("wait");
        assert!(is_seen, "{way}: the last line was not seen");
    }
}
