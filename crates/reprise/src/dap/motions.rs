//! Motions of the replay, forward and back, and what is told of where they end.

use super::mi;
use super::session::{Session, FAILED};
use anyhow::{bail, ensure, Result};
use reprise_debug::Place;
use serde_json::{json, Value};

/// What moves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Motion {
    /// On to the next stop, ...
    Continue,
    /// ... or back.
    ReverseContinue,
    /// By a line or an instruction, into or out of a function, ...
    Step,
    /// ... or back.
    StepBack,
}

impl Motion {
    fn is_back(self) -> bool {
        matches!(self, Motion::ReverseContinue | Motion::StepBack)
    }
}

/// What gdb says of a step by lines in code that it has no symbols of, as the dynamic linker's at the beginning may be.
const NO_BOUNDS: &str = "Cannot find bounds of current function";

/// The step by an instruction in the place of one by a line.
fn by_instruction(command: &str) -> Option<String> {
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    matches!(name, "-exec-next" | "-exec-step").then(|| format!("{name}-instruction {rest}"))
}

impl Session {
    /// Lets it run by a command of gdb's.
    ///
    /// # Errors
    /// When gdb does not.
    pub fn set_off(&mut self, motion: Motion, command: &str) -> Result<()> {
        ensure!(self.moving.is_none(), "the program runs already");
        self.forget_values()?;
        self.sets_out();
        match (self.mi(command), by_instruction(command)) {
            (Err(e), Some(instruction)) if e.to_string().contains(NO_BOUNDS) => {
                self.mi(&instruction)?
            }
            (other, _) => other?,
        };
        self.moving = Some(motion);
        Ok(())
    }

    /// The same, until it stops: how, and whether at an end of the recording.
    ///
    /// # Errors
    /// As there.
    pub fn move_on(&mut self, motion: Motion, command: &str) -> Result<(Value, bool)> {
        self.set_off(motion, command)?;
        self.wait_stop()
    }

    /// Makes a motion of the replay's own, which `command` asks it for.
    ///
    /// # Errors
    /// What it says against it.
    pub fn go(&mut self, command: &str) -> Result<Value> {
        let said = self.monitor(command)?;
        ensure!(said.is_empty() || said == "yes", "{said}");
        let (stop, _) = self.move_on(Motion::ReverseContinue, "-exec-continue --reverse")?;
        // gdb learns of libraries behind such a motion, and reads no symbols of them by itself.
        self.console("sharedlibrary")?;
        Ok(stop)
    }

    /// The event that comes next, and how many there are.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn when(&mut self) -> Result<(u64, u64)> {
        let said = self.monitor("when")?;
        let mut words = said.split([' ', ';']);
        let now = words.nth(1).and_then(|w| w.parse().ok());
        let all = words.nth(1).and_then(|w| w.parse().ok());
        match (now, all) {
            (Some(now), Some(all)) => Ok((now, all)),
            _ => bail!("it is not known where the replay is: {said}"),
        }
    }

    /// The program may run.
    ///
    /// # Errors
    /// When it can't.
    pub fn set_out(&mut self) -> Result<()> {
        let Some(subject) = &self.subject else {
            return Ok(());
        };
        let (at, stop_on_entry) = (subject.at, subject.stop_on_entry);
        if at != Place::Start {
            self.console("sharedlibrary")?;
            let signal = subject_signal(self);
            return match (at, signal) {
                (Place::Crash | Place::Panic, Some((name, meaning))) => {
                    self.signal = Some((name.clone(), meaning));
                    self.tell_stop("exception", Some(&name), &[])
                }
                (Place::Crash | Place::Panic, None) => self.tell_stop("exception", None, &[]),
                _ => self.tell_stop("entry", None, &[]),
            };
        }
        if !stop_on_entry {
            return self.set_off(Motion::Continue, "-exec-continue");
        }
        // Go's comes after one that the linker made.
        for main in ["main.main", "main"] {
            let Ok(inserted) = self.mi(&format!("-break-insert -t {main}")) else {
                continue;
            };
            let number = mi::text(&inserted["bkpt"], "number")
                .unwrap_or("")
                .to_string();
            if inserted["bkpt"].get("pending").is_some() {
                self.mi(&format!("-break-delete {number}"))?;
                continue;
            }
            let enabled = self.disable_all()?;
            let moved = self.move_on(Motion::Continue, "-exec-continue");
            self.enable(&enabled)?;
            moved?;
            break;
        }
        self.tell_stop("entry", None, &[])
    }

    /// A motion has ended: tells of that.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn stopped(&mut self, stop: &Value) -> Result<()> {
        let motion = self.moving.take();
        let at_end = self.is_at_end();
        let failed = mi::text(stop, "reason") == Some(FAILED);
        let why = mi::text(stop, "msg").unwrap_or("");
        if failed {
            let why = why.replace('\n', " ");
            self.end_progress();
            return self.tell_stop("pause", Some(&why), &[]);
        }
        self.end_progress();
        self.stopped_by(stop, motion, at_end)
    }

    /// The same of one that was waited for.
    ///
    /// # Errors
    /// As there.
    pub fn stopped_by(&mut self, stop: &Value, motion: Option<Motion>, at_end: bool) -> Result<()> {
        let reason = mi::text(stop, "reason").unwrap_or("");
        if reason.starts_with("exited") {
            self.terminate();
            return Ok(());
        }
        self.frames.has_stopped(stop);
        self.signal = None;
        match reason {
            "breakpoint-hit" => {
                let number = mi::text(stop, "bkptno").unwrap_or("");
                let (reason, ids) = self.breakpoints.hit(number);
                self.tell_stop(reason, None, &ids)
            }
            "watchpoint-trigger" | "read-watchpoint-trigger" | "access-watchpoint-trigger" => {
                let point = ["wpt", "hw-rwpt", "hw-awpt"]
                    .iter()
                    .find_map(|n| stop.get(*n));
                let number = point.and_then(|p| mi::text(p, "number")).unwrap_or("");
                let (_, ids) = self.breakpoints.hit(number);
                let value = &stop["value"];
                let is_back = motion.is_some_and(Motion::is_back);
                let text = match (mi::text(value, "old"), mi::text(value, "new")) {
                    // On the way back gdb tells what was there before as what is new.
                    (Some(old), Some(new)) if is_back => Some(format!("{new} -> {old}")),
                    (Some(old), Some(new)) => Some(format!("{old} -> {new}")),
                    _ => mi::text(value, "value").map(str::to_string),
                };
                self.tell_stop("data breakpoint", text.as_deref(), &ids)
            }
            "signal-received" => {
                let name = mi::text(stop, "signal-name").unwrap_or("");
                let meaning = mi::text(stop, "signal-meaning").unwrap_or("");
                match name {
                    "SIGINT" | "0" | "SIGTRAP" => self.tell_stop("pause", None, &[]),
                    _ => {
                        self.signal = Some((name.into(), meaning.into()));
                        self.tell_stop("exception", Some(&format!("{name}, {meaning}")), &[])
                    }
                }
            }
            _ if at_end => {
                let what = match motion.is_some_and(Motion::is_back) {
                    true => "the beginning of the recording",
                    false => "the end of the recording",
                };
                self.tell_stop("pause", Some(what), &[])
            }
            _ => match motion {
                Some(Motion::Step | Motion::StepBack) => self.tell_stop("step", None, &[]),
                _ => self.tell_stop("pause", None, &[]),
            },
        }
    }

    /// Says that it stands, and why.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn tell_stop(&mut self, reason: &str, text: Option<&str>, ids: &[i64]) -> Result<()> {
        self.tell_threads()?;
        let thread = self.frames.current();
        let (now, all) = self.when()?;
        let what = match text {
            Some(text) => text.to_string(),
            None => reason.to_string(),
        };
        let mut body = json!({"reason": reason, "threadId": thread, "allThreadsStopped": true,
            "description": format!("{what} (event {now} of {all})"), "event": now, "events": all});
        if let Some(text) = text {
            body["text"] = text.into();
        }
        if !ids.is_empty() {
            body["hitBreakpointIds"] = json!(ids);
        }
        self.mouth.event("stopped", body);
        Ok(())
    }
}

/// The signal by which the program ended.
pub fn subject_signal(session: &Session) -> Option<(String, String)> {
    let status = session.subject.as_ref()?.wait_status?;
    let name = crate::record::crash(status)?;
    let signal = libc::WTERMSIG(status);
    // SAFETY: the text is libc's, and there for good.
    let meaning = unsafe { std::ffi::CStr::from_ptr(libc::strsignal(signal)) };
    Some((name.into(), meaning.to_string_lossy().into_owned()))
}
