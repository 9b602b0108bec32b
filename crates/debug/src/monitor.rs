//! Commands of ours, which gdb sends as they are (`monitor when`), and the names under which gdb knows them.

use crate::python;
use crate::target::{Goal, Remembered, Session};
use crate::DebugError;
use gdbstub::target::ext::monitor_cmd::{outputln, ConsoleOutput, MonitorCmd};
use reprise_abi::event::{EventHeader, Kind};
use reprise_abi::syscalls;
use reprise_trace::Reader;
use std::rc::Rc;

/// Commands for gdb itself. A motion of ours is made as a reverse-continue: gdb sees where it has led, and does not step off breakpoints
/// first.
pub const COMMANDS: &str = "\
set confirm off
set stack-cache off
macro define errno (*(int *) &errno)
define run
monitor run-to 0
reverse-continue
python if any(b.enabled for b in gdb.breakpoints()): gdb.execute('continue')
end
document run
Go to the beginning of the recording, and on to the first breakpoint, if there are any.
end
define start
monitor run-to 0
reverse-continue
tbreak main
continue
end
document start
Go to the beginning of the recording, and on to main.
end
define when
monitor when
end
document when
How many events of the recording have happened, and whose the next one is.
end
define run-to
monitor run-to $arg0
reverse-continue
end
document run-to
run-to EVENT: go, forward or back, to where EVENT events of the recording have happened.
end
define events
if $argc == 0
monitor events
else
monitor events $arg0
end
end
document events
events [N]: the N events (10) before this place and the N after it.
end
define checkpoint
monitor checkpoint
end
document checkpoint
Remember this place, for restart.
end
define restart
monitor restart $arg0
reverse-continue
end
document restart
restart N: go to the place that checkpoint N remembers.
end
define delete checkpoint
monitor forget $arg0
end
document delete checkpoint
delete checkpoint N: forget the place that checkpoint N remembers.
end
define info checkpoints
monitor checkpoints
end
document info checkpoints
The places that checkpoint has remembered, and what can be gone back to at once.
end
define last-write
if $argc == 1
watch -location $arg0
else
watch -location ($arg0 $arg1 $arg2)
end
reverse-continue
delete $bpnum
end
document last-write
last-write EXPRESSION: go back to the instruction that wrote this last. For an address, say *(TYPE *) ADDRESS; write it without spaces.
end
define catch hook-syscall
python why = gdb.execute('monitor catches', to_string=True).strip()
python if why != 'yes': raise gdb.GdbError(why)
end
set confirm on
";

const HELP: &str = "\
when            how many events have happened
events [N]      the N events before this place and the N after it
state           hashes of the memory and of all threads' registers, the same whenever this place is come to
checkpoint      remembers this place
checkpoints     the places that are remembered, how many places can be gone back to at once, and what memory that takes
python [THREAD] stacks of CPython's threads, in JSON
forget N        forgets a remembered place
restart N       the next motion, whatever it is, leads to a remembered place
catches         can system calls be caught? (yes, or why not)
conditions      how many breakpoints' conditions are tested by the program itself, and how often it had to be stopped for others
run-to EVENT    the next motion, whatever it is, leads to where EVENT events have happened";

const ASTRAY: &str = "this is a copy of the program, which has left the recorded path (run-to, restart and all ways back leave it)";

/// Most places that a debugger may have remembered: each is a process that waits.
pub const MOST_REMEMBERED: usize = 64;
/// Events that are shown before and after a place, when nobody says how many.
const SHOWN: u64 = 10;
/// Most that are shown.
const MOST_SHOWN: u64 = 10_000;

impl MonitorCmd for Session {
    fn handle_monitor_cmd(
        &mut self,
        cmd: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), DebugError> {
        let text = String::from_utf8_lossy(cmd);
        let words: Vec<&str> = text.split_whitespace().collect();
        if !self.is_astray() {
            self.end_diversion()?;
        }
        let said = match words[..] {
            ["state"] if self.is_astray() => ASTRAY.to_string(),
            ["when"] => self.when()?,
            ["events"] => self.events_near(SHOWN)?,
            ["events", n] => match n.parse() {
                Ok(n) => self.events_near(n)?,
                Err(_) => format!("{n} is no number of events"),
            },
            ["state"] => self.debuggee()?.state_in_words()?,
            ["checkpoint"] => match self.remember("")? {
                Ok((n, event)) => format!("checkpoint {n} is at event {event}"),
                Err(why) => why,
            },
            ["catches"] => match self.debuggee()?.timeline.is_order {
                true => {
                    "system calls can't be caught in a recording by the engine order".to_string()
                }
                false => "yes".to_string(),
            },
            ["conditions"] => {
                let points = &self.debuggee()?.points;
                format!(
                    "{} conditions are compiled into the code; {} visits were stops at conditions that did not hold",
                    points.compiled.len(),
                    points.false_stops
                )
            }
            ["checkpoints"] => self.remembered()?,
            ["collect", ref rest @ ..] => self.collect(rest)?,
            ["origin", ref rest @ ..] => self.origin(rest)?,
            ["python"] => python::as_json(&self.debuggee()?.python(None)),
            ["python", thread] => match thread.parse() {
                Ok(thread) => python::as_json(&self.debuggee()?.python(Some(thread))),
                Err(_) => format!("{thread} is no thread"),
            },
            ["forget", n] => match number(n).and_then(|n| self.kept.remove(&n)) {
                Some(_) => format!("checkpoint {n} is forgotten"),
                None => format!("there is no checkpoint {n}"),
            },
            ["restart", n] => match number(n).and_then(|n| self.kept.get(&n)) {
                Some(kept) => {
                    self.goal = Some(Goal::Checkpoint(Rc::clone(&kept.checkpoint)));
                    return Ok(());
                }
                None => {
                    self.goal = Some(Goal::Here);
                    format!("there is no checkpoint {n}")
                }
            },
            ["run-to", event] => match event.parse() {
                Ok(event) => match self.out_of_reach(event)? {
                    Some(why) => {
                        self.goal = Some(Goal::Here);
                        why
                    }
                    None => {
                        self.goal = Some(Goal::Event(event));
                        return Ok(());
                    }
                },
                Err(_) => {
                    self.goal = Some(Goal::Here);
                    format!("{event} is no number of an event")
                }
            },
            _ => HELP.to_string(),
        };
        outputln!(out, "{said}");
        Ok(())
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

impl Session {
    /// Where the replay is, in words.
    fn when(&mut self) -> Result<String, DebugError> {
        let d = self.debuggee()?;
        let (now, all) = (d.next_event(), d.timeline.len());
        let next = d.timeline.event(now).filter(|_| now < d.timeline.end);
        let next = next.map(|e| e.slot as usize);
        let whose = match next.filter(|slot| d.slots().any(|s| s == *slot)) {
            Some(slot) => format!("; the next one is thread {}'s", d.visible(slot)),
            None => String::new(),
        };
        Ok(format!("event {now} of {all}{whose}"))
    }

    /// What to say of an event that can't be gone to: it was forgotten, or comes before the process.
    pub(crate) fn out_of_reach(&mut self, event: u64) -> Result<Option<String>, DebugError> {
        let d = self.debuggee()?;
        let timeline = &d.timeline;
        let (first, begins) = (timeline.first, timeline.begins());
        // By `order` some threads are further on when the trace begins.
        let is_past = timeline.is_order
            && timeline.event(event).is_some_and(|e| {
                let (slot, rings) = (e.slot as usize, &timeline.rings);
                let at_first = d.checkpoints.own_at_first(slot);
                let own = rings.items_before(slot, event);
                // It may be in the midst of one.
                own.is_some_and(|own| own < at_first)
                    && rings.event_after(slot, at_first) != Some(event)
            });
        Ok(match event {
            _ if event < first => Some(format!(
                "only the last stretch of this run was kept, from event {first} on"
            )),
            _ if is_past => Some(format!(
                "only the last stretch of this run was kept: its thread was past event {event} where that begins"
            )),
            _ if event < begins => Some(format!("this process begins at event {begins}")),
            _ => None,
        })
    }

    /// Events before and after this place, in words.
    fn events_near(&mut self, n: u64) -> Result<String, DebugError> {
        let d = self.debuggee()?;
        let (now, n) = (d.next_event(), n.min(MOST_SHOWN));
        let from = now.saturating_sub(n).max(d.timeline.first);
        let mut reader = Reader::open(&d.dir)?;
        reader.seek(from)?;
        let mut lines = Vec::new();
        for number in from..=now.saturating_add(n) {
            if number == now {
                lines.push("-> here".to_string());
            }
            let Some(e) = reader.next()? else { break };
            if let Ok(h) = EventHeader::parse(e.bytes) {
                lines.push(format!("{number:>8}  {}", in_words(&h)));
            }
        }
        Ok(lines.join("\n"))
    }

    /// Remembers this place, which is called so: its number and the event that comes next, or why not.
    pub(crate) fn remember(
        &mut self,
        place: &str,
    ) -> Result<Result<(u32, u64), String>, DebugError> {
        if self.is_astray() {
            return Ok(Err(ASTRAY.into()));
        }
        if self.kept.len() >= MOST_REMEMBERED {
            return Ok(Err(format!(
                "{MOST_REMEMBERED} places are remembered already (delete checkpoint N forgets one)"
            )));
        }
        // By `order` a checkpoint counts events in another order than the trace.
        let event = self.debuggee()?.next_event();
        let Some(checkpoint) = self.debuggee()?.checkpoint()? else {
            return Ok(Err(
                "there can be no checkpoint here: the program has several processes, or its first thread has ended before others"
                    .into(),
            ));
        };
        self.last_kept += 1;
        let n = self.last_kept;
        let remembered = Remembered {
            checkpoint: Rc::new(checkpoint),
            event,
            place: place.into(),
        };
        self.kept.insert(n, remembered);
        Ok(Ok((n, event)))
    }

    /// What is remembered, in words.
    fn remembered(&mut self) -> Result<String, DebugError> {
        let mut lines: Vec<String> = self
            .kept
            .iter()
            .map(|(n, kept)| format!("checkpoint {n} is at event {}", kept.event))
            .collect();
        let d = self.debuggee()?;
        let (own, replay) = (&d.checkpoints, d.pid);
        let (n, size) = (own.count(), own.memory(replay) >> 10);
        lines.push(format!(
            "the debugger itself keeps {n} checkpoints, which take {size} KiB"
        ));
        Ok(lines.join("\n"))
    }
}

/// An event in a few words.
fn in_words(h: &EventHeader) -> String {
    let kind = Kind::from_u8(h.kind).map_or("?", Kind::name);
    let call = [Kind::Syscall, Kind::Enter, Kind::Exit].map(|k| k as u8);
    let name = syscalls::lookup(u64::from(h.detail)).map(|s| s.name);
    match name.filter(|_| call.contains(&h.kind)) {
        Some(name) => format!("slot {:>3}  {kind} {name} = {}", h.slot, h.value),
        None => format!("slot {:>3}  {kind} {}", h.slot, h.detail),
    }
}
