//! `origin`: where a value comes from. In one process a replay finds the trail (`reprise_debug::origin`), and gdb names its places; from what was
//! read on, the events tell of which byte of which file or stream that was ([`super::streams`]), and in the process that sent it the search goes on.

mod script;
mod told;
mod words;

use super::stream::{Ended, Next};
use super::streams::{self, Birth, Came, Mappings, Sent};
use super::{converse, Here, COMMON, INTERRUPTED};
use crate::cli::{At, OriginArgs};
use crate::debug;
use crate::dump::Narrator;
use anyhow::{Context, Result};
use reprise_console::say;
use reprise_debug::Place as When;
use reprise_trace::{Catalog, Manifest};
use script::{merged, Question, Step, Told};
use serde_json::{json, Value};
use std::path::Path;
use told::Teller;
use words::{location, Location};

/// What gdb is told to run.
const SCRIPT: &str = include_str!("origin.py");
/// Most processes that a value is followed through.
const MOST_PROCESSES: u32 = 64;

/// The search.
struct Search<'a> {
    dir: &'a Path,
    args: &'a OriginArgs,
    teller: Teller<'a>,
    processes: u32,
    status: i32,
    /// Once they were asked for.
    mappings: Option<Mappings>,
}

/// Where the search goes on.
struct Onward {
    process: usize,
    at: When,
    start: Value,
}

/// Runs `origin`.
///
/// # Errors
/// When the trace can't be debugged, or gdb doesn't understand what is asked.
pub fn run(args: &OriginArgs) -> Result<i32> {
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let crashed = Manifest::read(&dir).is_ok() && has_crashed(&dir, args)?;
    let usual = if crashed { When::Crash } else { When::End };
    let at = debug::place(args.at.as_ref(), &dir, usual)?;
    let asks_for_crash = matches!(at, When::Crash | When::Panic);
    let pids = streams::pids(&dir)?;
    if args.pid.is_none() && !asks_for_crash && pids.len() > 1 {
        say!(
            "the trace has {} processes; this is asked of the first one (--pid names others, see `reprise ps`)",
            pids.len()
        );
    }
    let birth = debug::birth(args.pid, at, &dir)?;
    let mut search = Search {
        dir: &dir,
        args,
        teller: Teller { args, pids },
        processes: 0,
        status: 0,
        mappings: None,
    };
    let here = Here {
        dir: &dir,
        birth,
        at,
    };
    let question = Question {
        expression: Some(args.expression.clone()),
        depth: args.depth,
        start: None,
    };
    search.follow(&here, &question, 0)?;
    Ok(search.status)
}

/// Is there a crash, of the process that is asked for?
fn has_crashed(dir: &Path, args: &OriginArgs) -> Result<bool> {
    if matches!(args.at, Some(At::Place(_) | At::Stretch(_))) {
        return Ok(false);
    }
    let processes = crate::processes::Processes::of_trace(dir)?.0;
    Ok(match args.pid {
        Some(name) => {
            let one = &processes.list[processes.named(name)?];
            one.wait_status
                .is_some_and(|status| libc::WIFSIGNALED(status))
        }
        None => processes.crashed(false).is_some(),
    })
}

impl Search<'_> {
    /// Follows a value in one process, and on into those from which it came.
    fn follow(&mut self, here: &Here<'_>, question: &Question, level: u32) -> Result<()> {
        self.processes += 1;
        let process = here.birth as usize;
        let mut steps: Vec<Step> = Vec::new();
        let mut begun = None;
        let script = format!("{COMMON}\n{SCRIPT}");
        let (ended, status) = converse(here, &script, question, |stream| loop {
            match stream.next::<Told>()? {
                Next::Told(told) => {
                    if let Some(start) = told.start {
                        self.teller.start(&start, process)?;
                        begun = Some((start.place, start.event));
                    }
                    steps.extend(told.step);
                }
                Next::Row(_) | Next::Rest => {}
                Next::Ended(ended) => return Ok(ended),
            }
        })?;
        match ended {
            Ended::Whole => {}
            Ended::Interrupted(_) => {
                say!("interrupted: this is what was found up to there");
                self.status = INTERRUPTED;
                return Ok(());
            }
            Ended::Cut => {
                self.status = status;
                return Ok(());
            }
        }
        let begun = begun.or_else(|| match (&question.start, here.at) {
            (Some(start), When::Behind(event)) => {
                let at = start["at"].as_u64();
                at.map(|at| (format!("m:{at:x}:1"), event))
            }
            _ => None,
        });
        self.cut_at_births(&mut steps, process, begun)?;
        if !self.args.json {
            steps = merged(steps);
        }
        for step in &steps {
            self.teller.step(step, process, level)?;
            if step.what == "end" {
                if let Some(onward) = self.end(step, process, level)? {
                    self.go_on(&onward, question.depth, level + step.level)?;
                }
            }
        }
        Ok(())
    }

    fn mappings(&mut self) -> Result<&Mappings> {
        if self.mappings.is_none() {
            self.mappings = Some(Mappings::of(self.dir)?);
        }
        self.mappings.as_ref().context("the mappings were read")
    }

    /// What was written before its memory was mapped anew is not where the value comes from. `begun`: what is looked for, and at which event.
    fn cut_at_births(
        &mut self,
        steps: &mut Vec<Step>,
        process: usize,
        begun: Option<(String, u64)>,
    ) -> Result<()> {
        let Some(mut now) = begun else { return Ok(()) };
        for n in 0..steps.len() {
            if steps[n].kind == "born" {
                // Its memory began before it was read for the last time, as far as that is known.
                steps[n].event = Some(now.1).filter(|_| steps[n].level == 0);
                continue;
            }
            let step = &steps[n];
            if step.level > 0 {
                continue;
            }
            let Some(event) = step.event.filter(|e| *e <= now.1) else {
                continue;
            };
            if let Some(Location::Memory { at, .. }) = location(&now.0) {
                // That of the call itself which maps it comes before.
                let between = self.mappings()?.between(process, at, event..now.1);
                if between.is_some() {
                    let (to, event) = now;
                    steps.truncate(n);
                    steps.push(Step {
                        what: "end".into(),
                        kind: "born".into(),
                        event: Some(event),
                        to: Some(to),
                        ..Step::default()
                    });
                    return Ok(());
                }
            }
            now = (steps[n].from.clone().unwrap_or_default(), event);
        }
        Ok(())
    }

    fn go_on(&mut self, onward: &Onward, depth: u32, level: u32) -> Result<()> {
        if self.processes >= MOST_PROCESSES {
            say!("the value was followed through {MOST_PROCESSES} processes; this is as far as it goes");
            return Ok(());
        }
        let here = Here {
            dir: self.dir,
            birth: onward.process as u32,
            at: onward.at,
        };
        let question = Question {
            expression: None,
            depth,
            start: Some(onward.start.clone()),
        };
        self.follow(&here, &question, level)
    }

    /// The end of a trail, as far as the events tell more of it; where it goes on.
    fn end(&mut self, step: &Step, process: usize, level: u32) -> Result<Option<Onward>> {
        let level = level + step.level;
        let memory = step.to.as_deref().and_then(location);
        match (step.kind.as_str(), memory, step.event) {
            ("input", Some(Location::Memory { at, len }), Some(event)) => {
                self.input(event, at, len, step.thread, level)
            }
            ("result", _, Some(event)) => {
                let call = match streams::words(self.dir, event)? {
                    Some(call) => call,
                    None => narrated(self.dir, event)?,
                };
                let teller = &self.teller;
                teller.result(process, event, step.thread, &call, level)?;
                Ok(None)
            }
            ("born", Some(Location::Memory { at, len }), _) => {
                self.born(step, process, at, len, level)
            }
            ("interrupted", ..) => {
                self.status = INTERRUPTED;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn input(
        &mut self,
        event: u64,
        at: u64,
        len: u32,
        thread: Option<u32>,
        level: u32,
    ) -> Result<Option<Onward>> {
        let input = streams::input(self.dir, event, at, len)?;
        self.teller.input(&input, event, thread, level)?;
        self.came(&input.came, Some(&input), len, level)
    }

    fn came(
        &mut self,
        came: &Came,
        input: Option<&streams::Input>,
        len: u32,
        level: u32,
    ) -> Result<Option<Onward>> {
        match came {
            Came::File { path, offset } => {
                self.teller.file(path, *offset, input, level)?;
                Ok(None)
            }
            Came::Stream {
                stream,
                position,
                what,
            } => self.sender(*stream, *position, what, len, level),
            Came::Call(what) => {
                self.teller.made(what, input, level)?;
                Ok(None)
            }
        }
    }

    /// The search goes on with who wrote this byte of a stream.
    fn sender(
        &mut self,
        stream: usize,
        position: u64,
        what: &str,
        len: u32,
        level: u32,
    ) -> Result<Option<Onward>> {
        let Some(writer) = streams::writer(self.dir, stream, position)? else {
            self.teller.unsent(position, what, level)?;
            return Ok(None);
        };
        self.teller.sent(&writer, position, what, level)?;
        let start = match writer.from {
            Err(came) => return self.came(&came, None, len, level),
            Ok(Sent::At(at)) => json!({"at": at, "len": len}),
            Ok(Sent::Vector { at, count, skip }) => {
                json!({"vector": at, "count": count, "skip": skip, "len": len})
            }
            Ok(Sent::Message { at, skip }) => json!({"message": at, "skip": skip, "len": len}),
        };
        Ok(Some(Onward {
            process: writer.process,
            at: When::Behind(writer.event),
            start,
        }))
    }

    fn born(
        &mut self,
        step: &Step,
        process: usize,
        at: u64,
        len: u32,
        level: u32,
    ) -> Result<Option<Onward>> {
        let before = step.event.unwrap_or(u64::MAX);
        let birth = self.mappings()?.birth(process, at, before);
        let teller = &self.teller;
        teller.born(step, process, (at, len), &birth, level)?;
        Ok(match birth {
            Birth::Parent { process, event, .. } => Some(Onward {
                process,
                at: When::Behind(event),
                start: json!({"at": at, "len": len}),
            }),
            _ => None,
        })
    }
}

/// An event that is no call, as `dump` prints it.
fn narrated(dir: &Path, number: u64) -> Result<String> {
    let manifest = Manifest::read(dir)?;
    let mut reader = reprise_trace::Reader::open(dir)?;
    reader.seek(number)?;
    Ok(match reader.next()? {
        Some(e) => Narrator::of(dir, manifest.pid, 32)
            .tell(number, &e.parse()?)
            .text()
            .to_string(),
        None => "?".into(),
    })
}
