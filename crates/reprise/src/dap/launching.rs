//! `launch` and `attach`: a program is recorded, or a trace is opened; then a replay and gdb are started.

use super::gdb::{console, Gdb, TOKEN};
use super::mi::quoted;
use super::session::Session;
use super::wire::{hear_text, Heard};
use crate::cli::parse_place;
use crate::debug;
use crate::processes::{ProcessName, Processes};
use crate::recordings::programs_of;
use anyhow::{bail, ensure, Context, Result};
use reprise_debug::Place;
use reprise_launch::process;
use reprise_trace::{Catalog, Summary, EVENTS_FILE};
use rustix::process::{set_parent_process_death_signal, Signal};
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Between two looks whether a recording in a terminal has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Between two rounds in which what is left of a program is ended, ...
const ROUND: Duration = Duration::from_millis(100);
/// ... and how many there are.
const ROUNDS: u32 = 100;
/// Exit statuses of `record` that are its own: nothing was recorded.
const OWN: std::ops::RangeInclusive<i32> = 125..=127;

/// What `launch` and `attach` are told; what else is in a configuration is the editor's.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wanted {
    /// The program that is recorded, ...
    program: Option<String>,
    args: Vec<String>,
    cwd: Option<PathBuf>,
    /// ... with these variables, or without them (null).
    env: BTreeMap<String, Option<String>>,
    /// Options of `reprise record`.
    record: Vec<String>,
    /// Where it runs: `internalConsole`, `integratedTerminal`, `externalTerminal`.
    console: Option<String>,
    /// Or else the trace; none: the latest.
    trace: Option<PathBuf>,
    /// Its process.
    pid: Option<Value>,
    /// Where it stands at first: `start`, `end`, `crash`, `panic`, `stretch:NAME`, the number of an event.
    at: Option<Value>,
    /// It stops in `main`.
    stop_on_entry: bool,
    /// From a path in the program's debugging information to that of its sources here.
    source_map: BTreeMap<String, String>,
    /// Commands for gdb's command line.
    gdb_commands: Vec<String>,
    /// The program is only recorded.
    no_debug: bool,
}

/// The recording that is looked at.
pub struct Subject {
    /// The trace.
    pub dir: PathBuf,
    /// The id of the process.
    pub pid: i64,
    /// Where it stood at first.
    pub at: Place,
    /// It is to stop in `main`.
    pub stop_on_entry: bool,
    /// How the program ended: the status of wait(2).
    pub wait_status: Option<i32>,
}

/// A program that is being recorded.
pub struct Recording {
    launcher: Option<u32>,
    ended: Option<std::io::Result<ExitStatus>>,
    terminal: Option<Result<(), String>>,
    /// The request of ours that starts a terminal.
    request: i64,
    progress: i64,
    /// Its last words.
    errors: String,
}

impl Recording {
    fn stop(&self) {
        if let Some(pid) = self.launcher {
            end_programs(pid);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.stop();
        }
    }
}

fn end_programs(launcher: u32) {
    for pid in programs_of(launcher as i32) {
        // A process that has this recording's session in its memory.
        let _ = process::send(pid, Signal::KILL);
    }
}

impl Session {
    /// Records, if that is wanted, and starts a replay and gdb.
    ///
    /// # Errors
    /// What is wrong with what is wanted; when nothing was recorded; when the trace can't be debugged.
    pub fn begin(&mut self, arguments: &Value, is_launch: bool) -> Result<()> {
        let wanted: Wanted = match arguments {
            Value::Null => Wanted::default(),
            some => Wanted::deserialize(some).context("read the configuration")?,
        };
        ensure!(
            is_launch || wanted.program.is_none(),
            "attach opens a trace; launch records a program"
        );
        ensure!(
            wanted.program.is_none() || wanted.trace.is_none(),
            "either `program` is recorded or `trace` is opened"
        );
        let is_recorded = wanted.program.is_some();
        let dir = match &wanted.program {
            Some(program) => self.record(program, &wanted)?,
            None => Catalog::from_env()?.resolve(wanted.trace.as_deref())?,
        };
        if is_recorded && wanted.no_debug {
            self.terminate();
            return Ok(());
        }
        let summary = Summary::read(&dir)?;
        let at = match &wanted.at {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(parse_place(text)),
            Some(other) => Some(parse_place(&other.to_string())),
        };
        let at = at
            .transpose()
            .map_err(|why| anyhow::anyhow!("`at` is {why}"))?;
        let at = debug::place(at.as_ref(), &dir, Place::Start)?;
        let pid = match &wanted.pid {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        let named = pid.map(|text| text.parse::<ProcessName>());
        let named = named.transpose().map_err(|_| {
            anyhow::anyhow!("`pid` is the id of a process, as `reprise ps` tells it")
        })?;
        let birth = debug::birth(named, at, &dir)?;
        let processes = Processes::of_trace(&dir)?.0.list;
        let process = processes.get(birth as usize);
        let n = processes.len();
        if n > 1 && named.is_none() {
            self.mouth.output(
                "console",
                &format!(
                    "reprise: the trace has {n} processes; `pid` names others (see `reprise ps`)\n"
                ),
            );
        }
        self.subject = Some(Subject {
            pid: process.map_or(0, |p| p.pid),
            at,
            stop_on_entry: wanted.stop_on_entry,
            wait_status: summary.and_then(|s| s.wait_status),
            dir: dir.clone(),
        });
        let progress = self.begin_progress("starting the replay");
        self.starting = Some(progress);
        let started = self.start_gdb(&dir, birth, at, !is_recorded, &wanted);
        self.starting = None;
        self.progress_ended(progress);
        started?;
        self.mouth.event(
            "process",
            json!({"name": process.and_then(|p| p.command.first()).cloned().unwrap_or_default(),
                "systemProcessId": process.map_or(0, |p| p.pid), "isLocalProcess": true,
                "startMethod": if is_recorded { "launch" } else { "attach" }}),
        );
        Ok(())
    }

    fn start_gdb(
        &mut self,
        dir: &Path,
        birth: u32,
        at: Place,
        shown: bool,
        wanted: &Wanted,
    ) -> Result<()> {
        let ear = self.ear.clone();
        let gdb = Gdb::start(dir, birth, at, shown, &ear, || self.still())?;
        self.take_gdb(gdb);
        for setting in Gdb::settings() {
            // One that this gdb doesn't have is none that it needs.
            if let Err(why) = self.mi(setting) {
                tracing::info!(%why, setting, "gdb");
                self.gdb()?;
            }
        }
        for (from, to) in &wanted.source_map {
            let command = format!("set substitute-path {} {}", quoted(from), quoted(to));
            self.mi(&console(&command))?;
        }
        for command in &wanted.gdb_commands {
            let said = self.console(command)?;
            if !said.is_empty() {
                self.mouth.output("console", &said);
            }
        }
        self.handle_signals()?;
        self.refresh_threads()?;
        ensure!(self.frames.has_threads(), "gdb has not found the replay");
        // What it told of its beginning is no motion of anybody's.
        self.sets_out();
        Ok(())
    }

    /// Records a program; the trace.
    fn record(&mut self, program: &str, wanted: &Wanted) -> Result<PathBuf> {
        let name = Path::new(program).file_name();
        let name = name.context("`program` names no program")?;
        let dir = Catalog::from_env()?.create(name)?;
        let mut arguments: Vec<OsString> = vec!["record".into(), "-q".into(), "-o".into()];
        arguments.push(dir.clone().into());
        arguments.extend(wanted.record.iter().map(Into::into));
        arguments.push("--".into());
        arguments.push(program.into());
        arguments.extend(wanted.args.iter().map(Into::into));
        let progress = self.begin_progress("recording");
        self.questions.recording = Some(Recording {
            launcher: None,
            ended: None,
            terminal: None,
            request: 0,
            progress,
            errors: String::new(),
        });
        let in_terminal = self.client.terminal
            && matches!(
                wanted.console.as_deref(),
                Some("integratedTerminal" | "externalTerminal")
            );
        let recorded = match in_terminal {
            true => self.record_in_terminal(&arguments, wanted, &dir),
            false => self.record_here(&arguments, wanted),
        };
        let recording = self.questions.recording.take();
        self.progress_ended(progress);
        let status = recorded?;
        if !dir.join(EVENTS_FILE).exists() {
            let _ = std::fs::remove_dir(&dir);
            let errors = recording.map(|r| r.errors.clone()).unwrap_or_default();
            match status.filter(|s| !OWN.contains(s)) {
                None => bail!("{}", crate::mcp::last_words(errors.as_bytes())),
                Some(_) => bail!(
                    "nothing was recorded: {}",
                    crate::mcp::last_words(errors.as_bytes())
                ),
            }
        }
        let how = match status {
            Some(status) => format!(" (exit status {status})"),
            None => String::new(),
        };
        self.mouth.output(
            "console",
            &format!("reprise: recorded in {}{how}\n", dir.display()),
        );
        Ok(dir)
    }

    /// As a child, whose outputs are told of; its exit status.
    fn record_here(&mut self, arguments: &[OsString], wanted: &Wanted) -> Result<Option<i32>> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_remove(TOKEN);
        for (name, value) in &wanted.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(cwd) = &wanted.cwd {
            command.current_dir(cwd);
        }
        // It is to close its trace: the signal goes to the program, whose end it waits for.
        // SAFETY: a plain call in the child.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
        let child = command.spawn();
        let mut child = child.context("start the recording (is there such a directory?)")?;
        let id = child.id();
        let outputs = [
            child
                .stdout
                .take()
                .map(|out| hear_text(out, "stdout", self.ear.clone())),
            child
                .stderr
                .take()
                .map(|err| hear_text(err, "stderr", self.ear.clone())),
        ];
        let ear = self.ear.clone();
        std::thread::spawn(move || {
            let status = child.wait();
            if status.is_ok() {
                // Whoever still holds an output is not waited for.
                let begun = std::time::Instant::now();
                while begun.elapsed() < ROUND && outputs.iter().flatten().any(|o| !o.is_finished())
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let _ = ear.send(Heard::Recorded(status));
        });
        if let Some(recording) = &mut self.questions.recording {
            recording.launcher = Some(id);
        }
        let is_over = |s: &Session| {
            let recording = s.questions.recording.as_ref();
            recording.is_none_or(|r| r.ended.is_some())
        };
        let waited = self.wait_until(is_over);
        if waited.is_err() {
            self.end_recording();
        }
        waited?;
        let ended = self
            .questions
            .recording
            .as_mut()
            .and_then(|r| r.ended.take());
        let status = ended.context("wait for the recording")?;
        let status = status.context("wait for the recording")?;
        // It has ended: there is nothing to stop.
        if let Some(recording) = &mut self.questions.recording {
            recording.launcher = None;
        }
        Ok(status.code())
    }

    /// In a terminal of the client's, which is asked for one. The trace says when it has ended.
    fn record_in_terminal(
        &mut self,
        arguments: &[OsString],
        wanted: &Wanted,
        dir: &Path,
    ) -> Result<Option<i32>> {
        let me = std::env::current_exe().context("find this program")?;
        let mut words = vec![me.to_string_lossy().into_owned()];
        words.extend(arguments.iter().map(|w| w.to_string_lossy().into_owned()));
        let kind = match wanted.console.as_deref() {
            Some("externalTerminal") => "external",
            _ => "integrated",
        };
        let mut env = wanted.env.clone();
        env.insert(TOKEN.into(), None);
        if let Some(traces) = std::env::var_os("REPRISE_TRACE_DIR") {
            env.insert(
                "REPRISE_TRACE_DIR".into(),
                Some(traces.to_string_lossy().into_owned()),
            );
        }
        let cwd = match &wanted.cwd {
            Some(cwd) => cwd.clone(),
            None => std::env::current_dir().context("find the current directory")?,
        };
        let request = self.mouth.say(json!({"type": "request", "command": "runInTerminal",
            "arguments": {"kind": kind, "title": "reprise record", "cwd": cwd, "args": words, "env": env}}));
        if let Some(recording) = &mut self.questions.recording {
            recording.request = request;
        }
        self.wait_until(|s| {
            let recording = s.questions.recording.as_ref();
            recording.is_none_or(|r| r.terminal.is_some())
        })?;
        let told = self
            .questions
            .recording
            .as_mut()
            .and_then(|r| r.terminal.take());
        if let Some(Err(why)) = told {
            bail!("the editor has started no terminal: {why}");
        }
        // Its beginning is the trace's: a program that can't be recorded makes none.
        while Summary::read(dir).ok().flatten().is_none() {
            self.still()?;
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }

    /// The client has started a terminal, or not.
    pub fn client_answers(&mut self, to: i64, success: bool, body: &Value) {
        if let Some(recording) = self
            .questions
            .recording
            .as_mut()
            .filter(|r| r.request == to)
        {
            recording.terminal = Some(match success {
                true => Ok(()),
                false => Err(body["error"]["format"]
                    .as_str()
                    .unwrap_or("it failed")
                    .into()),
            });
        }
    }

    /// The recording has ended.
    pub fn recorded(&mut self, status: std::io::Result<ExitStatus>) {
        if let Some(recording) = &mut self.questions.recording {
            recording.ended = Some(status);
        }
    }

    /// What `record` or the program has written.
    pub fn has_written(&mut self, category: &str, text: &str) {
        if let Some(recording) = self
            .questions
            .recording
            .as_mut()
            .filter(|_| category == "stderr")
        {
            recording.errors.push_str(text);
            let too_many = recording.errors.len().saturating_sub(16 << 10);
            if let Some(at) =
                (too_many..recording.errors.len()).find(|at| recording.errors.is_char_boundary(*at))
            {
                recording.errors.drain(..at);
            }
        }
        self.mouth.output(category, text);
    }

    /// Ends a program that is being recorded; what was recorded of it is kept. Is this the progress of that?
    pub fn stop_recording(&mut self, progress: Option<i64>) -> bool {
        let recording = self.questions.recording.as_ref();
        let recording = recording.filter(|r| progress.is_none_or(|p| p == r.progress));
        if let Some(recording) = recording {
            recording.stop();
        }
        recording.is_some()
    }

    /// Nobody wants it any more.
    fn end_recording(&mut self) {
        let Some(recording) = self.questions.recording.take() else {
            return;
        };
        let Some(launcher) = recording.launcher.filter(|_| recording.ended.is_none()) else {
            return;
        };
        for _ in 0..ROUNDS {
            end_programs(launcher);
            if !process::is_there(launcher as i32) {
                return;
            }
            std::thread::sleep(ROUND);
        }
    }
}
