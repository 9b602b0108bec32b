//! Diversions: functions of the program that gdb calls (`print f(x)`) run in a copy of the process, which is thrown away. The replay
//! itself is kept as a checkpoint meanwhile.
//!
//! A diversion begins when gdb writes a register, or memory below a thread's stack pointer, as it does before it calls a function. It
//! *rests* when all registers are again what they were: gdb has its result. Then memory is shown as the replay has it, but what the result
//! may point to as the call has left it. It ends with the replay's next motion or call; but it goes on when the next call gets what the
//! last one has returned, or gdb has written to where that points: so what one has allocated is there for another (that is how gdb passes
//! strings).
//!
//! What runs in it, and what the kernel does for it, is the runtime's `diversion.rs`. Only the thread that was chosen runs; the others wait.

use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::debuggee::{Debuggee, General, Territory, RSP};
use crate::registers::Shown;
use crate::target::{Motion, Session};
use crate::{os, ptrace, DebugError};
use gdbstub::common::Signal;
use gdbstub::stub::MultiThreadStopReason;
use libc::{pid_t, user_regs_struct};
use reprise_abi::session::slot_state;
use reprise_console::say;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::Ordering::*;

/// In the runtime: no engine.
pub(crate) const NO_ENGINE: u32 = 0;
/// Below a stack pointer, what a call writes is within so many bytes.
const BELOW: u64 = 1 << 20;
/// So much of what a result may point to is shown as the call left it.
const RESULT: u64 = 4096;

/// A copy of the process that has left the recorded path.
pub struct Diversion {
    /// The replay.
    origin: Rc<Checkpoint>,
    /// Of the thread that runs.
    slot: usize,
    /// Its registers in the replay, ...
    registers: General,
    /// ... and everybody's.
    all: BTreeMap<usize, Shown>,
    /// All registers are again those of the replay.
    rests: bool,
    /// The result of a call that is over, should it be one.
    result: u64,
    /// gdb has written where it points to.
    carries: bool,
    /// The next call is prepared since the last one was over: what was written to memory for it.
    next: Option<Vec<(u64, Vec<u8>)>>,
    /// How much output had been shown.
    shown: [u64; 2],
    /// The signal that was told last, and where.
    told: Option<(i32, u64)>,
}

/// Says something to the user, beside gdb.
fn say(text: &str) {
    say!("{text}");
}

impl Session {
    /// gdb writes registers: a diversion begins, goes on, or rests.
    pub(crate) fn write_diverted(&mut self, slot: usize, to: &Shown) -> Result<bool, DebugError> {
        if !self.divert(slot)? {
            return Ok(false);
        }
        self.debuggee()?.put_registers(slot, to)?;
        if let Some(diversion) = &mut self.diversion {
            if diversion.rests {
                diversion.next.get_or_insert_default();
            }
            diversion.rests = to.general == diversion.registers;
        }
        Ok(true)
    }

    /// gdb writes memory: false where that would change the replay.
    pub(crate) fn write_memory(
        &mut self,
        slot: usize,
        at: u64,
        bytes: &[u8],
    ) -> Result<bool, DebugError> {
        let sp = self.debuggee()?.registers(slot)?.r[RSP];
        let is_free = at < sp && sp - at <= BELOW;
        let may = match &self.diversion {
            Some(diversion) => !diversion.rests || is_free || at == diversion.result,
            None => is_free,
        };
        if !may {
            say("a replay can't be changed: memory is written only while a function is called, in a copy of the program");
            return Ok(false);
        }
        if self.diversion.is_none() && !self.divert(slot)? {
            return Ok(false);
        }
        if let Some(diversion) = &mut self.diversion {
            match diversion.rests && at == diversion.result {
                true => diversion.carries = true,
                false if diversion.rests || diversion.next.is_some() => {
                    let next = diversion.next.get_or_insert_default();
                    next.push((at, bytes.to_vec()));
                }
                false => {}
            }
        }
        let written = self.debuggee()?.memory.write_all_at(bytes, at);
        Ok(written.is_ok())
    }

    /// What gdb sees of memory while a diversion rests; `None`: what the process has.
    pub(crate) fn read_resting(&self, at: u64, into: &mut [u8]) -> Option<std::io::Result<usize>> {
        let diversion = self.diversion.as_ref().filter(|v| v.rests)?;
        let is_result = at.wrapping_sub(diversion.result) < RESULT;
        (!is_result).then(|| diversion.origin.read_some(at, into))
    }

    /// What gdb sees of a thread's registers while a diversion rests; `None`: what the thread has.
    pub(crate) fn registers_resting(&self, slot: usize) -> Option<&Shown> {
        self.diversion.as_ref().filter(|v| v.rests)?.all.get(&slot)
    }

    /// Makes a diversion in which the thread of `slot` runs, if there is none. False when there can't be one.
    fn divert(&mut self, slot: usize) -> Result<bool, DebugError> {
        if let Some(diversion) = &self.diversion {
            if diversion.slot == slot {
                return Ok(true);
            }
            if !diversion.rests {
                say("in a copy of the program only one thread runs");
                return Ok(false);
            }
            self.end_diversion()?;
        }
        let d = self.debuggee()?;
        let Some(engine) = d.live.landmarks().engine else {
            say("the program was recorded by a reprise that could call no functions: record it again");
            return Ok(false);
        };
        let Some(origin) = d.checkpoint()? else {
            say("no function can be called here: the program has several processes, or its first thread has ended before others");
            return Ok(false);
        };
        let (registers, shown) = (d.registers(slot)?, d.live.shown());
        let mut all = BTreeMap::new();
        for slot in d.slots() {
            let (general, vectors) = (d.registers(slot)?, d.vectors(slot)?);
            all.insert(slot, Shown { general, vectors });
        }
        d.leave_path(slot, engine, &registers)?;
        self.diversion = Some(Diversion {
            origin: Rc::new(origin),
            slot,
            registers,
            all,
            rests: false,
            result: 0,
            carries: false,
            next: None,
            shown,
            told: None,
        });
        Ok(true)
    }

    /// The replay is shown again, where it was.
    pub(crate) fn end_diversion(&mut self) -> Result<(), DebugError> {
        if let Some(diversion) = self.diversion.take() {
            let d = self.debuggee()?;
            d.diverted = None;
            d.return_exactly(&diversion.origin)?;
            d.live.forget_shown_since(diversion.shown);
        }
        Ok(())
    }

    /// Before a motion: ends a diversion that rests, since the motion is the replay's. `None`: it is not about a diversion.
    pub(crate) fn go_diverted(
        &mut self,
        motion: Motion,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<MultiThreadStopReason<u64>>, DebugError> {
        let Some(diversion) = &self.diversion else {
            return Ok(None);
        };
        if diversion.rests {
            self.end_diversion()?;
            return Ok(None);
        }
        let (slot, from) = (diversion.slot, diversion.registers);
        let d = self.debuggee()?;
        if d.registers(slot)?.rip == from.rip && diversion_is_new(d, slot, &from)? {
            say("a replay can't be changed: what was written to registers is taken back");
            self.end_diversion()?;
            return Ok(None);
        }
        self.begin_anew(slot)?;
        let d = self.debuggee()?;
        let stop = match motion {
            Motion::Continue => d.go_on(wanted)?,
            Motion::Step(tid) => {
                let other = d.slots().find(|s| d.visible(*s) as usize == tid.get());
                d.step_diverted(other.unwrap_or(slot), wanted)?
            }
            Motion::Back | Motion::StepBack(_) => {
                return self
                    .leave("there is no way back in a copy of the program")
                    .map(Some)
            }
        };
        let (pc, result) = d.in_program(slot).map_or((0, 0), |r| (r.rip, r.rax));
        let now = match stop {
            Stop::Signal(_, signal) => Some((signal, pc)),
            _ => None,
        };
        let mut told = None;
        if let Some(diversion) = &mut self.diversion {
            diversion.result = result;
            told = std::mem::replace(&mut diversion.told, now);
        }
        match stop {
            Stop::Ended(status) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                self.leave(&format!(
                    "the copy of the program was killed by signal {signal}"
                ))
            }
            Stop::Ended(status) => {
                let status = libc::WEXITSTATUS(status);
                self.leave(&format!(
                    "the copy of the program ended with status {status}"
                ))
            }
            Stop::Signal(_, signal) if told == now => self.leave(&format!(
                "the copy of the program was killed by signal {signal}"
            )),
            stop => self.reason(stop),
        }
        .map(Some)
    }

    /// The next call in a diversion: it begins in the replay's state, but when the last one has left something for it.
    fn begin_anew(&mut self, slot: usize) -> Result<(), DebugError> {
        /// Indices of the registers that arguments are in: rcx, rdx, rsi, rdi, r8, r9.
        const ARGUMENTS: [usize; 6] = [2, 3, 4, 5, 8, 9];
        /// No memory is below.
        const FIRST: u64 = 1 << 16;
        let general = self.debuggee()?.registers(slot)?;
        let Some(diversion) = &mut self.diversion else {
            return Ok(());
        };
        let Some(writes) = diversion.next.take() else {
            return Ok(());
        };
        let (result, was) = (diversion.result, diversion.registers);
        let is_result = |i: &usize| general.r[*i] == result && was.r[*i] != result;
        if std::mem::take(&mut diversion.carries)
            || result >= FIRST && ARGUMENTS.iter().any(is_result)
        {
            return Ok(());
        }
        let vectors = self.debuggee()?.vectors(slot)?;
        self.end_diversion()?;
        if !self.divert(slot)? {
            return Err(DebugError::Refused(
                "a function can't be called twice here".into(),
            ));
        }
        let d = self.debuggee()?;
        d.put_registers(slot, &Shown { general, vectors })?;
        for (at, bytes) in writes {
            d.memory
                .write_all_at(&bytes, at)
                .map_err(os("write a call's arguments"))?;
        }
        Ok(())
    }

    /// Ends a diversion in the middle; what gdb is told.
    fn leave(&mut self, why: &str) -> Result<MultiThreadStopReason<u64>, DebugError> {
        say(&format!("{why}; this is the replay again"));
        self.end_diversion()?;
        let d = self.debuggee()?;
        Ok(MultiThreadStopReason::SignalWithThread {
            tid: gdbstub::common::Tid::new(d.visible(d.current) as usize)
                .unwrap_or(gdbstub::common::Tid::MIN),
            signal: Signal::SIGZERO,
        })
    }

    /// Has gdb left the recorded path, and not come back?
    pub(crate) fn is_astray(&self) -> bool {
        self.diversion.as_ref().is_some_and(|v| !v.rests)
    }
}

/// Has nothing run in the diversion, and is no call prepared: registers were changed by hand?
fn diversion_is_new(d: &Debuggee, slot: usize, from: &General) -> Result<bool, DebugError> {
    Ok(d.registers(slot)?.r[RSP] == from.r[RSP])
}

impl Debuggee {
    /// Changes the registers of a diversion's thread.
    fn put_registers(&self, slot: usize, to: &Shown) -> Result<(), DebugError> {
        let (tid, vectors) = (self.tid(slot), self.vectors(slot)?);
        let put = || -> std::io::Result<()> {
            let mut r = ptrace::registers(tid)?;
            to.general.put_into(&mut r);
            ptrace::set_registers(tid, &r)?;
            ptrace::set_vectors(tid, &mut to.over(vectors))
        };
        put().map_err(os("change registers in a diversion"))
    }

    /// From here on this process is a diversion: the thread of `slot` goes on with these registers of the program, wherever it was.
    fn leave_path(&mut self, slot: usize, engine: u64, g: &General) -> Result<(), DebugError> {
        let tid = self.tid(slot);
        let vectors = self.vectors(slot)?;
        let enter = |d: &Debuggee| -> std::io::Result<()> {
            if d.threads.get(&tid).is_some_and(|t| !t.stopped) {
                self.stop(tid)?;
            }
            let mut r = reprise_launch::inject::to_go_on(ptrace::registers(tid)?);
            g.put_into(&mut r);
            ptrace::set_registers(tid, &r)?;
            ptrace::set_vectors(tid, &mut vectors.clone())?;
            d.memory.write_all_at(&NO_ENGINE.to_le_bytes(), engine)
        };
        enter(self).map_err(os("make a copy of the program to call a function in"))?;
        if let Some(t) = self.threads.get_mut(&tid) {
            t.stopped = true;
            t.signal = 0;
        }
        self.live.session().baton.store(slot as u32 + 1, SeqCst);
        self.live
            .slot(slot)
            .state
            .store(slot_state::RUNNING, SeqCst);
        self.current = slot;
        self.diverted = Some(slot);
        Ok(())
    }

    /// A step in a diversion. gdb has threads that stand on breakpoints step off them before another one calls a function.
    fn step_diverted(
        &mut self,
        slot: usize,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        if self.in_program(slot).is_none() && self.diverted != Some(slot) {
            return Ok(Stop::Stepped(slot));
        }
        let caller = self.diverted.replace(slot);
        let baton = &self.live.session().baton;
        let held = baton.swap(slot as u32 + 1, SeqCst);
        let stop = self.step(slot, wanted);
        self.live.session().baton.store(held, SeqCst);
        self.diverted = caller;
        stop
    }

    /// In a diversion: a signal that gdb is to see. `None`: it is the runtime's.
    pub(crate) fn diverted_signal(
        &mut self,
        slot: usize,
        tid: pid_t,
        signal: i32,
        r: &user_regs_struct,
    ) -> Option<Stop> {
        /// Signals that the runtime uses itself when it gets them from the kernel: clocks and cpuid fault, system calls are dispatched.
        const CLOCKS: [&[u8]; 3] = [&[0x0f, 0x31], &[0x0f, 0x01, 0xf9], &[0x0f, 0xa2]];
        let info = ptrace::signal_info(tid).ok()?;
        if info.si_code <= 0 {
            // SAFETY: read only where the code says that there is a sender.
            let own = unsafe { info.si_pid() } == self.pid;
            if !own {
                return None;
            }
        } else {
            let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
            if !faults.contains(&signal) || self.territory(slot, r.rip) != Territory::Program {
                return None;
            }
            if self.points.is_any(r.rip) {
                // On a stack, where gdb wants a call to return to, no instruction can run.
                return Some(Stop::Breakpoint(slot));
            }
            let mut code = [0; 3];
            let n = self.read_some(r.rip, &mut code).unwrap_or(0);
            if CLOCKS.iter().any(|c| code[..n].starts_with(c)) {
                return None;
            }
        }
        self.threads.get_mut(&tid)?.signal = signal;
        Some(Stop::Signal(slot, signal))
    }
}
