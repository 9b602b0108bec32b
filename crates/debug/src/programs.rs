//! Which processes a recording has, and which programs the debugged one is, one after the other: a process becomes another program by
//! execve(2), with other code, other files and another stack. Its first one may be its parent's, which it has from fork(2).

use reprise_abi::event::{Event, EventHeader, Kind, ProcessEnd, SLOT_SHIFT};
use reprise_abi::syscalls;
use reprise_trace::{Content, ImageSet, Known, Manifest, Result};
use std::collections::HashMap;
use std::path::Path;

/// What a process is for a time.
#[derive(Clone, Default, Debug)]
pub struct Program {
    /// So many events have happened when its first instruction is the next one.
    pub begins: u64,
    /// Its image in the trace.
    pub image: u64,
    /// Its command line, each word with a zero behind it.
    pub command: Vec<u8>,
    /// Code that the runtime rewrites in it.
    pub code: Known,
    /// Its file, ...
    pub file: Vec<u8>,
    /// ... and its first stack pointer.
    pub initial_sp: u64,
}

/// Follows the events, for one process.
#[derive(Default)]
pub struct Programs {
    wanted: u32,
    births: u32,
    /// Whose a slot is, by births; one that is not known is the first process's.
    owner: HashMap<u16, u32>,
    /// Who makes the thread or process that will have a slot.
    makers: HashMap<u16, u32>,
    /// What each process is now.
    now: HashMap<u32, Program>,
    /// What the wanted one is, one after the other.
    pub list: Vec<Program>,
    /// At which event it ends, and its wait status.
    pub end: Option<(u64, i32)>,
}

/// Arguments of the event of a process that was found dead: its birth, ...
const BIRTH: usize = 1;
/// ... and not 0 if it had none.
const UNBORN: usize = 2;

impl Programs {
    /// Those of the process with this birth. `known`: what was known when the trace begins, after `first` events.
    pub fn of(wanted: u32, manifest: &Manifest, first: u64, known: &Known) -> Programs {
        let words = manifest.argv.iter();
        let program = Program {
            begins: first,
            command: words.flat_map(|w| [&w.0[..], b"\0"].concat()).collect(),
            code: known.clone(),
            ..Program::default()
        };
        Programs {
            wanted,
            list: match wanted {
                0 => vec![program.clone()],
                _ => Vec::new(),
            },
            now: HashMap::from([(0, program)]),
            ..Programs::default()
        }
    }

    /// Learns from the next event.
    pub fn follow(&mut self, number: u64, h: &EventHeader, event: &Event<'_>) {
        match event.kind {
            Kind::Syscall | Kind::Enter => self.makes(h),
            Kind::ThreadStart => {
                if let Some(maker) = self.makers.remove(&h.slot) {
                    self.owner.insert(h.slot, maker);
                }
            }
            Kind::ProcessStart => self.begins(number, h.slot),
            Kind::Exec => self.becomes(number, h, event),
            Kind::Patch => {
                let whose = self.owner(h.slot);
                if let Some(p) = self.now.get_mut(&whose) {
                    p.code.note(number, event);
                }
                if let Some(p) = self.list.last_mut().filter(|_| whose == self.wanted) {
                    p.code.note(number, event);
                }
            }
            Kind::ProcessEnd => {
                let whose = match h.detail == ProcessEnd::Found as u32 {
                    true if event.arg(UNBORN) != 0 => None,
                    true => Some(event.arg(BIRTH) as u32),
                    false => Some(self.owner(h.slot)),
                };
                if whose == Some(self.wanted) && self.end.is_none() {
                    /// Of one that was killed nobody knows how.
                    const KILLED: i32 = libc::SIGKILL;
                    let status = i32::try_from(h.value).unwrap_or(KILLED);
                    self.end = Some((number, status));
                }
            }
            _ => {}
        }
    }

    fn owner(&self, slot: u16) -> u32 {
        self.owner.get(&slot).copied().unwrap_or(0)
    }

    fn makes(&mut self, h: &EventHeader) {
        let child = (h.flags >> SLOT_SHIFT) as u16;
        let makes = syscalls::effect(h.detail.into()).makes_thread();
        if makes && child != 0 {
            let maker = self.owner(h.slot);
            self.makers.insert(child, maker);
        }
    }

    fn begins(&mut self, number: u64, slot: u16) {
        self.births += 1;
        let maker = self.makers.remove(&slot).unwrap_or(0);
        self.owner.insert(slot, self.births);
        let mut program = self.now.get(&maker).cloned().unwrap_or_default();
        program.begins = number + 1;
        if self.births == self.wanted {
            self.list.push(program.clone());
        }
        self.now.insert(self.births, program);
    }

    fn becomes(&mut self, number: u64, h: &EventHeader, event: &Event<'_>) {
        let whose = self.owner(h.slot);
        let words = event.sections().next().map_or(&[][..], |s| s.bytes);
        let program = Program {
            begins: number + 1,
            image: h.value as u64,
            command: words.to_vec(),
            ..Program::default()
        };
        if whose == self.wanted {
            self.list.push(program.clone());
        }
        self.now.insert(whose, program);
    }

    /// All was followed: looks into their images, and adds the files that these show to what is known.
    ///
    /// # Errors
    /// When an image can't be read.
    pub fn look_into_images(
        &mut self,
        dir: &Path,
        manifest: &Manifest,
        known: &mut Known,
    ) -> Result<()> {
        let mut images = ImageSet::new(dir);
        for program in &mut self.list {
            let image = images.image(program.image)?;
            let start = image.start().unwrap_or(&manifest.start);
            program.initial_sp = start.initial_sp;
            for r in &image.image().regions {
                if let Content::File { hash, .. } = &r.content {
                    known.files.insert(r.name.0.clone(), *hash);
                    // Below its libraries and ld.so, which loads it.
                    if program.file.is_empty() {
                        program.file.clone_from(&r.name.0);
                    }
                }
            }
            // What was run may be a link to it, which no mapping has the name of.
            if program.image == 0 && known.files.contains_key(&manifest.exe.0) {
                program.file.clone_from(&manifest.exe.0);
            }
        }
        Ok(())
    }
}
