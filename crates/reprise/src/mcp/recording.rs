//! Tools that make recordings: `record`, `chaos_until_failure`.

use super::child::{self, last_words};
use super::limits::Limits;
use super::running::{self, Ran, Wanted};
use super::sessions::Sessions;
use super::tool::Question;
use crate::human;
use anyhow::{bail, ensure, Context, Result};
use reprise_trace::{Catalog, Summary, EVENTS_FILE};
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A trace becomes no larger when nothing else is asked for.
const SIZE: &str = "2G";
/// Seconds of a run, when many are tried and nothing else is asked for.
const RUN_SECONDS: u64 = 10;
/// Runs that are tried when nothing else is asked for, ...
const RUNS: u64 = 100;
/// ... and at most.
const MOST_RUNS: u64 = 100_000;
/// Exit statuses of `record` itself: it failed, the program can't be run, there is none.
const OWN: std::ops::RangeInclusive<i32> = 125..=127;

/// Records a program.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The program and its arguments; no shell looks at them
    command: Vec<String>,
    /// The directory in which it runs
    directory: Option<String>,
    /// Variables that are added to its environment
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// What it reads from its standard input (else nothing)
    stdin: Option<String>,
    /// `serial` (the default): exact for any program, threads take turns; `order`: on all processors, needed for `races`
    engine: Option<String>,
    /// Randomise when threads take turns, with this seed
    chaos_seed: Option<u64>,
    /// Most that the trace may become, like 500M (2G)
    max_size: Option<String>,
}

impl Question for Record {
    const NAME: &'static str = "record";
    const ABOUT: &'static str = "Run a program and record all that it takes to replay it exactly. Answers with the trace, how it ended, and what it wrote. A program that does not end by itself \
is ended when time_limit_s is over: its trace is good for all questions (where does it hang?).";
    const RUNS: bool = true;

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let dir = new_trace(&self.command)?;
        let ran = recorded(&dir, self.wanted(&dir, &limits, &[]), limits.end).await?;
        let mut told = self.told(&dir, &ran).await?;
        told.insert("next".into(), json!("summary"));
        Ok(told.into())
    }
}

impl Record {
    fn wanted(&self, dir: &Path, limits: &Limits, more: &[String]) -> Wanted {
        let mut arguments: Vec<OsString> = vec!["record".into(), "-q".into(), "-o".into()];
        arguments.push(dir.into());
        arguments.push("--max-size".into());
        arguments.push(self.max_size.as_deref().unwrap_or(SIZE).into());
        arguments.push("--on-full=stop".into());
        if let Some(engine) = &self.engine {
            arguments.extend(["--engine".into(), engine.into()]);
        }
        if let Some(seed) = self.chaos_seed {
            arguments.push(format!("--chaos={seed}").into());
        }
        arguments.extend(more.iter().map(Into::into));
        arguments.push("--".into());
        arguments.extend(self.command.iter().map(Into::into));
        Wanted {
            arguments,
            directory: self.directory.as_ref().map(PathBuf::from),
            environment: self.env.clone(),
            input: self.stdin.clone(),
            kept: limits.bytes / 4,
        }
    }

    /// What is told of a recording that was made.
    async fn told(&self, dir: &Path, ran: &Ran) -> Result<Map<String, Value>> {
        if !dir.join(EVENTS_FILE).exists() {
            let _ = std::fs::remove_dir(dir);
            match ran.status {
                Some(status) if OWN.contains(&status) => {
                    bail!("{}", last_words(ran.errors.text().as_bytes()))
                }
                _ if ran.timed_out => bail!("the time was over before the program ran"),
                _ => bail!(
                    "nothing was recorded: {}",
                    last_words(ran.errors.text().as_bytes())
                ),
            }
        }
        let summary = Summary::read(dir)?;
        let end = summary.as_ref().and_then(|s| s.wait_status);
        let mut told = Map::new();
        told.insert("trace".into(), name_of(dir));
        let end = match (end, ran.status) {
            (Some(status), _) => human::end(status),
            (None, _) => "not known".into(),
        };
        told.insert("end".into(), end.into());
        if ran.timed_out {
            told.insert("ended_by_time_limit".into(), true.into());
        }
        if let Some(summary) = summary {
            told.insert("events".into(), summary.events.into());
        }
        for (name, kept) in [("stdout", &ran.output), ("stderr", &ran.errors)] {
            let text = kept.value();
            if !text.is_null() {
                told.insert(name.into(), text);
            }
        }
        Ok(told)
    }
}

/// Records into this directory, which goes when nothing could be started.
async fn recorded(dir: &Path, wanted: Wanted, end: Instant) -> Result<Ran> {
    let ran = running::record(wanted, end).await;
    if ran.is_err() {
        let _ = std::fs::remove_dir(dir);
    }
    ran
}

/// The name by which a trace is asked for.
fn name_of(dir: &Path) -> Value {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    name.into_owned().into()
}

/// A directory for a trace of this program.
fn new_trace(command: &[String]) -> Result<PathBuf> {
    let program = command.first().filter(|p| !p.is_empty());
    let program = program.context("command names no program")?;
    let name = Path::new(program).file_name();
    Ok(Catalog::from_env()?.create(name.unwrap_or(program.as_ref()))?)
}

/// Records a program again and again until it fails.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChaosUntilFailure {
    /// The program and its arguments; no shell looks at them
    command: Vec<String>,
    /// The directory in which it runs
    directory: Option<String>,
    /// Variables that are added to its environment
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// What it reads from its standard input (else nothing)
    stdin: Option<String>,
    /// `serial` (the default) or `order`
    engine: Option<String>,
    /// Most runs to try (100)
    runs: Option<u64>,
    /// Seed of the first run; each has the next one (1)
    seed: Option<u64>,
    /// Seconds after which a run counts as one that hangs, which is a failure (10)
    run_limit_s: Option<u64>,
}

impl Question for ChaosUntilFailure {
    const NAME: &'static str = "chaos_until_failure";
    const ABOUT: &'static str = "Run a program under randomised scheduling, with one seed after the other, until a run fails (ends with another status than 0, by a signal, or hangs); only that run's \
recording is kept. For bugs that show up now and then.";
    const RUNS: bool = true;

    async fn answer(self, _: Arc<Sessions>, limits: Limits) -> Result<Value> {
        let runs = self.runs.unwrap_or(RUNS);
        ensure!(
            (1..=MOST_RUNS).contains(&runs),
            "runs is from 1 to {MOST_RUNS}"
        );
        let first = self.seed.unwrap_or(1);
        let each = Duration::from_secs(self.run_limit_s.unwrap_or(RUN_SECONDS).max(1));
        let mut record = Record {
            command: self.command,
            directory: self.directory,
            env: self.env,
            stdin: self.stdin,
            engine: self.engine,
            chaos_seed: None,
            max_size: None,
        };
        for run in 0..runs {
            let seed = first.wrapping_add(run);
            record.chaos_seed = Some(seed);
            let dir = new_trace(&record.command)?;
            let begun = Instant::now();
            let end = limits.end.min(begun + each);
            let wanted = record.wanted(&dir, &limits, &["--keep-on=failure".into()]);
            let ran = recorded(&dir, wanted, end).await?;
            if ran.timed_out && begun.elapsed() < each {
                // It was not given the time that was to be a failure.
                let _ = child::lines(
                    &child::words([&"rm", &"-q", &dir]),
                    0,
                    |_| true,
                    &after(&limits),
                )
                .await;
                return Ok(not_found(run, seed, Some(limits.seconds)));
            }
            if ran.status == Some(0) {
                continue;
            }
            let mut told = record.told(&dir, &ran).await?;
            told.insert("failed".into(), true.into());
            told.insert("run".into(), (run + 1).into());
            told.insert("seed".into(), seed.into());
            if ran.timed_out {
                told.remove("ended_by_time_limit");
                told.insert("hangs".into(), true.into());
            }
            told.insert("next".into(), json!("summary"));
            return Ok(told.into());
        }
        Ok(not_found(runs, first.wrapping_add(runs), None))
    }
}

/// For what is cleaned up when the time is over.
fn after(limits: &Limits) -> Limits {
    Limits {
        end: Instant::now() + Duration::from_secs(5),
        ..*limits
    }
}

fn not_found(runs: u64, next: u64, seconds: Option<u64>) -> Value {
    let mut told = json!({"failed": false, "runs": runs, "next": {"seed": next}});
    if let Some(seconds) = seconds {
        let why = format!("the time limit of {seconds} s was over");
        told["why"] = why.into();
    }
    told
}
