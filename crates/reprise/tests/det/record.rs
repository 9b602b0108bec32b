//! `record --engine det`: only what comes into the program is recorded; a replay is the same run once more.

use crate::common;

use common::{assert_same, run, Guest, Outcome, Recording, Running, Workplace};
use std::ffi::OsStr;
use std::time::{Duration, Instant};

const DET: [&str; 2] = ["--engine", "det"];

/// Records a guest, replays it, and compares; the recording.
fn same_again(place: &Workplace, guest: &Guest) -> Recording {
    let r = place.record_with(guest, &DET);
    let wanted = match guest.outcome {
        Outcome::Signal(signal) => 128 + signal,
        _ => 0,
    };
    assert_eq!(r.run.status.code(), Some(wanted), "{}", r.run.describe());
    assert_same(&r.run, &place.replay(&r.dir));
    r
}

fn comes_out_again(name: &str, args: &[&str]) {
    same_again(&Workplace::new(), &Guest::new(name).args(args));
}

tests! {
    comes_out_again;
    programs_with_one_thread {
        hello,
        files_read_write,
        memory_files,
        memory_file_writes,
        time_values,
        randomness,
        instructions,
        signal_at_gate,
        signal_faults,
        sysv_shm,
        poll_states,
        timerfds,
    }
    // The program races: what each thread saw and when is nowhere in the trace, and comes out again.
    races_come_out_again {
        det_racey_2 = "det_racey" ["2"],
        det_racey_4 = "det_racey" ["4"],
        det_figure1,
    }
    synchronisation {
        sync_barrier = "sync_barrier" ["2", "100"],
        sync_cond = "sync_cond" ["8", "100"],
        sync_sem = "sync_sem" ["2", "100"],
        sync_rwlock = "sync_rwlock" ["2", "200"],
        mutex_contention = "mutex_contention" ["4", "1000"],
        condition_variables,
        timed_waits,
        timed_locks,
        main_ends_first,
    }
    // Threads wait for pipes, sockets, time and signals: the world says how long.
    what_comes_from_outside {
        pipes,
        eventfds,
        epoll_edges,
        tcp_loopback,
        unix_sockets,
        big_output,
        sleeps,
        clock_in_threads,
        signal_waiting,
        signals_to_threads,
        det_time_limits,
    }
    kernels {
        histogram = "kernels/histogram" ["-s", "small", "-t", "4"],
        kmeans_threads = "kernels/kmeans_threads" ["-s", "small", "-t", "4"],
        locks = "kernels/locks" ["-s", "small", "-t", "4"],
        pipeline = "kernels/pipeline" ["-s", "small", "-t", "4"],
        work_stealing = "kernels/work_stealing" ["-s", "small", "-t", "4"],
    }
}

/// Ten times as many operations of synchronisation leave nothing more in the trace.
#[test]
fn synchronisation_is_not_recorded() {
    let place = Workplace::new();
    let events = |rounds: &str| {
        let guest = Guest::new("mutex_contention").args(["4", rounds]);
        place.info(&same_again(&place, &guest).dir).events()
    };
    let (few, many) = (events("1000"), events("5000"));
    assert!(few > 0 && many <= few + 20, "{few} and {many} events");
}

/// All that is done with traces works with these, too, or says why not.
#[test]
fn commands() {
    let place = Workplace::new();
    let r = same_again(&place, &Guest::new("pipes"));
    let verified = place.verify(&r.dir);
    assert!(verified.status.success(), "{}", verified.describe());
    assert_eq!(place.info(&r.dir).0["engine"], "det");
    let command = |name: &str| {
        let mut c = place.reprise([name]);
        c.arg(&r.dir);
        run(&mut c, None)
    };
    let dump = command("dump");
    assert!(dump.status.success(), "{}", dump.describe());
    let text = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(
        text.contains("write(1, ") && text.contains("told: "),
        "{text}"
    );
    let mut debugged = place.reprise(["replay", "-d"]);
    debugged.arg(&r.dir);
    let refused = run(&mut debugged, None);
    assert!(
        refused.said().contains("engine det"),
        "{}",
        refused.describe()
    );
}

/// A program that is killed is replayed up to there.
#[test]
fn who_was_killed_ends_so_again() {
    let place = Workplace::new();
    for (how, signal) in [
        ("segv", libc::SIGSEGV),
        ("abort", libc::SIGABRT),
        ("kill", libc::SIGKILL),
        ("pipe", libc::SIGPIPE),
        ("thread", libc::SIGSEGV),
    ] {
        let guest = Guest::new("crash").args([how]);
        same_again(&place, &guest.ends(Outcome::Signal(signal)));
    }
}

/// All that is left of the recording is what the last thread that was made does: whoever made it has done all that was recorded of him before it is there.
#[test]
fn the_crash_of_the_last_thread_is_waited_for() {
    let place = Workplace::new();
    let guest = Guest::new("crash").args(["thread"]);
    let r = place.record_with(&guest, &DET);
    let verified = place.verify_with(&r.dir, &["-n", "60"]);
    assert!(verified.status.success(), "{}", verified.describe());
}

/// Threads are processes to the kernel, and these compute for ever.
#[test]
fn nothing_outlives_a_replay_that_is_killed() {
    let place = Workplace::new();
    let guest = Guest::new("crash").args(["late"]);
    let r = place.record_with(&guest, &DET);
    let mut replay = place.reprise([OsStr::new("replay"), r.dir.as_os_str()]);
    let replay = Running::start_reading(&mut replay, None);
    // The driver, the first thread and three others.
    let begun = Instant::now();
    while replay.members().len() < 5 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it has not begun"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a process that this test started.
    assert_eq!(unsafe { libc::kill(replay.pid(), libc::SIGKILL) }, 0);
    // Whoever is left holds its outputs open.
    let ended = replay.finish();
    assert!(
        Outcome::Signal(libc::SIGKILL).fits(ended.status),
        "{}",
        ended.describe()
    );
}

/// The program may be gone, and what it has read.
#[test]
fn a_trace_needs_no_file() {
    let place = Workplace::new();
    let copy = place.fresh("program");
    std::fs::copy(&Guest::new("det_racey").program, &copy).expect("copies the guest");
    let guest = Guest::program(copy.clone()).args(["4"]);
    let r = place.record_with(&guest, &DET);
    assert!(r.run.status.success(), "{}", r.run.describe());
    std::fs::remove_file(&copy).expect("removes the copy");
    for _ in 0..3 {
        assert_same(&r.run, &place.replay(&r.dir));
    }
}
