//! The descriptors of a trace's processes: which open file description each is, what is behind that, and how far it has been read or written
//! (open(2), "Open file descriptions").

use reprise_abi::effect::{Effect, OpenFlags, Opened, Position};
use reprise_abi::event::{Event, Tag};
use reprise_abi::spec::Mem;
use reprise_abi::syscalls::{self, nr};
use std::collections::HashMap;
use std::path::PathBuf;

/// Commands of fcntl(2).
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const FD_CLOEXEC: u64 = 1;
const CLOSE_RANGE_CLOEXEC: u64 = 4;
const AT_FDCWD: i32 = -100;

/// What is behind a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Behind {
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
    /// The position in a file.
    at: u64,
}

/// A process's descriptors: which description each is, and whether an exec closes it.
pub type Table = HashMap<i32, (usize, bool)>;

/// What a call did to a stream or a file.
pub struct Transfer {
    /// What it read from: the description, and its position before.
    pub from: Option<(usize, u64)>,
    /// The stream that it wrote to, and how many had been written to that.
    pub to: Option<(usize, u64)>,
}

/// The descriptors of all processes.
pub struct Descriptors {
    cwd: PathBuf,
    open: Vec<Open>,
    /// Bytes that were written to each stream.
    streams: Vec<u64>,
    tables: HashMap<usize, Table>,
}

impl Descriptors {
    /// Those of the first process, which began in this directory.
    pub fn new(cwd: PathBuf) -> Descriptors {
        let names = ["standard input", "standard output", "standard error"];
        let open = names.map(|name| Open {
            behind: Behind::Other(name),
            at: 0,
        });
        let table = (0..3).map(|fd| (fd, (fd as usize, false))).collect();
        Descriptors {
            cwd,
            open: open.into(),
            streams: Vec::new(),
            tables: HashMap::from([(0, table)]),
        }
    }

    /// What is behind a description.
    pub fn behind(&self, open: usize) -> &Behind {
        &self.open[open].behind
    }

    /// What is behind a process's descriptor.
    pub fn behind_descriptor(&self, process: usize, fd: u64) -> Option<&Behind> {
        self.open_of(process, fd).map(|open| self.behind(open))
    }

    /// What a process hands on to one that it makes.
    pub fn table(&self, process: usize) -> Table {
        self.tables.get(&process).cloned().unwrap_or_default()
    }

    /// A process begins with these.
    pub fn begin(&mut self, process: usize, table: Table) {
        self.tables.insert(process, table);
    }

    /// A process has become another program.
    pub fn exec(&mut self, process: usize) {
        if let Some(table) = self.tables.get_mut(&process) {
            table.retain(|_, (_, closes)| !*closes);
        }
    }

    /// The open file description that a descriptor is.
    fn open_of(&self, process: usize, fd: u64) -> Option<usize> {
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

    /// What a call reads from or writes to, whose positions go on with it.
    pub fn transfer(
        &mut self,
        number: u64,
        args: &[u64; 6],
        process: usize,
        result: i64,
    ) -> Transfer {
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
        let place = self.open_of(process, fd)?;
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
        let place = self.open_of(process, fd)?;
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

    /// What a call that succeeded did to descriptors.
    pub fn note(
        &mut self,
        e: &Event<'_>,
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
                let dir = dir.and_then(|fd| self.open_of(process, fd as u64));
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
                if let Some(open) = self.open_of(process, arg(fd)) {
                    self.put(process, result, open, false);
                }
            }
            Effect::Replaces(r) => {
                let closes = r.flags.is_some_and(|i| arg(i) & O_CLOEXEC != 0);
                if let Some(open) = self.open_of(process, arg(r.from)) {
                    self.put(process, result, open, closes);
                }
            }
            Effect::Commands(fd) if number == nr::FCNTL => {
                let Some(open) = self.open_of(process, arg(fd)) else {
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
            Effect::Other if number == nr::LSEEK => {
                if let Some(open) = self.open_of(process, args[0]) {
                    self.open[open].at = result as u64;
                }
            }
            _ => {}
        }
    }
}

/// What the second argument of a call points to, which is where calls that read and write have their bytes.
pub fn buffer(number: u64) -> Mem {
    let second = syscalls::lookup(number).and_then(|call| call.args.get(1));
    second.map_or(Mem::None, |arg| arg.mem)
}
