//! The log (`REPRISE_LOG`): Reprise's own processes tell what they do, to whom asks for it, and in nobody's way.

use crate::common;

use common::{ended, run, Guest, Workplace};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that becomes others, and writes to both of its outputs.
const PROGRAM: [&str; 3] = [
    "/bin/sh",
    "-c",
    "echo out; echo err >&2; /bin/echo two; exit 3",
];
const STATUS: Option<i32> = Some(3);
const OUTPUT: &str = "out\ntwo\n";

/// A recording of the program, without a word of Reprise's own but for the log.
fn record(place: &Workplace, engine: &str, dir: &Path, log: &str) -> Command {
    let mut command = place.reprise(["record", "-q", "--engine", engine, "-o"]);
    command.arg(dir).arg("--").args(PROGRAM);
    command.env("REPRISE_LOG", log);
    command
}

/// Lines of the log: what tells who wrote them.
fn of(lines: &str, role: &str, level: &str) -> Vec<String> {
    let is = |l: &&str| {
        let words: Vec<&str> = l.split_whitespace().take(4).collect();
        matches!(words[..], [time, who, pid, how]
            if time.parse::<f64>().is_ok() && who == role && pid.parse::<u32>().is_ok() && how == level)
    };
    lines.lines().filter(is).map(String::from).collect()
}

fn has(lines: &[String], wanted: &str) -> bool {
    lines.iter().any(|l| l.contains(wanted))
}

#[test]
fn nothing_is_said_by_default() {
    let place = Workplace::new();
    let trace = place.fresh("trace");
    for log in [None, Some("")] {
        let mut command = record(&place, "serial", &trace, "");
        if log.is_none() {
            command.env_remove("REPRISE_LOG");
        }
        let recorded = run(&mut command, None);
        assert_eq!(recorded.status.code(), STATUS, "{}", recorded.describe());
        assert_eq!(recorded.said(), "err\n");
        std::fs::remove_dir_all(&trace).expect("the trace");
    }
}

#[test]
fn the_agent_says_what_it_does() {
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let mut command = record(&place, engine, &place.fresh("trace"), "agent=debug");
        let recorded = run(&mut command, None);
        assert_eq!(recorded.status.code(), STATUS, "{}", recorded.describe());
        assert_eq!(recorded.text(), OUTPUT);
        let said = recorded.said();
        let (told, done) = (of(&said, "agent", "INFO"), of(&said, "agent", "DEBUG"));
        assert!(has(&told, "agent::work: begins launcher="), "{said}");
        assert!(
            has(&told, "agent::work::end: ends status=Some(768)"),
            "{said}"
        );
        assert!(has(&done, "agent::requests: file kept pid="), "{said}");
        assert!(
            has(&done, "agent::exec: became another program pid="),
            "{said}"
        );
        // Nobody else says anything, and no line is in pieces.
        let program_s = said.lines().filter(|l| *l == "err").count();
        assert_eq!(
            said.lines().count(),
            told.len() + done.len() + program_s,
            "{said}"
        );
        assert_eq!(program_s, 1, "{said}");
    }
}

#[test]
fn the_launcher_and_the_driver_do_as_well() {
    let place = Workplace::new();
    let trace = place.fresh("trace");
    let recorded = run(&mut record(&place, "serial", &trace, "launch=debug"), None);
    assert_eq!(recorded.status.code(), STATUS, "{}", recorded.describe());
    let said = recorded.said();
    let launcher = of(&said, "reprise", "DEBUG");
    assert!(
        has(&launcher, "launch::record: program forked pid="),
        "{said}"
    );
    assert!(
        has(&launcher, "launch::record::stopped: let go pid="),
        "{said}"
    );
    assert!(!said.contains(" agent::"), "{said}");

    let verify = |log: &str| {
        let mut command = place.reprise(["verify"].map(OsStr::new));
        run(command.arg(&trace).env("REPRISE_LOG", log), None)
    };
    let (quiet, told) = (verify(""), verify("replay=debug"));
    assert_eq!(quiet.text(), told.text(), "{}", told.describe());
    // Its standard error is another one while the program runs; the log's is not.
    let said = told.said();
    let driver = of(&said, "reprise", "DEBUG");
    assert!(has(&driver, "replay::tree: process begins pid="), "{said}");
    assert!(has(&driver, "replay::tree: process ended pid="), "{said}");
    assert!(
        has(
            &of(&said, "reprise", "INFO"),
            "replay::driver: replay ends status=768"
        ),
        "{said}"
    );
}

#[test]
fn the_flight_recorder_does_as_well() {
    let place = Workplace::new();
    let guest = Guest::new("kept_stretch").args(["1", "1000"]);
    let flags = ["-q", "--keep", "256K"];
    let mut command = place.record_command(&guest, &flags, &place.fresh("trace"));
    let recorded = run(command.env("REPRISE_LOG", "replay=debug"), None);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.describe());
    let said = recorded.said();
    let begins = of(&said, "follower", "INFO");
    assert!(
        has(&begins, "replay::driver: trace engine=\"serial\""),
        "{said}"
    );
    let moves = of(&said, "follower", "DEBUG");
    assert!(
        has(&moves, "replay::follow: the trace begins further on event="),
        "{said}"
    );
}

#[test]
fn the_debugger_does_as_well() {
    let place = Workplace::new();
    let (trace, log) = (place.fresh("trace"), place.fresh("log"));
    run(&mut record(&place, "serial", &trace, ""), None);
    let mut command = place.reprise([OsStr::new("replay"), OsStr::new("-d"), trace.as_os_str()]);
    command.args(["--", "-nx", "-batch", "-ex", "run-to 20", "-ex", "run-to 5"]);
    command
        .env("REPRISE_LOG", "debug")
        .env("REPRISE_LOG_FILE", &log);
    let session = run(command.env("DEBUGINFOD_URLS", ""), None);
    assert!(session.status.success(), "{}", session.describe());
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(
        has(&of(&said, "server", "INFO"), "debug::server: session dir="),
        "{said}"
    );
    let done = of(&said, "server", "DEBUG");
    assert!(has(&done, "debug::history: goes forward from="), "{said}");
    assert!(has(&done, "debug::history: goes back to=5"), "{said}");
}

#[test]
fn a_wrong_filter_is_told_and_ignored() {
    let place = Workplace::new();
    for (log, wanted) in [
        (
            "agnet=debug",
            "reprise: REPRISE_LOG is ignored: \"agnet\" has no log",
        ),
        (
            "agent=loud",
            "reprise: REPRISE_LOG is ignored: \"loud\" is no level",
        ),
    ] {
        let recorded = run(
            &mut record(&place, "serial", &place.fresh("trace"), log),
            None,
        );
        assert_eq!(recorded.status.code(), STATUS, "{}", recorded.describe());
        assert!(
            recorded.notes.starts_with(wanted),
            "{}",
            recorded.describe()
        );
        assert_eq!(recorded.notes.lines().count(), 1, "{}", recorded.describe());
        assert_eq!(recorded.stderr, b"err\n");
    }
}

#[test]
fn a_file_takes_lines_of_all_and_is_appended_to() {
    let place = Workplace::new();
    let log = place.fresh("log");
    std::fs::write(&log, "what was there\n").expect("a file");
    let mut command = record(&place, "serial", &place.fresh("trace"), "debug");
    let recorded = run(command.env("REPRISE_LOG_FILE", &log), None);
    assert_eq!(recorded.status.code(), STATUS, "{}", recorded.describe());
    assert_eq!(recorded.said(), "err\n");
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.starts_with("what was there\n"), "{said}");
    assert!(
        has(&of(&said, "reprise", "DEBUG"), "program forked"),
        "{said}"
    );
    assert!(has(&of(&said, "agent", "INFO"), "ends status="), "{said}");
    // One that can't be opened is told, and the recording is made.
    let nowhere = place.fresh("nothing").join("log");
    let mut command = record(&place, "serial", &place.fresh("trace"), "debug");
    let recorded = run(command.env("REPRISE_LOG_FILE", nowhere), None);
    assert_eq!(recorded.status.code(), STATUS, "{}", recorded.describe());
    assert!(
        recorded.notes.starts_with("reprise: there is no log: "),
        "{}",
        recorded.describe()
    );
}

/// A pipe without any room; the end that reads, and the one that writes, as a program's output wants it.
fn full_pipe() -> [OwnedFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: two new descriptors, owned from here on; a page of ours is written.
    unsafe {
        assert_eq!(
            libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK),
            0
        );
        let page = [b'x'; 4096];
        while libc::write(ends[1], page.as_ptr().cast(), page.len()) > 0 {}
        assert_eq!(libc::fcntl(ends[1], libc::F_SETFL, 0), 0);
        ends.map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// The program waits for its agent, and who reads the standard error may wait for the program.
#[test]
fn a_full_pipe_holds_up_neither_a_recording_nor_a_replay() {
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let trace = place.fresh("trace");
        let mut record = place.reprise(["record", "-q", "--engine", engine, "-o"]);
        record
            .arg(&trace)
            .args(["--", "/bin/sh", "-c", "echo out; /bin/echo two; exit 3"]);
        let mut replay = place.reprise([OsStr::new("replay"), trace.as_os_str()]);
        for command in [&mut record, &mut replay] {
            let [reader, writer] = full_pipe();
            command.env("REPRISE_LOG", "trace");
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            let mut child = command.stderr(writer).spawn().expect("reprise");
            let status = ended(&mut child);
            assert_eq!(status.code(), STATUS, "{command:?}");
            let mut output = String::new();
            let mut stdout = child.stdout.take().expect("a pipe");
            stdout.read_to_string(&mut output).expect("its output");
            assert_eq!(output, OUTPUT, "{command:?}");
            drop(reader);
        }
        let verified = place.verify(&trace);
        assert_eq!(verified.status.code(), Some(0), "{}", verified.describe());
    }
}

/// Who has left the standard error has left it: whoever reads it is to see its end.
#[test]
fn the_log_ends_where_the_standard_error_is_left() {
    let place = Workplace::new();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo ready; read line; exit 0"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // Where only ancestors may trace (Yama), anybody may trace this one.
    // SAFETY: a plain call in the child.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
            Ok(())
        });
    }
    let mut process = command.spawn().expect("a shell");
    let mut line = String::new();
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe"));
    lines.read_line(&mut line).expect("its first line");
    let mut attach = place.reprise(["attach", "-q", "-b", &process.id().to_string()]);
    // It returns when both outputs have ended.
    let attached = run(attach.env("REPRISE_LOG", "debug"), None);
    assert!(attached.status.success(), "{}", attached.describe());
    let said = attached.said();
    assert!(
        has(
            &of(&said, "reprise", "DEBUG"),
            "launch::attach: process stopped"
        ),
        "{said}"
    );
    assert_eq!(process.try_wait().expect("asked"), None, "it goes on");
    let mut input = process.stdin.take().expect("a pipe");
    input.write_all(b"\n").expect("its line");
    assert!(ended(&mut process).success());
    assert!(input.as_raw_fd() >= 0);
}

/// The variable is the program's as well, as all others are, and its replay has it.
#[test]
fn the_program_sees_its_environment() {
    let place = Workplace::new();
    let guest = Guest::program("/bin/sh").args(["-c", "echo $REPRISE_LOG"]);
    let trace = place.fresh("trace");
    let mut command = place.record_command(&guest, &["-q"], &trace);
    let recorded = run(command.env("REPRISE_LOG", "debug"), None);
    assert_eq!(recorded.text(), "debug\n", "{}", recorded.describe());
    assert_eq!(place.replay(&trace).text(), "debug\n");
}
