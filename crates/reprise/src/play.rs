//! `reprise replay`, `verify` and `demo`.

use crate::cli::{DemoArgs, ReplayArgs, ReplayOrder, VerifyArgs};
use crate::goroutines;
use crate::processes::Processes;
use crate::record::exit_status;
use anyhow::Result;
use reprise_abi::engine::can;
use reprise_agent::counters::OUTPUT_BYTES;
use reprise_console::{say, tell};
use reprise_launch::memo;
use reprise_replay::{replay as play, Halt, Options, Outcome, DEADLOCK, TRACE_ENDED};
use reprise_trace::{learned, Catalog, Manifest, Summary, Tail, BEGINNING_FILE};
use std::path::Path;
use std::time::Duration;

/// Exit status of our own failures, divergence included.
pub(crate) const OURS: i32 = 125;

/// Exit status of `verify` when the recording is cut off, and every replay was what there is of it (EX_DATAERR of sysexits.h).
pub(crate) const CUT_OFF: i32 = 65;

/// Whether a replay was all that there is of a recording that ends before its program did: killed, out of disk, or copied in part.
fn is_cut_off(o: &Outcome) -> bool {
    let exact = o.divergence.is_none() && o.halted.is_none() && o.refused.is_empty();
    let damaged = matches!(o.tail, Tail::Damaged { .. });
    let stopped = o.stopped && o.tail == Tail::Complete;
    exact && o.message.0 == TRACE_ENDED && !damaged && !stopped
}

/// What there is to say about a replay that was not the recording's own.
pub(crate) fn complaint(dir: &Path, o: &Outcome) -> Option<String> {
    let end = match (about_end(o), about_redaction(dir)) {
        (Some(end), Some(why)) if left_path(o) => Some(format!("{end}\n{why}")),
        (end, _) => end,
    };
    if o.refused.is_empty() {
        return end;
    }
    let refused = format!(
        "this trace wants to do what no replay does, and was refused: {}",
        o.refused.join(", ")
    );
    Some(end.map_or(refused.clone(), |end| format!("{end}\n{refused}")))
}

/// Whether a replay went another way than the recording, or could not go on.
fn left_path(o: &Outcome) -> bool {
    o.divergence.is_some() || o.halted.is_some() || o.message.0 != TRACE_ENDED
}

/// Of a trace out of which values were taken: what that means for a replay.
pub(crate) fn about_redaction(dir: &Path) -> Option<String> {
    let redacted = Manifest::read(dir).ok()?.redacted?;
    let values = redacted.values;
    Some(format!("this trace was redacted ({values} values are X's): a program that looks at such a value goes another way, which may be why"))
}

/// What there is to say about the end of a replay that was not the recording's own.
fn about_end(o: &Outcome) -> Option<String> {
    if let Some(d) = &o.divergence {
        return Some(format!("the replay diverged from the recording\n{d}"));
    }
    match &o.halted {
        Some(Halt::Stuck(s)) => {
            return Some(format!("{DEADLOCK}{s}"));
        }
        Some(Halt::Signal(_, s)) => return Some(format!("the replay was ended by a signal{s}")),
        Some(Halt::TimeLimit(limit, s)) => {
            return Some(format!(
                "the replay was ended after {} s{s}",
                limit.as_secs()
            ));
        }
        None => {}
    }
    match o.message.0 {
        // All that was recorded has been replayed.
        TRACE_ENDED if o.stopped && o.tail == Tail::Complete => None,
        TRACE_ENDED => Some(match (&o.tail, o.tail.fault()) {
            (Tail::Damaged { .. }, Some(why)) => format!(
                "the trace is damaged: replayed up to event {} ({why})",
                o.events
            ),
            (_, Some(why)) => format!(
                "the recording was cut off: replayed up to event {} ({why})",
                o.events
            ),
            (_, None) => format!(
                "the recording ends at event {} before the program did",
                o.events
            ),
        }),
        5 => Some(format!(
            "event {}: the recorded mapping could not be made here",
            o.message.1
        )),
        6 => Some(format!(
            "a recorded thread could not be started (errno {})",
            o.message.1
        )),
        7 => Some("the runtime gave up".into()),
        8 => Some(
            "no thread can go on, since each waits for another one: a data race made this another run (--engine serial records races, too)".into(),
        ),
        9 => Some(format!(
            "{}: the trace does not have what the program read of it, or it is damaged",
            reprise_trace::inputs::name(o.message.1)
        )),
        _ => None,
    }
}

/// Runs `replay`; the exit status is the recorded program's.
///
/// # Errors
/// When the trace can't be read or the process can't be made.
pub fn replay(args: &ReplayArgs) -> Result<i32> {
    let catalog = Catalog::from_env()?;
    let dir = catalog.resolve(args.trace.as_deref())?;
    if args.marks {
        let status = reprise_replay::marks::show(&dir)?;
        return Ok(status.map_or(OURS, exit_status));
    }
    let manifest = Manifest::read(&dir)?;
    if goroutines::is_of(&manifest) {
        return goroutines::replay(args, &dir, &manifest);
    }
    let one = match args.pid {
        Some(name) => {
            let (all, _) = Processes::of_trace(&dir)?;
            let place = all.named(name)?;
            Some((place, all.list[place].clone()))
        }
        None => None,
    };
    let options = Options {
        tamper: args.tamper.map(|t| (t.address, t.event)),
        total: args.order == ReplayOrder::Total,
        from: args.from,
        with: args.with.clone(),
        only: one.as_ref().map(|(place, _)| *place as u32),
        limit: args.time_limit.map(Duration::from_secs),
        memo: Some(catalog.root().join(memo::FILE)),
        ..Options::default()
    };
    let o = play(&dir, &options)?;
    if let Some(why) = complaint(&dir, &o) {
        say!("{why}");
        let left_path = o.divergence.is_some() || matches!(o.halted, Some(Halt::Stuck(_)));
        if let Some(program) = args.with.as_ref().filter(|_| left_path) {
            say!("{}", of_rebuilt(program, &o));
        } else if !o.functions.is_empty() {
            advise(&o, args.learn)?;
        }
        return Ok(match o.halted {
            Some(Halt::Signal(signal, _)) => 128 + signal,
            _ => OURS,
        });
    }
    if args.narrow {
        narrow(&o)?;
    } else if args.learn && o.learned.iter().any(|f| f.load == 0) {
        say!(
            "all that the learned functions load is logged: replay with --narrow --order total to log only what races"
        );
    }
    if o.stopped && o.message.0 == TRACE_ENDED {
        let first = Summary::read(&dir)
            .ok()
            .flatten()
            .and_then(|s| s.wait_status);
        let Some(status) = first else {
            say!("the recording was stopped at event {}", o.events);
            return Ok(0);
        };
        say!(
            "the recording was stopped at event {}, after the program's first process had ended",
            o.events
        );
        return Ok(exit_status(status));
    }
    // What its parent was told is more exact than how the replay had it end.
    let told = one.and_then(|(_, process)| process.wait_status);
    Ok(exit_status(told.unwrap_or(o.status)))
}

/// Why a rebuilt program left the recorded path.
fn of_rebuilt(program: &Path, o: &Outcome) -> String {
    let name = program.display();
    match o.divergence.as_ref().map(|d| d.kind) {
        _ if o.itself => "this recording can't be replayed by the recorded program itself, which shows what a rebuilt one is to do".into(),
        Some("state") => format!("{name} can't be taken where this recording has a signal in the middle of code, or a child that began while other threads were at work: the recording knows these by the registers and the memory of the recorded program"),
        _ => format!("{name} does something else here than the recorded program. What it only prints, let it print by reprise_printf (reprise header), which is no system call"),
    }
}

/// What to do about a replay that left its path where threads raced.
fn advise(o: &Outcome, learn: bool) -> Result<()> {
    if !learn {
        say!(
            "threads may race there: replay with --learn and record again, or record with --engine serial"
        );
        return Ok(());
    }
    let new = learned::add(Catalog::from_env()?.root(), &o.functions)?;
    for f in &new {
        say!("learned: {}", f.name);
    }
    match new.is_empty() {
        true => say!("nothing new to learn here: record with --engine serial"),
        false => {
            say!("what these functions load is logged from now on: record again")
        }
    }
    Ok(())
}

/// A replay came to its end: of the functions that it was recorded with, only the loads that raced matter.
fn narrow(o: &Outcome) -> Result<()> {
    let catalog = Catalog::from_env()?;
    let Some(left) = learned::narrow(catalog.root(), &o.learned, &o.raced)? else {
        say!("no load of a learned function raced in this replay: nothing changes");
        return Ok(());
    };
    for load in &left {
        say!("this load races, and is logged from now on: {}", load.name);
    }
    Ok(())
}

/// Runs `verify`; 0 when every replay was the recording, [`CUT_OFF`] when it was all that there is of it, else 125. A signal ends it, as it ends
/// other tools, however many replays are left.
///
/// # Errors
/// When the trace can't be read or the process can't be made.
pub fn verify(args: &VerifyArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let manifest = Manifest::read(&dir)?;
    if goroutines::is_of(&manifest) {
        return goroutines::verify(args, &dir, &manifest);
    }
    let options = Options {
        quiet: true,
        total: args.order == ReplayOrder::Total,
        tamper: args.tamper.map(|t| (t.address, t.event)),
        from: args.from,
        limit: args.time_limit.map(Duration::from_secs),
        ..Options::default()
    };
    let (mut bad, mut cut_off) = (0, 0);
    let written = Written::of(&dir)?;
    if let Some(path) = reprise_trace::opened::damaged_content(&dir)? {
        say!(
            "{} is not what its name says: the trace is damaged, or was changed",
            path.display()
        );
        return Ok(125);
    }
    for n in 1..=args.times {
        let o = play(&dir, &options)?;
        let why = complaint(&dir, &o).or_else(|| written.differs(&o));
        if let Some(Halt::Signal(signal, _)) = o.halted {
            say!("{}", why.unwrap_or_default());
            return Ok(128 + signal);
        }
        let partly = is_cut_off(&o);
        cut_off += partly as u64;
        bad += (why.is_some() && !partly) as u64;
        if args.json {
            let line = serde_json::json!({
                "replay": n, "from": o.began, "same": why.is_none() || partly, "cut_off": partly, "events": o.events, "exit": exit_status(o.status),
                "hashes": o.hashes.0, "bytes_hashed": o.hashes.1, "cuts": o.counters[1], "false_hits": o.counters[2],
                "why": why,
            });
            tell!("{line}")?;
        } else {
            let told = match why {
                None => tell!(
                    "replay {n}: the same: {}{} events, {} hashes over {} bytes, exit status {}",
                    o.began
                        .map_or(String::new(), |n| format!("from {n} on of ")),
                    o.events,
                    o.hashes.0,
                    o.hashes.1,
                    exit_status(o.status)
                ),
                Some(why) if partly => tell!("replay {n}: the same as far as it goes: {why}"),
                Some(why) => tell!("replay {n}: DIFFERENT: {why}"),
            };
            told?;
        }
    }
    Ok(match (bad, cut_off) {
        (0, 0) => 0,
        (0, _) => CUT_OFF,
        _ => OURS,
    })
}

/// What a recording has counted of its program's outputs, by name.
struct Written {
    bytes: Vec<(&'static str, u64)>,
    /// The recording can't have missed a byte of what it has in its events, nor a replay have more.
    is_exact: bool,
}

impl Written {
    /// Of a recording that is whole, from the program's first step to its end; of others nothing is known.
    fn of(dir: &Path) -> Result<Written> {
        let summary = Summary::read(dir)?.unwrap_or_default();
        // Who was killed may have written what no event tells of.
        let is_whole = !summary.stopped
            && summary.killed.is_empty()
            && summary.uncaptured.is_empty()
            && !dir.join(BEGINNING_FILE).exists();
        let count = |name: &'static str| Some((name, *summary.counters.get(name)?));
        Ok(Written {
            bytes: match is_whole {
                true => OUTPUT_BYTES.into_iter().filter_map(count).collect(),
                false => Vec::new(),
            },
            // Elsewhere a thread can be ended between its event and its count.
            is_exact: Manifest::read(dir)?.engine().can(can::COUNT_OUTPUT),
        })
    }

    /// How a replay differs from that.
    fn differs(&self, o: &Outcome) -> Option<String> {
        let [out, err] = o.output_bytes;
        let differs = |(name, recorded): &(&'static str, u64)| {
            let (what, replayed) = match OUTPUT_BYTES.iter().position(|n| n == name) {
                Some(0) => ("standard output", out),
                Some(1) => ("standard error", err),
                _ => ("standard output and error", out + err),
            };
            let same = match self.is_exact {
                true => replayed == *recorded,
                false => replayed >= *recorded,
            };
            (!same).then(|| {
                format!("the program wrote {recorded} bytes to its {what}, the replay {replayed}")
            })
        };
        self.bytes.iter().find_map(differs)
    }
}

/// How often the demo records.
const DEMO_RECORDINGS: usize = 5;
/// How often it replays one of them.
const DEMO_REPLAYS: usize = 10;

/// Runs `demo`: the same binary runs the racy program, records it, and replays it.
///
/// # Errors
/// When recording or replay fails.
pub fn demo(args: &DemoArgs) -> Result<i32> {
    use anyhow::Context;
    use std::process::{Command, Stdio};
    let me = std::env::current_exe().context("find this program")?;
    let root = std::env::temp_dir().join(format!("reprise-demo-{}", std::process::id()));
    let run = |words: &[&str]| -> Result<(String, Option<i32>)> {
        let out = Command::new(&me)
            .args(words)
            .env("REPRISE_TRACE_DIR", &root)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("run {}", words.join(" ")))?;
        Ok((
            String::from_utf8_lossy(&out.stdout).trim().to_string(),
            out.status.code(),
        ))
    };
    let say = |text: &str| match args.quiet {
        true => Ok(()),
        false => tell!("{text}"),
    };
    let result = (|| {
        say("Four threads add to one counter without a lock; 400,000 additions in all.")?;
        say(&format!("Recording it {DEMO_RECORDINGS} times:"))?;
        let program = me.to_string_lossy().into_owned();
        let mut outcomes = Vec::new();
        for n in 1..=DEMO_RECORDINGS {
            // Chaos mode makes threads take turns at random places, as a busy machine would.
            let seed = format!("--chaos={n}");
            let (outcome, status) =
                run(&["record", "-q", &seed, "--", &program, crate::racy::ARGUMENT])?;
            anyhow::ensure!(
                status == Some(0),
                "recording {n} ended with status {status:?}"
            );
            say(&format!("  recording {n}: {outcome}"))?;
            outcomes.push(outcome);
        }
        let last = &outcomes[DEMO_RECORDINGS - 1];
        say(&format!("Replaying the last one {DEMO_REPLAYS} times:"))?;
        let mut same = 0;
        for n in 1..=DEMO_REPLAYS {
            let (outcome, status) = run(&["replay", "-q"])?;
            say(&format!("  replay {n}: {outcome}"))?;
            same += (outcome == *last && status == Some(0)) as usize;
        }
        let mut different = outcomes.clone();
        different.sort();
        different.dedup();
        tell!(
            "{} different outcomes in {DEMO_RECORDINGS} recordings; {same} of {DEMO_REPLAYS} replays gave the recorded one.",
            different.len()
        )?;
        say("Record your own program with: reprise record -- PROGRAM ARGS...   then: reprise replay")?;
        Ok(if same == DEMO_REPLAYS { 0 } else { OURS })
    })();
    let _ = std::fs::remove_dir_all(&root);
    result
}
