//! The JSON of the trace event format ("Trace Event Format", Google), which the Perfetto UI and chrome://tracing read.
//!
//! Each thread is a track; calls are slices (`X`, or `B` and `E` where other threads ran meanwhile), all else instants; who has the baton is a
//! track of its own, of a process that is none. One microsecond of the picture is one event of the trace. On each track what is
//! written is in order of time; flows (`s` and `f`) are written where they end.

use crate::dump::Line;
use crate::human;
use crate::timeline::{label, Flow, Mark, Place, Step, Timeline};
use reprise_abi::engine::TraceOrder;
use reprise_abi::event::{Event, Instruction, Kind, NO_SLOT};
use reprise_trace::Manifest;
use serde_json::{json, Value};
use std::collections::{HashMap, HashSet};
use std::io::{Result, Write};

/// Above all process and thread ids of Linux (PID_MAX_LIMIT): ids that are made up begin here.
const MADE_UP: i64 = 1 << 22;
/// The process that has the baton's track.
const BATON: i64 = MADE_UP;
/// The engine whose threads take turns.
/// How a slice ends that is cut.
const CUT: &str = "cut in the middle of code";
/// How a slice ends in which nothing is done but to look at memory.
const WAITS: &str = "waits for another thread by looking at memory";
/// Most characters of a command line in a name.
const COMMAND: usize = 200;

/// Who has the baton.
struct Holder {
    thread: usize,
    since: u64,
    /// How the one before handed it on.
    why: &'static str,
}

/// Writes the file.
pub struct TraceEvents<W: Write> {
    out: W,
    /// The ids of each thread's track, in order of the threads.
    tracks: Vec<(i64, i64)>,
    /// The id of each process, in order of the processes.
    pids: HashMap<usize, i64>,
    /// Ids that are given.
    used: HashSet<i64>,
    next_made_up: i64,
    flows: u64,
    baton: bool,
    holder: Option<Holder>,
    /// How the thread that ran last stopped.
    stopped: &'static str,
    manifest: Value,
}

impl<W: Write> TraceEvents<W> {
    /// The beginning of the file.
    pub fn begin(mut out: W, manifest: &Manifest) -> Result<TraceEvents<W>> {
        let words: Vec<String> = manifest.argv.iter().map(ToString::to_string).collect();
        let about = json!({
            "made by": format!("reprise {}", env!("CARGO_PKG_VERSION")),
            "command": human::command_line(words.iter().map(String::as_str)),
            "engine": manifest.engine,
            "recorded": human::moment(manifest.started),
            "time": "one microsecond is one event of the trace: a trace has no clock. Event N, as `reprise dump` numbers it, is at N us.",
        });
        out.write_all(b"{\"traceEvents\":[\n")?;
        let mut page = TraceEvents {
            out,
            tracks: Vec::new(),
            pids: HashMap::new(),
            used: HashSet::from([BATON]),
            next_made_up: MADE_UP + 1,
            flows: 0,
            baton: manifest.engine().order == TraceOrder::Slices,
            holder: None,
            stopped: "",
            manifest: about,
        };
        if page.baton {
            page.metadata("process_name", (BATON, BATON), json!({ "name": "reprise" }))?;
            page.metadata(
                "process_sort_index",
                (BATON, BATON),
                json!({ "sort_index": -1 }),
            )?;
            page.metadata("thread_name", (BATON, BATON), json!({ "name": "baton" }))?;
        }
        Ok(page)
    }

    /// An event.
    pub fn event(
        &mut self,
        number: u64,
        event: &Event,
        line: &Line,
        step: &Step,
        timeline: &Timeline,
    ) -> Result<()> {
        for thread in &step.cut_off {
            self.close(*thread, number, timeline)?;
        }
        let Some(thread) = step.thread else {
            return Ok(());
        };
        let track = self.track(thread, timeline)?;
        if step.named {
            self.names(thread, event.kind, timeline)?;
        }
        self.run(number, event, thread, timeline)?;
        let args = json!({ "event": number, "text": line.text() });
        let kind = event.kind.name();
        match step.mark {
            Mark::Call(_) => self.slice("call", &label(event), track, number, args)?,
            Mark::Sync | Mark::Life => self.slice(kind, &label(event), track, number, args)?,
            Mark::Enter(_) => {
                let all = json!({ "name": label(event), "cat": "call", "ph": "B", "ts": number, "args": args });
                self.put(all, track)?;
            }
            Mark::Exit(began) => {
                let args =
                    json!({ "ended": number, "result": line.text(), "events": number - began + 1 });
                self.put(json!({ "ph": "E", "ts": number + 1, "args": args }), track)?;
            }
            Mark::Instant => {
                let all = json!({ "name": label(event), "cat": kind, "ph": "i", "s": "t", "ts": number, "args": args });
                self.put(all, track)?;
            }
        }
        for flow in &step.flows {
            self.flow(flow, timeline)?;
        }
        Ok(())
    }

    /// The end of the file: what is still open ends with the trace.
    pub fn end(mut self, events: u64, torn: Option<&str>, timeline: &Timeline) -> Result<()> {
        for thread in 0..timeline.threads.len() {
            if timeline.in_call_since(thread).is_some() {
                self.close(thread, events, timeline)?;
            }
        }
        self.hand_on(events, None, timeline)?;
        if self.tracks.is_empty() {
            self.track(0, timeline)?;
            self.names(0, Kind::Start, timeline)?;
        }
        let mut about = std::mem::take(&mut self.manifest);
        about["events"] = events.into();
        about["flows"] = self.flows.into();
        if timeline.backward() > 0 {
            let why = format!("{} times a lock changed hands in another order than the events stand in the trace: no flow shows it", timeline.backward());
            about["flows that are missing"] = why.into();
        }
        if let Some(note) = torn {
            about["incomplete"] = note.into();
        }
        // Something without a comma behind it is needed at the end of the list.
        let last = json!({ "name": "reprise", "ph": "M", "pid": 0, "tid": 0, "ts": 0, "args": {} });
        let tail = json!({ "displayTimeUnit": "ns", "otherData": about }).to_string();
        write!(self.out, "{last}\n],{}\n", &tail[1..])?;
        self.out.flush()
    }

    /// The ids of a thread's track. Other processes or threads may have had the same ids, in another time or namespace: those that come
    /// later get ids that no Linux gives.
    fn track(&mut self, thread: usize, timeline: &Timeline) -> Result<(i64, i64)> {
        while self.tracks.len() <= thread {
            let t = &timeline.threads[self.tracks.len()];
            let (process, tid) = (t.process, t.tid);
            let pid = match self.pids.get(&process) {
                Some(pid) => *pid,
                None => {
                    let own = timeline.processes.list[process].pid;
                    let pid = self.unused(own);
                    self.pids.insert(process, pid);
                    self.metadata(
                        "process_sort_index",
                        (pid, pid),
                        json!({ "sort_index": process }),
                    )?;
                    self.tracks.push((pid, pid));
                    continue;
                }
            };
            let tid = self.unused(tid);
            self.tracks.push((pid, tid));
        }
        Ok(self.tracks[thread])
    }

    fn unused(&mut self, wanted: i64) -> i64 {
        if wanted > 0 && self.used.insert(wanted) {
            return wanted;
        }
        let made_up = self.next_made_up;
        self.next_made_up += 1;
        self.used.insert(made_up);
        made_up
    }

    fn names(&mut self, thread: usize, kind: Kind, timeline: &Timeline) -> Result<()> {
        let t = &timeline.threads[thread];
        let ids = self.tracks[thread];
        let name = match ids.1 == t.tid {
            true => t.name.clone(),
            false => format!("{} (id {})", t.name, t.tid),
        };
        self.metadata("thread_name", ids, json!({ "name": name }))?;
        if matches!(kind, Kind::Start | Kind::ProcessStart | Kind::Exec) {
            let process = &timeline.processes.list[t.process];
            let command = human::command_line(process.command.iter().map(String::as_str));
            let command = human::tame(&command, COMMAND);
            self.metadata("process_name", ids, json!({ "name": command }))?;
        }
        Ok(())
    }

    /// The call that a thread is in ends here, as far as the trace tells.
    fn close(&mut self, thread: usize, at: u64, timeline: &Timeline) -> Result<()> {
        let ids = self.track(thread, timeline)?;
        let args = json!({ "ended": "not in the trace" });
        self.put(json!({ "ph": "E", "ts": at, "args": args }), ids)
    }

    /// Who runs.
    fn run(
        &mut self,
        number: u64,
        event: &Event,
        thread: usize,
        timeline: &Timeline,
    ) -> Result<()> {
        let own = event.header.slot != NO_SLOT && event.kind != Kind::End;
        if !self.baton || !own {
            return Ok(());
        }
        if self.holder.as_ref().is_none_or(|h| h.thread != thread) {
            self.hand_on(number, Some(thread), timeline)?;
        }
        self.stopped = match event.kind {
            Kind::Enter => "in a call",
            // It hands on right after it was cut, perhaps with a gate put where it waits.
            Kind::Yield | Kind::Patch if self.stopped == CUT => CUT,
            Kind::Yield if self.stopped == WAITS => WAITS,
            Kind::Yield => "at a gate",
            Kind::Instruction if event.header.detail == Instruction::GaveWay as u32 => WAITS,
            Kind::Cut => CUT,
            Kind::ThreadExit | Kind::ProcessEnd => "ended",
            _ => "",
        };
        Ok(())
    }

    fn hand_on(&mut self, number: u64, to: Option<usize>, timeline: &Timeline) -> Result<()> {
        let why = std::mem::take(&mut self.stopped);
        let before = self.holder.take();
        let named = |thread: usize| {
            let t = &timeline.threads[thread];
            format!("{} {}", t.name, t.tid)
        };
        if let Some(had) = &before {
            let args = json!({ "taken": had.since, "events": number - had.since, "got it because the other": had.why });
            let all = json!({
                "name": named(had.thread), "cat": "baton", "ph": "X", "ts": had.since, "dur": number - had.since, "args": args,
            });
            self.put(all, (BATON, BATON))?;
        }
        let Some(thread) = to else { return Ok(()) };
        if let Some(had) = &before {
            let args = json!({ "event": number, "from": named(had.thread), "to": named(thread), "why": why });
            let all = json!({ "name": "hand-off", "cat": "baton", "ph": "i", "s": "t", "ts": number, "args": args });
            self.put(all, (BATON, BATON))?;
        }
        self.holder = Some(Holder {
            thread,
            since: number,
            why,
        });
        Ok(())
    }

    fn flow(&mut self, flow: &Flow, timeline: &Timeline) -> Result<()> {
        self.flows += 1;
        for (ph, Place { event, thread }) in [("s", flow.from), ("f", flow.to)] {
            let ids = self.track(thread, timeline)?;
            // In the middle of the event's slice.
            let ts = event as f64 + 0.5;
            let mut all = json!({ "name": flow.name, "cat": flow.kind, "ph": ph, "id": self.flows, "ts": ts });
            if ph == "f" {
                all["bp"] = "e".into();
            }
            self.put(all, ids)?;
        }
        Ok(())
    }

    fn slice(
        &mut self,
        category: &str,
        name: &str,
        ids: (i64, i64),
        number: u64,
        args: Value,
    ) -> Result<()> {
        let all = json!({ "name": name, "cat": category, "ph": "X", "ts": number, "dur": 1, "args": args });
        self.put(all, ids)
    }

    fn metadata(&mut self, name: &str, ids: (i64, i64), args: Value) -> Result<()> {
        self.put(json!({ "name": name, "ph": "M", "args": args }), ids)
    }

    fn put(&mut self, mut all: Value, (pid, tid): (i64, i64)) -> Result<()> {
        all["pid"] = pid.into();
        all["tid"] = tid.into();
        writeln!(self.out, "{all},")
    }
}
