//! Pipes, socket pairs and event counters of the processes: which descriptor leads to which. Others (named pipes, sockets that were connected or
//! received) are not followed.

use reprise_abi::effect::{Effect, Opened};
use reprise_abi::event::{Event, Tag};
use reprise_abi::spec::Ret;
use reprise_abi::syscalls::{self, nr};
use std::collections::BTreeMap;

/// Most descriptors of a process that are followed.
const MAX_ENDS: usize = 4096;

const O_CLOEXEC: u64 = 0x8_0000;
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_DUPFD_CLOEXEC: u64 = 1030;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

/// One direction of something that bytes go through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Channel {
    /// What it is, for people.
    pub what: &'static str,
    /// Number of the event that made it.
    pub made: u64,
    /// Which of its directions.
    pub direction: u8,
}

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Where reads come from.
    pub reads: Option<Channel>,
    /// Where writes go.
    pub writes: Option<Channel>,
    closes_on_exec: bool,
}

/// The descriptors of a process that lead to channels.
#[derive(Clone, Default, Debug)]
pub struct Descriptors {
    ends: BTreeMap<i32, End>,
}

impl Descriptors {
    /// What this descriptor leads to.
    pub fn get(&self, fd: u64) -> Option<End> {
        self.ends.get(&(fd as i32)).copied()
    }

    /// The process became another program.
    pub fn exec(&mut self) {
        self.ends.retain(|_, end| !end.closes_on_exec);
    }

    /// A call is over that may have changed them.
    pub fn follow(&mut self, number: u64, args: &[u64; 6], event: &Event) {
        let (call, result) = (u64::from(event.header.detail), event.header.value);
        if result < 0 {
            return;
        }
        let made = result as i32;
        let arg = |n: u8| args[n as usize];
        match syscalls::effect(call) {
            Effect::Opens(Opened::Pipe(at)) => {
                let flags = if call == nr::PIPE2 { args[1] } else { 0 };
                if let Some([r, w]) = pair(event, arg(at)) {
                    let channel = channel("pipe", number, 0);
                    self.set(r, Some(channel), None, flags);
                    self.set(w, None, Some(channel), flags);
                }
            }
            Effect::Opens(Opened::SocketPair(at)) => {
                if let Some([a, b]) = pair(event, arg(at)) {
                    let (there, back) =
                        (channel("socket", number, 0), channel("socket", number, 1));
                    self.set(a, Some(back), Some(there), args[1]);
                    self.set(b, Some(there), Some(back), args[1]);
                }
            }
            Effect::Opens(Opened::Counter) => {
                let flags = if call == nr::EVENTFD2 { args[1] } else { 0 };
                let channel = Some(channel("eventfd", number, 0));
                self.set(made, channel, channel, flags);
            }
            Effect::Duplicates(from) => self.copy(arg(from), made, false),
            // To itself: nothing changes, not even whether an exec closes it.
            Effect::Replaces(r) if arg(r.from) as i32 == arg(r.onto) as i32 => {}
            Effect::Replaces(r) => {
                let flags = r.flags.map_or(0, arg);
                self.copy(arg(r.from), made, flags & O_CLOEXEC != 0);
            }
            _ if call == nr::FCNTL => match args[1] {
                F_DUPFD => self.copy(args[0], made, false),
                F_DUPFD_CLOEXEC => self.copy(args[0], made, true),
                F_SETFD => {
                    if let Some(end) = self.ends.get_mut(&(args[0] as i32)) {
                        end.closes_on_exec = args[2] & 1 != 0;
                    }
                }
                _ => {}
            },
            Effect::Closes(fd) => {
                self.ends.remove(&(arg(fd) as i32));
            }
            Effect::ClosesRange(first, last, flags) => {
                let closed = arg(first) as u32..=arg(last) as u32;
                let within = |fd: i32| closed.contains(&(fd as u32));
                if arg(flags) & CLOSE_RANGE_CLOEXEC != 0 {
                    let all = self.ends.iter_mut().filter(|(fd, _)| within(**fd));
                    all.for_each(|(_, end)| end.closes_on_exec = true);
                } else {
                    self.ends.retain(|fd, _| !within(*fd));
                }
            }
            // A descriptor that is new leads to nothing that was before.
            _ if syscalls::lookup(call).is_some_and(|s| s.ret == Ret::Fd) => {
                self.ends.remove(&made);
            }
            _ => {}
        }
    }

    fn set(&mut self, fd: i32, reads: Option<Channel>, writes: Option<Channel>, flags: u64) {
        if self.ends.len() < MAX_ENDS || self.ends.contains_key(&fd) {
            let closes_on_exec = flags & O_CLOEXEC != 0;
            let end = End {
                reads,
                writes,
                closes_on_exec,
            };
            self.ends.insert(fd, end);
        }
    }

    fn copy(&mut self, from: u64, to: i32, closes_on_exec: bool) {
        self.ends.remove(&to);
        if let Some(end) = self.get(from) {
            let flags = if closes_on_exec { O_CLOEXEC } else { 0 };
            self.set(to, end.reads, end.writes, flags);
        }
    }
}

fn channel(what: &'static str, made: u64, direction: u8) -> Channel {
    Channel {
        what,
        made,
        direction,
    }
}

/// The two descriptors that the kernel wrote to `at`.
fn pair(event: &Event, at: u64) -> Option<[i32; 2]> {
    let written = event
        .sections()
        .find(|s| s.tag == Tag::Output && s.address == at && s.bytes.len() == 8)?;
    let one = |i: usize| {
        let bytes = written.bytes[4 * i..4 * i + 4].try_into();
        bytes.map_or(-1, i32::from_le_bytes)
    };
    Some([one(0), one(1)])
}
