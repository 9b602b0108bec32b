//! A copy of a replayed process that has left the recording and runs for itself, its threads one at a time: each as long as it can, then the next one that can.
//!
//! The kernel does for it what stays within the process: memory, futexes, clocks, signals, new threads. All else is decided here, where each system call begins
//! (ptrace(2)): what it writes to descriptors is taken and thrown away; what it wants to know of the world outside fails, and is told of in the end, since the program
//! may have become another one by that.

use crate::debuggee::{Debuggee, Traced};
use crate::{os, ptrace, DebugError};
use libc::{c_long, pid_t, user_regs_struct};
use reprise_abi::syscalls::{self, nr};
use reprise_launch::proc_files::Stat;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// So long a thread computes that neither waits nor gives way, before others have their turn: in ticks of the clock, and no shorter than that.
const SLICE: u64 = 100;
const SHORTEST: Duration = Duration::from_secs(1);
/// So long threads that wait with a time limit are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest run.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two looks at a thread that runs.
const LOOK: Duration = Duration::from_micros(50);
/// In a wait status: stopped for the tracer, ...
const EVENT_STOP: i32 = 128;
/// ... and where a system call begins or ends (PTRACE_O_TRACESYSGOOD).
const CALL: i32 = libc::SIGTRAP | 0x80;
/// No system call.
const NO_CALL: u64 = u64::MAX;
const EBADF: i64 = -9;
const ENOSYS: i64 = -38;

/// How it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// The wait status; `None`: it did not end, since all threads waited for each other, or it took too long.
    pub status: Option<i32>,
    /// Calls that it made and whose answer nobody here knows, by number.
    pub beyond: BTreeSet<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It is stopped, and can go on.
    Ready,
    /// It has the turn.
    Runs,
    /// It waits in a system call.
    Waits,
}

/// A system call that has begun.
#[derive(Clone, Copy, Default)]
struct Call {
    /// Instead of the kernel's.
    answer: Option<i64>,
    /// A signal that the thread has sent to itself.
    sends: i32,
    /// It ends only by what others do.
    has_no_limit: bool,
    /// The thread gives way.
    yields: bool,
}

struct Thread {
    slot: usize,
    state: State,
    call: Option<Call>,
    /// The signal with which it goes on.
    signal: i32,
    /// One that we have sent.
    sent: i32,
}

/// The copy, as it runs.
pub(crate) struct Astray<'a> {
    d: &'a mut Debuggee,
    threads: BTreeMap<pid_t, Thread>,
    /// Who has the turn, or had it last.
    current: pid_t,
    since: Instant,
    /// What it had computed when its turn began, in ticks.
    computed: u64,
    beyond: BTreeSet<u64>,
}

impl<'a> Astray<'a> {
    /// All threads are stopped in the program.
    pub(crate) fn new(d: &'a mut Debuggee) -> Astray<'a> {
        let slots: Vec<usize> = d.slots().collect();
        let thread = |slot: usize| Thread {
            slot,
            state: State::Ready,
            call: None,
            signal: 0,
            sent: 0,
        };
        let threads = slots.iter().map(|s| (d.tid(*s), thread(*s))).collect();
        Astray {
            threads,
            current: 0,
            since: Instant::now(),
            computed: 0,
            beyond: BTreeSet::new(),
            d,
        }
    }

    /// Runs it, beginning with this thread.
    ///
    /// # Errors
    /// When the kernel refuses something.
    pub(crate) fn run(mut self, first: pid_t) -> Result<End, DebugError> {
        let begun = Instant::now();
        let mut interrupted = false;
        self.begin(first)?;
        let status = loop {
            self.d.live.look();
            let mut heard = false;
            while let Some((tid, status)) = self.d.live.next_stop() {
                heard = true;
                self.stopped(tid, status)?;
            }
            if let Some(status) = self.d.live.status() {
                break Some(status);
            }
            if begun.elapsed() > LONGEST {
                break None;
            }
            if self.is_over() {
                if let Some(next) = self.next() {
                    self.begin(next)?;
                    interrupted = false;
                    continue;
                }
                if self.is_stuck() || self.since.elapsed() > PATIENCE {
                    break None;
                }
            } else if !interrupted && self.next().is_some() && self.is_long() {
                interrupted = ptrace::interrupt(self.current).is_ok();
            }
            if !heard {
                std::thread::sleep(LOOK);
            }
        };
        Ok(End {
            status,
            beyond: self.beyond,
        })
    }

    /// Has nobody the turn any more? Who waits in a call has given it up.
    fn is_over(&mut self) -> bool {
        let Some(t) = self.threads.get(&self.current) else {
            return true;
        };
        let state = t.state;
        if state == State::Runs && t.call.is_some() && self.sleeps(self.current) {
            self.change(self.current, |t| t.state = State::Waits);
            self.since = Instant::now();
            return true;
        }
        state != State::Runs
    }

    /// Do all threads wait for what only one of them could do? One that sleeps no more has been woken, mostly by its end: when one thread ends the process, the kernel
    /// wakes all others before that one is gone (`zap_other_threads`), and who waited is told of later.
    fn is_stuck(&self) -> bool {
        let waits_for_others = |(tid, t): (&pid_t, &Thread)| {
            t.call.is_some_and(|c| c.has_no_limit) && self.sleeps(*tid)
        };
        !self.threads.is_empty() && self.threads.iter().all(waits_for_others)
    }

    fn sleeps(&self, tid: pid_t) -> bool {
        let stat = Stat::of_thread(self.d.pid, tid);
        stat.is_ok_and(|s| s.state() == Some('S'))
    }

    /// Has the one that has the turn computed for a whole slice?
    fn is_long(&self) -> bool {
        self.since.elapsed() > SHORTEST
            && self.computed_by(self.current).saturating_sub(self.computed) > SLICE
    }

    /// What a thread has computed so far, in ticks.
    fn computed_by(&self, tid: pid_t) -> u64 {
        let stat = Stat::of_thread(self.d.pid, tid).ok();
        stat.and_then(|s| s.computed()).map_or(0, |(u, k)| u + k)
    }

    /// Who is next: in the order of their slots, the first behind the one that had the turn.
    fn next(&self) -> Option<pid_t> {
        let last = self.threads.get(&self.current).map_or(0, |t| t.slot);
        let ready = self.threads.iter().filter(|(_, t)| t.state == State::Ready);
        let place = |slot: usize| (slot <= last, slot);
        ready
            .min_by_key(|(_, t)| place(t.slot))
            .map(|(tid, _)| *tid)
    }

    fn begin(&mut self, tid: pid_t) -> Result<(), DebugError> {
        self.current = tid;
        self.since = Instant::now();
        self.computed = self.computed_by(tid);
        self.go_on(tid)
    }

    fn go_on(&mut self, tid: pid_t) -> Result<(), DebugError> {
        let Some(t) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        t.state = State::Runs;
        let signal = std::mem::take(&mut t.signal);
        tracing::trace!(tid, signal, "goes on");
        if let Some(traced) = self.d.threads.get_mut(&tid) {
            *traced = Traced::default();
        }
        match ptrace::on_to_call(tid, signal) {
            // It was ended meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            done => done.map_err(os("let a thread go on")),
        }
    }

    /// A thread has stopped, or is gone.
    fn stopped(&mut self, tid: pid_t, status: i32) -> Result<(), DebugError> {
        tracing::trace!(tid, status = format_args!("{status:#x}"), "stop");
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&tid);
            self.d.threads.remove(&tid);
            return Ok(());
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if !self.threads.contains_key(&tid) {
            return self.newcomer(tid);
        }
        if let Some(traced) = self.d.threads.get_mut(&tid) {
            traced.stopped = true;
        }
        let goes_on = match (signal, event) {
            (_, EVENT_STOP) => false,
            (CALL, 0) => self.at_call(tid)?,
            (signal, 0) => {
                let pass = self.passes(tid, signal);
                self.change(tid, |t| t.signal = pass);
                true
            }
            _ => true,
        };
        // Who has waited goes on when it is its turn.
        let is_its_turn = tid == self.current
            && self
                .threads
                .get(&tid)
                .is_some_and(|t| t.state == State::Runs);
        match goes_on && is_its_turn {
            true => self.go_on(tid),
            false => {
                self.change(tid, |t| t.state = State::Ready);
                Ok(())
            }
        }
    }

    fn change(&mut self, tid: pid_t, f: impl FnOnce(&mut Thread)) {
        if let Some(t) = self.threads.get_mut(&tid) {
            f(t);
        }
    }

    /// A new thread waits until it is its turn.
    fn newcomer(&mut self, tid: pid_t) -> Result<(), DebugError> {
        if ptrace::process_of(tid) != Some(self.d.pid) {
            return ptrace::detach(tid).map_err(os("let go of a process"));
        }
        self.d.live.add_thread(tid);
        let stopped = Traced {
            stopped: true,
            signal: 0,
        };
        self.d.threads.insert(tid, stopped);
        let behind_all = self.threads.values().map(|t| t.slot + 1).max();
        let thread = Thread {
            slot: self.d.slot_of(tid).or(behind_all).unwrap_or(0),
            state: State::Ready,
            call: None,
            signal: 0,
            sent: 0,
        };
        self.threads.insert(tid, thread);
        Ok(())
    }

    /// What of a signal reaches it.
    fn passes(&mut self, tid: pid_t, signal: i32) -> i32 {
        if let Some(t) = self.threads.get_mut(&tid) {
            if t.sent == signal {
                t.sent = 0;
                return signal;
            }
        }
        self.d.passes(tid, signal)
    }

    /// A call begins or ends; false: the thread's turn is over.
    fn at_call(&mut self, tid: pid_t) -> Result<bool, DebugError> {
        let look = || Ok((ptrace::begins_call(tid)?, ptrace::registers(tid)?));
        let (begins, mut r) = look().map_err(os("look at a call"))?;
        if begins {
            let call = self.begins(tid, &r);
            tracing::trace!(tid, number = r.orig_rax, answer = call.answer, "call");
            if call.answer.is_some() {
                r.orig_rax = NO_CALL;
                ptrace::set_registers(tid, &r).map_err(os("answer a call"))?;
            }
            self.change(tid, |t| t.call = Some(call));
            return Ok(true);
        }
        let call = self.threads.get_mut(&tid).and_then(|t| t.call.take());
        let Some(call) = call else { return Ok(true) };
        if let Some(answer) = call.answer {
            r.rax = answer as u64;
            ptrace::set_registers(tid, &r).map_err(os("answer a call"))?;
        }
        if call.sends != 0 {
            self.change(tid, |t| (t.signal, t.sent) = (call.sends, call.sends));
        }
        Ok(!call.yields || self.next().is_none())
    }

    /// What becomes of a call that begins.
    fn begins(&mut self, tid: pid_t, r: &user_regs_struct) -> Call {
        let mut call = Call::default();
        let number = r.orig_rax;
        let Some(slot) = self.d.slot_of(tid) else {
            return call;
        };
        let is = |n: c_long| number == n as u64;
        call.has_no_limit = number == nr::FUTEX && r.r10 == 0 || number == nr::PAUSE;
        call.yields = is(libc::SYS_sched_yield);
        // The runtime makes calls of its own, between the program's.
        let asked = self.d.registers(slot);
        if !asked.is_ok_and(|g| u64::from(g.r[0] as u32) == number) {
            return call;
        }
        let own_signal = |pid: u64, tid: u64, signal: u64| {
            let own = self.d.visible(slot);
            let process = self.d.live.manifest().pid as u64;
            (pid == process && tid == u64::from(own)).then_some(signal as i32)
        };
        let sent = match number {
            nr::TGKILL => own_signal(r.rdi, r.rsi, r.rdx),
            nr::TKILL => own_signal(self.d.live.manifest().pid as u64, r.rdi, r.rsi),
            nr::KILL => own_signal(r.rdi, self.d.visible(slot).into(), r.rsi),
            _ => None,
        };
        let spec = syscalls::lookup(number);
        call.answer = match number {
            _ if sent.is_some() => {
                call.sends = sent.unwrap_or(0);
                Some(0)
            }
            _ if is(libc::SYS_getpid) => Some(self.d.live.manifest().pid.into()),
            _ if is(libc::SYS_gettid) => Some(self.d.visible(slot).into()),
            _ if is(libc::SYS_write) || is(libc::SYS_pwrite64) => Some(r.rdx as i64),
            _ if is(libc::SYS_writev) => Some(self.length_of(r.rsi, r.rdx)),
            _ if is(libc::SYS_close) => Some(0),
            _ if is(libc::SYS_mmap) && r.r10 as i32 & libc::MAP_ANONYMOUS != 0 => None,
            _ if WITHIN.contains(&(number as c_long)) => None,
            _ if spec.is_some_and(|s| s.local) => None,
            _ => {
                self.beyond.insert(number);
                Some(match is(libc::SYS_read) {
                    true => EBADF,
                    false => ENOSYS,
                })
            }
        };
        call
    }

    /// Bytes of so many `struct iovec` (readv(2)).
    fn length_of(&self, at: u64, count: u64) -> i64 {
        /// The most that the kernel takes.
        const IOV_MAX: u64 = 1024;
        let length = |i: u64| {
            let mut bytes = [0; 8];
            let read = self.d.read(at + 16 * i + 8, &mut bytes);
            read.map_or(0, |()| i64::from_le_bytes(bytes))
        };
        (0..count.min(IOV_MAX)).map(length).sum()
    }
}

/// Calls that stay within the process, and are no business of the table's row.
const WITHIN: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clone,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_fstat,
    libc::SYS_madvise,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
];
