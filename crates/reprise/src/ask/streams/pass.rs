//! A pass over a trace's events, in which its processes, their descriptors and their memory are followed.

use super::descriptors::{Descriptors, Table, Transfer};
use super::mappings::Mapped;
use crate::dump::Narrator;
use crate::processes::Processes;
use anyhow::Result;
use reprise_abi::effect::Effect;
use reprise_abi::event::{Event, Kind, SLOT_SHIFT};
use reprise_abi::syscalls;
use reprise_trace::{Manifest, Reader};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Of mmap(2).
const MAP_ANONYMOUS: u64 = 0x20;
/// Most bytes of a buffer that are shown of a call.
const SHOWN: usize = 32;

/// A call as it was entered.
#[derive(Clone, Copy)]
struct Entered {
    event: u64,
    args: [u64; 6],
}

/// What is followed in a pass over a trace.
pub struct Pass {
    pub processes: Processes,
    narrator: Narrator,
    pub descriptors: Descriptors,
    /// What a process has that is being made: its maker, the event, and the table.
    made: HashMap<u16, (usize, u64, Table)>,
    /// The maker of each, and the event before which it was made.
    pub parents: HashMap<usize, (usize, u64)>,
    entered: HashMap<u16, Entered>,
    pub mapped: Vec<Mapped>,
}

/// A call that is over.
pub struct Done<'a> {
    pub e: &'a Event<'a>,
    /// Where it was entered.
    pub event: u64,
    pub args: [u64; 6],
    pub process: usize,
    pub transfer: Transfer,
}

impl Pass {
    fn new(dir: &Path) -> Result<Pass> {
        let manifest = Manifest::read(dir)?;
        Ok(Pass {
            processes: Processes::new(&manifest),
            narrator: Narrator::of(dir, manifest.pid, SHOWN),
            descriptors: Descriptors::new(PathBuf::from(manifest.cwd.to_string())),
            made: HashMap::new(),
            parents: HashMap::new(),
            entered: HashMap::new(),
            mapped: Vec::new(),
        })
    }

    /// Goes over a trace up to the first event of which `take` says something.
    pub fn over<T>(
        dir: &Path,
        mut take: impl FnMut(&mut Pass, u64, &Done<'_>) -> Result<Option<T>>,
    ) -> Result<(Pass, Option<T>)> {
        let mut pass = Pass::new(dir)?;
        let mut reader = Reader::open(dir)?;
        while let Some(event) = reader.next()? {
            let number = event.number;
            let e = event.parse()?;
            if let Some(done) = pass.follow(number, &e) {
                if let Some(found) = take(&mut pass, number, &done)? {
                    return Ok((pass, Some(found)));
                }
            }
            pass.narrator.follow(&e);
        }
        Ok((pass, None))
    }

    fn follow<'a>(&mut self, number: u64, e: &'a Event<'a>) -> Option<Done<'a>> {
        let h = &e.header;
        let process = self.processes.follow(number, e);
        match e.kind {
            Kind::ProcessStart => {
                if let (Some(process), Some((maker, event, table))) =
                    (process, self.made.remove(&h.slot))
                {
                    self.parents.insert(process, (maker, event));
                    self.descriptors.begin(process, table);
                }
            }
            Kind::Exec => {
                if let Some(process) = process {
                    self.descriptors.exec(process);
                }
            }
            Kind::Enter => {
                let args = std::array::from_fn(|i| e.arg(i));
                let event = number;
                self.entered.insert(h.slot, Entered { event, args });
                self.note_maker(number, e, process?, args[0]);
            }
            Kind::Syscall => {
                let args = std::array::from_fn(|i| e.arg(i));
                self.note_maker(number, e, process?, args[0]);
                return Some(self.call(e, number, args, process?));
            }
            Kind::Exit => {
                let Entered { event, args } = self.entered.remove(&h.slot)?;
                return Some(self.call(e, event, args, process?));
            }
            _ => {}
        }
        None
    }

    /// A process that is being made gets its maker's descriptors.
    fn note_maker(&mut self, number: u64, e: &Event<'_>, process: usize, flags: u64) {
        const CLONE_THREAD: u64 = 0x1_0000;
        let h = &e.header;
        let effect = syscalls::effect(h.detail.into());
        let is_thread = effect == Effect::Clones && flags & CLONE_THREAD != 0;
        if effect.makes_thread() && !is_thread && h.value >= 0 {
            let table = self.descriptors.table(process);
            let child = (h.flags >> SLOT_SHIFT) as u16;
            self.made.insert(child, (process, number, table));
        }
    }

    fn call<'a>(
        &mut self,
        e: &'a Event<'a>,
        event: u64,
        args: [u64; 6],
        process: usize,
    ) -> Done<'a> {
        let (number, result) = (u64::from(e.header.detail), e.header.value);
        let descriptors = &mut self.descriptors;
        let transfer = descriptors.transfer(number, &args, process, result);
        if result >= 0 {
            descriptors.note(e, number, &args, process, result);
            if syscalls::effect(number) == Effect::Maps {
                self.note_mapped(event, &args, process, result as u64);
            }
        }
        Done {
            e,
            event,
            args,
            process,
            transfer,
        }
    }

    fn note_mapped(&mut self, event: u64, args: &[u64; 6], process: usize, at: u64) {
        let is_file = args[3] & MAP_ANONYMOUS == 0;
        let behind = self.descriptors.behind_descriptor(process, args[4]);
        let file = behind.filter(|_| is_file).cloned();
        self.mapped.push(Mapped {
            event,
            process,
            at,
            len: args[1],
            file: file.map(|file| (file, args[5])),
        });
    }

    /// A call in words, as `dump` prints it.
    pub fn words(&mut self, number: u64, e: &Event<'_>) -> String {
        self.narrator.tell(number, e).text().to_string()
    }
}
