//! What the end-to-end tests share: guests, recordings, replays and the judgement that they are the same.
//!
//! A test records a guest (a small program of `tests/guests`) or a real program with the built `reprise`, replays it, and
//! compares standard output, standard error and exit status byte by byte. Nothing here waits for time to pass: every run
//! merely has a generous limit after which it counts as hung, is ended, and fails with a picture of what it was doing.
//!
//! Environment variables, all optional:
//! - `REPRISE_TEST_RECORDINGS`, `REPRISE_TEST_REPLAYS`: how often each guest is recorded, and each recording replayed (2 and 1).
//! - `REPRISE_TEST_FULL=1`: real programs with the sizes and counts of the long test (`scripts/stress.sh`).
//! - `REPRISE_TEST_DET_RACEY`: how often racing programs are run under `reprise run` (24).
//! - `REPRISE_TEST_HANG_SECONDS`: the limit for one run (120); a whole test has five times that, a long one twenty times (`watchdog.rs`).
//! - `REPRISE_TEST_STRICT=1`: tests that can't run here fail instead of being skipped.
//! - `REPRISE_TEST_JOURNAL`: a file to which each test adds what it did (see `journal.rs`); `scripts/test.sh` sets it, and says it all in the end.
//! - `REPRISE_TEST_PYTHONS`: more interpreters of Python whose stacks are looked at, paths with `:` between them (none; the system's own is always one).
//! - `REPRISE_TEST_KEEP=1`: failing tests leave their directory and say where it is.
#![allow(dead_code, clippy::print_stderr)]

pub mod attached;
pub mod browser;
pub mod debugging;
pub mod debugging_calls;
pub mod debugging_kept;
pub mod det;
pub mod gdb;
pub mod inputs;
pub mod journal;
pub mod kept;
pub mod leftovers;
pub mod order;
pub mod outsider;
pub mod redis;
pub mod tampered;
pub mod terminal;
pub mod watchdog;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{mpsc, Once};
use std::thread;
use std::time::{Duration, Instant};

/// Exit status of Reprise's own failures.
pub const OWN_FAILURE: i32 = 125;

/// The built command.
pub const REPRISE: &str = env!("CARGO_BIN_EXE_reprise");

/// A number from the environment.
pub fn knob(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(otherwise)
}

/// Whether the long test runs.
pub fn full() -> bool {
    knob("REPRISE_TEST_FULL", 0) == 1
}

/// How long one run may take before it counts as hung.
pub fn hang_limit() -> Duration {
    Duration::from_secs(knob("REPRISE_TEST_HANG_SECONDS", 120))
}

/// For a test that can't do here what it is for, as its last statement: `return skip("only root can do this")`. It is counted, and listed when all
/// tests are over (`scripts/test.sh`); where nothing may be left out it fails.
///
/// # Panics
/// With `REPRISE_TEST_STRICT=1`.
pub fn skip(why: &str) {
    let name = test_name();
    journal::write(&format!("skipped\t{name}\t{why}"));
    assert!(
        knob("REPRISE_TEST_STRICT", 0) != 1,
        "{name} can't run here, and REPRISE_TEST_STRICT wants all tests to run: {why}"
    );
    eprintln!("skipped: {why}");
}

/// Which test this is: its file and its name.
pub fn test_name() -> String {
    let file = std::env::current_exe().unwrap_or_default();
    let file = file.file_stem().unwrap_or_default().to_string_lossy();
    let file = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
    let thread = thread::current();
    format!("{file}::{}", thread.name().unwrap_or("?"))
}

/// The project's top directory.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the project's directory")
}

/// Where the guests' sources are.
pub fn sources() -> PathBuf {
    top().join("tests/guests")
}

/// The text of these end-to-end tests: of one of their folders, or of all of them, as far as `wanted` says by a file's name.
pub fn sources_of_tests(folder: &str, wanted: impl Fn(&str) -> bool + Copy) -> String {
    let mut text = String::new();
    let mut left = vec![top().join("crates/reprise/tests").join(folder)];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("the tests").flatten();
            left.extend(entries.map(|e| e.path()));
        } else if wanted(&path.file_name().unwrap_or_default().to_string_lossy()) {
            text += &std::fs::read_to_string(&path).expect("a test");
        }
    }
    text
}

/// A built guest; builds all that are out of date when asked for the first time.
pub fn built(name: &str) -> PathBuf {
    static BUILD: Once = Once::new();
    BUILD.call_once(|| {
        let out = Command::new("sh")
            .arg(top().join("scripts/build-guests.sh"))
            .output()
            .expect("sh");
        assert!(
            out.status.success(),
            "scripts/build-guests.sh failed:\n{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    });
    let path = sources().join("bin").join(name);
    assert!(path.exists(), "guest {name} was not built: is its compiler missing? (scripts/setup-tests.sh installs them)");
    path
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It doesn't matter, as long as a replay ends the same way.
    Any,
}

impl Outcome {
    /// Reads `0`, `SIGSEGV` or `any`.
    fn parse(text: &str) -> Outcome {
        const NAMES: [(&str, i32); 13] = [
            ("SIGSYS", 31),
            ("SIGILL", 4),
            ("SIGTRAP", 5),
            ("SIGABRT", 6),
            ("SIGBUS", 7),
            ("SIGFPE", 8),
            ("SIGKILL", 9),
            ("SIGUSR1", 10),
            ("SIGSEGV", 11),
            ("SIGPIPE", 13),
            ("SIGALRM", 14),
            ("SIGTERM", 15),
            ("SIGRTMIN", 34),
        ];
        match text {
            "any" => Outcome::Any,
            _ => match NAMES.iter().find(|(name, _)| *name == text) {
                Some((_, number)) => Outcome::Signal(*number),
                None => Outcome::Exit(
                    text.parse()
                        .unwrap_or_else(|_| panic!("no outcome: {text:?}")),
                ),
            },
        }
    }

    /// Whether a command that passes on a program's outcome did so. A shell's way of saying "ended by signal n" (128 + n)
    /// counts as well.
    pub fn fits(self, status: ExitStatus) -> bool {
        match self {
            Outcome::Any => status.code() != Some(OWN_FAILURE),
            Outcome::Exit(wanted) => status.code() == Some(wanted),
            Outcome::Signal(wanted) => {
                status.signal() == Some(wanted) || status.code() == Some(128 + wanted)
            }
        }
    }
}

/// A directory of one test's own, with room for traces and for the places that programs run in.
pub struct Workplace {
    dir: Option<tempfile::TempDir>,
    next: AtomicU32,
    tries: journal::Tries,
    _watched: watchdog::Watched,
}

impl Workplace {
    /// A new one.
    pub fn new() -> Workplace {
        let dir = tempfile::Builder::new()
            .prefix("reprise-test-")
            .tempdir()
            .expect("a temporary directory");
        std::fs::create_dir(dir.path().join("traces")).expect("a directory for traces");
        Workplace {
            dir: Some(dir),
            next: AtomicU32::new(0),
            tries: journal::Tries::begin(),
            _watched: watchdog::Watched::begin(),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().expect("still there").path()
    }

    /// Where traces go that are given no name.
    pub fn traces(&self) -> PathBuf {
        self.path().join("traces")
    }

    /// A path inside that nothing has yet.
    pub fn fresh(&self, what: &str) -> PathBuf {
        self.path().join(format!(
            "{what}-{}",
            self.next.fetch_add(1, Ordering::Relaxed)
        ))
    }

    /// A new empty directory inside.
    pub fn fresh_dir(&self, what: &str) -> PathBuf {
        let dir = self.fresh(what);
        std::fs::create_dir(&dir).expect("a new directory");
        dir
    }

    /// `reprise` with arguments, not yet started: its traces stay inside this workplace.
    pub fn reprise<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Command {
        let mut command = Command::new(REPRISE);
        command.args(args);
        self.tries.count(command.get_args().next());
        self.settle(&mut command);
        command
    }

    /// Gives a command this workplace's trace directory and a fresh directory to run in.
    pub fn settle(&self, command: &mut Command) {
        command
            .env_remove("RUST_BACKTRACE")
            .env_remove("REPRISE_LOG")
            .env("REPRISE_TRACE_DIR", self.traces())
            .current_dir(self.fresh_dir("cwd"));
    }

    /// Records a guest into a trace of its own.
    pub fn record(&self, guest: &Guest) -> Recording {
        self.record_with(guest, &[])
    }

    /// Records a guest with more arguments for `reprise record`.
    pub fn record_with(&self, guest: &Guest, flags: &[&str]) -> Recording {
        let dir = self.fresh("trace");
        let mut command = self.record_command(guest, flags, &dir);
        let run = run(&mut command, guest.stdin.as_deref());
        Recording { run, dir }
    }

    /// The command that [`Workplace::record_with`] runs.
    pub fn record_command(&self, guest: &Guest, flags: &[&str], dir: &Path) -> Command {
        let mut command = self.reprise([OsStr::new("record"), OsStr::new("-o"), dir.as_os_str()]);
        command
            .args(flags)
            .arg("--")
            .arg(&guest.program)
            .args(&guest.args);
        guest.prepare(&mut command);
        command
    }

    /// Replays a trace.
    pub fn replay(&self, dir: &Path) -> Run {
        self.replay_with(dir, &[])
    }

    /// Replays a trace in another way.
    pub fn replay_with(&self, dir: &Path, flags: &[&str]) -> Run {
        let mut command = self.reprise([OsStr::new("replay"), dir.as_os_str()]);
        run(command.args(flags), None)
    }

    /// Verifies a trace with one replay.
    pub fn verify(&self, dir: &Path) -> Run {
        self.verify_with(dir, &[])
    }

    /// Verifies a trace in another way, with one replay unless the flags say otherwise.
    pub fn verify_with(&self, dir: &Path, flags: &[&str]) -> Run {
        let mut command = self.reprise([OsStr::new("verify"), dir.as_os_str()]);
        let times: &[&str] = match flags.contains(&"-n") {
            true => &[],
            false => &["-n", "1"],
        };
        run(command.args(times).args(flags), None)
    }

    /// Leaves the directory where it is when the user wants failures to be kept.
    pub fn keep(mut self) {
        if let (1, Some(dir)) = (knob("REPRISE_TEST_KEEP", 0), self.dir.take()) {
            eprintln!("kept: {}", dir.keep().display());
        }
    }

    /// `reprise info --json`.
    pub fn info(&self, dir: &Path) -> Info {
        let out = run(
            &mut self.reprise([OsStr::new("info"), OsStr::new("--json"), dir.as_os_str()]),
            None,
        );
        assert!(
            out.status.success(),
            "reprise info --json failed: {}",
            out.describe()
        );
        Info(
            serde_json::from_slice(&out.stdout)
                .unwrap_or_else(|e| panic!("info --json is not JSON ({e}): {}", out.describe())),
        )
    }
}

impl Default for Workplace {
    fn default() -> Self {
        Workplace::new()
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            if thread::panicking() && knob("REPRISE_TEST_KEEP", 0) == 1 {
                eprintln!("kept: {}", dir.keep().display());
            }
        }
    }
}

/// A program to be recorded, with its arguments, environment and input.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables added to its environment.
    pub env: Vec<(OsString, OsString)>,
    /// What stands on its standard input (nothing: /dev/null).
    pub stdin: Option<Vec<u8>>,
    /// How it must end.
    pub outcome: Outcome,
}

impl Guest {
    /// A built guest without arguments that is to end with 0.
    pub fn new(name: &str) -> Guest {
        Guest::program(built(name))
    }

    /// Any program that is to end with 0.
    pub fn program(path: impl Into<PathBuf>) -> Guest {
        Guest {
            program: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: None,
            outcome: Outcome::Exit(0),
        }
    }

    /// With more arguments.
    pub fn args<I: IntoIterator<Item = S>, S: Into<OsString>>(mut self, args: I) -> Guest {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// With one of its arguments, a number, so many times as large; `None` when it has no such argument.
    pub fn larger(mut self, argument: usize, times: u64) -> Option<Guest> {
        let number: u64 = self.args.get(argument)?.to_str()?.parse().ok()?;
        self.args[argument] = (number * times).to_string().into();
        Some(self)
    }

    /// With an environment variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Guest {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With this standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Guest {
        self.stdin = Some(bytes.into());
        self
    }

    /// With this end.
    pub fn ends(mut self, outcome: Outcome) -> Guest {
        self.outcome = outcome;
        self
    }

    fn prepare(&self, command: &mut Command) {
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
    }

    /// A short name for messages.
    pub fn label(&self) -> String {
        let mut text = self
            .program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for a in &self.args {
            let _ = write!(text, " {}", a.to_string_lossy());
        }
        text
    }

    /// Runs it by itself, without Reprise.
    pub fn native(&self, place: &Workplace) -> Run {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(place.fresh_dir("cwd"));
        self.prepare(&mut command);
        run(&mut command, self.stdin.as_deref())
    }
}

/// Endings of guests' sources, and what runs those that are not compiled.
const LANGUAGES: [(&str, Option<&str>); 7] = [
    ("c", None),
    ("cpp", None),
    ("go", None),
    ("rs", None),
    ("py", Some("python3")),
    ("sh", Some("bash")),
    ("pl", Some("perl")),
];

/// What the comments at the top of a guest's source say (see `tests/guests/guest.h`).
pub struct Source {
    /// Names of what is built from it: the plain one, then its variants.
    pub builds: Vec<String>,
    /// What runs the source as it is, for languages that are not compiled; and the source.
    pub interpreted: Option<(&'static str, PathBuf)>,
    /// Arguments and outcome of each way to run it.
    pub runs: Vec<(Vec<String>, Outcome)>,
    /// Only one recording and one replay in the ordinary tests.
    pub heavy: bool,
}

impl Source {
    /// Reads the comments of the source with this name.
    pub fn read(name: &str) -> Source {
        let (path, interpreter) = LANGUAGES
            .iter()
            .map(|(ext, interpreter)| (sources().join(format!("{name}.{ext}")), interpreter))
            .find(|(path, _)| path.exists())
            .unwrap_or_else(|| panic!("no source of guest {name} in {}", sources().display()));
        let text = std::fs::read_to_string(&path).expect("a guest's source");
        let mut source = Source {
            builds: vec![name.to_string()],
            interpreted: interpreter.map(|program| (program, path)),
            runs: Vec::new(),
            heavy: false,
        };
        for line in text.lines() {
            let Some(line) = line.strip_prefix("// ").or_else(|| line.strip_prefix("# ")) else {
                continue;
            };
            if let Some(rest) = line.strip_prefix("variant: ") {
                source.builds.push(format!(
                    "{name}-{}",
                    rest.split_whitespace().next().expect("a variant's name")
                ));
            } else if let Some(rest) = line.strip_prefix("run:") {
                let (args, outcome) = match rest.split_once("=>") {
                    Some((args, outcome)) => (args, Outcome::parse(outcome.trim())),
                    None => (rest, Outcome::Exit(0)),
                };
                source.runs.push((words(args), outcome));
            } else if line.trim_end() == "heavy" {
                source.heavy = true;
            }
        }
        if source.runs.is_empty() {
            source.runs.push((Vec::new(), Outcome::Exit(0)));
        }
        source
    }

    /// Every build in every way to run it; the first of them is the plain one.
    pub fn guests(&self) -> Vec<Guest> {
        let mut all = Vec::new();
        for build in &self.builds {
            for (args, outcome) in &self.runs {
                let guest = match &self.interpreted {
                    Some((program, source)) => {
                        Guest::program(system_program(program)).args([source])
                    }
                    None => Guest::new(build),
                };
                all.push(guest.args(args).ends(*outcome));
            }
        }
        all
    }
}

/// Splits at spaces, honouring double quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in text.split('"').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_string());
        } else {
            words.extend(part.split_whitespace().map(str::to_string));
        }
    }
    words
}

/// Names of all sources of guests for the tests to go through.
pub fn all_sources() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(sources())
        .expect("tests/guests")
        .filter_map(|e| {
            let path = e.expect("an entry").path();
            let ext = path.extension()?.to_str()?.to_string();
            let name = path.file_stem()?.to_str()?.to_string();
            LANGUAGES
                .iter()
                .any(|(known, _)| *known == ext)
                .then_some(name)
        })
        .collect();
    names.sort();
    names
}

/// A command that has ended.
pub struct Run {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, without what Reprise itself said there.
    pub stderr: Vec<u8>,
    /// What Reprise itself said on standard error.
    pub notes: String,
    /// How it ended.
    pub status: ExitStatus,
    /// The command, for messages.
    pub command: String,
}

impl Run {
    /// Everything that there is to know about it, shortened.
    pub fn describe(&self) -> String {
        format!(
            "{}\n  status: {}\n  stdout: {}\n  stderr: {}\n  notes:  {}",
            self.command,
            self.status,
            shorten(&self.stdout),
            shorten(&self.stderr),
            shorten(self.notes.as_bytes())
        )
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error and notes together, as a person would see them.
    pub fn said(&self) -> String {
        format!("{}{}", self.notes, String::from_utf8_lossy(&self.stderr))
    }

    /// It failed as Reprise fails: status 125 (or another given one), a message for people, no panic.
    pub fn assert_own_failure(&self, status: i32) {
        assert_eq!(
            self.status.code(),
            Some(status),
            "wrong status: {}",
            self.describe()
        );
        assert!(
            !self.said().trim().is_empty(),
            "no message: {}",
            self.describe()
        );
        self.assert_civil();
    }

    /// Whatever happened, it was said politely: no panic, no crash of Reprise itself.
    pub fn assert_civil(&self) {
        // Guests in Rust panic on purpose.
        let panicked = self
            .said()
            .lines()
            .any(|l| l.contains("panicked at") && !l.contains("panicked at rust_"));
        assert!(!panicked, "a panic: {}", self.describe());
    }
}

fn shorten(bytes: &[u8]) -> String {
    const MOST: usize = 600;
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= 2 * MOST {
        return text.into_owned();
    }
    let head: String = text.chars().take(MOST).collect();
    let tail: String = text
        .chars()
        .rev()
        .take(MOST)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    format!("{head}\n    [... {} bytes in all ...]\n{tail}", bytes.len())
}

/// A recorded run.
pub struct Recording {
    /// What the recorded program did.
    pub run: Run,
    /// Its trace.
    pub dir: PathBuf,
}

/// What `reprise info --json` says.
pub struct Info(pub serde_json::Value);

impl Info {
    /// Number of events.
    pub fn events(&self) -> u64 {
        self.0["events"]
            .as_u64()
            .unwrap_or_else(|| panic!("no `events` in {}", self.0))
    }

    /// Number of events of a kind.
    pub fn kind(&self, name: &str) -> u64 {
        self.0["events_by_kind"][name].as_u64().unwrap_or(0)
    }

    /// A counter.
    pub fn counter(&self, name: &str) -> u64 {
        self.0["counters"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter `{name}` in {}", self.0))
    }
}

/// Runs a command to its end, with this standard input, in a process group of its own.
///
/// # Panics
/// When it can't be started, or takes longer than [`hang_limit`].
pub fn run(command: &mut Command, stdin: Option<&[u8]>) -> Run {
    Running::start(command, stdin).finish()
}

/// Marks a command for [`Running`].
const LOSES: &str = "REPRISE_TEST_LOSES_PROCESSES";

/// The test expects that a process is not captured by this recording; in all others that is a failure.
pub fn expect_uncaptured(command: &mut Command) -> &mut Command {
    command.env(LOSES, "1")
}

/// A recording of which nobody knows whether all of its processes are captured: one that is attacked.
pub fn allow_uncaptured(command: &mut Command) -> &mut Command {
    command.env(LOSES, "perhaps")
}

/// A command that has not ended yet.
pub struct Running {
    /// The process.
    pub child: Child,
    /// The command, for messages.
    pub command: String,
    /// Does the test expect it to lose a process? `None`: it may.
    loses: Option<bool>,
    stdout: Option<mpsc::Receiver<Vec<u8>>>,
    stderr: mpsc::Receiver<Vec<u8>>,
}

fn collect(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

impl Running {
    /// Starts a command; its output is collected.
    pub fn start(command: &mut Command, stdin: Option<&[u8]>) -> Running {
        let mut running = Running::start_reading(command, stdin);
        running.collect_stdout();
        running
    }

    /// Starts a command; its standard output is left for the test to read, from `child.stdout`.
    pub fn start_reading(command: &mut Command, stdin: Option<&[u8]>) -> Running {
        let label = describe_command(command);
        let loses = match command.get_envs().find(|(name, _)| *name == LOSES) {
            Some((_, value)) => (value == Some(OsStr::new("1"))).then_some(true),
            None => Some(false),
        };
        command.env_remove(LOSES).stdin(if stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {label}: {e}"));
        if let (Some(bytes), Some(mut pipe)) = (stdin.map(<[u8]>::to_vec), child.stdin.take()) {
            thread::spawn(move || {
                let _ = pipe.write_all(&bytes);
            });
        }
        let stderr = collect(child.stderr.take().expect("a pipe"));
        Running {
            child,
            command: label,
            loses,
            stdout: None,
            stderr,
        }
    }

    /// Collects the rest of standard output from now on.
    pub fn collect_stdout(&mut self) {
        self.stdout = self.child.stdout.take().map(collect);
    }

    /// Its process id, which is also its process group.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Processes of its group that are alive.
    pub fn members(&self) -> Vec<i32> {
        group_members(self.pid())
    }

    /// As [`Running::finish`], when it ends within this time. When it doesn't, it is killed, with its process group.
    pub fn finish_within(mut self, limit: Duration) -> Option<Run> {
        let begun = Instant::now();
        while self.child.try_wait().expect("wait").is_none() {
            if begun.elapsed() > limit {
                // SAFETY: a group that this test started; its leader is not reaped yet.
                unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
                let _ = self.child.wait();
                return None;
            }
            thread::park_timeout(Duration::from_millis(5));
        }
        Some(self.finish())
    }

    /// Waits for its end, and for the end of everything that holds its output open.
    ///
    /// # Panics
    /// When it hangs, or when it is a recording that a process escaped, unless [`expect_uncaptured`] said so.
    pub fn finish(mut self) -> Run {
        if self.stdout.is_none() {
            self.collect_stdout();
        }
        let Running {
            mut child,
            command,
            loses,
            stdout,
            stderr,
        } = self;
        let (group, limit) = (child.id() as i32, hang_limit());
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            let _ = sender.send(child.wait());
        });
        let Ok(status) = ended.recv_timeout(limit) else {
            give_up(group, &command, "did not end", limit, &stderr)
        };
        let status = status.expect("wait");
        let out = match stdout.map(|r| r.recv_timeout(limit)) {
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) => give_up(
                group,
                &command,
                "ended, but something still holds its standard output open",
                limit,
                &stderr,
            ),
            None => Vec::new(),
        };
        let Ok(err) = stderr.recv_timeout(limit) else {
            give_up(
                group,
                &command,
                "ended, but something still holds its standard error open",
                limit,
                &stderr,
            )
        };
        let (err, notes) = split_notes(&err);
        let escaped = notes.contains("reprise: uncaptured:");
        if let Some(loses) = loses {
            assert_eq!(escaped, loses, "uncaptured processes: {command}\n{notes}");
        }
        Run {
            stdout: out,
            stderr: err,
            notes,
            status,
            command,
        }
    }
}

/// Waits for the end of a process that a test started without more ado.
///
/// # Panics
/// When it hangs: it is killed.
pub fn ended(child: &mut Child) -> ExitStatus {
    drop(child.stdin.take());
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status;
        }
        if begun.elapsed() > hang_limit() {
            let picture = picture(&[child.id() as i32]);
            let _ = child.kill();
            let _ = child.wait();
            panic!("HANG: no end within {:?}\n{picture}", hang_limit());
        }
        thread::park_timeout(Duration::from_millis(5));
    }
}

fn describe_command(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for a in command.get_args() {
        let _ = write!(text, " {}", a.to_string_lossy());
    }
    text
}

/// Lines that Reprise itself wrote, and the rest.
fn split_notes(stderr: &[u8]) -> (Vec<u8>, String) {
    let (mut rest, mut notes) = (Vec::new(), String::new());
    for line in stderr.split_inclusive(|b| *b == b'\n') {
        if line.starts_with(b"reprise: ") || line.starts_with(b"reprise:\t") {
            notes.push_str(&String::from_utf8_lossy(line));
        } else {
            rest.extend_from_slice(line);
        }
    }
    (rest, notes)
}

/// Processes of a process group that are alive (not zombies).
pub fn group_members(group: i32) -> Vec<i32> {
    living(|_, its| its == group)
}

/// Processes that are alive (not zombies), of which parent and group are wanted.
fn living(wanted: impl Fn(i32, i32) -> bool) -> Vec<i32> {
    let mut members = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // After the name in parentheses: state, parent, group.
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |n: usize| fields.get(n).and_then(|f| f.parse().ok()).unwrap_or(-1);
        if wanted(number(1), number(2)) && !matches!(fields[0], "Z" | "X") {
            members.push(pid);
        }
    }
    members
}

/// What the threads of processes are doing, for the message about a hang.
fn picture(processes: &[i32]) -> String {
    let mut text = String::new();
    for pid in processes {
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
            .take(12)
        {
            let read = |name: &str| {
                std::fs::read_to_string(task.path().join(name))
                    .unwrap_or_default()
                    .trim()
                    .to_string()
            };
            let stat = read("stat");
            let state = stat
                .rsplit_once(") ")
                .map_or("?", |(_, rest)| &rest[..1])
                .to_string();
            let _ = writeln!(
                text,
                "    process {pid} thread {} ({}) state {state}, in {}, call {}",
                task.file_name().to_string_lossy(),
                read("comm"),
                read("wchan"),
                read("syscall")
            );
        }
    }
    text
}

/// Ends a process group that the test started, and fails.
fn give_up(
    group: i32,
    command: &str,
    what: &str,
    limit: Duration,
    stderr: &mpsc::Receiver<Vec<u8>>,
) -> ! {
    let picture = picture(&group_members(group));
    // SAFETY: sends a signal, nothing else.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    let said = stderr
        .recv_timeout(Duration::from_secs(5))
        .unwrap_or_default();
    panic!(
        "HANG: {command}\n  {what} within {limit:?}\n{picture}  stderr so far: {}",
        shorten(&said)
    );
}

/// Where two outputs differ first, in words; `None` when they are the same.
pub fn difference(what: &str, recorded: &[u8], replayed: &[u8]) -> Option<String> {
    if recorded == replayed {
        return None;
    }
    let (mut a, mut b) = (
        recorded.split(|c| *c == b'\n'),
        replayed.split(|c| *c == b'\n'),
    );
    let mut line = 1;
    loop {
        let (x, y) = (a.next(), b.next());
        if x != y {
            let show = |l: Option<&[u8]>| l.map_or("(nothing)".into(), shorten);
            return Some(format!(
                "{what} differs in line {line} ({} and {} bytes in all)\n    recorded: {}\n    replayed: {}",
                recorded.len(),
                replayed.len(),
                show(x),
                show(y)
            ));
        }
        line += 1;
    }
}

/// Why a replay is not the recording again; `None` when it is.
pub fn mismatch(recorded: &Run, replayed: &Run) -> Option<String> {
    let mut why = Vec::new();
    if recorded.status != replayed.status {
        why.push(format!(
            "status differs: recorded {}, replayed {}",
            recorded.status, replayed.status
        ));
    }
    why.extend(difference("stdout", &recorded.stdout, &replayed.stdout));
    if replayed.status != recorded.status && replayed.status.code() == Some(OWN_FAILURE) {
        // What stands on standard error is the report.
        why.push(shorten(replayed.said().as_bytes()));
    } else {
        why.extend(difference("stderr", &recorded.stderr, &replayed.stderr));
    }
    (!why.is_empty()).then(|| why.join("\n  "))
}

/// Asserts that a replay is the recording again.
pub fn assert_same(recorded: &Run, replayed: &Run) {
    if let Some(why) = mismatch(recorded, replayed) {
        panic!(
            "replay differs from its recording\n  {}\n  {why}",
            recorded.command
        );
    }
}

/// Records a guest `recordings` times, replays each `replays` times, verifies each once; gives back what `info` says of each.
///
/// # Errors
/// What was not as it should be, for every recording.
pub fn try_times(
    guest: &Guest,
    flags: &[&str],
    recordings: u64,
    replays: u64,
) -> Result<Vec<Info>, String> {
    let place = Workplace::new();
    let (mut infos, mut failures) = (Vec::new(), Vec::new());
    for i in 0..recordings {
        let recording = place.record_with(guest, flags);
        if !guest.outcome.fits(recording.run.status) {
            failures.push(format!(
                "recording {i} ended wrongly, wanted {:?}: {}",
                guest.outcome,
                recording.run.describe()
            ));
            continue;
        }
        let before = failures.len();
        for j in 0..replays {
            let replay = place.replay(&recording.dir);
            replay.assert_civil();
            if let Some(why) = mismatch(&recording.run, &replay) {
                let notes = shorten(recording.run.notes.as_bytes());
                failures.push(format!(
                    "recording {i}, replay {j}: {why}\n  notes of the recording: {notes}"
                ));
            }
        }
        let info = place.info(&recording.dir);
        if failures.len() == before {
            // Replays were in partial order, where the engine knows of one.
            let verify = place.verify_with(&recording.dir, &["--order", "total"]);
            if !verify.status.success() {
                failures.push(format!(
                    "recording {i} was not verified: {}",
                    verify.describe()
                ));
            }
        }
        infos.push(info);
        if failures.len() == before {
            let _ = std::fs::remove_dir_all(&recording.dir);
        }
    }
    if failures.is_empty() {
        return Ok(infos);
    }
    place.keep();
    Err(format!(
        "{}: {} failures\n{}",
        guest.label(),
        failures.len(),
        failures.join("\n")
    ))
}

/// [`try_times`], for tests of a single guest.
///
/// # Panics
/// With what was not as it should be.
pub fn check_times(guest: &Guest, flags: &[&str], recordings: u64, replays: u64) -> Vec<Info> {
    try_times(guest, flags, recordings, replays).unwrap_or_else(|why| panic!("{why}"))
}

/// The guest with one argument made so large that a recording of it is cut in mid-code: how much work takes longer than a slice
/// depends on the machine. Every recording made on the way is replayed and compared.
///
/// # Panics
/// When no size is cut, or when a replay is not its recording.
pub fn large_enough_to_be_cut(guest: &Guest, argument: usize) -> Guest {
    const SIZES: [u64; 6] = [1, 4, 16, 64, 256, 1024];
    for times in SIZES {
        let Some(larger) = guest.clone().larger(argument, times) else {
            break;
        };
        let infos = check_times(&larger, &[], 1, 1);
        if infos[0].counter("cuts") > 0 {
            return larger;
        }
    }
    panic!("{}: never cut in mid-code", guest.label());
}

/// Goes through all builds and all ways to run the guest with this source; gives back the label and the facts of each.
///
/// # Panics
/// When any of them fails, after all were tried.
pub fn check(name: &str) -> Vec<(String, Vec<Info>)> {
    let source = Source::read(name);
    let (recordings, replays) = (
        knob("REPRISE_TEST_RECORDINGS", 2),
        knob("REPRISE_TEST_REPLAYS", 1),
    );
    let asked = std::env::var_os("REPRISE_TEST_RECORDINGS").is_some();
    let (mut facts, mut failures) = (Vec::new(), Vec::new());
    for guest in source.guests() {
        let plain =
            source.interpreted.is_some() || guest.program.file_name() == Some(OsStr::new(name));
        let once = (source.heavy || !plain) && !asked;
        let (r, p) = if once { (1, 1) } else { (recordings, replays) };
        // A hang panics; the other ways to run the guest are tried all the same.
        match std::panic::catch_unwind(|| try_times(&guest, &[], r, p)) {
            Ok(Ok(infos)) => facts.push((guest.label(), infos)),
            Ok(Err(why)) => failures.push(why),
            Err(why) => failures.push(format!("{}: {}", guest.label(), message(&*why))),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    facts
}

/// The text of a panic.
pub fn message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_string()))
        .unwrap_or_else(|| "a panic without text".into())
}

/// One `#[test]` for each named guest: recorded, replayed, compared.
#[macro_export]
macro_rules! guests {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { $crate::common::check(stringify!($name)); })*
    };
}

/// One `#[test]` for each guest, in modules by what they are about: `tests! { check; calls { hello, other_name = pipes["20"] } }`. A guest with arguments,
/// of which there may be several tests, has a name before it. `check` is given the guest's name and its arguments.
#[macro_export]
macro_rules! tests {
    ($check:ident; $($group:ident { $($test:ident $(= $guest:literal [$($arg:literal),*])?),* $(,)? })*) => {
        $(mod $group {
            $(#[test] fn $test() { $crate::tests!(@ $check $test $($guest [$($arg),*])?); })*
        })*
    };
    (@ $check:ident $test:ident) => { super::$check(stringify!($test), &[]) };
    (@ $check:ident $test:ident $guest:literal [$($arg:literal),*]) => { super::$check($guest, &[$($arg),*]) };
}

/// Tests that are shared by engines, with flags for the recording.
#[macro_export]
macro_rules! sessions {
    ($module:ident, $flags:expr; $($name:ident),* $(,)?) => {
        $(#[test] fn $name() { $crate::common::$module::$name($flags); })*
    };
}

/// Guests that do not pass yet, each with what is missing. They are run by `cargo test -- --ignored`.
#[macro_export]
macro_rules! not_yet {
    ($($name:ident: $why:literal),* $(,)?) => {
        $(#[test] #[ignore = $why] fn $name() { $crate::common::check(stringify!($name)); })*
    };
}

/// What an output looks like when the numbers in it, and the order of its lines, are left out of account.
pub fn shape(output: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(output)
        .lines()
        .map(|line| {
            let (mut text, chars) = (String::new(), line.as_bytes());
            let mut i = 0;
            while i < chars.len() {
                let start = i;
                let mut j = i + usize::from(chars[i] == b'-');
                if chars[j..].starts_with(b"0x") {
                    j += 2;
                    while j < chars.len() && chars[j].is_ascii_hexdigit() {
                        j += 1;
                    }
                } else {
                    while j < chars.len() && chars[j].is_ascii_digit() {
                        j += 1;
                    }
                }
                let digits = j > start && chars[j - 1].is_ascii_hexdigit() && chars[j - 1] != b'-';
                if digits && (chars[start].is_ascii_digit() || chars[start] == b'-') {
                    text.push('#');
                    i = j;
                } else {
                    text.push(char::from(chars[i]));
                    i += 1;
                }
            }
            text
        })
        .collect();
    lines.sort();
    lines
}

/// Whether a program is installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|d| d.join(program))
        .find(|p| p.is_file())
}

/// The path of a program of the system; prefers /usr/bin, where no wrapper script is.
///
/// # Panics
/// When it isn't installed.
pub fn system_program(name: &str) -> PathBuf {
    for directory in ["/usr/bin", "/usr/sbin"] {
        let usual = Path::new(directory).join(name);
        if usual.is_file() {
            return usual;
        }
    }
    installed(name).unwrap_or_else(|| {
        panic!("{name} is not installed: scripts/setup-tests.sh installs what the tests need")
    })
}

/// Interpreters of Python whose stacks can be told: the system's, if it is new enough, and those that the environment names.
pub fn pythons() -> Vec<PathBuf> {
    let system = system_program("python3");
    let can =
        "import sys; sys.exit(sys.version_info < (3, 11) or sys.implementation.name != 'cpython')";
    let asked = Command::new(&system).args(["-c", can]).status();
    let system = Some(system).filter(|_| asked.is_ok_and(|s| s.success()));
    let more = std::env::var_os("REPRISE_TEST_PYTHONS").unwrap_or_default();
    let more = std::env::split_paths(&more).filter(|p| !p.as_os_str().is_empty());
    system.into_iter().chain(more).collect()
}

/// A port of this machine on which nobody listens, below those that the kernel gives to whoever connects (ip(7), `ip_local_port_range`): none of the
/// connections that other tests make meanwhile takes it.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let from = std::process::id().wrapping_mul(37);
    (0..COUNT)
        .map(|_| FIRST + from.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT)
        .map(|port| port as u16)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port")
}

/// Connects to a server as soon as it listens.
pub fn connect(server: &mut Running, port: u16) -> TcpStream {
    let asked = Instant::now();
    loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream
                .set_read_timeout(Some(hang_limit()))
                .expect("a limit");
            stream.set_nodelay(true).expect("no delay");
            return stream;
        }
        if let Some(status) = server.child.try_wait().expect("wait") {
            let said = server.stderr.recv_timeout(hang_limit()).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            panic!(
                "{} ended with {status} before it listened: {said}",
                server.command
            );
        }
        assert!(
            asked.elapsed() < hang_limit(),
            "HANG: {} never listened",
            server.command
        );
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// memcached on a port, with so many threads; root has to be told to stay root.
pub fn memcached(threads: u32, port: u16) -> Guest {
    let (threads, port) = (threads.to_string(), port.to_string());
    let guest = Guest::program(system_program("memcached")).args([
        "-t",
        &threads,
        "-p",
        &port,
        "-l",
        "127.0.0.1",
        "-U",
        "0",
        "-m",
        "16",
    ]);
    // SAFETY: asks for an id.
    match unsafe { libc::getuid() } {
        0 => guest.args(["-u", "root"]),
        _ => guest,
    }
}

/// A generator of numbers for tests, seeded, so that a failure can be repeated.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}
