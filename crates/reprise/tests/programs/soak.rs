//! Many recordings, long ones, and ones in which something is killed: memory stays what it was, and nothing is left behind.
//!
//! `scripts/soak.sh` runs all of it in full size. The recording of redis takes minutes and runs only there.
#![allow(clippy::print_stdout)]

use crate::common;

use common::leftovers::{descendants, in_own_world, Scene};
use common::{
    assert_same, connect, free_port, full, knob, run, system_program, Guest, Numbers, Recording,
    Run, Running, Workplace, REPRISE,
};
use reprise_abi::layout::{RESERVATION, RESERVATION_END};
use reprise_agent::drain::KEPT_CAPACITY;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

guests! { mixed_work, worker_tree }

/// Records the guest and verifies the trace, which is then removed.
fn record_and_remove(scene: &Scene, guest: &Guest) {
    let dir = scene.place.fresh("trace");
    let mut command = scene.place.record_command(guest, &[], &dir);
    let recorded = run(scene.settle(&mut command), None);
    assert!(
        guest.outcome.fits(recorded.status),
        "{}",
        recorded.describe()
    );
    assert_same(&recorded, &replay(scene, &dir));
    let mut command = scene.place.reprise(["verify", "-n", "1"]);
    let verified = run(scene.settle(command.arg(&dir)), None);
    assert!(verified.status.success(), "{}", verified.describe());
    scene.remove(&dir);
}

fn replay(scene: &Scene, dir: &Path) -> Run {
    let mut command = scene.place.reprise([OsStr::new("replay"), dir.as_os_str()]);
    run(scene.settle(&mut command), None)
}

#[test]
fn one_after_another() {
    let times = if full() { 200 } else { 5 };
    in_own_world(|scene| {
        for i in 0..times {
            record_and_remove(scene, &Guest::new("mixed_work"));
            scene.assert_clean(&format!("recording {i}"));
        }
    });
}

#[test]
fn eight_at_the_same_time() {
    let rounds = if full() { 10 } else { 1 };
    in_own_world(|scene| {
        for i in 0..rounds {
            thread::scope(|s| {
                for _ in 0..8 {
                    s.spawn(|| record_and_remove(scene, &Guest::new("mixed_work")));
                }
            });
            scene.assert_clean(&format!("round {i}"));
        }
    });
}

/// Whom a round of [`killed_at_any_time`] kills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Launcher,
    Agent,
    Root,
    Worker,
}

/// The process to be killed, when it is there.
fn find(victim: Victim, launcher: i32, numbers: &mut Numbers) -> Option<i32> {
    let runs = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let ours = |pid: &i32| runs(*pid).is_some_and(|exe| exe == Path::new(REPRISE));
    let all = descendants(launcher);
    let others: Vec<i32> = all.iter().copied().filter(|p| *p != launcher).collect();
    let root = others.iter().copied().find(|p| !ours(p));
    match victim {
        Victim::Launcher => Some(launcher),
        Victim::Agent => others.iter().copied().find(ours),
        Victim::Root => root,
        Victim::Worker => {
            let workers: Vec<i32> = others
                .into_iter()
                .filter(|p| !ours(p) && Some(*p) != root)
                .collect();
            workers
                .get(numbers.below(workers.len() as u64) as usize)
                .copied()
        }
    }
}

/// Ends by SIGKILL, in the middle of a recorded tree of processes, one that takes part. The others go on to their ends, nothing is left,
/// and what was recorded is replayed: all of it when the recorder has lived, else a beginning.
#[test]
fn killed_at_any_time() {
    const VICTIMS: [Victim; 5] = [
        Victim::Worker,
        Victim::Launcher,
        Victim::Worker,
        Victim::Agent,
        Victim::Root,
    ];
    let rounds = knob("REPRISE_TEST_KILLS", if full() { 100 } else { 10 });
    in_own_world(|scene| {
        let mut numbers = Numbers(knob("REPRISE_TEST_SEED", 11));
        let (mut killed, mut said_something) = (0, 0);
        for round in 0..rounds {
            let victim = VICTIMS[round as usize % VICTIMS.len()];
            let (found, replayed) = kill_one(scene, victim, &mut numbers, round);
            killed += u64::from(found);
            said_something += u64::from(replayed);
            scene.assert_clean(&format!("round {round}, victim {victim:?}"));
        }
        println!("{killed} killed in {rounds} rounds; {said_something} replays said something");
        assert!(killed * 2 > rounds, "only {killed} of {rounds} were killed");
        assert!(
            said_something * 2 > rounds,
            "only {said_something} of {rounds} replays said anything"
        );
    });
}

/// One round; was anybody killed, and did the replay say anything?
fn kill_one(scene: &Scene, victim: Victim, numbers: &mut Numbers, round: u64) -> (bool, bool) {
    let dir = scene.place.fresh("trace");
    let guest = Guest::new("worker_tree").args(["40"]);
    let mut command = scene.place.record_command(&guest, &[], &dir);
    let mut running = Running::start_reading(scene.settle(&mut command), None);
    // The moment is named by what the program has said; before its first word it is left to chance.
    let lines = numbers.below(235);
    let mut reader = BufReader::new(running.child.stdout.take().expect("a pipe"));
    let mut said = Vec::new();
    for _ in 0..lines {
        if reader.read_until(b'\n', &mut said).expect("a line") == 0 {
            break;
        }
    }
    let target = find(victim, running.pid(), numbers);
    if let Some(pid) = target {
        // SAFETY: sends a signal to a process that this test started.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let rest = thread::spawn(move || {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut rest).expect("the rest");
        rest
    });
    let mut recorded = running.finish();
    said.extend(rest.join().expect("the rest"));
    recorded.stdout = said;
    recorded.assert_civil();
    let what = format!("round {round}: {victim:?} ({target:?}) after {lines} lines");
    if !dir.join("manifest.json").exists() {
        // It did not even begin.
        if dir.exists() {
            std::fs::remove_dir_all(&dir).expect("remove");
        }
        return (target.is_some(), false);
    }
    let replayed = replay(scene, &dir);
    replayed.assert_civil();
    assert!(
        !replayed.said().contains("diverge"),
        "{what}: {}",
        replayed.describe()
    );
    if victim == Victim::Worker {
        assert!(recorded.status.success(), "{what}: {}", recorded.describe());
        assert_same(&recorded, &replayed);
    }
    assert!(
        recorded.stdout.starts_with(&replayed.stdout),
        "{what}: {}",
        common::difference("stdout", &recorded.stdout, &replayed.stdout).unwrap_or_default()
    );
    if victim == Victim::Root && target.is_some() {
        assert_eq!(
            replayed.status,
            recorded.status,
            "{what}: {}",
            replayed.describe()
        );
    }
    scene.remove(&dir);
    (target.is_some(), !replayed.stdout.is_empty())
}

/// What memory a recording holds at one moment, in KiB.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    agent: u64,
    launcher: u64,
    runtime: u64,
    descriptors: u64,
}

/// Sum of the lines `Anonymous:` of an smaps file, of mappings that begin in `range`.
fn anonymous(text: &str, range: std::ops::Range<u64>) -> u64 {
    let (mut inside, mut sum) = (false, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if let Some((start, _)) = first.split_once('-') {
            inside = u64::from_str_radix(start, 16).is_ok_and(|a| range.contains(&a));
        } else if inside && first == "Anonymous:" {
            sum += second.parse::<u64>().expect("a number");
        }
    }
    sum
}

/// Looks at a recording; `None` when it is over.
fn memory_of(launcher: i32) -> Option<Memory> {
    let smaps = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/smaps")).ok();
    let all = descendants(launcher);
    let exe = |pid: i32| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let agent = *all[1..].iter().find(|p| exe(**p) == Path::new(REPRISE))?;
    let program = *all[1..].iter().find(|p| exe(**p) != Path::new(REPRISE))?;
    Some(Memory {
        agent: anonymous(&smaps(agent)?, 0..u64::MAX),
        launcher: anonymous(&smaps(launcher)?, 0..u64::MAX),
        runtime: anonymous(&smaps(program)?, RESERVATION..RESERVATION_END),
        descriptors: std::fs::read_dir(format!("/proc/{agent}/fd")).ok()?.count() as u64,
    })
}

/// Asserts that a quantity (in KiB) does not grow: what it usually is in the second half is what it was in the second quarter, apart
/// from buffers of so many bytes that a burst leaves for the next one.
fn assert_flat(what: &str, values: &[u64], buffers: usize) {
    let median = |part: &[u64]| {
        let mut sorted = part.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let n = values.len();
    let (quarter, half) = (&values[n / 4..n / 2], &values[n / 2..]);
    let (before, after) = (median(quarter), median(half));
    let most = |part: &[u64]| *part.iter().max().expect("samples");
    println!(
        "{what}: {before} KiB in the second quarter (at most {}), {after} KiB in the second half (at most {})",
        most(quarter),
        most(half)
    );
    let most = before + before / 10 + buffers as u64 / 1024 + 512;
    assert!(after <= most, "{what} grows: {values:?}");
}

/// redis under load for minutes (REPRISE_TEST_SOAK_SECONDS), with several commands, pipelined and not, from clients that come and go.
#[test]
#[ignore = "takes minutes: scripts/soak.sh runs it"]
fn redis_for_minutes() {
    const EVERY: Duration = Duration::from_secs(5);
    let time = Duration::from_secs(knob("REPRISE_TEST_SOAK_SECONDS", 600));
    let place = Workplace::new();
    let (data, port, dir) = (place.fresh_dir("data"), free_port(), place.fresh("trace"));
    let words = ["--bind", "127.0.0.1", "--save", "", "--dir"];
    let guest = Guest::program(system_program("redis-server"))
        .args::<_, OsString>(["--port".into(), port.to_string().into()])
        .args(words)
        .args([data.into_os_string()]);
    let flags = ["--max-size", "5G"];
    let mut server = Running::start(&mut place.record_command(&guest, &flags, &dir), None);
    drop(connect(&mut server, port));
    let launcher = server.pid();
    let (over, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut samples: Vec<Memory> = Vec::new();
    thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                requests.fetch_add(redis_load(port), Ordering::Relaxed);
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < time {
            thread::park_timeout(EVERY);
            samples.extend(memory_of(launcher));
        }
        over.store(true, Ordering::Relaxed);
    });
    // SAFETY: a signal to a process of ours; `reprise record` hands it on to the program.
    unsafe { libc::kill(launcher, libc::SIGTERM) };
    let recording = Recording {
        run: server.finish(),
        dir,
    };
    let size = disk(&recording.dir);
    println!(
        "{} requests in {time:?}, a trace of {} MiB, {} events",
        requests.load(Ordering::Relaxed),
        size >> 20,
        place.info(&recording.dir).events()
    );
    assert!(
        recording.run.status.success(),
        "{}",
        recording.run.describe()
    );
    assert!(
        !recording.run.notes.contains("early"),
        "{}",
        recording.run.describe()
    );
    assert!(samples.len() >= 8, "only {} samples", samples.len());
    let of = |pick: fn(&Memory) -> u64| samples.iter().map(pick).collect::<Vec<u64>>();
    assert_flat("the agent's memory", &of(|m| m.agent), KEPT_CAPACITY);
    assert_flat("the launcher's memory", &of(|m| m.launcher), 0);
    assert_flat("the runtime's memory", &of(|m| m.runtime), 0);
    let descriptors = of(|m| m.descriptors);
    assert_eq!(
        descriptors.iter().min(),
        descriptors.iter().max(),
        "the agent's descriptors: {descriptors:?}"
    );
    let begun = Instant::now();
    let verified = place.verify(&recording.dir);
    assert!(verified.status.success(), "{}", verified.describe());
    println!("verified in {:?}", begun.elapsed());
}

/// Bytes of a trace on disk.
fn disk(dir: &Path) -> u64 {
    let entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("the trace")
        .map(|e| e.expect("an entry").path())
        .collect();
    entries
        .iter()
        .map(|p| std::fs::metadata(p).map_or(0, |m| m.len()))
        .sum()
}

/// Some rounds of redis-benchmark; the number of requests, all of which went well.
fn redis_load(port: u16) -> u64 {
    const ROUNDS: [(&str, u64, u64, u64); 4] = [
        ("set,get,incr,lpush,lpop,sadd", 4, 1, 6),
        ("set,get,incr", 8, 16, 3),
        ("hset,spop,zadd", 2, 4, 3),
        ("mset", 1, 1, 1),
    ];
    const REQUESTS: u64 = 4_000;
    let mut done = 0;
    for (commands, clients, pipeline, kinds) in ROUNDS {
        let numbers = [
            ("-p", u64::from(port)),
            ("-n", REQUESTS),
            ("-c", clients),
            ("-P", pipeline),
            ("-r", 1000),
        ];
        let mut command = Command::new(system_program("redis-benchmark"));
        for (flag, number) in numbers {
            command.args([flag.to_string(), number.to_string()]);
        }
        let out = run(command.args(["-q", "--csv", "-t", commands]), None);
        assert!(
            out.status.success() && !out.said().to_lowercase().contains("error"),
            "{}",
            out.describe()
        );
        done += REQUESTS * kinds;
    }
    done
}
