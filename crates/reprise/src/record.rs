//! `reprise record`: launcher, agent and trace put together.
//!
//! The launcher stays the program's parent, so that statuses and job control are what the user expects; the agent is
//! forked beside it and outlives both if need be.

use crate::checkpoint;
use crate::cli::{Buffers, CpuLevel, Inputs, KeepOn, RecordArgs};
use crate::goroutines;
use crate::recorder::{finish, reap, start_agent, start_follower, Attendants};
use crate::seeds;
use crate::signals::{self, PassedOn};
use crate::time_limit::TimeLimit;
use anyhow::{Context, Result};
use reprise_abi::engine::{can, TraceOrder};
use reprise_abi::epoch::{self, Why};
use reprise_abi::hooks;
use reprise_abi::inputs::inputs;
use reprise_abi::names::signal_name;
use reprise_abi::session::{
    hold, Session, FLAG_CHAOS, FLAG_FLIP_SLICES, FLAG_HOOKS, FLAG_KEEP_EPOCHS, FLAG_LOCKED,
    FLAG_LOGS, FLAG_NO_PATCH, FLAG_TEST_COPIES, FLAG_TEST_EPOCHS, FLAG_TEST_SLICES,
    FLAG_TEST_WRITES, MODE_RECORD, VERSION,
};
use reprise_agent::kept::Keeper;
use reprise_agent::Outsiders;
use reprise_console::{say, say_text};
use reprise_launch::features::{self, Limit};
use reprise_launch::orderable::{unfit, Unfit};
use reprise_launch::record::{self as launch, Stopped};
use reprise_launch::runtime::{EMBEDDED, EMBEDDED_NAME};
use reprise_launch::{cpu, known, memo, RuntimeImage, SharedSession};
use reprise_trace::*;
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// Runs `record`; the exit status is the program's.
///
/// # Errors
/// When the program can't be started or the trace can't be made.
pub fn run(args: &RecordArgs) -> Result<i32> {
    let runs = args.until_failure.unwrap_or(1);
    let first_seed = args.chaos.map(|seed| seed.unwrap_or_else(some_seed));
    if args.jobs.is_some() {
        return seeds::search(args, runs, first_seed);
    }
    for run in 1..=runs {
        // Each run has a seed of its own.
        let seed = first_seed.map(|s| s.wrapping_add(run - 1));
        let last = one(&RecordArgs {
            chaos: seed.map(Some),
            ..args.clone()
        })?;
        let failed = last.status != 0;
        let keep = match (args.until_failure, args.keep_on) {
            (Some(_), _) | (None, KeepOn::Failure) => failed,
            (None, KeepOn::Always) => true,
        };
        if let Some(dir) = &last.dir {
            if !keep {
                Catalog::from_env()?.remove(dir)?;
            } else if !dir.join(EVENTS_FILE).exists() {
                say!(
                    "the recording is lost: {} was removed or moved meanwhile",
                    dir.display()
                );
            } else {
                add_checkpoints(args, dir);
                if !args.quiet {
                    say_recorded(dir, last.status);
                }
            }
        }
        if failed || run == runs {
            if args.until_failure.is_some() && !args.quiet {
                if failed {
                    let seed = seed.map_or(String::new(), |s| format!(", with chaos seed {s}"));
                    let how = match last.out_of_time {
                        true => "was ended",
                        false => "failed",
                    };
                    say!("run {run} {how}{seed}; replay it with: reprise replay");
                } else {
                    say!("none of {runs} runs failed");
                }
            }
            return Ok(exit_status(last.status));
        }
    }
    Ok(0)
}

/// Where a recording is, and what to do about its end.
pub fn say_recorded(dir: &Path, status: i32) {
    say!("recorded in {}", dir.display());
    if let Some(hint) = crash_hint(status, dir).or_else(|| hint_of_others(dir)) {
        say!("{hint}");
    }
}

/// A seed for chaos mode when none is given: short enough to be typed.
fn some_seed() -> u64 {
    let t = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    (t.as_nanos() as u64 ^ (std::process::id() as u64) << 32) % 1_000_000_000
}

/// The signal by which a fault or abort(3) ended a process, as a word.
pub fn crash(status: i32) -> Option<&'static str> {
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
    let is_one = CRASHES.contains(&signal);
    is_one.then(|| signal_name(signal as u32))?
}

/// What to do about a program that crashed.
pub fn crash_hint(status: i32, dir: &Path) -> Option<String> {
    let name = crash(status)?;
    let quoted = quoted(dir);
    Some(match reprise_replay::is_debuggable(dir) {
        true => format!(
            "it crashed ({name}); debug it there with: reprise replay -d --at crash {quoted}"
        ),
        false => format!("it crashed ({name}); it does so again with: reprise replay {quoted}"),
    })
}

/// What to do about other processes than the first one that crashed: the first of them is named.
fn hint_of_others(dir: &Path) -> Option<String> {
    let summary = Summary::read(dir).ok().flatten()?;
    let mut crashed = summary
        .killed
        .iter()
        .filter_map(|(pid, status)| Some((pid, crash(*status)?)));
    let (pid, name) = crashed.next()?;
    let more = match crashed.count() {
        0 => String::new(),
        n => format!(", and {n} more (see `reprise ps`)"),
    };
    let quoted = quoted(dir);
    Some(match reprise_replay::is_debuggable(dir) {
        true => format!("process {pid} of it crashed ({name}){more}; debug it there with: reprise replay -d --pid {pid} --at crash {quoted}"),
        false => format!("process {pid} of it crashed ({name}){more}"),
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
pub struct Run {
    /// The program's wait status.
    pub status: i32,
    /// The trace, where there is one.
    pub dir: Option<PathBuf>,
    /// It was ended because its time was over.
    pub out_of_time: bool,
}

/// The exit status by which a shell would tell of this wait status.
pub fn exit_status(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    }
}

/// The runtime that is put into the program. A trace has the one that is inside of this binary.
fn image(args: &RecordArgs) -> Result<RuntimeImage> {
    let Some(file) = &args.test_runtime else {
        return Ok(RuntimeImage::load(EMBEDDED)?);
    };
    if args.engine.can(can::REPLAY) {
        anyhow::bail!("--test-runtime wants an engine without a log");
    }
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    Ok(RuntimeImage::load(&bytes)?)
}

/// The trace in `dir` is by the runtime that is inside of this binary: its hash.
pub fn keep_runtime(catalog: &Catalog, store: &Store, dir: &Path) -> Result<ContentHash> {
    let hash = ContentHash::from_hex(EMBEDDED_NAME).context("the runtime's name")?;
    store.keep_named_into(EMBEDDED, hash, dir)?;
    // Without the list only a later version asks.
    let _ = known::remember(&catalog.root().join(known::FILE));
    Ok(hash)
}

/// Records one run.
///
/// # Errors
/// When the program can't be started or the trace can't be made.
pub fn one(args: &RecordArgs) -> Result<Run> {
    let program = launch::find_program(&args.command[0])?;
    if goroutines::is_wanted(args, &program)? {
        return goroutines::record(args, &program);
    }
    if args.keep.is_some() && !args.engine.can(can::BE_KEPT) {
        anyhow::bail!("--keep wants --engine serial or order");
    }
    cpu::suffices().map_err(anyhow::Error::msg)?;
    reprise_launch::limits::suffice().map_err(anyhow::Error::msg)?;
    if (args.test_keep_epochs || args.test_fail_epochs.is_some()) && !args.in_epochs() {
        anyhow::bail!(
            "--test-keep-epochs and --test-fail-epochs are for engines that run in epochs"
        );
    }
    let mut shared = SharedSession::create()?;
    let image = image(args)?;
    configure(&mut shared, args);
    if args.det.as_ref().is_some_and(|d| d.det_report) {
        shared.add_conflicts()?;
    }
    let catalog = Catalog::from_env()?;
    let memo_file = catalog.root().join(memo::FILE);
    if args.engine.order == TraceOrder::Stamps {
        let usual = args.buffers.bytes();
        shared.add_order(args.keep.map_or(usual, |keep| keep.ring(usual)))?;
        let unlearned = hooks::holds(shared.session().unhooked, hooks::LEARNED);
        let learned = learned::read(catalog.root())?;
        for f in learned.iter().filter(|_| !unlearned) {
            shared.session().learned.add(f.code(), 0);
        }
    }
    let recorded = args.engine.can(can::REPLAY) && args.det.is_none();
    match (args.engine.order, recorded) {
        (TraceOrder::Told, true) => {
            shared.add_order(args.buffers.bytes())?;
            shared.session_mut().flags |= FLAG_LOGS;
        }
        (_, true) if args.in_epochs() => {
            shared.add_leader(args.buffers.bytes())?;
        }
        (_, false) if args.engine.can(can::SEPARATE_MEMORY) => shared.add_memo()?,
        _ => {}
    }
    let known = memo::load(&shared, &image, &memo_file);
    let command = launch::Command {
        argv: args.command.clone(),
        pin: args.engine.can(can::PIN) && !args.in_epochs(),
    };
    // Looked for before a directory is made for it.
    let program = launch::find_program(&args.command[0])?;
    if args.engine.can(can::REPEAT) {
        if let Some(why) = unfit(&program).filter(|why| *why != Unfit::Static) {
            anyhow::bail!(
                "{}: it can't run the same way always: {why}",
                program.display()
            );
        }
    }
    if args.engine.can(can::ORDER_SYNCHRONISATION) && !args.force {
        if let Some(why) = unfit(&program) {
            anyhow::bail!(
                "{}: --engine order can't record it: {why} (use --engine serial, or --force)",
                program.display()
            );
        }
    }
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
        Ok((status, out_of_time)) => {
            memo::save(&shared, &image, &memo_file, &known);
            Ok(Run {
                status,
                dir,
                out_of_time,
            })
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
pub fn configure(shared: &mut SharedSession, args: &RecordArgs) {
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
    s.engine = args.engine.number;
    if args.engine.can(can::SEPARATE_MEMORY) {
        s.flags |= FLAG_HOOKS | FLAG_LOCKED;
    }
    if let Some(det) = &args.det {
        crate::run::configure(s, det);
    }
    if args.engine.can(can::ORDER_SYNCHRONISATION) {
        s.flags |= FLAG_HOOKS;
        s.unhooked = args.test_without.iter().fold(0, |set, class| set | class);
        if !hooks::holds(s.unhooked, hooks::LOCKED) {
            s.flags |= FLAG_LOCKED;
        }
    }
    // Where nothing is taken out of the rings until it has to be, files would be copied long after they were read.
    let promptly = args.buffers != Buffers::Crash;
    let logs = args.engine.can(can::REPLAY) && args.det.is_none();
    let by_reference = args.inputs == Inputs::Reference && promptly && logs;
    inputs(s).copies.store(u32::from(!by_reference), Relaxed);
    if args.no_patch {
        s.flags |= FLAG_NO_PATCH;
    }
    if args.hooks {
        s.flags |= FLAG_HOOKS;
    }
    if args.test_writes {
        s.flags |= FLAG_TEST_WRITES;
    }
    s.test_reenter = args.test_reenter.map_or(0, |seed| seed.max(1));
    let fails = args.test_fail_epochs.map_or(0, |seed| seed.max(1));
    s.test_fail_epochs.store(fails, Relaxed);
    if args.test_copies {
        s.flags |= FLAG_TEST_COPIES;
    }
    if args.test_epochs {
        // What a copy can't do yet: rewrite what its program has rewritten, and read of files to which events refer.
        s.flags |= FLAG_TEST_EPOCHS | FLAG_NO_PATCH;
        inputs(s).copies.store(1, Relaxed);
    }
    if args.test_slices {
        s.flags |= FLAG_TEST_SLICES;
    }
    if args.in_epochs() {
        s.flags |= FLAG_HOOKS | FLAG_LOCKED | FLAG_NO_PATCH;
        inputs(s).copies.store(1, Relaxed);
    }
    if args.test_keep_epochs {
        s.flags |= FLAG_KEEP_EPOCHS;
    }
    if args.test_flip {
        s.flags |= FLAG_FLIP_SLICES;
    }
    if let Some(nr) = args.forget_syscall {
        s.forget_syscall = nr + 1;
    }
    s.checksum_every = args.checksum.unwrap_or(0);
    if let Some(seed) = args.chaos {
        let seed = seed.unwrap_or_else(some_seed);
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
) -> Result<(i32, bool)> {
    let mut stopped = launch::start(command, shared, image)?;
    let trace = match dir {
        Some(dir) => {
            let writer = open_trace(args, shared, &stopped, catalog, dir, program)?;
            say_dir(args, dir);
            Some((writer, catalog.store()?, dir))
        }
        None => None,
    };
    reprise_agent::processes::tell_of_life(&shared.session().launcher_life);
    let agent = start_agent(
        args,
        shared,
        image,
        Census::new(stopped.pid),
        Outsiders::new(),
        trace,
    )?;
    let follower = match (args.keep, dir) {
        (Some(keep), Some(dir)) => Some(start_follower(keep, dir, shared)?),
        _ => None,
    };
    let limit = args.time_limit.map(Duration::from_secs);
    let limit = limit.map(TimeLimit::start).transpose()?;
    let _passed_on = PassedOn::to(stopped.pid);
    let pid = stopped.go(image)?;
    let attendants = Attendants {
        args,
        shared,
        image,
    };
    let (status, agent) = wait_for(&attendants, pid, agent, follower)?;
    finish(&attendants, agent, status, dir, args.until)?;
    let out_of_time = limit.is_some_and(|limit| limit.is_over());
    if let Some(seconds) = args.time_limit.filter(|_| out_of_time && !args.quiet) {
        say!("the program was ended after {seconds} s (--time-limit)");
    }
    if let Some(follower) = follower {
        // It may have ended before.
        let _ = reap(follower);
    }
    if let Some(dir) = dir {
        say_summary(dir, args.quiet);
        if dir.exists() {
            catalog.set_latest(dir)?;
        }
    }
    say_message(shared);
    if args.det.as_ref().is_some_and(|d| d.det_report) {
        crate::run::print_conflicts(shared);
    }
    if args.det.as_ref().is_some_and(|d| d.stats) {
        crate::run::print_counters(shared);
    }
    if args.test_epochs {
        say_epochs(shared.session());
    } else if args.in_epochs() && !args.quiet {
        say!("{}", epochs_in_short(shared.session()));
    }
    if args.hooks {
        let c = &shared.session().counters;
        let (functions, calls) = (c.hooked.load(Relaxed), c.operations.load(Relaxed));
        say!("{functions} functions hooked, called {calls} times");
    }
    Ok((status, out_of_time))
}

/// What became of the program's epochs, for people who recorded it in them.
fn epochs_in_short(s: &Session) -> String {
    let of = |counts: &[&AtomicU64]| counts.iter().map(|n| n.load(Relaxed)).sum::<u64>();
    let recorded = of(&[&s.epochs_same, &s.epochs_recovered, &s.epochs_in_code]);
    let mut text = format!("on all processors in {recorded} epochs");
    let recovered = of(&[&s.epochs_recovered]);
    if recovered != 0 {
        text += &format!(
            "; {recovered} came to something else when they were run again, which the program took over"
        );
    }
    let alone = of(&[&s.epochs_serial, &s.epochs_paused]);
    if alone != 0 {
        text += &format!("; {alone} times one thread at a time, for a while");
    }
    let [kind, at] = [&s.epoch_difference, &s.epoch_difference_at].map(|n| n.load(Relaxed));
    match difference(kind, at) {
        Some(what) => format!("{text} (first: {what})"),
        None => text,
    }
}

/// What came of the epochs that copies have run again, for tests.
fn say_epochs(s: &Session) {
    let read = |n: &AtomicU64| n.load(Relaxed);
    let [same, unlike, left_out] = [&s.epochs_same, &s.epochs_unlike, &s.epochs_left_out].map(read);
    say!("epochs run again: {same} came to the program's state, {unlike} did not, {left_out} were left out");
    for (n, count) in s.epochs_left_out_by.iter().map(read).enumerate() {
        if count != 0 {
            let why = Why::from_u64(n as u64).map_or("more than is kept of an epoch", Why::name);
            say!("left out {count} times: {why}");
        }
    }
    if let Some(what) = difference(read(&s.epoch_difference), read(&s.epoch_difference_at)) {
        say!("the first that did not: {what}");
    }
    let [same, unlike] = [&s.slices_same, &s.slices_unlike].map(read);
    if same + unlike != 0 {
        let bytes = read(&s.slices_bytes);
        say!("epochs run by slices: {same} came to the program's state, {unlike} did not; {bytes} bytes");
    }
    if let Some(what) = difference(read(&s.slice_difference), read(&s.slice_difference_at)) {
        say!("the first that did not by slices: {what}");
    }
}

/// For people: what was different; 0: nothing.
fn difference(kind: u64, at: u64) -> Option<String> {
    Some(match kind {
        0 => return None,
        epoch::MEMORY => format!("memory at {at:#x}"),
        epoch::LATE => "no end in time".to_owned(),
        epoch::ENDED => format!("its copy ended ({at:#x})"),
        epoch::VECTORS => format!("vector registers of thread {at}"),
        epoch::REGISTERS => format!("registers of thread {at}"),
        way => {
            let why = Why::from_u64(way.wrapping_sub(epoch::OTHER_WAY));
            format!(
                "its copy left the log, by {} (thread {}, {:#x})",
                why.map_or("something", Why::name),
                at & 0xffff,
                at >> 16
            )
        }
    })
}

/// Whoever has asked for it in rr's words is told where the recording is going to be.
fn say_dir(args: &RecordArgs, dir: &Path) {
    if args.as_rr {
        let text = format!(
            "rr: Saving execution to trace directory `{}'.\n",
            dir.display()
        );
        say_text(&text);
    }
    let Some(fd) = args.tell_dir else { return };
    let line = [dir.as_os_str().as_bytes(), b"\n"].concat();
    // SAFETY: a descriptor that the command line has named, and that was found open.
    let mut told = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    if let Err(e) = told.write_all(&line) {
        say!("can't write the trace's directory to descriptor {fd}: {e}");
    }
    if fd > libc::STDERR_FILENO {
        // Who reads it waits for its end.
        ManuallyDrop::into_inner(told);
    }
}

/// What the user should know of a trace that is whole.
pub fn say_summary(dir: &Path, quiet: bool) {
    let Some(summary) = Summary::read(dir).ok().flatten() else {
        return;
    };
    // Notes were told of when they happened.
    let is_note = |w: &str| reprise_abi::notes::ALL.iter().any(|n| n.text == w);
    for w in summary.warnings.iter().filter(|w| !is_note(w)) {
        say!("{w}");
    }
    if summary.stopped && !quiet {
        match summary.wait_status {
            None => say!("the recording was stopped before the program ended"),
            Some(_) => say!("{}", summary.end_reason),
        }
    }
    if !summary.uncaptured.is_empty() {
        say!("{}", uncaptured(&summary.uncaptured));
    }
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
    let runtime_hash = keep_runtime(catalog, &store, dir)?;
    let mut keeper = Keeper::new(store, dir.into());
    reprise_agent::image::write(stopped, shared, &mut keeper).map_err(anyhow::Error::msg)?;
    let env = std::env::vars_os().map(|(mut k, v)| {
        k.push("=");
        k.push(v);
        ByteString::from(k.as_os_str())
    });
    let who = Program {
        argv: args.command.iter().map(|a| a.as_os_str().into()).collect(),
        env: env.collect(),
        cwd: ByteString::from(std::env::current_dir().unwrap_or_default().as_os_str()),
        exe: program.as_os_str().into(),
        pid: stopped.pid,
        children: Vec::new(),
    };
    write_head(args, shared, who, runtime_hash, dir)
}

/// What a trace says of the program that it is of.
pub struct Program {
    /// Its arguments.
    pub argv: Vec<ByteString>,
    /// Its environment.
    pub env: Vec<ByteString>,
    /// Its working directory.
    pub cwd: ByteString,
    /// Its executable.
    pub exe: ByteString,
    /// Its id.
    pub pid: i32,
    /// Children that it has already.
    pub children: Vec<i64>,
}

/// Writes the manifest of a trace, and opens its stream.
///
/// # Errors
/// When they can't be written.
pub fn write_head(
    args: &RecordArgs,
    shared: &SharedSession,
    who: Program,
    runtime_hash: ContentHash,
    dir: &Path,
) -> Result<Writer> {
    let s = shared.session();
    let start = reprise_agent::image::start(shared);
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        reprise_version: env!("CARGO_PKG_VERSION").into(),
        abi_version: VERSION,
        engine: args.engine.name.into(),
        argv: who.argv,
        env: args.env.cut(who.env),
        cwd: who.cwd,
        exe: who.exe,
        started: started.as_nanos() as u64,
        machine: Machine::current(),
        aslr: s.flags & reprise_abi::session::FLAG_ASLR != 0,
        cpuid_faulting: s.flags & reprise_abi::session::FLAG_CPUID_FAULTING != 0,
        chaos_seed: (s.flags & FLAG_CHAOS != 0).then_some(s.chaos_seed),
        pid: who.pid,
        children: who.children,
        checksum_every: s.checksum_every,
        learned: learned_code(s),
        hooks: args.hooks || args.in_epochs(),
        epochs: args.in_epochs(),
        unhooked: s.unhooked,
        redacted: None,
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

/// What has become of one of our children.
enum Change {
    /// It has ended, and is a zombie.
    Ended(i32),
    /// It was stopped, and waits to be continued.
    Stopped(i32),
    /// None has changed: a signal came.
    Interrupted,
}

/// Waits for one of our children to end or to be stopped.
fn next_change() -> Result<Change> {
    let wait = |who, id, how| {
        // SAFETY: fills a struct of ours.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let done = libc::waitid(who, id, &mut info, how) == 0;
            done.then(|| (info.si_pid(), info.si_code))
        }
    };
    let any = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
    if let Some((pid, how)) = wait(libc::P_ALL, 0, any) {
        if how != libc::CLD_STOPPED {
            return Ok(Change::Ended(pid));
        }
        // It is told of once.
        let told = libc::WSTOPPED | libc::WNOHANG;
        wait(libc::P_PID, pid as u32, told);
        return Ok(Change::Stopped(pid));
    }
    match std::io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::EINTR) => Ok(Change::Interrupted),
        e => Err(e).context("wait for the program"),
    }
}

/// Waits for the program; watches the agent meanwhile. The program's status, and who is the agent by now.
fn wait_for(
    attendants: &Attendants,
    pid: i32,
    mut agent: i32,
    follower: Option<i32>,
) -> Result<(i32, i32)> {
    loop {
        let ended = match next_change()? {
            Change::Ended(child) => child,
            Change::Stopped(child) => {
                if child == pid {
                    crate::foreground::stop_with(pid);
                }
                continue;
            }
            Change::Interrupted => continue,
        };
        if ended == pid {
            signals::program_has_ended();
            let own = reap(pid)?;
            let recorders: Vec<u32> = [Some(agent), follower]
                .into_iter()
                .flatten()
                .map(|pid| pid as u32)
                .collect();
            crate::run::end_threads(attendants.shared, &recorders);
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

pub fn say_message(shared: &SharedSession) {
    let s = shared.session();
    let text = match s.message.load(Relaxed) {
        20 => "the program mapped a device into its memory, which can't be recorded: it got ENODEV",
        2 => "a process could not be followed through its exec: it got EPERM",
        3 => "the program wanted more than 4096 threads or 1024 processes at a time: it got EAGAIN",
        _ => return,
    };
    say!("{text}");
}

/// Makes the checkpoints that are wanted. A recording without them is a whole one.
fn add_checkpoints(args: &RecordArgs, dir: &Path) {
    if !args.checkpoints {
        return;
    }
    match checkpoint::make(dir, checkpoint::USUAL) {
        Ok(line) if !args.quiet => say!("{line}"),
        Ok(_) => {}
        Err(e) => say!("without checkpoints: {e}"),
    }
}
