//! Commands of this program, run as children with bounds: what only reads a trace, or replays it to its end, is asked that way.
//!
//! A child is the cleanest wall there is: a trace that is damaged, or a bug of ours (a panic ends the process), ends the child and not the server; its
//! time and output are bounded by ending it, and whatever it replays ends with it (PR_SET_PDEATHSIG). It starts in a few milliseconds.

use super::limits::Limits;
use anyhow::{bail, Context, Result};
use rustix::process::{set_parent_process_death_signal, Signal};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// Most bytes that are read of what a command says.
const MOST_OUTPUT: u64 = 16 << 20;
/// The same of its errors.
const MOST_ERRORS: u64 = 16 << 10;

/// A command of this program that ends with this one.
///
/// # Errors
/// When this program is not found.
pub fn own(arguments: &[OsString]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.args(arguments).kill_on_drop(true);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    ends_with_us(&mut command, Signal::KILL);
    Ok(command)
}

/// Lets the kernel send this to the child when the thread that starts it ends, which is the one that does all the work.
pub fn ends_with_us(command: &mut Command, signal: Signal) {
    // SAFETY: a plain call in the child.
    unsafe { command.pre_exec(move || Ok(set_parent_process_death_signal(Some(signal))?)) };
}

/// Words of a command line.
pub fn words<const N: usize>(words: [&dyn AsRef<OsStr>; N]) -> Vec<OsString> {
    words.map(|w| w.as_ref().to_os_string()).into()
}

/// What a command has printed, as JSON; with these statuses it is an answer.
///
/// # Errors
/// Its last words, when it ends with another one; and when a limit is reached.
pub async fn json(arguments: &[OsString], statuses: &[i32], limits: &Limits) -> Result<Value> {
    let mut child = own(arguments)?.spawn().context("start reprise")?;
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let out = child.stdout.take().context("read what reprise says")?;
    let err = child.stderr.take().context("read what reprise says")?;
    let (mut out, mut err) = (out.take(MOST_OUTPUT + 1), err.take(MOST_ERRORS));
    let all = async {
        let read = tokio::join!(out.read_to_end(&mut output), err.read_to_end(&mut errors));
        read.0.and(read.1)?;
        child.wait().await
    };
    let status = match tokio::time::timeout_at(limits.end, all).await {
        Ok(status) => status.context("wait for reprise")?,
        Err(_) => return Err(limits.are_over()),
    };
    if output.len() as u64 > MOST_OUTPUT {
        bail!("the answer has more than {MOST_OUTPUT} bytes");
    }
    match status.code() {
        Some(code) if statuses.contains(&code) => {}
        _ => bail!("{}", last_words(&errors)),
    }
    serde_json::from_slice(&output).context("read what reprise says")
}

/// The first lines of what a command prints that fit, each one JSON; whether there are more. The command is ended then.
///
/// # Errors
/// Its last words, when it has failed before that; and when a limit is reached.
pub async fn lines(
    arguments: &[OsString],
    most: usize,
    fits: impl Fn(&Value) -> bool,
    limits: &Limits,
) -> Result<(Vec<Value>, bool)> {
    let mut child = own(arguments)?.spawn().context("start reprise")?;
    let out = child.stdout.take().context("read what reprise says")?;
    let mut read = BufReader::new(out).lines();
    let mut found = Vec::new();
    loop {
        let next = tokio::time::timeout_at(limits.end, read.next_line()).await;
        let next = next.map_err(|_| limits.are_over())?;
        let Some(line) = next.context("read what reprise says")? else {
            break;
        };
        let one = serde_json::from_str(&line).context("read what reprise says")?;
        if !fits(&one) {
            continue;
        }
        if found.len() == most {
            return Ok((found, true));
        }
        found.push(one);
    }
    end_of(child, limits).await?;
    Ok((found, false))
}

async fn end_of(mut child: Child, limits: &Limits) -> Result<()> {
    let mut errors = Vec::new();
    let err = child.stderr.take();
    let all = async {
        if let Some(err) = err {
            err.take(MOST_ERRORS).read_to_end(&mut errors).await?;
        }
        child.wait().await
    };
    let status = tokio::time::timeout_at(limits.end, all).await;
    let status = status.map_err(|_| limits.are_over())?;
    if !status.context("wait for reprise")?.success() {
        bail!("{}", last_words(&errors));
    }
    Ok(())
}

/// What a command of ours said last.
pub fn last_words(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    // A divergence is told in several lines, of which the first one says what it is.
    let said: Vec<&str> = lines.collect();
    let line = said.iter().rfind(|l| l.starts_with("reprise: "));
    let line = line.or(said.last()).copied().unwrap_or("it said nothing");
    crate::exit::one_line(line.strip_prefix("reprise: ").unwrap_or(line))
}
