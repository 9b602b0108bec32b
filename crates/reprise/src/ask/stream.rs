//! What comes out of a replay that is asked: rows, as the replay puts them down, and what gdb's script tells of them.

use anyhow::{bail, Context, Result};
use reprise_console::say;
use reprise_debug::collect::{Frame, Row};
use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::BufReader;

/// How much is read at a time.
const BUFFER: usize = 1 << 16;

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All of the run was looked at.
    Whole,
    /// The user has ended it at this event.
    Interrupted(u64),
    /// It broke off.
    Cut,
}

/// What comes next.
pub enum Next<T> {
    /// A value that the replay has put down.
    Row(Row),
    /// What the script tells.
    Told(T),
    /// Nothing at the moment.
    Rest,
    /// Nothing any more.
    Ended(Ended),
}

/// A place in the program.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Its instruction, or that behind it.
    pub pc: u64,
    /// The function.
    #[serde(default)]
    pub function: Option<String>,
    /// The source file, as the compiler knew it.
    #[serde(default)]
    pub file: Option<String>,
    /// The line there.
    #[serde(default)]
    pub line: Option<u32>,
    /// The program or library, where there is no line.
    #[serde(default)]
    pub object: Option<String>,
}

impl Place {
    /// In words.
    pub fn text(&self) -> String {
        let function = self.function.as_deref().unwrap_or("??");
        match (&self.file, self.line, &self.object) {
            (Some(file), Some(line), _) => format!("{function} at {file}:{line}"),
            (_, _, Some(object)) => format!("{function} in {object}"),
            _ => format!("{function} at {:#x}", self.pc),
        }
    }

    /// For programs.
    pub fn object(&self) -> Value {
        let mut one = Map::new();
        if let Some(function) = &self.function {
            one.insert("function".into(), function.as_str().into());
        }
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            one.insert("file".into(), file.as_str().into());
            one.insert("line".into(), line.into());
        }
        if let Some(object) = &self.object {
            one.insert("object".into(), object.as_str().into());
        }
        one.insert("pc".into(), self.pc.into());
        one.into()
    }
}

/// What every script tells.
#[derive(Deserialize)]
struct Common {
    failed: Option<String>,
    ended: Option<String>,
    event: Option<u64>,
    moved: Option<Moved>,
}

/// A line that has no code.
#[derive(Deserialize)]
struct Moved {
    asked: String,
    line: u32,
}

/// What comes, in its order.
pub struct Stream {
    from: BufReader<File>,
    rested: bool,
    /// What the user is to know besides, where it is not said at once.
    notes: Option<Vec<String>>,
}

impl Stream {
    /// What comes through this pipe.
    pub fn new(pipe: File) -> Stream {
        Stream {
            from: BufReader::with_capacity(BUFFER, pipe),
            rested: false,
            notes: None,
        }
    }

    /// The same; what would be said on standard error is kept.
    pub fn keeping_notes(pipe: File) -> Stream {
        Stream {
            notes: Some(Vec::new()),
            ..Stream::new(pipe)
        }
    }

    /// What was kept.
    pub fn notes(&self) -> &[String] {
        self.notes.as_deref().unwrap_or_default()
    }

    /// What comes next.
    ///
    /// # Errors
    /// What gdb says of the question.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Next<T>> {
        if self.from.buffer().is_empty() && !std::mem::replace(&mut self.rested, true) {
            return Ok(Next::Rest);
        }
        self.rested = false;
        let told = match Frame::read(&mut self.from).context("read what the replay has found")? {
            Frame::End => return Ok(Next::Ended(Ended::Cut)),
            Frame::Row(row) => return Ok(Next::Row(row)),
            Frame::Told(told) => told,
        };
        let common: Common = serde_json::from_slice(&told).context("read gdb's answer")?;
        if let Some(why) = common.failed {
            bail!("{}", why.trim());
        }
        if let Some(Moved { asked, line }) = common.moved {
            let note = format!("{asked} has no code; the next line that has some is {line}");
            match &mut self.notes {
                Some(notes) => notes.push(note),
                None => say!("{note}"),
            }
        }
        if let Some(why) = common.ended {
            return Ok(Next::Ended(match why.as_str() {
                "interrupted" => Ended::Interrupted(common.event.unwrap_or(0)),
                _ => Ended::Whole,
            }));
        }
        let told = serde_json::from_slice(&told).context("read gdb's answer")?;
        Ok(Next::Told(told))
    }
}
