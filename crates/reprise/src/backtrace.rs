//! `backtrace`: where all threads are, at the crash, at the end, or at an event: a session of gdb that only asks for that.

use crate::cli::BacktraceArgs;
use crate::debug::{self, Session};
use crate::python;
use anyhow::{Context, Result};
use reprise_console::{tell, tell_text};
use reprise_debug::python::Stacks;
use reprise_debug::Place;
use reprise_trace::Catalog;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// What gdb is told to run.
const SCRIPT: &str = concat!(
    include_str!("goroutine_stacks.py"),
    include_str!("backtrace.py")
);

/// What the script writes.
#[derive(Serialize, Deserialize)]
pub struct Backtraces {
    /// All threads.
    pub threads: Vec<Thread>,
    /// What the replay tells of those that are in Python.
    #[serde(default, skip_serializing)]
    python: Stacks,
    /// Those of a Go program, but for the runtime's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    goroutines: Vec<Goroutine>,
    /// There are more of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    goroutines_are_cut: bool,
}

/// Where a goroutine is.
#[derive(Serialize, Deserialize)]
struct Goroutine {
    /// Its id.
    goroutine: u64,
    /// As the Go runtime calls it.
    state: String,
    /// Why it waits, in the runtime's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    /// The thread that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
    /// The function that has started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
    /// Innermost first; none, if they are those of its thread.
    frames: Vec<Frame>,
}

/// Where a thread is.
#[derive(Serialize, Deserialize)]
pub struct Thread {
    /// Its id, as the program knew it.
    pub thread: u32,
    /// Is it the one that crashed, or goes on next?
    pub stopped: bool,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// There are more frames of Python's, which can't be read or are beyond a limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    python_is_cut: bool,
}

/// A function that was called, and has not returned.
#[derive(Serialize, Deserialize)]
pub struct Frame {
    pc: u64,
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    /// Where its part of the stack begins.
    #[serde(default, skip_serializing)]
    sp: Option<u64>,
    /// The functions of Python's that it runs, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    python: Vec<reprise_debug::python::Frame>,
}

/// Runs `backtrace`.
///
/// # Errors
/// When the trace can't be debugged, or there is no gdb.
pub fn run(args: &BacktraceArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let at = debug::place(args.at.as_ref(), &dir, Place::End)?;
    // Who asks for no place wants to know of the crash, if there was one.
    let asked = match args.at {
        None => Place::Crash,
        Some(_) => at,
    };
    let birth = debug::birth(args.pid, asked, &dir)?;
    let limit = args.time_limit.map(Duration::from_secs);
    let all = match of_all(&dir, birth, at, limit)? {
        Ok(all) => all,
        Err(status) => return Ok(status),
    };
    match args.json {
        true => tell!("{}", serde_json::to_string(&all)?)?,
        false => tell_text(&text(&all))?,
    }
    Ok(0)
}

/// Where all threads of a process are at a place; or gdb's exit status, when the server has said why there is nothing.
///
/// # Errors
/// When there is no gdb, or its answer can't be read.
pub fn of_all(
    dir: &Path,
    birth: u32,
    at: Place,
    limit: Option<Duration>,
) -> Result<std::result::Result<Backtraces, i32>> {
    let room = tempfile::tempdir().context("make a directory for gdb's answer")?;
    let answer = room.path().join("answer");
    let session = Session {
        dir,
        birth,
        at,
        arguments: Session::script(room.path(), SCRIPT)?,
        answer: Some(&answer),
        limit,
        given_up: None,
        marks: false,
        debugger: None,
        unseen: false,
    };
    let status = debug::with_gdb(&session)?;
    let Ok(bytes) = std::fs::read(&answer) else {
        anyhow::ensure!(
            status != 0,
            "gdb gave no backtrace (is it one with python?)"
        );
        return Ok(Err(status));
    };
    let mut all: Backtraces = serde_json::from_slice(&bytes).context("read gdb's answer")?;
    all.place_python();
    Ok(Ok(all))
}

impl Backtraces {
    /// Puts Python's frames where they stand.
    fn place_python(&mut self) {
        for stack in std::mem::take(&mut self.python).threads {
            let is_it = |t: &&mut Thread| t.thread == stack.thread;
            let Some(thread) = self.threads.iter_mut().find(is_it) else {
                continue;
            };
            let native = |f: &Frame| python::Native {
                sp: f.sp,
                function: f.function.clone(),
            };
            let natives: Vec<_> = thread.frames.iter().map(native).collect();
            let placed = python::placed(&natives, &stack);
            for (frame, python) in thread.frames.iter_mut().zip(placed) {
                frame.python = python;
            }
            thread.python_is_cut = stack.is_cut;
        }
    }
}

fn text(all: &Backtraces) -> String {
    let mut out = String::new();
    for thread in &all.threads {
        let mark = if thread.stopped { " (stopped)" } else { "" };
        let _ = writeln!(out, "thread {}{mark}", thread.thread);
        out += &stack(thread);
    }
    for one in &all.goroutines {
        let state = one.waits_for.as_deref().unwrap_or(&one.state);
        let _ = write!(out, "goroutine {} ({state}", one.goroutine);
        if let Some(thread) = one.thread {
            let _ = write!(out, ", thread {thread}");
        }
        let _ = match &one.created_by {
            Some(maker) => writeln!(out, "), created by {maker}"),
            None => writeln!(out, ")"),
        };
        out += &lines(&one.frames);
    }
    if all.goroutines_are_cut {
        out += "there are more goroutines\n";
    }
    out
}

/// A thread's frames, a line each; functions of Python's stand before the frame that runs them, with their variables.
pub fn stack(thread: &Thread) -> String {
    let mut out = lines(&thread.frames);
    if thread.python_is_cut {
        out += "  py  there are more, which can't be read\n";
    }
    out
}

fn lines(frames: &[Frame]) -> String {
    let mut out = String::new();
    for (frame, i) in frames.iter().zip(0..) {
        let function = frame.function.as_deref().unwrap_or("??");
        let place = match (&frame.file, frame.line, &frame.object) {
            (Some(file), Some(line), _) => format!("at {file}:{line}"),
            (_, _, Some(object)) => format!("in {object}"),
            _ => format!("at {:#x}", frame.pc),
        };
        out += &python::lines(&frame.python);
        let _ = writeln!(out, "  #{i:<2} {function} {place}");
    }
    out
}
