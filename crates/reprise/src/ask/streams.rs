//! What was behind the descriptors of a trace's processes, and at which byte of it each call read or wrote: from the events alone, in one pass.
//!
//! A pipe, and each direction of a pair of sockets, is a stream: its bytes are counted from the first one that was written, so that whoever read
//! a byte is brought together with whoever wrote it, in whichever process that was.

use crate::dump::Narrator;
use crate::processes::Processes;
use anyhow::{Context, Result};
use reprise_abi::effect::{Effect, OpenFlags, Opened, Position};
use reprise_abi::event::{Event, Kind, Section, Tag, SLOT_SHIFT};
use reprise_abi::inputs::Reference;
use reprise_abi::layout::PAGE;
use reprise_abi::spec::Mem;
use reprise_abi::syscalls::{self, nr};
use reprise_trace::{Inputs, Manifest, Reader};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Commands of fcntl(2).
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const FD_CLOEXEC: u64 = 1;
const CLOSE_RANGE_CLOEXEC: u64 = 4;
const AT_FDCWD: i32 = -100;
const MAP_ANONYMOUS: u64 = 0x20;
/// Bytes that are shown on each side of those that were looked for.
const AROUND: u64 = 24;
/// Most bytes of a buffer that are shown of a call.
const SHOWN: usize = 32;

/// What is behind a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Behind {
    File(PathBuf),
    /// The streams from which it reads and to which it writes, and what it is called.
    Stream {
        reads: Option<usize>,
        writes: Option<usize>,
        what: &'static str,
    },
    Other(&'static str),
}

/// An open file description.
struct Open {
    behind: Behind,
    at: u64,
}

/// A process's descriptors: which description each is, and whether an exec closes it.
type Table = HashMap<i32, (usize, bool)>;

/// A call as it was entered.
#[derive(Clone, Copy)]
struct Entered {
    event: u64,
    args: [u64; 6],
}

/// Memory that was mapped.
#[derive(Clone)]
struct Mapped {
    event: u64,
    process: usize,
    at: u64,
    len: u64,
    file: Option<(Behind, u64)>,
}

/// Where bytes of a call come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Came {
    /// This byte of a file.
    File { path: PathBuf, offset: u64 },
    /// This byte of a stream, which is a pipe or a socket.
    Stream {
        stream: usize,
        position: u64,
        what: &'static str,
    },
    /// The call itself made them, or somebody who was not recorded sent them.
    Call(&'static str),
}

/// A call that brought bytes into memory.
#[derive(Debug)]
pub struct Input {
    /// The process, in the order of births.
    pub process: usize,
    /// The call, as `dump` prints it.
    pub call: String,
    /// From where.
    pub came: Came,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// These, and some around them.
    pub around: Vec<u8>,
}

/// Where what is sent is in the memory of the process that sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// At this address.
    At(u64),
    /// This byte of as many buffers, of which there is a vector at an address.
    Vector { at: u64, count: u64, skip: u64 },
    /// As above, of a message.
    Message { at: u64, skip: u64 },
}

/// A call that wrote a byte of a stream.
#[derive(Debug)]
pub struct Writer {
    /// Its event, before which the bytes are in the process's memory.
    pub event: u64,
    /// The process, in the order of births.
    pub process: usize,
    /// The call, as `dump` prints it.
    pub call: String,
    /// What was sent; `Err`: it was moved from a file, past the process's memory.
    pub from: std::result::Result<Sent, Came>,
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

/// What is followed in a pass over a trace.
struct Pass {
    processes: Processes,
    narrator: Narrator,
    cwd: PathBuf,
    open: Vec<Open>,
    /// Bytes that were written to each stream.
    streams: Vec<u64>,
    tables: HashMap<usize, Table>,
    /// What a process has that is being made: its maker, the event, and the table.
    made: HashMap<u16, (usize, u64, Table)>,
    parents: HashMap<usize, (usize, u64)>,
    entered: HashMap<u16, Entered>,
    mapped: Vec<Mapped>,
}

/// What a call did to a stream or a file.
struct Transfer {
    /// What it read from: the description, and its position before.
    from: Option<(usize, u64)>,
    /// The stream that it wrote to, and how many had been written to that.
    to: Option<(usize, u64)>,
}

/// A call that is over.
struct Done<'a> {
    e: &'a Event<'a>,
    /// Where it was entered.
    event: u64,
    args: [u64; 6],
    process: usize,
    transfer: Transfer,
}

impl Pass {
    fn new(dir: &Path) -> Result<Pass> {
        let manifest = Manifest::read(dir)?;
        let names = ["standard input", "standard output", "standard error"];
        let open = names.map(|name| Open {
            behind: Behind::Other(name),
            at: 0,
        });
        let table = (0..3).map(|fd| (fd, (fd as usize, false))).collect();
        Ok(Pass {
            processes: Processes::new(&manifest),
            narrator: Narrator::of(dir, manifest.pid, SHOWN),
            cwd: PathBuf::from(manifest.cwd.to_string()),
            open: open.into(),
            streams: Vec::new(),
            tables: HashMap::from([(0, table)]),
            made: HashMap::new(),
            parents: HashMap::new(),
            entered: HashMap::new(),
            mapped: Vec::new(),
        })
    }

    /// Goes over a trace up to the first event of which `take` says something.
    fn over<T>(
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
                    self.tables.insert(process, table);
                }
            }
            Kind::Exec => {
                if let Some(table) = process.and_then(|p| self.tables.get_mut(&p)) {
                    table.retain(|_, (_, closes)| !*closes);
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
            let table = self.tables.get(&process).cloned().unwrap_or_default();
            let child = (h.flags >> SLOT_SHIFT) as u16;
            self.made.insert(child, (process, number, table));
        }
    }

    fn behind(&self, process: usize, fd: u64) -> Option<usize> {
        let (open, _) = self.tables.get(&process)?.get(&(fd as i32))?;
        Some(*open)
    }

    fn add(&mut self, process: usize, fd: i64, behind: Behind, closes: bool) {
        self.open.push(Open { behind, at: 0 });
        let place = self.open.len() - 1;
        self.put(process, fd, place, closes);
    }

    fn put(&mut self, process: usize, fd: i64, open: usize, closes: bool) {
        if let Ok(fd) = i32::try_from(fd) {
            let table = self.tables.entry(process).or_default();
            table.insert(fd, (open, closes));
        }
    }

    fn stream(&mut self) -> usize {
        self.streams.push(0);
        self.streams.len() - 1
    }

    /// Both ends of a pipe or a pair of sockets.
    fn add_pair(&mut self, process: usize, e: &Event<'_>, closes: bool, is_pipe: bool) {
        let told = e
            .sections()
            .find(|s| s.tag == Tag::Output && s.bytes.len() == 8);
        let Some(told) = told else { return };
        let fd = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&told.bytes[at..at + 4]);
            i64::from(i32::from_le_bytes(word))
        };
        let one = self.stream();
        let (other, what) = match is_pipe {
            true => (None, "a pipe"),
            false => (Some(self.stream()), "a socket"),
        };
        let ends = [(Some(one), other), (other, Some(one))];
        for ((reads, writes), fd) in ends.into_iter().zip([fd(0), fd(4)]) {
            let end = Behind::Stream {
                reads,
                writes,
                what,
            };
            self.add(process, fd, end, closes);
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
        let transfer = self.transfer(number, &args, process, result);
        if result >= 0 {
            self.note(e, event, number, &args, process, result);
        }
        Done {
            e,
            event,
            args,
            process,
            transfer,
        }
    }

    fn transfer(&mut self, number: u64, args: &[u64; 6], process: usize, result: i64) -> Transfer {
        let mut t = Transfer {
            from: None,
            to: None,
        };
        let Ok(count) = u64::try_from(result) else {
            return t;
        };
        let arg = |i: u8| args.get(usize::from(i)).copied().unwrap_or(0);
        let own = |p: Position| match p {
            Position::Own => None,
            Position::At(i) => Some(arg(i)),
            Position::AtOrOwn(i) => Some(arg(i)).filter(|at| *at != u64::MAX),
        };
        match syscalls::effect(number) {
            Effect::Reads(fd, p) => t.from = self.reads(process, arg(fd), own(p), count),
            // The result of a call for many messages is their number.
            Effect::Receives(_) | Effect::Sends(_)
                if matches!(buffer(number), Mem::MmsghdrIn(_) | Mem::MmsghdrOut(_)) => {}
            Effect::Receives(fd) => {
                const MSG_PEEK: u64 = 2;
                let flags = match buffer(number) {
                    Mem::MsghdrOut => args[2],
                    _ => args[3],
                };
                let count = if flags & MSG_PEEK != 0 { 0 } else { count };
                t.from = self.reads(process, arg(fd), None, count);
            }
            Effect::Writes(fd, p) => t.to = self.writes(process, arg(fd), own(p), count),
            Effect::Sends(fd) => t.to = self.writes(process, arg(fd), None, count),
            Effect::Moves(m) => {
                // An offset that is told in memory is not followed.
                let count_from = if m.leaves { 0 } else { count };
                t.from = self.reads(process, arg(m.from), None, count_from);
                t.to = self.writes(process, arg(m.to), None, count);
            }
            _ => {}
        }
        t
    }

    fn reads(
        &mut self,
        process: usize,
        fd: u64,
        at: Option<u64>,
        count: u64,
    ) -> Option<(usize, u64)> {
        let place = self.behind(process, fd)?;
        let open = &mut self.open[place];
        if let Some(at) = at {
            return Some((place, at));
        }
        let was = open.at;
        open.at += count;
        Some((place, was))
    }

    fn writes(
        &mut self,
        process: usize,
        fd: u64,
        at: Option<u64>,
        count: u64,
    ) -> Option<(usize, u64)> {
        let place = self.behind(process, fd)?;
        let open = &mut self.open[place];
        match open.behind {
            Behind::Stream {
                writes: Some(stream),
                ..
            } => {
                let was = self.streams[stream];
                self.streams[stream] += count;
                Some((stream, was))
            }
            Behind::File(_) if at.is_none() => {
                open.at += count;
                None
            }
            _ => None,
        }
    }

    /// What a call did to descriptors and to the address space.
    fn note(
        &mut self,
        e: &Event<'_>,
        event: u64,
        number: u64,
        args: &[u64; 6],
        process: usize,
        result: i64,
    ) {
        const O_CLOEXEC: u64 = 0o2_000_000;
        let arg = |i: u8| args.get(usize::from(i)).copied().unwrap_or(0);
        match syscalls::effect(number) {
            Effect::OpensFile(o) => {
                let name = e.sections().find(|s| s.tag == Tag::Path);
                let name = name.map(|s| String::from_utf8_lossy(s.bytes).into_owned());
                let name = PathBuf::from(name.unwrap_or_default());
                let dir = o.dir.map(|i| arg(i) as i32).filter(|fd| *fd != AT_FDCWD);
                let dir = dir.and_then(|fd| self.behind(process, fd as u64));
                let dir = dir.and_then(|open| match &self.open[open].behind {
                    Behind::File(path) => Some(path.clone()),
                    _ => None,
                });
                let path = dir.unwrap_or_else(|| self.cwd.clone()).join(name);
                let closes = match o.flags {
                    OpenFlags::In(i) => arg(i) & O_CLOEXEC != 0,
                    OpenFlags::Behind(_) | OpenFlags::Creates => false,
                };
                self.add(process, result, Behind::File(path), closes);
            }
            Effect::Opens(Opened::Pipe(_)) => {
                self.add_pair(process, e, args[1] & O_CLOEXEC != 0, true);
            }
            Effect::Opens(Opened::SocketPair(_)) => {
                self.add_pair(process, e, args[1] & O_CLOEXEC != 0, false);
            }
            Effect::Opens(Opened::Socket | Opened::Accepted(_)) => {
                self.add(process, result, Behind::Other("a socket"), false);
            }
            Effect::Opens(_) => self.add(process, result, Behind::Other("the kernel"), false),
            Effect::Duplicates(fd) => {
                if let Some(open) = self.behind(process, arg(fd)) {
                    self.put(process, result, open, false);
                }
            }
            Effect::Replaces(r) => {
                let closes = r.flags.is_some_and(|i| arg(i) & O_CLOEXEC != 0);
                if let Some(open) = self.behind(process, arg(r.from)) {
                    self.put(process, result, open, closes);
                }
            }
            Effect::Commands(fd) if number == nr::FCNTL => {
                let Some(open) = self.behind(process, arg(fd)) else {
                    return;
                };
                match args[1] {
                    F_DUPFD | F_DUPFD_CLOEXEC => {
                        self.put(process, result, open, args[1] == F_DUPFD_CLOEXEC);
                    }
                    F_SETFD => {
                        let closes = args[2] & FD_CLOEXEC != 0;
                        self.put(process, arg(fd) as i32 as i64, open, closes);
                    }
                    _ => {}
                }
            }
            Effect::Closes(fd) => {
                if let Some(table) = self.tables.get_mut(&process) {
                    table.remove(&(arg(fd) as i32));
                }
            }
            Effect::ClosesRange(first, last, flags) => {
                let range = arg(first)..=arg(last);
                let marks = arg(flags) & CLOSE_RANGE_CLOEXEC != 0;
                if let Some(table) = self.tables.get_mut(&process) {
                    table.retain(|fd, (_, closes)| {
                        let is_in = range.contains(&u64::from(*fd as u32));
                        *closes |= is_in && marks;
                        !is_in || marks
                    });
                }
            }
            Effect::Maps => {
                let is_file = args[3] & MAP_ANONYMOUS == 0;
                let open = self
                    .behind(process, args[4])
                    .filter(|_| is_file)
                    .map(|open| (self.open[open].behind.clone(), args[5]));
                self.mapped.push(Mapped {
                    event,
                    process,
                    at: result as u64,
                    len: args[1],
                    file: open,
                });
            }
            Effect::Other if number == nr::LSEEK => {
                if let Some(open) = self.behind(process, args[0]) {
                    self.open[open].at = result as u64;
                }
            }
            _ => {}
        }
    }

    fn words(&mut self, number: u64, e: &Event<'_>) -> String {
        self.narrator.tell(number, e).text().to_string()
    }
}

/// Bytes of memory that a section brought, and how many.
fn brought(s: &Section<'_>) -> Option<(u64, u64, Option<Reference>)> {
    match s.tag {
        Tag::Output => Some((s.address, s.bytes.len() as u64, None)),
        Tag::Reference => {
            let r = Reference::parse(s.bytes)?;
            Some((s.address, r.len, Some(r)))
        }
        _ => None,
    }
}

/// The call by whose event `number` these bytes came into memory.
///
/// # Errors
/// When the trace can't be read, or the event wrote nothing there.
pub fn input(dir: &Path, number: u64, at: u64, len: u32) -> Result<Input> {
    let (_, found) = Pass::over(dir, |pass, n, done| match n == number {
        true => input_of(dir, pass, n, done, at, len).map(Some),
        false => Ok(None),
    })?;
    found.context("the call that wrote the bytes is not in the trace")
}

fn input_of(
    dir: &Path,
    pass: &mut Pass,
    number: u64,
    done: &Done<'_>,
    at: u64,
    len: u32,
) -> Result<Input> {
    let (mut skip, mut here) = (0, None);
    for s in done.e.sections() {
        let Some((begin, count, reference)) = brought(&s) else {
            continue;
        };
        if at.wrapping_sub(begin) < count {
            here = Some((s, at - begin, count, reference));
            break;
        }
        skip += count;
    }
    let (section, inside, count, reference) = here.context("the call wrote nothing there")?;
    let from = done
        .transfer
        .from
        .map(|(open, was)| (&pass.open[open].behind, was));
    let came = match (from, reference) {
        (Some((Behind::File(path), _)), Some(r)) => Came::File {
            path: path.clone(),
            offset: r.offset + inside,
        },
        (Some((Behind::File(path), was)), None) => Came::File {
            path: path.clone(),
            offset: was + skip + inside,
        },
        (
            Some((
                Behind::Stream {
                    reads: Some(stream),
                    what,
                    ..
                },
                was,
            )),
            _,
        ) => Came::Stream {
            stream: *stream,
            position: was + skip + inside,
            what,
        },
        (Some((Behind::Other(what), _)), _) => Came::Call(what),
        _ => Came::Call("the kernel"),
    };
    // What can be seen of it.
    let first = inside.saturating_sub(AROUND);
    let end = (inside + u64::from(len) + AROUND).min(count);
    let around = match reference {
        None => section.bytes[first as usize..end as usize].to_vec(),
        Some(r) => {
            let part = Reference {
                offset: r.offset + first,
                len: end - first,
                hash: reprise_abi::inputs::UNKNOWN_HASH,
                ..r
            };
            Inputs::of(dir).read(&part, end - first).unwrap_or_default()
        }
    };
    let begin = (inside - first) as usize;
    let bytes = around.iter().skip(begin).take(len as usize);
    Ok(Input {
        process: done.process,
        call: pass.words(number, done.e),
        came,
        bytes: bytes.copied().collect(),
        around,
    })
}

/// What the second argument of a call points to, which is where calls that read and write have their bytes.
fn buffer(number: u64) -> Mem {
    let second = syscalls::lookup(number).and_then(|call| call.args.get(1));
    second.map_or(Mem::None, |arg| arg.mem)
}

/// The call that wrote this byte of a stream; `None`: nobody who was recorded.
///
/// # Errors
/// When the trace can't be read.
pub fn writer(dir: &Path, stream: usize, position: u64) -> Result<Option<Writer>> {
    let (_, found) = Pass::over(dir, |pass, number, done| {
        let Some((_, was)) = done.transfer.to.filter(|(to, _)| *to == stream) else {
            return Ok(None);
        };
        let count = u64::try_from(done.e.header.value).unwrap_or(0);
        let Some(skip) = position.checked_sub(was).filter(|skip| *skip < count) else {
            return Ok(None);
        };
        let (args, call) = (done.args, u64::from(done.e.header.detail));
        let from = match done
            .transfer
            .from
            .map(|(open, at)| (&pass.open[open].behind, at))
        {
            Some((Behind::File(path), at)) => Err(Came::File {
                path: path.clone(),
                offset: at + skip,
            }),
            Some((
                Behind::Stream {
                    reads: Some(stream),
                    what,
                    ..
                },
                at,
            )) => Err(Came::Stream {
                stream: *stream,
                position: at + skip,
                what,
            }),
            Some(_) => Err(Came::Call("the kernel")),
            None => Ok(match buffer(call) {
                Mem::IovecIn(_) => Sent::Vector {
                    at: args[1],
                    count: args[2],
                    skip,
                },
                Mem::MsghdrIn => Sent::Message { at: args[1], skip },
                _ => Sent::At(args[1].wrapping_add(skip)),
            }),
        };
        Ok(Some(Writer {
            event: done.event,
            process: done.process,
            call: pass.words(number, done.e),
            from,
        }))
    })?;
    Ok(found)
}

/// A call in words.
///
/// # Errors
/// When the trace can't be read.
pub fn words(dir: &Path, number: u64) -> Result<Option<String>> {
    let (_, found) = Pass::over(dir, |pass, n, done| {
        Ok((n == number).then(|| pass.words(n, done.e)))
    })?;
    Ok(found)
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

/// Ids of the trace's processes, in the order of their births.
///
/// # Errors
/// When the trace can't be read.
pub fn pids(dir: &Path) -> Result<Vec<i64>> {
    let all = Processes::of_trace(dir)?.0.list;
    Ok(all.iter().map(|p| p.pid).collect())
}
