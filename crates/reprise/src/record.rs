//! `reprise record`: launcher, agent and trace put together.
//!
//! The launcher stays the program's parent, so that statuses and job control are what the user expects; the agent is
//! forked beside it and outlives both if need be.

use crate::cli::{CpuLevel, EngineName, KeepOn, OnFull, RecordArgs};
use crate::keep::{self, Keep};
use anyhow::{Context, Result};
use reprise_abi::hooks;
use reprise_abi::names::signal_name;
use reprise_abi::session::{
    hold, Session, ENGINE_DET, ENGINE_NONE, ENGINE_ORDER, ENGINE_SERIAL, FLAG_CHAOS, FLAG_HOOKS,
    FLAG_LOCKED, FLAG_NO_PATCH, MODE_RECORD, VERSION,
};
use reprise_agent::kept::Keeper;
use reprise_agent::Agent;
use reprise_launch::features::{self, Limit};
use reprise_launch::orderable::unfit;
use reprise_launch::record::{self as launch, Stopped};
use reprise_launch::runtime::EMBEDDED;
use reprise_launch::{cpu, futex, memo, RuntimeImage, SharedSession};
use reprise_trace::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering::*};

/// Runs `record`; the exit status is the program's.
///
/// # Errors
/// When the program can't be started or the trace can't be made.
pub fn run(args: &RecordArgs) -> Result<i32> {
    let runs = args.until_failure.unwrap_or(1);
    for run in 1..=runs {
        let last = one(args)?;
        let failed = last.status != 0;
        let keep = match (args.until_failure, args.keep_on) {
            (Some(_), _) | (None, KeepOn::Failure) => failed,
            (None, KeepOn::Always) => true,
        };
        if let Some(dir) = &last.dir {
            if !keep {
                Catalog::from_env()?.remove(dir)?;
            } else if !args.quiet {
                eprintln!("reprise: recorded in {}", dir.display());
                if let Some(hint) = crash_hint(last.status, dir) {
                    eprintln!("reprise: {hint}");
                }
            }
        }
        if failed || run == runs {
            if args.until_failure.is_some() && !args.quiet {
                if failed {
                    eprintln!("reprise: run {run} failed; replay it with: reprise replay");
                } else {
                    eprintln!("reprise: none of {runs} runs failed");
                }
            }
            return Ok(exit_status(last.status));
        }
    }
    Ok(0)
}

/// What to do about a program that a fault or abort(3) has ended.
fn crash_hint(status: i32, dir: &Path) -> Option<String> {
    const CRASHES: [i32; 8] = [
        libc::SIGSEGV,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGQUIT,
    ];
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))?;
    if !CRASHES.contains(&signal) {
        return None;
    }
    let name = signal_name(signal as u32)?;
    let quoted = quoted(dir);
    Some(match reprise_replay::is_debuggable(dir) {
        true => format!(
            "it crashed ({name}); debug it there with: reprise replay -d --at crash {quoted}"
        ),
        false => format!("it crashed ({name}); it does so again with: reprise replay {quoted}"),
    })
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// One recorded run.
struct Run {
    status: i32,
    dir: Option<PathBuf>,
}

/// The exit status by which a shell would tell of this wait status.
pub fn exit_status(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    }
}

fn one(args: &RecordArgs) -> Result<Run> {
    if args.keep.is_some() && args.engine != EngineName::Serial {
        anyhow::bail!("--keep wants --engine serial");
    }
    cpu::suffices().map_err(anyhow::Error::msg)?;
    let mut shared = SharedSession::create()?;
    let image = RuntimeImage::load(EMBEDDED)?;
    configure(&mut shared, args);
    let catalog = Catalog::from_env()?;
    let memo_file = catalog.root().join(memo::FILE);
    if args.engine == EngineName::Order {
        shared.add_order(args.buffers.bytes())?;
        let unlearned = hooks::holds(shared.session().unhooked, hooks::LEARNED);
        let learned = learned::read(catalog.root())?;
        for f in learned.iter().filter(|_| !unlearned) {
            shared.session().learned.add(f.code(), 0);
        }
    }
    let known = memo::load(&shared, &image, &memo_file);
    let command = launch::Command {
        argv: args.command.clone(),
        pin: args.engine == EngineName::Serial,
    };
    // Looked for before a directory is made for it.
    let program = launch::find_program(&args.command[0])?;
    if args.engine == EngineName::Order && !args.force {
        if let Some(why) = unfit(&program) {
            anyhow::bail!(
                "{}: --engine order can't record it: {why} (use --engine serial, or --force)",
                program.display()
            );
        }
    }
    let recorded = !matches!(args.engine, EngineName::None | EngineName::Det);
    let dir = match (recorded, &args.output) {
        (false, _) => None,
        (true, Some(dir)) => Some(Catalog::create_at(dir)?),
        (true, None) => Some(catalog.create(program.file_name().unwrap_or(program.as_os_str()))?),
    };
    let outcome = in_dir(
        args,
        &mut shared,
        &image,
        &command,
        &catalog,
        dir.as_deref(),
        &program,
    );
    match outcome {
        Ok(status) => {
            memo::save(&shared, &image, &memo_file, &known);
            Ok(Run { status, dir })
        }
        Err(e) => {
            // Nothing was recorded: leave no empty trace behind.
            if let Some(dir) = &dir {
                let _ = std::fs::remove_dir_all(dir);
            }
            Err(e)
        }
    }
}

/// Fills the session from the command line.
fn configure(shared: &mut SharedSession, args: &RecordArgs) {
    let trapping = !args.no_cpuid_trapping && launch::cpuid_faulting();
    let mut processor = cpu::processor();
    let limit = match args.cpu {
        CpuLevel::Native => None,
        CpuLevel::Baseline => Some(Limit::V2),
        CpuLevel::V3 => Some(Limit::V3),
    };
    if let Some(limit) = limit {
        features::limit(&mut processor, limit);
    }
    launch::set_processor(shared, &processor, trapping);
    let s = shared.session_mut();
    s.mode = MODE_RECORD;
    s.engine = match args.engine {
        EngineName::Serial => ENGINE_SERIAL,
        EngineName::Order => ENGINE_ORDER,
        EngineName::None => ENGINE_NONE,
        EngineName::Det => ENGINE_DET,
    };
    if args.engine == EngineName::Det {
        s.flags |= FLAG_HOOKS | FLAG_LOCKED;
    }
    if let Some(det) = &args.det {
        crate::run::configure(s, det);
    }
    if args.engine == EngineName::Order {
        s.flags |= FLAG_HOOKS;
        s.unhooked = args.test_without.iter().fold(0, |set, class| set | class);
        if !hooks::holds(s.unhooked, hooks::LOCKED) {
            s.flags |= FLAG_LOCKED;
        }
    }
    if args.no_patch {
        s.flags |= FLAG_NO_PATCH;
    }
    if args.hooks {
        s.flags |= FLAG_HOOKS;
    }
    if let Some(nr) = args.forget_syscall {
        s.forget_syscall = nr + 1;
    }
    s.checksum_every = args.checksum.unwrap_or(0);
    if let Some(seed) = args.chaos {
        let seed = seed.unwrap_or_else(|| {
            let t = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .unwrap_or_default();
            t.as_nanos() as u64 ^ (std::process::id() as u64) << 32
        });
        s.flags |= FLAG_CHAOS;
        s.chaos_seed = seed;
        s.chaos_state.store(seed, Relaxed);
    }
}

fn in_dir(
    args: &RecordArgs,
    shared: &mut SharedSession,
    image: &RuntimeImage,
    command: &launch::Command,
    catalog: &Catalog,
    dir: Option<&Path>,
    program: &Path,
) -> Result<i32> {
    let stopped = launch::start(command, shared, image)?;
    let trace = match dir {
        Some(dir) => {
            let writer = open_trace(args, shared, &stopped, catalog, dir, program)?;
            Some((writer, catalog.store()?, dir))
        }
        None => None,
    };
    let agent = start_agent(args, shared, image, stopped.pid, trace)?;
    let follower = match (args.keep, dir) {
        (Some(keep), Some(dir)) => Some(start_follower(keep, dir, shared)?),
        _ => None,
    };
    let pid = stopped.go(image)?;
    let attendants = Attendants {
        args,
        shared,
        image,
    };
    let (status, agent) = wait_for(&attendants, pid, agent, follower)?;
    finish(&attendants, agent, status)?;
    if let Some(follower) = follower {
        // It may have ended before.
        let _ = reap(follower);
    }
    if dir.is_some() {
        if let Some(summary) = dir.and_then(|d| Summary::read(d).ok().flatten()) {
            for w in &summary.warnings {
                eprintln!("reprise: {w}");
            }
            if summary.stopped && !args.quiet {
                eprintln!("reprise: the recording was stopped before the program ended");
            }
            if !summary.uncaptured.is_empty() {
                eprintln!("reprise: {}", uncaptured(&summary.uncaptured));
            }
        }
        if let Some(dir) = dir {
            catalog.set_latest(dir)?;
        }
    }
    say_message(shared, dir.is_some());
    if args.det.as_ref().is_some_and(|d| d.stats) {
        crate::run::print_counters(shared);
    }
    if args.hooks {
        let c = &shared.session().counters;
        let (functions, calls) = (c.hooked.load(Relaxed), c.operations.load(Relaxed));
        eprintln!("reprise: {functions} functions hooked, called {calls} times");
    }
    Ok(status)
}

/// The warning about processes that are not in the trace to their end.
pub fn uncaptured(all: &[Uncaptured]) -> String {
    let names = census::names(all);
    format!("uncaptured: not in the trace, or not to their end: {names}")
}

/// The code whose loads are recorded, as the session has it.
fn learned_code(s: &Session) -> Vec<LearnedCode> {
    let all = s.learned.all();
    all.map(|(c, _)| LearnedCode::new(c, String::new()))
        .collect()
}

/// Writes what does not change: image, manifest, the runtime itself.
fn open_trace(
    args: &RecordArgs,
    shared: &mut SharedSession,
    stopped: &Stopped,
    catalog: &Catalog,
    dir: &Path,
    program: &Path,
) -> Result<Writer> {
    let store = catalog.store()?;
    let runtime_hash = store.keep_bytes_into(EMBEDDED, dir)?.hash;
    let mut keeper = Keeper::new(store, dir.into());
    reprise_agent::image::write(stopped, shared, &mut keeper).map_err(anyhow::Error::msg)?;
    let s = shared.session();
    let start = reprise_agent::image::start(shared);
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let env = std::env::vars_os().map(|(mut k, v)| {
        k.push("=");
        k.push(v);
        ByteString::from(k.as_os_str())
    });
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        reprise_version: env!("CARGO_PKG_VERSION").into(),
        abi_version: VERSION,
        engine: args.engine.name().into(),
        argv: args
            .command
            .iter()
            .map(|a| ByteString::from(a.as_os_str()))
            .collect(),
        env: env.collect(),
        cwd: ByteString::from(std::env::current_dir().unwrap_or_default().as_os_str()),
        exe: ByteString::from(program.as_os_str()),
        started: started.as_nanos() as u64,
        machine: Machine::current(),
        aslr: s.flags & reprise_abi::session::FLAG_ASLR != 0,
        cpuid_faulting: s.flags & reprise_abi::session::FLAG_CPUID_FAULTING != 0,
        chaos_seed: (s.flags & FLAG_CHAOS != 0).then_some(s.chaos_seed),
        pid: stopped.pid,
        checksum_every: s.checksum_every,
        learned: learned_code(s),
        unhooked: s.unhooked,
        start,
        runtime_hash,
    };
    manifest.write(dir)?;
    let mut options = WriterOptions {
        max_size: args.max_size,
        ..WriterOptions::default()
    };
    if let Some(keep) = args.keep {
        keep.limit(&mut options);
    }
    Ok(Writer::with_options(dir, options)?)
}

/// Forks the agent; its process id. Without a trace it only attends to execs.
fn start_agent(
    args: &RecordArgs,
    shared: &SharedSession,
    image: &RuntimeImage,
    program: i32,
    trace: Option<(Writer, Store, &Path)>,
) -> Result<i32> {
    // SAFETY: plain call.
    let launcher = unsafe { libc::getpid() };
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    anyhow::ensure!(
        pid >= 0,
        "fork the agent: {}",
        std::io::Error::last_os_error()
    );
    // Known before its first signal, whoever of the two runs first.
    let told = if pid > 0 {
        pid as u32
    } else {
        std::process::id()
    };
    shared.session().agent_pid.store(told, SeqCst);
    if pid > 0 {
        // The agent's copies do the work; only it has the trace open.
        if let Some((writer, store, _)) = trace {
            drop(writer);
            std::mem::forget(store);
        }
        return Ok(pid);
    }
    stand_aside();
    let on_full = match args.on_full {
        OnFull::Stop => reprise_agent::OnFull::Stop,
        OnFull::Continue => reprise_agent::OnFull::Continue,
    };
    // SAFETY: the parent's copies of both live in its own process.
    let (shared, image) = unsafe { (std::ptr::read(shared), std::ptr::read(image)) };
    let status = match trace {
        None => {
            for w in reprise_agent::attend(shared, &image, launcher) {
                eprintln!("reprise: {w}");
            }
            0
        }
        Some((writer, store, dir)) => {
            let agent = Agent {
                shared,
                writer,
                store,
                dir: dir.to_path_buf(),
                on_full,
                image,
                launcher,
                program,
                warnings: Vec::new(),
                uncaptured: Vec::new(),
            };
            match agent.run() {
                Ok(()) => 0,
                Err(e) => {
                    eprintln!("reprise: {e}");
                    125
                }
            }
        }
    };
    // SAFETY: the child ends here, without running the parent's destructors.
    unsafe { libc::_exit(status) }
}

/// A child that works beside the program: keyboard signals are for the program, a full disk or file limit is handled as an error.
fn stand_aside() {
    PROGRAM.store(0, Relaxed);
    // SAFETY: plain calls of a process with one thread.
    unsafe {
        libc::setpgid(0, 0);
        // One for each process, and those of the trace.
        let mut files: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut files);
        files.rlim_cur = files.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        for s in [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTSTP,
            libc::SIGHUP,
            libc::SIGPIPE,
            libc::SIGXFSZ,
            libc::SIGTERM,
        ] {
            libc::signal(s, libc::SIG_IGN);
        }
        // The launcher's standard streams are not the agent's business: a pipe must see its end when the program is gone.
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in [0, 1] {
            libc::dup2(null, fd);
        }
    }
}

/// Forks the one that keeps the trace short; its process id.
fn start_follower(keep: Keep, dir: &Path, shared: &SharedSession) -> Result<i32> {
    shared.session().hold.store(keep.most(0), SeqCst);
    // SAFETY: plain calls; this process has one thread.
    let (launcher, pid) = unsafe { (libc::getpid(), libc::fork()) };
    anyhow::ensure!(
        pid >= 0,
        "fork the flight recorder: {}",
        std::io::Error::last_os_error()
    );
    if pid > 0 {
        shared.session().follower_pid.store(pid as u64, SeqCst);
        return Ok(pid);
    }
    stand_aside();
    let status = keep::follow(keep, dir, shared, launcher);
    // SAFETY: the child ends here, without running the parent's destructors.
    unsafe { libc::_exit(status) }
}

/// The program, for the handlers that pass signals on.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: i32) {
    let pid = PROGRAM.load(Relaxed);
    if pid > 0 {
        // SAFETY: kill is safe in a handler.
        unsafe { libc::kill(pid, signal) };
    }
}

/// What it takes to put somebody in the place of an agent that died.
struct Attendants<'a> {
    args: &'a RecordArgs,
    shared: &'a SharedSession,
    image: &'a RuntimeImage,
}

impl Attendants<'_> {
    /// The agent has died: the program goes on, with somebody who attends to it and records nothing; its process id.
    fn replace(&self) -> Result<i32> {
        eprintln!("reprise: the agent died; the program goes on without a recording");
        let s = self.shared.session();
        s.recording_lost.store(1, SeqCst);
        s.former_agent.store(s.agent_pid.load(SeqCst), SeqCst);
        start_agent(self.args, self.shared, self.image, 0, None)
    }
}

/// Waits for one of our children to end, and leaves it a zombie; its process id, `None` when interrupted.
fn next_end() -> Result<Option<i32>> {
    // SAFETY: fills a struct of ours.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOWAIT) == 0 {
            return Ok(Some(info.si_pid()));
        }
    }
    match std::io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::EINTR) => Ok(None),
        e => Err(e).context("wait for the program"),
    }
}

/// Takes the status of a child that has ended.
fn reap(pid: i32) -> Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: our own child.
        if unsafe { libc::waitpid(pid, &mut status, 0) } == pid {
            return Ok(status);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error).context("wait for a child");
        }
    }
}

/// Waits for the program; watches the agent meanwhile. The program's status, and who is the agent by now.
fn wait_for(
    attendants: &Attendants,
    pid: i32,
    mut agent: i32,
    follower: Option<i32>,
) -> Result<(i32, i32)> {
    PROGRAM.store(pid, Relaxed);
    // SAFETY: handlers that only call kill. The terminal's own signals reach the program by themselves.
    unsafe {
        for s in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
            let handler = pass_on as extern "C" fn(i32);
            libc::signal(s, handler as libc::sighandler_t);
        }
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
    }
    loop {
        let Some(ended) = next_end()? else { continue };
        if ended == pid {
            PROGRAM.store(0, Relaxed);
            let own = reap(pid)?;
            crate::run::end_threads(attendants.shared);
            return Ok((own, agent));
        }
        if Some(ended) == follower {
            // Before its time: nothing more can be forgotten.
            let s = attendants.shared.session();
            if s.recording_lost.load(SeqCst) == 0 {
                s.hold.store(hold::FAILED, SeqCst);
            }
        }
        // It is there, as far as the program can see, until another has its place.
        let next = if ended == agent {
            attendants.replace()?
        } else {
            agent
        };
        reap(ended)?;
        agent = next;
    }
}

/// Tells the agent how the program ended and waits until the trace is closed.
fn finish(attendants: &Attendants, mut agent: i32, status: i32) -> Result<()> {
    let s = attendants.shared.session();
    s.wait_status.store(status as u32 + 1, SeqCst);
    s.agent_asleep.store(0, SeqCst);
    futex::wake(&s.agent_asleep, 1);
    // What came of the program may go on without it, and needs somebody as well.
    while libc::WIFSIGNALED(reap(agent)?) {
        agent = attendants.replace()?;
    }
    let full = s.counters.ring_full_ns.load(Relaxed);
    if full > 100_000_000 && !attendants.args.quiet {
        eprintln!(
            "reprise: the program waited {:.1} s for the trace to be written",
            full as f64 / 1e9
        );
    }
    Ok(())
}

fn say_message(shared: &SharedSession, recorded: bool) {
    let s = shared.session();
    // A trace's own summary has them as warnings.
    if !recorded {
        for note in reprise_abi::notes::sentences(s.notes.load(Relaxed)) {
            eprintln!("reprise: {note}");
        }
    }
    let text = match s.message.load(Relaxed) {
        20 => "the program mapped a device into its memory, which can't be recorded: it got ENODEV",
        22 => "the program made a 32-bit system call (int 0x80), which can't be recorded: it got ENOSYS",
        2 => "a process could not be followed through its exec: it got EPERM",
        3 => "the program wanted more than 4096 threads or 1024 processes at a time: it got EAGAIN",
        _ => return,
    };
    eprintln!("reprise: {text}");
}
