//! `rr ps` and `rr ls`, in the columns that tools read; and what of the processes of a trace only rr's users ask for.

use super::options::{Words, GLOBAL, LIST};
use crate::dump::command_of;
use crate::human;
use crate::processes::{Process, Processes};
use anyhow::{bail, Result};
use reprise_abi::event::Kind;
use reprise_console::tell_text;
use reprise_trace::{Catalog, Entry, Manifest, Reader};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

/// Stands for the command of a process that is its parent's copy to its end.
const NO_PROGRAM: &str = "(forked without exec)";

/// The first program that a process has executed.
struct Executed {
    /// So many events have happened when its first instruction is the next one.
    begins: u64,
    command: Vec<String>,
}

/// The processes of a trace, and what each of them has executed first.
pub struct Lives {
    processes: Processes,
    executed: HashMap<usize, Executed>,
}

impl Lives {
    /// Those of the trace in `dir`; what could be learned before damage, and the damage.
    ///
    /// # Errors
    /// When there is no trace.
    pub fn of_trace(dir: &Path) -> Result<(Lives, Option<anyhow::Error>)> {
        let manifest = Manifest::read(dir)?;
        let first = Executed {
            begins: 0,
            command: manifest.argv.iter().map(ToString::to_string).collect(),
        };
        let mut lives = Lives {
            processes: Processes::new(&manifest),
            executed: HashMap::from([(0, first)]),
        };
        let mut reader = Reader::open(dir)?;
        loop {
            let event = match reader.next() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok((lives, None)),
                Err(e) => return Ok((lives, Some(e.into()))),
            };
            let (number, event) = (event.number, event.parse()?);
            let whose = lives.processes.follow(number, &event);
            if let (Kind::Exec, Some(whose)) = (event.kind, whose) {
                lives.executed.entry(whose).or_insert_with(|| Executed {
                    begins: number + 1,
                    command: command_of(&event),
                });
            }
        }
    }

    /// The first process with this id, in the order of their births.
    pub fn with_id(&self, pid: i64) -> Option<usize> {
        self.processes.list.iter().position(|p| p.pid == pid)
    }

    /// The first process that has executed a program of this name: its path, or the end of that.
    pub fn that_executed(&self, name: &OsStr) -> Option<usize> {
        let name = name.to_string_lossy();
        let fits = |place: &usize| {
            let word = self.executed.get(place).and_then(|e| e.command.first());
            let rest = word.and_then(|w| w.strip_suffix(&*name));
            rest.is_some_and(|r| r.is_empty() || r.ends_with('/'))
        };
        (0..self.processes.list.len()).find(fits)
    }

    /// How many events have happened when this process is there.
    pub fn born(&self, place: usize) -> u64 {
        match place {
            0 => 0,
            _ => self.processes.list[place].first + 1,
        }
    }

    /// The same of when it begins the first program that it has executed.
    pub fn executed(&self, place: usize) -> Option<u64> {
        self.executed.get(&place).map(|e| e.begins)
    }

    fn row(&self, place: usize, p: &Process) -> String {
        let parent = match (place, p.parent) {
            (0, _) | (_, None) => "--".into(),
            (_, Some(parent)) => parent.to_string(),
        };
        let command = match self.executed.get(&place) {
            Some(e) => one_line(&e.command.join(" ")),
            None => NO_PROGRAM.into(),
        };
        format!("{}\t{parent}\t{}\t{command}\n", p.pid, exit_code(p))
    }
}

/// The status, or the signal's number below zero. Of a process whose end is not known rr says that it was killed.
fn exit_code(p: &Process) -> i32 {
    match p.wait_status {
        Some(status) if libc::WIFEXITED(status) => libc::WEXITSTATUS(status),
        Some(status) if libc::WIFSIGNALED(status) => -libc::WTERMSIG(status),
        _ => -libc::SIGKILL,
    }
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// `rr ps [TRACE]`
///
/// # Errors
/// When there is no such trace, it is damaged, or nobody takes what is printed.
pub fn processes(mut words: Words) -> Result<()> {
    while words.option(&[GLOBAL], "rr ps")?.is_some() {}
    let dir = super::directory(words.next())?;
    let (lives, damage) = Lives::of_trace(&dir)?;
    let mut text = String::from("PID\tPPID\tEXIT\tCMD\n");
    for (place, p) in lives.processes.list.iter().enumerate() {
        text.push_str(&lives.row(place, p));
    }
    tell_text(&text)?;
    damage.map_or(Ok(()), Err)
}

/// `rr ls [-l] [-t] [-r]`: oldest first with -t, else by name.
///
/// # Errors
/// When traces can't be listed, or nobody takes what is printed.
pub fn traces(mut words: Words) -> Result<()> {
    let (mut long, mut by_age, mut reverse) = (false, false, false);
    while let Some(option) = words.option(&[LIST, GLOBAL], "rr ls")? {
        match option.name {
            "long-listing" => long = true,
            "sort-by-age" => by_age = true,
            "reverse" => reverse = true,
            _ => {}
        }
    }
    if let Some(word) = words.next() {
        bail!(
            "`rr ls` lists the traces in $REPRISE_TRACE_DIR (or $_RR_TRACE_DIR), not {}",
            word.display()
        );
    }
    let mut entries = Catalog::from_env()?.list()?;
    if !by_age {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if reverse {
        entries.reverse();
    }
    let mut text = String::new();
    if long {
        let head = ["NAME", "WHEN", "SIZE", "CMD"].map(String::from).to_vec();
        let rows = std::iter::once(head).chain(entries.iter().map(columns));
        text = human::table(&rows.collect::<Vec<_>>(), &[2]);
    } else {
        entries.iter().for_each(|e| {
            let _ = writeln!(text, "{}", e.name);
        });
    }
    Ok(tell_text(&text)?)
}

fn columns(entry: &Entry) -> Vec<String> {
    let manifest = entry.manifest.as_ref();
    let program = manifest.map(|m| one_line(&m.exe.to_string()));
    vec![
        entry.name.clone(),
        manifest.map_or_else(String::new, |m| human::moment(m.started)),
        human::size(entry.own_bytes + entry.shared_bytes).replace(' ', ""),
        program.unwrap_or_else(|| "(incomplete)".into()),
    ]
}
