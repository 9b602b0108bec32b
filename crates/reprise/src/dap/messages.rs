//! Messages of the Debug Adapter Protocol ("Base protocol" of its specification): a header with a length, then JSON.
//!
//! What comes in is nobody's promise: lengths and headers are bounded. A message that can't be understood is answered, as far as it can be; a header that can't
//! be leaves no way to find the next message, and ends the connection.

use anyhow::{bail, ensure, Context, Result};
use serde_json::{json, Value};
use std::io::{BufRead, Read};

/// Most bytes of a message that comes in.
pub const MOST_MESSAGE: usize = 4 << 20;
/// Most bytes of its header.
const MOST_HEADER: u64 = 4 << 10;

/// What a client wants.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its number.
    pub seq: i64,
    /// Which request.
    pub command: String,
    /// What goes with it.
    pub arguments: Value,
}

/// What a client says.
#[derive(Debug)]
pub enum Message {
    /// It wants something.
    Request(Request),
    /// It answers a request of ours of this number.
    Response { to: i64, success: bool, body: Value },
    /// It can't be understood. The number of a request, where there is one.
    Nonsense { seq: i64, why: String },
}

/// Reads a message; `None` at the end.
///
/// # Errors
/// When there is no telling where the next one begins.
pub fn read(from: &mut impl BufRead) -> Result<Option<Message>> {
    let Some(length) = read_header(from)? else {
        return Ok(None);
    };
    let mut body = Vec::new();
    // What is announced takes no memory, only what comes.
    from.take(length as u64)
        .read_to_end(&mut body)
        .context("read a message")?;
    if body.len() < length {
        return Ok(None);
    }
    Ok(Some(understood(&body)))
}

fn read_header(from: &mut impl BufRead) -> Result<Option<usize>> {
    let mut length = None;
    let mut header = from.take(MOST_HEADER);
    let mut is_first = true;
    loop {
        let mut line = Vec::new();
        header
            .read_until(b'\n', &mut line)
            .context("read a header")?;
        if line.is_empty() && is_first {
            return Ok(None);
        }
        is_first = false;
        let Some(line) = line.strip_suffix(b"\n") else {
            ensure!(
                header.limit() > 0,
                "a header has more than {MOST_HEADER} bytes"
            );
            return Ok(None);
        };
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            bail!("a header has a line without a name");
        };
        if name.eq_ignore_ascii_case("Content-Length") {
            let n = value.trim().parse::<usize>();
            length = Some(n.ok().context("Content-Length is no number")?);
        }
    }
    let length = length.context("a header has no Content-Length")?;
    ensure!(
        length <= MOST_MESSAGE,
        "a message has {length} bytes, and may have {MOST_MESSAGE}"
    );
    Ok(Some(length))
}

fn understood(body: &[u8]) -> Message {
    let nonsense = |seq, why: &str| Message::Nonsense {
        seq,
        why: why.to_string(),
    };
    let mut value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(e) => return nonsense(0, &format!("a message is no JSON: {e}")),
    };
    let seq = value["seq"].as_i64();
    match value["type"].as_str() {
        Some("request") => {}
        Some("response") => {
            return match value["request_seq"].as_i64() {
                Some(to) => Message::Response {
                    to,
                    success: value["success"] == true,
                    body: value["body"].take(),
                },
                None => nonsense(0, "a response has no request_seq"),
            }
        }
        _ => {
            return nonsense(
                seq.unwrap_or(0),
                "a message is neither request nor response",
            )
        }
    }
    match (seq, value["command"].as_str()) {
        (Some(seq), Some(command)) => Message::Request(Request {
            seq,
            command: command.to_string(),
            arguments: value["arguments"].take(),
        }),
        (seq, _) => nonsense(seq.unwrap_or(0), "a request has no seq, or no command"),
    }
}

/// A message as it is written.
pub fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    let mut bytes = format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// An answer.
pub fn response(to: &Request, result: Result<Value, String>) -> Value {
    match result {
        Ok(body) => {
            let mut message = json!({"type": "response", "request_seq": to.seq, "command": to.command, "success": true});
            if !body.is_null() {
                message["body"] = body;
            }
            message
        }
        // `showUser`: editors show it instead of only writing it down.
        Err(why) => {
            json!({"type": "response", "request_seq": to.seq, "command": to.command, "success": false,
                "message": why, "body": {"error": {"id": 1, "format": why.replace('{', "{{"), "showUser": true}}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn all(bytes: &[u8]) -> (Vec<Message>, Option<String>) {
        let mut from = Cursor::new(bytes);
        let mut found = Vec::new();
        loop {
            match read(&mut from) {
                Ok(Some(message)) => found.push(message),
                Ok(None) => return (found, None),
                Err(why) => return (found, Some(why.to_string())),
            }
        }
    }

    #[test]
    fn messages_come_one_after_the_other() {
        let mut bytes = framed(&json!({"seq": 1, "type": "request", "command": "threads"}));
        bytes.extend_from_slice(b"content-length: 2\r\nContent-Type: x\r\n\r\n{}");
        bytes.extend(framed(
            &json!({"seq": 2, "type": "response", "request_seq": 7, "success": true, "body": {"a": 1}}),
        ));
        let (found, end) = all(&bytes);
        assert_eq!(end, None);
        assert!(matches!(&found[0], Message::Request(r) if r.seq == 1 && r.command == "threads"));
        assert!(matches!(&found[1], Message::Nonsense { seq: 0, .. }));
        assert!(
            matches!(&found[2], Message::Response { to: 7, success: true, body } if body["a"] == 1)
        );
    }

    #[test]
    fn what_is_no_json_costs_one_message() {
        let mut bytes = b"Content-Length: 3\r\n\r\n{\"a".to_vec();
        bytes.extend(framed(&json!({"seq": 4, "type": "request"})));
        bytes.extend(framed(&json!([1, 2])));
        let (found, end) = all(&bytes);
        assert_eq!(end, None);
        assert_eq!(found.len(), 3);
        assert!(matches!(&found[1], Message::Nonsense { seq: 4, .. }));
    }

    #[test]
    fn headers_are_bounded() {
        let (_, end) = all(b"POST / HTTP/1.1\r\n\r\n");
        assert_eq!(end.as_deref(), Some("a header has a line without a name"));
        let (_, end) = all(b"Host: here\r\n\r\n");
        assert_eq!(end.as_deref(), Some("a header has no Content-Length"));
        let (_, end) = all(b"Content-Length: 99999999\r\n\r\n");
        assert!(end.expect("an end").contains("may have 4194304"));
        let (_, end) = all(b"Content-Length: -1\r\n\r\n");
        assert_eq!(end.as_deref(), Some("Content-Length is no number"));
        let (_, end) = all(&[b'a'; 10_000]);
        assert_eq!(end.as_deref(), Some("a header has more than 4096 bytes"));
        // Those that end in the midst have gone.
        for bytes in [&b"Content-Le"[..], b"Content-Length: 10\r\n\r\n{}", b""] {
            let (found, end) = all(bytes);
            assert!(found.is_empty() && end.is_none());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = all(&bytes);
        }

        #[test]
        fn any_body_is_taken(body in ".{0,80}") {
            let bytes = [format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body.as_bytes()].concat();
            let (found, end) = all(&bytes);
            prop_assert_eq!((found.len(), end), (1, None));
        }
    }
}
