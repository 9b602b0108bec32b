//! Outputs that take nothing: closed, full, or pipes that nobody reads. Whatever Reprise has to say then is lost, and nothing else is: the
//! program's status stays the program's, and a command whose data can't be written ends as other tools do.

use crate::common;

use common::{run, Guest, Outcome, Run, Workplace, OWN_FAILURE};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What is wrong with an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Closed,
    Full,
    Unread,
}

/// Which outputs have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Stdout,
    Stderr,
    Both,
}

/// Every way for outputs to take nothing.
fn ways() -> impl Iterator<Item = (Fault, Which)> {
    [Fault::Closed, Fault::Full, Fault::Unread]
        .into_iter()
        .flat_map(|fault| [Which::Stdout, Which::Stderr, Which::Both].map(|which| (fault, which)))
}

impl Fault {
    /// A command with such outputs, as a shell would start it. The outputs that have no fault are collected.
    fn of(self, which: Which, command: &Command) -> Command {
        let redirection = match (self, which) {
            (Fault::Closed, Which::Stdout) => "exec \"$@\" >&-",
            (Fault::Closed, Which::Stderr) => "exec \"$@\" 2>&-",
            (Fault::Closed, Which::Both) => "exec \"$@\" >&- 2>&-",
            (Fault::Full, Which::Stdout) => "exec \"$@\" >/dev/full",
            (Fault::Full, Which::Stderr) => "exec \"$@\" 2>/dev/full",
            (Fault::Full, Which::Both) => "exec \"$@\" >/dev/full 2>/dev/full",
            (Fault::Unread, _) => "exec \"$@\"",
        };
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", redirection, "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            shell.current_dir(dir);
        }
        if self == Fault::Unread {
            // SAFETY: plain calls in the child.
            unsafe {
                shell.pre_exec(move || {
                    let mut ends = [0; 2];
                    if libc::pipe(ends.as_mut_ptr()) != 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                    libc::close(ends[0]);
                    if which != Which::Stderr {
                        libc::dup2(ends[1], 1);
                    }
                    if which != Which::Stdout {
                        libc::dup2(ends[1], 2);
                    }
                    libc::close(ends[1]);
                    Ok(())
                });
            }
        }
        shell
    }
}

/// A process to attach to: it has begun, and ends with 0 when its input does.
struct Waiting(Child);

impl Waiting {
    fn start() -> Waiting {
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
        let mut child = command.spawn().expect("a shell");
        let mut lines = BufReader::new(child.stdout.as_mut().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("its first line");
        Waiting(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        let status = common::ended(&mut self.0);
        assert!(status.success(), "{status}");
    }
}

/// How a subcommand's status depends on its outputs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Not at all: it is that of a program, or of a compiler.
    Programs,
    /// It prints data, and has failed when these are lost.
    Data,
    /// It has nothing to print on the standard output.
    Silent,
}
use Status::*;

/// Traces, and a place for what is made.
struct Scene {
    place: Workplace,
    /// A hello, by `serial`.
    hello: PathBuf,
    /// A program that was built to be looked at for races, by `order`.
    racing: PathBuf,
    quiet: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let place = Workplace::new();
        let hello = place.record(&Guest::new("hello")).dir;
        let source = place.path().join("quiet.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("a source");
        let program = place.path().join("quiet");
        let mut scene = Scene {
            place,
            hello,
            racing: PathBuf::new(),
            quiet: program,
        };
        let mut build = scene.compiler("cc");
        build.args(["--races", "-O1", "-pthread"]).arg(&source);
        build.arg("-o").arg(&scene.quiet);
        let built = run(&mut build, None);
        assert!(built.status.success(), "{}", built.describe());
        let quiet = Guest::program(&scene.quiet);
        scene.racing = scene.place.record_with(&quiet, &["--engine", "order"]).dir;
        scene
    }

    fn compiler(&self, name: &str) -> Command {
        let mut command = self.place.reprise([name]);
        command.env("XDG_CACHE_HOME", self.place.path().join("cache"));
        command
    }

    /// A trace that may be changed.
    fn fresh_trace(&self) -> PathBuf {
        self.place.record(&Guest::new("hello")).dir
    }

    fn with<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        self.place.reprise(words)
    }
}

/// The subcommands, by the names that `--help` has for them; how each is to end; and how each is called. Those of running processes
/// have a test of their own.
type Call = fn(&Scene) -> Command;
const COMMANDS: [(&str, Status, Call); 31] = [
    ("record", Programs, |s| {
        let mut command = s.with(&["record", "-o"]);
        command.arg(s.place.fresh("trace"));
        command.args(["--", "/bin/sh", "-c", "exit 3"]);
        command
    }),
    ("run", Programs, |s| {
        s.with(&[OsStr::new("run"), OsStr::new("--"), s.quiet.as_os_str()])
    }),
    ("replay", Programs, |s| of(s, &["replay"])),
    ("verify", Data, |s| of(s, &["verify", "-n", "2"])),
    ("checkpoint", Data, |s| {
        let mut command = s.with(&["checkpoint", "--every", "3ev"]);
        command.arg(s.fresh_trace());
        command
    }),
    ("races", Data, |s| {
        let mut command = s.with(&["races"]);
        command.arg(&s.racing);
        command
    }),
    ("dump", Data, |s| of(s, &["dump"])),
    ("backtrace", Data, |s| of(s, &["backtrace"])),
    ("values", Data, |s| {
        of(s, &["values", "1", "--function", "main"])
    }),
    ("calls", Data, |s| of(s, &["calls", "main"])),
    ("where", Data, |s| of(s, &["where", "stderr"])),
    ("origin", Data, |s| of(s, &["origin", "stderr"])),
    ("diff", Data, |s| {
        let mut command = of(s, &["diff"]);
        command.arg(&s.hello);
        command
    }),
    ("bisect", Data, |s| {
        let ends = ["exit 1", "exit 0"].map(|script| {
            let shell = Guest::program("/bin/sh").args(["-c", script]);
            s.place.record(&shell).dir
        });
        let mut command = s.with(&["bisect"]);
        command.args(ends);
        command
    }),
    ("core", Silent, |s| {
        let mut command = s.with(&["core", "3"]);
        command.arg(&s.hello).arg("-o").arg(s.place.fresh("core"));
        command
    }),
    ("ps", Data, |s| of(s, &["ps"])),
    ("stretches", Data, |s| of(s, &["stretches", "--json"])),
    ("ls", Data, |s| s.with(&["ls", "--json"])),
    ("info", Data, |s| of(s, &["info"])),
    ("rm", Data, |s| {
        let mut command = s.with(&["rm"]);
        command.arg(s.fresh_trace());
        command
    }),
    ("pack", Data, |s| {
        let mut command = of(s, &["pack"]);
        command.arg("-o").arg(s.place.fresh("packed"));
        command
    }),
    ("export", Data, |s| {
        let mut command = of(s, &["export"]);
        command.args(["--perfetto", "-o", "-"]);
        command
    }),
    ("view", Data, |s| {
        let mut command = of(s, &["view"]);
        command.arg("-o").arg(s.place.fresh("page"));
        command
    }),
    ("cc", Programs, |s| compile(s, "cc")),
    ("c++", Programs, |s| compile(s, "c++")),
    ("cargo", Programs, |s| {
        let mut command = s.compiler("cargo");
        command.args(["locate-project", "--message-format", "plain", "-q"]);
        command.current_dir(common::top());
        command
    }),
    ("go", Programs, |s| s.with(&["go", "version"])),
    ("header", Data, |s| s.with(&["header"])),
    ("doctor", Data, |s| s.with(&["doctor"])),
    ("completions", Data, |s| s.with(&["completions", "bash"])),
    ("man", Data, |s| s.with(&["man", "record"])),
];

/// Subcommands that tests below are about, or those of `ask/mcp.rs` and `debug/dap.rs`.
const ELSEWHERE: [&str; 6] = ["attach", "snapshot", "stop", "demo", "mcp", "dap"];

fn of(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.with(words);
    command.arg(&scene.hello);
    command
}

fn compile(scene: &Scene, compiler: &str) -> Command {
    let mut command = scene.compiler(compiler);
    // One that has nothing to warn of: clang itself aborts when it can't.
    let language = if compiler == "cc" { "c" } else { "c++" };
    command.args(["-x", language, "-c"]);
    command.arg(scene.quiet.with_extension("c"));
    command.arg("-o").arg(scene.place.fresh("object"));
    command
}

/// How a command is to end whose outputs take nothing, if it ends like `usual` otherwise.
fn judge(status: Status, usual: &Run, fault: Fault, which: Which, now: &Run) {
    let told = format!(
        "{fault:?} {which:?}: {}\n{}",
        usual.describe(),
        now.describe()
    );
    now.assert_civil();
    let loses_data = status == Data && which != Which::Stderr;
    if !loses_data {
        assert_eq!(now.status, usual.status, "{told}");
        return;
    }
    assert!(!usual.stdout.is_empty(), "it has no data: {told}");
    match fault {
        Fault::Unread => assert_eq!(now.status.signal(), Some(libc::SIGPIPE), "{told}"),
        _ => assert_eq!(now.status.code(), Some(OWN_FAILURE), "{told}"),
    }
    if which == Which::Stdout && fault != Fault::Unread {
        assert!(now.said().contains("standard output"), "{told}");
    }
}

/// Every subcommand with all the outputs that take nothing.
fn go_through(commands: &[&str]) {
    let scene = Scene::new();
    for (name, status, call) in COMMANDS.iter().filter(|c| commands.contains(&c.0)) {
        let usual = run(&mut call(&scene), None);
        assert_ne!(
            usual.status.code(),
            Some(OWN_FAILURE),
            "{}",
            usual.describe()
        );
        for (fault, which) in ways() {
            let now = run(&mut fault.of(which, &call(&scene)), None);
            assert_ne!(now.status.code(), Some(101), "{name}: {}", now.describe());
            judge(*status, &usual, fault, which, &now);
        }
    }
}

#[test]
fn every_subcommand_is_tested_here() {
    let place = Workplace::new();
    let help = run(&mut place.reprise(["--help"]), None).text();
    let listed = help
        .lines()
        .skip_while(|l| *l != "Commands:")
        .skip(1)
        .take_while(|l| !l.is_empty())
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next());
    let mut count = 0;
    for name in listed {
        count += 1;
        let known = COMMANDS.iter().any(|c| c.0 == name) || ELSEWHERE.contains(&name);
        assert!(known, "`reprise {name}` is not tested with such outputs");
    }
    assert!(count > 20, "{help}");
    for (fault, which) in ways() {
        let command = place.reprise(["--help"]);
        let now = run(&mut fault.of(which, &command), None);
        let usual = run(&mut place.reprise(["--help"]), None);
        now.assert_civil();
        if which == Which::Stderr {
            assert_eq!(now.status, usual.status);
        } else {
            assert!(!now.status.success(), "{}", now.describe());
        }
        // A mistake keeps its status, whoever is told of it.
        let command = place.reprise(["recrod"]);
        let now = run(&mut fault.of(which, &command), None);
        assert_eq!(now.status.code(), Some(OWN_FAILURE), "{}", now.describe());
    }
}

#[test]
fn commands_that_run_programs() {
    go_through(&["record", "run", "replay", "verify", "races"]);
}

#[test]
fn commands_that_debug() {
    go_through(&[
        "backtrace",
        "core",
        "values",
        "calls",
        "where",
        "origin",
        "diff",
        "bisect",
    ]);
}

#[test]
fn commands_that_print_what_is_in_a_trace() {
    go_through(&["dump", "ps", "stretches", "info", "export", "view", "pack"]);
}

#[test]
fn commands_that_need_no_trace() {
    go_through(&["ls", "rm", "header", "doctor", "completions", "man"]);
}

#[test]
fn compilers() {
    go_through(&["cc", "c++", "cargo"]);
}

#[test]
fn a_page_that_nobody_is_told_of_is_not_served() {
    let scene = Scene::new();
    let command = of(&scene, &["view", "--no-browser"]);
    let full = run(&mut Fault::Full.of(Which::Both, &command), None);
    assert_eq!(full.status.code(), Some(OWN_FAILURE), "{}", full.describe());
}

#[test]
fn the_demo_ends_at_once_when_nobody_looks() {
    let place = Workplace::new();
    let command = place.reprise(["demo"]);
    let full = run(&mut Fault::Full.of(Which::Both, &command), None);
    assert_eq!(full.status.code(), Some(OWN_FAILURE), "{}", full.describe());
    let unread = run(&mut Fault::Unread.of(Which::Both, &command), None);
    assert_eq!(
        unread.status.signal(),
        Some(libc::SIGPIPE),
        "{}",
        unread.describe()
    );
    let unheard = run(&mut Fault::Closed.of(Which::Stderr, &command), None);
    assert!(unheard.status.success(), "{}", unheard.describe());
}

#[test]
fn commands_of_running_processes() {
    let place = Workplace::new();
    for (fault, which) in ways() {
        let process = Waiting::start();
        let pid = process.0.id().to_string();
        let trace = place.fresh("trace");
        let mut attach = place.reprise([OsStr::new("attach"), OsStr::new("-b"), OsStr::new("-o")]);
        attach.arg(&trace).arg(&pid);
        let begun = run(&mut fault.of(which, &attach), None);
        begun.assert_civil();
        assert!(begun.status.success(), "{}", begun.describe());
        let saved = place.fresh("snapshot");
        for (name, more) in [("snapshot", Some(&saved)), ("stop", None)] {
            let mut command = place.reprise([name, &pid]);
            if let Some(dir) = more {
                command.arg("-o").arg(dir);
            }
            let done = run(&mut fault.of(which, &command), None);
            done.assert_civil();
            match (which, fault) {
                (Which::Stderr, _) => assert!(done.status.success(), "{}", done.describe()),
                (_, Fault::Unread) => {
                    assert_eq!(
                        done.status.signal(),
                        Some(libc::SIGPIPE),
                        "{}",
                        done.describe()
                    );
                }
                _ => assert_eq!(done.status.code(), Some(OWN_FAILURE), "{}", done.describe()),
            }
        }
        // Both did what they were to do; only nobody was told.
        process.end();
        for dir in [&saved, &trace] {
            let replay = run(
                &mut place.reprise([OsStr::new("info"), dir.as_os_str()]),
                None,
            );
            assert!(replay.status.success(), "{}", replay.describe());
        }
    }
}

/// A recorded program finds its outputs as they are: it fails, or is killed, where it would be without Reprise; and so does its replay, whatever
/// becomes of the output.
#[test]
fn a_program_finds_its_outputs_as_they_are() {
    let place = Workplace::new();
    let file = place.path().join("file");
    std::fs::write(&file, "a line\n").expect("a file");
    let name = file.to_str().expect("a name");
    let list = "for fd in 0 1 2; do [ -e /proc/self/fd/$fd ] && s=$s$fd; done; case $s in 012) exit 12;; 01) exit 13;; 02) exit 14;; 0) exit 15;; esac; exit 16";
    let programs: [&[&str]; 4] = [
        &["/bin/cat", name],
        &["/bin/sh", "-c", "echo said; echo said >&2; exit 3"],
        &["/bin/bash", "-c", list],
        // What it opens first may be where its output was.
        &[
            "/bin/sh",
            "-c",
            "exec 5<>/dev/null; [ -e /dev/fd/5 ] && exit 4",
        ],
    ];
    for words in programs {
        for (fault, which) in ways() {
            let mut native = Command::new(words[0]);
            native.args(&words[1..]).current_dir(place.fresh_dir("cwd"));
            let native = run(&mut fault.of(which, &native), None);
            let trace = place.fresh("trace");
            let mut record = place.reprise(arguments(&["record", "-o"], &trace));
            record.arg("--").args(words);
            let recorded = run(&mut fault.of(which, &record), None);
            recorded.assert_civil();
            let status = native.status;
            let wanted = status
                .code()
                .map_or(Outcome::Signal(status.signal().unwrap_or(0)), Outcome::Exit);
            let told = format!(
                "{fault:?} {which:?}: {}\n{}",
                native.describe(),
                recorded.describe()
            );
            assert!(wanted.fits(recorded.status), "{told}");
            let replayed = place.replay(&trace);
            assert!(
                wanted.fits(replayed.status),
                "{told}\n{}",
                replayed.describe()
            );
            let replay = place.reprise(arguments(&["replay"], &trace));
            let replayed = run(&mut fault.of(which, &replay), None);
            assert!(
                wanted.fits(replayed.status),
                "{told}\n{}",
                replayed.describe()
            );
        }
    }
}

fn arguments(words: &[&str], last: &Path) -> Vec<OsString> {
    let words = words.iter().map(OsString::from);
    words.chain([last.as_os_str().into()]).collect()
}
