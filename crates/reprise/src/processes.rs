//! The processes of a trace, learned from its events in their order.

use crate::dump::command_of;
use reprise_abi::event::{Event, Kind, Tag, SLOT_SHIFT};
use reprise_abi::syscalls::nr;
use std::collections::HashMap;

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id in the recording.
    pub pid: i64,
    /// Its parent's; none for the first process.
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

/// All processes, and whose each slot is.
pub struct Processes {
    /// In order of their beginnings.
    pub list: Vec<Process>,
    by_slot: HashMap<u16, usize>,
    /// Slots of threads that have been made and have not begun.
    unborn: HashMap<u16, usize>,
}

impl Processes {
    /// Before the first event: only the first process is there.
    pub fn new(pid: i32, command: Vec<String>) -> Processes {
        let first = Process {
            pid: pid.into(),
            parent: None,
            command,
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
        }
    }

    /// Whose the events of this slot are now.
    pub fn of_slot(&self, slot: u16) -> Option<&Process> {
        self.list.get(*self.by_slot.get(&slot)?)
    }

    fn alive(&mut self, pid: i64) -> Option<&mut Process> {
        self.list.iter_mut().rfind(|p| p.pid == pid && !p.ended)
    }

    /// Learns from the next event.
    pub fn follow(&mut self, number: u64, event: &Event) {
        let h = &event.header;
        match event.kind {
            Kind::ProcessStart => {
                let parent = event.arg(0) as i64;
                let command = self
                    .alive(parent)
                    .map_or_else(Vec::new, |p| p.command.clone());
                self.list.push(Process {
                    pid: h.value,
                    parent: Some(parent),
                    command,
                    execs: 0,
                    first: number,
                    last: number,
                    wait_status: None,
                    ended: false,
                });
                self.by_slot.insert(h.slot, self.list.len() - 1);
            }
            Kind::ThreadStart => {
                if let Some(p) = self.unborn.remove(&h.slot) {
                    self.by_slot.insert(h.slot, p);
                }
            }
            Kind::Exec => {
                let command = command_of(event);
                if let Some(p) = self.by_slot.get(&h.slot).map(|p| &mut self.list[*p]) {
                    p.command = command;
                    p.execs += 1;
                }
            }
            Kind::ProcessEnd => {
                let status = i32::try_from(h.value).ok().filter(|s| *s >= 0);
                if let Some(p) = self.alive(event.arg(0) as i64) {
                    p.ended = true;
                    p.last = number;
                    p.wait_status = p.wait_status.or(status);
                }
            }
            Kind::End => {
                let root = &mut self.list[0];
                root.wait_status = Some(h.value as i32);
                root.ended = true;
            }
            Kind::Syscall | Kind::Exit => self.call(event),
            _ => {}
        }
        if let Some(p) = self.by_slot.get(&h.slot) {
            self.list[*p].last = number;
        }
    }

    fn call(&mut self, event: &Event) {
        let h = &event.header;
        match u64::from(h.detail) {
            nr::CLONE if h.value > 0 => {
                if let Some(p) = self.by_slot.get(&h.slot) {
                    self.unborn.insert((h.flags >> SLOT_SHIFT) as u16, *p);
                }
            }
            // What the parent was told is exact, also of one that was found dead.
            nr::WAIT4 if h.value > 0 => {
                let told = event
                    .sections()
                    .find(|s| s.tag == Tag::Output && s.bytes.len() == 4);
                let status = told
                    .map(|s| i32::from_le_bytes([s.bytes[0], s.bytes[1], s.bytes[2], s.bytes[3]]));
                let over = status.filter(|s| libc::WIFEXITED(*s) || libc::WIFSIGNALED(*s));
                let child = self.list.iter_mut().rfind(|p| p.pid == h.value);
                if let (Some(status), Some(child)) = (over, child) {
                    child.wait_status = Some(status);
                }
            }
            _ => {}
        }
    }
}
