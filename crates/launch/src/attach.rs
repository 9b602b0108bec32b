//! A process that is running already is stopped with all its threads, and the runtime is put into it (`reprise attach`).
//!
//! Everything that a recording from a program's first instruction on has by itself is asked for here: the threads' registers, masks, signal
//! stacks and what the kernel clears when they end, the program's handlers, the brk area ([`reprise_abi::attached`]). A call that a thread waits in is
//! made again, by way of a gate: from its beginning, since nobody knows what is left of its time. The kernel's vDSO stays where it is, with all functions
//! made system calls, since C libraries have kept their addresses; restartable sequences end.

use crate::error::{LaunchError, Result};
use crate::exec::wants_64_bits;
use crate::hand;
use crate::inject::{to_go_on, ALL_SIGNALS};
use crate::kernel_state::PR_GET_TID_ADDRESS;
use crate::pages::Pages;
use crate::proc_files::{self, Stat};
use crate::ptrace;
use crate::reach::Reach;
use crate::record::{self, Mapping, Stopped};
use crate::remote::{Calls, MAY_FAIL};
use crate::runtime::RuntimeImage;
use crate::shared::SharedSession;
use crate::tracee::{self, Tracee};
use crate::vdso;
use libc::{pid_t, user_regs_struct};
use reprise_abi::attached::{self, thread_at, MAX_VECTORS, STRIDE};
use reprise_abi::layout::*;
use reprise_abi::session::{region_flags, FLAG_ASLR, MAX_INITIAL_REGIONS};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// rseq(2).
const RSEQ_UNREGISTER: u64 = 1;
const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
/// Most steps out of the vDSO.
const MAX_STEPS: usize = 1_000_000;
/// Calls that fit into a page at a time.
const AT_A_TIME: usize = 40;
/// Calls that end with EINTR whenever their thread was stopped (signal(7)), and are made again here.
const NOT_RESTARTED: [i64; 6] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
];

fn unsupported(why: impl Into<String>) -> LaunchError {
    LaunchError::Unsupported(why.into())
}

/// A thread of the process, stopped.
struct Thread {
    tracee: Tracee,
    /// What it goes on with, as if nothing had happened.
    registers: user_regs_struct,
    mask: u64,
    vectors: Vec<u8>,
}

/// A process that is stopped with all its threads. They go on as before when this is dropped.
pub struct Attached {
    threads: Vec<Thread>,
    /// Its first thread, by which calls are made in its name.
    leader: Stopped,
    /// The runtime is in it.
    is_in: bool,
}

/// Why a process can't be attached to, where that is seen from outside.
fn obstacle(pid: pid_t) -> Option<&'static str> {
    let status = crate::proc_files::text(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| Some(status.lines().find_map(|l| l.strip_prefix(name))?.trim());
    let is = |name: &str, wanted: &str| field(name).is_none_or(|f| f == wanted);
    let state = field("State:").unwrap_or_default();
    let same_namespace = || {
        let of = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/pid")).ok();
        // What may not be looked at may not be traced either, which is said then.
        of(&pid.to_string()).is_none_or(|its| Some(its) == of("self"))
    };
    match () {
        () if !is("Tgid:", &pid.to_string()) => Some("it is a thread, not a process"),
        () if state.starts_with(['Z', 'X']) => Some("it has ended, or its first thread has"),
        () if state.starts_with('T') => {
            Some("it is stopped: let it go on first (kill -CONT), or end its debugger")
        }
        () if !is("TracerPid:", "0") => Some("another process traces it"),
        () if !is("Seccomp:", "0") => {
            Some("it has a seccomp filter, which would see the recorder's system calls")
        }
        () if !same_namespace() => Some("it is in a pid namespace of its own: attach from there"),
        () => None,
    }
}

/// Stops a process with all its threads.
///
/// # Errors
/// When it isn't there, may not be traced, or is something that can't be recorded.
pub fn stop(pid: pid_t) -> Result<Attached> {
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Err(unsupported("there is no such process"));
    }
    if let Some(why) = obstacle(pid) {
        tracing::debug!(pid, why, "can't be attached to");
        return Err(unsupported(why));
    }
    let mut threads: Vec<Thread> = Vec::new();
    let stopped = stop_all(pid, &mut threads).and_then(|()| Stopped::begin(pid, 0));
    let mut leader = stopped.inspect_err(|_| threads.iter().for_each(Thread::let_go))?;
    // Whatever happens, it is not ended.
    leader.finished = true;
    tracing::debug!(pid, threads = threads.len(), "process stopped");
    Ok(Attached {
        threads,
        leader,
        is_in: false,
    })
}

fn stop_all(pid: pid_t, threads: &mut Vec<Thread>) -> Result<()> {
    loop {
        let mut new: BTreeSet<pid_t> = BTreeSet::new();
        let tids = proc_files::threads_of(pid).map_err(|_| unsupported("it has ended"))?;
        new.extend(tids.filter(|tid| !threads.iter().any(|t| t.tracee.pid == *tid)));
        if new.is_empty() {
            break;
        }
        for tid in new {
            match Thread::stop(tid) {
                Ok(Some(thread)) => threads.push(thread),
                // It has just ended.
                Ok(None) if tid != pid => {}
                Ok(None) => return Err(unsupported("its first thread has ended")),
                Err(e) => return Err(e),
            }
        }
        if threads.len() > MAX_SLOTS {
            return Err(unsupported(format!("it has more than {MAX_SLOTS} threads")));
        }
    }
    threads.sort_by_key(|t| (t.tracee.pid != pid, t.tracee.pid));
    Ok(())
}

impl Thread {
    /// Stops a thread where it makes no call; `None` when it has just ended.
    fn stop(tid: pid_t) -> Result<Option<Thread>> {
        if let Err(e) = ptrace::seize(tid, 0) {
            return match e.raw_os_error() {
                Some(libc::ESRCH) => Ok(None),
                Some(libc::EPERM) => Err(unsupported(
                    "it may not be traced: it is another user's, or only its parents may (see /proc/sys/kernel/yama/ptrace_scope; root may always)",
                )),
                _ => Err(LaunchError::Os { what: "trace the process".into(), source: e }),
            };
        }
        let io = |source| LaunchError::Os {
            what: "stop the process".into(),
            source,
        };
        ptrace::interrupt(tid).map_err(io)?;
        // A signal that is on its way is delivered first, as if nobody looked.
        let mut status = tracee::wait(tid)?;
        while libc::WIFSTOPPED(status) && status >> 16 != libc::PTRACE_EVENT_STOP {
            tracee::resume(tid, libc::PTRACE_CONT, libc::WSTOPSIG(status))?;
            status = tracee::wait(tid)?;
        }
        if !libc::WIFSTOPPED(status) {
            return Ok(None);
        }
        let tracee = Tracee::new(tid)?;
        let thread = Thread {
            registers: again(tracee.registers()?),
            mask: ptrace::signal_mask(tid).map_err(io)?,
            vectors: ptrace::vectors(tid).map_err(io)?,
            tracee,
        };
        // Signals wait until the runtime is there.
        ptrace::set_signal_mask(tid, ALL_SIGNALS).map_err(io)?;
        Ok(Some(thread))
    }

    /// It goes on as it was.
    fn let_go(&self) {
        let _ = self.tracee.set_registers(&self.registers);
        let _ = ptrace::set_signal_mask(self.tracee.pid, self.mask);
        let _ = self.tracee.detach();
    }

    /// Lets it leave a stretch of code.
    fn step_out_of(&mut self, start: u64, end: u64) -> Result<()> {
        self.tracee.set_registers(&self.registers)?;
        for _ in 0..MAX_STEPS {
            if !(start..end).contains(&self.registers.rip) {
                return Ok(());
            }
            tracee::resume(self.tracee.pid, libc::PTRACE_SINGLESTEP, 0)?;
            let status = tracee::wait(self.tracee.pid)?;
            if !libc::WIFSTOPPED(status) {
                return Err(LaunchError::Died(status));
            }
            self.registers = again(self.tracee.registers()?);
        }
        Err(unsupported("a thread does not leave the vDSO"))
    }

    /// Its restartable sequences, where it has any: area, length, signature.
    fn sequences(&self) -> Option<[u64; 3]> {
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            area: u64,
            len: u32,
            signature: u32,
            flags: u32,
            pad: u32,
        }
        let mut c = Configuration::default();
        let len = std::mem::size_of::<Configuration>();
        // SAFETY: the kernel writes as many bytes as it is told there are.
        let r = unsafe {
            libc::ptrace(
                PTRACE_GET_RSEQ_CONFIGURATION,
                self.tracee.pid,
                len,
                &raw mut c,
            )
        };
        (r > 0 && c.area != 0).then(|| [c.area, c.len.into(), c.signature.into()])
    }
}

/// The registers with which a thread goes on that was stopped: it makes the call again that it was in.
fn again(mut r: user_regs_struct) -> user_regs_struct {
    let call = r.orig_rax as i64;
    if NOT_RESTARTED.contains(&call) && r.rax as i64 == -i64::from(libc::EINTR) {
        // As the kernel does with others (ERESTARTNOHAND).
        r.rax = -514i64 as u64;
    }
    to_go_on(r)
}

impl Attached {
    /// Its process id.
    pub fn pid(&self) -> pid_t {
        self.leader.pid
    }

    /// Its mappings, ours excluded.
    pub fn mappings(&self) -> &[Mapping] {
        &self.leader.mappings
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Its children, as it knows them.
    pub fn children(&self) -> Vec<i64> {
        let of = |t: &Thread| proc_files::children_of_thread::<i64>(self.pid(), t.tracee.pid);
        self.threads.iter().flat_map(of).collect()
    }

    /// Puts the runtime and the session into it, and fills the session's head.
    ///
    /// # Errors
    /// When it has no room for them, or memory that can't be replayed. It goes on as before then.
    pub fn put_in(&mut self, shared: &mut SharedSession, image: &RuntimeImage) -> Result<()> {
        wants_64_bits(&self.threads[0].registers)?;
        let (mappings, kernels) = self.look_at_mappings()?;
        if self.threads.iter().any(|t| t.registers.gs_base != 0) {
            return Err(unsupported(
                "it uses the gs register, which the recorder needs",
            ));
        }
        if self.threads.iter().any(|t| t.vectors.len() > MAX_VECTORS) {
            return Err(unsupported("its vector registers are too large"));
        }
        let vdso = kernels.iter().find(|m| m.name == Path::new("[vdso]"));
        if let Some(m) = vdso {
            for t in &mut self.threads {
                t.step_out_of(m.start, m.end)?;
            }
        }
        self.leader.look_anew(self.threads[0].registers)?;
        self.map_ours(shared, image)?;
        let put = self.put_rest_in(shared, mappings, &kernels);
        self.leader.page.restore(&self.leader.tracee)?;
        put
    }

    /// Behind the calls that map what is ours.
    fn put_rest_in(
        &mut self,
        shared: &mut SharedSession,
        mut mappings: Vec<Mapping>,
        kernels: &[Mapping],
    ) -> Result<()> {
        self.ask_for_handlers()?;
        for i in 0..self.threads.len() {
            self.ask_for_thread(i)?;
        }
        let brk_now = self.leader.remote(libc::SYS_brk, [0; 6])?;
        mappings.extend(self.redirect_vdso(kernels)?);
        mappings.sort_by_key(|m| m.start);
        self.leader.mappings = mappings;
        self.fill_head(shared, brk_now as u64);
        Ok(())
    }

    /// Its mappings as a trace has them, and those of the kernel's own.
    fn look_at_mappings(&self) -> Result<(Vec<Mapping>, Vec<Mapping>)> {
        let mut mappings = record::mappings_of(self.pid())?;
        let ours = RESERVATION..RESERVATION_END;
        if mappings.iter().any(|m| ours.contains(&m.start)) {
            return Err(unsupported(
                "it is being recorded, or was before: that can be done once in the life of a process",
            ));
        }
        mappings.retain(|m| m.start < USER_END);
        let (kernels, mut own): (Vec<_>, Vec<_>) = mappings
            .into_iter()
            .partition(|m| m.name.to_string_lossy().starts_with("[v"));
        for m in &mut own {
            let name = m.name.to_string_lossy().into_owned();
            if is_device(&name) {
                return Err(unsupported(format!(
                    "it has {name} in its memory, which can't be replayed"
                )));
            }
            if m.flags & region_flags::SHARED == 0 {
                continue;
            }
            m.flags &= match m.prot & libc::PROT_WRITE as u32 {
                // Nobody but others changes it, and they hardly do.
                0 => !region_flags::SHARED,
                _ => !region_flags::FILE,
            };
        }
        let own = with_guards(self.pid(), own)?;
        if own.len() + 1 > MAX_INITIAL_REGIONS {
            return Err(unsupported(format!(
                "it has more than {MAX_INITIAL_REGIONS} mappings"
            )));
        }
        Ok((own, kernels))
    }

    /// Maps the runtime, the session, a block for each thread and the table of threads.
    fn map_ours(&mut self, shared: &SharedSession, image: &RuntimeImage) -> Result<()> {
        let ours = [image.fd(), shared.fd()];
        // By path where that works: processes of another user, and those without /proc, are handed them.
        if !self.map_image(shared, image, Reach::Opens(ours))? {
            let fds = hand::over(&self.leader, [image.as_fd(), shared.as_fd()])?;
            self.map_image(shared, image, Reach::Has(fds))?;
        }
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        let rw = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let map = |at: u64, len: u64| [at, len, rw, flags as u64, u64::MAX, 0];
        let table = map(
            attached::BASE,
            thread_at(self.threads.len() as u32) - attached::BASE,
        );
        let blocks = (1..self.threads.len() as u64)
            .map(|i| map(BLOCKS_BASE + i * BLOCK_STRIDE, BLOCK_STRIDE));
        let all: Vec<_> = std::iter::once(table).chain(blocks).collect();
        self.make_all(libc::SYS_mmap, &all)
    }

    /// Maps the runtime, the session and the first block; false when the process can't reach them in this way.
    fn map_image(
        &mut self,
        shared: &SharedSession,
        image: &RuntimeImage,
        reach: Reach,
    ) -> Result<bool> {
        let leader = &self.leader;
        let mut calls = Calls::new(&leader.page);
        let opened = reach.open(&mut calls);
        leader.map_ours(&mut calls, shared, image, reach);
        reach.close(&mut calls);
        let made = calls.make(&leader.tracee, &leader.entry)?;
        let Some((n, error)) = made.failed else {
            self.is_in = true;
            return Ok(true);
        };
        for fd in &made.kept[..n.min(opened)] {
            leader.remote(libc::SYS_close, [*fd as u64, 0, 0, 0, 0, 0])?;
        }
        // Some of it may be there.
        self.is_in = n >= opened;
        let why = std::io::Error::from_raw_os_error(-error as i32);
        match n < opened {
            true => Ok(false),
            false => Err(unsupported(format!(
                "no room for the runtime in this program ({why})"
            ))),
        }
    }

    /// Makes one call with all these arguments, by the first thread.
    fn make_all(&self, nr: i64, all: &[[u64; 6]]) -> Result<()> {
        for some in all.chunks(AT_A_TIME) {
            let mut calls = Calls::new(&self.leader.page);
            some.iter().for_each(|args| calls.add(nr, *args, 0));
            let made = calls.make(&self.leader.tracee, &self.leader.entry)?;
            if let Some((_, error)) = made.failed {
                return Err(LaunchError::Os {
                    what: format!("make system call {nr} in the program's name"),
                    source: std::io::Error::from_raw_os_error(-error as i32),
                });
            }
        }
        Ok(())
    }

    fn ask_for_handlers(&self) -> Result<()> {
        let all: Vec<_> = (1..=64u64)
            .map(|signal| [signal, 0, attached::BASE + (signal - 1) * 32, 8, 0, 0])
            .collect();
        self.make_all(libc::SYS_rt_sigaction, &all)
    }

    /// Fills a thread's place in the table, and takes from the kernel what must not be there.
    fn ask_for_thread(&self, i: usize) -> Result<()> {
        let t = &self.threads[i];
        let at = thread_at(i as u32);
        let field = |offset: usize| at + offset as u64;
        let mut calls = Calls::new(&self.leader.page);
        let clears = field(offset_of!(attached::Thread, clears));
        calls.add(libc::SYS_prctl, [PR_GET_TID_ADDRESS, clears, 0, 0, 0, 0], 0);
        let stack = field(offset_of!(attached::Thread, signal_stack));
        calls.add(libc::SYS_sigaltstack, [0, stack, 0, 0, 0, 0], 0);
        let list = field(offset_of!(attached::Thread, robust_list));
        // The length is written where the vector registers will be.
        let nowhere = field(offset_of!(attached::Thread, vectors));
        calls.add(libc::SYS_get_robust_list, [0, list, nowhere, 0, 0, 0], 0);
        if let Some([area, len, signature]) = t.sequences() {
            let args = [area, len, RSEQ_UNREGISTER, signature, 0, 0];
            calls.add(libc::SYS_rseq, args, MAY_FAIL);
        }
        let made = calls.make(&t.tracee, &t.registers)?;
        if let Some((n, error)) = made.failed {
            return Err(LaunchError::Os {
                what: format!("ask the kernel what it knows of a thread (question {n})"),
                source: std::io::Error::from_raw_os_error(-error as i32),
            });
        }
        let r = &t.registers;
        let frame: [u64; attached::FRAME] = [
            r.r15, r.r14, r.r13, r.r12, r.r11, r.r10, r.r9, r.r8, r.rdi, r.rsi, r.rbp, r.rbx,
            r.rdx, r.rcx, r.rax, r.eflags, r.rsp, r.rip,
        ];
        let words = |words: &[u64]| {
            words
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect::<Vec<_>>()
        };
        let write = |offset: usize, bytes: &[u8]| t.tracee.write(field(offset), bytes);
        write(offset_of!(attached::Thread, frame), &words(&frame))?;
        write(
            offset_of!(attached::Thread, fs_base),
            &words(&[r.fs_base, t.mask]),
        )?;
        let affinity = record::affinity_of(t.tracee.pid);
        write(offset_of!(attached::Thread, affinity), &words(&affinity))?;
        let tid = (t.tracee.pid as u32).to_le_bytes();
        write(offset_of!(attached::Thread, tid), &tid)?;
        write(offset_of!(attached::Thread, vectors), &t.vectors)
    }

    /// Makes all functions of the kernel's vDSO system calls, and takes its data away; its mapping, as the program has it from now on.
    fn redirect_vdso(&self, kernels: &[Mapping]) -> Result<Option<Mapping>> {
        let leader = &self.leader;
        let Some(vdso) = kernels.iter().find(|m| m.name == Path::new("[vdso]")) else {
            return Ok(None);
        };
        let mut image = vec![0; (vdso.end - vdso.start) as usize];
        leader.read(vdso.start, &mut image)?;
        vdso::redirect(&mut image).map_err(unsupported)?;
        let unmapped = kernels
            .iter()
            .map(|m| [m.start, m.end - m.start, 0, 0, 0, 0]);
        self.make_all(libc::SYS_munmap, &unmapped.collect::<Vec<_>>())?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        let len = vdso.end - vdso.start;
        let args = [vdso.start, len, prot as u64, flags as u64, u64::MAX, 0];
        self.make_all(libc::SYS_mmap, &[args])?;
        leader.tracee.write(vdso.start, &image)?;
        Ok(Some(Mapping {
            prot: prot as u32,
            flags: region_flags::VDSO,
            offset: 0,
            ..vdso.clone()
        }))
    }

    fn fill_head(&self, shared: &mut SharedSession, brk_now: u64) {
        let pid = self.pid();
        let first = &self.threads[0];
        let affinity = record::affinity_of(pid);
        let s = shared.session_mut();
        self.leader.tell_mappings(s);
        s.entry = first.registers.rip;
        // Where its arguments and the auxiliary vector are.
        s.initial_sp = stat_field(pid, START_STACK).unwrap_or(first.registers.rsp);
        s.brk_start = stat_field(pid, START_BRK).unwrap_or(brk_now);
        s.brk_now = brk_now;
        s.stack_limit = record::stack_limit(pid);
        s.initial_mask.store(first.mask, Relaxed);
        s.initial_ignored.store(0, Relaxed);
        s.attached = self.threads.len() as u32;
        s.program_pid.store(pid as u32, Relaxed);
        s.flags |= FLAG_ASLR;
        s.affinity = affinity;
        s.affinity_len = record::affinity_len();
        s.cpu = record::choose_cpu(&affinity) as u64;
    }

    /// Lets it go, with the runtime as what its threads run next, on this one processor.
    ///
    /// # Errors
    /// [`LaunchError::Died`] when it was killed meanwhile.
    pub fn go(mut self, image: &RuntimeImage, cpu: usize) -> Result<()> {
        let threads = std::mem::take(&mut self.threads);
        for (i, t) in threads.iter().enumerate().rev() {
            let block = BLOCKS_BASE + i as u64 * BLOCK_STRIDE;
            let mut r = t.registers;
            r.rip = match i {
                0 => image.start,
                _ => image.start_attached,
            };
            r.rdi = block;
            r.rsp = block + BLOCK_STRIDE;
            r.orig_rax = u64::MAX;
            record::pin_to(t.tracee.pid, cpu);
            t.tracee.set_registers(&r)?;
        }
        threads.iter().rev().try_for_each(|t| t.tracee.detach())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        let _ = self.leader.page.restore(&self.leader.tracee);
        if self.is_in {
            let all = [RESERVATION, RESERVATION_END - RESERVATION, 0, 0, 0, 0];
            let _ = self.make_all(libc::SYS_munmap, &[all]);
            let _ = self.leader.page.restore(&self.leader.tracee);
        }
        self.threads.iter().for_each(Thread::let_go);
    }
}

/// Does what is mapped under this name change by itself?
/// The mappings, guard pages as mappings of their own.
fn with_guards(pid: pid_t, mappings: Vec<Mapping>) -> Result<Vec<Mapping>> {
    let pages = Pages::of(pid).map_err(|source| LaunchError::Os {
        what: "open /proc/PID/pagemap".into(),
        source,
    })?;
    let in_parts = |m: Mapping| {
        let parts = pages.parts(m.start..m.end).into_iter();
        parts.map(move |(part, guarded)| Mapping {
            start: part.start,
            end: part.end,
            flags: m.flags | if guarded { region_flags::GUARDED } else { 0 },
            offset: m.offset
                + if m.inode != 0 {
                    part.start - m.start
                } else {
                    0
                },
            ..m.clone()
        })
    };
    Ok(mappings.into_iter().flat_map(in_parts).collect())
}

fn is_device(name: &str) -> bool {
    let device = name.starts_with("/dev/")
        && !["/dev/zero", "/dev/shm/"]
            .iter()
            .any(|n| name.starts_with(n));
    device || name.starts_with("anon_inode:") || name.starts_with("/[aio]")
}

/// Fields of /proc/PID/stat (proc_pid_stat(5)): the first stack pointer, and where the brk area begins.
const START_STACK: usize = 28;
const START_BRK: usize = 47;

/// A field of /proc/PID/stat; `None` when the kernel doesn't say it.
fn stat_field(pid: pid_t, field: usize) -> Option<u64> {
    let at = Stat::of_process(pid).ok()?.field(field)?;
    (at != 0).then_some(at)
}

const _: () = assert!(STRIDE % PAGE == 0);
