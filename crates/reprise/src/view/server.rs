//! A web server for one page and one user: on 127.0.0.1 only, GET only, under a secret path. Other users of the machine can connect, and other
//! sites' pages can make the browser connect; without the path, and with another host's name, they get nothing.

use super::page;
use super::place;
use super::tiles::Tiles;
use anyhow::Context;
use reprise_console::say;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of a request.
const MAX_REQUEST: u64 = 16 << 10;
/// Most connections at a time that have said nothing yet. When there is one more the oldest is given up: who only connects keeps nobody out.
const MAX_SILENT: usize = 64;
/// How long a peer may take to say what it wants, once it has begun, and for each part of the answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to begin. Browsers connect before they need it, and take it for a failure when such a connection is closed at the
/// moment of its first use; Chromium gives them up itself after 10 s, if it is not held up.
const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// What the page may do: nothing but ask this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The server, listening.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    secret: String,
    tiles: Mutex<Tiles>,
    dir: PathBuf,
    silent: Mutex<VecDeque<Arc<TcpStream>>>,
}

/// What a peer says until its time is over.
struct Limited<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// What is answered.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn refusal(status: &'static str) -> Answer {
        Answer {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{status}\n").into_bytes(),
        }
    }

    fn json(value: &Value) -> Answer {
        Answer {
            status: "200 OK",
            kind: "application/json",
            body: value.to_string().into_bytes(),
        }
    }
}

impl Server {
    /// Listens at this port of 127.0.0.1; 0: one that is free.
    ///
    /// # Errors
    /// When it can't.
    pub fn listen(port: u16, tiles: Tiles, dir: &Path) -> anyhow::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("can't listen at port {port} of 127.0.0.1"))?;
        let address = listener.local_addr().context("no address")?;
        Ok(Server {
            listener,
            address,
            secret: secret()?,
            tiles: Mutex::new(tiles),
            dir: dir.into(),
            silent: Mutex::default(),
        })
    }

    /// Where the page is.
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.secret)
    }

    /// Serves for ever.
    pub fn serve(self) -> ! {
        let server = Arc::new(self);
        loop {
            let Ok((stream, _)) = server.listener.accept() else {
                // Too many open files, perhaps: somebody will close one.
                std::thread::yield_now();
                continue;
            };
            let stream = Arc::new(stream);
            server.has_connected(&stream);
            let own = Arc::clone(&server);
            // Who goes away in the middle is nobody's trouble; nor is who finds no thread left.
            let _ = std::thread::Builder::new().spawn(move || own.converse(&stream));
        }
    }

    /// A connection that has said nothing yet.
    fn has_connected(&self, stream: &Arc<TcpStream>) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.push_back(Arc::clone(stream));
        if silent.len() > MAX_SILENT {
            if let Some(oldest) = silent.pop_front() {
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
    }

    /// It has said something, or has gone.
    fn has_spoken(&self, stream: &Arc<TcpStream>) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|s| !Arc::ptr_eq(s, stream));
    }

    fn converse(&self, stream: &Arc<TcpStream>) -> io::Result<()> {
        let spoke = stream
            .set_read_timeout(Some(LONG_PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| first_word(stream));
        self.has_spoken(stream);
        spoke?;
        let until = Instant::now() + PATIENCE;
        let mut lines = BufReader::new(Limited { stream, until }.take(MAX_REQUEST));
        let mut head = Vec::new();
        loop {
            let before = head.len();
            if lines.read_until(b'\n', &mut head)? == 0 {
                let full = head.len() as u64 >= MAX_REQUEST;
                return match full {
                    true => reply(
                        stream,
                        &Answer::refusal("431 Request Header Fields Too Large"),
                        false,
                    ),
                    false => Ok(()),
                };
            }
            if matches!(&head[before..], b"\r\n" | b"\n") {
                break;
            }
        }
        let head = String::from_utf8_lossy(&head);
        let (answer, headers_only) = self.answer(&head);
        reply(stream, &answer, headers_only)
    }

    /// The answer to a request, and whether only its head is wanted.
    fn answer(&self, head: &str) -> (Answer, bool) {
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or("").split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        let (Some(method), Some(target), Some(version), None) =
            (method, target, version, words.next())
        else {
            return (Answer::refusal("400 Bad Request"), false);
        };
        if !version.starts_with("HTTP/1.") {
            return (Answer::refusal("505 HTTP Version Not Supported"), false);
        }
        let only_head = method == "HEAD";
        if method != "GET" && !only_head {
            return (Answer::refusal("405 Method Not Allowed"), false);
        }
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let field = |wanted: &str| {
            let mut named = fields.iter().filter(|f| f.0.eq_ignore_ascii_case(wanted));
            named.next().map(|f| f.1.trim())
        };
        let port = self.address.port();
        let own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        // With another name the request is another site's, led here by its name server.
        let for_us = field("host").is_some_and(|h| own.iter().any(|o| o == h));
        // Another site's page asks.
        let by_us = field("origin").is_none_or(|origin| {
            let site = origin.strip_prefix("http://");
            own.iter().any(|o| Some(o.as_str()) == site)
        });
        if !for_us || !by_us {
            return (Answer::refusal("403 Forbidden"), only_head);
        }
        let path = target.split(['?', '#']).next().unwrap_or("");
        let inside = path.strip_prefix('/').and_then(|p| p.split_once('/'));
        let answer = match inside {
            Some((secret, rest)) if secret == self.secret => self.get(rest),
            _ => Answer::refusal("404 Not Found"),
        };
        (answer, only_head)
    }

    fn get(&self, path: &str) -> Answer {
        let tiles = || self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |word: &str| word.parse::<u64>().ok();
        let words: Vec<&str> = path.split('/').collect();
        let found = match words[..] {
            [""] => {
                return Answer {
                    status: "200 OK",
                    kind: "text/html; charset=utf-8",
                    body: page::served().into_bytes(),
                }
            }
            ["about"] => {
                let mut about = tiles().about();
                about["session"] = place::session(&self.dir);
                Ok(Some(about))
            }
            ["tile", level, tile] => match (level.parse().ok(), number(tile)) {
                (Some(level), Some(tile)) => tiles().tile(level, tile),
                _ => Ok(None),
            },
            ["event", event] => match number(event) {
                Some(event) => tiles().event(event),
                None => Ok(None),
            },
            ["stacks", event] => {
                let owner = |n: u64| {
                    let index = &tiles().index;
                    let thread = &index.threads[index.owner(n)?];
                    Some((n, thread.process, thread.tid))
                };
                match number(event).and_then(owner) {
                    Some((event, birth, tid)) => place::stacks(&self.dir, birth, tid, event),
                    None => Ok(None),
                }
            }
            ["output"] => place::output(&self.dir).map(Some),
            _ => Ok(None),
        };
        match found {
            Ok(Some(value)) => Answer::json(&value),
            Ok(None) => Answer::refusal("404 Not Found"),
            Err(error) => {
                let why = crate::exit::line_of(&error).unwrap_or_default();
                say!("{why}");
                Answer {
                    body: format!("{why}\n").into_bytes(),
                    ..Answer::refusal("500 Internal Server Error")
                }
            }
        }
    }
}

/// Waits for the first byte. A limit of time makes the kernel end the wait when the process was stopped and goes on (signal(7)); to give up then
/// would be to close the connection at the moment of its first use.
fn first_word(stream: &TcpStream) -> io::Result<()> {
    loop {
        match stream.peek(&mut [0]) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            found => return found.map(drop),
        }
    }
}

fn reply(mut stream: &TcpStream, answer: &Answer, only_head: bool) -> io::Result<()> {
    let Answer { status, kind, body } = answer;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: {POLICY}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if !only_head {
        stream.write_all(body)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // What the peer still says is taken, within limits: unread bytes would make the kernel throw the answer away.
    io::copy(&mut stream.take(MAX_REQUEST), &mut io::sink())?;
    Ok(())
}

/// 128 random bits.
///
/// # Errors
/// When the kernel has none.
pub fn secret() -> anyhow::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).context("get random bytes")?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
