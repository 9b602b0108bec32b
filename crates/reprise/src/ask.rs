//! Questions to a recording: what a variable was, who called, who wrote. A replay runs once past everything, with gdb at its side for what only gdb
//! knows, and tells what it finds as it comes.
//!
//! - `stream`: what comes out of the replay; `found`: values among that;
//! - [`values`]: each value of an expression; [`writers`]: who wrote them;
//! - [`calls`]: each call of a function;
//! - [`origin`]: where a value comes from, through processes, by what `streams` knows of their descriptors;
//! - [`diff`]: where two recordings part, for which nothing is replayed; `threads`: what each thread did;
//! - [`bisect`]: which hand-off between threads makes a run fail.

pub mod bisect;
pub mod calls;
pub mod diff;
mod found;
pub mod origin;
pub mod stream;
mod streams;
mod threads;
pub mod values;
pub mod writers;

use crate::cli::Part;
use crate::debug::{self, Session};
use crate::processes::{ProcessName, Processes};
use anyhow::{Context, Result};
use reprise_console::say;
use reprise_debug::collect::Frame;
use reprise_debug::Place;
use reprise_trace::Catalog;
use rustix::fs::{mkfifoat, Mode, CWD};
use serde::Serialize;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use stream::{Ended, Stream};

/// What all scripts begin with.
pub const COMMON: &str = include_str!("ask/ask.py");
/// As of a shell's command that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// What a script of gdb's is asked.
#[derive(Serialize, Default, Clone, Copy)]
pub struct Wanted<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    expression: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a str>,
    writes: bool,
    arguments: bool,
    returns: bool,
    /// As the part of the run that is looked at says.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
}

impl Wanted<'_> {
    /// The same, in this part of the run.
    fn within(self, part: &Part) -> Self {
        Wanted {
            from: part.from,
            to: part.to,
            ..self
        }
    }

    /// As the script reads it, for this part of the run.
    ///
    /// # Errors
    /// None that is known of.
    pub fn text(self, part: &Part) -> Result<String> {
        Ok(serde_json::to_string(&self.within(part))?)
    }
}

/// Replays a trace with this script of gdb's, and hands what comes out to `take`; the exit status.
///
/// # Errors
/// When the trace can't be debugged, gdb can't be had or doesn't understand what is asked, or what `take` says.
fn ask(
    part: &Part,
    script: &str,
    wanted: Wanted<'_>,
    take: impl FnOnce(&mut Stream) -> Result<Ended>,
) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(part.trace.as_deref())?;
    tell_of_others(part.pid, &dir)?;
    let wanted = wanted.within(part);
    let here = Here {
        dir: &dir,
        birth: debug::birth(part.pid, Place::Start, &dir)?,
        at: Place::Start,
    };
    match converse(&here, script, &wanted, take)? {
        (Ended::Whole, _) => Ok(0),
        (Ended::Interrupted(event), _) => {
            say!("interrupted at event {event}: this is what was found up to there");
            Ok(INTERRUPTED)
        }
        (Ended::Cut, status) => Ok(status),
    }
}

/// Where a script of gdb's begins.
struct Here<'a> {
    dir: &'a Path,
    birth: u32,
    at: Place,
}

/// Has gdb run this script at a place, and hands what comes out to `take`; how that ended, and the exit status where it broke off.
///
/// # Errors
/// As [`ask`].
fn converse(
    here: &Here<'_>,
    script: &str,
    wanted: &impl Serialize,
    take: impl FnOnce(&mut Stream) -> Result<Ended>,
) -> Result<(Ended, i32)> {
    let room = tempfile::tempdir().context("make a directory for what gdb finds")?;
    let wanted = serde_json::to_string(wanted)?;
    std::fs::write(room.path().join("wanted"), wanted).context("write for gdb")?;
    let pipe = room.path().join("found");
    let (read, mut write) = make_pipe(&pipe)?;
    let given_up = AtomicBool::new(false);
    let nobody_reads = &given_up;
    let session = Session {
        dir: here.dir,
        birth: here.birth,
        at: here.at,
        arguments: Session::script(room.path(), &format!("{COMMON}\n{script}"))?,
        answer: Some(&pipe),
        limit: None,
        given_up: Some(nobody_reads),
        marks: false,
        debugger: None,
        unseen: false,
    };
    let (ended, status) = std::thread::scope(|s| {
        let session = s.spawn(move || {
            let status = debug::with_gdb(&session);
            // Whoever reads learns that nothing more comes.
            if !nobody_reads.load(Relaxed) {
                let _ = Frame::End.write(&mut write);
            }
            status
        });
        let ended = take(&mut Stream::new(read));
        // Nobody would read what else is found.
        given_up.store(ended.is_err(), Relaxed);
        (ended, session.join())
    });
    let status = status.map_err(|_| anyhow::anyhow!("the session of gdb came to a bad end"))??;
    let ended = ended?;
    // Where it was cut off, the server has said why.
    anyhow::ensure!(
        ended != Ended::Cut || status != 0,
        "gdb gave no answer (is it one with python?)"
    );
    Ok((ended, status))
}

/// A pipe in the file system: its two ends.
///
/// # Errors
/// When there can be none.
pub fn make_pipe(path: &Path) -> Result<(File, File)> {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).context("make a pipe for what gdb finds")?;
    // An end that reads and writes does not wait for another one.
    let open = || File::options().read(true).write(true).open(path);
    Ok((open()?, open()?))
}

/// Who names no process learns that there are several.
fn tell_of_others(named: Option<ProcessName>, dir: &Path) -> Result<()> {
    if named.is_some() {
        return Ok(());
    }
    let n = Processes::of_trace(dir)?.0.list.len();
    if n > 1 {
        say!("the trace has {n} processes; this is asked of the first one (--pid names others, see `reprise ps`)");
    }
    Ok(())
}
