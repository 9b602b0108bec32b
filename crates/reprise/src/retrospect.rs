//! `replay --print`: an expression, printed each time a line is passed, as if the program had been built with it: a session of gdb that goes on
//! by itself.

use crate::cli::ReplayArgs;
use crate::debug::{self, Session};
use anyhow::{Context, Result};
use reprise_console::Output;
use reprise_debug::Place;
use reprise_trace::Catalog;
use std::io::Write;

/// What gdb is told to run.
const SCRIPT: &str = include_str!("retrospect.py");

/// Runs `replay --print`.
///
/// # Errors
/// When the trace can't be debugged, there is no gdb, or it knows no such line.
pub fn run(args: &ReplayArgs, what: &[String]) -> Result<i32> {
    let [place, expression] = what else {
        anyhow::bail!("--print takes a place and an expression");
    };
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let room = tempfile::tempdir().context("make a directory for gdb's answer")?;
    let answer = room.path().join("answer");
    let wanted = serde_json::to_string(&[place, expression])?;
    std::fs::write(room.path().join("wanted"), wanted).context("write for gdb")?;
    let session = Session {
        dir: &dir,
        birth: debug::birth(args.pid, Place::Start, &dir)?,
        at: Place::Start,
        arguments: Session::script(room.path(), SCRIPT)?,
        answer: Some(&answer),
        limit: None,
        given_up: None,
        marks: false,
        debugger: None,
        unseen: false,
    };
    let status = debug::with_gdb(&session)?;
    let Ok(text) = std::fs::read(&answer) else {
        // The server has said why.
        anyhow::ensure!(status != 0, "gdb gave no answer (is it one with python?)");
        return Ok(status);
    };
    if let Ok(why) = std::fs::read_to_string(room.path().join("failed")) {
        anyhow::bail!("gdb: {}", why.trim());
    }
    Output.write_all(&text)?;
    Ok(0)
}
