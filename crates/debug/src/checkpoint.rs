//! A checkpoint: the replayed process as it was at a moment, to go back to as often as wanted.
//!
//! Its memory is kept by a process that fork(2) made of it and that never runs: it shares what has not changed since. Of each thread the
//! registers are kept, and what else the kernel knows of it. To go back, the waiting process forks once more, and the copy gets its threads
//! back by clone(2), each with its registers. All calls are made from outside ([`reprise_launch::inject`]), so nobody needs to be at a special
//! place: a thread may wait in the runtime or run in the program.
//!
//! The session's memory is shared by all of them; only one replay runs at a time, and what was in it is kept beside ([`Mark`]).

use crate::debuggee::{memory_of, Debuggee, Traced};
use crate::rest::fault_again;
use crate::{os, ptrace, DebugError};
use libc::{pid_t, user_regs_struct};
use reprise_abi::layout::{RESERVATION, RESERVATION_END};
use reprise_launch::inject::{to_go_on, Gate, ALL_SIGNALS, THREAD};
use reprise_launch::kernel_state::{self, SignalStack};
use reprise_replay::children;
use reprise_replay::live::Mark;
use rustix::process::Signal;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Instant;

/// Most bytes of shared memory, other than the session's, that one checkpoint keeps.
pub const MOST_SHARED: u64 = 256 << 20;
/// How a process is copied; the copy is a child of the same parent.
const FORK: i32 = libc::CLONE_PARENT | libc::SIGCHLD;

/// Memory: where it is, and what was in it.
type Stretch = (u64, Vec<u8>);

/// A thread as it was.
#[derive(Clone)]
struct Thread {
    tid: pid_t,
    traced: Traced,
    /// As it is to go on: a call that was interrupted is made again.
    registers: user_regs_struct,
    vectors: Vec<u8>,
    mask: u64,
    dispatch: ptrace::Dispatch,
    clears: u64,
    signal_stack: SignalStack,
}

/// Processes that wait as checkpoints of one debuggee.
pub type Waiting = Rc<RefCell<HashSet<pid_t>>>;

/// A moment.
pub struct Checkpoint {
    /// Events that had happened.
    pub events: u64,
    /// The process that waits.
    pid: pid_t,
    /// All that wait.
    waiting: Waiting,
    gate: Gate,
    threads: Vec<Thread>,
    current: usize,
    mark: Mark,
    /// Memory that copies of a process share.
    shared: Vec<Stretch>,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        end(self.pid);
        self.waiting.borrow_mut().remove(&self.pid);
    }
}

/// Ends a child that only waits.
fn end(pid: pid_t) {
    children::signal(pid, Signal::KILL);
    while ptrace::wait(pid).is_ok_and(|status| libc::WIFSTOPPED(status)) {}
}

impl Checkpoint {
    /// Reads memory as it was; as much as there is.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn read_some(&self, at: u64, into: &mut [u8]) -> Result<usize> {
        for (start, bytes) in &self.shared {
            let inside = at.checked_sub(*start).and_then(|o| bytes.get(o as usize..));
            if let Some(there) = inside.filter(|b| !b.is_empty()) {
                let n = there.len().min(into.len());
                into[..n].copy_from_slice(&there[..n]);
                return Ok(n);
            }
        }
        if at > i64::MAX as u64 {
            return Err(Error::from_raw_os_error(libc::EFAULT));
        }
        memory_of(self.pid)?.read_at(into, at)
    }

    /// Under `order`: how many events and entries the thread of `slot` had used up.
    pub fn own(&self, slot: usize) -> u64 {
        self.mark.own(slot)
    }

    /// Is it of this replay, not of one before it?
    pub(crate) fn is_of(&self, d: &Debuggee) -> bool {
        Rc::ptr_eq(&self.waiting, &d.waiting)
    }

    /// The process that waits.
    pub fn pid(&self) -> pid_t {
        self.pid
    }
}

impl Debuggee {
    /// Makes a checkpoint of this moment; `None` where there can't be one: with several processes, or when the
    /// first thread has ended before others.
    ///
    /// # Errors
    /// When memory or processes are short.
    pub fn checkpoint(&mut self) -> std::result::Result<Option<Checkpoint>, DebugError> {
        if self.timeline.known.forks_differ || !self.live.is_one_at_rest() || !self.settle()? {
            return Ok(None);
        }
        // What is compiled in is no part of the program.
        let begun = Instant::now();
        let made = self
            .uncompile()
            .and_then(|()| self.with_all_stopped(Debuggee::copy_stopped));
        tracing::debug!(
            events = self.events(),
            pid = made.as_ref().ok().and_then(Option::as_ref).map(|c| c.pid),
            took = ?begun.elapsed(),
            "checkpoint"
        );
        match made {
            // It was killed meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            made => made.map_err(os("make a checkpoint")),
        }
    }

    fn copy_stopped(&mut self) -> Result<Option<Checkpoint>> {
        let Some(gate) = self.find_gate()? else {
            return Ok(None);
        };
        let Some(mark) = self.live.mark().map_err(Error::other)? else {
            return Ok(None);
        };
        let Some(shared) = self.shared_memory()? else {
            return Ok(None);
        };
        let tids = in_order(self.pid, self.threads.keys().copied());
        let mut threads: Vec<Thread> = Vec::with_capacity(tids.len());
        let mut look = || -> Result<()> {
            for tid in &tids {
                threads.push(self.thread(*tid, gate)?);
            }
            Ok(())
        };
        let forked = look().and_then(|()| gate.make(tids[0], FORK, 0));
        for thread in &threads {
            thread.put_back(thread.tid)?;
            thread.traced.come_to_signal(thread.tid)?;
        }
        let pid = forked?;
        self.waiting.borrow_mut().insert(pid);
        Ok(Some(Checkpoint {
            events: self.events(),
            pid,
            waiting: Rc::clone(&self.waiting),
            gate,
            threads,
            current: self.current,
            mark,
            shared,
        }))
    }

    /// A place for calls: where some thread waits in one.
    pub(crate) fn find_gate(&mut self) -> Result<Option<Gate>> {
        if self.gate.is_some() {
            return Ok(self.gate);
        }
        for tid in self.threads.keys() {
            let r = ptrace::registers(*tid)?;
            let read = |at, into: &mut [u8]| self.read(at, into).is_ok();
            let in_runtime = (RESERVATION..RESERVATION_END).contains(&r.rip);
            if let Some(gate) = Gate::of(&r, read).filter(|_| in_runtime) {
                self.gate = Some(gate);
                break;
            }
        }
        Ok(self.gate)
    }

    /// What is to be known of a stopped thread. Its registers are changed meanwhile.
    fn thread(&self, tid: pid_t, gate: Gate) -> Result<Thread> {
        let mut thread = Thread {
            tid,
            traced: self.threads.get(&tid).copied().unwrap_or_default(),
            registers: to_go_on(ptrace::registers(tid)?),
            vectors: ptrace::vectors(tid)?,
            mask: ptrace::signal_mask(tid)?,
            dispatch: ptrace::dispatch(tid)?,
            clears: 0,
            signal_stack: [0; 3],
        };
        ptrace::set_signal_mask(tid, ALL_SIGNALS)?;
        (thread.clears, thread.signal_stack) =
            kernel_state::ask(gate, tid, &self.memory, thread.registers.rsp)?;
        Ok(thread)
    }

    /// Memory that a copy would share, with what is in it; `None` when it is too much.
    fn shared_memory(&self) -> Result<Option<Vec<Stretch>>> {
        let (mut kept, mut sum) = (Vec::new(), 0);
        for (start, len) in self.shared_mappings()? {
            sum += len;
            if sum > MOST_SHARED {
                return Ok(None);
            }
            let mut bytes = vec![0; len as usize];
            let there = self.read_some(start, &mut bytes).unwrap_or(0);
            bytes.truncate(there);
            kept.push((start, bytes));
        }
        Ok(Some(kept))
    }

    /// Goes back to a checkpoint. All processes that there are now are ended, but those that only wait.
    ///
    /// # Errors
    /// When the copy can't be made.
    pub fn go_back(&mut self, to: &Checkpoint) -> std::result::Result<(), DebugError> {
        if !to.is_of(self) {
            return Err(DebugError::Refused(
                "that checkpoint is gone: the replay began anew at another place".into(),
            ));
        }
        let waiting: Vec<pid_t> = self.waiting.borrow().iter().copied().collect();
        self.live.clear_away(&waiting);
        self.threads.clear();
        let copies = to.revive().map_err(os("make a copy of a checkpoint"))?;
        let pid = copies[0];
        tracing::debug!(
            pid,
            of = to.pid,
            events = to.events,
            "goes back to a checkpoint"
        );
        self.pid = pid;
        self.memory = memory_of(pid).map_err(os("open the replayed program's memory"))?;
        let pairs: Vec<(pid_t, pid_t)> = to.threads.iter().map(|t| t.tid).zip(copies).collect();
        self.live.go_back(&to.mark, &pairs)?;
        for (at, bytes) in &to.shared {
            // What nobody has changed may be memory that can't be written, as a file that is mapped to be read.
            let mut now = vec![0; bytes.len()];
            if self.memory.read_exact_at(&mut now, *at).is_ok() && now == *bytes {
                continue;
            }
            let written = self.memory.write_all_at(bytes, *at);
            written.map_err(os("put shared memory back"))?;
        }
        self.current = to.current;
        self.threads = to
            .threads
            .iter()
            .zip(&pairs)
            .map(|(t, (_, tid))| (*tid, t.traced))
            .collect::<BTreeMap<_, _>>();
        self.points = std::mem::take(&mut self.points).taken_out();
        let go_on = |d: &Debuggee| -> Result<()> {
            for (tid, t) in &d.threads {
                d.arm(*tid)?;
                t.come_to_signal(*tid)?;
                if !t.stopped {
                    ptrace::go_on(*tid, 0)?;
                }
            }
            Ok(())
        };
        go_on(self).map_err(os("let a copy of a checkpoint go on"))
    }
}

impl Debuggee {
    /// Makes calls in the name of one of the process's threads; `None` as long as no place for calls is known.
    pub(crate) fn in_its_name<T>(
        &mut self,
        f: impl FnOnce(pid_t, Gate) -> Result<T>,
    ) -> Result<Option<T>> {
        // Who is about to end can't be stopped.
        self.settle().map_err(Error::other)?;
        self.with_all_stopped(|d| {
            // Rather one that is not about to get a signal.
            let threads = d.threads.iter().map(|(tid, t)| (*tid, *t));
            let chosen = threads.min_by_key(|(_, t)| t.signal != 0);
            let Some((gate, (tid, traced))) = d.find_gate()?.zip(chosen) else {
                return Ok(None);
            };
            let registers = to_go_on(ptrace::registers(tid)?);
            let mask = ptrace::signal_mask(tid)?;
            ptrace::set_signal_mask(tid, ALL_SIGNALS)?;
            let made = f(tid, gate);
            ptrace::set_registers(tid, &registers)?;
            ptrace::set_signal_mask(tid, mask)?;
            traced.come_to_signal(tid)?;
            made.map(Some)
        })
    }
}

impl Checkpoint {
    /// A copy of the process with all its threads, stopped: their kernel's ids, in order.
    fn revive(&self) -> Result<Vec<pid_t>> {
        let pid = self.gate.make(self.pid, FORK, 0)?;
        let made = self.give_threads(pid);
        if made.is_err() {
            // Nobody else knows of it.
            end(pid);
        }
        made
    }

    fn give_threads(&self, pid: pid_t) -> Result<Vec<pid_t>> {
        let mut tids = vec![pid];
        for thread in &self.threads[1..] {
            tids.push(self.gate.make(pid, THREAD, thread.clears)?);
        }
        for (thread, tid) in self.threads.iter().zip(&tids) {
            if *tid == pid && thread.clears != 0 {
                let told = [thread.clears];
                self.gate
                    .call(*tid, libc::SYS_set_tid_address, &told)?
                    .ok()?;
            }
            let (sp, stack) = (thread.registers.rsp, thread.signal_stack);
            kernel_state::give_signal_stack(self.gate, *tid, &memory_of(*tid)?, sp, stack)?;
            ptrace::set_dispatch(*tid, &thread.dispatch)?;
            ptrace::set_vectors(*tid, &mut thread.vectors.clone())?;
            thread.put_back(*tid)?;
        }
        Ok(tids)
    }
}

impl Traced {
    /// Of a thread that has made calls for us.
    fn come_to_signal(&self, tid: pid_t) -> Result<()> {
        match self.signal {
            0 => Ok(()),
            signal => fault_again(tid, signal),
        }
    }
}

impl Thread {
    /// Registers and mask, after calls were made in its name.
    fn put_back(&self, tid: pid_t) -> Result<()> {
        ptrace::set_registers(tid, &self.registers)?;
        ptrace::set_signal_mask(tid, self.mask)
    }
}

/// Threads in the order in which copies of them are made: the process's first one first, since it is what becomes of a process that forks.
/// Its id may be higher than others': ids begin anew when they are used up.
fn in_order(first: pid_t, all: impl Iterator<Item = pid_t>) -> Vec<pid_t> {
    let others = all.filter(|tid| *tid != first);
    std::iter::once(first).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_comes_first_whatever_its_id() {
        assert_eq!(
            in_order(32767, [301, 302, 32767].into_iter()),
            [32767, 301, 302]
        );
        assert_eq!(in_order(300, [300, 301].into_iter()), [300, 301]);
    }
}
