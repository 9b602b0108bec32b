//! Starting a program for recording: fork, ptrace, exec, stop, inject, detach (FACTS, "Injection at exec").

use crate::auxv;
use crate::cpu::Processor;
use crate::dispositions;
use crate::error::{os, os_as, LaunchError, Result};
use crate::limits;
use crate::maps::{self, Maps};
use crate::ptrace;
use crate::reach::Reach;
use crate::remote::{Calls, Page, MAY_FAIL, TO_FIRST, TO_THIRD};
use crate::runtime::RuntimeImage;
use crate::shared::{SharedSession, ORDER_MEMORY, ORDER_OFFSET, RING_OFFSET};
use crate::tracee::{self, Tracee};
use crate::vdso;
use libc::pid_t;
use reprise_abi::conflicts::{CONFLICTS_BASE, CONFLICTS_LEN};
use reprise_abi::layout::*;
use reprise_abi::memo::{MEMO_BASE, MEMO_LEN};
use reprise_abi::order::{ORDER_BASE, ORDER_TOTAL};
use reprise_abi::session::{
    region_flags, InitialRegion, Session, FLAG_ASLR, FLAG_CPUID_FAULTING, MAX_INITIAL_REGIONS,
    SESSION_TOTAL,
};
use reprise_console::{was_closed, was_sigpipe_ignored};
use rustix::fs::Access;
use rustix::io::FdFlags;
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{kill_process, Pid, Signal};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// What to start.
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Pin the program to one processor (what `serial` wants).
    pub pin: bool,
}

/// A mapping of the program at its exec.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// PROT_ bits.
    pub prot: u32,
    /// See [`region_flags`].
    pub flags: u32,
    /// Offset in the file.
    pub offset: u64,
    /// The file's path, or a name like `[stack]`, or empty.
    pub name: PathBuf,
    /// Inode, 0 without a file.
    pub inode: u64,
}

/// A program stopped before its first instruction.
pub struct Stopped {
    pub(crate) tracee: Tracee,
    slot: usize,
    /// Its process id.
    pub pid: pid_t,
    /// Its mappings, ours and the kernel's own excluded.
    pub mappings: Vec<Mapping>,
    pub(crate) entry: libc::user_regs_struct,
    pub(crate) page: Page,
    pub(crate) finished: bool,
}

fn c_string(s: &OsStr) -> Result<CString> {
    CString::new(s.as_bytes())
        .map_err(|_| LaunchError::Unsupported(format!("{s:?}: a NUL byte in an argument")))
}

/// Finds the program the way execvp(3) does, so that a missing one is told before anything is started.
///
/// # Errors
/// [`LaunchError::NotFound`], or [`LaunchError::CannotRun`] for what is there but no program of ours.
pub fn find_program(name: &OsStr) -> Result<PathBuf> {
    let shown = name.to_string_lossy().into_owned();
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&path).map(|d| d.join(name)).collect()
    };
    let mut refused = None;
    for c in candidates {
        let Ok(meta) = std::fs::metadata(&c) else {
            continue;
        };
        if meta.is_dir() {
            refused = Some("it is a directory".to_string());
            continue;
        }
        if rustix::fs::access(&c, Access::EXEC_OK).is_err() {
            refused = Some("permission denied (is it executable?)".to_string());
            continue;
        }
        check_format(&c, &shown)?;
        return Ok(c);
    }
    match refused {
        Some(why) => Err(LaunchError::CannotRun {
            program: shown,
            why,
        }),
        None => Err(LaunchError::NotFound { program: shown }),
    }
}

/// Refuses what can run but can't be recorded.
fn check_format(path: &std::path::Path, shown: &str) -> Result<()> {
    use std::io::Read;
    let cannot = |why: &str| {
        Err(LaunchError::CannotRun {
            program: shown.to_string(),
            why: why.to_string(),
        })
    };
    let Ok(mut f) = std::fs::File::open(path) else {
        return Ok(());
    };
    let mut head = Vec::new();
    if f.by_ref().take(20).read_to_end(&mut head).is_err() {
        return Ok(());
    }
    if head.starts_with(b"#!") {
        return Ok(());
    }
    if !head.starts_with(b"\x7fELF") || head.len() < 20 {
        return cannot("it is neither an ELF program nor a script with #!");
    }
    match (head[4], u16::from_le_bytes([head[18], head[19]])) {
        (2, 62) => Ok(()),
        (1, 3) => cannot("it is a 32-bit program; only x86-64 programs can be recorded"),
        (_, machine) => cannot(&format!("it is for another architecture (ELF machine {machine}); only x86-64 programs can be recorded")),
    }
}

/// Signals that the program will find ignored, and blocked.
fn inherited_signals() -> (u64, u64) {
    let (mut ignored, mut blocked) = (0u64, 0u64);
    for s in (1..=64).filter(|s| dispositions::is_ignored(*s)) {
        ignored |= 1 << (s - 1);
    }
    // SAFETY: reads the mask of this thread.
    unsafe {
        let mut m: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut m);
        for s in 1..=64 {
            if libc::sigismember(&m, s) == 1 {
                blocked |= 1 << (s - 1);
            }
        }
    }
    // The standard library of this launcher ignores SIGPIPE; the child undoes that.
    let pipe = 1u64 << (libc::SIGPIPE - 1);
    let size = 1u64 << (libc::SIGXFSZ - 1);
    ignored &= !(pipe | size);
    if limits::ignores_size() {
        ignored |= size;
    }
    if was_sigpipe_ignored() {
        ignored |= pipe;
    }
    (ignored, blocked)
}

pub(crate) fn pin_to(pid: pid_t, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(Pid::from_raw(pid), &set);
}

/// The processors that a thread may use; 0: this one.
pub(crate) fn affinity_of(tid: pid_t) -> [u64; 16] {
    let mut mask = [0u64; 16];
    if let Ok(set) = sched_getaffinity(Pid::from_raw(tid)) {
        let its = (0..CpuSet::MAX_CPU).filter(|i| set.is_set(*i));
        its.for_each(|i| mask[i / 64] |= 1 << (i % 64));
    }
    mask
}

/// Bytes of the kernel's mask of processors, as [`reprise_abi::session::Session::affinity_len`] has them (sched_getaffinity(2)).
pub(crate) fn affinity_len() -> [u16; 2] {
    let mut mask = [0u64; 16];
    let asked = |len: usize, mask: &mut [u64; 16]| {
        // SAFETY: the buffer is ours, and at least as long; the raw call because its result is the kernel's mask size.
        let r = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, len, mask.as_mut_ptr()) };
        u16::try_from(r).ok()
    };
    let least = (1..=mask.len()).find_map(|words| asked(8 * words, &mut mask).map(|_| 8 * words));
    let most = asked(std::mem::size_of_val(&mask), &mut mask);
    [least.unwrap_or(0) as u16, most.unwrap_or(0)]
}

/// Those that are in a mask.
fn processors_of(mask: &[u64; 16]) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::MAX_CPU).filter(|i| mask[i / 64] & 1 << (i % 64) != 0)
}

/// Picks the processor for a pinned program: one that we may use, spread over recordings.
pub(crate) fn choose_cpu(mask: &[u64; 16]) -> usize {
    let all: Vec<usize> = processors_of(mask).collect();
    if all.is_empty() {
        return 0;
    }
    all[std::process::id() as usize % all.len()]
}

/// Strings as execve(2) wants them.
struct Strings {
    pointers: Vec<*const libc::c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    fn of(owned: Vec<CString>) -> Strings {
        let end = std::ptr::null();
        Strings {
            pointers: owned.iter().map(|s| s.as_ptr()).chain([end]).collect(),
            _owned: owned,
        }
    }
}

/// What execve(2) is given. It is made before the fork: a child may not allocate.
struct Exec {
    path: CString,
    argv: Strings,
    env: Strings,
}

impl Exec {
    /// Of a command, in this environment.
    fn of(
        command: &Command,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Exec> {
        let program = find_program(&command.argv[0])?;
        let argv = command.argv.iter().map(|a| c_string(a));
        let env = environment.map(|(name, value)| {
            let mut both = name;
            both.push("=");
            both.push(value);
            CString::new(both.into_vec())
                .map_err(|_| LaunchError::Unsupported("a NUL byte in the environment".into()))
        });
        Ok(Exec {
            path: c_string(program.as_os_str())?,
            argv: Strings::of(argv.collect::<Result<_>>()?),
            env: Strings::of(env.collect::<Result<_>>()?),
        })
    }
}

/// What a child says of itself before its exec, and once more if that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    /// Its addresses are not chosen at random.
    no_random: bool,
    /// What went wrong: an errno, negative before the child was traced; or 0.
    error: i32,
}

impl Word {
    /// Bytes of one.
    const LEN: usize = 8;

    /// Says it. Safe after a fork.
    fn say(self, to: &OwnedFd) {
        let mut message = [0; Word::LEN];
        message[..4].copy_from_slice(&i32::from(self.no_random).to_ne_bytes());
        message[4..].copy_from_slice(&self.error.to_ne_bytes());
        // Nobody is left to be told when it fails.
        let _ = rustix::io::write(to, &message);
    }

    /// The next one; `None` when the child has said all, or is gone.
    fn hear(from: &OwnedFd) -> Option<Word> {
        let mut message = [0; Word::LEN];
        let n = rustix::io::read(from, &mut message).ok()?;
        let number = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|i| message[at + i]));
        (n == Word::LEN).then(|| Word {
            no_random: number(0) != 0,
            error: number(4),
        })
    }
}

/// Starts the program and stops it at its exec, with nothing of it run yet.
///
/// # Errors
/// When it can't be found or run, or ptrace is refused.
pub fn start(
    command: &Command,
    shared: &mut SharedSession,
    image: &RuntimeImage,
) -> Result<Stopped> {
    let exec = Exec::of(command, std::env::vars_os())?;
    let (ignored, blocked) = inherited_signals();
    {
        let s = shared.session_mut();
        s.initial_ignored.store(ignored, Relaxed);
        s.initial_mask.store(blocked, Relaxed);
    }
    let mask = affinity_of(0);
    let cpu = choose_cpu(&mask);
    let pin = command.pin.then_some(cpu);
    let (hears, says) = pipe()?;
    let ours = [image.as_fd(), shared.as_fd()];
    // SAFETY: the launcher has one thread; the child only makes calls that are safe after fork.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(os("fork"));
    }
    if pid == 0 {
        // SAFETY: the child of a process with one thread.
        unsafe { become_program(&exec, pin, ours, &says) }
    }
    tracing::debug!(pid, pin = command.pin, cpu, "program forked");
    drop(says);
    let came = come_to_exec(pid, &command.argv[0], pin, &hears);
    let result = came.and_then(|no_random| {
        let mut stopped = Stopped::begin(pid, 0)?;
        tracing::debug!(pid, no_random, "stopped at its exec");
        crate::identity::note_loss(pid, shared);
        {
            let s = shared.session_mut();
            if !no_random {
                s.flags |= FLAG_ASLR;
            }
            s.affinity = mask;
            s.affinity_len = affinity_len();
            s.cpu = cpu as u64;
        }
        let ours = [image.fd(), shared.fd()];
        stopped.put_in(shared, image, Reach::Has(ours))?;
        Ok(stopped)
    });
    if let (true, Some(child)) = (result.is_err(), Pid::from_raw(pid)) {
        // Our own child, still unreaped.
        let _ = kill_process(child, Signal::KILL);
        let _ = ptrace::wait_no_longer(pid);
    }
    run_anywhere(&mask);
    result
}

/// In the child: becomes the program, as if whoever started the launcher had started it; traced by the launcher, and with the two descriptors by which the
/// runtime comes in.
///
/// # Safety
/// To be called in a forked child: it makes system calls only.
unsafe fn become_program(
    exec: &Exec,
    pin: Option<usize>,
    ours: [BorrowedFd; 2],
    says: &OwnedFd,
) -> ! {
    // SAFETY: plain calls on what was made before the fork; ends in exec or _exit.
    unsafe {
        if let Some(cpu) = pin {
            pin_to(0, cpu);
        }
        let persona = libc::personality(0xffff_ffff);
        let fixed = persona as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
        let no_random = persona >= 0 && libc::personality(fixed) >= 0;
        for fd in ours {
            let _ = rustix::io::fcntl_setfd(fd, FdFlags::empty());
        }
        if !was_sigpipe_ignored() {
            dispositions::restore_default(libc::SIGPIPE);
        }
        for stream in (0..3).filter(|stream| was_closed(*stream)) {
            libc::close(stream);
        }
        limits::give_back();
        let say = |error: i32| Word { no_random, error }.say(says);
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            say(-*libc::__errno_location());
            libc::_exit(125);
        }
        say(0);
        libc::raise(libc::SIGSTOP);
        let (argv, env) = (&exec.argv.pointers, &exec.env.pointers);
        libc::execve(exec.path.as_ptr(), argv.as_ptr(), env.as_ptr());
        say(*libc::__errno_location());
        libc::_exit(126);
    }
}

/// Lets the child come to the event of its exec. Are its addresses not chosen at random?
fn come_to_exec(pid: pid_t, program: &OsStr, pin: Option<usize>, hears: &OwnedFd) -> Result<bool> {
    let first = Word::hear(hears).ok_or(LaunchError::Died(0))?;
    if first.error != 0 {
        let e = std::io::Error::from_raw_os_error(-first.error);
        return Err(LaunchError::Unsupported(format!(
            "ptrace is refused ({e}): reprise needs it for a moment at exec; run `reprise doctor`"
        )));
    }
    let status = tracee::wait(pid)?;
    if !libc::WIFSTOPPED(status) {
        return Err(LaunchError::Died(status));
    }
    // Tracer and program on one processor: a stop costs twenty times less there.
    if let Some(cpu) = pin {
        pin_to(0, cpu);
    }
    tracee::set_options(
        pid,
        libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL,
    )?;
    tracee::resume(pid, libc::PTRACE_CONT, 0)?;
    let status = tracee::wait(pid)?;
    if status >> 8 != (libc::SIGTRAP | (libc::PTRACE_EVENT_EXEC << 8)) {
        let error = Word::hear(hears).map_or(0, |word| word.error);
        return Err(exec_failed(program, error));
    }
    Ok(first.no_random)
}

/// Why a program that is there could not be run.
fn exec_failed(program: &OsStr, errno: i32) -> LaunchError {
    LaunchError::CannotRun {
        program: program.to_string_lossy().into_owned(),
        why: match errno {
            libc::ENOENT => "its interpreter is missing".into(),
            _ => std::io::Error::from_raw_os_error(errno).to_string(),
        },
    }
}

/// A pipe that no exec keeps: the end that reads, and the one that writes.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(os_as("make a pipe"))
}

/// The launcher itself runs on all processors that it had.
fn run_anywhere(mask: &[u64; 16]) {
    let mut set = CpuSet::new();
    processors_of(mask).for_each(|i| set.set(i));
    let _ = sched_setaffinity(None, &set);
}

impl Stopped {
    /// A process at the event of its exec: its registers are the program's first ones.
    pub(crate) fn begin(pid: pid_t, slot: usize) -> Result<Stopped> {
        let tracee = Tracee::new(pid)?;
        let entry = tracee.registers()?;
        let page = Page::around(&tracee, entry.rip)?;
        Ok(Stopped {
            tracee,
            slot,
            pid,
            mappings: vec![],
            entry,
            page,
            finished: false,
        })
    }

    /// Makes one call in its name.
    pub(crate) fn remote(&self, nr: i64, args: [u64; 6]) -> Result<i64> {
        let mut calls = Calls::new(&self.page);
        calls.add(nr, args, TO_FIRST | MAY_FAIL);
        Ok(calls.make(&self.tracee, &self.entry)?.kept[0])
    }

    /// Maps the runtime, the session and the first thread's block into the program. `None`: it can't reach them in this way.
    ///
    /// # Errors
    /// When they have no room, or the program died.
    pub(crate) fn put_in(
        &mut self,
        shared: &mut SharedSession,
        image: &RuntimeImage,
        reach: Reach,
    ) -> Result<Option<()>> {
        let maps = mappings_of(self.pid)?;
        let mut calls = Calls::new(&self.page);
        let opened = reach.open(&mut calls);
        self.map_ours(&mut calls, shared, image, reach);
        let (mut mappings, mut vdso) = (Vec::new(), None);
        for m in maps {
            if (RESERVATION..RESERVATION_END).contains(&m.start) || m.start >= USER_END {
                continue;
            }
            let name = m.name.to_string_lossy();
            if name.starts_with("[v") {
                // The vDSO and its data: reading the clock there would escape the gates.
                let all = [m.start, m.end - m.start, 0, 0, 0, 0];
                calls.add(libc::SYS_munmap, all, 0);
                if name == "[vdso]" {
                    vdso = Some(m.start);
                    mappings.push(put_vdso(&mut calls, m, image, reach));
                }
                continue;
            }
            mappings.push(m);
        }
        reach.close(&mut calls);
        auxv::hide(&self.tracee, &self.entry, vdso, &mut calls)?;
        calls.add(libc::SYS_brk, [0; 6], TO_THIRD);
        let made = calls.make(&self.tracee, &self.entry)?;
        tracing::debug!(pid = self.pid, mappings = mappings.len(), failed = ?made.failed, "runtime mapped");
        match made.failed {
            None => {}
            Some((n, _)) if n < opened => {
                for fd in &made.kept[..n] {
                    self.remote(libc::SYS_close, [*fd as u64, 0, 0, 0, 0, 0])?;
                }
                return Ok(None);
            }
            Some((_, error)) => {
                let why = std::io::Error::from_raw_os_error(-error as i32);
                return Err(LaunchError::Unsupported(format!(
                    "no room for the runtime in this program ({why})"
                )));
            }
        }
        self.mappings = mappings;
        self.page.restore(&self.tracee)?;
        let s = shared.session_mut();
        if self.mappings.len() > MAX_INITIAL_REGIONS {
            return Err(LaunchError::Unsupported(format!(
                "more than {MAX_INITIAL_REGIONS} mappings at exec"
            )));
        }
        self.tell_mappings(s);
        s.entry = self.entry.rip;
        s.initial_sp = self.entry.rsp;
        s.brk_start = made.kept[2] as u64;
        s.stack_limit = stack_limit(self.pid);
        // A program that begins.
        (s.attached, s.brk_now) = (0, 0);
        Ok(Some(()))
    }

    /// Tells the runtime of the program's mappings.
    pub(crate) fn tell_mappings(&self, s: &mut Session) {
        for (to, m) in s.initial_regions.iter_mut().zip(&self.mappings) {
            *to = InitialRegion {
                start: m.start,
                end: m.end,
                prot: m.prot,
                flags: m.flags,
                offset: m.offset,
                content: [0; 2],
            };
        }
        s.initial_regions_len = self.mappings.len() as u32;
    }

    /// Calls are made from the page of these registers' instruction from now on.
    pub(crate) fn look_anew(&mut self, registers: libc::user_regs_struct) -> Result<()> {
        self.entry = registers;
        self.page = Page::around(&self.tracee, registers.rip)?;
        Ok(())
    }

    /// The calls that map what is ours.
    pub(crate) fn map_ours(
        &self,
        calls: &mut Calls,
        shared: &SharedSession,
        image: &RuntimeImage,
        reach: Reach,
    ) {
        let fixed = libc::MAP_FIXED_NOREPLACE;
        let mut map = |at: u64, len: u64, prot: i32, flags: i32, fd: (u64, u64), offset: u64| {
            let flags = (flags | fixed) as u64;
            calls.add(
                libc::SYS_mmap,
                [at, len, prot as u64, flags, fd.0, offset],
                fd.1,
            );
        };
        let (private, shared_one) = (libc::MAP_PRIVATE, libc::MAP_SHARED);
        for s in &image.segments {
            let at = IMAGE_BASE + s.offset;
            map(at, s.len, s.prot, private, reach.image(), s.offset);
        }
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let session = reach.session();
        let len = SESSION_TOTAL.next_multiple_of(4096) as u64;
        map(SESSION_BASE, len, rw, shared_one, session, 0);
        for at in [RING_BASE, RING_BASE + RING_SIZE] {
            map(at, RING_SIZE, rw, shared_one, session, RING_OFFSET);
        }
        if shared.conflicts().is_some() {
            let (at, len) = (CONFLICTS_BASE, CONFLICTS_LEN);
            map(at, len, rw, shared_one, session, ORDER_OFFSET);
        }
        if shared.order().is_some() {
            let flags = shared_one | libc::MAP_NORESERVE;
            map(ORDER_BASE, ORDER_MEMORY, rw, flags, session, ORDER_OFFSET);
        } else if shared.memo().is_some() {
            let offset = ORDER_OFFSET + ORDER_TOTAL;
            map(MEMO_BASE, MEMO_LEN, rw, shared_one, session, offset);
        }
        let anonymous = private | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        map(self.block(), BLOCK_STRIDE, rw, anonymous, (u64::MAX, 0), 0);
    }

    /// Where its first thread's block is.
    fn block(&self) -> u64 {
        BLOCKS_BASE + self.slot as u64 * BLOCK_STRIDE
    }

    /// Its first stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.entry.rsp
    }

    /// Reads the program's memory.
    ///
    /// # Errors
    /// Where nothing is mapped.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.tracee.read(at, into)
    }

    /// Lets the program go, with the runtime as its first code. Everything in the session must be set by now.
    ///
    /// # Errors
    /// [`LaunchError::Died`] when it was killed meanwhile.
    pub fn go(mut self, image: &RuntimeImage) -> Result<pid_t> {
        let mut r = self.entry;
        r.rip = image.start;
        r.rdi = self.block();
        r.rsp = self.block() + BLOCK_STRIDE;
        r.orig_rax = u64::MAX;
        let gone = self.tracee.set_registers(&r);
        if let Err(e) = gone.and_then(|()| self.tracee.detach()) {
            let killed = tracee::is_dying(self.pid);
            return Err(if killed { LaunchError::Died(0) } else { e });
        }
        self.finished = true;
        tracing::debug!(pid = self.pid, slot = self.slot, "let go");
        Ok(self.pid)
    }
}

/// Puts our vDSO where the kernel's was.
fn put_vdso(calls: &mut Calls, was: Mapping, image: &RuntimeImage, reach: Reach) -> Mapping {
    let len = vdso::LEN as u64;
    let prot = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
    let (fd, how) = reach.image();
    let args = [was.start, len, prot as u64, flags as u64, fd, image.vdso];
    calls.add(libc::SYS_mmap, args, how);
    Mapping {
        end: was.start + len,
        prot: prot as u32,
        flags: region_flags::VDSO,
        ..was
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if !self.finished {
            tracee::end(self.pid);
        }
    }
}

/// The soft limit of the program's stack in bytes; no limit counts as 1 GiB.
pub(crate) fn stack_limit(pid: pid_t) -> u64 {
    // SAFETY: fills a struct of ours.
    unsafe {
        let mut l: libc::rlimit = std::mem::zeroed();
        l.rlim_cur = 8 << 20;
        libc::prlimit(pid, libc::RLIMIT_STACK, std::ptr::null(), &mut l);
        l.rlim_cur.min(1 << 30)
    }
}

/// A process's mappings, in order.
pub(crate) fn mappings_of(pid: pid_t) -> Result<Vec<Mapping>> {
    let maps = Maps::of(pid).map_err(|source| LaunchError::Os {
        what: "read the program's maps".into(),
        source,
    })?;
    Ok(maps.lines().map(mapping).collect())
}

fn mapping(line: maps::Line) -> Mapping {
    let flags = [
        (line.is_shared(), region_flags::SHARED),
        (line.inode != 0, region_flags::FILE),
        (line.name == "[stack]", region_flags::STACK),
    ];
    let flags = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag);
    Mapping {
        start: line.range.start,
        end: line.range.end,
        prot: line.prot(),
        flags: flags.sum(),
        offset: line.offset,
        name: PathBuf::from(line.name),
        inode: line.inode,
    }
}

/// Fills the session with what the processor offers.
pub fn set_processor(shared: &mut SharedSession, p: &Processor, cpuid_faulting: bool) {
    let s = shared.session_mut();
    for (to, l) in s.cpuid.iter_mut().zip(&p.leaves) {
        *to = *l;
    }
    s.cpuid_len = p.leaves.len().min(s.cpuid.len()) as u32;
    s.xsave_mask = p.xsave_mask;
    s.xsave_size = p.xsave_size;
    if cpuid_faulting {
        s.flags |= FLAG_CPUID_FAULTING;
    }
}

/// Can this processor let cpuid trap? Asked of the kernel, in this thread, and undone at once.
pub fn cpuid_faulting() -> bool {
    const ARCH_SET_CPUID: i32 = 0x1012;
    // SAFETY: switches trapping on and off again; nothing runs cpuid in between.
    unsafe {
        if libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0 {
            return false;
        }
        libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 1);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> Command {
        Command {
            argv: argv.iter().map(OsString::from).collect(),
            pin: false,
        }
    }

    #[test]
    fn an_exec_has_all_strings_and_ends() {
        let environment = [("A", "1"), ("EMPTY", "")].map(|(n, v)| (n.into(), v.into()));
        let exec = Exec::of(&command(&["/bin/sh", "-c", ""]), environment.into_iter());
        let exec = exec.expect("there is a shell");
        let of = |s: &Strings| -> Vec<String> {
            let (end, all) = s.pointers.split_last().expect("an end");
            assert!(end.is_null());
            // SAFETY: strings that the same structure owns.
            let text = |p: &*const libc::c_char| unsafe { std::ffi::CStr::from_ptr(*p) };
            all.iter()
                .map(|p| text(p).to_string_lossy().into())
                .collect()
        };
        assert_eq!(exec.path.as_bytes(), b"/bin/sh");
        assert_eq!(of(&exec.argv), ["/bin/sh", "-c", ""]);
        assert_eq!(of(&exec.env), ["A=1", "EMPTY="]);
    }

    #[test]
    fn a_string_that_no_program_can_get_is_told() {
        let none = std::iter::empty;
        let bad = Exec::of(&command(&["/bin/sh", "a\0b"]), none()).err();
        assert!(bad.is_some_and(|e| e.to_string().contains("NUL byte in an argument")));
        let environment = [(OsString::from("A"), OsString::from("a\0b"))];
        let bad = Exec::of(&command(&["/bin/sh"]), environment.into_iter()).err();
        assert!(bad.is_some_and(|e| e.to_string().contains("NUL byte in the environment")));
        let missing = Exec::of(&command(&["/no/such/program"]), none()).err();
        assert!(matches!(missing, Some(LaunchError::NotFound { .. })));
    }

    #[test]
    fn what_a_child_says_is_heard_until_it_is_gone() {
        let (hears, says) = pipe().expect("a pipe");
        let words = [(true, 0), (false, -libc::EPERM), (true, libc::ENOEXEC)];
        let words = words.map(|(no_random, error)| Word { no_random, error });
        words.iter().for_each(|w| w.say(&says));
        drop(says);
        for word in words {
            assert_eq!(Word::hear(&hears), Some(word));
        }
        assert_eq!(Word::hear(&hears), None);
    }

    #[test]
    fn an_exec_that_fails_is_told_with_its_reason() {
        let why = |errno| exec_failed("./script".as_ref(), errno).to_string();
        assert!(why(libc::ENOENT).contains("its interpreter is missing"));
        assert!(why(libc::EACCES).contains("Permission denied"));
        assert!(why(libc::ENOENT).contains("./script"));
    }

    #[test]
    fn mappings_say_what_they_are() {
        let of = |line: &'static [u8]| mapping(maps::Line::parse(line).expect("parses"));
        let m =
            of(b"7f0000001000-7f0000002000 rw-s 00003000 08:01 42         /tmp/a file (deleted)");
        assert_eq!(
            (m.start, m.end, m.prot),
            (0x7f00_0000_1000, 0x7f00_0000_2000, 3)
        );
        assert_eq!((m.offset, m.inode), (0x3000, 42));
        assert_eq!(m.flags, region_flags::SHARED | region_flags::FILE);
        assert_eq!(m.name, PathBuf::from("/tmp/a file (deleted)"));
        let stack =
            of(b"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]");
        assert_eq!(stack.flags, region_flags::STACK);
    }
}
