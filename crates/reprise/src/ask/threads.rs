//! What each thread of a recording did, in a form in which it can be compared with another recording of the same program: threads are known by
//! who made them, ids by whose they are; and what only tells when or where something ran is left out.

use anyhow::Result;
use reprise_abi::effect::{Effect, Told};
use reprise_abi::event::{Event, Kind, Tag, NO_SLOT};
use reprise_abi::inputs::Reference;
use reprise_abi::spec::{Mem, Print, Ret, Width};
use reprise_abi::syscalls::{self, nr};
use reprise_trace::{Manifest, Reader};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Lower ids are numbers like any other.
const LOWEST_ID: i64 = 64;

/// What a thread did: a call, or what happened to it.
#[derive(Clone, Copy, Debug)]
pub struct Deed {
    /// The event in which it began.
    pub event: u64,
    /// The event in which it ended.
    pub end: u64,
    /// Hash of what was done.
    pub done: u64,
    /// Hash of what came of it; 0: nothing yet.
    pub came: u64,
}

/// A thread.
#[derive(Default, Debug)]
pub struct Thread {
    /// Who made it, and which of that one's children it is: `main`, `main.1`, `main.2.1`.
    pub name: String,
    /// What it did, in its order.
    pub deeds: Vec<Deed>,
    id: i64,
    /// Ids of those that it made.
    made: VecDeque<i64>,
}

/// A recording.
pub struct Threads {
    /// The threads, in the order of their first events.
    pub list: Vec<Thread>,
    /// Which thread did something, in the order of the trace, with the number of the event.
    pub turns: Vec<(u64, usize)>,
}

impl Threads {
    /// Of the trace in `dir`.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn of(dir: &Path) -> Result<Threads> {
        let mut threads = Threads::named(dir)?;
        threads.read_deeds(dir)?;
        Ok(threads)
    }

    /// Only who there is.
    fn named(dir: &Path) -> Result<Threads> {
        let mut list = vec![Thread {
            id: Manifest::read(dir)?.pid.into(),
            ..Thread::default()
        }];
        let mut now = HashMap::from([(0u16, 0usize)]);
        let mut reader = Reader::open(dir)?;
        while let Some(e) = reader.next()? {
            let event = e.parse()?;
            let h = &event.header;
            match event.kind {
                Kind::ThreadStart | Kind::ProcessStart => {
                    now.insert(h.slot, list.len());
                    list.push(Thread {
                        id: h.value,
                        ..Thread::default()
                    });
                }
                Kind::Syscall | Kind::Exit if makes_thread(h.detail) && h.value > 0 => {
                    if let Some(i) = now.get(&h.slot) {
                        list[*i].made.push_back(h.value);
                    }
                }
                _ => {}
            }
        }
        name(&mut list);
        Ok(Threads {
            list,
            turns: Vec::new(),
        })
    }

    fn read_deeds(&mut self, dir: &Path) -> Result<()> {
        let names: HashMap<i64, String> = self
            .list
            .iter()
            .filter(|t| t.id >= LOWEST_ID)
            .map(|t| (t.id, t.name.clone()))
            .collect();
        let hashes = Hashes { names };
        let mut now = HashMap::from([(0u16, 0usize)]);
        let mut born = 0;
        let mut reader = Reader::open(dir)?;
        while let Some(e) = reader.next()? {
            let event = e.parse()?;
            let slot = event.header.slot;
            if matches!(event.kind, Kind::ThreadStart | Kind::ProcessStart) {
                born += 1;
                now.insert(slot, born);
            }
            let Some(i) = now.get(&slot).copied().filter(|_| slot != NO_SLOT) else {
                continue;
            };
            let deeds = &mut self.list[i].deeds;
            let call = u64::from(event.header.detail);
            let is_call = matches!(event.kind, Kind::Syscall | Kind::Enter | Kind::Exit);
            if is_call && is_of_turns(call) {
                continue;
            }
            if event.kind == Kind::Exit {
                if let Some(last) = deeds.last_mut().filter(|d| d.came == 0) {
                    (last.came, last.end) = (hashes.came(&event), e.number);
                }
            } else if let Some(done) = hashes.done(&event) {
                let came = match event.kind {
                    Kind::Enter => 0,
                    _ => hashes.came(&event),
                };
                deeds.push(Deed {
                    event: e.number,
                    end: e.number,
                    done,
                    came,
                });
                self.turns.push((e.number, i));
            }
        }
        Ok(())
    }
}

/// Does the call with this number make threads or processes?
fn makes_thread(number: u32) -> bool {
    syscalls::effect(number.into()).makes_thread()
}

/// Do this call's results tell what time it is, which processor runs, or who started the program, or are they made of chance?
fn is_of_the_moment(call: u64) -> bool {
    match syscalls::effect(call) {
        Effect::Tells(told) => !matches!(told, Told::Resolution | Told::ProcessId | Told::ThreadId),
        Effect::Family => matches!(call, nr::GETPPID | nr::GETPGRP | nr::GETPGID | nr::GETSID),
        Effect::Sleeps => true,
        _ => false,
    }
}

/// Does a thread make this call or not as others come before it or not? It tells of turns, which are compared by themselves.
fn is_of_turns(call: u64) -> bool {
    matches!(syscalls::effect(call), Effect::Futex | Effect::Yields) || call == nr::RESTART_SYSCALL
}

/// Gives threads their names, whoever's events came first.
fn name(list: &mut [Thread]) {
    let Some(first) = list.first_mut() else {
        return;
    };
    first.name = "main".into();
    let mut by_id: HashMap<i64, VecDeque<usize>> = HashMap::new();
    for (i, t) in list.iter().enumerate().skip(1) {
        by_id.entry(t.id).or_default().push_back(i);
    }
    let mut next = VecDeque::from([0]);
    while let Some(i) = next.pop_front() {
        let (name, made) = (list[i].name.clone(), std::mem::take(&mut list[i].made));
        for (child, n) in made.iter().zip(1..) {
            let found = by_id.get_mut(child).and_then(VecDeque::pop_front);
            if let Some(found) = found {
                list[found].name = format!("{name}.{n}");
                next.push_back(found);
            }
        }
    }
    let mut unknown = 0;
    for t in list.iter_mut().filter(|t| t.name.is_empty()) {
        unknown += 1;
        t.name = format!("unknown.{unknown}");
    }
}

/// Makes hashes of events that are the same in recordings that are.
struct Hashes {
    /// Names of threads by their ids.
    names: HashMap<i64, String>,
}

impl Hashes {
    /// Of what the program did; `None`: nothing.
    fn done(&self, event: &Event<'_>) -> Option<u64> {
        let h = &event.header;
        let mut hash = Xxh3::new();
        match event.kind {
            Kind::Syscall | Kind::Enter => {
                hash.update(&h.detail.to_le_bytes());
                let table = syscalls::lookup(h.detail.into());
                let all = table.map_or(&[][..], |t| t.args);
                for (i, a) in all.iter().enumerate().take(h.nargs.into()) {
                    let plain = a.mem == Mem::None && a.print != Print::Ptr;
                    let value = event.arg(i);
                    match plain {
                        true => self.number(&mut hash, cut(value, a.width)),
                        // Where memory lies is no business of the program's.
                        false => hash.update(&[u8::from(value != 0)]),
                    }
                }
                hash.update(&h.input_hash.to_le_bytes());
                for s in event.sections().filter(|s| s.tag == Tag::Path) {
                    hash.update(s.bytes);
                }
            }
            Kind::Signal | Kind::Fault => hash.update(&[h.kind, h.detail as u8]),
            Kind::ThreadExit | Kind::ProcessEnd | Kind::End => {
                hash.update(&[h.kind]);
                hash.update(&h.value.to_le_bytes());
            }
            Kind::ThreadStart | Kind::ProcessStart | Kind::Exec => hash.update(&[h.kind]),
            _ => return None,
        }
        // 0 is for what has not come yet.
        Some(hash.digest() | 1)
    }

    /// Of what came in.
    fn came(&self, event: &Event<'_>) -> u64 {
        let h = &event.header;
        let call = u64::from(h.detail);
        let mut hash = Xxh3::new();
        if matches!(event.kind, Kind::Syscall | Kind::Exit) && !is_of_the_moment(call) {
            let is_address = syscalls::lookup(call).is_some_and(|t| t.ret == Ret::Ptr);
            match is_address && h.value > 0 {
                true => hash.update(b"address"),
                false => self.number(&mut hash, h.value as u64),
            }
            for s in event.sections() {
                match s.tag {
                    Tag::Output if s.bytes.len() == 4 || s.bytes.len() == 8 => {
                        let mut word = [0; 8];
                        word[..s.bytes.len()].copy_from_slice(s.bytes);
                        self.number(&mut hash, u64::from_le_bytes(word));
                    }
                    Tag::Output => lasting(call, s.bytes).for_each(|part| hash.update(part)),
                    Tag::Reference => {
                        if let Some(r) = Reference::parse(s.bytes) {
                            hash.update(&r.len.to_le_bytes());
                            hash.update(&r.hash.to_le_bytes());
                        }
                    }
                    _ => {}
                }
            }
        }
        hash.digest() | 1
    }

    /// A number, or the thread whose id it is.
    fn number(&self, hash: &mut Xxh3, value: u64) {
        match self.names.get(&(value as i64)) {
            Some(name) => hash.update(name.as_bytes()),
            None => hash.update(&value.to_le_bytes()),
        }
    }
}

/// What of a call's output is no number of an inode and no time of a file: those tell of the moment.
fn lasting(call: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Of struct stat: from st_nlink to st_blocks; of struct statx: to stx_mode, and stx_size to stx_attributes_mask.
    let has = |name| syscalls::lookup(call).is_some_and(|c| c.args.iter().any(|a| a.name == name));
    let parts = match () {
        () if has("statbuf") => [16..72, 0..0],
        () if has("statxbuf") => [0..32, 40..64],
        () => [0..bytes.len(), 0..0],
    };
    parts.into_iter().filter_map(|part| bytes.get(part))
}

/// What counts of an argument.
fn cut(value: u64, width: Width) -> u64 {
    match width {
        Width::Signed => i64::from(value as i32) as u64,
        Width::Unsigned => u64::from(value as u32),
        Width::Full => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: i64, made: &[i64]) -> Thread {
        Thread {
            id,
            made: made.iter().copied().collect(),
            ..Thread::default()
        }
    }

    #[test]
    fn threads_are_named_by_who_made_them() {
        // The second of main's begins first, and one that nobody made is there as well. An id is used twice.
        let mut list = vec![
            thread(100, &[101, 102, 103]),
            thread(102, &[103]),
            thread(101, &[]),
            thread(103, &[]),
            thread(103, &[]),
            thread(900, &[]),
        ];
        name(&mut list);
        let names: Vec<&str> = list.iter().map(|t| t.name.as_str()).collect();
        let wanted = [
            "main",
            "main.2",
            "main.1",
            "main.3",
            "main.2.1",
            "unknown.1",
        ];
        assert_eq!(names, wanted);
    }
}
