//! Descriptors that a recording's processes had open in the end, and who had opened them: `reprise mcp --descriptors-of TRACE`, a child of the server's, as
//! all that reads traces.

use crate::dump::call_name;
use crate::processes::Processes;
use anyhow::Result;
use reprise_abi::effect::{Effect, Opened};
use reprise_abi::event::{Event, Kind, Tag};
use reprise_abi::spec::Ret;
use reprise_abi::syscalls::{self, nr};
use reprise_console::tell;
use reprise_trace::{Catalog, Manifest, Reader};
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Those that a process begins with are nobody's fault.
const FIRST: i32 = 3;
/// Most of a process that are followed.
const MOST: usize = 1 << 16;
/// Groups that are told of a process.
const MOST_GROUPS: usize = 20;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// A descriptor.
#[derive(Clone)]
struct Open {
    /// What it leads to, for people.
    what: String,
    /// The event that made it.
    event: u64,
}

#[derive(Default, Clone)]
struct Table {
    open: BTreeMap<i32, Open>,
    made: u64,
    closed: u64,
    most: usize,
}

impl Table {
    fn add(&mut self, fd: i32, what: String, event: u64) {
        if fd >= FIRST && (self.open.len() < MOST || self.open.contains_key(&fd)) {
            self.open.insert(fd, Open { what, event });
            self.made += 1;
            self.most = self.most.max(self.open.len());
        }
    }

    fn remove(&mut self, fd: i32) {
        self.closed += u64::from(self.open.remove(&fd).is_some());
    }

    fn copy(&mut self, from: i32, to: i32, event: u64) {
        let what = self.open.get(&from).map(|o| o.what.clone());
        self.remove(to);
        self.add(
            to,
            what.unwrap_or_else(|| format!("a copy of {from}")),
            event,
        );
    }

    /// A call is over.
    fn follow(&mut self, number: u64, args: &[u64; 6], path: Option<String>, event: &Event) {
        let (call, result) = (u64::from(event.header.detail), event.header.value);
        if result < 0 {
            return;
        }
        let made = result as i32;
        let arg = |n: u8| args[n as usize];
        match syscalls::effect(call) {
            Effect::Opens(Opened::Pipe(at) | Opened::SocketPair(at)) => {
                for fd in pair(event, arg(at)).into_iter().flatten() {
                    self.add(fd, call_name(event.header.detail), number);
                }
            }
            Effect::Duplicates(from) => self.copy(arg(from) as i32, made, number),
            Effect::Replaces(r) if arg(r.from) == arg(r.onto) => {}
            Effect::Replaces(r) => self.copy(arg(r.from) as i32, made, number),
            _ if call == nr::FCNTL => {
                if matches!(args[1], F_DUPFD | F_DUPFD_CLOEXEC) {
                    self.copy(args[0] as i32, made, number);
                }
            }
            Effect::Closes(fd) => self.remove(arg(fd) as i32),
            Effect::ClosesRange(first, last, flags) if arg(flags) & CLOSE_RANGE_CLOEXEC == 0 => {
                let closed = arg(first) as u32..=arg(last) as u32;
                let all: Vec<i32> = self.open.keys().copied().collect();
                for fd in all.into_iter().filter(|fd| closed.contains(&(*fd as u32))) {
                    self.remove(fd);
                }
            }
            _ if syscalls::lookup(call).is_some_and(|s| s.ret == Ret::Fd) => {
                let what = path.unwrap_or_else(|| call_name(event.header.detail));
                self.remove(made);
                self.add(made, what, number);
            }
            _ => {}
        }
    }

    /// What is open, by what it leads to: how many, the first and the last of them.
    fn groups(&self) -> Vec<Value> {
        let mut groups: BTreeMap<&str, Vec<(&i32, u64)>> = BTreeMap::new();
        for (fd, open) in &self.open {
            groups.entry(&open.what).or_default().push((fd, open.event));
        }
        let mut list: Vec<_> = groups.into_iter().collect();
        list.sort_by_key(|(_, all)| std::cmp::Reverse(all.len()));
        let told = list.into_iter().take(MOST_GROUPS).map(|(what, mut all)| {
            all.sort_by_key(|(_, event)| *event);
            let events = [all.first(), all.last()].map(|o| o.map(|(_, event)| *event));
            json!({"what": what, "count": all.len(), "first": events[0], "last": events[1]})
        });
        told.collect()
    }
}

/// The two descriptors that the kernel wrote to `at`.
fn pair(event: &Event, at: u64) -> Option<[i32; 2]> {
    let fits = |s: &reprise_abi::event::Section| {
        s.tag == Tag::Output && s.address == at && s.bytes.len() == 8
    };
    let written = event.sections().find(fits)?;
    let one = |i: usize| {
        let bytes = written.bytes[4 * i..4 * i + 4].try_into();
        bytes.map_or(-1, i32::from_le_bytes)
    };
    Some([one(0), one(1)])
}

/// Prints them.
///
/// # Errors
/// When the trace can't be read.
pub fn run(trace: &Path) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(Some(trace))?;
    let mut processes = Processes::new(&Manifest::read(&dir)?);
    let mut tables: Vec<Table> = vec![Table::default()];
    // Of calls inside which others ran: arguments and paths stand at their beginning.
    let mut begun: HashMap<u16, ([u64; 6], Option<String>)> = HashMap::new();
    let mut reader = Reader::open(&dir)?;
    while let Some(e) = reader.next()? {
        let (number, event) = (e.number, e.parse()?);
        let slot = event.header.slot;
        let Some(whose) = processes.follow(number, &event) else {
            continue;
        };
        while tables.len() < processes.list.len() {
            let parent = processes.list[tables.len()].parent;
            let maker = processes.list[..tables.len()]
                .iter()
                .rposition(|p| Some(p.pid) == parent);
            tables.push(maker.map_or_else(Table::default, |i| tables[i].clone()));
        }
        let args = std::array::from_fn(|i| event.arg(i));
        match event.kind {
            Kind::Enter => drop(begun.insert(slot, (args, path_of(&event)))),
            Kind::Syscall => tables[whose].follow(number, &args, path_of(&event), &event),
            Kind::Exit => {
                if let Some((args, path)) = begun.remove(&slot) {
                    let path = path.or_else(|| path_of(&event));
                    tables[whose].follow(number, &args, path, &event);
                }
            }
            _ => {}
        }
    }
    let told = processes.list.iter().zip(&tables).map(|(p, t)| {
        json!({
            "pid": p.pid, "opened": t.made, "closed": t.closed, "most": t.most, "open": t.open.len(), "what": t.groups(),
        })
    });
    let told: Vec<Value> = told.collect();
    tell!("{}", Value::from(told))?;
    Ok(0)
}

fn path_of(event: &Event) -> Option<String> {
    let path = event.sections().find(|s| s.tag == Tag::Path)?;
    Some(String::from_utf8_lossy(path.bytes).into_owned())
}
