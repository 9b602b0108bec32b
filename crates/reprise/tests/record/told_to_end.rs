//! Who tells `reprise record` to end means the program; and a recording may end with the program's first process.

use crate::common;

use common::terminal::{controlled_by, terminal};
use common::{built, run, Outcome, Workplace};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

guests! { told_to_end, leaves_a_child }

/// A recording that goes on, of whose output lines are read.
struct Recording {
    place: Workplace,
    dir: PathBuf,
    child: Child,
    to: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Recording {
    fn start(flags: &[&str], guest: &str, prepare: impl FnOnce(&mut Command)) -> Recording {
        let place = Workplace::new();
        let dir = place.fresh("trace");
        let mut command = place.reprise(["record", "-o"]);
        command.arg(&dir).args(flags).arg("--").arg(built(guest));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // What the program leaves has its standard error, too: a pipe would have no end.
        let said = File::create(place.path().join("said")).expect("a file");
        command.stderr(said);
        prepare(&mut command);
        let mut child = command.spawn().expect("reprise");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Recording {
            to: child.stdin.take(),
            place,
            dir,
            child,
            lines,
        }
    }

    /// The next line of the program's output; nothing at its end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("its output");
        line.trim_end().into()
    }

    /// Sends a signal to the command alone.
    fn send(&self, signal: i32) {
        // SAFETY: a process that this test started, and has not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// The command ends; what it said of its own.
    fn end(&mut self) -> (ExitStatus, String) {
        let status = common::ended(&mut self.child);
        let said = std::fs::read_to_string(self.place.path().join("said"));
        (status, said.expect("its messages"))
    }

    /// Replays the trace: the same output and end as the program had.
    fn assert_replays(&self, output: &str, status: i32) {
        let verified = self.place.verify(&self.dir);
        assert!(verified.status.success(), "{}", verified.describe());
        let replay = self.place.replay(&self.dir);
        assert_eq!(replay.status.code(), Some(status), "{}", replay.describe());
        assert_eq!(replay.text(), output, "{}", replay.describe());
    }
}

const SIGNALS: [(i32, &str); 6] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGTERM, "SIGTERM"),
];

fn passed_on(engine: &str) {
    let mut recording = Recording::start(&["--engine", engine], "told_to_end", |_| ());
    assert_eq!(recording.line(), "ready");
    let mut output = String::from("ready\n");
    for (signal, name) in SIGNALS {
        recording.send(signal);
        assert_eq!(recording.line(), name);
        output += &format!("{name}\n");
    }
    assert_eq!(recording.line(), "");
    let (status, said) = recording.end();
    assert_eq!(status.code(), Some(0), "{said}");
    if engine != "none" {
        recording.assert_replays(&output, 0);
    }
}

#[test]
fn what_the_command_is_sent_is_for_the_program() {
    passed_on("serial");
}

#[test]
fn what_the_command_is_sent_is_for_the_program_on_all_cores() {
    passed_on("order");
}

#[test]
fn what_the_command_is_sent_is_for_the_program_that_is_not_recorded() {
    passed_on("none");
}

/// A terminal's signals go to all of its foreground group. The launcher gets a signal of the test's afterwards, which it can't pass on before it
/// has seen to the terminal's: so a second copy would come between the two.
#[test]
fn what_a_terminal_sends_comes_once() {
    let (mut keyboard, slave) = terminal();
    let mut recording = Recording::start(&[], "told_to_end", |command| {
        controlled_by(command, &slave);
        command.stdin(Stdio::from(slave));
    });
    assert_eq!(recording.line(), "ready");
    for _ in 0..20 {
        for (key, name) in [(b"\x03", "SIGINT"), (b"\x1c", "SIGQUIT")] {
            keyboard.write_all(key).expect("a key");
            assert_eq!(recording.line(), name);
            recording.send(libc::SIGUSR1);
            assert_eq!(recording.line(), "SIGUSR1");
        }
    }
    recording.send(libc::SIGTERM);
    assert_eq!(recording.line(), "SIGTERM");
    let (status, said) = recording.end();
    assert_eq!(status.code(), Some(0), "{said}");
}

/// Ended by Ctrl-C, as programs usually are, in the second of several runs, too.
#[test]
fn every_run_of_many_can_be_interrupted() {
    let flags = ["--until-failure", "3"];
    let mut recording = Recording::start(&flags, "told_to_end", |_| ());
    assert_eq!(recording.line(), "ready");
    recording.send(libc::SIGTERM);
    assert_eq!(recording.line(), "SIGTERM");
    assert_eq!(recording.line(), "ready");
    recording.send(libc::SIGINT);
    assert_eq!(recording.line(), "SIGINT");
    recording.send(libc::SIGTERM);
    assert_eq!(recording.line(), "SIGTERM");
    assert_eq!(recording.line(), "ready");
    recording.send(libc::SIGQUIT);
    assert_eq!(recording.line(), "SIGQUIT");
    recording.send(libc::SIGTERM);
    assert_eq!(recording.line(), "SIGTERM");
    let (status, said) = recording.end();
    assert_eq!(status.code(), Some(0), "{said}");
}

const DONE: &str = "the first process is done";
const READ: &str = "the child has read its input";

fn ends_with_the_first(flags: &[&str]) {
    let mut recording = Recording::start(flags, "leaves_a_child", |_| ());
    assert_eq!(recording.line(), DONE);
    // The child waits for its input, and for nothing else.
    let (status, said) = recording.end();
    assert_eq!(status.code(), Some(7), "{said}");
    assert!(said.contains("goes on unrecorded"), "{said}");
    assert!(said.contains("leaves_a_child"), "{said}");
    recording.assert_replays(&format!("{DONE}\n"), 7);
    drop(recording.to.take());
    assert_eq!(recording.line(), READ);
    assert_eq!(recording.line(), "");
}

#[test]
fn a_recording_ends_with_the_first_process() {
    ends_with_the_first(&["--until", "main-exits"]);
}

#[test]
fn a_recording_on_all_cores_ends_with_the_first_process() {
    ends_with_the_first(&["--until", "main-exits", "--engine", "order"]);
}

#[test]
fn without_a_child_it_ends_as_ever() {
    let place = Workplace::new();
    let dir = place.fresh("trace");
    let guest = common::Guest::new("hello");
    let mut command = place.record_command(&guest, &["--until", "main-exits"], &dir);
    let recorded = run(&mut command, None);
    assert!(Outcome::Exit(0).fits(recorded.status));
    let info = run(place.reprise(["info", "--json"]).arg(&dir), None).text();
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!(info["complete"], true, "{info}");
    assert!(
        !recorded.notes.contains("unrecorded"),
        "{}",
        recorded.describe()
    );
}

/// Usually a recording goes on with what the program leaves: it says so, and ends when it is told to.
fn told_to_end_while_it_waits(signal: i32) {
    let mut recording = Recording::start(&[], "leaves_a_child", |command| {
        command.stderr(Stdio::piped());
    });
    assert_eq!(recording.line(), DONE);
    let mut errors = BufReader::new(recording.child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    errors.read_line(&mut said).expect("its messages");
    assert!(said.contains("recorded on"), "{said}");
    recording.send(signal);
    while !said.contains("goes on unrecorded") {
        let n = errors.read_line(&mut said).expect("its messages");
        assert!(n > 0, "{said}");
    }
    let status = common::ended(&mut recording.child);
    assert_eq!(status.code(), Some(7), "{said}");
    assert!(said.contains("goes on unrecorded"), "{said}");
    recording.assert_replays(&format!("{DONE}\n"), 7);
    drop(recording.to.take());
    assert_eq!(recording.line(), READ);
}

#[test]
fn told_to_end_while_it_waits_for_a_child() {
    told_to_end_while_it_waits(libc::SIGINT);
    told_to_end_while_it_waits(libc::SIGTERM);
}

#[test]
fn otherwise_the_child_is_recorded_to_its_end() {
    let mut recording = Recording::start(&["-q"], "leaves_a_child", |_| ());
    assert_eq!(recording.line(), DONE);
    drop(recording.to.take());
    assert_eq!(recording.line(), READ);
    let (status, said) = recording.end();
    assert_eq!(status.code(), Some(7), "{said}");
    assert!(said.is_empty(), "{said}");
    recording.assert_replays(&format!("{DONE}\n{READ}\n"), 7);
}

/// Many replays end as one does.
#[test]
fn many_replays_end_by_one_signal() {
    let place = Workplace::new();
    let dir = place.record(&common::Guest::new("hello")).dir;
    for n in 0..20 {
        let signal = [libc::SIGTERM, libc::SIGINT][n % 2];
        let mut command = place.reprise(["verify", "-n", "1000000"]);
        command
            .arg(&dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("reprise");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        // At another place in each round.
        for _ in 0..=n / 2 {
            line.clear();
            lines.read_line(&mut line).expect("a line");
        }
        assert!(line.contains("the same"), "{line}");
        // SAFETY: a process that this test started, and has not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("its output");
        let status = common::ended(&mut child);
        let by = status.signal().or(status.code().map(|c| c - 128));
        assert_eq!(by, Some(signal), "{status}: {line}{rest}");
        assert!(!rest.contains("DIFFERENT"), "{rest}");
    }
}

/// What is there of a recording that was killed is the same in each replay, and `verify` says that it is not all.
#[test]
fn a_recording_that_was_cut_off_is_called_so() {
    const CUT_OFF: i32 = 65;
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let guest = common::Guest::program(common::system_program("sh")).args([
            "-c",
            "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done",
        ]);
        let dir = place.record_with(&guest, &["--engine", engine]).dir;
        let _ = std::fs::remove_file(dir.join("summary.json"));
        let events = dir.join("events.zst");
        let length = events.metadata().expect("the events").len();
        let file = File::options()
            .write(true)
            .open(&events)
            .expect("the events");
        file.set_len(length * 2 / 3).expect("cut off");
        let verified = run(place.reprise(["verify", "-n", "2"]).arg(&dir), None);
        let told = verified.describe();
        assert_eq!(verified.status.code(), Some(CUT_OFF), "{told}");
        let text = verified.text();
        assert_eq!(text.matches("cut off").count(), 2, "{told}");
        for word in ["DIFFERENT", "Torn", "{", "diverged"] {
            assert!(!text.contains(word), "{told}");
        }
        let json = run(place.reprise(["verify", "--json"]).arg(&dir), None);
        assert_eq!(json.status.code(), Some(CUT_OFF), "{}", json.describe());
        let line: serde_json::Value = serde_json::from_str(&json.text()).expect("JSON");
        assert_eq!(line["cut_off"], true, "{line}");
        let replay = place.replay(&dir);
        assert_eq!(replay.status.code(), Some(125), "{}", replay.describe());
        assert!(replay.said().contains("cut off"), "{}", replay.describe());
        assert!(!replay.said().contains("Torn"), "{}", replay.describe());
    }
}
