//! Being rr for tools that know rr: called by that name, this program takes the commands and options of rr's command line that Delve, Midas,
//! CLion and others use, and does its own work for them. [`options`] has the grammar and says of each option what becomes of it; `record` and
//! `replay` make commands of Reprise's own out of them; `lists` prints what tools read of traces. What the debugger's side expects is in
//! the crate `reprise_debug`, `rr.rs`. docs/RR.md tells users of it.
//!
//! What is not known is refused; an option that only tunes how rr works is taken, and has no effect.

mod lists;
mod options;
mod record;
mod replay;

use crate::cli::Command;
use crate::exit::{line_of, status_of};
use anyhow::{bail, Result};
use options::{Words, GLOBAL};
use reprise_console::{end_unread, say, tell, tell_text, Lost};
use reprise_trace::Catalog;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The name by which this program is rr.
const NAME: &str = "rr";
/// Which rr it passes for. From 5.8 on tools put the name of a command of rr's into `qRRCmd` as it is.
const VERSION: &str = "rr version 5.9.0";
/// What rr calls the link to the latest trace.
const LATEST: &str = "latest-trace";
/// Where rr keeps traces, and where Reprise does.
const DIRECTORIES: [&str; 2] = ["_RR_TRACE_DIR", "REPRISE_TRACE_DIR"];

/// Commands of rr's that have no counterpart here.
const UNKNOWN: [&str; 13] = [
    "buildid",
    "cpufeatures",
    "create-checkpoints",
    "dump",
    "explicit-sources",
    "filename",
    "lldbinit",
    "mv",
    "pack",
    "rerun",
    "sources",
    "trace_id",
    "traceinfo",
];

const HELP: &str = "\
This is Reprise, called as rr. What it takes of rr's commands:
  rr record [OPTION]... PROGRAM [ARGUMENT]...
  rr replay [OPTION]... [TRACE] [-- DEBUGGER OPTIONS]
  rr ps [TRACE]
  rr ls [-l] [-t] [-r]
  rr rm TRACE...
  rr gdbinit
  rr --version
docs/RR.md lists the options. `reprise --help` tells of all that it does by its own name.
";

/// The words of the command line, if this program is called as rr.
pub fn words() -> Option<Vec<OsString>> {
    let mut all = std::env::args_os();
    let name = PathBuf::from(all.next()?);
    (name.file_name() == Some(OsStr::new(NAME))).then(|| all.collect())
}

/// What is to be done for these words. What only prints is done here, and mistakes are told; the exit status then.
///
/// # Errors
/// The exit status, when nothing is left to be done.
pub fn read(words: Vec<OsString>) -> Result<Command, i32> {
    keep_traces_where_rr_does();
    match command(Words::of(words)) {
        Ok(Some(command)) => Ok(command),
        Ok(None) => Err(0),
        Err(error) => {
            if Lost::is_unread(error.as_ref()) {
                end_unread();
            }
            if let Some(line) = line_of(&error) {
                say!("{line}");
            }
            Err(status_of(&error))
        }
    }
}

/// Nothing is left to be done for a command that has printed what it has to.
fn command(mut words: Words) -> Result<Option<Command>> {
    let mut marks = false;
    while let Some(option) = words.option(&[GLOBAL], NAME)? {
        if option.name == "version" {
            tell!("{VERSION}")?;
            return Ok(None);
        }
        marks |= option.name == "mark-stdio";
    }
    let Some(word) = words.next() else {
        tell_text(HELP)?;
        return Err(crate::exit::AlreadySaid.into());
    };
    match &*word.to_string_lossy() {
        "record" => record::command(words, marks).map(Some),
        "replay" => replay::command(words, marks).map(Some),
        "ps" => lists::processes(words).map(|()| None),
        "ls" => lists::traces(words).map(|()| None),
        "gdbinit" => Ok(tell_text(include_str!("gdbinit.gdb")).map(|()| None)?),
        "rm" => Ok(Some(Command::Rm(crate::cli::RmArgs {
            traces: words.rest().into_iter().map(PathBuf::from).collect(),
            quiet: true,
        }))),
        "help" | "--help" | "-h" => Ok(tell_text(HELP).map(|()| None)?),
        name if UNKNOWN.contains(&name) => {
            bail!("there is no `rr {name}` here; docs/RR.md lists what there is")
        }
        name if name.starts_with('-') => {
            bail!("rr's option {name} is not known here; docs/RR.md lists those that are")
        }
        // As rr does: a trace is replayed, a program recorded.
        _ if Path::new(&word).is_dir() => replay::command(words.before(word), marks).map(Some),
        _ => record::command(words.before(word), marks).map(Some),
    }
}

/// A trace as rr's users name it: its directory, its name, or the latest.
fn trace(word: Option<OsString>) -> Option<PathBuf> {
    let path = PathBuf::from(word?);
    let is_latest = path.file_name() == Some(OsStr::new(LATEST)) && !path.exists();
    (!is_latest).then_some(path)
}

/// The directory of a trace.
///
/// # Errors
/// As [`Catalog::resolve`].
fn directory(word: Option<OsString>) -> Result<PathBuf> {
    Ok(Catalog::from_env()?.resolve(trace(word).as_deref())?)
}

/// Who has told rr where traces are to be kept, and not Reprise, finds them there.
fn keep_traces_where_rr_does() {
    let [its, ours] = DIRECTORIES;
    if let (Some(dir), None) = (std::env::var_os(its), std::env::var_os(ours)) {
        std::env::set_var(ours, dir);
    }
}
