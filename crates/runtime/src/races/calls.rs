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
    match c.nr {
        nr::WRITE
        | nr::WRITEV
        | nr::PWRITEV2
        | nr::SENDTO
        | nr::SENDMSG
        | nr::SENDMMSG
        | nr::SHUTDOWN
        | nr::CONNECT
        | nr::CLOSE
        | nr::EPOLL_CTL
        | nr::SENDFILE
        | nr::VMSPLICE
        | nr::TIMERFD_SETTIME => d.channels.get(c.args[0]),
        nr::SPLICE => d.channels.get(c.args[2]),
        nr::TEE => d.channels.get(c.args[1]),
        nr::KILL | nr::TKILL | nr::TGKILL | nr::RT_SIGQUEUEINFO | nr::RT_TGSIGQUEUEINFO => SIGNALS,
        _ => 0,
    }
}

/// Where a call that has succeeded learns.
fn learns_from(d: &Detector, c: &Call) -> u64 {
    match c.nr {
        nr::READ
        | nr::READV
        | nr::PREADV2
        | nr::RECVFROM
        | nr::RECVMSG
        | nr::RECVMMSG
        | nr::ACCEPT
        | nr::ACCEPT4
        | nr::EPOLL_WAIT
        | nr::EPOLL_PWAIT
        | nr::EPOLL_PWAIT2
        | nr::SPLICE
        | nr::TEE => d.channels.get(c.args[0]),
        nr::RT_SIGTIMEDWAIT => SIGNALS,
        _ => 0,
    }
}

/// A call begins.
pub fn begins(t: &Block, c: &Call) {
    let mut d = detector();
    let channel = leaves_at(&d, c);
    if channel != 0 {
        d.lets_know(t, Kind::Channel, channel);
    }
    if c.nr == nr::CLOSE {
        d.channels.set(c.args[0], 0);
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
    match c.nr {
        nr::PIPE | nr::PIPE2 => both(d, c.args[0]),
        nr::SOCKETPAIR => both(d, c.args[3]),
        nr::EVENTFD
        | nr::EVENTFD2
        | nr::TIMERFD_CREATE
        | nr::EPOLL_CREATE
        | nr::EPOLL_CREATE1
        | nr::INOTIFY_INIT
        | nr::INOTIFY_INIT1 => {
            let channel = d.channels.new_one();
            d.channels.set(fd, channel);
        }
        nr::SIGNALFD | nr::SIGNALFD4 => d.channels.set(fd, SIGNALS),
        nr::SOCKET | nr::ACCEPT | nr::ACCEPT4 => d.channels.set(fd, SOCKETS),
        nr::DUP | nr::DUP2 | nr::DUP3 => {
            let channel = d.channels.get(c.args[0]);
            d.channels.set(fd, channel);
        }
        nr::FCNTL if matches!(c.args[1], F_DUPFD | F_DUPFD_CLOEXEC) => {
            let channel = d.channels.get(c.args[0]);
            d.channels.set(fd, channel);
        }
        nr::OPEN | nr::OPENAT | nr::CREAT | nr::MEMFD_CREATE => d.channels.set(fd, 0),
        _ => {}
    }
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
    match c.nr {
        nr::MMAP => d.forget(at, at.saturating_add(a[1])),
        nr::MUNMAP => d.forget(a[0], a[0].saturating_add(a[1])),
        nr::MREMAP => {
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
