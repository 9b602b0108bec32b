//! A replay of `--engine order` that can't come to its end says so, and where its threads are: at once where all of them wait, else when somebody
//! wants to know.

use crate::common;

use common::tampered::tampered;
use common::{assert_same, Guest, Recording, Running, Workplace};
use reprise_abi::event::{Event, Kind};
use reprise_trace::stamps::stamps_of;
use reprise_trace::Reader;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ORDER: [&str; 2] = ["--engine", "order"];
const SYS_GETUID: u32 = 102;
const SYS_GETPPID: u32 = 110;
const OWN_FAILURE: i32 = 125;

fn recorded(place: &Workplace, name: &str) -> Recording {
    let recording = place.record_with(&Guest::new(name), &ORDER);
    let run = &recording.run;
    assert!(run.status.success(), "{}", run.describe());
    recording
}

/// The number of an event in the middle of the guest's calls of this kind.
fn among_calls(recording: &Recording, call: u32) -> u64 {
    let mut reader = Reader::open(&recording.dir).expect("the trace");
    let mut calls = Vec::new();
    while let Some(next) = reader.next().expect("an event") {
        let e = Event::parse(next.bytes).expect("an event");
        if matches!(e.kind, Kind::Syscall | Kind::Enter) && e.header.detail == call {
            calls.push(next.number);
        }
    }
    calls[calls.len() / 3]
}

/// One thread waits for its turn at a mutex that another one has left alone, and a third one for both of them inside of a barrier.
#[test]
fn threads_that_all_wait() {
    let place = Workplace::new();
    let recording = recorded(&place, "other_mutex");
    let text = recording.run.text();
    let address = text.lines().next().expect("an address");
    let tamper = format!("{address}@{}", among_calls(&recording, SYS_GETPPID));
    for order in ["partial", "total"] {
        for _ in 0..3 {
            let flags = ["--order", order, "--tamper", &tamper];
            let replay = place.replay_with(&recording.dir, &flags);
            replay.assert_own_failure(OWN_FAILURE);
            let said = replay.said();
            // The thread that has been joined may have been seen to end only after what the others did next: then it waits for them, too.
            let waits: Vec<_> = said
                .lines()
                .filter(|line| line.contains(") waits "))
                .collect();
            let (ending, others): (Vec<&str>, Vec<_>) = waits
                .iter()
                .partition(|line| line.contains("thread 2 (tid"));
            assert_eq!(others.len(), 2, "{order}: {said}");
            let for_its_call = |line: &&str| line.contains("waits for the turn of its call");
            assert!(ending.iter().all(for_its_call), "{order}: {said}");
            for part in [
                "deadlock divergence",
                "waits for its turn to make operation 21 on object",
                "where 1 have been made",
                // Inside of the barrier, or on its way there if the recording has it come later.
                "thread 1 (tid",
                "main",
                "after   event",
            ] {
                assert!(said.contains(part), "{order}: no {part:?} in\n{said}");
            }
        }
        let replay = place.replay_with(&recording.dir, &["--order", order]);
        assert_same(&recording.run, &replay);
    }
    // A race may have led those who wait to where they are.
    for order in ["partial", "total"] {
        let flags = ["--order", order, "--learn", "--tamper", &tamper];
        let learning = place.replay_with(&recording.dir, &flags);
        let said = learning.said();
        let new = order == "partial";
        assert_eq!(said.contains("learned: main"), new, "{order}: {said}");
        assert_eq!(
            said.contains("nothing new to learn"),
            !new,
            "{order}: {said}"
        );
    }
}

/// A trace in which event `late` says that others' calls come before it, more than were recorded, so that it never has its turn.
fn never_due(place: &Workplace, recording: &Recording, late: u64) -> PathBuf {
    tampered(place, &recording.dir, |number, bytes| {
        if number == late {
            let e = Event::parse(bytes).expect("an event");
            let stamp = stamps_of(&e).next().expect("a stamp").to_le_bytes();
            let at = bytes.windows(8).rposition(|word| word == stamp);
            bytes[at.expect("the stamp")..][..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        }
        true
    })
}

/// Whatever a thread waits for that another one is to do.
#[test]
fn threads_that_wait_for_one() {
    for how in ["join", "end", "once", "shared", "slot"] {
        let place = Workplace::new();
        let guest = Guest::new("waits_for_thread").args([how]);
        let recording = place.record_with(&guest, &ORDER);
        assert!(
            recording.run.status.success(),
            "{}",
            recording.run.describe()
        );
        for order in ["partial", "total"] {
            let replay = place.replay_with(&recording.dir, &["--order", order]);
            assert_same(&recording.run, &replay);
        }
        let late = among_calls(&recording, SYS_GETUID);
        let changed = never_due(&place, &recording, late);
        for words in [
            &["replay"][..],
            &["replay", "--order", "total"],
            &["backtrace"],
        ] {
            let run = Running::start(place.reprise(words).arg(&changed), None)
                .finish_within(common::hang_limit())
                .unwrap_or_else(|| panic!("{how} {words:?}: no end"));
            run.assert_own_failure(OWN_FAILURE);
            let said = run.said();
            assert!(
                said.contains("deadlock divergence"),
                "{how} {words:?}: {said}"
            );
        }
    }
}

/// A debugger's way to the end stops where nobody can go on with the same words, and one to where nothing of that shows yet is as ever.
#[test]
fn a_debugger_is_told() {
    let place = Workplace::new();
    let recording = recorded(&place, "other_mutex");
    let late = among_calls(&recording, SYS_GETPPID);
    let changed = never_due(&place, &recording, late);
    for at in [&[][..], &["--at", "end"]] {
        let mut words = vec!["backtrace"];
        words.extend(at);
        let mut command = place.reprise(words);
        let run = Running::start(command.arg(&changed), None)
            .finish_within(common::hang_limit())
            .expect("an end");
        run.assert_own_failure(OWN_FAILURE);
        let said = run.said();
        for part in ["deadlock divergence", "waits for the turn of its call"] {
            assert!(said.contains(part), "{at:?}: no {part:?} in\n{said}");
        }
    }
    let before = (late / 2).to_string();
    let mut command = place.reprise(["backtrace", "--at", &before]);
    let run = Running::start(command.arg(&changed), None).finish();
    assert!(run.status.success(), "{}", run.describe());
    assert!(run.text().contains("main"), "{}", run.describe());
}

/// In total order nobody else ever runs while one thread looks at memory. That is no deadlock that could be seen, so somebody has to ask.
#[test]
fn a_signal_asks_where_the_threads_are() {
    let place = Workplace::new();
    let recording = recorded(&place, "spins_on_word");
    assert_same(&recording.run, &place.replay(&recording.dir));
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut command = place.reprise(["replay", "--order", "total"]);
        let mut replay = Running::start_reading(command.arg(&recording.dir), None);
        let mut said = [0; 8];
        let mut out = replay.child.stdout.take().expect("a pipe");
        out.read_exact(&mut said).expect("its first line");
        assert_eq!(&said, b"looking\n");
        // SAFETY: a child of ours that is not reaped yet.
        unsafe { libc::kill(replay.pid(), signal) };
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).expect("its output");
        assert!(rest.is_empty(), "it went on: {rest:?}");
        let replay = replay.finish();
        assert_eq!(
            replay.status.code(),
            Some(128 + signal),
            "{}",
            replay.describe()
        );
        let said = replay.said();
        assert!(said.contains("ended by a signal"), "{said}");
        assert!(said.contains("thread 0"), "{said}");
        assert!(said.contains("write("), "{said}");
    }
}

#[test]
fn a_limit_of_time_does_the_same() {
    let place = Workplace::new();
    let recording = recorded(&place, "spins_on_word");
    let flags = ["--order", "total", "--time-limit", "2"];
    let replay = place.replay_with(&recording.dir, &flags);
    replay.assert_own_failure(OWN_FAILURE);
    let said = replay.said();
    assert!(said.contains("ended after 2 s"), "{said}");
    assert!(said.contains("thread 0"), "{said}");
    // And one that ends in time knows nothing of it.
    let replay = place.replay_with(&recording.dir, &["--time-limit", "600"]);
    assert_same(&recording.run, &replay);
}

/// Nothing of a debugger's session stays, neither when it has come to its limit of time nor when its command was killed.
#[test]
fn a_session_ends_with_its_command() {
    let place = Workplace::new();
    let recording = recorded(&place, "spins_on_word");
    let mut command = place.reprise(["backtrace", "--at", "end", "--time-limit", "2"]);
    let run = Running::start(command.arg(&recording.dir), None).finish();
    run.assert_own_failure(OWN_FAILURE);
    assert!(run.said().contains("ended after 2 s"), "{}", run.describe());
    assert_eq!(servers_of(&recording), 0);

    let mut command = place.reprise(["backtrace", "--at", "end"]);
    let running = Running::start(command.arg(&recording.dir), None);
    until("there is a server", || servers_of(&recording) > 0);
    // SAFETY: a child of ours that is not reaped yet.
    unsafe { libc::kill(running.pid(), libc::SIGKILL) };
    running.finish();
    until("the server is gone", || servers_of(&recording) == 0);
}

/// How many processes have this trace as their last argument.
fn servers_of(recording: &Recording) -> usize {
    let dir = recording.dir.as_os_str().as_bytes();
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = all.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            let mut words = line.split(|b| *b == 0);
            words.any(|w| w == b"-d") && line.ends_with(&[dir, b"\0"].concat())
        })
        .count()
}

fn until(what: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < common::hang_limit(), "not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
