//! Questions to the whole run, which are answered while the session goes on: what a logpoint says at each of its hits, `reprise values`, `origin`, `where`,
//! and where a line was passed. Each is asked of commands of this program, as children: whatever becomes of one, the session stays.

use super::gdb::{ends_with_us, TOKEN};
use super::launching::Recording;
use super::messages::{response, Request};
use super::session::{Answer, Session};
use super::wire::{Ear, Heard};
use anyhow::{ensure, Context, Result};
use serde_json::{json, Value};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What is found by one question at most, ...
pub const MOST_FOUND: usize = 100_000;
/// ... and in bytes.
const MOST_BYTES: usize = 32 << 20;
/// Questions that are asked at the same time; each replays the run.
const MOST_RUNNING: usize = 2;
/// Those that wait.
const MOST_WAITING: usize = 256;
/// Expressions of one logpoint.
const MOST_EXPRESSIONS: usize = 16;
/// Bytes of text that are told of at once.
const BATCH: usize = 32 << 10;
/// Visits of a line that can be gone to.
const MOST_TARGETS: usize = 1000;
/// What is kept of the words with which a question ends.
const MOST_ERRORS: u64 = 16 << 10;

/// A breakpoint with a message: it stops nobody.
#[derive(Clone, Debug)]
pub struct Logpoint {
    path: String,
    line: i64,
    pieces: Vec<Piece>,
    condition: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Expression(String),
}

/// "x is {x}": texts, and expressions in braces, which may hold braces themselves.
fn pieces(message: &str) -> Vec<Piece> {
    let mut all = Vec::new();
    let mut text = String::new();
    let mut rest = message;
    while let Some(open) = rest.find('{') {
        let (before, inside) = rest.split_at(open);
        let mut depth = 0;
        let end = inside.char_indices().find(|(_, c)| {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        });
        let Some((end, _)) = end else { break };
        text.push_str(before);
        let expression = inside[1..end].trim();
        rest = &inside[end + 1..];
        if expression.is_empty() {
            text.push_str(&inside[..=end]);
            continue;
        }
        if !text.is_empty() {
            all.push(Piece::Text(std::mem::take(&mut text)));
        }
        all.push(Piece::Expression(expression.to_string()));
    }
    text.push_str(rest);
    if !text.is_empty() {
        all.push(Piece::Text(text));
    }
    all
}

impl Logpoint {
    /// What says `message` at a line, if a condition holds.
    ///
    /// # Errors
    /// When it has too many expressions.
    pub fn new(path: &str, line: i64, message: &str, condition: Option<&str>) -> Result<Logpoint> {
        let pieces = pieces(message);
        let n = pieces
            .iter()
            .filter(|p| matches!(p, Piece::Expression(_)))
            .count();
        ensure!(
            n <= MOST_EXPRESSIONS,
            "a message may have {MOST_EXPRESSIONS} expressions, not {n}"
        );
        Ok(Logpoint {
            path: path.to_string(),
            line,
            pieces,
            condition: condition.map(str::to_string),
        })
    }

    /// What is asked at each hit.
    fn columns(&self) -> Vec<String> {
        let mut all: Vec<String> = self.condition.iter().cloned().collect();
        all.extend(self.pieces.iter().filter_map(|p| match p {
            Piece::Expression(e) => Some(e.clone()),
            Piece::Text(_) => None,
        }));
        if all.is_empty() {
            all.push("1".into());
        }
        all
    }

    /// What is said of all hits: lines.
    fn lines(&self, columns: &[Column]) -> Vec<String> {
        let Some(first) = columns.first() else {
            return Vec::new();
        };
        let parsed: Vec<Vec<Hit>> = columns.iter().map(Column::hits).collect();
        let hits = parsed.iter().map(Vec::len).min().unwrap_or(0);
        let mut lines = Vec::with_capacity(hits);
        for i in 0..hits.min(first.lines.len()) {
            let mut values = parsed.iter().map(|c| c[i].value.as_str());
            if self.condition.is_some() && values.next().is_none_or(|v| !holds(v)) {
                continue;
            }
            let hit = &parsed[0][i];
            let mut line = format!("event {} thread {}: ", hit.event, hit.thread);
            for piece in &self.pieces {
                line.push_str(match piece {
                    Piece::Text(text) => text,
                    Piece::Expression(_) => values.next().unwrap_or(""),
                });
            }
            line.push('\n');
            lines.push(line);
        }
        lines
    }
}

/// Is this the value of a condition that holds?
fn holds(value: &str) -> bool {
    let value = value.trim();
    !matches!(value, "0" | "false" | "0x0" | "") && !value.starts_with('<')
}

/// One hit, as `reprise values --json` tells it.
struct Hit {
    event: u64,
    thread: u64,
    value: String,
}

/// What one command has found.
#[derive(Default)]
pub struct Column {
    lines: Vec<String>,
    is_full: bool,
}

impl Column {
    fn hits(&self) -> Vec<Hit> {
        let all = self.lines.iter().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(Hit {
                event: line["event"].as_u64()?,
                thread: line["thread"].as_u64().unwrap_or(0),
                value: line["value"].as_str().unwrap_or("").to_string(),
            })
        });
        all.collect()
    }
}

/// What a question has found.
pub struct Found {
    job: i64,
    columns: Result<Vec<Column>, String>,
}

/// Who asks.
enum Asker {
    Log(Logpoint),
    /// A request of ours, whose answer has the lines as JSON.
    Lines(Request),
    /// One whose answer is text.
    Text(Request),
    /// `gotoTargets`.
    Targets {
        request: Request,
        path: String,
        line: i64,
    },
}

struct Job {
    progress: i64,
    asker: Asker,
    commands: Vec<Vec<OsString>>,
    child: Arc<Running>,
}

/// The command that is running.
#[derive(Default)]
struct Running {
    child: Mutex<Option<Child>>,
    cancelled: AtomicBool,
}

impl Running {
    fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = child.as_mut() {
            let _ = child.kill();
        }
    }
}

/// A place that can be gone to.
#[derive(Clone, Debug)]
struct Target {
    path: String,
    line: i64,
    event: u64,
    /// It is passed so often before, with as many events.
    before: u64,
}

/// All questions of a session.
#[derive(Default)]
pub struct Questions {
    /// What is being recorded.
    pub recording: Option<Recording>,
    jobs: HashMap<i64, Job>,
    waiting: VecDeque<i64>,
    running: usize,
    last: i64,
    targets: Vec<Target>,
}

impl Questions {
    /// Nobody wants to know this any more.
    pub fn cancel(&mut self, progress: i64) {
        for job in self.jobs.values().filter(|j| j.progress == progress) {
            job.child.cancel();
        }
    }

    /// The same, by the number of the request that asks.
    pub fn cancel_request(&mut self, seq: i64) {
        for job in self.jobs.values() {
            let request = match &job.asker {
                Asker::Log(_) => continue,
                Asker::Lines(request) | Asker::Text(request) | Asker::Targets { request, .. } => {
                    request
                }
            };
            if request.seq == seq {
                job.child.cancel();
            }
        }
    }

    /// Nobody wants to know anything any more.
    pub fn end(&mut self) {
        self.recording = None;
        for job in self.jobs.values() {
            job.child.cancel();
        }
    }
}

/// Asks all of it, one after the other.
fn ask(commands: &[Vec<OsString>], running: &Running) -> Result<Vec<Column>, String> {
    let mut all = Vec::new();
    for arguments in commands {
        let column = lines_of(arguments, running);
        all.push(column.map_err(|why| crate::exit::line_of(&why).unwrap_or_default())?);
        if running.cancelled.load(Relaxed) {
            return Err("it was cancelled".into());
        }
    }
    Ok(all)
}

fn lines_of(arguments: &[OsString], running: &Running) -> Result<Column> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command
        .args(arguments)
        .env_remove(TOKEN)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    ends_with_us(&mut command);
    let mut child = command.spawn().context("start reprise")?;
    let out = child.stdout.take().context("read what reprise says")?;
    let err = child.stderr.take().context("read what reprise says")?;
    let errors = std::thread::spawn(move || {
        let mut errors = Vec::new();
        let mut err = err.take(MOST_ERRORS);
        let _ = err.read_to_end(&mut errors);
        // The rest is nobody's, and is not to hold it up.
        let _ = std::io::copy(&mut err.into_inner(), &mut std::io::sink());
        errors
    });
    *running.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    if running.cancelled.load(Relaxed) {
        running.cancel();
    }
    let mut column = Column::default();
    let mut bytes = 0;
    for line in BufReader::new(out).lines() {
        let Ok(line) = line else { break };
        bytes += line.len();
        if column.lines.len() == MOST_FOUND || bytes > MOST_BYTES {
            column.is_full = true;
            break;
        }
        column.lines.push(line);
    }
    let child = running
        .child
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let mut child = child.context("wait for reprise")?;
    if column.is_full {
        let _ = child.kill();
    }
    let status = child.wait().context("wait for reprise")?;
    let errors = errors.join().unwrap_or_default();
    ensure!(
        status.success() || column.is_full,
        "{}",
        crate::mcp::last_words(&errors)
    );
    Ok(column)
}

impl Session {
    /// A command of this program about the process that is looked at.
    fn command_line(
        &self,
        command: &str,
        expression: &str,
        more: &[String],
    ) -> Result<Vec<OsString>> {
        let subject = self.subject.as_ref().context("there is no recording")?;
        let mut words: Vec<OsString> = vec![command.into()];
        words.extend(more.iter().map(Into::into));
        words.extend(["--pid".into(), subject.pid.to_string().into()]);
        words.extend(["--".into(), expression.into(), subject.dir.clone().into()]);
        Ok(words)
    }

    fn begin_question(
        &mut self,
        title: &str,
        asker: Asker,
        commands: Vec<Vec<OsString>>,
    ) -> Result<()> {
        ensure!(
            self.questions.waiting.len() < MOST_WAITING,
            "{MOST_WAITING} questions wait already"
        );
        let progress = self.begin_progress(title);
        let questions = &mut self.questions;
        questions.last += 1;
        let id = questions.last;
        questions.jobs.insert(
            id,
            Job {
                progress,
                asker,
                commands,
                child: Arc::default(),
            },
        );
        questions.waiting.push_back(id);
        self.ask_next();
        Ok(())
    }

    fn ask_next(&mut self) {
        let questions = &mut self.questions;
        while questions.running < MOST_RUNNING {
            let Some(id) = questions.waiting.pop_front() else {
                return;
            };
            let Some(job) = questions.jobs.get(&id) else {
                continue;
            };
            questions.running += 1;
            let (commands, child) = (job.commands.clone(), Arc::clone(&job.child));
            let ear: Ear = self.ear.clone();
            std::thread::spawn(move || {
                let columns = ask(&commands, &child);
                let _ = ear.send(Heard::Found(Found { job: id, columns }));
            });
        }
    }

    /// Asks what a logpoint says in all of the run.
    ///
    /// # Errors
    /// What gdb says of its place.
    pub fn log(&mut self, point: Logpoint) -> Result<(Option<String>, Value)> {
        let place = format!("{}:{}", point.path, point.line);
        let more = ["--at".to_string(), place.clone(), "--json".into()];
        let columns = point.columns();
        let commands = columns
            .iter()
            .map(|c| self.command_line("values", c, &more));
        let commands = commands.collect::<Result<Vec<_>>>()?;
        let told = self.probe(&point.path, point.line)?;
        self.begin_question(&format!("logpoint {place}"), Asker::Log(point), commands)?;
        Ok((None, told))
    }

    /// Values of an expression, where it comes from, or who wrote it: `reprise/values`, `reprise/origin`, `reprise/where`.
    ///
    /// # Errors
    /// When what is wanted is no such question.
    pub fn question(&mut self, request: &Request) -> Result<Answer> {
        let wanted = &request.arguments;
        let command = request.command.strip_prefix("reprise/").unwrap_or("");
        let expression = wanted["expression"]
            .as_str()
            .context("expression is a text")?;
        let mut more = vec!["--json".to_string()];
        let mut option = |name: &str, option: &str| {
            let value = match &wanted[name] {
                Value::String(text) => text.clone(),
                Value::Number(n) => n.to_string(),
                _ => return,
            };
            more.push(format!("{option}={value}"));
        };
        match command {
            "values" => {
                for name in ["at", "function", "thread", "from", "to"] {
                    option(name, &format!("--{name}"));
                }
            }
            "origin" => {
                for name in ["at", "depth"] {
                    option(name, &format!("--{name}"));
                }
            }
            _ => {
                for name in ["thread", "from", "to"] {
                    option(name, &format!("--{name}"));
                }
            }
        }
        let command_line = self.command_line(command, expression, &more)?;
        let title = format!("{command} of {expression}");
        self.begin_question(&title, Asker::Lines(request.clone()), vec![command_line])?;
        Ok(Answer::Given)
    }

    /// The same for a console, as text.
    ///
    /// # Errors
    /// When too many wait.
    pub fn question_as_text(
        &mut self,
        request: &Request,
        command: &str,
        expression: &str,
    ) -> Result<()> {
        let more = match command {
            // Where it is asked, and not where the run ends.
            "origin" => {
                let (now, _) = self.when()?;
                vec![format!("--at={now}")]
            }
            _ => Vec::new(),
        };
        let command_line = self.command_line(command, expression, &more)?;
        let title = format!("{command} of {expression}");
        self.begin_question(&title, Asker::Text(request.clone()), vec![command_line])
    }

    /// `gotoTargets`: each time a line was passed.
    ///
    /// # Errors
    /// When it names no line.
    pub fn goto_targets(&mut self, request: &Request) -> Result<Answer> {
        let path = request.arguments["source"]["path"].as_str();
        let path = path.context("source.path names no file")?.to_string();
        let line = self.line_of(&request.arguments["line"])?;
        let more = [
            "--at".to_string(),
            format!("{path}:{line}"),
            "--json".into(),
        ];
        let command_line = self.command_line("values", "1", &more)?;
        let asker = Asker::Targets {
            request: request.clone(),
            path: path.clone(),
            line,
        };
        self.begin_question(
            &format!("visits of {path}:{line}"),
            asker,
            vec![command_line],
        )?;
        Ok(Answer::Given)
    }

    /// `goto`: to one of them.
    ///
    /// # Errors
    /// When it was not told of, or can't be gone to.
    pub fn goto(&mut self, request: &Request) -> Result<Answer> {
        let id = request.arguments["targetId"].as_i64();
        let i = id.and_then(|id| usize::try_from(id.checked_sub(1)?).ok());
        let target = i.and_then(|i| self.questions.targets.get(i).cloned());
        let target = target.context("there is no such target")?;
        ensure!(self.moving.is_none(), "the program runs: pause it first");
        self.mouth.say(response(request, Ok(Value::Null)));
        let enabled = self.disable_all()?;
        let went = self.go_to_visit(&target);
        self.enable(&enabled)?;
        let stop = went?;
        self.frames.has_stopped(&stop);
        self.tell_stop("goto", None, &[])?;
        Ok(Answer::Given)
    }

    fn go_to_visit(&mut self, target: &Target) -> Result<Value> {
        self.go(&format!("run-to {}", target.event))?;
        let place = super::mi::quoted(&target.path);
        let inserted = self.mi(&format!(
            "-break-insert -t -f -i {} --source {place} --line {}",
            target.before, target.line
        ))?;
        let number = super::mi::text(&inserted["bkpt"], "number")
            .unwrap_or("")
            .to_string();
        let moved = self.move_on(super::motions::Motion::Continue, "-exec-continue");
        // It may be gone already, as it is when it was come to.
        let _ = self.mi(&format!("-break-delete {number}"));
        Ok(moved?.0)
    }

    /// A question has been answered.
    pub fn found(&mut self, found: Found) {
        let Some(job) = self.questions.jobs.remove(&found.job) else {
            return;
        };
        self.questions.running = self.questions.running.saturating_sub(1);
        self.ask_next();
        self.progress_ended(job.progress);
        match (job.asker, found.columns) {
            (Asker::Log(point), Ok(columns)) => self.tell_log(&point, &columns),
            (Asker::Log(point), Err(why)) => {
                let name = point.path.rsplit('/').next().unwrap_or("");
                let text = format!("logpoint {name}:{}: {why}\n", point.line);
                self.mouth.output("stderr", &text);
            }
            (Asker::Lines(request) | Asker::Text(request), Err(why))
            | (Asker::Targets { request, .. }, Err(why)) => {
                self.mouth.say(response(&request, Err(why)));
            }
            (Asker::Lines(request), Ok(columns)) => {
                let column = columns.into_iter().next().unwrap_or_default();
                let lines = column.lines.iter();
                let list: Vec<Value> = lines.filter_map(|l| serde_json::from_str(l).ok()).collect();
                let body = json!({"found": list.len(), "incomplete": column.is_full, "list": list});
                self.mouth.say(response(&request, Ok(body)));
            }
            (Asker::Text(request), Ok(columns)) => {
                let column = columns.into_iter().next().unwrap_or_default();
                let n = column.lines.len();
                self.tell_lines(column.lines.iter().map(|l| format!("{l}\n")), None);
                let more = if column.is_full {
                    ", and there are more"
                } else {
                    ""
                };
                let result = format!("{n} lines{more}");
                let body = json!({"result": result, "variablesReference": 0});
                self.mouth.say(response(&request, Ok(body)));
            }
            (
                Asker::Targets {
                    request,
                    path,
                    line,
                },
                Ok(columns),
            ) => {
                let hits = columns.first().map(Column::hits).unwrap_or_default();
                let mut targets = Vec::new();
                let mut last = (0, 0);
                for hit in hits.iter().take(MOST_TARGETS) {
                    last = match last {
                        (event, n) if event == hit.event => (event, n + 1),
                        _ => (hit.event, 0),
                    };
                    self.questions.targets.push(Target {
                        path: path.clone(),
                        line,
                        event: hit.event,
                        before: last.1,
                    });
                    let id = self.questions.targets.len();
                    let label = format!("event {}, thread {}", hit.event, hit.thread);
                    targets.push(json!({"id": id, "label": label, "line": self.line_for(line)}));
                }
                self.mouth
                    .say(response(&request, Ok(json!({"targets": targets}))));
            }
        }
    }

    fn tell_log(&mut self, point: &Logpoint, columns: &[Column]) {
        let lines = point.lines(columns);
        let name = point.path.rsplit('/').next().unwrap_or("").to_string();
        let n = lines.len();
        let is_full = columns.iter().any(|c| c.is_full);
        let more = match is_full {
            true => format!(" (of the first {MOST_FOUND} visits)"),
            false => String::new(),
        };
        let head = format!("logpoint {name}:{}: {n} hits{more}\n", point.line);
        let place = json!({"path": point.path, "name": name});
        let line = self.line_for(point.line);
        self.tell_lines(std::iter::once(head).chain(lines), Some((place, line)));
    }

    /// Text for the console, in batches.
    fn tell_lines(&mut self, lines: impl Iterator<Item = String>, place: Option<(Value, i64)>) {
        let mut batch = String::new();
        let mut tell = |text: &mut String| {
            let mut body = json!({"category": "console", "output": std::mem::take(text)});
            if let Some((source, line)) = &place {
                body["source"] = source.clone();
                body["line"] = (*line).into();
            }
            self.mouth.event("output", body);
        };
        for line in lines {
            batch.push_str(&line);
            if batch.len() >= BATCH {
                tell(&mut batch);
            }
        }
        if !batch.is_empty() {
            tell(&mut batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_texts_and_expressions() {
        let text = |t: &str| Piece::Text(t.into());
        let expression = |t: &str| Piece::Expression(t.into());
        assert_eq!(
            pieces("x is { x }, y{ a[1] }"),
            [
                text("x is "),
                expression("x"),
                text(", y"),
                expression("a[1]")
            ]
        );
        assert_eq!(pieces("{(struct s){1}.a}"), [expression("(struct s){1}.a")]);
        assert_eq!(pieces("{} {open"), [text("{} {open")]);
        assert_eq!(pieces(""), []);
    }

    #[test]
    fn columns_become_lines() {
        let column = |values: [&str; 3]| Column {
            lines: values
                .iter()
                .zip(5..)
                .map(|(v, n)| json!({"event": n, "thread": 7, "value": v}).to_string())
                .collect(),
            is_full: false,
        };
        let point = Logpoint::new("/a.c", 3, "{x} of {y}", Some("x > 1")).expect("a logpoint");
        assert_eq!(point.columns(), ["x > 1", "x", "y"]);
        let columns = [
            column(["0", "1", "true"]),
            column(["1", "2", "3"]),
            column(["a", "b", "c"]),
        ];
        assert_eq!(
            point.lines(&columns),
            ["event 6 thread 7: 2 of b\n", "event 7 thread 7: 3 of c\n"]
        );
        let plain = Logpoint::new("/a.c", 3, "here", None).expect("a logpoint");
        assert_eq!(plain.columns(), ["1"]);
        assert_eq!(
            plain.lines(&[column(["1", "1", "1"])])[0],
            "event 5 thread 7: here\n"
        );
    }

    #[test]
    fn a_message_may_have_so_many_expressions() {
        let many = "{x}".repeat(MOST_EXPRESSIONS + 1);
        let refused = Logpoint::new("/a.c", 1, &many, None).expect_err("too many");
        assert!(refused.to_string().contains("16 expressions, not 17"));
    }
}
