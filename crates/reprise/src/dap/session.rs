//! A session: one client, one recording, one thread that hears both and answers.
//!
//! While the program runs gdb takes no commands. Requests that come meanwhile are answered with what is known, interrupt it for a moment, or are refused;
//! those that come while gdb works on another one wait, but for those that want it to end.

use super::background::Questions;
use super::breakpoints::Breakpoints;
use super::frames::Frames;
use super::gdb::{console, Gdb};
use super::launching::Subject;
use super::messages::{response, Message, Request};
use super::mi::{self, Record};
use super::motions::Motion;
use super::variables::Variables;
use super::wire::{hear_client, Ear, Heard, Mouth, WAITING};
use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::sync::mpsc::{sync_channel, Receiver};
use std::time::{Duration, Instant};

/// Requests that wait.
const MOST_WAITING: usize = 4096;
/// Most bytes that are kept of what a command prints.
const MOST_SAID: usize = 4 << 20;
/// How long a client of a server may take until it has shown its token.
const PATIENCE: Duration = Duration::from_secs(60);
/// What begins the lines in which the replay says how far a long motion is.
const PROGRESS: &str = "reprise: at event ";
/// What gdb says at both ends of a recording.
const END: &str = "No more reverse-execution history";

/// The reason of a stop that gdb has not told as one: it could not make the motion.
pub const FAILED: &str = "failed";

/// What a client can do.
#[derive(Default)]
pub struct Client {
    /// Is shown progress.
    pub progress: bool,
    /// Asks for parts of long lists.
    pub paging: bool,
    /// Runs programs in a terminal of its own.
    pub terminal: bool,
    /// Its lines begin at 0.
    zero_lines: bool,
}

/// How far a session is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Stage {
    /// Nothing is known of the client.
    New,
    /// It has said who it is.
    Met,
    /// There is a recording, and gdb; breakpoints are set.
    Ready,
    /// The program may run.
    Going,
}

/// The session.
pub struct Session {
    /// To the client.
    pub mouth: Mouth,
    /// For threads that have something to say to it.
    pub ear: Ear,
    heard: Receiver<Heard>,
    backlog: VecDeque<Request>,
    stage: Stage,
    /// What `launch` has to show.
    token: Option<String>,
    born: Instant,
    /// What the client can do.
    pub client: Client,
    /// The recording.
    pub subject: Option<Subject>,
    gdb: Option<Gdb>,
    /// It moves, and has not stopped yet.
    pub moving: Option<Motion>,
    /// How it has stopped; nobody has looked at that.
    stop: Option<Value>,
    /// Texts since the last command, or the last motion.
    pub said: String,
    /// What was said in this motion: the recording ends here.
    at_end: bool,
    /// A request to end what takes so long.
    hurried: bool,
    /// The request that is being answered.
    current: i64,
    /// There are other threads than there were.
    pub threads_changed: bool,
    /// Threads and their frames.
    pub frames: Frames,
    /// What was shown of values.
    pub variables: Variables,
    /// Places at which it stops.
    pub breakpoints: Breakpoints,
    /// Questions in the background.
    pub questions: Questions,
    /// Why it last stopped, for `exceptionInfo`.
    pub signal: Option<(String, String)>,
    progress: Option<i64>,
    /// The progress of a replay that is being started.
    pub starting: Option<i64>,
    last_progress: i64,
    /// The client has gone, or wants no more.
    over: bool,
    /// Somebody was told that this is the end.
    terminated: bool,
}

impl Session {
    /// A session with the client at the standard input and output; one that has to show this token, if there is one.
    pub fn new(token: Option<String>) -> Session {
        let (ear, heard) = sync_channel(WAITING);
        hear_client(ear.clone());
        Session {
            mouth: Mouth::new(),
            ear,
            heard,
            backlog: VecDeque::new(),
            stage: Stage::New,
            token,
            born: Instant::now(),
            client: Client::default(),
            subject: None,
            gdb: None,
            moving: None,
            stop: None,
            said: String::new(),
            at_end: false,
            hurried: false,
            current: 0,
            threads_changed: true,
            frames: Frames::default(),
            variables: Variables::default(),
            breakpoints: Breakpoints::default(),
            questions: Questions::default(),
            signal: None,
            progress: None,
            starting: None,
            last_progress: 0,
            over: false,
            terminated: false,
        }
    }

    /// Until the client has gone, or wants no more.
    pub fn run(mut self) {
        while !self.over {
            if let Some(stop) = self.stop.take() {
                if let Err(why) = self.stopped(&stop) {
                    self.complain(&why);
                }
                continue;
            }
            // What runs is heard first: it may be what is asked about.
            if let Some(request) = self.backlog.pop_front() {
                self.answer(&request);
                continue;
            }
            match self.hear() {
                Ok(Some(record)) => self.note(record),
                Ok(None) => {}
                Err(why) => self.complain(&why),
            }
        }
        self.questions.end();
        self.gdb = None;
        self.mouth.close();
    }

    /// What is heard next. Requests wait; what gdb says is handed back.
    fn hear(&mut self) -> Result<Option<Record>> {
        if self.mouth.is_clogged() {
            self.over = true;
            bail!("the client reads nothing");
        }
        let must_show = self.token.is_some() && self.stage <= Stage::Met;
        let heard = match must_show {
            false => self.heard.recv().ok(),
            true => {
                let left = PATIENCE.saturating_sub(self.born.elapsed());
                self.heard.recv_timeout(left).ok()
            }
        };
        let Some(heard) = heard else {
            self.over = true;
            bail!("the client has not shown its token");
        };
        match heard {
            Heard::Client(message) => self.client_says(message),
            Heard::ClientGone(why) => {
                self.over = true;
                match why {
                    Some(why) => bail!("the client can't be understood: {why}"),
                    None => bail!("the client has gone"),
                }
            }
            Heard::Gdb(record) => return Ok(Some(record)),
            Heard::GdbGone => {
                if let Some(mut gdb) = self.gdb.take() {
                    let why = gdb.why_gone();
                    self.moving = None;
                    self.terminate();
                    return Err(why);
                }
            }
            Heard::Text(category, text) => self.has_written(category, &text),
            Heard::Recorded(status) => self.recorded(status),
            Heard::Found(found) => self.found(found),
        }
        Ok(None)
    }

    fn client_says(&mut self, message: Message) {
        match message {
            Message::Request(request) => {
                if self.backlog.len() >= MOST_WAITING {
                    let why = format!("{MOST_WAITING} requests wait already");
                    self.mouth.say(response(&request, Err(why)));
                    return;
                }
                let ends = matches!(request.command.as_str(), "disconnect" | "terminate");
                let pauses = request.command == "pause" && self.moving.is_some();
                // What is to end doesn't wait until it has ended.
                if request.command == "cancel" {
                    self.cancel(&request.arguments);
                    self.mouth.say(response(&request, Ok(Value::Null)));
                    return;
                }
                if self.current != 0 && (ends || pauses) {
                    self.hurry();
                }
                match ends {
                    true => self.backlog.push_front(request),
                    false => self.backlog.push_back(request),
                }
            }
            Message::Response { to, success, body } => self.client_answers(to, success, &body),
            Message::Nonsense { seq, why } => {
                let request = Request {
                    seq,
                    command: String::new(),
                    arguments: Value::Null,
                };
                self.mouth.say(response(&request, Err(why)));
            }
        }
    }

    /// Ends what gdb is at.
    fn hurry(&mut self) {
        self.hurried = true;
        if let Some(gdb) = &self.gdb {
            gdb.interrupt();
        }
    }

    /// Was the request that is being answered asked to end? Looks at what the client has said meanwhile.
    ///
    /// # Errors
    /// When it was, or the client has gone.
    pub fn still(&mut self) -> Result<()> {
        while let Ok(heard) = self.heard.try_recv() {
            match heard {
                Heard::Client(message) => self.client_says(message),
                Heard::ClientGone(_) => {
                    self.over = true;
                    bail!("the client has gone");
                }
                Heard::Text(category, text) => self.has_written(category, &text),
                Heard::Found(found) => self.found(found),
                Heard::Gdb(_) | Heard::GdbGone | Heard::Recorded(_) => {}
            }
        }
        ensure!(!self.hurried, "it was ended");
        Ok(())
    }

    /// Waits for something else than an answer of gdb's: until `done`.
    ///
    /// # Errors
    /// When the client has gone, or wants this to end.
    pub fn wait_until(&mut self, done: impl Fn(&Session) -> bool) -> Result<()> {
        while !done(self) {
            if let Some(record) = self.hear()? {
                self.note(record);
            }
            ensure!(!self.hurried, "it was ended");
        }
        Ok(())
    }

    fn answer(&mut self, request: &Request) {
        self.current = request.seq;
        self.hurried = false;
        let result = self.asked(request);
        self.current = 0;
        let result = match result {
            Ok(Answer::Given) => return,
            Ok(Answer::Body(body)) => Ok(body),
            Err(why) => Err(crate::exit::line_of(&why).unwrap_or_else(|| "it failed".into())),
        };
        self.mouth.say(response(request, result));
        if request.command == "launch" || request.command == "attach" {
            match self.stage {
                Stage::Ready => self.mouth.event("initialized", Value::Null),
                // It can't be tried again with another token.
                _ if self.token.is_some() => self.over = true,
                _ => {}
            }
        }
    }

    fn asked(&mut self, request: &Request) -> Result<Answer> {
        let arguments = &request.arguments;
        match (request.command.as_str(), self.stage) {
            ("initialize", Stage::New) => return self.initialize(arguments).map(Answer::Body),
            ("initialize", _) => bail!("the session has begun already"),
            ("disconnect", _) => {
                self.over = true;
                self.gdb = None;
                return Ok(Answer::Body(Value::Null));
            }
            (command, Stage::New) => bail!("initialize comes before {command}"),
            ("launch" | "attach", Stage::Met) => {
                self.check_token(arguments)?;
                self.token = None;
                let is_launch = request.command == "launch";
                self.begin(arguments, is_launch)?;
                self.stage = Stage::Ready;
                return Ok(Answer::Body(Value::Null));
            }
            ("launch" | "attach", _) => bail!("the session has a recording already"),
            ("terminate", Stage::Met) => {
                self.terminate();
                return Ok(Answer::Body(Value::Null));
            }
            (command, Stage::Met) => bail!("launch or attach comes before {command}"),
            ("configurationDone", Stage::Ready) => {
                self.stage = Stage::Going;
                self.mouth.say(response(request, Ok(Value::Null)));
                self.set_out()?;
                return Ok(Answer::Given);
            }
            _ => {}
        }
        super::requests::answer(self, request)
    }

    fn initialize(&mut self, arguments: &Value) -> Result<Value> {
        let is = |name: &str| arguments[name] == true;
        ensure!(
            arguments["pathFormat"].as_str().unwrap_or("path") == "path",
            "paths are told as paths only, not as {}",
            arguments["pathFormat"]
        );
        self.client = Client {
            progress: is("supportsProgressReporting"),
            paging: is("supportsVariablePaging"),
            terminal: is("supportsRunInTerminalRequest"),
            zero_lines: arguments["linesStartAt1"] == false,
        };
        self.stage = Stage::Met;
        Ok(super::requests::capabilities())
    }

    fn check_token(&self, arguments: &Value) -> Result<()> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let shown = arguments["token"].as_str().unwrap_or("").as_bytes();
        // Takes as long wherever they differ.
        let differs = shown
            .iter()
            .zip(token.as_bytes())
            .fold(0, |d, (a, b)| d | (a ^ b));
        ensure!(
            shown.len() == token.len() && differs == 0,
            "`token` is not that of this server"
        );
        Ok(())
    }

    /// A line of the client's, as gdb counts.
    ///
    /// # Errors
    /// When it is none.
    pub fn line_of(&self, value: &Value) -> Result<i64> {
        let line = value.as_i64().context("a line is a number")?;
        Ok(line.saturating_add(self.client.zero_lines.into()))
    }

    /// A line of gdb's, as the client counts.
    pub fn line_for(&self, line: i64) -> i64 {
        line - i64::from(self.client.zero_lines)
    }

    /// Lets gdb be the one of this session.
    pub fn take_gdb(&mut self, gdb: Gdb) {
        self.gdb = Some(gdb);
    }

    /// gdb.
    ///
    /// # Errors
    /// When there is none.
    pub fn gdb(&mut self) -> Result<&mut Gdb> {
        self.gdb.as_mut().context("the replay has ended")
    }

    /// Gives gdb a command of its machine interface, and waits for the answer.
    ///
    /// # Errors
    /// What it says.
    pub fn mi(&mut self, command: &str) -> Result<Value> {
        ensure!(self.moving.is_none(), "the program runs: pause it first");
        self.mi_now(command)
    }

    /// The same for a command that lets it run.
    pub fn mi_now(&mut self, command: &str) -> Result<Value> {
        self.said.clear();
        let sent = self.gdb()?.send(command)?;
        loop {
            let Some(record) = self.hear()? else {
                continue;
            };
            match record {
                Record::Result {
                    token: Some(token),
                    class,
                    results,
                } if token == sent => match class.as_str() {
                    "error" => bail!("{}", mi::text(&results, "msg").unwrap_or("gdb failed")),
                    _ => return Ok(results),
                },
                other => self.note(other),
            }
        }
    }

    /// What a command of gdb's command line prints.
    ///
    /// # Errors
    /// What it says.
    pub fn console(&mut self, command: &str) -> Result<String> {
        self.mi(&console(command))?;
        Ok(std::mem::take(&mut self.said))
    }

    /// What the replay says to a command of its own.
    ///
    /// # Errors
    /// What gdb says.
    pub fn monitor(&mut self, command: &str) -> Result<String> {
        let said = self.console(&format!("monitor {command}"))?;
        Ok(said.trim().to_string())
    }

    fn note(&mut self, record: Record) {
        match record {
            Record::Console(text) => {
                self.at_end |= text.contains(END);
                self.keep(&text);
            }
            Record::Target(text) => match text.strip_prefix(PROGRESS) {
                Some(how_far) => self.moves(how_far),
                None => self.keep(&text),
            },
            Record::Exec { class, results } if class == "stopped" => self.stop = Some(results),
            // A motion that gdb has let begin, and then finds that it can't make.
            Record::Result { class, results, .. } if class == "error" && self.moving.is_some() => {
                self.stop = Some(json!({"reason": FAILED, "msg": results["msg"]}));
            }
            Record::Notify { class, results } => match class.as_str() {
                "thread-created" | "thread-exited" => self.threads_changed = true,
                "breakpoint-modified" => self.breakpoint_modified(&results["bkpt"]),
                _ => {}
            },
            _ => {}
        }
    }

    fn keep(&mut self, text: &str) {
        if self.said.len() + text.len() <= MOST_SAID {
            self.said.push_str(text);
        }
    }

    /// A motion that has begun: what is said from here on is of it.
    pub fn sets_out(&mut self) {
        self.at_end = false;
        self.stop = None;
    }

    /// Waits until a motion that was begun is over; how it stopped, and whether that is an end of the recording.
    ///
    /// # Errors
    /// When the client has gone, or the replay.
    pub fn wait_stop(&mut self) -> Result<(Value, bool)> {
        loop {
            if let Some(stop) = self.stop.take() {
                self.moving = None;
                self.end_progress();
                return Ok((stop, self.at_end));
            }
            if let Some(record) = self.hear()? {
                self.note(record);
            }
            ensure!(self.gdb.is_some(), "the replay has ended");
        }
    }

    /// Was the end of the recording come to by the motion that has just ended?
    pub fn is_at_end(&self) -> bool {
        self.at_end
    }

    /// The motion is at "118 of 148, after 1 s".
    fn moves(&mut self, how_far: &str) {
        if !self.client.progress {
            return;
        }
        let mut words = how_far.split([' ', ',']);
        let now = words.next().and_then(|w| w.parse::<u64>().ok());
        let all = words.nth(1).and_then(|w| w.parse::<u64>().ok());
        let (Some(now), Some(all)) = (now, all) else {
            return;
        };
        let id = match self.progress {
            Some(id) => id,
            None => self.begin_progress("replaying"),
        };
        self.progress = Some(id);
        let percentage = 100.0 * now as f64 / all.max(1) as f64;
        let message = format!("event {now} of {all}");
        self.mouth.event(
            "progressUpdate",
            json!({"progressId": id.to_string(), "message": message, "percentage": percentage}),
        );
    }

    /// Tells of something that may take long, and can be cancelled; its number.
    pub fn begin_progress(&mut self, title: &str) -> i64 {
        self.last_progress += 1;
        let id = self.last_progress;
        if self.client.progress {
            let body = json!({"progressId": id.to_string(), "title": title, "cancellable": true});
            self.mouth.event("progressStart", body);
        }
        id
    }

    /// It is over.
    pub fn progress_ended(&mut self, id: i64) {
        if self.client.progress {
            self.mouth
                .event("progressEnd", json!({"progressId": id.to_string()}));
        }
    }

    /// The motion is over.
    pub fn end_progress(&mut self) {
        if let Some(id) = self.progress.take() {
            self.progress_ended(id);
        }
    }

    fn cancel(&mut self, arguments: &Value) {
        let request = arguments["requestId"].as_i64().filter(|r| *r != 0);
        if let Some(request) = request {
            match request == self.current {
                true => self.hurry(),
                false => self.questions.cancel_request(request),
            }
        }
        let id = &arguments["progressId"];
        let Some(id) = id.as_str().and_then(|id| id.parse::<i64>().ok()) else {
            return;
        };
        if Some(id) == self.progress {
            self.interrupt();
        } else if Some(id) == self.starting {
            self.hurry();
        } else if !self.stop_recording(Some(id)) {
            self.questions.cancel(id);
        }
    }

    /// As by Ctrl-C.
    pub fn interrupt(&mut self) {
        if let Some(gdb) = &self.gdb {
            gdb.interrupt();
        }
    }

    /// Says what went wrong where nobody waits for an answer.
    fn complain(&mut self, why: &anyhow::Error) {
        let why = crate::exit::line_of(why).unwrap_or_else(|| "it failed".into());
        self.mouth.output("stderr", &format!("reprise: {why}\n"));
        tracing::info!(why, "a session of a debug adapter");
    }

    /// The recording can't be looked at any more.
    pub fn terminate(&mut self) {
        if !std::mem::replace(&mut self.terminated, true) {
            self.mouth.event("terminated", Value::Null);
        }
    }
}

/// How a request is answered.
pub enum Answer {
    /// With this.
    Body(Value),
    /// It was answered already.
    Given,
}
