//! Breakpoints of all kinds. They are gdb's, and so the replay's, which compiles conditions into the code; a logpoint is none of them, but a question
//! that is answered for the whole run at once (`background`).
//!
//! A client tells all breakpoints of a file, or of a kind, at a time; those that were there before keep their numbers.

use super::background::Logpoint;
use super::mi::{self, quoted};
use super::motions::Motion;
use super::session::Session;
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Breakpoints of one session.
const MOST: usize = 4096;
/// Bytes that the processor can watch.
const MOST_WATCHED: i64 = 32;
/// Signals that end a program.
const FATAL: &str = "SIGSEGV SIGABRT SIGBUS SIGFPE SIGILL SIGSYS";
/// Those that programs are sent for other reasons, as far as gdb stops at them by itself.
const OTHER: &str = "SIGHUP SIGQUIT SIGPIPE SIGTERM SIGUSR1 SIGUSR2 SIGTSTP SIGTTIN SIGTTOU SIGSTOP SIGXCPU SIGXFSZ SIGPWR";

/// Kinds of exceptions that can be stopped at: name, text, whether it is on when nobody says so.
pub const FILTERS: [(&str, &str, bool); 4] = [
    ("fatal", "Signals that end a program", true),
    ("signals", "Other signals", false),
    ("throw", "C++ exceptions that are thrown", false),
    ("panic", "Panics of Rust and Go", false),
];
/// The functions that begin panics.
const PANICS: [&str; 2] = ["rust_panic", "runtime.gopanic"];

/// Where a client has put breakpoints: a file, or a kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    /// Lines of a file.
    Source(String),
    /// Names of functions.
    Functions,
    /// Addresses of instructions.
    Instructions,
    /// Stretches of memory.
    Data,
    /// What the filters of exceptions stand for.
    Exceptions,
}

impl Group {
    fn reason(&self) -> &'static str {
        match self {
            Group::Source(_) => "breakpoint",
            Group::Functions => "function breakpoint",
            Group::Instructions => "instruction breakpoint",
            Group::Data => "data breakpoint",
            Group::Exceptions => "exception",
        }
    }
}

/// A breakpoint.
struct Point {
    id: i64,
    /// What was asked for; the same is the same breakpoint.
    key: Value,
    /// gdb's number; none of a logpoint, and of one that can't be set.
    number: Option<String>,
    /// As the client was told.
    told: Value,
}

/// All of them.
#[derive(Default)]
pub struct Breakpoints {
    groups: BTreeMap<Group, Vec<Point>>,
    last: i64,
}

impl Breakpoints {
    /// Why it has stopped at gdb's breakpoint of this number, and the client's numbers of it.
    pub fn hit(&self, number: &str) -> (&'static str, Vec<i64>) {
        // "2.1" is a place of number 2.
        let number = number.split('.').next().unwrap_or(number);
        for (group, points) in &self.groups {
            if let Some(point) = points.iter().find(|p| p.number.as_deref() == Some(number)) {
                return (group.reason(), vec![point.id]);
            }
        }
        ("breakpoint", Vec::new())
    }

    fn numbers(&self) -> Vec<String> {
        let all = self.groups.values().flatten();
        all.filter_map(|p| p.number.clone()).collect()
    }

    fn count(&self) -> usize {
        self.groups.values().map(Vec::len).sum()
    }
}

/// "3", ">= 3": how many times a breakpoint is passed before.
fn ignored(hits: &str) -> Result<u64> {
    let number = hits.trim().trim_start_matches(['>', '=']).trim();
    let n = number.parse::<u64>().ok().filter(|n| *n > 0);
    let n = n.with_context(|| format!("{hits} is no number of hits (N, or >= N, is one)"))?;
    Ok(n - 1 + u64::from(hits.trim().starts_with('>') && !hits.contains('=')))
}

/// Options of gdb's for what a breakpoint depends on.
fn options(wanted: &Value) -> Result<String> {
    let mut options = String::new();
    let text = |name: &str| {
        wanted[name]
            .as_str()
            .map(str::trim)
            .filter(|t| !t.is_empty())
    };
    if let Some(condition) = text("condition") {
        options += &format!(" -c {}", quoted(condition));
    }
    if let Some(hits) = text("hitCondition") {
        options += &format!(" -i {}", ignored(hits)?);
    }
    Ok(options)
}

impl Session {
    /// `setBreakpoints`.
    ///
    /// # Errors
    /// When the request has no file.
    pub fn set_breakpoints(&mut self, arguments: &Value) -> Result<Value> {
        let path = arguments["source"]["path"].as_str();
        let path = path.context("source.path names no file")?.to_string();
        let mut wanted = arguments["breakpoints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if wanted.is_empty() {
            // As older clients say it.
            let lines = arguments["lines"].as_array().into_iter().flatten();
            wanted = lines.map(|line| json!({"line": line})).collect();
        }
        let group = Group::Source(path.clone());
        self.set_group(&group, &wanted, |s, one| {
            let line = s.line_of(&one["line"])?;
            ensure!(line > 0, "there is no line {line}");
            let message = one["logMessage"].as_str().filter(|m| !m.is_empty());
            if let Some(message) = message {
                let condition = one["condition"].as_str().filter(|c| !c.trim().is_empty());
                return s.log(Logpoint::new(&path, line, message, condition)?);
            }
            let place = format!("--source {} --line {line}", quoted(&path));
            s.insert(&format!("-break-insert -f{} {place}", options(one)?))
        })
    }

    /// `setFunctionBreakpoints`.
    ///
    /// # Errors
    /// None but that the replay is gone.
    pub fn set_function_breakpoints(&mut self, arguments: &Value) -> Result<Value> {
        let wanted = arguments["breakpoints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        self.set_group(&Group::Functions, &wanted, |s, one| {
            let name = one["name"].as_str().context("name is a text")?;
            s.insert(&format!(
                "-break-insert -f{} --function {}",
                options(one)?,
                quoted(name)
            ))
        })
    }

    /// `setInstructionBreakpoints`.
    ///
    /// # Errors
    /// None but that the replay is gone.
    pub fn set_instruction_breakpoints(&mut self, arguments: &Value) -> Result<Value> {
        let wanted = arguments["breakpoints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        self.set_group(&Group::Instructions, &wanted, |s, one| {
            let at = one["instructionReference"]
                .as_str()
                .and_then(mi::hexadecimal);
            let at = at.context("instructionReference is an address")?;
            let at = at.checked_add_signed(one["offset"].as_i64().unwrap_or(0));
            let at = at.context("there is no such address")?;
            s.insert(&format!("-break-insert{} *{at:#x}", options(one)?))
        })
    }

    /// `dataBreakpointInfo`: what can be watched of a variable, an expression, or an address.
    ///
    /// # Errors
    /// When the frame is of another moment.
    pub fn data_breakpoint_info(&mut self, arguments: &Value) -> Result<Value> {
        let name = arguments["name"].as_str().context("name is a text")?;
        let nothing = |why: &str| json!({"dataId": null, "description": why});
        let (frame, text) = match arguments["variablesReference"].as_i64().filter(|r| *r != 0) {
            None => {
                let frame = match arguments.get("frameId") {
                    None | Some(Value::Null) => self.frames.newest(),
                    Some(id) => self.frames.frame(id)?,
                };
                (frame, name.to_string())
            }
            Some(reference) => {
                let Some(part) = self.variables.part(reference, name) else {
                    return Ok(nothing("this is nothing in memory"));
                };
                let frame = match &part {
                    super::variables::Part::Expression(frame, _) => *frame,
                    super::variables::Part::Object(_) => self.frames.newest(),
                };
                match self.expression_of(&part)? {
                    Some(text) => (frame, text),
                    None => {
                        return Ok(nothing(
                            "a pretty printer shows this; its memory has no name",
                        ))
                    }
                }
            }
        };
        let options = format!("--thread {} --frame {}", frame.thread, frame.level);
        let mut number = |text: String| {
            let told = self.mi(&format!(
                "-data-evaluate-expression {options} {}",
                quoted(&text)
            ));
            told.map(|t| mi::text(&t, "value").and_then(mi::hexadecimal))
        };
        let (at, bytes) = match (
            number(format!("(unsigned long)&({text})")),
            number(format!("(unsigned long)sizeof({text})")),
        ) {
            (Ok(Some(at)), Ok(Some(bytes))) => (at, bytes as i64),
            // As Rust and Go write it.
            _ => match (
                number(format!("&({text}) as usize")),
                number(format!("sizeof({text})")),
            ) {
                (Ok(Some(at)), Ok(Some(bytes))) => (at, bytes as i64),
                (Err(why), _) => return Ok(nothing(&format!("{text} has no address: {why}"))),
                _ => return Ok(nothing(&format!("{text} has no address"))),
            },
        };
        if !(1..=MOST_WATCHED).contains(&bytes) {
            let why = format!("{text} has {bytes} bytes; the processor can watch {MOST_WATCHED}");
            return Ok(nothing(&why));
        }
        Ok(
            json!({"dataId": format!("{at:#x},{bytes},{text}"), "canPersist": true,
            "description": format!("{text} ({bytes} bytes at {at:#x})"),
            "accessTypes": ["write", "read", "readWrite"]}),
        )
    }

    /// `setDataBreakpoints`.
    ///
    /// # Errors
    /// None but that the replay is gone.
    pub fn set_data_breakpoints(&mut self, arguments: &Value) -> Result<Value> {
        let wanted = arguments["breakpoints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        self.set_group(&Group::Data, &wanted, |s, one| {
            let id = one["dataId"].as_str().context("dataId is a text")?;
            let mut parts = id.splitn(3, ',');
            let at = parts.next().and_then(mi::hexadecimal);
            let bytes = parts.next().and_then(|b| b.parse::<i64>().ok());
            let (Some(at), Some(bytes)) = (at, bytes.filter(|b| (1..=MOST_WATCHED).contains(b)))
            else {
                bail!("{id} is no dataId of dataBreakpointInfo");
            };
            let how = match one["accessType"].as_str() {
                Some("read") => "-r ",
                Some("readWrite") => "-a ",
                _ => "",
            };
            let kind = match bytes {
                1 => "char",
                2 => "short",
                4 => "int",
                8 => "long",
                _ => "",
            };
            // The address is what counts; a language without C's types has its own words for it.
            let language = s.console("show language")?;
            s.console("set language c")?;
            let text = match kind {
                "" => format!("*(char (*)[{bytes}]) {at:#x}"),
                kind => format!("*({kind} *) {at:#x}"),
            };
            let inserted = s.mi(&format!("-break-watch {how}{}", quoted(&text)));
            let back = match language.contains("auto") {
                true => "auto",
                false => "c",
            };
            s.console(&format!("set language {back}"))?;
            let inserted = inserted?;
            let point = ["wpt", "hw-rwpt", "hw-awpt"]
                .iter()
                .find_map(|n| inserted.get(*n));
            let number = point.and_then(|p| mi::text(p, "number"));
            let number = number.context("gdb has set no watchpoint")?.to_string();
            if let Some(condition) = one["condition"].as_str().filter(|c| !c.trim().is_empty()) {
                let set = s.mi(&format!(
                    "-break-condition {number} {condition}",
                    condition = condition.replace(['\n', '\r'], " ")
                ));
                if let Err(why) = set {
                    s.mi(&format!("-break-delete {number}"))?;
                    return Err(why);
                }
            }
            if let Some(hits) = one["hitCondition"]
                .as_str()
                .filter(|h| !h.trim().is_empty())
            {
                s.mi(&format!("-break-after {number} {}", ignored(hits)?))?;
            }
            Ok((Some(number), json!({"verified": true})))
        })
    }

    /// `setExceptionBreakpoints`.
    ///
    /// # Errors
    /// What gdb says.
    pub fn set_exception_breakpoints(&mut self, arguments: &Value) -> Result<Value> {
        let names = arguments["filters"].as_array().into_iter().flatten();
        let named: Vec<String> = names.filter_map(|n| n.as_str().map(String::from)).collect();
        let is = |name: &str| named.iter().any(|n| n == name);
        for name in &named {
            ensure!(
                FILTERS.iter().any(|f| f.0 == name),
                "there is no filter {name}"
            );
        }
        self.handle(FATAL, is("fatal"))?;
        self.handle(OTHER, is("signals"))?;
        let mut wanted = Vec::new();
        if is("throw") {
            wanted.push(json!({"catch": "throw"}));
        }
        if is("panic") {
            wanted.extend(PANICS.map(|function| json!({"function": function})));
        }
        self.set_group(&Group::Exceptions, &wanted, |s, one| {
            match one["function"].as_str() {
                Some(function) => s.insert(&format!("-break-insert -f {function}")),
                None => s.insert("-catch-throw"),
            }
        })?;
        Ok(
            json!({"breakpoints": named.iter().map(|_| json!({"verified": true})).collect::<Vec<_>>()}),
        )
    }

    /// Signals are stopped at as the filters say that are on from the beginning.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn handle_signals(&mut self) -> Result<()> {
        self.handle(FATAL, true)?;
        self.handle(OTHER, false)
    }

    fn handle(&mut self, signals: &str, stops: bool) -> Result<()> {
        let how = if stops {
            "stop print"
        } else {
            "nostop noprint"
        };
        self.console(&format!("handle {signals} {how} pass"))
            .map(drop)
    }

    /// Sets a breakpoint: its number, and what is told of it.
    fn insert(&mut self, command: &str) -> Result<(Option<String>, Value)> {
        let inserted = self.mi(command)?;
        let point = &inserted["bkpt"];
        let number = mi::text(point, "number").context("gdb has set no breakpoint")?;
        Ok((Some(number.to_string()), self.told_of(point)?))
    }

    /// A breakpoint, as the client is told of it.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn told_of(&mut self, point: &Value) -> Result<Value> {
        if point.get("pending").is_some() {
            return Ok(json!({"verified": false, "reason": "pending",
                "message": "no code is known there yet; it is set when a library brings some"}));
        }
        let mut told = json!({"verified": true});
        // One that stands at several places has them in a list.
        let place = match point.get("line") {
            Some(_) => point.clone(),
            None => mi::list(point, "locations")
                .first()
                .cloned()
                .unwrap_or_default(),
        };
        if let Some(line) = mi::number(&place, "line") {
            told["line"] = self.line_for(line).into();
            if let Some(source) = self.source(&place)? {
                told["source"] = source;
            }
        }
        if let Some(at) = mi::text(&place, "addr") {
            told["instructionReference"] = at.into();
        }
        Ok(told)
    }

    /// Sets all of a group: those that were there stay, and others go.
    fn set_group(
        &mut self,
        group: &Group,
        wanted: &[Value],
        set: impl Fn(&mut Session, &Value) -> Result<(Option<String>, Value)>,
    ) -> Result<Value> {
        let others =
            self.breakpoints.count() - self.breakpoints.groups.get(group).map_or(0, Vec::len);
        ensure!(
            others + wanted.len() <= MOST,
            "there can be {MOST} breakpoints in one session"
        );
        let motion = self.moving;
        self.aside(
            |s| {
                let mut before = s.breakpoints.groups.remove(group).unwrap_or_default();
                let mut now: Vec<Point> = Vec::new();
                for one in wanted {
                    if let Some(i) = before
                        .iter()
                        .position(|p| p.key == *one && p.told["verified"] == true)
                    {
                        now.push(before.remove(i));
                        continue;
                    }
                    s.breakpoints.last += 1;
                    let id = s.breakpoints.last;
                    let (number, mut told) = match set(s, one) {
                        Ok(set) => set,
                        Err(why) => {
                            let why = crate::exit::line_of(&why).unwrap_or_default();
                            (
                                None,
                                json!({"verified": false, "reason": "failed", "message": why}),
                            )
                        }
                    };
                    told["id"] = id.into();
                    now.push(Point {
                        id,
                        key: one.clone(),
                        number,
                        told,
                    });
                }
                for gone in before {
                    if let Some(number) = gone.number {
                        s.mi(&format!("-break-delete {number}"))?;
                    }
                }
                let told: Vec<Value> = now.iter().map(|p| p.told.clone()).collect();
                s.breakpoints.groups.insert(group.clone(), now);
                Ok(json!({"breakpoints": told}))
            },
            motion,
        )
    }

    /// Does something for which the program must stand; if it runs it is interrupted, and goes on.
    fn aside<T>(
        &mut self,
        then: impl FnOnce(&mut Session) -> Result<T>,
        motion: Option<Motion>,
    ) -> Result<T> {
        let Some(motion) = motion else {
            return then(self);
        };
        self.interrupt();
        let (stop, at_end) = self.wait_stop()?;
        let done = then(self);
        let is_ours = mi::text(&stop, "signal-name").is_some_and(|s| matches!(s, "SIGINT" | "0"));
        match (is_ours, motion) {
            (true, Motion::Continue) => self.set_off(motion, "-exec-continue")?,
            (true, Motion::ReverseContinue) => self.set_off(motion, "-exec-continue --reverse")?,
            // A step that was interrupted can't be taken up again.
            _ => self.stopped_by(&stop, Some(motion), at_end)?,
        }
        done
    }

    /// gdb says that one has changed: a library has brought its code, perhaps.
    pub fn breakpoint_modified(&mut self, point: &Value) {
        let Some(number) = mi::text(point, "number").map(str::to_string) else {
            return;
        };
        let Ok(mut told) = self.told_of(point) else {
            return;
        };
        let all = self.breakpoints.groups.values_mut().flatten();
        for one in all {
            let is_news =
                one.number.as_ref() == Some(&number) && one.told["verified"] != told["verified"];
            if is_news && point["pending"].is_null() {
                told["id"] = one.id.into();
                one.told = told.clone();
                self.mouth.event(
                    "breakpoint",
                    json!({"reason": "changed", "breakpoint": told}),
                );
                return;
            }
        }
    }

    /// Lets nothing stop a motion of ours: the numbers of what was enabled.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn disable_all(&mut self) -> Result<Vec<String>> {
        let numbers = self.breakpoints.numbers();
        if !numbers.is_empty() {
            self.mi(&format!("-break-disable {}", numbers.join(" ")))?;
        }
        Ok(numbers)
    }

    /// Takes that back.
    ///
    /// # Errors
    /// When the replay is gone.
    pub fn enable(&mut self, numbers: &[String]) -> Result<()> {
        if !numbers.is_empty() {
            self.mi(&format!("-break-enable {}", numbers.join(" ")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_from_one() {
        let all = ["1", " 3 ", ">= 3", ">3", "= 2"].map(|t| ignored(t).ok());
        assert_eq!(all, [Some(0), Some(2), Some(2), Some(3), Some(1)]);
        for wrong in ["", "0", "-1", "% 2", "x"] {
            assert!(ignored(wrong).is_err(), "{wrong}");
        }
    }
}
