//! The two ends of the conversation with a client, and what else is heard in a session: all of it comes through one channel, to one thread.
//!
//! Reading and writing are threads of their own: who does not read holds up nothing but his own answers, until there are too many of them.

use super::messages::{self, Message};
use super::mi::{self, Record};
use reprise_console::Output;
use serde_json::{json, Value};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, Sender, SyncSender};
use std::sync::Arc;
use std::time::Duration;

/// What is heard and not yet looked at; who says more waits.
pub const WAITING: usize = 1024;
/// Most bytes that a client has not read yet.
const MOST_UNREAD: usize = 64 << 20;
/// How long the last answers may take.
const GRACE: Duration = Duration::from_secs(5);
/// Most bytes of a line of gdb's.
const MOST_LINE: u64 = 64 << 20;
/// How much of what a program writes goes into one event.
const PIECE: usize = 8 << 10;

/// What is heard.
pub enum Heard {
    /// From the client.
    Client(Message),
    /// The client has gone, or can't be understood any more.
    ClientGone(Option<String>),
    /// From gdb.
    Gdb(Record),
    /// gdb has ended.
    GdbGone,
    /// What a program has written, and where: `stdout`, `stderr`, `console`.
    Text(&'static str, String),
    /// The recording has ended: the exit status of `record`.
    Recorded(io::Result<std::process::ExitStatus>),
    /// What a question in the background has found.
    Found(super::background::Found),
}

/// Where all that is heard goes.
pub type Ear = SyncSender<Heard>;

/// Hears a client on the standard input.
pub fn hear_client(ear: Ear) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(io::stdin().lock());
        loop {
            let heard = match messages::read(&mut from) {
                Ok(Some(message)) => Heard::Client(message),
                Ok(None) => Heard::ClientGone(None),
                Err(why) => Heard::ClientGone(crate::exit::line_of(&why)),
            };
            let is_last = matches!(heard, Heard::ClientGone(_));
            if ear.send(heard).is_err() || is_last {
                return;
            }
        }
    });
}

/// Hears gdb.
pub fn hear_gdb(from: impl Read + Send + 'static, ear: Ear) {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut from).take(MOST_LINE).read_until(b'\n', &mut line);
            if !matches!(read, Ok(1..)) {
                let _ = ear.send(Heard::GdbGone);
                return;
            }
            let heard = mi::parse(&line).map(Heard::Gdb);
            if heard.is_some_and(|heard| ear.send(heard).is_err()) {
                return;
            }
        }
    });
}

/// Hears what a program writes; whoever holds the other end.
pub fn hear_text(
    mut from: impl Read + Send + 'static,
    category: &'static str,
    ear: Ear,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; PIECE];
        let mut rest = Vec::new();
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            rest.extend_from_slice(&buffer[..n]);
            // A character that is not whole waits for the next piece.
            let whole = match std::str::from_utf8(&rest) {
                Err(e) if e.error_len().is_none() => e.valid_up_to(),
                _ => rest.len(),
            };
            let text = String::from_utf8_lossy(&rest[..whole]).into_owned();
            rest.drain(..whole);
            if !text.is_empty() && ear.send(Heard::Text(category, text)).is_err() {
                return;
            }
        }
        if !rest.is_empty() {
            let text = String::from_utf8_lossy(&rest).into_owned();
            let _ = ear.send(Heard::Text(category, text));
        }
    })
}

/// What is said to the client.
pub struct Mouth {
    to: Sender<Vec<u8>>,
    done: Receiver<()>,
    unread: Arc<AtomicUsize>,
    seq: i64,
}

impl Mouth {
    /// On the standard output.
    pub fn new() -> Mouth {
        let (to, lines) = channel::<Vec<u8>>();
        let (ended, done) = channel();
        let unread = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&unread);
        std::thread::spawn(move || {
            for bytes in lines {
                // Where nobody reads, the end of the input says so.
                let _ = Output.write_all(&bytes);
                left.fetch_sub(bytes.len(), Relaxed);
            }
            let _ = ended.send(());
        });
        Mouth {
            to,
            done,
            unread,
            seq: 0,
        }
    }

    /// Says something; its number.
    pub fn say(&mut self, mut message: Value) -> i64 {
        self.seq += 1;
        message["seq"] = self.seq.into();
        let bytes = messages::framed(&message);
        self.unread.fetch_add(bytes.len(), Relaxed);
        let _ = self.to.send(bytes);
        self.seq
    }

    /// Tells of something.
    pub fn event(&mut self, event: &str, body: Value) {
        let mut message = json!({"type": "event", "event": event});
        if !body.is_null() {
            message["body"] = body;
        }
        self.say(message);
    }

    /// Text for the debugger's console.
    pub fn output(&mut self, category: &str, text: &str) {
        self.event("output", json!({"category": category, "output": text}));
    }

    /// Has the client left too much unread?
    pub fn is_clogged(&self) -> bool {
        self.unread.load(Relaxed) > MOST_UNREAD
    }

    /// Waits until all is said, for a while.
    pub fn close(self) {
        drop(self.to);
        let _ = self.done.recv_timeout(GRACE);
    }
}
