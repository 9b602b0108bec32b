//! `stop`: a recording ends, its trace is whole at once, and the program goes on to its own end.

use crate::common;

use common::leftovers::descendants;
use common::{run, Guest, Running, Workplace, OWN_FAILURE};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;

/// A process of this name that a recording has made.
fn process(recording: &Running, name: &str) -> i32 {
    let is_it = |p: &&i32| {
        let comm = std::fs::read_to_string(format!("/proc/{p}/comm"));
        comm.is_ok_and(|c| c.trim() == name)
    };
    let all = descendants(recording.pid());
    *all.iter().find(is_it).expect("the process")
}

/// A program that is being recorded, and what it has said so far.
struct Recorded {
    place: Workplace,
    dir: PathBuf,
    running: Running,
    lines: BufReader<ChildStdout>,
    said: String,
}

impl Recorded {
    fn start(guest: &Guest, engine: &str) -> Recorded {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let flags = ["--engine", engine, "--checksum=500"];
        let mut command = place.record_command(guest, &flags, &dir);
        let mut running = Running::start_reading(&mut command, None);
        let lines = BufReader::new(running.child.stdout.take().expect("a pipe"));
        Recorded {
            place,
            dir,
            running,
            lines,
            said: String::new(),
        }
    }

    /// Reads on until the program has said so many lines more.
    fn read(&mut self, lines: usize) {
        for _ in 0..lines {
            let n = self.lines.read_line(&mut self.said).expect("its output");
            assert!(n > 0, "it ended after {:?}", self.said);
        }
    }

    /// Stops the recording; by then the trace is whole, and replays what was said so far, or a little more. The call that said the last line may not
    /// be in it, nor, of threads that run at once, what they did at that moment: at most `missing` lines.
    fn stop(&mut self, pid: i32, missing: usize) {
        let stopped = run(self.place.reprise(["stop"]).arg(pid.to_string()), None);
        assert!(stopped.status.success(), "{}", stopped.describe());
        assert_eq!(Path::new(stopped.text().trim()), self.dir);
        let said = self.said.lines().count();
        let replay = self.place.replay(&self.dir);
        assert!(replay.status.success(), "{}", replay.describe());
        assert!(replay.said().contains("the recording was stopped at event"));
        let replayed = replay.text().lines().count();
        assert!(replayed + missing >= said, "{}", replay.describe());
        let verified = self.place.verify(&self.dir);
        assert!(verified.status.success(), "{}", verified.describe());
        let again = run(self.place.reprise(["stop"]).arg(pid.to_string()), None);
        again.assert_own_failure(OWN_FAILURE);
        assert!(again.said().contains("is not being recorded"));
        // All of it is in what the program itself says.
        while self.said.len() < replay.stdout.len() {
            self.read(1);
        }
        assert!(self.said.starts_with(&replay.text()), "{}", self.said);
    }

    /// Ends the program, which goes on.
    fn kill(mut self, pid: i32) {
        self.read(20);
        // SAFETY: a process that this test started.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        let mut rest = Vec::new();
        self.lines.read_to_end(&mut rest).expect("its output");
        let run = self.running.finish();
        assert_eq!(run.status.code(), Some(128 + libc::SIGTERM));
        assert!(run.said().contains("stopped"), "{}", run.describe());
        self.place.keep();
    }
}

fn threads(engine: &str, missing: usize) {
    let mut recorded = Recorded::start(&Guest::new("runs_on").args(["3", "1000000"]), engine);
    recorded.read(30);
    let program = process(&recorded.running, "runs_on");
    recorded.stop(program, missing);
    recorded.kill(program);
}

#[test]
fn several_threads() {
    threads("serial", 1);
}

#[test]
fn several_threads_at_once() {
    threads("order", 15);
}

fn processes(engine: &str, missing: usize) {
    let script =
        "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); /bin/echo $i; (exit 3) & wait $!; done";
    let guest = Guest::program(common::system_program("sh")).args(["-c", script]);
    let mut recorded = Recorded::start(&guest, engine);
    recorded.read(10);
    let (launcher, shell) = (recorded.running.pid(), process(&recorded.running, "sh"));
    recorded.stop(launcher, missing);
    recorded.kill(shell);
}

#[test]
fn several_processes() {
    processes("serial", 1);
}

#[test]
fn several_processes_at_once() {
    processes("order", 2);
}

/// A flight recorder forgets no more when it has stopped.
#[test]
fn the_last_stretch() {
    let place = Workplace::new();
    let guest = Guest::new("runs_on").args(["2", "1000000"]);
    for _ in 0..3 {
        let dir = place.fresh("trace");
        let mut command = place.record_command(&guest, &["--keep", "4K"], &dir);
        let running = Running::start(&mut command, None);
        let begun = std::time::Instant::now();
        while !dir.join("beginning").exists() {
            assert!(
                begun.elapsed() < common::hang_limit(),
                "nothing was forgotten"
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let launcher = running.pid();
        let stopped = run(place.reprise(["stop"]).arg(launcher.to_string()), None);
        assert!(stopped.status.success(), "{}", stopped.describe());
        let replay = place.replay(&dir);
        assert!(replay.status.success(), "{}", replay.describe());
        let program = process(&running, "runs_on");
        // SAFETY: a process that this test started.
        assert_eq!(unsafe { libc::kill(program, libc::SIGKILL) }, 0);
        running.finish();
    }
}

fn ends_by_itself(engine: &str) {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let answer = place.fresh("answer");
    let made = std::process::Command::new("mkfifo").arg(&answer).status();
    assert!(made.expect("mkfifo").success());
    let script = format!(
        "echo asks; read answer < {}; echo $answer; exit 7",
        answer.display()
    );
    let guest = Guest::program(common::system_program("sh")).args(["-c", &script]);
    let mut command = place.record_command(&guest, &["--engine", engine], &dir);
    let mut running = Running::start_reading(&mut command, None);
    let mut lines = BufReader::new(running.child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    lines.read_line(&mut said).expect("its question");
    // It waits in a call meanwhile.
    let stop = run(place.reprise(["stop"]).arg(running.pid().to_string()), None);
    assert!(stop.status.success(), "{}", stop.describe());
    let replay = place.replay(&dir);
    assert!(replay.status.success(), "{}", replay.describe());
    // Maybe without the call that said it.
    assert!(
        "asks\n".starts_with(&replay.text()),
        "{}",
        replay.describe()
    );
    std::fs::write(&answer, "42\n").expect("its answer");
    lines.read_to_string(&mut said).expect("what it says");
    assert_eq!(said, "asks\n42\n");
    assert_eq!(running.finish().status.code(), Some(7));
    let info = run(place.reprise(["info"]).arg(&dir), None).text();
    assert!(info.contains("stopped"), "{info}");
}

#[test]
fn the_program_ends_as_it_would() {
    ends_by_itself("serial");
    ends_by_itself("order");
}

#[test]
fn who_is_not_recorded_is_told() {
    let place = Workplace::new();
    let own = std::process::id().to_string();
    for pid in [own.as_str(), "1", "999999999"] {
        let stopped = run(&mut place.reprise(["stop", pid]), None);
        stopped.assert_own_failure(OWN_FAILURE);
        assert!(
            stopped.said().contains("is not being recorded"),
            "{}",
            stopped.describe()
        );
    }
}
