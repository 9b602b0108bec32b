//! The timeline of a trace: which event is whose, which calls are slices of their thread's time, and what flows from one thread to
//! another. `export` and `view` draw it; nothing is drawn here.
//!
//! A trace has no clock: the time of the timeline is the number of the event, the same that `dump` prints. An event takes one
//! unit; a call during which other threads ran takes as long as the events from its beginning to its end.

mod channels;
mod flows;
mod label;

use crate::dump::command_of;
use crate::processes::Processes;
use flows::Flows;
pub use flows::{Flow, Place};
pub use label::label;
use reprise_abi::event::{Event, Kind, ProcessEnd, Tag, SLOT_SHIFT};
use reprise_abi::syscalls::{self, nr};
use reprise_trace::Manifest;
use std::collections::HashMap;

/// prctl(2): what the calling thread is called.
const PR_SET_NAME: u64 = 15;
/// Most bytes of a thread's name, as the kernel keeps it.
const NAME_LEN: usize = 15;

/// A thread of the trace.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its process: place in [`Processes::list`].
    pub process: usize,
    /// Its id, as itself knew it.
    pub tid: i64,
    /// Its slot in the session.
    pub slot: u16,
    /// What it called itself last.
    pub name: String,
    /// Number of its first event.
    pub first: u64,
    /// Number of its last event.
    pub last: u64,
    /// Whether its end is in the trace.
    pub ended: bool,
    open: Option<Open>,
}

/// A call that a thread is in.
#[derive(Clone, Copy, Debug)]
struct Open {
    number: u64,
    nr: u32,
    args: [u64; 6],
}

/// What an event is on its thread's track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// A call from beginning to end; its number.
    Call(u32),
    /// A call begins; its number.
    Enter(u32),
    /// The call that began at this event ends.
    Exit(u64),
    /// Operations of synchronisation.
    Sync,
    /// A thread or a process begins, or a thread ends: as long as one event, so that flows can begin and end there.
    Life,
    /// Anything that takes no time.
    Instant,
}

/// What an event means for the timeline.
#[derive(Debug)]
pub struct Step {
    /// Whose it is: place in [`Timeline::threads`]. None: nobody's that is known.
    pub thread: Option<usize>,
    /// What it is there.
    pub mark: Mark,
    /// Threads whose call ends here, before this event, without an event of its own: their process ended or became another program.
    pub cut_off: Vec<usize>,
    /// The thread has another name from here on, or is new.
    pub named: bool,
    /// What comes from other threads and ends here.
    pub flows: Vec<Flow>,
}

/// Follows a trace from its first event.
pub struct Timeline {
    /// Its processes so far.
    pub processes: Processes,
    /// Its threads so far, in order of their beginnings.
    pub threads: Vec<Thread>,
    by_slot: HashMap<u16, usize>,
    /// The first thread of each process.
    leaders: HashMap<usize, usize>,
    /// Threads of each process that have not ended.
    alive: HashMap<usize, Vec<usize>>,
    /// Makers of threads and processes that have not begun, by slot.
    makers: HashMap<u16, Place>,
    flows: Flows,
}

impl Timeline {
    /// Before the first event.
    pub fn new(manifest: &Manifest) -> Timeline {
        let processes = Processes::new(manifest);
        let first = &processes.list[0];
        let thread = Thread {
            process: 0,
            tid: first.pid,
            slot: 0,
            name: short_name(&first.command),
            first: 0,
            last: 0,
            ended: false,
            open: None,
        };
        Timeline {
            processes,
            threads: vec![thread],
            by_slot: HashMap::from([(0, 0)]),
            leaders: HashMap::from([(0, 0)]),
            alive: HashMap::from([(0, vec![0])]),
            makers: HashMap::new(),
            flows: Flows::default(),
        }
    }

    /// Since when the thread has been in the call that it is in.
    pub fn in_call_since(&self, thread: usize) -> Option<u64> {
        self.threads[thread].open.map(|o| o.number)
    }

    /// Ownership of locks that changed hands in another order than their events stand in the trace: no flow tells of it.
    pub fn backward(&self) -> u64 {
        self.flows.backward
    }

    /// Learns from the next event.
    pub fn follow(&mut self, number: u64, event: &Event) -> Step {
        let h = &event.header;
        let process = self.processes.follow(number, event);
        let mut step = Step {
            thread: None,
            mark: Mark::Instant,
            cut_off: Vec::new(),
            named: number == 0,
            flows: Vec::new(),
        };
        match event.kind {
            Kind::ThreadStart | Kind::ProcessStart => self.birth(number, event, process, &mut step),
            Kind::Exec => self.exec(event, process, &mut step),
            Kind::ProcessEnd => self.process_end(event, process, &mut step),
            _ => step.thread = self.by_slot.get(&h.slot).copied(),
        }
        if let Some(thread) = step.thread {
            self.thread_event(number, event, thread, &mut step);
            self.threads[thread].last = number;
        }
        step
    }

    fn thread_event(&mut self, number: u64, event: &Event, thread: usize, step: &mut Step) {
        let h = &event.header;
        let process = self.threads[thread].process;
        let place = Place {
            event: number,
            thread,
        };
        match event.kind {
            Kind::Syscall => {
                step.mark = Mark::Call(h.detail);
                let args = std::array::from_fn(|i| event.arg(i));
                self.completed(place, number, args, event, step);
            }
            Kind::Enter => {
                if self.threads[thread].open.take().is_some() {
                    step.cut_off.push(thread);
                }
                let args = std::array::from_fn(|i| event.arg(i));
                self.threads[thread].open = Some(Open {
                    number,
                    nr: h.detail,
                    args,
                });
                step.mark = Mark::Enter(h.detail);
                self.makes(place, event);
                self.flows.begins(place, process, h, &args);
            }
            Kind::Exit => match self.threads[thread].open.take() {
                Some(open) if open.nr == h.detail => {
                    step.mark = Mark::Exit(open.number);
                    self.completed(place, open.number, open.args, event, step);
                }
                // The trace does not have its beginning.
                other => {
                    step.cut_off.extend(other.map(|_| thread));
                    step.mark = Mark::Call(h.detail);
                }
            },
            Kind::Sync => {
                step.mark = Mark::Sync;
                self.flows.sync(place, process, event, &mut step.flows);
            }
            Kind::ThreadExit | Kind::Gone => {
                step.mark = Mark::Life;
                if self.threads[thread].open.take().is_some() {
                    step.cut_off.push(thread);
                }
                self.threads[thread].ended = true;
                if let Some(alive) = self.alive.get_mut(&process) {
                    alive.retain(|t| *t != thread);
                }
                self.flows.thread_ends(place, process, h.slot);
            }
            _ => {}
        }
    }

    /// A call is over that began at event `began`.
    fn completed(
        &mut self,
        place: Place,
        began: u64,
        args: [u64; 6],
        event: &Event,
        step: &mut Step,
    ) {
        let h = &event.header;
        let process = self.threads[place.thread].process;
        if event.kind == Kind::Syscall {
            self.makes(place, event);
        }
        if (u64::from(h.detail), args[0], h.value) == (nr::PRCTL, PR_SET_NAME, 0) {
            if let Some(name) = event.sections().find(|s| s.tag == Tag::Path) {
                self.threads[place.thread].name = kernel_name(name.bytes);
                step.named = true;
            }
        }
        let call = flows::Call {
            place,
            process,
            began,
            args: &args,
            event,
        };
        self.flows.completed(&call, &mut step.flows);
    }

    /// Whether the call makes a thread or a process, of which the trace then knows the slot.
    fn makes(&mut self, place: Place, event: &Event) {
        let h = &event.header;
        let child = (h.flags >> SLOT_SHIFT) as u16;
        let makes = syscalls::effect(h.detail.into()).makes_thread();
        let done = event.kind == Kind::Syscall;
        if makes && child != 0 && (!done || h.value > 0) {
            self.makers.insert(child, place);
            let process = self.threads[place.thread].process;
            self.flows.forks(child, process, event);
        }
    }

    fn birth(&mut self, number: u64, event: &Event, process: Option<usize>, step: &mut Step) {
        let h = &event.header;
        let maker = self.makers.remove(&h.slot);
        let process = match (process, maker) {
            (Some(process), _) => process,
            (None, Some(maker)) => self.threads[maker.thread].process,
            (None, None) => 0,
        };
        let leader = self.leaders.get(&process).copied();
        let like = maker.map(|m| m.thread).or(leader).unwrap_or(0);
        let thread = self.threads.len();
        self.threads.push(Thread {
            process,
            tid: h.value,
            slot: h.slot,
            name: self.threads[like].name.clone(),
            first: number,
            last: number,
            ended: false,
            open: None,
        });
        self.by_slot.insert(h.slot, thread);
        self.leaders.entry(process).or_insert(thread);
        self.alive.entry(process).or_default().push(thread);
        if event.kind == Kind::ProcessStart {
            self.flows.process_begins(h.slot, process);
        }
        step.thread = Some(thread);
        step.mark = Mark::Life;
        step.named = true;
        let to = Place {
            event: number,
            thread,
        };
        step.flows.extend(maker.map(|from| Flow::birth(from, to)));
    }

    /// The process is another program now: its other threads are gone, and whoever called goes on as its first thread.
    fn exec(&mut self, event: &Event, process: Option<usize>, step: &mut Step) {
        let slot = event.header.slot;
        let Some(caller) = self.by_slot.get(&slot).copied() else {
            return;
        };
        let process = process.unwrap_or(self.threads[caller].process);
        self.end_threads(process, step);
        let leader = self.leaders.get(&process).copied().unwrap_or(caller);
        let command = command_of(event);
        let thread = &mut self.threads[leader];
        thread.ended = false;
        thread.slot = slot;
        thread.name = short_name(&command);
        self.alive.insert(process, vec![leader]);
        self.by_slot.insert(slot, leader);
        self.flows.execs(process);
        step.thread = Some(leader);
        step.named = true;
    }

    fn process_end(&mut self, event: &Event, process: Option<usize>, step: &mut Step) {
        let h = &event.header;
        let own = self.by_slot.get(&h.slot).copied();
        let found = h.detail == ProcessEnd::Found as u32;
        step.thread = match process {
            Some(p) if found => self.leaders.get(&p).copied(),
            _ => own,
        };
        if let Some(p) = process {
            self.end_threads(p, step);
            self.flows.process_ends(p);
        }
    }

    /// All threads of the process are gone.
    fn end_threads(&mut self, process: usize, step: &mut Step) {
        for i in self.alive.remove(&process).unwrap_or_default() {
            let thread = &mut self.threads[i];
            thread.ended = true;
            step.cut_off.extend(thread.open.take().map(|_| i));
        }
    }
}

/// What the kernel calls a program: the last part of its path, cut off.
fn short_name(command: &[String]) -> String {
    let path = command.first().map_or("", String::as_str);
    let file = path.rsplit('/').next().unwrap_or(path);
    kernel_name(file.as_bytes())
}

fn kernel_name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let name = String::from_utf8_lossy(&bytes[..end.min(NAME_LEN)]);
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
