//! `rr replay`, as `reprise replay`: with a server for debuggers, with gdb, or to its end.

use super::lists::Lives;
use super::options::{Given, Words, GLOBAL, REPLAY};
use crate::cli::{At, Command, ReplayArgs};
use anyhow::{bail, Context, Result};
use reprise_debug::{AsRr, Place};
use std::ffi::OsString;
use std::path::Path;

/// Names of the address that is listened on.
const HERE: [&str; 2] = ["127.0.0.1", "localhost"];
/// What starts where no debugger is named.
const DEBUGGER: &str = "gdb";

/// Which process is to be debugged, and from when on.
enum Process {
    /// This one, from its birth.
    Born(i64),
    /// This one, from where it has executed a program.
    Executed(i64),
    /// The first one that has executed this program.
    Named(OsString),
}

/// What is asked for.
#[derive(Default)]
struct Asked {
    autopilot: bool,
    process: Option<Process>,
    event: u64,
    port: Option<u16>,
    keeps_listening: bool,
    debugger: Option<OsString>,
    unseen: bool,
    marks: bool,
    arguments: Vec<OsString>,
}

/// What is to be done.
///
/// # Errors
/// When an option is not known, or the trace has no such process.
pub fn command(mut words: Words, marks: bool) -> Result<Command> {
    let mut asked = Asked {
        marks,
        ..Asked::default()
    };
    while let Some(option) = words.option(&[REPLAY, GLOBAL], "rr replay")? {
        asked.learn(option)?;
    }
    let (trace, arguments) = trace_and_arguments(words.rest())?;
    asked.arguments.extend(arguments);
    let dir = super::directory(trace)?;
    let mut args = ReplayArgs::of(&dir);
    args.marks = asked.marks;
    if asked.autopilot {
        if asked.unseen {
            bail!("rr's option --no-redirect-output has no counterpart without a debugger: send what is written to /dev/null");
        }
        return Ok(Command::Replay(args));
    }
    let (birth, place) = asked.place(&dir)?;
    args.debug = true;
    args.gdb_process = Some(birth);
    args.at = Some(At::Place(place));
    args.gdb_unseen = asked.unseen;
    args.gdb = asked.arguments;
    args.gdb_port = asked.port;
    args.as_rr = asked.port.map(|_| AsRr {
        debugger: match &asked.debugger {
            Some(name) => name.to_string_lossy().into_owned(),
            None => DEBUGGER.into(),
        },
        keeps_listening: asked.keeps_listening,
    });
    args.debugger = asked.debugger;
    Ok(Command::Replay(args))
}

impl Asked {
    fn learn(&mut self, option: Given) -> Result<()> {
        match option.name {
            "autopilot" => self.autopilot = true,
            "debugger" => self.debugger = Some(option.value),
            "onfork" => self.process = Some(Process::Born(option.number()?)),
            "onprocess" => {
                self.process = Some(match option.number() {
                    Ok(pid) => Process::Executed(pid),
                    Err(_) => Process::Named(option.value),
                });
            }
            "goto" => self.event = option.number()?,
            "dbghost" => {
                let host = option.value.to_string_lossy();
                if !HERE.contains(&&*host) {
                    bail!("rr's option --dbghost={host} has no counterpart here: a debugger may do all that its user may, so only this machine is listened to (127.0.0.1)");
                }
                self.port = self.port.or(Some(0));
            }
            "dbgport" => self.port = Some(option.number()?),
            "keep-listening" => self.keeps_listening = true,
            "no-redirect-output" => self.unseen = true,
            "mark-stdio" => self.marks = true,
            "gdb-x" => self.arguments.extend(["-x".into(), option.value]),
            "debugger-option" => self.arguments.push(option.value),
            "interpreter" => self.arguments.extend(["-i".into(), option.value]),
            "fullname" => self.arguments.push("--fullname".into()),
            _ => {}
        }
        Ok(())
    }

    /// Which process that is, in the order of their births, and where its session begins.
    fn place(&self, dir: &Path) -> Result<(u32, Place)> {
        let event = |n| match n {
            0 => Place::Start,
            n => Place::Event(n),
        };
        let Some(process) = &self.process else {
            return Ok((0, event(self.event)));
        };
        let lives = Lives::of_trace(dir)?.0;
        let (birth, from) = match process {
            Process::Born(pid) => (lives.with_id(*pid), false),
            Process::Executed(pid) => (lives.with_id(*pid), true),
            Process::Named(name) => (lives.that_executed(name), true),
        };
        let birth = birth.with_context(|| match process {
            Process::Born(pid) | Process::Executed(pid) => {
                format!("no process {pid} is in the trace; see `rr ps`")
            }
            Process::Named(name) => {
                format!(
                    "no process of the trace has executed {}; see `rr ps`",
                    name.display()
                )
            }
        })?;
        let begins = match from {
            true => lives.executed(birth),
            false => Some(lives.born(birth)),
        };
        let begins =
            begins.context("this process has executed no program: -f debugs it from its birth")?;
        Ok((birth as u32, event(self.event.max(begins))))
    }
}

/// `[TRACE] [-- ARGUMENTS]`
fn trace_and_arguments(words: Vec<OsString>) -> Result<(Option<OsString>, Vec<OsString>)> {
    let mut words = Words::of(words);
    let mut trace = None;
    while let Some(word) = words.next() {
        if word == "--" {
            return Ok((trace, words.rest()));
        }
        if trace.is_some() {
            bail!("`rr replay` takes one trace, and then options of the debugger behind `--`");
        }
        trace = Some(word);
    }
    Ok((trace, Vec::new()))
}
