//! Lets the replay run, and says why it stopped.
//!
//! Which thread runs is not ours to say: the events do. One thread at a time runs code of the program, under `order` as under `serial`, since
//! recordings of `order` are replayed in total order here; all others wait in the runtime. So a stop of the one that runs is a stop of all.
//!
//! The runtime uses the signals that a debugger does (SIGTRAP at its own patches, SIGSEGV for clocks, SIGSYS for calls). A signal is the
//! program's own only if the trace says so ([`Timeline::fault`](crate::timeline::Timeline::fault)); all others are passed on unseen.

use crate::breakpoints::{Watched, TRAP};
use crate::debuggee::{Debuggee, General, Territory, Traced};
use crate::{os, ptrace, DebugError};
use libc::{pid_t, user_regs_struct};
use reprise_abi::event::registers_hash;
use reprise_replay::Live;
use std::time::{Duration, Instant};

/// Why the replay stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The thread of this slot made its step.
    Stepped(usize),
    /// It is at a breakpoint.
    Breakpoint(usize),
    /// It has changed memory that is watched.
    Watch(usize, Watched),
    /// It is about to get a signal.
    Signal(usize, i32),
    /// It has come back from the system call of this number.
    Call(usize, u64),
    /// As many events have happened as were to happen.
    Limit,
    /// The debugger wants to be heard.
    Interrupted,
    /// It has become another program, whose first instruction is the next one.
    Exec,
    /// Nothing is left: the wait status.
    Ended(i32),
}

/// Who is to be stopped when it leaves the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Catch {
    Nobody,
    Thread(pid_t),
    Anyone,
}

/// The driver's own signal.
const SIGCUT: i32 = 16;
/// Shorter times than this are not slept through.
const SHORT_TIME: Duration = Duration::from_millis(1);
/// In a wait status: stopped for the tracer.
const EVENT_STOP: i32 = 128;

/// One run, from resumption to stop.
pub(crate) struct Run {
    pub(crate) catch: Catch,
    /// The debugger's breakpoints are to be in the code, whenever the runtime doesn't touch it.
    with_breakpoints: bool,
    /// The runtime touches it.
    out: bool,
    /// Bytes under our breakpoints at the runtime's exits.
    pub(crate) exits: Option<Vec<u8>>,
    /// Memory that was watched was changed by the runtime, for this thread.
    watch: Option<(pid_t, Watched)>,
    /// This thread is being stopped since the debugger wants to be heard.
    pub(crate) interrupting: Option<pid_t>,
    /// It has stopped for that, but comes to a signal first: it is stopped once more then.
    signal_first: Option<pid_t>,
}

/// What becomes of a thread that stopped.
pub(crate) enum Next {
    /// It goes on, with this signal.
    On(i32),
    /// It stays.
    Stop(Stop),
    /// It is gone, or not ours.
    Nothing,
}

impl Debuggee {
    /// Lets all run until a breakpoint, a watchpoint, a signal or the limit. `wanted` is asked again and again whether the debugger wants to
    /// be heard.
    ///
    /// # Errors
    /// When the trace is damaged, or the replay left its path.
    pub fn go_on(&mut self, wanted: &mut dyn FnMut() -> bool) -> Result<Stop, DebugError> {
        loop {
            if let Some(slot) = self.on_breakpoint() {
                match self.step(slot, wanted)? {
                    Stop::Stepped(slot) if self.is_at_breakpoint(slot) => {
                        match self.is_to_stop(slot)? {
                            true => return Ok(Stop::Breakpoint(slot)),
                            false => continue,
                        }
                    }
                    Stop::Stepped(_) => {}
                    Stop::Breakpoint(slot) if !self.is_to_stop(slot)? => continue,
                    Stop::Watch(slot, _) if !self.is_write_to_tell(slot)? => continue,
                    other => return Ok(other),
                }
            }
            match self.run(Catch::Nobody, true, wanted)? {
                Stop::Breakpoint(slot) if !self.is_to_stop(slot)? => {
                    if wanted() {
                        return Ok(Stop::Interrupted);
                    }
                }
                Stop::Watch(slot, _) if !self.is_write_to_tell(slot)? => {
                    if wanted() {
                        return Ok(Stop::Interrupted);
                    }
                }
                stop => return Ok(stop),
            }
        }
    }

    /// Is the breakpoint at which this thread stands one, by its conditions? What has no value counts as true: gdb says why.
    pub(crate) fn is_hit(&self, slot: usize) -> bool {
        self.in_program(slot)
            .is_none_or(|r| self.points.is_own(r.rip) || self.condition_holds(&r))
    }

    /// Does the debugger want to stop at this place with these registers?
    pub(crate) fn condition_holds(&self, r: &user_regs_struct) -> bool {
        let Some(conditions) = self.points.conditions(r.rip) else {
            return self.points.is_wanted(r.rip);
        };
        let registers = General::of(r);
        let read = |at: u64, into: &mut [u8]| self.read(at, into).is_ok();
        conditions
            .iter()
            .any(|c| c.value(&registers, read) != Some(0))
    }

    /// The thread that is stopped on a breakpoint's instruction.
    fn on_breakpoint(&self) -> Option<usize> {
        let slot = self.holder()?;
        let r = self.in_program(slot)?;
        self.points.is_any(r.rip).then_some(slot)
    }

    fn is_at_breakpoint(&self, slot: usize) -> bool {
        self.in_program(slot)
            .is_some_and(|r| self.points.is_any(r.rip))
    }

    /// The program's own signal, which its debugger is to see.
    pub(crate) fn own_signal(
        &mut self,
        slot: usize,
        tid: pid_t,
        signal: i32,
        r: &user_regs_struct,
    ) -> Option<Stop> {
        if self.diverted.is_some() {
            return self.diverted_signal(slot, tid, signal, r);
        }
        let faults = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ];
        if !faults.contains(&signal) {
            return None;
        }
        let (fault, _) = self.next_fault(slot)?;
        let is_here = match self.territory(slot, r.rip) {
            // At other visits memory is protected that wasn't when it was recorded: the runtime lets them through.
            Territory::Program => {
                let registers = registers_hash(&General::of(r).r);
                fault.pc == r.rip && [0, registers].contains(&fault.registers)
            }
            // The program's instruction is elsewhere.
            Territory::Stub => true,
            // A hooked function was given a bad pointer.
            Territory::Runtime => {
                self.timeline.is_order && self.registers(slot).ok()?.rip == fault.pc
            }
        };
        if fault.signal != signal as u32 || !is_here {
            return None;
        }
        self.threads.get_mut(&tid)?.signal = signal;
        Some(Stop::Signal(slot, signal))
    }

    /// What of a signal reaches the runtime: what it causes itself, and what the driver sends. Nobody else has a say in a replay.
    pub(crate) fn passes(&self, tid: pid_t, signal: i32) -> i32 {
        let Ok(info) = ptrace::signal_info(tid) else {
            return 0;
        };
        // SAFETY: read only where the code says that there is a sender.
        let sender = unsafe { info.si_pid() };
        let by_process = info.si_code <= 0;
        let ours = [self.pid, std::process::id() as pid_t];
        match signal {
            SIGCUT if by_process && sender == ours[1] => signal,
            _ if by_process && sender == ours[0] => signal,
            libc::SIGTRAP if !by_process => {
                let late = ptrace::registers(tid).is_ok_and(|r| self.is_late(tid, &r));
                if late {
                    0
                } else {
                    signal
                }
            }
            libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGSYS
                if !by_process =>
            {
                signal
            }
            _ => 0,
        }
    }

    /// Lets everybody go on until somebody stops.
    pub(crate) fn run(
        &mut self,
        catch: Catch,
        with_breakpoints: bool,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        self.run_after(|_| {}, catch, with_breakpoints, wanted)
    }

    /// As [`Debuggee::run`]; what `begin` sets going is not there before all is ready for it.
    pub(crate) fn run_after(
        &mut self,
        begin: impl FnOnce(&mut Live),
        catch: Catch,
        with_breakpoints: bool,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        let mut run = Run {
            catch,
            with_breakpoints,
            out: false,
            exits: None,
            watch: None,
            interrupting: None,
            signal_first: None,
        };
        if catch != Catch::Nobody {
            self.guard_exits(&mut run)?;
        }
        if with_breakpoints {
            self.compile_wanted()
                .map_err(os("compile a breakpoint into the code"))?;
            self.insert();
        }
        let stopped: Vec<pid_t> = self
            .threads
            .iter()
            .filter_map(|(tid, t)| t.stopped.then_some(*tid))
            .filter(|tid| self.diverted.is_none_or(|slot| self.tid(slot) == *tid))
            .collect();
        for tid in stopped {
            let signal = self.threads.get(&tid).map_or(0, |t| t.signal);
            self.let_go(tid, signal)?;
        }
        begin(&mut self.live);
        let stop = self.watch_over(&mut run, wanted);
        self.take_out();
        self.drain()?;
        self.unguard_exits(&mut run)?;
        self.see_to_stops()?;
        if let Ok(Stop::Limit) = stop {
            self.current = self.next_slot();
        }
        if let Ok(
            Stop::Stepped(slot)
            | Stop::Breakpoint(slot)
            | Stop::Watch(slot, _)
            | Stop::Signal(slot, _),
        ) = stop
        {
            self.current = slot;
        }
        if stop.as_ref().is_ok_and(|s| !matches!(s, Stop::Ended(_))) {
            self.meet_newcomers()?;
        }
        stop
    }

    /// Slot of the thread that goes on next, as the trace says; else of the one that ran last.
    pub(crate) fn next_slot(&self) -> usize {
        let next = match self.timeline.is_order {
            true => None,
            false => self.timeline.event(self.events()).map(|e| e.slot as usize),
        };
        let lives = |slot: &usize| self.slots().any(|s| s == *slot);
        next.filter(lives)
            .or_else(|| self.holder().filter(lives))
            .or_else(|| self.slots().next())
            .unwrap_or(0)
    }

    fn watch_over(
        &mut self,
        run: &mut Run,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        let end = self.only_for.take().map(|time| Instant::now() + time);
        let mut end = end.filter(|_| run.catch != Catch::Anyone);
        loop {
            while let Some((tid, status)) = self.live.next_stop() {
                match self.stopped(run, tid, status)? {
                    Next::Nothing => {}
                    Next::On(signal) => self.let_go(tid, signal)?,
                    Next::Stop(stop) => return Ok(stop),
                }
            }
            if let Some(end_of_time) = end {
                let left = end_of_time.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    end = None;
                    self.interrupt(run);
                } else if left < SHORT_TIME {
                    // A sleep would take longer than what is wanted here.
                    self.live.look();
                    continue;
                }
            }
            if self.diverted.is_some() {
                if let Some(status) = self.live.status() {
                    return Ok(Stop::Ended(status));
                }
            } else if self.live.is_at_limit() && self.knows_who_lives() {
                return Ok(Stop::Limit);
            }
            if !self.live.turn()? {
                if let Some(d) = self.live.divergence() {
                    return Err(DebugError::Diverged(Box::new(d)));
                }
                return Ok(Stop::Ended(self.live.status().unwrap_or(0)));
            }
            if let Some(pid) = self.live.became() {
                self.goes_on_as(pid)?;
            }
            let may_stop = run.interrupting.is_none() && run.catch != Catch::Anyone;
            if (self.look_up() || wanted()) && may_stop {
                self.interrupt(run);
            }
        }
    }

    /// Stops the thread that runs, if there is one.
    fn interrupt(&self, run: &mut Run) {
        let holder = self.holder().map(|slot| self.tid(slot));
        let holder = holder.filter(|tid| self.threads.contains_key(tid));
        if let Some(tid) = holder.filter(|tid| ptrace::interrupt(*tid).is_ok()) {
            run.interrupting = Some(tid);
        }
    }

    /// As [`Debuggee::go_on`], for about so long at most: then it is interrupted.
    ///
    /// # Errors
    /// As there.
    pub fn go_on_for(&mut self, time: Duration) -> Result<Stop, DebugError> {
        self.only_for = Some(time);
        let stop = self.go_on(&mut || false);
        self.only_for = None;
        stop
    }

    pub(crate) fn let_go(&mut self, tid: pid_t, signal: i32) -> Result<(), DebugError> {
        if let Some(t) = self.threads.get_mut(&tid) {
            *t = Traced::default();
        }
        match ptrace::go_on(tid, signal) {
            // It was killed meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            r => r.map_err(os("let a thread go on")),
        }
    }

    fn guard_exits(&mut self, run: &mut Run) -> Result<(), DebugError> {
        if run.exits.is_none() {
            let old: Result<Vec<u8>, DebugError> =
                self.exits().map(|at| self.exchange(at, TRAP)).collect();
            run.exits = Some(old?);
        }
        Ok(())
    }

    fn unguard_exits(&mut self, run: &mut Run) -> Result<(), DebugError> {
        for (byte, at) in run.exits.take().iter().flatten().zip(self.exits()) {
            // The process may be gone.
            let _ = self.exchange(at, *byte);
        }
        Ok(())
    }

    /// Instructions after which the program goes on.
    pub(crate) fn exits(&self) -> impl Iterator<Item = u64> {
        let more = self.live.landmarks_of_order().map(|o| o.leaves);
        let all = self.live.landmarks().leaves;
        all.into_iter().chain(more.into_iter().flatten())
    }

    /// A thread has stopped, or is gone.
    pub(crate) fn stopped(
        &mut self,
        run: &mut Run,
        tid: pid_t,
        status: i32,
    ) -> Result<Next, DebugError> {
        tracing::trace!(tid, status = format_args!("{status:#x}"), "stop");
        if !libc::WIFSTOPPED(status) {
            self.threads.remove(&tid);
            if run.interrupting == Some(tid) {
                self.stop_the_next(run, tid)?;
            }
            return Ok(Next::Nothing);
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let Some(t) = self.threads.get_mut(&tid) else {
            return self.newcomer(tid);
        };
        t.stopped = true;
        if event == EVENT_STOP && run.interrupting == Some(tid) {
            return self.interrupted(run, tid);
        }
        if event != 0 {
            return Ok(Next::On(0));
        }
        let Some(slot) = self.slot_of(tid) else {
            return Ok(Next::On(self.passes(tid, signal)));
        };
        let next = self.signalled(run, slot, tid, signal)?;
        let stays = matches!(next, Next::Stop(_));
        if run.signal_first.take_if(|late| *late == tid).is_some()
            && !stays
            && ptrace::interrupt(tid).is_ok()
        {
            run.interrupting = Some(tid);
        }
        Ok(next)
    }

    /// A thread of ours has stopped by a signal.
    fn signalled(
        &mut self,
        run: &mut Run,
        slot: usize,
        tid: pid_t,
        signal: i32,
    ) -> Result<Next, DebugError> {
        let r = ptrace::registers(tid).map_err(os("read registers"))?;
        if signal == libc::SIGTRAP {
            if let Some(next) = self.trapped(run, slot, tid, r)? {
                return Ok(next);
            }
        } else if let Some(next) = self.compiled_signal(slot, tid, signal, r)? {
            return Ok(next);
        }
        if let Some(stop) = self.own_signal(slot, tid, signal, &r) {
            return Ok(Next::Stop(stop));
        }
        Ok(Next::On(self.passes(tid, signal)))
    }

    /// A thread that was not known: of the process, or the first one of another process, which goes on without us.
    pub(crate) fn newcomer(&mut self, tid: pid_t) -> Result<Next, DebugError> {
        if ptrace::process_of(tid) == Some(self.pid) {
            self.live.add_thread(tid);
            let _ = self.arm(tid);
            self.threads.insert(tid, Traced::default());
            return Ok(Next::On(0));
        }
        let _ = ptrace::set_debug_register(tid, 7, 0);
        let _ = ptrace::detach(tid);
        Ok(Next::Nothing)
    }

    /// The thread that was to stop since the debugger wants to be heard.
    fn interrupted(&mut self, run: &mut Run, tid: pid_t) -> Result<Next, DebugError> {
        let slot = self.slot_of(tid);
        // The kernel tells of the interruption before it tells of a signal that its last instruction has caused. Where that was a breakpoint,
        // it is behind it, which is no place of the program's.
        if ptrace::comes_to_signal(tid).map_err(os("look for signals"))? {
            run.interrupting = None;
            run.signal_first = Some(tid);
            return Ok(Next::On(0));
        }
        if let Some(slot) = slot.filter(|s| self.in_program(*s).is_some()) {
            self.current = slot;
            return Ok(Next::Stop(Stop::Interrupted));
        }
        self.stop_the_next(run, tid)?;
        let Some(slot) = slot else {
            return Ok(Next::On(0));
        };
        let r = ptrace::registers(tid).map_err(os("read registers"))?;
        if self.territory(slot, r.rip) == Territory::Stub {
            if let Some(stop) = self.step_in_program(slot, tid, &r)? {
                self.current = slot;
                return Ok(Next::Stop(match stop {
                    Stop::Stepped(_) => Stop::Interrupted,
                    other => other,
                }));
            }
        }
        let signal = self.threads.get(&tid).map_or(0, |t| t.signal);
        Ok(Next::On(signal))
    }

    /// Who was to stop is not in the program: the next that leaves the runtime, or a stub, stops instead; or who has left it already.
    fn stop_the_next(&mut self, run: &mut Run, was_to: pid_t) -> Result<(), DebugError> {
        run.interrupting = None;
        run.catch = Catch::Anyone;
        self.guard_exits(run)?;
        if self.holder().is_some_and(|slot| self.tid(slot) != was_to) {
            self.interrupt(run);
        }
        Ok(())
    }

    /// A SIGTRAP: `None` when it is not ours.
    fn trapped(
        &mut self,
        run: &mut Run,
        slot: usize,
        tid: pid_t,
        mut r: user_regs_struct,
    ) -> Result<Option<Next>, DebugError> {
        let at = r.rip.wrapping_sub(1);
        let marks = self.live.landmarks();
        if at == marks.breakpoints_out {
            run.out = true;
            self.take_out();
            return Ok(Some(Next::On(0)));
        }
        if at == marks.breakpoints_in {
            run.out = false;
            if run.with_breakpoints {
                self.insert();
            }
            return Ok(Some(Next::On(0)));
        }
        if run.exits.is_some() && self.exits().any(|leaf| leaf == at) {
            r.rip = at;
            return self.leaves(run, slot, tid, r).map(Some);
        }
        if let Some(watched) = self.watch_hit(tid, &r, None) {
            match self.territory(slot, r.rip) {
                Territory::Program => {
                    return Ok(Some(match self.put_known_write(slot, r.rip)? {
                        true => Next::On(0),
                        false => Next::Stop(Stop::Watch(slot, watched)),
                    }));
                }
                // It may leave a stub without coming by the runtime's exits.
                Territory::Stub => match self.step_in_program(slot, tid, &r)? {
                    Some(Stop::Stepped(slot)) => {
                        return Ok(Some(Next::Stop(Stop::Watch(slot, watched))));
                    }
                    Some(other) => return Ok(Some(Next::Stop(other))),
                    None => {}
                },
                Territory::Runtime => {}
            }
            // It is told when the gate is over.
            run.watch.get_or_insert((tid, watched));
            self.guard_exits(run)?;
            return Ok(Some(Next::On(0)));
        }
        if let Some(next) = self.compiled_signal(slot, tid, libc::SIGTRAP, r)? {
            return Ok(Some(next));
        }
        if self.points.is_inserted(at) {
            r.rip = at;
            ptrace::set_registers(tid, &r).map_err(os("step back onto a breakpoint"))?;
            return Ok(Some(Next::Stop(Stop::Breakpoint(slot))));
        }
        if self.is_late(tid, &r) {
            return Ok(Some(Next::On(0)));
        }
        Ok(None)
    }

    /// A signal of a breakpoint that is compiled into the code: `None` when it is another.
    pub(crate) fn compiled_signal(
        &self,
        slot: usize,
        tid: pid_t,
        signal: i32,
        mut r: user_regs_struct,
    ) -> Result<Option<Next>, DebugError> {
        let Some(hit) = self.after_stub(signal, &mut r) else {
            return Ok(None);
        };
        ptrace::set_registers(tid, &r).map_err(os("go on from a breakpoint"))?;
        Ok(Some(match hit {
            true => Next::Stop(Stop::Breakpoint(slot)),
            false => Next::On(0),
        }))
    }

    /// A thread has come back to the program.
    pub(crate) fn has_left(&mut self, run: &mut Run, slot: usize, tid: pid_t) -> Next {
        if let Some((_, watched)) = run.watch.filter(|(by, _)| *by == tid) {
            return Next::Stop(Stop::Watch(slot, watched));
        }
        match run.catch {
            Catch::Anyone => {
                self.current = slot;
                Next::Stop(Stop::Interrupted)
            }
            Catch::Thread(wanted) if wanted == tid => Next::Stop(Stop::Stepped(slot)),
            _ => Next::On(0),
        }
    }
}
