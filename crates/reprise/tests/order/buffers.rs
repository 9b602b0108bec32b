//! The rings of `--engine order` (Castor 3.6): a full one slows the program, loses nothing, and the time lost is told.

use crate::common;

use common::leftovers::{agent_of, descendants};
use common::{assert_same, check_times, hang_limit, Guest, Recording, Running, Workplace};
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

const SMALL: [&str; 4] = ["--engine", "order", "--buffers", "small"];
const CRASH: [&str; 4] = ["--engine", "order", "--buffers", "crash"];
const SYS_FUTEX: &str = "202 ";

#[test]
fn small_buffers() {
    for name in ["big_output", "files_read_write"] {
        check_times(&Guest::new(name), &SMALL, 1, 1);
    }
}

#[test]
fn crash_buffers() {
    for name in ["big_output", "mutex_kinds", "signal_between_threads"] {
        check_times(&Guest::new(name), &CRASH, 1, 1);
    }
}

/// In the mode for crashes what is recorded stays in memory, until the program is killed; then all of it is in the trace.
#[test]
fn what_stays_in_memory_is_there_after_a_crash() {
    const LINES: usize = 60;
    const THREADS: usize = 3;
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let guest = Guest::new("kept_stretch").args([&THREADS.to_string(), "0", "ordered"]);
    let mut command = place.record_command(&guest, &CRASH, &dir);
    let mut running = Running::start_reading(&mut command, None);
    let mut lines = BufReader::new(running.child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    for _ in 0..LINES {
        lines.read_line(&mut said).expect("a line");
    }
    // Each line comes of 8 KiB of random bytes, which are in the log.
    let written = || dir.join("events.zst").metadata().map_or(0, |m| m.len());
    assert!(written() < 64 << 10, "{} bytes are written", written());
    let agent = agent_of(running.pid());
    let all = descendants(running.pid());
    let program = *all[1..].iter().find(|p| **p != agent).expect("a program");
    // SAFETY: a process that this test started.
    assert_eq!(unsafe { libc::kill(program, libc::SIGKILL) }, 0);
    lines.read_to_string(&mut said).expect("the rest");
    let run = running.finish();
    assert!(written() > (LINES as u64) << 12, "{} bytes", written());
    for order in ["partial", "total"] {
        let replay = place.replay_with(&dir, &["--order", order]);
        assert_eq!(replay.status, run.status, "{}", replay.describe());
        let text = replay.text();
        let rest = said.strip_prefix(&*text);
        // The calls under way when it was killed may not be in the trace.
        let more = rest.map(|r| r.lines().count());
        assert!(more.is_some_and(|n| n <= THREADS), "{}", replay.describe());
    }
}

/// A trace that was cut off ends there, also where a thread has waited for others for so long that they have called each other thousands of times meanwhile.
#[test]
fn the_end_of_what_is_cut_off_is_found_while_one_waits() {
    for lines in [8, 13] {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let guest = Guest::new("waits_while_others_contend").args(["3", "10000"]);
        let mut command = place.record_command(&guest, &["--engine", "order"], &dir);
        let mut running = Running::start_reading(&mut command, None);
        let mut out = BufReader::new(running.child.stdout.take().expect("a pipe"));
        let mut said = String::new();
        for _ in 0..lines {
            out.read_line(&mut said).expect("a line");
        }
        let agent = agent_of(running.pid());
        // SAFETY: a process that this test started.
        assert_eq!(unsafe { libc::kill(agent, libc::SIGKILL) }, 0);
        out.read_to_string(&mut said).expect("the rest");
        running.finish();
        let replay = place.replay(&dir);
        assert!(
            replay.said().contains("the recording was cut off"),
            "{}",
            replay.describe()
        );
        assert!(said.starts_with(&*replay.text()), "{}", replay.describe());
    }
}

/// Do all threads of the process sleep on words of memory?
fn sleeps(pid: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    tasks.flatten().all(|task| {
        let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        call.starts_with(SYS_FUTEX)
    })
}

/// While nobody empties its ring, the program waits. That takes longer than what a user would not want to hear of (a tenth of a second).
#[test]
fn time_lost_is_told() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let mut command = place.record_command(&Guest::new("big_output"), &SMALL, &dir);
    let mut running = Running::start_reading(&mut command, None);
    let out = running.child.stdout.as_mut().expect("a pipe");
    let mut first = [0; 1];
    out.read_exact(&mut first).expect("its first byte");
    let agent = agent_of(running.pid());
    let signal = |what| {
        // SAFETY: a process that this test started.
        assert_eq!(unsafe { libc::kill(agent, what) }, 0)
    };
    signal(libc::SIGSTOP);
    running.collect_stdout();
    let all = descendants(running.pid());
    let program = *all[1..].iter().find(|p| **p != agent).expect("a program");
    let begun = Instant::now();
    while !sleeps(program) {
        assert!(begun.elapsed() < hang_limit(), "it never waits");
        std::thread::yield_now();
    }
    // It looks again and again, in vain: this is the time that is lost.
    std::thread::sleep(Duration::from_millis(300));
    signal(libc::SIGCONT);
    let mut run = running.finish();
    run.stdout.insert(0, first[0]);
    assert!(run.status.success(), "{}", run.describe());
    assert!(
        run.notes.contains("s for the trace to be written"),
        "{}",
        run.describe()
    );
    let recording = Recording { run, dir };
    for order in ["partial", "total"] {
        let replay = place.replay_with(&recording.dir, &["--order", order]);
        assert_same(&recording.run, &replay);
    }
}
