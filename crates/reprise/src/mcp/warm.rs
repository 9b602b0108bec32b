//! A replay with gdb at its side that waits for the next question.
//!
//! What a question costs is mostly the beginning: a process made out of the trace, gdb started, symbols read. So both stay: the server of `replay -d`
//! with its checkpoints, and one gdb that runs a loop (`warm.py`), over a pair of sockets: a question is a line of JSON, and so is its answer. Scripts of
//! `reprise values`, `calls` and `where` run in the same gdb; what they find comes through a pipe, as for these commands.
//!
//! A question that takes too long is interrupted, as by Ctrl-C, and answers with what it has; one that does not end then is ended with all that belongs to it,
//! and so is one that nobody wants any more. The next one begins anew.

use super::child::{ends_with_us, last_words};
use super::limits::Limits;
use super::sessions::{Sessions, Subject};
use crate::ask::make_pipe;
use crate::ask::stream::{Ended, Stream};
use crate::debug::{gdb, server, Session};
use anyhow::{bail, ensure, Context, Result};
use reprise_debug::collect::Frame;
use reprise_debug::Place;
use reprise_launch::process;
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::process::Signal;
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::time::{timeout_at, Instant};

/// What gdb runs.
const LOOP: &str = concat!(
    include_str!("../goroutine_stacks.py"),
    include_str!("warm.py")
);
/// Between two looks whether the server is ready.
const LOOK: Duration = Duration::from_millis(5);
/// What an interrupted question may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// Most bytes of what gdb answers.
const MOST_ANSWER: u64 = 8 << 20;
/// Most that one script may find, ...
pub const MOST_FOUND: usize = 100_000;
/// ... and in bytes.
const MOST_FOUND_BYTES: usize = 32 << 20;
/// What scripts have found that is kept for the next page.
const MOST_KEPT: usize = 4;

/// What a script has found, line by line.
#[derive(Default)]
pub struct Found {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// What there is to say besides.
    pub notes: Vec<String>,
    /// Where it was ended; none: all of the run was looked at.
    pub ended_at: Option<u64>,
    /// There was more than is kept.
    pub is_full: bool,
}

impl Found {
    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The line of this number, as JSON.
    pub fn line(&self, i: usize) -> Option<Value> {
        let end = *self.ends.get(i)?;
        let begin = i.checked_sub(1).map_or(0, |i| self.ends[i]);
        serde_json::from_slice(&self.bytes[begin..end]).ok()
    }

    /// Adds a line; false when there is no room for more.
    fn add(&mut self, line: &[u8]) -> bool {
        let has_room = self.len() < MOST_FOUND && self.bytes.len() < MOST_FOUND_BYTES;
        if has_room {
            self.bytes.extend_from_slice(line);
            self.ends.push(self.bytes.len());
        }
        self.is_full |= !has_room;
        has_room
    }
}

/// A script of `ask`, and how its findings are read. The last argument takes a line.
pub struct Script {
    /// Its text.
    pub text: String,
    /// What it is asked.
    pub wanted: String,
    /// Reads what comes, and hands on lines.
    pub read: Box<Read>,
}

/// Reads what a script finds, and hands on lines.
pub type Read = dyn FnOnce(&mut Stream, &mut Take<'_>) -> Result<Ended> + Send;

/// Takes a line of what is found.
pub type Take<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// The session.
pub struct Warm {
    // Ended before their directory goes.
    gdb: Child,
    server: Child,
    line: BufReader<UnixStream>,
    kept: VecDeque<(String, Arc<Found>)>,
    scripts: u64,
    room: TempDir,
}

impl Warm {
    async fn start(subject: &Subject, limits: &Limits) -> Result<Warm> {
        let room = tempfile::tempdir().context("make a directory for gdb's socket")?;
        let socket = room.path().join("gdb");
        let said = room.path().join("said");
        let unused = room.path().join("unused");
        let session = Session {
            dir: &subject.dir,
            birth: subject.birth,
            at: Place::Start,
            arguments: Session::script(room.path(), LOOP)?,
            answer: Some(&unused),
            limit: None,
            given_up: None,
            marks: false,
            debugger: None,
            unseen: false,
        };
        let mut command = Command::from(server(&session, &socket)?);
        let errors = File::create(&said).context("make a file for what the replay says")?;
        command.stderr(errors).kill_on_drop(true);
        let mut server = command.spawn().context("start the replay")?;
        while !socket.exists() {
            if server.try_wait().context("wait for the replay")?.is_some() {
                bail!("{}", last_words(&std::fs::read(&said).unwrap_or_default()));
            }
            if Instant::now() >= limits.end {
                return Err(limits.are_over());
            }
            tokio::time::sleep(LOOK).await;
        }
        let (ours, its) = std::os::unix::net::UnixStream::pair().context("make sockets")?;
        ours.set_nonblocking(true).context("make sockets")?;
        let mut command = Command::from(gdb(&socket, &session)?);
        ends_with_us(&mut command, Signal::KILL);
        command
            .env("REPRISE_LINE", its.as_raw_fd().to_string())
            .env("LC_ALL", "C")
            // It is to fetch nothing from anywhere.
            .env("DEBUGINFOD_URLS", "")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let fd = its.as_raw_fd();
        // SAFETY: a plain call in the child, on a descriptor that is open there. It is to stay open.
        unsafe {
            let fd = BorrowedFd::borrow_raw(fd);
            command.pre_exec(move || Ok(fcntl_setfd(fd, FdFlags::empty())?))
        };
        let gdb = command
            .spawn()
            .context("start gdb, which must be installed")?;
        let line = UnixStream::from_std(ours).context("use a socket")?;
        Ok(Warm {
            gdb,
            server,
            line: BufReader::new(line),
            kept: VecDeque::new(),
            scripts: 0,
            room,
        })
    }

    /// Ends it, and waits for that.
    pub async fn end(mut self) {
        let _ = self.gdb.kill().await;
        let _ = self.server.kill().await;
    }

    /// As by Ctrl-C.
    fn interrupt(&self) {
        if let Some(pid) = self.gdb.id() {
            // Our own child, which has not been reaped.
            let _ = process::send(pid as i32, Signal::INT);
        }
    }

    async fn say(&mut self, question: &Value) -> Result<()> {
        let mut line = question.to_string();
        line.push('\n');
        let said = self.line.get_mut().write_all(line.as_bytes()).await;
        said.map_err(|_| self.why_gone())
    }

    /// What is answered next. At `end`, or when there is `enough`, it is interrupted, once.
    async fn hear(&mut self, end: Instant, enough: &Notify) -> Result<Value> {
        let mut text = Vec::new();
        let (mut end, mut hurried) = (end, false);
        loop {
            let heard = tokio::select! {
                heard = timeout_at(end, read_line(&mut self.line, &mut text)) => Some(heard),
                () = enough.notified(), if !hurried => None,
            };
            match heard {
                Some(Ok(read)) => {
                    read.map_err(|_| self.why_gone())?;
                    return serde_json::from_slice(&text).context("read gdb's answer");
                }
                Some(Err(_)) if hurried => bail!("the replay did not stop, and was ended"),
                _ => {
                    hurried = true;
                    end = Instant::now() + GRACE;
                    self.interrupt();
                }
            }
        }
    }

    /// Why the replay is gone, of which gdb only knows that it is: the replay's server says that as it ends.
    async fn why_lost(mut self, answer: &Value) -> anyhow::Error {
        let _ = timeout_at(Instant::now() + GRACE, self.server.wait()).await;
        match (self.has_said(), answer["failed"].as_str()) {
            (false, Some(why)) => anyhow::anyhow!("{}", crate::exit::one_line(why)),
            _ => self.why_gone(),
        }
    }

    fn has_said(&self) -> bool {
        let said = std::fs::metadata(self.room.path().join("said"));
        said.is_ok_and(|m| m.len() > 0)
    }

    /// Why it does not answer any more.
    fn why_gone(&mut self) -> anyhow::Error {
        let said = std::fs::read(self.room.path().join("said")).unwrap_or_default();
        match said.is_empty() {
            true => anyhow::anyhow!("gdb has ended unexpectedly (is it one with python?)"),
            false => anyhow::anyhow!("{}", last_words(&said)),
        }
    }

    async fn ask(&mut self, question: &Value, limits: &Limits) -> Result<Value> {
        self.say(question).await?;
        self.hear(limits.end, &Notify::new()).await
    }

    async fn run(&mut self, script: Script, limits: &Limits) -> Result<(Value, Found)> {
        self.scripts += 1;
        let dir = self.room.path().join(format!("script-{}", self.scripts));
        std::fs::create_dir(&dir).context("make a directory for what gdb finds")?;
        std::fs::write(dir.join("wanted"), &script.wanted).context("write for gdb")?;
        let pipe = dir.join("found");
        let (read, mut write) = make_pipe(&pipe)?;
        let enough = Arc::new(Notify::new());
        let (is_enough, take_all) = (Arc::clone(&enough), script.read);
        let reader = tokio::task::spawn_blocking(move || {
            let mut stream = Stream::keeping_notes(read);
            let mut found = Found::default();
            let ended = take_all(&mut stream, &mut |line| {
                if !found.add(line) {
                    is_enough.notify_one();
                }
                Ok(())
            });
            found.notes = stream.notes().to_vec();
            (ended, found)
        });
        // Whoever reads learns in any case that nothing more comes.
        let mut end = EndOfPipe(Some(move || {
            let _ = Frame::End.write(&mut write);
        }));
        let question = json!({"ask": "script", "text": script.text, "answer": pipe});
        self.say(&question).await?;
        let told = self.hear(limits.end, &enough).await;
        end.now();
        let (ended, mut found) = reader.await.context("read what gdb has found")?;
        let told = told?;
        let _ = std::fs::remove_dir_all(&dir);
        found.ended_at = match ended? {
            Ended::Whole => None,
            Ended::Interrupted(event) => Some(event),
            Ended::Cut => match told["failed"].as_str() {
                Some(why) => bail!("{why}"),
                None => bail!("gdb gave no answer"),
            },
        };
        Ok((told, found))
    }
}

/// Does this at the latest when it is dropped.
struct EndOfPipe<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> EndOfPipe<F> {
    fn now(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl<F: FnOnce()> Drop for EndOfPipe<F> {
    fn drop(&mut self) {
        self.now();
    }
}

/// Reads a line of bounded length; what has come stays in `text` when this is given up.
async fn read_line(from: &mut BufReader<UnixStream>, text: &mut Vec<u8>) -> Result<()> {
    loop {
        let bytes = from.fill_buf().await?;
        ensure!(!bytes.is_empty(), "gdb is gone");
        let end = bytes.iter().position(|b| *b == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        text.extend_from_slice(&bytes[..taken]);
        from.consume(taken);
        if end.is_some() {
            return Ok(());
        }
        ensure!((text.len() as u64) < MOST_ANSWER, "gdb says too much");
    }
}

/// Asks gdb, at the side of a replay of this process: the one that is warm, or a new one. `question` has the name of the question under `ask`, and what
/// else `warm.py` wants to know.
///
/// # Errors
/// What gdb says, and when the limit of time is reached.
pub async fn ask(
    sessions: &Sessions,
    subject: &Subject,
    question: &Value,
    limits: &Limits,
) -> Result<Value> {
    let mut room = sessions.room(subject, limits).await?;
    // Taken out meanwhile: one whose question is given up is in the midst of something, and ends.
    let mut warm = match room.take() {
        Some(warm) => warm,
        None => Warm::start(subject, limits).await?,
    };
    let mut answer = warm.ask(question, limits).await?;
    if answer["interrupted"] == true {
        *room = Some(warm);
        return Err(limits.are_over());
    }
    // One whose connection is lost is of no use.
    if answer["lost"] == true {
        return Err(warm.why_lost(&answer).await);
    }
    *room = Some(warm);
    match answer["failed"].as_str() {
        Some(why) => bail!("{}", crate::exit::one_line(why)),
        None => Ok(answer["done"].take()),
    }
}

/// Runs a script there, or takes what it has found before. `name`: of the question, with all that it depends on.
///
/// # Errors
/// What gdb says.
pub async fn run(
    sessions: &Sessions,
    subject: &Subject,
    name: String,
    script: Script,
    limits: &Limits,
) -> Result<Arc<Found>> {
    let mut room = sessions.room(subject, limits).await?;
    let mut warm = match room.take() {
        Some(warm) => warm,
        None => Warm::start(subject, limits).await?,
    };
    if let Some((_, found)) = warm.kept.iter().find(|(n, _)| *n == name) {
        let found = Arc::clone(found);
        *room = Some(warm);
        return Ok(found);
    }
    let ran = warm.run(script, limits).await;
    let is_lost = match &ran {
        Ok((told, _)) if told["lost"] == true => return Err(warm.why_lost(told).await),
        Ok(_) => false,
        // What gdb says of a question is no reason to begin anew, what it doesn't say is.
        Err(_) => warm.gdb.try_wait().map_or(true, |status| status.is_some()),
    };
    let found = ran.map(|(_, found)| Arc::new(found));
    if let (Ok(found), false) = (&found, is_lost) {
        // What another limit would have found more of is asked again.
        if found.ended_at.is_none() || found.is_full {
            warm.kept.truncate(MOST_KEPT - 1);
            warm.kept.push_front((name, Arc::clone(found)));
        }
    }
    if !is_lost {
        *room = Some(warm);
    }
    found
}
