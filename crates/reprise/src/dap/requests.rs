//! Requests by their names, and what a client is told that there is.

use super::breakpoints::FILTERS;
use super::messages::{response, Request};
use super::mi;
use super::motions::{subject_signal, Motion};
use super::session::{Answer, Session};
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};

/// What the adapter can do.
pub fn capabilities() -> Value {
    let filters: Vec<Value> = FILTERS
        .iter()
        .map(|(name, label, usual)| json!({"filter": name, "label": label, "default": usual}))
        .collect();
    json!({
        "supportsConfigurationDoneRequest": true,
        "supportsFunctionBreakpoints": true,
        "supportsConditionalBreakpoints": true,
        "supportsHitConditionalBreakpoints": true,
        "supportsEvaluateForHovers": true,
        "supportsStepBack": true,
        "supportsGotoTargetsRequest": true,
        "supportsRestartRequest": true,
        "supportsCompletionsRequest": true,
        "supportsExceptionInfoRequest": true,
        "supportTerminateDebuggee": true,
        "supportsDelayedStackTraceLoading": true,
        "supportsLogPoints": true,
        "supportsTerminateRequest": true,
        "supportsDataBreakpoints": true,
        "supportsReadMemoryRequest": true,
        "supportsDisassembleRequest": true,
        "supportsCancelRequest": true,
        "supportsClipboardContext": true,
        "supportsSteppingGranularity": true,
        "supportsInstructionBreakpoints": true,
        "supportsExceptionFilterOptions": false,
        "supportsVariableType": true,
        "exceptionBreakpointFilters": filters,
    })
}

/// Answers a request about a recording that is open.
///
/// # Errors
/// Why it can't be answered.
pub fn answer(session: &mut Session, request: &Request) -> Result<Answer> {
    let arguments = &request.arguments;
    let body = match request.command.as_str() {
        "setBreakpoints" => session.set_breakpoints(arguments)?,
        "setFunctionBreakpoints" => session.set_function_breakpoints(arguments)?,
        "setInstructionBreakpoints" => session.set_instruction_breakpoints(arguments)?,
        "setDataBreakpoints" => session.set_data_breakpoints(arguments)?,
        "setExceptionBreakpoints" => session.set_exception_breakpoints(arguments)?,
        "dataBreakpointInfo" => session.data_breakpoint_info(arguments)?,
        "threads" => session.threads()?,
        "stackTrace" => session.stack_trace(arguments)?,
        "scopes" => session.scopes(arguments)?,
        "variables" => session.variables(arguments)?,
        "evaluate" => return session.evaluate_for(request),
        "completions" => session.completions(arguments)?,
        "readMemory" => session.read_memory(arguments)?,
        "disassemble" => session.disassemble(arguments)?,
        "exceptionInfo" => session.exception_info()?,
        "gotoTargets" => return session.goto_targets(request),
        "goto" => return session.goto(request),
        "pause" => {
            // One that stands already has told of that.
            session.interrupt_if_moving();
            Value::Null
        }
        "restart" => return session.start_again(request),
        "terminate" => {
            session.terminate();
            Value::Null
        }
        "reprise/goto" => {
            let event = arguments["event"].as_u64().context("event is a number")?;
            return session.go_to_event(request, event, Value::Null);
        }
        "reprise/when" => {
            let (event, events) = session.when()?;
            json!({"event": event, "events": events})
        }
        "reprise/values" | "reprise/origin" | "reprise/where" => return session.question(request),
        other => return motion(session, other, arguments),
    };
    Ok(Answer::Body(body))
}

fn motion(session: &mut Session, command: &str, arguments: &Value) -> Result<Answer> {
    let by_instruction = arguments["granularity"] == "instruction";
    let (motion, mi, back) = match (command, by_instruction) {
        ("continue", _) => (Motion::Continue, "-exec-continue", false),
        ("reverseContinue", _) => (Motion::ReverseContinue, "-exec-continue", true),
        ("next", false) => (Motion::Step, "-exec-next", false),
        ("next", true) => (Motion::Step, "-exec-next-instruction", false),
        ("stepIn", false) => (Motion::Step, "-exec-step", false),
        ("stepIn", true) => (Motion::Step, "-exec-step-instruction", false),
        ("stepOut", _) => (Motion::Step, "-exec-finish", false),
        ("stepBack", false) => (Motion::StepBack, "-exec-next", true),
        ("stepBack", true) => (Motion::StepBack, "-exec-next-instruction", true),
        ("reprise/stepBackIn", false) => (Motion::StepBack, "-exec-step", true),
        ("reprise/stepBackIn", true) => (Motion::StepBack, "-exec-step-instruction", true),
        ("reprise/stepBackOut", _) => (Motion::StepBack, "-exec-finish", true),
        _ => bail!("there is no request {command}"),
    };
    let mut mi = mi.to_string();
    if matches!(motion, Motion::Step | Motion::StepBack) {
        mi = format!("{mi} {}", session.thread_option(arguments)?);
    }
    if mi.starts_with("-exec-finish") {
        // Out of the innermost frame, wherever the user looks.
        mi += " --frame 0";
    }
    if back {
        mi += " --reverse";
    }
    session.set_off(motion, &mi)?;
    Ok(Answer::Body(match motion {
        Motion::Continue => json!({"allThreadsContinued": true}),
        _ => Value::Null,
    }))
}

impl Session {
    /// As by Ctrl-C, if there is anything to be interrupted.
    fn interrupt_if_moving(&mut self) {
        if self.moving.is_some() {
            self.interrupt();
        }
    }

    /// Goes to the beginning.
    fn start_again(&mut self, request: &Request) -> Result<Answer> {
        if self.moving.is_some() {
            self.interrupt();
            self.wait_stop()?;
        }
        let stop = self.go("collect first")?;
        self.mouth.say(response(request, Ok(Value::Null)));
        self.frames.has_stopped(&stop);
        self.tell_stop("entry", None, &[])?;
        Ok(Answer::Given)
    }

    fn go_to_event(&mut self, request: &Request, event: u64, body: Value) -> Result<Answer> {
        ensure!(self.moving.is_none(), "the program runs: pause it first");
        let (_, all) = self.when()?;
        ensure!(
            event <= all,
            "the recording has {all} events, no event {event}"
        );
        let stop = self.go(&format!("run-to {event}"))?;
        self.mouth.say(response(request, Ok(body)));
        self.frames.has_stopped(&stop);
        self.tell_stop("goto", None, &[])?;
        Ok(Answer::Given)
    }

    fn evaluate_for(&mut self, request: &Request) -> Result<Answer> {
        let text = request.arguments["expression"]
            .as_str()
            .unwrap_or("")
            .trim();
        let words: Vec<&str> = text.splitn(3, ' ').collect();
        if request.arguments["context"] == "repl" {
            match words[..] {
                ["reprise", command @ ("values" | "origin" | "where"), expression] => {
                    self.question_as_text(request, command, expression.trim())?;
                    return Ok(Answer::Given);
                }
                ["reprise", "goto", event] => {
                    let event: u64 = event.trim().parse().context("an event is a number")?;
                    let body = json!({"result": format!("event {event}"), "variablesReference": 0});
                    return self.go_to_event(request, event, body);
                }
                _ => {}
            }
        }
        self.evaluate(&request.arguments).map(Answer::Body)
    }

    /// A command instead of an expression: `reprise when`, `reprise events [N]`, or one of gdb's behind `-exec`. `None`: it is none.
    ///
    /// # Errors
    /// What gdb says.
    pub fn command(&mut self, text: &str) -> Result<Option<String>> {
        if let Some(command) = text.strip_prefix("-exec ") {
            return self.console(command.trim()).map(Some);
        }
        let Some(command) = text.strip_prefix("reprise ") else {
            return Ok(None);
        };
        let command = command.trim();
        match command.split(' ').next() {
            Some("when" | "events" | "checkpoints") => self.monitor(command).map(Some),
            _ => bail!("there are reprise when, events [N], checkpoints, goto EVENT, values EXPR, where EXPR and origin EXPR"),
        }
    }

    fn completions(&mut self, arguments: &Value) -> Result<Value> {
        let text = arguments["text"].as_str().context("text is a text")?;
        let column = arguments["column"].as_u64().unwrap_or(1).saturating_sub(1) as usize;
        let before: String = text.chars().take(column).collect();
        let (before, is_command) = match before.strip_prefix("-exec ") {
            Some(command) => (command.to_string(), true),
            None => (before, false),
        };
        let asked = match is_command {
            true => before.clone(),
            false => format!("print {before}"),
        };
        let told = self.mi(&format!("-complete {}", mi::quoted(&asked)))?;
        let word = asked
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |i| i + 1);
        let length = asked.get(word..).map_or(0, |w| w.chars().count());
        let all = mi::list(&told, "matches").iter().filter_map(Value::as_str);
        let all: Vec<Value> = all
            .filter_map(|one| one.get(word..))
            .take(200)
            .map(|label| json!({"label": label, "start": column.saturating_sub(length), "length": length}))
            .collect();
        Ok(json!({"targets": all}))
    }

    fn exception_info(&mut self) -> Result<Value> {
        let Some((name, meaning)) = self.signal.clone() else {
            bail!("it has not stopped by an exception");
        };
        let is_last = subject_signal(self).is_some_and(|(last, _)| last == name);
        let stack = self.console("backtrace 100")?;
        Ok(json!({"exceptionId": name, "description": meaning,
            "breakMode": if is_last { "unhandled" } else { "always" },
            "details": {"message": meaning, "typeName": name, "stackTrace": stack}}))
    }

    /// Where a line has code, as a breakpoint there would be told of; none is set.
    ///
    /// # Errors
    /// What gdb says.
    pub fn probe(&mut self, path: &str, line: i64) -> Result<Value> {
        let inserted = self.mi(&format!(
            "-break-insert -f -d --source {} --line {line}",
            mi::quoted(path)
        ))?;
        let point = &inserted["bkpt"];
        let number = mi::text(point, "number")
            .context("gdb has set no breakpoint")?
            .to_string();
        let told = self.told_of(point);
        self.mi(&format!("-break-delete {number}"))?;
        told
    }
}
