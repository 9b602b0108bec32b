//! The wire: a message of the protocol is a line of JSON, in on the standard input, out on the standard output.
//!
//! The crate `rmcp` has such a transport. It drops what is no JSON and lines that are too long without a word, and whoever sent them waits for
//! ever; this one answers them, as JSON-RPC 2.0 (5.1) wants it. It also sees a client that has gone: at the end of its input, what it has asked for is still
//! answered, as long as somebody reads.
//!
//! Reading and writing are threads of their own, so that a client that does not read holds up nothing but its own answers.

use reprise_console::Output;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::stdio::stdout;
use serde_json::{json, Value};
use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Most bytes of a message that comes in.
pub const MOST_LINE: usize = 1 << 20;
/// Messages that wait to be looked at.
const WAITING: usize = 16;
/// Between two looks whether a client that says nothing more still reads.
const LOOK: Duration = Duration::from_millis(50);
/// Most bytes of what is said of a message that can't be read.
const MOST_SAID: usize = 200;

/// What was heard.
enum Heard {
    Line(Vec<u8>),
    /// One of more than [`MOST_LINE`] bytes.
    TooLong,
}

/// A line to be written, and who waits for that.
type Sending = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// The transport.
pub struct Wire {
    heard: mpsc::Receiver<Heard>,
    out: mpsc::UnboundedSender<Sending>,
    /// Requests that have no answer yet.
    open: Arc<Mutex<HashSet<RequestId>>>,
    /// Cancelled when nobody reads any more.
    gone: CancellationToken,
}

impl Wire {
    /// Over the standard input and output; `gone` is cancelled when the client has gone.
    pub fn new(gone: CancellationToken) -> Wire {
        let (to, heard) = mpsc::channel(WAITING);
        std::thread::spawn(move || read_lines(io::stdin().lock(), &to));
        let (out, mut lines) = mpsc::unbounded_channel::<Sending>();
        std::thread::spawn(move || {
            while let Some((line, done)) = lines.blocking_recv() {
                let _ = done.send(Output.write_all(&line));
            }
        });
        Wire {
            heard,
            out,
            open: Arc::default(),
            gone,
        }
    }

    fn open(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps account of what is to be answered.
    fn note(&self, message: &ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.open().insert(request.id.clone());
            }
            JsonRpcMessage::Notification(n) => {
                use rmcp::model::ClientNotification::CancelledNotification;
                if let CancelledNotification(cancelled) = &n.notification {
                    if let Some(id) = &cancelled.params.request_id {
                        self.open().remove(id);
                    }
                }
            }
            _ => {}
        }
    }

    /// Nothing more will be heard: until all is answered, or nobody reads.
    async fn end(&self) {
        while !self.open().is_empty() {
            if is_unread() {
                self.gone.cancel();
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn refuse(&self, refusal: Refusal) {
        // The crate leaves out an id that is not known; JSON-RPC 2.0 wants null.
        let error = json!({"code": refusal.code, "message": refusal.why});
        let message = json!({"jsonrpc": "2.0", "id": refusal.id, "error": error});
        let line = format!("{message}\n").into_bytes();
        let _ = send(self.out.clone(), line, self.gone.clone()).await;
    }
}

impl Transport<RoleServer> for Wire {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl std::future::Future<Output = io::Result<()>> + Send + 'static {
        let id = match &message {
            JsonRpcMessage::Response(r) => Some(&r.id),
            JsonRpcMessage::Error(e) => e.id.as_ref(),
            _ => None,
        }
        .cloned();
        let (out, gone, open) = (self.out.clone(), self.gone.clone(), Arc::clone(&self.open));
        let line = line_of(&message);
        async move {
            let sent = send(out, line, gone).await;
            if let Some(id) = id {
                open.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(heard) = self.heard.recv().await else {
                self.end().await;
                return None;
            };
            let read = match heard {
                Heard::Line(line) => message_of(&line),
                Heard::TooLong => Err(Refusal::new(
                    ErrorCode::INVALID_REQUEST,
                    None,
                    format!("a message of more than {MOST_LINE} bytes is not taken"),
                )),
            };
            match read {
                Ok(Some(message)) => {
                    self.note(&message);
                    return Some(message);
                }
                Ok(None) => {}
                Err(refusal) => self.refuse(refusal).await,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.heard.close();
        Ok(())
    }
}

fn line_of(message: &TxJsonRpcMessage<RoleServer>) -> Vec<u8> {
    // Nothing in it has keys that are no strings.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

async fn send(
    out: mpsc::UnboundedSender<Sending>,
    line: Vec<u8>,
    gone: CancellationToken,
) -> io::Result<()> {
    let (done, written) = oneshot::channel();
    let lost = || io::Error::from(io::ErrorKind::BrokenPipe);
    out.send((line, done)).map_err(|_| lost())?;
    let sent = written.await.unwrap_or_else(|_| Err(lost()));
    if sent.is_err() {
        gone.cancel();
    }
    sent
}

/// Reads lines until the end; what is too long is skipped.
fn read_lines(mut from: impl BufRead, to: &mpsc::Sender<Heard>) {
    let mut line = Vec::new();
    let mut skips = false;
    loop {
        let Ok(bytes) = from.fill_buf() else { return };
        if bytes.is_empty() {
            return;
        }
        let end = bytes.iter().position(|b| *b == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        let is_too_long = line.len() + taken > MOST_LINE;
        if !skips && !is_too_long {
            line.extend_from_slice(&bytes[..taken]);
        }
        from.consume(taken);
        skips |= is_too_long;
        if end.is_some() {
            let line = std::mem::take(&mut line);
            let heard = match std::mem::take(&mut skips) {
                true => Heard::TooLong,
                false => Heard::Line(line),
            };
            if to.blocking_send(heard).is_err() {
                return;
            }
        } else if skips {
            line.clear();
        }
    }
}

/// Why a message is not taken.
#[derive(Debug)]
struct Refusal {
    code: ErrorCode,
    id: Option<RequestId>,
    why: String,
}

impl Refusal {
    fn new(code: ErrorCode, id: Option<RequestId>, why: String) -> Refusal {
        Refusal { code, id, why }
    }
}

/// The message in a line; none where the line is one to be passed over.
fn message_of(line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Refusal> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(line).map_err(|e| {
        Refusal::new(
            ErrorCode::PARSE_ERROR,
            None,
            format!("this line is no JSON: {e}"),
        )
    })?;
    let id = value.get("id").cloned();
    let id: Option<RequestId> = id.and_then(|id| serde_json::from_value(id).ok());
    let method = value.get("method").and_then(Value::as_str);
    let has_method = method.is_some();
    if value.is_array() {
        let why = "several messages in one line are not taken: send each in a line of its own";
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, None, why.into()));
    }
    match serde_json::from_value(value) {
        Ok(message) => Ok(Some(message)),
        // A notification that nobody knows is none of ours, and has no answer.
        Err(_) if has_method && id.is_none() => Ok(None),
        Err(e) => {
            let mut said = e.to_string();
            said.truncate(super::page::boundary(&said, MOST_SAID));
            let why = format!("this is no message of JSON-RPC 2.0: {said}");
            Err(Refusal::new(ErrorCode::INVALID_REQUEST, id, why))
        }
    }
}

/// Has the reader of the standard output gone?
fn is_unread() -> bool {
    let output = stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|n| n > 0)
        && polled[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_their_ends_and_long_ones_told_of() {
        let (to, mut heard) = mpsc::channel(8);
        let mut text = b"one\n".to_vec();
        text.extend(vec![b'x'; MOST_LINE + 1]);
        text.extend(b"\ntwo\nthe rest");
        read_lines(text.as_slice(), &to);
        drop(to);
        let mut all = Vec::new();
        while let Some(one) = heard.blocking_recv() {
            all.push(match one {
                Heard::Line(line) => String::from_utf8(line).expect("text"),
                Heard::TooLong => "too long".into(),
            });
        }
        assert_eq!(all, ["one\n", "too long", "two\n"]);
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_id() {
        let refused = |text: &str| message_of(text.as_bytes()).expect_err(text);
        assert_eq!(refused("{\"jsonrpc\":").code, ErrorCode::PARSE_ERROR);
        assert_eq!(refused("[]").code, ErrorCode::INVALID_REQUEST);
        assert_eq!(refused("7").code, ErrorCode::INVALID_REQUEST);
        let one = refused("{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}");
        assert_eq!(
            (one.code, one.id),
            (ErrorCode::INVALID_REQUEST, Some(RequestId::Number(7)))
        );
        assert!(message_of(b"\r\n").is_ok_and(|m| m.is_none()));
    }
}
