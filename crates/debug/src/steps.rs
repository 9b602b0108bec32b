//! Single steps: of the program's instructions, and out of the runtime.

use crate::breakpoints::TRAP;
use crate::control::{Catch, Next, Run, Stop};
use crate::debuggee::{Debuggee, General, Territory};
use crate::traps::Trap;
use crate::{os, ptrace, DebugError};
use libc::{pid_t, user_regs_struct};

/// Instructions of the runtime's way out, behind the last landmark: what was moved into a stub, and what a stub does itself.
const MOST_MOVED: usize = 512;
/// Most instructions of a stub in a row.
const MOST_IN_STUB: usize = 10_000;
/// Where a thread is that has left the runtime, or was about to.
enum Out {
    /// In the program.
    Program,
    /// In the runtime, for some time.
    Runtime,
    /// It has stopped for something else: waitpid's status.
    Other(i32),
    /// It has ended.
    Gone,
}

impl Debuggee {
    /// Lets the thread of `slot` make one instruction of the program; a gate is one. Others run if it has to wait for them.
    ///
    /// # Errors
    /// As [`Debuggee::go_on`].
    pub fn step(
        &mut self,
        slot: usize,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, DebugError> {
        let tid = self.tid(slot);
        let signal = self.threads.get(&tid).map_or(0, |t| t.signal);
        let begin = self.in_program(slot).filter(|_| signal == 0);
        if let Some(r) = begin {
            if let Some(stop) = self.step_in_program(slot, tid, &r)? {
                return Ok(stop);
            }
        }
        match self.run(Catch::Thread(tid), true, wanted)? {
            // A cut, which is no instruction.
            Stop::Stepped(s)
                if begin.is_some_and(|b| {
                    self.in_program(s)
                        .is_some_and(|r| General::of(&r) == General::of(&b))
                }) =>
            {
                self.step(slot, wanted)
            }
            other => Ok(other),
        }
    }

    /// One instruction, as far as it is the program's; `None`: the thread is in the runtime then.
    pub(crate) fn step_in_program(
        &mut self,
        slot: usize,
        tid: pid_t,
        from: &user_regs_struct,
    ) -> Result<Option<Stop>, DebugError> {
        let pushes_flags = self.pushes_flags(from.rip);
        ptrace::step(tid).map_err(os("step"))?;
        let mut steps = 0;
        let mut before = *from;
        loop {
            let status = ptrace::wait(tid).map_err(os("wait for a step"))?;
            if !libc::WIFSTOPPED(status) {
                self.threads.remove(&tid);
                return Ok(Some(Stop::Ended(status)));
            }
            let r = ptrace::registers(tid).map_err(os("read registers"))?;
            let place = self.territory(slot, r.rip);
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            if event != 0 {
                // Stopped before the step was made.
                ptrace::step(tid).map_err(os("step"))?;
                continue;
            }
            if signal != libc::SIGTRAP || self.trap(tid, &r) == Trap::Own {
                match self.compiled_signal(slot, tid, signal, r)? {
                    Some(Next::Stop(stop)) => return Ok(Some(stop)),
                    Some(_) => {
                        ptrace::step(tid).map_err(os("step"))?;
                        continue;
                    }
                    None => {}
                }
                if let Some(stop) = self.own_signal(slot, tid, signal, &r) {
                    return Ok(Some(stop));
                }
                let pass = self.passes(tid, signal);
                if let Some(t) = self.threads.get_mut(&tid) {
                    t.signal = pass;
                }
                return Ok(None);
            }
            match place {
                Territory::Program => {
                    if pushes_flags {
                        self.hide_trap_flag(r.rsp)?;
                    }
                    let hit = self.watch_hit(tid, &r, Some(&before));
                    return Ok(Some(match hit {
                        Some(w) => Stop::Watch(slot, w),
                        None => Stop::Stepped(slot),
                    }));
                }
                Territory::Stub => {
                    steps += 1;
                    if steps > MOST_IN_STUB {
                        return Err(DebugError::Refused(format!(
                            "a thread has made {MOST_IN_STUB} steps in a stub"
                        )));
                    }
                    before = r;
                    ptrace::step(tid).map_err(os("step"))?;
                }
                Territory::Runtime => return Ok(None),
            }
        }
    }

    /// Is the instruction one that stores the flags, of which the trap flag is ours?
    fn pushes_flags(&self, pc: u64) -> bool {
        const PUSHF: u8 = 0x9c;
        const OPERAND_SIZE: u8 = 0x66;
        let mut code = [0; 2];
        let n = self.read_some(pc, &mut code).unwrap_or(0);
        n > 0 && code[0] == PUSHF || n > 1 && code == [OPERAND_SIZE, PUSHF]
    }

    fn hide_trap_flag(&self, rsp: u64) -> Result<(), DebugError> {
        let mut byte = [0];
        self.read(rsp + 1, &mut byte)
            .map_err(os("read the stack"))?;
        self.exchange(rsp + 1, byte[0] & !1).map(|_| ())
    }

    /// A thread is at one of the runtime's exits: one step more, and it is in the program.
    pub(crate) fn leaves(
        &mut self,
        run: &mut Run,
        slot: usize,
        tid: pid_t,
        r: user_regs_struct,
    ) -> Result<Next, DebugError> {
        ptrace::set_registers(tid, &r).map_err(os("step back onto the runtime's exit"))?;
        let which = self.exits().position(|at| at == r.rip);
        let old = run.exits.as_ref().zip(which).map(|(old, i)| old[i]);
        let byte = old.unwrap_or(TRAP);
        self.exchange(r.rip, byte)?;
        let out = self.step_out(run, slot, tid);
        // The process may be gone.
        let _ = self.exchange(r.rip, TRAP);
        match out? {
            Out::Program => Ok(self.has_left(run, slot, tid)),
            Out::Runtime => Ok(Next::On(0)),
            Out::Other(status) => self.stopped(run, tid, status),
            Out::Gone => {
                self.threads.remove(&tid);
                Ok(Next::Nothing)
            }
        }
    }

    /// Steps from the runtime's exit into the program.
    fn step_out(&mut self, run: &mut Run, slot: usize, tid: pid_t) -> Result<Out, DebugError> {
        for _ in 0..MOST_MOVED {
            ptrace::step(tid).map_err(os("step"))?;
            let status = ptrace::wait(tid).map_err(os("wait for a step"))?;
            if !libc::WIFSTOPPED(status) {
                return Ok(Out::Gone);
            }
            if status >> 16 != 0 {
                // Stopped before the step was made, or before it was told of.
                if run.interrupting.take_if(|t| *t == tid).is_some() {
                    run.catch = Catch::Anyone;
                }
                continue;
            }
            if libc::WSTOPSIG(status) != libc::SIGTRAP {
                return Ok(Out::Other(status));
            }
            let now = ptrace::registers(tid).map_err(os("read registers"))?;
            match self.territory(slot, now.rip) {
                Territory::Runtime => return Ok(Out::Runtime),
                Territory::Program => return Ok(Out::Program),
                Territory::Stub => {}
            }
        }
        Ok(Out::Runtime)
    }
}
