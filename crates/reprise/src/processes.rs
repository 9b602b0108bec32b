//! The processes of a trace, learned from its events in their order.

use crate::dump::command_of;
use crate::record::crash;
use anyhow::{bail, Result};
use reprise_abi::effect::Effect;
use reprise_abi::event::{Event, EventHeader, Kind, ProcessEnd, Tag, SLOT_SHIFT};
use reprise_abi::syscalls::{self, nr};
use reprise_trace::{Manifest, Reader};
use std::collections::HashMap;
use std::path::Path;

const CLONE_PARENT: u64 = 0x8000;
const CLONE_THREAD: u64 = 0x1_0000;

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id in the recording, as itself knew it.
    pub pid: i64,
    /// As its parent knew it: another one where a pid namespace begins.
    pub told: i64,
    /// That of the process which made it, also if that one is dead when it begins; with CLONE_PARENT of its maker's parent. None for
    /// the first process.
    pub parent: Option<i64>,
    /// Its command line: that of the last program that it was.
    pub command: Vec<String>,
    /// Programs that it became by exec.
    pub execs: u64,
    /// Number of its first event.
    pub first: u64,
    /// Number of its last event.
    pub last: u64,
    /// How it ended, as of wait(2), when that is known.
    pub wait_status: Option<i32>,
    /// Has it ended, as far as the trace goes?
    pub ended: bool,
}

/// A process as a user names it: its id, and an event of its life where several had that id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessName {
    /// Its id.
    pub pid: i64,
    /// Number of an event between its first and its last.
    pub event: Option<u64>,
}

impl std::str::FromStr for ProcessName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessName, String> {
        let (pid, event) = match text.split_once('@') {
            Some((pid, event)) => (pid, Some(event)),
            None => (text, None),
        };
        let wanted = |_| format!("PID or PID@EVENT is wanted, not `{text}`");
        Ok(ProcessName {
            pid: pid.parse().map_err(wanted)?,
            event: event.map(str::parse).transpose().map_err(wanted)?,
        })
    }
}

/// A call that makes a process and has not come back.
#[derive(Clone, Copy)]
struct Making {
    /// Slot of the new process.
    child: u16,
    /// The new process, once it has begun.
    process: Option<usize>,
    /// Does the new process get its maker's parent (CLONE_PARENT)?
    sibling: bool,
}

/// A thread or process that has been made and has not begun.
#[derive(Clone, Copy)]
struct Unborn {
    /// Its process if it is a thread, else that of its maker.
    maker: usize,
    /// Its id as its maker was told it.
    told: i64,
    /// As [`Making::sibling`].
    sibling: bool,
}

/// All processes, and whose each slot is.
pub struct Processes {
    /// In order of their beginnings.
    pub list: Vec<Process>,
    by_slot: HashMap<u16, usize>,
    /// Slots of threads that have been made and have not begun.
    unborn: HashMap<u16, Unborn>,
    /// Slots of threads that are inside of such a call.
    making: HashMap<u16, Making>,
}

impl Processes {
    /// Before the first event: only the first process is there.
    pub fn new(manifest: &Manifest) -> Processes {
        let first = Process {
            pid: manifest.pid.into(),
            told: manifest.pid.into(),
            parent: None,
            command: manifest.argv.iter().map(ToString::to_string).collect(),
            execs: 0,
            first: 0,
            last: 0,
            wait_status: None,
            ended: false,
        };
        Processes {
            list: vec![first],
            by_slot: HashMap::from([(0, 0)]),
            unborn: HashMap::new(),
            making: HashMap::new(),
        }
    }

    /// The processes of the trace in `dir`; what could be learned before damage, and the damage.
    ///
    /// # Errors
    /// When there is no trace.
    pub fn of_trace(dir: &Path) -> Result<(Processes, Option<anyhow::Error>)> {
        let mut processes = Processes::new(&Manifest::read(dir)?);
        let mut reader = Reader::open(dir)?;
        loop {
            let event = match reader.next() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok((processes, None)),
                Err(e) => return Ok((processes, Some(e.into()))),
            };
            processes.follow(event.number, &event.parse()?);
        }
    }

    /// The one process that a user means; its place in the list.
    ///
    /// # Errors
    /// When there is none, or when there are several.
    pub fn named(&self, name: ProcessName) -> Result<usize> {
        let fits = |p: &Process| {
            let then = name.event.is_none_or(|e| p.first <= e && e <= p.last);
            p.pid == name.pid && then
        };
        let all: Vec<usize> = (0..self.list.len())
            .filter(|i| fits(&self.list[*i]))
            .collect();
        match (all[..].first(), name.event) {
            (Some(one), _) if all.len() == 1 => Ok(*one),
            (None, None) => bail!(
                "the trace has no process {}; see `reprise ps` for those that it has",
                name.pid
            ),
            (None, Some(e)) => bail!(
                "the trace has no process {} with event {e}; see `reprise ps`",
                name.pid
            ),
            _ => {
                let names = all
                    .iter()
                    .map(|i| format!("{}@{}", name.pid, self.list[*i].first));
                let names: Vec<String> = names.collect();
                bail!(
                    "{} processes had the id {}: name one by an event of its life: {}",
                    all.len(),
                    name.pid,
                    names.join(", ")
                )
            }
        }
    }

    /// The process that crashed first, or, of those that panicked, that did not end well; its place in the list.
    pub fn crashed(&self, by_panic: bool) -> Option<usize> {
        /// Exit statuses of a panic of Rust's, and of one of Go's.
        const PANICS: [i32; 2] = [101, 2];
        let first = |is_it: &dyn Fn(i32) -> bool| {
            let ended = self.list.iter().enumerate();
            let fits = ended.filter(|(_, p)| p.wait_status.is_some_and(is_it));
            fits.min_by_key(|(_, p)| p.last).map(|(i, _)| i)
        };
        let panicked =
            |status: i32| libc::WIFEXITED(status) && PANICS.contains(&libc::WEXITSTATUS(status));
        first(&|status| crash(status).is_some()).or_else(|| first(&panicked).filter(|_| by_panic))
    }

    /// Learns from the next event; whose it is: an event that begins a process, or ends one, is that process's.
    pub fn follow(&mut self, number: u64, event: &Event) -> Option<usize> {
        let h = &event.header;
        let mut whose = self.by_slot.get(&h.slot).copied();
        match event.kind {
            Kind::ProcessStart => whose = Some(self.begins(number, event)),
            Kind::ThreadStart => {
                if let Some(thread) = self.unborn.remove(&h.slot) {
                    self.by_slot.insert(h.slot, thread.maker);
                    whose = Some(thread.maker);
                }
            }
            Kind::Exec => {
                if let Some(p) = whose.map(|i| &mut self.list[i]) {
                    p.command = command_of(event);
                    p.execs += 1;
                }
            }
            Kind::ProcessEnd => {
                if h.detail == ProcessEnd::Found as u32 {
                    whose = self.found_dead(event);
                }
                let status = i32::try_from(h.value).ok().filter(|s| *s >= 0);
                if let Some(p) = whose.map(|i| &mut self.list[i]) {
                    p.ended = true;
                    p.wait_status = p.wait_status.or(status);
                }
            }
            Kind::End => {
                let root = &mut self.list[0];
                root.wait_status = Some(h.value as i32);
                root.ended = true;
            }
            Kind::Syscall | Kind::Enter | Kind::Exit => self.call(event),
            _ => {}
        }
        if let Some(i) = whose {
            self.list[i].last = number;
        }
        whose
    }

    fn begins(&mut self, number: u64, event: &Event) -> usize {
        let h = &event.header;
        let place = self.list.len();
        let made = self.unborn.remove(&h.slot);
        let of = |m: &(&u16, &mut Making)| m.1.child == h.slot && m.1.process.is_none();
        let (maker, sibling) = match made {
            Some(made) => (Some(made.maker), made.sibling),
            None => match self.making.iter_mut().find(of) {
                Some((slot, making)) => {
                    making.process = Some(place);
                    (self.by_slot.get(slot).copied(), making.sibling)
                }
                None => (None, false),
            },
        };
        let maker = maker.map(|i| &self.list[i]);
        // What the process itself was told is another one's id if its parent was dead by then, and none if that is outside of its
        // namespace.
        let parent = match maker {
            Some(maker) if sibling => maker.parent,
            Some(maker) => Some(maker.pid),
            None => None,
        };
        self.list.push(Process {
            pid: h.value,
            told: made.map_or(h.value, |made| made.told),
            parent: parent.or(Some(event.arg(0) as i64)),
            command: maker.map_or_else(Vec::new, |p| p.command.clone()),
            execs: 0,
            first: number,
            last: number,
            wait_status: None,
            ended: false,
        });
        self.by_slot.insert(h.slot, place);
        place
    }

    /// Who was found dead: by its place in the order of beginnings, which is that of the list. None, if it had not begun.
    fn found_dead(&self, event: &Event) -> Option<usize> {
        if event.arg(2) != 0 {
            return None;
        }
        let (pid, birth) = (event.arg(0) as i64, event.arg(1) as usize);
        let one = self.list.get(birth)?;
        (one.pid == pid && !one.ended).then_some(birth)
    }

    fn call(&mut self, event: &Event) {
        let h = &event.header;
        let child = (h.flags >> SLOT_SHIFT) as u16;
        let effect = syscalls::effect(h.detail.into());
        let flags = match effect {
            Effect::Clones => event.arg(0),
            _ => 0,
        };
        let is_wait4 = u64::from(h.detail) == nr::WAIT4;
        match (effect.makes_thread(), event.kind) {
            (true, Kind::Enter) if flags & CLONE_THREAD == 0 => {
                let making = Making {
                    child,
                    process: None,
                    sibling: flags & CLONE_PARENT != 0,
                };
                self.making.insert(h.slot, making);
            }
            (true, Kind::Exit) => {
                if let Some(making) = self.making.remove(&h.slot).filter(|_| h.value > 0) {
                    match making.process {
                        Some(p) => self.list[p].told = h.value,
                        // Its first step is still to come.
                        None => self.is_made(making.child, h, making.sibling),
                    }
                }
            }
            (true, Kind::Syscall) if h.value > 0 => {
                self.is_made(child, h, flags & CLONE_PARENT != 0);
            }
            // What the parent was told is exact, also of one that was found dead.
            (_, Kind::Syscall | Kind::Exit) if is_wait4 && h.value > 0 => {
                let told = event
                    .sections()
                    .find(|s| s.tag == Tag::Output && s.bytes.len() == 4);
                let status = told
                    .map(|s| i32::from_le_bytes([s.bytes[0], s.bytes[1], s.bytes[2], s.bytes[3]]));
                let over = status.filter(|s| libc::WIFEXITED(*s) || libc::WIFSIGNALED(*s));
                let child = self.list.iter_mut().rfind(|p| p.told == h.value);
                if let (Some(status), Some(child)) = (over, child) {
                    child.wait_status = Some(status);
                }
            }
            _ => {}
        }
    }
    /// The thread of event `h` was told that there is another one, in slot `child`.
    fn is_made(&mut self, child: u16, h: &EventHeader, sibling: bool) {
        if let Some(maker) = self.by_slot.get(&h.slot).copied() {
            let told = h.value;
            self.unborn.insert(
                child,
                Unborn {
                    maker,
                    told,
                    sibling,
                },
            );
        }
    }
}
