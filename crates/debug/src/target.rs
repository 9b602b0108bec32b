//! The replay behind the traits of the crate `gdbstub`.

use crate::breakpoints::{Watched, Way};
use crate::calls::Calls;
use crate::checkpoint::Checkpoint;
use crate::control::Stop;
use crate::debuggee::Debuggee;
use crate::diversion::Diversion;
use crate::files::OpenFiles;
use crate::history::Past;
use crate::registers::{Shown, X86_64};
use crate::server::Place;
use crate::wire::{Asked, Becomes, Here};
use crate::DebugError;
use gdbstub::common::{Pid, Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::reverse_exec::{
    ReplayLogPosition, ReverseCont, ReverseContOps, ReverseStep, ReverseStepOps,
};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::breakpoints as b;
use gdbstub::target::ext::catch_syscalls::{
    CatchSyscallPosition, CatchSyscalls, CatchSyscallsOps, SyscallNumbers,
};
use gdbstub::target::ext::host_io as io;
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::ext::{auxv, exec_file, libraries, monitor_cmd};
use gdbstub::target::{Target, TargetError, TargetResult};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How the replay goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Motion {
    /// Forward, until something happens.
    Continue,
    /// One step of a thread.
    Step(Tid),
    /// Back, until something happens.
    Back,
    /// One step of a thread back.
    StepBack(Tid),
}

/// Where the next motion ends, whatever gdb calls it.
#[derive(Clone)]
pub enum Goal {
    /// Where so many events have happened.
    Event(u64),
    /// At a place that was remembered.
    Checkpoint(Rc<Checkpoint>),
    /// At a place that has a name.
    Place(Place),
    /// Here: the command was wrong.
    Here,
}

/// A place that gdb's user has remembered.
pub(crate) struct Remembered {
    /// The process as it was there.
    pub checkpoint: Rc<Checkpoint>,
    /// The event that came next.
    pub event: u64,
    /// Where that is, in the words of who remembered it.
    pub place: String,
}

/// What gdb debugs.
pub struct Session {
    /// Checkpoints are dropped before the debuggee, which waits for the end of all.
    pub(crate) past: Past,
    /// Places that gdb's user has remembered, by number.
    pub(crate) kept: BTreeMap<u32, Remembered>,
    /// The last number.
    pub(crate) last_kept: u32,
    /// A function of the program is called, or was. It has a checkpoint, too.
    pub(crate) diversion: Option<Diversion>,
    /// The way back through a long stretch, for who asks where a value comes from.
    pub(crate) ladder: crate::origin::Ladder,
    /// Places are kept by checkpoints that a replay which begins anew would not have.
    pub(crate) stays: bool,
    /// `None` only while it starts over.
    pub(crate) debuggee: Option<Debuggee>,
    motion: Motion,
    /// Said by a command of ours.
    pub(crate) goal: Option<Goal>,
    /// Where a debugger of rr's begins anew that names no place.
    pub(crate) began: Goal,
    files: OpenFiles,
    auxv: Vec<u8>,
    /// The list of libraries that gdb is reading.
    libraries: RefCell<String>,
    /// The program that gdb knows of, by its place among those of the process.
    program: usize,
    /// The file of another one, of which gdb is to be told with the next stop.
    becomes: Becomes,
    /// The conditions of the breakpoint that gdb asks for.
    asked: Asked,
    /// A stop in another program than gdb knew: it comes after gdb was told of the program.
    after_telling: Option<MultiThreadStopReason<u64>>,
    /// The motion ended where the process becomes another program, or was one: it goes on when gdb has been told.
    at_exec: bool,
    /// Why the last motion ended.
    pub(crate) last: Option<Stop>,
    /// The signal at which it ended, as gdb counts.
    here: Here,
}

impl Session {
    /// A debuggee at the program's first instruction.
    pub fn new(debuggee: Debuggee) -> Session {
        Session {
            auxv: Vec::new(),
            libraries: RefCell::default(),
            program: 0,
            becomes: Becomes::default(),
            asked: Asked::default(),
            after_telling: None,
            at_exec: false,
            last: None,
            here: Rc::new(Cell::new(Signal::SIGTRAP.0)),
            stays: false,
            debuggee: Some(debuggee),
            ladder: crate::origin::Ladder::default(),
            past: Past::default(),
            kept: BTreeMap::new(),
            last_kept: 0,
            motion: Motion::Continue,
            goal: None,
            began: Goal::Here,
            diversion: None,
            files: OpenFiles::default(),
        }
    }

    /// The debuggee.
    ///
    /// # Errors
    /// When it could not be started over.
    pub fn debuggee(&mut self) -> Result<&mut Debuggee, DebugError> {
        self.debuggee
            .as_mut()
            .ok_or_else(|| DebugError::Refused("the replay is gone".into()))
    }

    fn at_rest(&self) -> Result<&Debuggee, DebugError> {
        self.debuggee
            .as_ref()
            .ok_or_else(|| DebugError::Refused("the replay is gone".into()))
    }

    fn slot(&self, tid: Tid) -> Result<usize, TargetError<DebugError>> {
        let d = self.at_rest().map_err(TargetError::Fatal)?;
        let slot = d.slots().find(|s| d.visible(*s) as usize == tid.get());
        slot.ok_or(TargetError::Errno(libc::ESRCH as u8))
    }

    /// The file of the program of which gdb is to be told.
    pub(crate) fn becomes(&self) -> Becomes {
        Rc::clone(&self.becomes)
    }

    /// The conditions of the breakpoint that gdb asks for.
    pub(crate) fn asked(&self) -> Asked {
        Rc::clone(&self.asked)
    }

    /// The signal at which the program stands.
    pub(crate) fn here(&self) -> Here {
        Rc::clone(&self.here)
    }

    /// A motion has ended for this reason.
    pub(crate) fn stands(&mut self, stop: Stop) {
        let signal = match stop {
            Stop::Signal(_, signal) => gdb_signal(signal),
            _ => Signal::SIGTRAP,
        };
        self.here.set(signal.0);
        self.last = Some(stop);
    }

    fn add_breakpoint(&mut self, at: u64, way: Way) -> TargetResult<bool, Self> {
        let conditions = self.asked.take();
        let d = self.debuggee().map_err(TargetError::Fatal)?;
        // Where something is mapped at another time, too: gdb has breakpoints of its own in libraries that it knows, and a motion backward leads to before they
        // were loaded.
        let other_times = || d.timeline.mapped.iter().any(|range| range.contains(&at));
        let there = d.read(at, &mut [0]).is_ok() || other_times();
        if there {
            d.points.add(at, way, conditions);
        }
        Ok(there)
    }

    fn remove_breakpoint(&mut self, at: u64, way: Way) -> TargetResult<bool, Self> {
        let d = self.debuggee().map_err(TargetError::Fatal)?;
        Ok(d.points.remove(at, way))
    }

    /// The program here is the one that gdb knows of, or is told of now.
    ///
    /// # Errors
    /// When the debuggee is gone.
    pub(crate) fn see_program(&mut self) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        let program = d.timeline.program_at(d.events());
        let auxv = d.auxiliary_vector().unwrap_or_default();
        (self.program, self.auxv) = (program, auxv);
        Ok(())
    }

    /// Makes the motion that gdb has asked for. Where it leads into another program, gdb is told of that first, and goes on.
    ///
    /// # Errors
    /// When the replay can't go on.
    pub fn go(
        &mut self,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<MultiThreadStopReason<u64>, DebugError> {
        if let Some(stop) = self.after_telling.take() {
            self.goal = None;
            return Ok(stop);
        }
        self.at_exec = false;
        // Forward, the caller is asked whether to go on.
        let looks_itself = match self.goal {
            None => matches!(self.motion, Motion::Back | Motion::StepBack(_)),
            Some(_) => true,
        };
        self.last = None;
        self.debuggee()?.moving.begin(looks_itself);
        let stop = self.go_as_wanted(wanted)?;
        self.pass_on_collected()?;
        self.debuggee()?.moving.end();
        let d = self.debuggee()?;
        if d.timeline.program_at(d.events()) == self.program {
            return Ok(stop);
        }
        // gdb thinks that what it had put into the old program is gone.
        let d = self.debuggee()?;
        d.points = std::mem::take(&mut d.points).forgotten();
        d.set_watchpoints()?;
        let (name, here) = (d.executable(), d.visible(d.current));
        self.see_program()?;
        self.becomes.replace(Some(name));
        if !self.at_exec {
            self.after_telling = Some(stop);
        }
        Ok(MultiThreadStopReason::SignalWithThread {
            tid: Tid::new(here as usize).unwrap_or(Tid::MIN),
            signal: Signal::SIGTRAP,
        })
    }

    fn go_as_wanted(
        &mut self,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<MultiThreadStopReason<u64>, DebugError> {
        if let Some(goal) = self.goal.take() {
            self.end_diversion()?;
            match goal {
                Goal::Event(number) => match self.run_to_event(number, wanted) {
                    Err(DebugError::GivenUp) => {
                        self.past = Past::default();
                        return self.reason(Stop::Interrupted);
                    }
                    done => done?,
                },
                Goal::Checkpoint(kept) => {
                    self.past = Past::default();
                    self.debuggee()?.return_exactly(&kept)?;
                }
                Goal::Place(place) => self.go_to_place(place)?,
                Goal::Here => {}
            }
            let d = self.debuggee()?;
            return Ok(MultiThreadStopReason::SignalWithThread {
                tid: Tid::new(d.visible(d.current) as usize).unwrap_or(Tid::MIN),
                signal: Signal::SIGZERO,
            });
        }
        if let Some(stop) = self.go_diverted(self.motion, wanted)? {
            return Ok(stop);
        }
        let stop = match self.motion {
            Motion::Continue => self.forward(|d, end, wanted| d.go_far(end, wanted), wanted)?,
            Motion::Step(tid) => {
                let slot = self.slot(tid).ok();
                self.forward(
                    |d, end, wanted| d.step_far(slot.unwrap_or(d.current), end, wanted),
                    wanted,
                )?
            }
            Motion::Back | Motion::StepBack(_) => {
                let origin = self.debuggee()?.name()?;
                let gone = match self.motion {
                    Motion::StepBack(tid) => {
                        let slot = self.slot(tid).unwrap_or(0);
                        self.step_back(slot, wanted)
                    }
                    _ => self.back(wanted),
                };
                return match gone {
                    Err(DebugError::GivenUp) => self.give_up(&origin),
                    gone => gone,
                };
            }
        };
        self.reason(stop)
    }

    /// What gdb is told.
    pub(crate) fn reason(&mut self, stop: Stop) -> Result<MultiThreadStopReason<u64>, DebugError> {
        self.stands(stop);
        let d = self.debuggee()?;
        let tid =
            |d: &Debuggee, slot: usize| Tid::new(d.visible(slot) as usize).unwrap_or(Tid::MIN);
        let here = tid(d, d.current);
        Ok(match stop {
            Stop::Stepped(slot) => MultiThreadStopReason::SignalWithThread {
                tid: tid(d, slot),
                signal: Signal::SIGTRAP,
            },
            // gdb has nothing there itself, and would go on.
            Stop::Watch(slot, _) | Stop::Breakpoint(slot) if d.stops_for_itself(slot) => {
                MultiThreadStopReason::SignalWithThread {
                    tid: tid(d, slot),
                    signal: Signal::SIGTRAP,
                }
            }
            Stop::Breakpoint(slot) => MultiThreadStopReason::SwBreak(tid(d, slot)),
            Stop::Watch(slot, w) => MultiThreadStopReason::Watch {
                tid: tid(d, slot),
                kind: w.kind,
                addr: w.at,
            },
            Stop::Signal(slot, signal) => MultiThreadStopReason::SignalWithThread {
                tid: tid(d, slot),
                signal: gdb_signal(signal),
            },
            Stop::Call(slot, number) => MultiThreadStopReason::CatchSyscall {
                tid: Some(tid(d, slot)),
                number,
                position: CatchSyscallPosition::Return,
            },
            Stop::Limit => MultiThreadStopReason::ReplayLog {
                tid: Some(here),
                pos: ReplayLogPosition::End,
            },
            Stop::Exec => {
                self.at_exec = true;
                MultiThreadStopReason::SignalWithThread {
                    tid: here,
                    signal: Signal::SIGTRAP,
                }
            }
            Stop::Interrupted => MultiThreadStopReason::SignalWithThread {
                tid: here,
                signal: Signal::SIGINT,
            },
            Stop::Ended(status) if libc::WIFSIGNALED(status) => {
                MultiThreadStopReason::Terminated(gdb_signal(libc::WTERMSIG(status)))
            }
            Stop::Ended(status) => MultiThreadStopReason::Exited(libc::WEXITSTATUS(status) as u8),
        })
    }
}

/// A signal as gdb numbers it.
fn gdb_signal(signal: i32) -> Signal {
    match signal {
        libc::SIGHUP => Signal::SIGHUP,
        libc::SIGINT => Signal::SIGINT,
        libc::SIGQUIT => Signal::SIGQUIT,
        libc::SIGILL => Signal::SIGILL,
        libc::SIGTRAP => Signal::SIGTRAP,
        libc::SIGABRT => Signal::SIGABRT,
        libc::SIGBUS => Signal::SIGBUS,
        libc::SIGFPE => Signal::SIGFPE,
        libc::SIGKILL => Signal::SIGKILL,
        libc::SIGUSR1 => Signal::SIGUSR1,
        libc::SIGSEGV => Signal::SIGSEGV,
        libc::SIGUSR2 => Signal::SIGUSR2,
        libc::SIGPIPE => Signal::SIGPIPE,
        libc::SIGALRM => Signal::SIGALRM,
        libc::SIGTERM => Signal::SIGTERM,
        libc::SIGXCPU => Signal::SIGXCPU,
        libc::SIGXFSZ => Signal::SIGXFSZ,
        libc::SIGSYS => Signal::SIGSYS,
        _ => Signal::SIGUSR1,
    }
}

impl Target for Session {
    type Arch = X86_64;
    type Error = DebugError;

    fn base_ops(&mut self) -> BaseOps<'_, X86_64, DebugError> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<b::BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<monitor_cmd::MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_host_io(&mut self) -> Option<io::HostIoOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<exec_file::ExecFileOps<'_, Self>> {
        Some(self)
    }

    fn support_catch_syscalls(&mut self) -> Option<CatchSyscallsOps<'_, Self>> {
        // By `order` a call has no number before which all stands still.
        let is_order = self.debuggee.as_ref()?.timeline.is_order;
        (!is_order).then_some(self)
    }

    fn support_libraries_svr4(&mut self) -> Option<libraries::LibrariesSvr4Ops<'_, Self>> {
        Some(self)
    }

    fn support_auxv(&mut self) -> Option<auxv::AuxvOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Session {
    fn read_registers(&mut self, regs: &mut Shown, tid: Tid) -> TargetResult<(), Self> {
        let slot = self.slot(tid)?;
        if let Some(resting) = self.registers_resting(slot) {
            regs.clone_from(resting);
            return Ok(());
        }
        let d = self.debuggee().map_err(TargetError::Fatal)?;
        let unread = |_| TargetError::Errno(libc::EIO as u8);
        regs.general = d.registers(slot).map_err(unread)?;
        regs.vectors = d.vectors(slot).map_err(unread)?;
        Ok(())
    }

    fn write_registers(&mut self, regs: &Shown, tid: Tid) -> TargetResult<(), Self> {
        let slot = self.slot(tid)?;
        match self
            .write_diverted(slot, regs)
            .map_err(TargetError::Fatal)?
        {
            true => Ok(()),
            false => Err(TargetError::Errno(libc::EPERM as u8)),
        }
    }

    fn read_addrs(&mut self, at: u64, data: &mut [u8], _: Tid) -> TargetResult<usize, Self> {
        let resting = self.read_resting(at, data);
        let d = self.debuggee().map_err(TargetError::Fatal)?;
        let n = resting
            .unwrap_or_else(|| d.read_some(at, data))
            .map_err(|_| TargetError::Errno(libc::EFAULT as u8))?;
        d.hide_jumps(at, &mut data[..n]);
        Ok(n)
    }

    fn write_addrs(&mut self, at: u64, bytes: &[u8], tid: Tid) -> TargetResult<(), Self> {
        let slot = self.slot(tid)?;
        match self
            .write_memory(slot, at, bytes)
            .map_err(TargetError::Fatal)?
        {
            true => Ok(()),
            false => Err(TargetError::Errno(libc::EPERM as u8)),
        }
    }

    fn list_active_threads(&mut self, found: &mut dyn FnMut(Tid)) -> Result<(), DebugError> {
        let d = self.debuggee()?;
        // Whoever asks first for the list takes its first thread for the one that stopped.
        let mut all: Vec<usize> = d.slots().collect();
        all.sort_by_key(|s| *s != d.current);
        for slot in all {
            if let Some(tid) = Tid::new(d.visible(slot) as usize) {
                found(tid);
            }
        }
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl ThreadExtraInfo for Session {
    fn thread_extra_info(&self, tid: Tid, buf: &mut [u8]) -> Result<usize, DebugError> {
        let d = self.at_rest()?;
        let text = match self.slot(tid) {
            Ok(slot) if d.in_program(slot).is_some() => "runs",
            Ok(_) => "at a gate",
            Err(_) => "gone",
        };
        let n = text.len().min(buf.len());
        buf[..n].copy_from_slice(&text.as_bytes()[..n]);
        Ok(n)
    }
}

impl MultiThreadResume for Session {
    fn resume(&mut self) -> Result<(), DebugError> {
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), DebugError> {
        self.motion = Motion::Continue;
        Ok(())
    }

    fn set_resume_action_continue(&mut self, _: Tid, _: Option<Signal>) -> Result<(), DebugError> {
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_reverse_step(&mut self) -> Option<ReverseStepOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_reverse_cont(&mut self) -> Option<ReverseContOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Session {
    fn set_resume_action_step(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), DebugError> {
        self.motion = Motion::Step(tid);
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for Session {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), DebugError> {
        // Who runs is recorded; nobody else could.
        Ok(())
    }
}

impl ReverseCont<Tid> for Session {
    fn reverse_cont(&mut self) -> Result<(), DebugError> {
        self.motion = Motion::Back;
        Ok(())
    }
}

impl ReverseStep<Tid> for Session {
    fn reverse_step(&mut self, tid: Tid) -> Result<(), DebugError> {
        self.motion = Motion::StepBack(tid);
        Ok(())
    }
}

impl b::Breakpoints for Session {
    fn support_sw_breakpoint(&mut self) -> Option<b::SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<b::HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<b::HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl b::SwBreakpoint for Session {
    fn add_sw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        self.add_breakpoint(at, Way::Software)
    }

    fn remove_sw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        self.remove_breakpoint(at, Way::Software)
    }
}

// What a debug register could do, a breakpoint does that nobody sees in memory.
impl b::HwBreakpoint for Session {
    fn add_hw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        self.add_breakpoint(at, Way::Hardware)
    }

    fn remove_hw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        self.remove_breakpoint(at, Way::Hardware)
    }
}

impl b::HwWatchpoint for Session {
    fn add_hw_watchpoint(
        &mut self,
        at: u64,
        len: u64,
        kind: b::WatchKind,
    ) -> TargetResult<bool, Self> {
        let d = self.debuggee().map_err(TargetError::Fatal)?;
        let w = Watched { at, len, kind };
        if !d.points.watch(w) {
            return Ok(false);
        }
        if d.set_watchpoints().is_err() {
            d.points.unwatch(w);
            return Ok(false);
        }
        Ok(true)
    }

    fn remove_hw_watchpoint(
        &mut self,
        at: u64,
        len: u64,
        kind: b::WatchKind,
    ) -> TargetResult<bool, Self> {
        let d = self.debuggee().map_err(TargetError::Fatal)?;
        let was = d.points.unwatch(Watched { at, len, kind });
        let _ = d.set_watchpoints();
        Ok(was)
    }
}

/// Copies the part of `data` that gdb asks for.
fn part(data: &[u8], offset: u64, length: usize, buf: &mut [u8]) -> usize {
    let rest = usize::try_from(offset)
        .ok()
        .and_then(|o| data.get(o..))
        .unwrap_or(&[]);
    let n = rest.len().min(length).min(buf.len());
    buf[..n].copy_from_slice(&rest[..n]);
    n
}

impl exec_file::ExecFile for Session {
    fn get_exec_file(
        &self,
        _: Option<Pid>,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let name = self.at_rest().map_err(TargetError::Fatal)?.executable();
        Ok(part(&name, offset, length, buf))
    }
}

impl CatchSyscalls for Session {
    fn enable_catch_syscalls(
        &mut self,
        filter: Option<SyscallNumbers<'_, u64>>,
    ) -> TargetResult<(), Self> {
        let d = self.debuggee().map_err(TargetError::Fatal)?;
        d.points.calls = Some(Calls::new(filter.map(Iterator::collect)));
        Ok(())
    }

    fn disable_catch_syscalls(&mut self) -> TargetResult<(), Self> {
        self.debuggee().map_err(TargetError::Fatal)?.points.calls = None;
        Ok(())
    }
}

impl libraries::LibrariesSvr4 for Session {
    fn get_libraries_svr4(
        &self,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let d = self.at_rest().map_err(TargetError::Fatal)?;
        // It is asked for in pieces, and doesn't change meanwhile.
        let mut list = self.libraries.borrow_mut();
        if offset == 0 {
            *list = d.libraries_in_xml();
        }
        Ok(part(list.as_bytes(), offset, length, buf))
    }
}

impl auxv::Auxv for Session {
    fn get_auxv(&self, offset: u64, length: usize, buf: &mut [u8]) -> TargetResult<usize, Self> {
        Ok(part(&self.auxv, offset, length, buf))
    }
}

impl io::HostIo for Session {
    fn support_open(&mut self) -> Option<io::HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<io::HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<io::HostIoPreadOps<'_, Self>> {
        Some(self)
    }

    fn support_fstat(&mut self) -> Option<io::HostIoFstatOps<'_, Self>> {
        Some(self)
    }

    fn support_readlink(&mut self) -> Option<io::HostIoReadlinkOps<'_, Self>> {
        Some(self)
    }

    fn support_setfs(&mut self) -> Option<io::HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
}

impl io::HostIoSetfs for Session {
    fn setfs(&mut self, _: io::FsKind) -> io::HostIoResult<(), Self> {
        Ok(())
    }
}

impl io::HostIoOpen for Session {
    fn open(
        &mut self,
        name: &[u8],
        flags: io::HostIoOpenFlags,
        _: io::HostIoOpenMode,
    ) -> io::HostIoResult<u32, Self> {
        let writes = io::HostIoOpenFlags::O_WRONLY | io::HostIoOpenFlags::O_RDWR;
        if flags.intersects(writes) {
            return Err(io::HostIoError::Errno(io::HostIoErrno::EROFS));
        }
        let d = self.at_rest().map_err(io::HostIoError::Fatal)?;
        let file = d.open_file(name)?;
        Ok(self.files.add(file)?)
    }
}

impl io::HostIoClose for Session {
    fn close(&mut self, fd: u32) -> io::HostIoResult<(), Self> {
        Ok(self.files.close(fd)?)
    }
}

impl io::HostIoPread for Session {
    fn pread(
        &mut self,
        fd: u32,
        count: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> io::HostIoResult<usize, Self> {
        let n = count.min(buf.len());
        Ok(self.files.read(fd, offset, &mut buf[..n])?)
    }
}

impl io::HostIoFstat for Session {
    fn fstat(&mut self, fd: u32) -> io::HostIoResult<io::HostIoStat, Self> {
        let len = self.files.len(fd)?;
        Ok(io::HostIoStat {
            st_dev: 0,
            st_ino: fd,
            st_mode: io::HostIoOpenMode::S_IFREG | io::HostIoOpenMode::S_IRUSR,
            st_nlink: 1,
            st_uid: 0,
            st_gid: 0,
            st_rdev: 0,
            st_size: len,
            st_blksize: 4096,
            st_blocks: len.div_ceil(512),
            st_atime: 0,
            st_mtime: 0,
            st_ctime: 0,
        })
    }
}

impl io::HostIoReadlink for Session {
    fn readlink(&mut self, name: &[u8], buf: &mut [u8]) -> io::HostIoResult<usize, Self> {
        let is = |what: &[u8]| name.starts_with(b"/proc/") && name.ends_with(what);
        let d = self.at_rest().map_err(io::HostIoError::Fatal)?;
        let found = match () {
            () if is(b"/exe") => d.executable(),
            () if is(b"/cwd") => d.live.manifest().cwd.0.clone(),
            () => return Err(io::HostIoError::Errno(io::HostIoErrno::EINVAL)),
        };
        Ok(part(&found, 0, found.len(), buf))
    }
}
