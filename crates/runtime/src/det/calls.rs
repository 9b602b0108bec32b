//! System calls of threads that are processes: made in turns, so that what they do to each other (files, pipes, descriptors) has an
//! order that follows from the program (DThreads 4.5 leaves that to the kernel).
//!
//! A call that waits for a descriptor is tried in each turn: whether it waits then follows from what the program's own threads have done. Where
//! the world outside decides, the run depends on it. Other calls that wait are made in the phase, beside other threads.

use super::{token, turns};
use crate::capture::Call;
use crate::engine::Engine;
use crate::isolate::split;
use crate::none::None as NoEngine;
use crate::process;
use crate::sys;
use crate::thread::{session, slot, Block, Frame};
use core::sync::atomic::Ordering::*;
use reprise_abi::spec::Blocking;
use reprise_abi::syscalls::nr;

const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;
/// While nobody can do anything but wait for descriptors, a turn takes that long.
const IDLE_MS: u64 = 5;

/// A system call whose result and outputs come from the kernel.
pub fn syscall(t: &mut Block, c: &mut Call, frame: &Frame) -> i64 {
    if !split::is_done() {
        return NoEngine::syscall(t, c, frame);
    }
    match c.nr {
        nr::GETPID => return process::visible_pid() as i64,
        nr::CLOCK_GETTIME | nr::GETTIMEOFDAY | nr::TIME | nr::GETTID => {
            return NoEngine::syscall(t, c, frame)
        }
        nr::TGKILL => address_thread(c),
        _ => {}
    }
    if token::live() <= 1 {
        return NoEngine::syscall(t, c, frame);
    }
    match c.blocking {
        Blocking::Never | Blocking::Rarely => turns::within(t, |t| NoEngine::syscall(t, c, frame)),
        Blocking::Fd(n) => {
            turns::begin(t);
            until_ready(t, c.args[n as usize], events_of(c.nr));
            let r = NoEngine::syscall(t, c, frame);
            turns::end(t);
            r
        }
        Blocking::Always => match timeout_of(c) {
            Some(n) => polled(t, c, n, frame),
            None => {
                turns::begin_anew(t);
                turns::end(t);
                NoEngine::syscall(t, c, frame)
            }
        },
    }
}

/// The kernel knows a thread as a process.
fn address_thread(c: &mut Call) {
    let (group, tid) = (c.args[0] as u32, c.args[1]);
    let used = session().slots_used.load(Relaxed);
    let ours = (0..used).any(|s| slot(s).visible_tid.load(Relaxed) == tid as u32);
    if group == process::visible_pid() && ours {
        c.args[0] = tid;
        c.local[0] = tid;
    }
}

fn events_of(number: u64) -> u32 {
    match number {
        nr::WRITE | nr::WRITEV | nr::PWRITE64 | nr::SENDTO | nr::SENDMSG | nr::CONNECT => POLLOUT,
        _ => POLLIN,
    }
}

/// In turns: waits until a descriptor is ready, or is none that ever will be.
fn until_ready(t: &mut Block, fd: u64, events: u32) {
    let mut wait = 0;
    loop {
        let mut asked = [fd as u32, events];
        let r = sys::call(nr::POLL, &[asked.as_mut_ptr() as u64, 1, wait]);
        if r != 0 || t.pending.first(t.mask).is_some() {
            token::idles(false);
            return;
        }
        wait = IDLE_MS * token::idles(true) as u64;
        turns::give_way(t);
    }
}

/// Which argument says how many ms the call waits.
fn timeout_of(c: &Call) -> Option<usize> {
    match c.nr {
        nr::POLL => Some(2),
        nr::EPOLL_WAIT | nr::EPOLL_PWAIT => Some(3),
        _ => None,
    }
}

/// Waits for several descriptors, in turns.
fn polled(t: &mut Block, c: &mut Call, n: usize, frame: &Frame) -> i64 {
    let wanted = c.local[n] as i32;
    let end = (wanted > 0).then(|| sys::monotonic().ns() + wanted as i64 * 1_000_000);
    turns::begin(t);
    c.local[n] = 0;
    loop {
        let r = NoEngine::syscall(t, c, frame);
        let late = end.map_or(wanted == 0, |end| sys::monotonic().ns() >= end);
        if r != 0 || late {
            token::idles(false);
            turns::end(t);
            return r;
        }
        c.local[n] = IDLE_MS * token::idles(true) as u64;
        turns::give_way(t);
    }
}
