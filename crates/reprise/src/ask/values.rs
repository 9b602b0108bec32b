//! `values`: each value that an expression had: at each visit of a line or function, or at each write to its memory.

use super::found::{all, Found};
use super::stream::{Ended, Stream};
use super::{ask, Wanted};
use crate::cli::{Part, ValuesArgs};
use anyhow::Result;
use reprise_console::{say, Output};
use serde::Serialize;
use std::cell::RefCell;
use std::io::{BufWriter, Write};

/// What gdb is told to run.
pub const SCRIPT: &str = include_str!("values.py");
/// How much is written at a time.
const BUFFER: usize = 1 << 16;

/// A value, for programs.
#[derive(Serialize)]
struct Line<'a> {
    event: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pc: Option<u64>,
    /// It is that from before the first write.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    before: bool,
    value: &'a str,
}

/// Runs `values`.
///
/// # Errors
/// When the trace can't be debugged, or gdb doesn't understand what is asked.
pub fn run(args: &ValuesArgs) -> Result<i32> {
    let wanted = wanted(args);
    let (place, writes) = (wanted.place, wanted.writes);
    let mut found = 0u64;
    let status = ask(&args.part, SCRIPT, wanted, |stream| {
        let out = RefCell::new(BufWriter::with_capacity(BUFFER, Output));
        let put = |one: &Found<'_>| {
            if is_in(&args.part, one) {
                found += 1;
                let out = &mut *out.borrow_mut();
                match args.json {
                    true => put_json(out, one)?,
                    false => put_text(out, &args.expression, one)?,
                }
            }
            Ok(())
        };
        all(stream, put, || Ok(out.borrow_mut().flush()?))
    })?;
    if found == 0 && status == 0 {
        match writes {
            true => say!("nobody wrote to {} in what was looked at", args.expression),
            false => say!(
                "the program never came to {}",
                place.unwrap_or("that place")
            ),
        }
    }
    Ok(status)
}

/// What the script is asked.
pub fn wanted(args: &ValuesArgs) -> Wanted<'_> {
    let place = args.at.as_deref().or(args.function.as_deref());
    Wanted {
        expression: Some(&args.expression),
        place,
        writes: args.watch || place.is_none(),
        ..Wanted::default()
    }
}

/// Hands each value to `put`, as a line of JSON.
///
/// # Errors
/// What gdb says of the question, and what `put` says.
pub fn lines(
    stream: &mut Stream,
    args: &ValuesArgs,
    put: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Ended> {
    let mut line = Vec::new();
    let take = |one: &Found<'_>| {
        if !is_in(&args.part, one) {
            return Ok(());
        }
        line.clear();
        put_json(&mut line, one)?;
        put(&line)
    };
    all(stream, take, || Ok(()))
}

/// Is it of what is looked at?
pub fn is_in(part: &Part, one: &Found<'_>) -> bool {
    match one.place {
        Some(_) => part.holds(one.thread, one.event),
        // What was there before the first write is nobody's.
        None => part.to.is_none_or(|to| one.event <= to),
    }
}

fn put_text(out: &mut impl Write, expression: &str, one: &Found<'_>) -> std::io::Result<()> {
    write!(out, "event {}  ", one.event)?;
    match one.place {
        Some(place) => write!(out, "thread {}  {}", one.thread, place.text())?,
        None => write!(out, "before")?,
    }
    writeln!(out, ": {expression} = {}", one.value)
}

fn put_json(out: &mut impl Write, one: &Found<'_>) -> Result<()> {
    let place = one.place;
    let line = Line {
        event: one.event,
        thread: place.map(|_| one.thread),
        function: place.and_then(|p| p.function.as_deref()),
        file: place.and_then(|p| p.file.as_deref()),
        line: place.and_then(|p| p.line),
        pc: place.map(|p| p.pc),
        before: place.is_none(),
        value: &one.value,
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")?;
    Ok(())
}
