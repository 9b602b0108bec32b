//! The replayed process at rest: its threads, their registers, its memory.

use crate::breakpoints::Breakpoints;
use crate::checkpoint::Waiting;
use crate::checkpoints::Checkpoints;
use crate::collect::Collecting;
use crate::moving::Moving;
use crate::timeline::{Fault, Timeline};
use crate::{os, ptrace, DebugError};
use libc::{pid_t, user_regs_struct};
use reprise_abi::layout::{MAX_SLOTS, RESERVATION, RESERVATION_END};
use reprise_abi::session::{shown, slot_state};
use reprise_launch::inject::Gate;
use reprise_replay::live::Whose;
use reprise_replay::{Live, Output};
use reprise_trace::Checkpoint;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// The general registers of the program, as gdb numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct General {
    /// rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8 to r15.
    pub r: [u64; 16],
    /// Where it goes on.
    pub rip: u64,
    /// The flags.
    pub flags: u64,
    /// Its thread pointer.
    pub fs_base: u64,
}

/// Index of rsp in [`General::r`].
pub const RSP: usize = 7;
/// Flags that are none of the program's: the trap flag, which it does not have set by itself, and the resume flag, which is set where it was
/// interrupted by a page fault.
const NOT_ITS_OWN: u64 = 0x100 | 0x1_0000;

/// A thread that is traced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traced {
    /// It is stopped for us.
    pub stopped: bool,
    /// The signal that it gets when it goes on.
    pub signal: i32,
}

/// Whose code an address is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Territory {
    /// The program's own.
    Program,
    /// The runtime's.
    Runtime,
    /// A stub that stands for rewritten instructions of the program: it leads back to the program or on to the runtime.
    Stub,
}

/// A replay and the one process of it that is debugged.
pub struct Debuggee {
    /// They are ended first, since [`Live`] waits for the end of all.
    pub(crate) checkpoints: Checkpoints,
    /// Processes that wait as checkpoints.
    pub(crate) waiting: Waiting,
    /// Where a tracer can make calls, once it is known.
    pub(crate) gate: Option<Gate>,
    pub(crate) dir: PathBuf,
    pub(crate) live: Live,
    pub(crate) timeline: Rc<Timeline>,
    /// The kernel's number of the process.
    pub(crate) pid: pid_t,
    pub(crate) memory: File,
    pub(crate) threads: BTreeMap<pid_t, Traced>,
    pub(crate) points: Breakpoints,
    /// Slot of the thread that is shown first.
    pub(crate) current: usize,
    /// It is a diversion: of the program only the thread of this slot runs.
    pub(crate) diverted: Option<usize>,
    /// The next run is to be interrupted after this time.
    pub(crate) only_for: Option<Duration>,
    /// The motion that is made.
    pub(crate) moving: Moving,
    /// What is collected on the way.
    pub(crate) collecting: Collecting,
}

impl Debuggee {
    /// Starts a replay of the trace in `dir`, and lets it come to the program's first instruction, to where the trace begins, or to a checkpoint on
    /// disk, or an earlier one where that is damaged.
    ///
    /// # Errors
    /// When the trace can't be debugged, or the kernel refuses something.
    pub fn start(
        dir: &Path,
        timeline: Rc<Timeline>,
        output: Output,
        from: Option<Checkpoint>,
    ) -> Result<Debuggee, DebugError> {
        let output = output.fresh().map_err(os("make memory for the output"))?;
        let whose = Whose {
            birth: timeline.birth,
            begins: timeline.begins(),
        };
        let mut live = Live::start(
            dir,
            whose,
            output,
            Rc::clone(&timeline.rings),
            from.map(|c| c.event),
        )?;
        while !live.is_at_limit() {
            if !live.turn()? {
                return Err(DebugError::Refused(
                    "the replay ended before its first instruction".into(),
                ));
            }
            while let Some((tid, status)) = live.next_stop() {
                if tid != live.pid() && ptrace::process_of(tid) == Some(live.pid()) {
                    // Of a process that was running before it was recorded.
                    live.add_thread(tid);
                }
                let pass = match libc::WIFSTOPPED(status) && status >> 16 == 0 {
                    true => libc::WSTOPSIG(status),
                    false => 0,
                };
                ptrace::go_on(tid, pass).map_err(os("let the replay go on"))?;
            }
        }
        let pid = live.pid();
        let memory = memory_of(pid).map_err(os("open the replayed program's memory"))?;
        let others = live.threads().map(|tid| (tid, Traced::default()));
        let threads = others.chain([(pid, Traced::default())]).collect();
        let mut d = Debuggee {
            checkpoints: Checkpoints::default(),
            waiting: Waiting::default(),
            gate: live.gate(),
            dir: dir.to_path_buf(),
            live,
            timeline,
            pid,
            memory,
            threads,
            points: Breakpoints::default(),
            current: 0,
            diverted: None,
            only_for: None,
            moving: Moving::default(),
            collecting: Collecting::default(),
        };
        d.current = d.next_slot();
        if let Some(from) = from.filter(|from| from.event == d.events()) {
            d.checkpoints.begin_after(from.after());
        }
        d.mark_beginning()?;
        Ok(d)
    }

    /// Another process of the kernel's goes on for it: it has become another program. Nothing that was in the old one is in it.
    pub(crate) fn goes_on_as(&mut self, pid: pid_t) -> Result<(), DebugError> {
        self.pid = pid;
        self.memory = memory_of(pid).map_err(os("open the replayed program's memory"))?;
        self.threads = BTreeMap::from([(pid, Traced::default())]);
        self.points = Breakpoints::default();
        self.collecting.forget_program();
        Ok(())
    }

    /// Starts the same replay once more, from the beginning, or from a checkpoint on disk. Breakpoints stay.
    ///
    /// # Errors
    /// As [`Debuggee::start`].
    pub fn start_over(self, from: Option<Checkpoint>) -> Result<Debuggee, DebugError> {
        let Debuggee {
            dir,
            live,
            timeline,
            points,
            checkpoints,
            moving,
            collecting,
            ..
        } = self;
        drop(checkpoints);
        let output = live.end();
        let mut new = Debuggee::start(&dir, timeline, output, from)?;
        new.points = points.taken_out();
        new.moving = moving;
        new.collecting = collecting;
        new.set_watchpoints()?;
        Ok(new)
    }

    /// How many events have happened.
    pub fn events(&self) -> u64 {
        self.live.events()
    }

    /// Slots of the threads that live.
    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        let known = |i: &usize| self.threads.contains_key(&self.tid(*i));
        self.used_slots().filter(known)
    }

    /// Has the kernel told us of all threads that live?
    pub(crate) fn knows_who_lives(&self) -> bool {
        self.used_slots()
            .all(|i| self.threads.contains_key(&self.tid(i)))
    }

    fn used_slots(&self) -> impl Iterator<Item = usize> + '_ {
        let used = self.live.session().slots_used.load(SeqCst) as usize;
        (0..used.min(MAX_SLOTS)).filter(|i| {
            let slot = self.live.slot(*i);
            let gone = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
            self.live.is_of_it(slot)
                && !gone.contains(&slot.state.load(SeqCst))
                && slot.visible_tid.load(SeqCst) != 0
        })
    }

    /// The kernel's thread of a slot.
    pub fn tid(&self, slot: usize) -> pid_t {
        self.live.slot(slot).kernel_tid.load(SeqCst) as pid_t
    }

    /// The slot of a kernel's thread.
    pub fn slot_of(&self, tid: pid_t) -> Option<usize> {
        let used = self.live.session().slots_used.load(SeqCst) as usize;
        (0..used.min(MAX_SLOTS)).find(|i| {
            let slot = self.live.slot(*i);
            let gone = [slot_state::FREE, slot_state::EXITING, slot_state::LEFT];
            self.live.is_of_it(slot)
                && !gone.contains(&slot.state.load(SeqCst))
                && self.tid(*i) == tid
        })
    }

    /// The thread of a slot as the recorded program knew it.
    pub fn visible(&self, slot: usize) -> u32 {
        self.live.slot(slot).visible_tid.load(SeqCst)
    }

    /// Slot of the thread that holds the baton, or has the turn: the one that runs, when anything does.
    pub fn holder(&self) -> Option<usize> {
        match self.diverted {
            Some(slot) => Some(slot),
            None => self.live.holder(),
        }
    }

    /// The fault that is the next event of the thread of `slot`, and whether the process ends by it, as far as is known.
    pub(crate) fn next_fault(&self, slot: usize) -> Option<(Fault, bool)> {
        match self.timeline.is_order {
            true => self.timeline.own_fault(slot, self.live.own(slot)),
            false => {
                let fault = self.timeline.fault(self.events(), slot)?;
                Some((fault, self.events() + 1 >= self.timeline.end))
            }
        }
    }

    /// Number of the event of the trace that comes next, for the thread that runs; that behind the last, if none does.
    pub fn next_event(&self) -> u64 {
        let Some(rings) = self.live.rings() else {
            return self.events();
        };
        let next = self
            .holder()
            .and_then(|slot| rings.event_after(slot, self.live.own(slot)));
        next.unwrap_or(self.timeline.len())
    }

    /// Whose code is at `pc`, for the thread of `slot`?
    pub fn territory(&self, slot: usize, pc: u64) -> Territory {
        let stub = self.live.slot(slot);
        let (first, len) = (stub.stub_first.load(SeqCst), stub.stub_len.load(SeqCst));
        let ours = self.points.compiled.iter().any(|c| c.holds(pc));
        if pc.wrapping_sub(first) < len || self.timeline.code_at(self.events()).is_stub(pc) || ours
        {
            return Territory::Stub;
        }
        if (RESERVATION..RESERVATION_END).contains(&pc) {
            return Territory::Runtime;
        }
        match self.beside().iter().any(|b| b.contains(&pc)) {
            true => Territory::Stub,
            false => Territory::Program,
        }
    }

    /// Is the thread stopped at an instruction of the program's own? Its registers there.
    pub fn in_program(&self, slot: usize) -> Option<user_regs_struct> {
        let tid = self.tid(slot);
        self.threads.get(&tid).filter(|t| t.stopped)?;
        let r = ptrace::registers(tid).ok()?;
        (self.territory(slot, r.rip) == Territory::Program).then_some(r)
    }

    /// The program's registers in the thread of `slot`.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn registers(&self, slot: usize) -> Result<General, DebugError> {
        if let Some(r) = self.in_program(slot) {
            return Ok(General::of(&r));
        }
        let place = self.live.slot(slot).shown.load(SeqCst);
        let at = place & !shown::CONTEXT;
        let mut g = match place & shown::CONTEXT {
            shown::FRAME => General::of_frame(&self.words::<18>(at)?),
            // The general registers in a ucontext_t.
            _ => General::of_context(&self.words::<18>(at + 40)?),
        };
        let tid = self.tid(slot);
        self.while_stopped(tid, || ptrace::registers(tid))
            .map_err(os("read the registers of a thread"))
            .map(|r| g.fs_base = r.fs_base)?;
        Ok(g)
    }

    /// The program's x87 and vector registers in the thread of `slot`, as XSAVE stores them.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn vectors(&self, slot: usize) -> Result<Vec<u8>, DebugError> {
        let place = self.live.slot(slot).shown.load(SeqCst);
        if self.in_program(slot).is_none() && place & shown::CONTEXT != 0 {
            // The kernel has saved them, and the runtime runs with others.
            let [at] = self.words::<1>((place & !shown::CONTEXT) + 40 + 23 * 8)?;
            let mut bytes = vec![0; self.live.manifest().start.xsave_size.min(16 << 10) as usize];
            self.read(at, &mut bytes)
                .map_err(os("read the vector registers of a thread"))?;
            return Ok(bytes);
        }
        let tid = self.tid(slot);
        self.while_stopped(tid, || ptrace::vectors(tid))
            .map_err(os("read the vector registers of a thread"))
    }

    fn words<const N: usize>(&self, at: u64) -> Result<[u64; N], DebugError> {
        let mut words = [0; N];
        for (w, i) in words.iter_mut().zip(0..) {
            let mut bytes = [0; 8];
            self.read(at.wrapping_add(8 * i), &mut bytes)
                .map_err(os("read where a thread is"))?;
            *w = u64::from_le_bytes(bytes);
        }
        Ok(words)
    }

    /// Reads memory of the process, all of it or nothing.
    ///
    /// # Errors
    /// When it is not there.
    pub fn read(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        match self.read_some(at, into)? {
            n if n == into.len() => Ok(()),
            _ => Err(std::io::Error::from_raw_os_error(libc::EFAULT)),
        }
    }

    /// Reads as much as there is.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn read_some(&self, at: u64, into: &mut [u8]) -> std::io::Result<usize> {
        if at > i64::MAX as u64 {
            return Err(std::io::Error::from_raw_os_error(libc::EFAULT));
        }
        self.memory.read_at(into, at)
    }
}

/// The memory of a process that is traced.
pub(crate) fn memory_of(pid: pid_t) -> std::io::Result<File> {
    let path = format!("/proc/{pid}/mem");
    File::options().read(true).write(true).open(path)
}

impl General {
    /// Of a thread that is stopped in the program.
    pub fn of(r: &user_regs_struct) -> General {
        General {
            r: [
                r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11,
                r.r12, r.r13, r.r14, r.r15,
            ],
            rip: r.rip,
            flags: r.eflags & !NOT_ITS_OWN,
            fs_base: r.fs_base,
        }
    }

    /// Makes a stopped thread have them. What only the kernel sets stays.
    pub(crate) fn put_into(&self, to: &mut user_regs_struct) {
        [
            to.rax, to.rbx, to.rcx, to.rdx, to.rsi, to.rdi, to.rbp, to.rsp, to.r8, to.r9, to.r10,
            to.r11, to.r12, to.r13, to.r14, to.r15,
        ] = self.r;
        to.rip = self.rip;
        to.eflags = self.flags & !NOT_ITS_OWN;
        to.orig_rax = u64::MAX;
    }

    /// Of a gate's frame: r15 first, down to rax, then flags, rsp, rip.
    fn of_frame(w: &[u64; 18]) -> General {
        let [r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax, flags, rsp, rip] =
            *w;
        let r = [
            rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15,
        ];
        General::saved(r, rip, flags)
    }

    /// Of the registers in a ucontext_t.
    fn of_context(w: &[u64; 18]) -> General {
        let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags] =
            *w;
        let r = [
            rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15,
        ];
        General::saved(r, rip, flags)
    }

    /// As they were saved in memory, where no segment's base is.
    fn saved(r: [u64; 16], rip: u64, flags: u64) -> General {
        General {
            r,
            rip,
            flags: flags & !NOT_ITS_OWN,
            fs_base: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_after_a_page_fault() {
        // SAFETY: plain integers.
        let mut r: user_regs_struct = unsafe { std::mem::zeroed() };
        r.eflags = 0x246;
        let place = General::of(&r);
        // As the processor stores the flags for a fault (Intel SDM 3, 18.3.1.1): it resumes at the same instruction.
        r.eflags = 0x1_0246;
        assert_eq!(General::of(&r), place);
        let mut words = [0; 18];
        words[15] = 0x1_0346;
        assert_eq!(General::of_frame(&words).flags, 0x246);
        place.put_into(&mut r);
        assert_eq!(r.eflags, 0x246);
    }
}
