//! What system calls order: what one thread writes into a pipe, and the like, another one reads.
//!
//! Descriptors that carry something from a thread to another one have a **channel**: both ends of a pipe or of a pair of sockets have the
//! same, an event counter and an epoll set have their own, all other sockets share one. Who writes leaves there what it knows, who reads
//! learns it. Files have none: that two threads use one file says nothing about their memory. Neither have descriptors that the
//! program was started with, or got from another process.

use super::objects::Kind;
use super::{detector, Detector, FIRST_CHANNEL, SIGNALS, SOCKETS};
use crate::machine::guard;
use crate::machine::sys;
use crate::memory::capture::Call;
use crate::thread::Block;
use reprise_abi::effect::{Effect, Opened, Position, Receiver};
use reprise_abi::syscalls::nr;

/// Descriptors that are followed.
const DESCRIPTORS: usize = 4096;
const F_DUPFD: u64 = 0;
const F_DUPFD_CLOEXEC: u64 = 1030;

/// The channels of all descriptors.
pub struct Channels {
    of: [u32; DESCRIPTORS],
    next: u64,
}

impl Channels {
    /// Before the first of them.
    pub fn start(&mut self) {
        self.next = FIRST_CHANNEL;
    }

    fn get(&self, fd: u64) -> u64 {
        self.of.get(fd as usize).copied().unwrap_or(0) as u64
    }

    fn set(&mut self, fd: u64, channel: u64) {
        if let Some(of) = self.of.get_mut(fd as usize) {
            *of = channel as u32;
        }
    }

    fn new_one(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

/// Where a call leaves what the thread knows.
fn leaves_at(d: &Detector, c: &Call) -> u64 {
    match c.effect {
        Effect::Signals(s) if s.to != Receiver::Descriptor => SIGNALS,
        // Only files have offsets.
        Effect::Writes(_, Position::At(_)) => 0,
        Effect::Notifies(fd) | Effect::SetsTimer(Some(fd)) | Effect::Closes(fd) => {
            d.channels.get(c.arg(fd))
        }
        effect => effect.written().map_or(0, |fd| d.channels.get(c.arg(fd))),
    }
}

/// Where a call that has succeeded learns.
fn learns_from(d: &Detector, c: &Call) -> u64 {
    match c.effect {
        Effect::TakesSignal => SIGNALS,
        effect => effect
            .taken_from()
            .map_or(0, |fd| d.channels.get(c.arg(fd))),
    }
}

/// A call begins.
pub fn begins(t: &Block, c: &Call) {
    let mut d = detector();
    let channel = leaves_at(&d, c);
    if channel != 0 {
        d.lets_know(t, Kind::Channel, channel);
    }
    if let Effect::Closes(fd) = c.effect {
        d.channels.set(c.arg(fd), 0);
    }
}

/// It ends.
pub fn ends(t: &Block, c: &Call, result: i64) {
    if sys::is_error(result) {
        return;
    }
    let mut d = detector();
    let channel = learns_from(&d, c);
    if channel != 0 {
        d.learns(t, Kind::Channel, channel);
    }
    opens(&mut d, c, result as u64);
}

/// The descriptors that a call has made.
fn opens(d: &mut Detector, c: &Call, fd: u64) {
    let both = |d: &mut Detector, at: u64| {
        let channel = d.channels.new_one();
        for fd in guard::read::<[u32; 2]>(at).unwrap_or([u32::MAX; 2]) {
            d.channels.set(fd as u64, channel);
        }
    };
    let duplicated = match c.effect {
        Effect::Duplicates(from) => Some(c.arg(from)),
        Effect::Replaces(r) => Some(c.arg(r.from)),
        _ if c.nr == nr::FCNTL && matches!(c.args[1], F_DUPFD | F_DUPFD_CLOEXEC) => Some(c.args[0]),
        _ => None,
    };
    if let Some(from) = duplicated {
        let channel = d.channels.get(from);
        return d.channels.set(fd, channel);
    }
    let channel = match c.effect {
        Effect::Opens(Opened::Pipe(at) | Opened::SocketPair(at)) => return both(d, c.arg(at)),
        Effect::Opens(Opened::Counter | Opened::Timer | Opened::Set | Opened::Watch) => {
            d.channels.new_one()
        }
        Effect::Opens(Opened::Signals) => SIGNALS,
        Effect::Opens(Opened::Socket | Opened::Accepted(_)) => SOCKETS,
        Effect::OpensFile(_) | Effect::Opens(_) => 0,
        _ => return,
    };
    d.channels.set(fd, channel);
}

/// A signal is delivered to the calling thread.
pub fn delivered(t: &Block) {
    detector().learns(t, Kind::Channel, SIGNALS);
}

/// A call that shapes the address space was made.
pub fn mapped(c: &Call, result: i64) {
    if sys::is_error(result) {
        return;
    }
    let (a, at, mut d) = (c.args, result as u64, detector());
    match c.effect {
        Effect::Maps => d.forget(at, at.saturating_add(a[1])),
        Effect::Unmaps => d.forget(a[0], a[0].saturating_add(a[1])),
        Effect::Remaps => {
            // What is moved keeps its past in its old place only, where nobody is any more.
            let stays = if at == a[0] { a[1].min(a[2]) } else { 0 };
            d.forget(at.saturating_add(stays), at.saturating_add(a[2]));
            if at != a[0] {
                d.forget(a[0], a[0].saturating_add(a[1]));
            }
        }
        _ => {}
    }
}
