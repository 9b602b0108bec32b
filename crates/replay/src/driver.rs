//! One replay: a session filled from the trace, played by a [`Tree`] of processes, and how it ended.

use crate::checkpoints;
use crate::mappings::Mappings;
use crate::races::Hunt;
use crate::rebuilt::Rebuilt;
use crate::report::{self, Divergence};
use crate::tree::{set_start, Halt, Tree};
use crate::{symbols, ReplayError};
use reprise_abi::engine::{can, TraceOrder};
use reprise_abi::event::Kind;
use reprise_abi::learned::{Code, CodeList};
use reprise_abi::order::{EntryKind, DEFAULT_RING, MAX_VOID};
use reprise_abi::session::{
    Session, BY_ADDRESS, FLAG_CPUID_FAULTING, FLAG_CPUID_REPLACED, FLAG_EPOCHS, FLAG_HOOKS,
    FLAG_LOCKED, FLAG_LOGS, FLAG_RACES, FLAG_TOTAL, MAX_CPUID, MODE_REPLAY, VERSION,
};
use reprise_launch::replay::Child;
use reprise_launch::runtime::{EMBEDDED, EMBEDDED_NAME};
use reprise_launch::{known, memo, record, RuntimeImage, SharedSession};
use reprise_trace::{
    opened, Catalog, LearnedCode, Manifest, Reader, Summary, Tail, BEGINNING_FILE, FILES_DIR,
};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout};
use rustix::thread::{sched_getaffinity, CpuSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// How to replay.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Throw the program's output away.
    pub quiet: bool,
    /// A trace of `order`: one thread runs at a time.
    pub total: bool,
    /// A test switch: flip one bit at this address just before this event.
    pub tamper: Option<(u64, u64)>,
    /// Show the output of one process only, and end when it ends: its place in the order of the processes' beginnings, 0 for the
    /// first of all.
    pub only: Option<u32>,
    /// The longest time that it may take.
    pub limit: Option<Duration>,
    /// Where recordings keep what they found in code ([`memo`]).
    pub memo: Option<PathBuf>,
    /// Begin at the last checkpoint on disk at which no more events had happened.
    pub from: Option<u64>,
    /// A rebuilt program, which is replayed in the place of the recorded one.
    pub with: Option<PathBuf>,
}

/// How a replay ended.
#[derive(Debug)]
pub struct Outcome {
    /// Wait status of the first process, or of the one that was wanted ([`Options::only`]).
    pub status: i32,
    /// The recording was stopped before its program ended.
    pub stopped: bool,
    /// Of a replay with a rebuilt program: it is the recorded one that could not be replayed.
    pub itself: bool,
    /// A divergence of `order`: functions that the thread was in, whose loads could be recorded next time.
    pub functions: Vec<LearnedCode>,
    /// What the recording logged the loads of.
    pub learned: Vec<LearnedCode>,
    /// Those loads of it that raced.
    pub raced: Vec<LearnedCode>,
    /// Set when it was ended because it could not go on, or because somebody wanted that.
    pub halted: Option<Halt>,
    /// Set when it left the recorded path.
    pub divergence: Option<Divergence>,
    /// What replayed processes wanted to do that no replay does, and that they were refused.
    pub refused: Vec<String>,
    /// A message of the runtime (its number and argument), 0 for none.
    pub message: (u32, u64),
    /// State hashes compared, and bytes hashed for them.
    pub hashes: (u64, u64),
    /// Events in the trace.
    pub events: u64,
    /// Where the trace's stream ends, if not in order.
    pub tail: Tail,
    /// The session's counters worth showing: sites patched, cuts found, false hits.
    pub counters: [u64; 3],
    /// It began at the checkpoint behind so many events.
    pub began: Option<u64>,
    /// Bytes written again to the standard output and to the standard error.
    pub output_bytes: [u64; 2],
}

/// Replays the trace in `dir` once.
///
/// # Errors
/// When the trace can't be read or the process can't be made. Divergence is not an error here but an outcome.
pub fn replay(dir: &Path, options: &Options) -> Result<Outcome, ReplayError> {
    match &options.with {
        Some(program) => replay_rebuilt(dir, options, program),
        None => replay_hunting(dir, options, None),
    }
}

/// As [`replay`], of a rebuilt program: first the recorded one shows what it does.
fn replay_rebuilt(dir: &Path, options: &Options, program: &Path) -> Result<Outcome, ReplayError> {
    let rebuilt = Rebuilt::open(program)?;
    let unseen = Options {
        quiet: true,
        total: false,
        tamper: None,
        // Others may go on behind the end of the one that is wanted before they are ended: their operations are to be known.
        only: None,
        ..options.clone()
    };
    let recorded = rebuilt.as_recorded()?;
    let shown = replay_one(dir, &unseen, None, Some(recorded))?;
    if shown.divergence.is_some() || shown.halted.is_some() || shown.message.0 != 0 {
        return Ok(Outcome {
            itself: true,
            ..shown
        });
    }
    if !rebuilt.rewind()? {
        return Err(ReplayError::Unsupported("the trace is of an earlier version of Reprise, whose runtime knows nothing of rebuilt programs: record again".into()));
    }
    replay_one(dir, options, None, Some(rebuilt))
}

/// Where the output of a replay goes that nobody is to see.
///
/// # Errors
/// When there is no null device.
pub(crate) fn nowhere() -> Result<std::fs::File, ReplayError> {
    let opened = std::fs::File::options().write(true).open("/dev/null");
    opened.map_err(|source| ReplayError::Io {
        what: "open /dev/null".into(),
        source,
    })
}

/// As [`replay`], with a look for races.
pub(crate) fn replay_hunting(
    dir: &Path,
    options: &Options,
    hunt: Option<&mut Hunt>,
) -> Result<Outcome, ReplayError> {
    replay_one(dir, options, hunt, None)
}

fn replay_one(
    dir: &Path,
    options: &Options,
    hunt: Option<&mut Hunt>,
    rebuilt: Option<Rebuilt>,
) -> Result<Outcome, ReplayError> {
    let Prepared {
        manifest,
        mut reader,
        image,
        mut shared,
    } = prepare(dir, options, hunt.as_deref())?;
    if let Some(r) = &rebuilt {
        if !manifest.engine().can(can::FOLLOW_REBUILT) {
            return Err(ReplayError::Unsupported(format!("a rebuilt program replays recordings of --engine order, this one is of {}: there, the ends of threads' turns lie in the middle of the recorded program's code", manifest.engine)));
        }
        shared.session_mut().flags |= r.flag();
    }
    // What there is to say of it is not what the program says.
    let begins = match options.from {
        Some(event) => checkpoints::nearest(dir, &reader, event)?,
        None => None,
    };
    let quiet = options.quiet.then(silence).transpose()?;
    let cpu = match manifest.engine().can(can::PIN) {
        false => None,
        true => processor(manifest.start.cpu),
    };
    let child = Child {
        cpu,
        ..Child::default()
    };
    let mut tree = Tree::new(shared, image, dir, child);
    tree.limit = options.limit;
    tree.rebuilt = rebuilt;
    if begins.is_some() {
        tree.begin_at(begins);
    }
    let began = tree.begins();
    let status = tree.run(&mut reader, options.only);
    let reached = tree.reached();
    drop(quiet);
    let status = status?;
    let halted = tree.halted.take();
    if let Some(h) = hunt {
        h.read(tree.shared.races());
    }
    let s = tree.shared.session();
    let c = &s.counters;
    let divergence = report::read(s).map(|d| Divergence {
        event: match manifest.engine().order {
            TraceOrder::Slices => d.event,
            _ => event_of_thread(dir, &d),
        },
        ..d
    });
    let when = divergence.as_ref().map_or(u64::MAX, |d| d.event);
    tracing::info!(
        status,
        diverged_at = divergence.as_ref().map(|d| d.event),
        halted = halted.is_some(),
        hashes = c.hashes.load(Relaxed),
        cuts = c.cuts.load(Relaxed),
        "replay ends"
    );
    Ok(Outcome {
        status,
        stopped: matches!(Summary::read(dir), Ok(Some(s)) if s.stopped),
        itself: false,
        refused: tree.take_refused(),
        halted,
        functions: named(dir, when, &s.divergence.functions),
        raced: named(dir, when, &s.raced),
        learned: manifest.learned,
        // What the others met with while they were ended is of no importance.
        divergence: divergence.filter(|_| !reached).map(|d| Divergence {
            place: place(dir, s, &d, tree.rebuilt.as_ref()),
            caller: tree.rebuilt.as_ref().and_then(|r| r.caller(&d)),
            ..d
        }),
        message: match reached {
            true => (0, 0),
            false => (s.message.load(Relaxed), s.message_arg.load(Relaxed)),
        },
        hashes: (c.hashes.load(Relaxed), c.hashed.load(Relaxed)),
        events: reader.len(),
        tail: reader.tail().clone(),
        counters: [
            c.patched.load(Relaxed),
            c.cuts.load(Relaxed),
            c.false_hits.load(Relaxed),
        ],
        began,
        output_bytes: s.output_bytes.each_ref().map(|n| n.load(Relaxed)),
    })
}

/// What a replay needs before its first process is made.
pub(crate) struct Prepared {
    pub manifest: Manifest,
    pub reader: Reader,
    pub image: RuntimeImage,
    pub shared: SharedSession,
}

/// The runtime that the trace in `dir` was recorded with. That of this binary isn't looked for among the trace's contents: whatever lies there in its place
/// is not run.
fn runtime_of(dir: &Path, manifest: &Manifest) -> Result<RuntimeImage, ReplayError> {
    let name = manifest.runtime_hash.to_string();
    if name == EMBEDDED_NAME {
        return Ok(RuntimeImage::load(EMBEDDED)?);
    }
    let runtime = Path::new(FILES_DIR).join(name);
    let runtime = opened::read(dir, &runtime).map_err(|source| ReplayError::Io {
        what: format!("read {}", dir.join(runtime).display()),
        source,
    })?;
    let list = Catalog::from_env().map(|c| c.root().join(known::FILE)).ok();
    if let Err(fingerprint) = known::check(&runtime, list.as_deref()) {
        return Err(ReplayError::Unsupported(format!(
            "this trace brings along a runtime that no release of Reprise has, and that you never recorded with: code of whoever made the trace, which would run in the \
             place of Reprise's own (BLAKE3 {fingerprint}); --trust-runtime replays it all the same, in its box"
        )));
    }
    Ok(RuntimeImage::load(&runtime)?)
}

/// Checks whether the trace in `dir` can be replayed here, and fills a session.
pub(crate) fn prepare(
    dir: &Path,
    options: &Options,
    hunt: Option<&Hunt>,
) -> Result<Prepared, ReplayError> {
    let manifest = Manifest::read(dir)?;
    if manifest.abi_version != VERSION {
        return Err(ReplayError::Unsupported(format!(
            "the trace speaks version {} of the event format, this reprise version {VERSION}",
            manifest.abi_version
        )));
    }
    let engine = manifest.engine();
    if !engine.can(can::FIND_RACES) && hunt.is_some() {
        return Err(ReplayError::Unsupported(format!(
            "the engine of this trace, {}, does not record what orders the threads: record the program with --engine order",
            manifest.engine
        )));
    }
    if engine.order == TraceOrder::Told && (options.total || options.with.is_some()) {
        return Err(ReplayError::Unsupported("a recording by the engine det can be replayed and verified, not debugged, nor replayed in another way (--order, --with): there is one such run only".into()));
    }
    if engine.order == TraceOrder::Goroutines {
        return Err(ReplayError::Unsupported("a recording by the engine goroutines can be replayed, verified, dumped and packed, not yet debugged or asked".into()));
    }
    if !engine.can(can::REPLAY) {
        return Err(ReplayError::Unsupported(format!(
            "the engine of this trace, {}, logs nothing that could be replayed",
            manifest.engine
        )));
    }
    let looks_at_all = hunt.is_some() || options.with.is_some();
    if looks_at_all && dir.join(BEGINNING_FILE).exists() {
        return Err(ReplayError::Unsupported("only the last stretch of this run was kept: races are looked for, and rebuilt programs replayed, in whole recordings".into()));
    }
    if hunt.is_some() && has_several_processes(dir)? {
        return Err(ReplayError::Unsupported("races are looked for in recordings of one process that stays the program it is; this one has several: record without forks and execs what is to be looked at".into()));
    }
    crate::machine::check(&manifest)?;
    let reader = Reader::open(dir)?;
    opened::check_contents(dir).map_err(|source| ReplayError::Io {
        what: format!("use the contents in {}", dir.join(FILES_DIR).display()),
        source,
    })?;
    let image = runtime_of(dir, &manifest)?;
    let mut shared = SharedSession::create()?;
    if engine.order == TraceOrder::Stamps {
        shared.add_order(DEFAULT_RING)?;
        void_stamps(&shared, dir);
        if let Some(path) = options.memo.as_ref().filter(|_| options.with.is_none()) {
            memo::load(&shared, &image, path);
        }
    }
    if engine.order == TraceOrder::Told {
        shared.add_order(DEFAULT_RING)?;
    }
    fill(&mut shared, &manifest, options)?;
    if let Some(head) = shared.order().filter(|_| options.total || hunt.is_some()) {
        head.total.begin(0);
        shared.session_mut().flags |= FLAG_TOTAL;
    }
    if let Some(h) = &hunt {
        shared.session_mut().flags |= FLAG_RACES;
        h.prepare(shared.races());
    }
    tracing::info!(
        engine = ?manifest.engine,
        abi_version = manifest.abi_version,
        runtime = %manifest.runtime_hash,
        events = reader.len(),
        "trace"
    );
    Ok(Prepared {
        manifest,
        reader,
        image,
        shared,
    })
}

/// Were processes made, or did one become another program? Without a summary all events are looked at.
pub(crate) fn has_several_processes(dir: &Path) -> Result<bool, ReplayError> {
    let made = [Kind::ProcessStart, Kind::Exec];
    if let Ok(Some(s)) = Summary::read(dir) {
        let count = |k: &Kind| s.events_by_kind.get(k.name()).copied();
        return Ok(made.iter().any(|k| count(k).unwrap_or(0) > 0));
    }
    let mut reader = Reader::open(dir)?;
    while let Ok(Some(event)) = reader.next() {
        if event.parse().is_ok_and(|e| made.contains(&e.kind)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A list of the runtime's, with names.
fn named(dir: &Path, event: u64, list: &CodeList) -> Vec<LearnedCode> {
    let named = |(c, at): (Code, u64)| {
        let place = symbols::place(dir, event, at);
        LearnedCode::new(c, place.unwrap_or_else(|| format!("{at:#x}")))
    };
    list.all().map(named).collect()
}

/// `order`: the number in the trace of the event at which a thread left its path; where the trace has no more of the thread, that of its last one.
/// 0 when the trace can't be read.
fn event_of_thread(dir: &Path, d: &Divergence) -> u64 {
    let moments = [d.event + 1, d.event].map(|n| (d.slot, n));
    let numbers = Mappings::read(dir, &moments).map(|(_, numbers)| numbers);
    let numbers = numbers.unwrap_or_default();
    numbers.into_iter().flatten().next().unwrap_or(0)
}

/// Where in the source a divergence is.
fn place(dir: &Path, s: &Session, d: &Divergence, rebuilt: Option<&Rebuilt>) -> Option<String> {
    let actual = Kind::from_u8(s.divergence.actual_kind.load(Relaxed) as u8);
    // At the gate of a call, the pc is behind the instruction that led there.
    let exact = match actual {
        Some(Kind::Fault | Kind::Signal | Kind::Cut | Kind::Instruction) => true,
        // An instruction in a stub; the others are calls.
        Some(Kind::Sync) => [EntryKind::Ordered, EntryKind::Loaded]
            .iter()
            .any(|k| *k as u32 == s.divergence.actual_detail.load(Relaxed) & !BY_ADDRESS),
        _ => false,
    };
    let pc = d.pc.saturating_sub(!exact as u64);
    let of_rebuilt = rebuilt.and_then(|r| r.place(pc));
    of_rebuilt.or_else(|| symbols::place(dir, d.event, pc))
}

/// Tells the replay which stamps nobody has. Without a summary none are known: such a recording ended in its midst.
fn void_stamps(shared: &SharedSession, dir: &Path) {
    let (Some(head), Ok(Some(summary))) = (shared.order(), Summary::read(dir)) else {
        return;
    };
    let known = summary.void_stamps.len().min(MAX_VOID);
    for (to, stamp) in head.void.iter().zip(&summary.void_stamps) {
        to.store(*stamp, Relaxed);
    }
    head.voids.store(known as u64, Relaxed);
    // The very first may be among them.
    let mut first = 0;
    while summary.void_stamps.binary_search(&first).is_ok() {
        first += 1;
    }
    head.stamp.0.store(first, Relaxed);
}

fn fill(shared: &mut SharedSession, m: &Manifest, options: &Options) -> Result<(), ReplayError> {
    let s = shared.session_mut();
    s.mode = MODE_REPLAY;
    let engine = m.engine();
    s.engine = engine.number;
    s.flags |= match engine.order {
        TraceOrder::Stamps => FLAG_HOOKS,
        TraceOrder::Told => FLAG_HOOKS | FLAG_LOCKED | FLAG_LOGS,
        TraceOrder::Slices if m.hooks => FLAG_HOOKS,
        TraceOrder::Slices | TraceOrder::Goroutines | TraceOrder::Nothing => 0,
    };
    if m.epochs {
        s.flags |= FLAG_EPOCHS;
    }
    set_start(s, &m.start);
    s.xsave_mask = m.start.xsave_mask;
    s.xsave_size = m.start.xsave_size;
    s.affinity_len = m.start.affinity_len;
    for (to, from) in s.affinity.iter_mut().zip(&m.start.affinity) {
        *to = *from;
    }
    if m.start.cpuid.len() > MAX_CPUID {
        return Err(ReplayError::Unsupported(
            "the trace's cpuid table is too long".into(),
        ));
    }
    for (to, from) in s.cpuid.iter_mut().zip(&m.start.cpuid) {
        *to = *from;
    }
    for f in &m.learned {
        s.learned.add(f.code(), 0);
    }
    s.cpuid_len = m.start.cpuid.len() as u32;
    s.flags |= match (m.cpuid_faulting, record::cpuid_faulting()) {
        (true, true) => FLAG_CPUID_FAULTING,
        (true, false) => FLAG_CPUID_REPLACED,
        // The trace says which instructions were replaced.
        (false, _) => 0,
    };
    if engine.order == TraceOrder::Told && s.flags & FLAG_CPUID_REPLACED != 0 {
        // It replaces them as a recording does: nothing of that is in the trace.
        s.flags &= !FLAG_CPUID_REPLACED;
    }
    s.program_pid.store(m.pid as u32, Relaxed);
    s.agent_pid.store(std::process::id(), Relaxed);
    s.unhooked = m.unhooked;
    s.only = options.only.map_or(0, |birth| birth + 1);
    if let Some((address, event)) = options.tamper {
        s.tamper_address = address;
        s.tamper_event = event;
    }
    Ok(())
}

/// A processor for the child: hand-offs between threads are cheap only on one. The recorded one when it is there: code that a program
/// generates sees by cpuid where it runs, unless cpuid traps.
pub(crate) fn processor(recorded: u64) -> Option<usize> {
    let ours = sched_getaffinity(None).ok()?;
    let mut all = (0..CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu));
    let recorded = recorded as usize;
    match recorded < CpuSet::MAX_CPU && ours.is_set(recorded) {
        true => Some(recorded),
        false => all.next(),
    }
}

/// A processor for a replay that runs beside the recording: not the recorded one, when there are others.
pub(crate) fn other_processor(recorded: u64) -> Option<usize> {
    let first = processor(recorded)?;
    let others = (0..1024).filter(|i| *i != first);
    let is_ours = |i: &usize| processor(*i as u64) == Some(*i);
    others.into_iter().find(is_ours).or(Some(first))
}

/// Standard output and error of this process, put back when dropped.
struct Silence([Option<OwnedFd>; 2]);

/// Descriptors below are for the standard streams, and what a program has by their numbers.
const LEAST_COPY: i32 = 10;

/// Sends standard output and error to /dev/null, for the child that is forked meanwhile.
fn silence() -> Result<Silence, ReplayError> {
    let null = nowhere()?;
    let saved = [stdout(), stderr()].map(|stream| fcntl_dupfd_cloexec(stream, LEAST_COPY).ok());
    // Nothing is said where nothing can be.
    let _ = dup2_stdout(&null);
    let _ = dup2_stderr(&null);
    Ok(Silence(saved))
}

impl Drop for Silence {
    fn drop(&mut self) {
        let [output, errors] = &self.0;
        let _ = output.as_ref().map(dup2_stdout);
        let _ = errors.as_ref().map(dup2_stderr);
    }
}
