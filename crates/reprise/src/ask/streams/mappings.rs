//! The memory of a trace's processes that was mapped: how memory began that nobody has written.

use super::descriptors::Behind;
use super::pass::Pass;
use anyhow::Result;
use reprise_abi::layout::PAGE;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Memory that was mapped.
#[derive(Clone)]
pub struct Mapped {
    pub event: u64,
    pub process: usize,
    pub at: u64,
    pub len: u64,
    /// What it shows, and from which byte on.
    pub file: Option<(Behind, u64)>,
}

/// How memory began that nobody has written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Birth {
    /// It shows this byte of a file, mapped by this event.
    File {
        event: u64,
        path: PathBuf,
        offset: u64,
    },
    /// It was mapped by this event, and is zero.
    Zero { event: u64 },
    /// The process has it from its parent, as that was before this event.
    Parent {
        process: usize,
        pid: i64,
        event: u64,
    },
    /// It is of the program as it began.
    Program,
}

/// All that was mapped, and who has made which process.
pub struct Mappings(Pass);

impl Mappings {
    /// Of the trace in `dir`.
    ///
    /// # Errors
    /// When the trace can't be read.
    pub fn of(dir: &Path) -> Result<Mappings> {
        let (pass, _) = Pass::over(dir, |_, _, _| Ok(None::<()>))?;
        Ok(Mappings(pass))
    }

    fn last(&self, process: usize, at: u64, before: u64) -> Option<&Mapped> {
        let all = self.0.mapped.iter().rev();
        let is_there = |m: &&Mapped| at.wrapping_sub(m.at) < m.len.next_multiple_of(PAGE);
        let mut all = all.filter(|m| m.process == process && m.event < before);
        all.find(is_there)
    }

    /// How this memory began, if that was between two events.
    pub fn between(&self, process: usize, at: u64, events: Range<u64>) -> Option<Birth> {
        let m = self.last(process, at, events.end)?;
        (m.event >= events.start).then(|| m.birth(at))
    }

    /// How this memory of a process began in which nobody had written before this event.
    pub fn birth(&self, process: usize, at: u64, before: u64) -> Birth {
        if let Some(m) = self.last(process, at, before) {
            return m.birth(at);
        }
        let list = &self.0.processes.list;
        match self.0.parents.get(&process) {
            Some((maker, event)) if list[process].execs == 0 => Birth::Parent {
                process: *maker,
                pid: list[*maker].pid,
                event: *event,
            },
            _ => Birth::Program,
        }
    }
}

impl Mapped {
    fn birth(&self, at: u64) -> Birth {
        match &self.file {
            Some((Behind::File(path), offset)) => Birth::File {
                event: self.event,
                path: path.clone(),
                offset: offset + (at - self.at),
            },
            _ => Birth::Zero { event: self.event },
        }
    }
}
