//! `record`, `replay`, `verify` and `dump` of Go programs that `reprise go` has built: at the level of goroutines, without the runtime that other programs
//! get ([`reprise_goroutines`]).
//!
//! The trace is one like others, with a `goroutine` event for each event of the log. The first event, `start`, has the program's file, the seed of its
//! random numbers and its environment.

use crate::cli::{Command, OnFull, RecordArgs, ReplayArgs, VerifyArgs};
use crate::human;
use crate::record::{exit_status, keep_runtime, Run};
use crate::signals::{self, PassedOn};
use anyhow::{bail, Context, Result};
use reprise_abi::engine::{self, Engine, TraceOrder, ENGINES};
use reprise_abi::event::{
    EndReason, Event, EventHeader, Kind, SectionHeader, Tag, HEADER_LEN, NO_SLOT, SECTION_LEN,
};
use reprise_abi::session::VERSION;
use reprise_console::{say, tell};
use reprise_goroutines::log::{self, Done, Entry, Gatherer, Replayed, Ring};
use reprise_goroutines::process::{self, Built, Ended};
use reprise_trace::*;
use serde_json::{json, Map, Value};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Units of the ring: 64 MiB.
const RING: u64 = 1 << 21;
/// How often the ring is looked at when there is nothing in it.
const LOOK: Duration = Duration::from_millis(1);
/// After this time a frame is written, so that a killed recorder costs no more.
const FRAME: Duration = Duration::from_millis(200);
/// What a section of the first event is, by its address.
const SEED: u64 = 0;
const ENVIRONMENT: u64 = 1;

/// The engine whose traces these are.
fn own_engine() -> &'static Engine {
    let is_own = |e: &&Engine| e.order == TraceOrder::Goroutines;
    ENGINES.into_iter().find(is_own).unwrap_or(&engine::NONE)
}

/// Is this program to be recorded by its goroutines?
///
/// # Errors
/// When it was built by another version, or can't be recorded so.
pub fn is_wanted(args: &RecordArgs, program: &Path) -> Result<bool> {
    let asked = args.engine.order == TraceOrder::Goroutines;
    if !asked && args.engine_is_chosen {
        return Ok(false);
    }
    // Who may run a program may not be allowed to read it.
    let built = process::built(program).unwrap_or(Built::Otherwise);
    match built {
        Built::Known => Ok(true),
        Built::Another if asked || !args.quiet => {
            bail!("{}: it was built by `reprise go` of another version: build it again, or record it with --engine serial", program.display())
        }
        _ if asked => bail!(
            "{}: --engine goroutines can't record it: it was not built by `reprise go build`",
            program.display()
        ),
        _ => Ok(false),
    }
}

/// Records one run.
///
/// # Errors
/// When the program can't be started or the trace can't be made.
pub fn record(args: &RecordArgs, program: &Path) -> Result<Run> {
    for (given, option) in [
        (args.chaos.is_some(), "--chaos"),
        (args.keep.is_some(), "--keep"),
        (args.checkpoints, "--checkpoints"),
        (args.checksum.is_some(), "--checksum"),
        (args.hooks, "--hooks"),
        (args.time_limit.is_some(), "--time-limit"),
    ] {
        if given {
            bail!("{option} is not for goroutines: record with --engine serial");
        }
    }
    let catalog = Catalog::from_env()?;
    let dir = match &args.output {
        Some(dir) => Catalog::create_at(dir)?,
        None => catalog.create(program.file_name().unwrap_or(program.as_os_str()))?,
    };
    match in_dir(args, program, &catalog, &dir) {
        Ok(status) => Ok(Run {
            status,
            dir: Some(dir),
            out_of_time: false,
        }),
        Err(e) => {
            // Nothing was recorded: leave no empty trace behind.
            let _ = std::fs::remove_dir_all(&dir);
            Err(e)
        }
    }
}

fn in_dir(args: &RecordArgs, program: &Path, catalog: &Catalog, dir: &Path) -> Result<i32> {
    let began = Instant::now();
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let store = catalog.store()?;
    let runtime_hash = keep_runtime(catalog, &store, dir)?;
    let file = File::open(program).with_context(|| program.display().to_string())?;
    let kept = store.keep_into(&file, program, dir)?;
    let mut seed = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut seed))
        .context("/dev/urandom")?;
    let mut ring = Ring::create(RING, &seed)?;
    let env: Vec<ByteString> = std::env::vars_os()
        .map(|(mut k, v)| {
            k.push("=");
            k.push(v);
            ByteString::from(k.as_os_str())
        })
        .collect();
    let all_env = env
        .iter()
        .map(|e| e.as_bytes())
        .collect::<Vec<_>>()
        .join(&0);
    // Made before there is a program, whose id is not known: nobody reads the stream without a manifest.
    let options = WriterOptions {
        max_size: args.max_size,
        ..WriterOptions::default()
    };
    let mut writer = Writer::with_options(dir, options)?;
    let hash = kept.hash.0;
    writer.push(&event(
        header(Kind::Start, 0),
        &[
            (Tag::File, kept.len, &hash),
            (Tag::Input, SEED, &seed),
            (Tag::Input, ENVIRONMENT, &all_env),
        ],
    ))?;
    let mut child = process::record(program, &args.command, &ring)
        .with_context(|| format!("can't start {}", program.display()))?;
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        reprise_version: env!("CARGO_PKG_VERSION").into(),
        abi_version: VERSION,
        engine: own_engine().name.into(),
        argv: args.command.iter().map(|a| a.as_os_str().into()).collect(),
        env: args.env.cut(env),
        cwd: ByteString::from(std::env::current_dir().unwrap_or_default().as_os_str()),
        exe: program.as_os_str().into(),
        started: started.as_nanos() as u64,
        machine: Machine::current(),
        aslr: true,
        cpuid_faulting: false,
        chaos_seed: None,
        pid: child.id() as i32,
        children: Vec::new(),
        checksum_every: 0,
        learned: Vec::new(),
        hooks: false,
        epochs: false,
        unhooked: 0,
        redacted: None,
        start: Start::default(),
        runtime_hash,
    };
    manifest.write(dir)?;
    let passed_on = PassedOn::to(child.id() as i32);
    let mut sink = Sink {
        writer,
        is_full: false,
        flushed: Instant::now(),
    };
    let status = loop {
        let some = ring.drain(false, |e| sink.push(&e))?;
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if !some {
            std::thread::sleep(LOOK);
        }
        sink.flush_when_old()?;
        if sink.is_full && args.on_full == OnFull::Stop {
            child.kill()?;
        }
    };
    signals::program_has_ended();
    drop(passed_on);
    ring.drain(true, |e| sink.push(&e))?;
    let status = status.into_raw();
    if !sink.is_full {
        let mut end = header(Kind::End, i64::from(status));
        end.detail = EndReason::Ended as u32;
        sink.event(&event(end, &[]))?;
    }
    let is_full = sink.is_full;
    let stats = sink.writer.finish()?;
    let mut summary = Summary::of_stream(&stats);
    summary.duration_ns = began.elapsed().as_nanos() as u64;
    summary.wait_status = Some(status);
    summary.stopped = is_full;
    summary.end_reason = if is_full {
        "the trace is as large as it may get: the recording was stopped"
    } else {
        "the program ended"
    }
    .into();
    if let Some(number) = ring.unknown_call() {
        let name = crate::dump::call_name(number as u32);
        summary.warnings.push(format!("the program made system call {name}, and what that wrote to its memory is not recorded: a replay may diverge"));
    }
    summary.write(dir)?;
    for warning in &summary.warnings {
        say!("{warning}");
    }
    catalog.set_latest(dir)?;
    Ok(status)
}

/// Where recorded events go.
struct Sink {
    writer: Writer,
    is_full: bool,
    flushed: Instant,
}

impl Sink {
    fn push(&mut self, e: &Entry) -> Result<(), TraceError> {
        let h = EventHeader {
            detail: u32::from(e.kind.number),
            flags: e.goroutine,
            input_hash: u64::from(e.pc) | u64::from(e.arg) << 32,
            ..header(Kind::Goroutine, e.value as i64)
        };
        let carried = [(Tag::Input, 0, e.data)];
        self.event(&event(h, if e.data.is_empty() { &[] } else { &carried }))
    }

    /// Writes an event, unless there is no more room: the program goes on then.
    fn event(&mut self, event: &[u8]) -> Result<(), TraceError> {
        if self.is_full {
            return Ok(());
        }
        match self.writer.push(event) {
            Err(e) if e.is_full() => {
                self.is_full = true;
                Ok(())
            }
            other => other,
        }
    }

    fn flush_when_old(&mut self) -> Result<(), TraceError> {
        if !self.is_full && self.flushed.elapsed() > FRAME {
            self.flushed = Instant::now();
            match self.writer.flush_frame() {
                Err(e) if e.is_full() => self.is_full = true,
                other => other?,
            }
        }
        Ok(())
    }
}

fn header(kind: Kind, value: i64) -> EventHeader {
    EventHeader {
        kind: kind as u8,
        slot: NO_SLOT,
        value,
        ..EventHeader::default()
    }
}

/// An event's bytes.
fn event(header: EventHeader, sections: &[(Tag, u64, &[u8])]) -> Vec<u8> {
    let padded = |bytes: &[u8]| SECTION_LEN + bytes.len().next_multiple_of(8);
    let len = HEADER_LEN + sections.iter().map(|s| padded(s.2)).sum::<usize>();
    let mut out = EventHeader {
        len: len as u32,
        ..header
    }
    .to_bytes()
    .to_vec();
    for (tag, address, bytes) in sections {
        let head = SectionHeader {
            address: *address,
            len: bytes.len() as u32,
            tag: *tag as u32,
        };
        out.extend(head.address.to_le_bytes());
        out.extend(head.len.to_le_bytes());
        out.extend(head.tag.to_le_bytes());
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out
}

/// Is the trace in `dir` of goroutines?
pub fn is_of(manifest: &Manifest) -> bool {
    manifest.engine().order == TraceOrder::Goroutines
}

/// Why a command that leads a debugger through a trace can't be had for it.
pub fn refusal(command: &Command) -> Option<&'static str> {
    let trace = match command {
        Command::Replay(a) if a.debug || a.print.is_some() => &a.trace,
        Command::Backtrace(a) => &a.trace,
        Command::Values(a) => &a.part.trace,
        Command::Calls(a) => &a.part.trace,
        Command::Where(a) => &a.part.trace,
        Command::Origin(a) => &a.trace,
        Command::Core(a) => &a.trace,
        _ => return None,
    };
    // Who has no such trace is told so by the command itself.
    let dir = Catalog::from_env().ok()?.resolve(trace.as_deref()).ok()?;
    is_of(&Manifest::read(&dir).ok()?).then_some("a recording of goroutines can be replayed, verified, dumped and packed, not yet debugged or asked")
}

/// A trace, ready to be replayed.
struct Trace {
    log: Gatherer,
    seed: [u8; 32],
    program: PathBuf,
    argv: Vec<CString>,
    env: Vec<CString>,
    /// As the recording ended, when it did in order.
    status: Option<i32>,
    tail: Tail,
}

impl Trace {
    fn read(dir: &Path, manifest: &Manifest) -> Result<Trace> {
        if manifest.abi_version != VERSION {
            bail!(
                "the trace speaks version {} of the event format, this reprise version {VERSION}",
                manifest.abi_version
            );
        }
        let mut reader = Reader::open(dir)?;
        let mut log = Gatherer::default();
        let (mut seed, mut program, mut env, mut status) = (None, None, Vec::new(), None);
        while let Some(event) = reader.next()? {
            let e = event.parse()?;
            match e.kind {
                Kind::Start => {
                    for s in e.sections() {
                        match (s.tag, s.address) {
                            (Tag::File, _) => program = s.bytes.try_into().ok().map(ContentHash),
                            (Tag::Input, SEED) => seed = s.bytes.try_into().ok(),
                            (Tag::Input, ENVIRONMENT) => {
                                env = s
                                    .bytes
                                    .split(|b| *b == 0)
                                    .filter(|v| !v.is_empty())
                                    .map(CString::new)
                                    .collect::<Result<_, _>>()?
                            }
                            _ => {}
                        }
                    }
                }
                Kind::Goroutine => {
                    let Some(entry) = entry(&e) else {
                        bail!(
                            "event {}: an event of goroutines of a kind that is not known",
                            event.number
                        );
                    };
                    log.push(&entry)?;
                }
                Kind::End => status = Some(e.header.value as i32),
                _ => {}
            }
        }
        let hash = program.context("the trace does not say which program it is of")?;
        let path = dir.join(FILES_DIR).join(hash.to_hex());
        if ContentHash::of_file(&File::open(&path).with_context(|| path.display().to_string())?)?.0
            != hash
        {
            bail!(
                "{} is not what its name says: the trace is damaged, or was changed",
                path.display()
            );
        }
        Ok(Trace {
            log,
            seed: seed.context("the trace has no seed")?,
            program: path,
            argv: manifest
                .argv
                .iter()
                .map(|a| CString::new(a.as_bytes()))
                .collect::<Result<_, _>>()?,
            env,
            status,
            tail: reader.tail().clone(),
        })
    }
}

/// What an event says.
fn entry<'a>(e: &Event<'a>) -> Option<Entry<'a>> {
    let h = &e.header;
    Some(Entry {
        kind: log::Kind::of(u8::try_from(h.detail).ok()?)?,
        goroutine: h.flags,
        pc: h.input_hash as u32,
        arg: (h.input_hash >> 32) as u32,
        value: h.value as u64,
        data: e.sections().next().map_or(&[], |s| s.bytes),
    })
}

/// How a replay went.
struct Replay {
    /// In words, when it was not the recording's own.
    why: Option<String>,
    /// It was all that there is of a recording that is cut off.
    is_cut_off: bool,
    events: u64,
    status: i32,
}

/// Replays a trace once.
fn play(dir: &Path, manifest: &Manifest, quiet: bool, limit: Option<Duration>) -> Result<Replay> {
    let trace = Trace::read(dir, manifest)?;
    let (events, has_end) = (trace.log.events(), trace.log.has_end());
    let log = trace.log.finish(&trace.seed)?;
    let replay = process::Replay {
        program: &trace.program,
        argv: trace.argv,
        env: trace.env,
        quiet,
        limit,
    };
    let ended = replay.run(&log).context("the replay can't be started")?;
    let status = match &ended {
        Ended::Itself(status) => *status,
        Ended::TimeLimit => 0,
    };
    let why = match (log.done(), &ended) {
        (Done::Diverged(text), _) => Some(format!(
            "the replay diverged from the recording\n{}",
            text.trim_end()
        )),
        (_, Ended::TimeLimit) => Some(format!(
            "the replay was ended after {} s, at event {}",
            limit.unwrap_or_default().as_secs(),
            log.consumed()
        )),
        (Done::Finished, _) => None,
        (Done::Itself, _) => itself(&log, trace.status.filter(|_| has_end), status),
    };
    let cut = trace.status.is_none() && why.is_none();
    let status = match (log.done(), trace.status) {
        (Done::Finished, Some(recorded)) => recorded,
        _ => status,
    };
    let cut_off = cut.then(|| {
        let fault = trace
            .tail
            .fault()
            .unwrap_or_else(|| "its recording was stopped".into());
        format!("the recording was cut off: replayed up to event {events} ({fault})")
    });
    Ok(Replay {
        is_cut_off: cut,
        why: why.or(cut_off),
        events,
        status,
    })
}

/// What there is to say about a program that ended by itself in its replay.
fn itself(log: &Replayed, recorded: Option<i32>, status: i32) -> Option<String> {
    match recorded {
        Some(recorded) if recorded == status => None,
        Some(recorded) => Some(format!(
            "the program {}; recorded was that it {}",
            human::end(status),
            human::end(recorded)
        )),
        None => Some(format!(
            "the program {} at event {}, and the recording goes on",
            human::end(status),
            log.consumed()
        )),
    }
}

/// `replay`; the exit status is the recorded program's.
///
/// # Errors
/// When the trace can't be read or the process can't be made.
pub fn replay(args: &ReplayArgs, dir: &Path, manifest: &Manifest) -> Result<i32> {
    for (given, option) in [
        (args.from.is_some(), "--from"),
        (args.pid.is_some(), "--pid"),
        (args.with.is_some(), "--with"),
        (args.learn, "--learn"),
        (args.narrow, "--narrow"),
        (args.tamper.is_some(), "--tamper"),
    ] {
        if given {
            bail!("{option} is not for recordings of goroutines");
        }
    }
    let r = play(
        dir,
        manifest,
        args.quiet,
        args.time_limit.map(Duration::from_secs),
    )?;
    if let Some(why) = r.why {
        say!("{why}");
        return Ok(crate::play::OURS);
    }
    Ok(exit_status(r.status))
}

/// `verify`
///
/// # Errors
/// When the trace can't be read or the process can't be made.
pub fn verify(args: &VerifyArgs, dir: &Path, manifest: &Manifest) -> Result<i32> {
    // Replays are in a total order always.
    if args.from.is_some() || args.tamper.is_some() {
        bail!("--from is not for recordings of goroutines");
    }
    let (mut bad, mut cut_off) = (0, 0);
    for n in 1..=args.times {
        let r = play(
            dir,
            manifest,
            true,
            args.time_limit.map(Duration::from_secs),
        )?;
        let same = r.why.is_none() || r.is_cut_off;
        bad += u64::from(!same);
        cut_off += u64::from(r.is_cut_off);
        let (events, exit) = (r.events, exit_status(r.status));
        match (args.json, r.why) {
            (true, why) => tell!(
                "{}",
                json!({ "replay": n, "same": same, "cut_off": r.is_cut_off, "events": events, "exit": exit, "why": why })
            )?,
            (_, None) => tell!("replay {n}: the same: {events} events, exit status {exit}")?,
            (_, Some(why)) if r.is_cut_off => {
                tell!("replay {n}: the same as far as it goes: {why}")?
            }
            (_, Some(why)) => tell!("replay {n}: DIFFERENT: {why}")?,
        }
    }
    Ok(match (bad, cut_off) {
        (0, 0) => 0,
        (0, _) => crate::play::CUT_OFF,
        _ => crate::play::OURS,
    })
}

/// The kind of a `goroutine` event.
pub fn name_of(event: &Event) -> &'static str {
    u8::try_from(event.header.detail)
        .ok()
        .and_then(log::Kind::of)
        .map_or("goroutine", |k| k.name)
}

/// What `dump` says of a `goroutine` event.
pub fn told(event: &Event) -> (String, Map<String, Value>) {
    let name = name_of(event);
    let Some(e) = entry(event) else {
        return (name.into(), Map::new());
    };
    let who = match e.goroutine {
        0 => "timers".into(),
        id => format!("goroutine {id}"),
    };
    let mut fields = Map::new();
    fields.insert("goroutine".into(), e.goroutine.into());
    fields.insert("what".into(), name.into());
    fields.insert("pc".into(), e.pc.into());
    fields.insert("argument".into(), e.arg.into());
    fields.insert("value".into(), e.value.into());
    fields.insert("bytes".into(), e.data.len().into());
    let text = match e.kind.number {
        log::SYSCALL => {
            let errno = e
                .data
                .get(4..8)
                .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let call = crate::dump::call_name(e.arg);
            fields.insert("call".into(), call.to_string().into());
            match errno {
                0 => format!("{who}: {call} = {}", e.value as i64),
                errno => format!("{who}: {call} = -{errno}"),
            }
        }
        _ if e.kind.is_ordered => format!("{who}: {name}"),
        _ => format!(
            "{who}: {name} = {}",
            if e.kind.number == 1 {
                u64::from(e.arg)
            } else {
                e.value
            }
        ),
    };
    (
        if e.pc == 0 {
            text
        } else {
            format!("{text} at {:#x}", e.pc)
        },
        fields,
    )
}
