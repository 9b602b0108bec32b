//! The client of the memcached row: many connections, one request under way on each, a bounded number of requests in all.
//!
//! One thread serves all connections, on a processor of its own, so that what is measured is the server.

use crate::input::Numbers;
use anyhow::{bail, Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Connections.
pub const CONNECTIONS: usize = 16;
/// Different keys; all of them are set before the measured part.
pub const KEYS: u64 = 10_000;
/// Bytes of a value.
pub const VALUE: usize = 100;
/// One of this many requests is a set, the others are gets.
pub const SET_ONE_IN: u64 = 10;
/// A server that says nothing for so long counts as hung.
const SILENCE: Duration = Duration::from_secs(20);

struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    busy: bool,
}

/// Waits until somebody listens at `address`.
///
/// # Errors
/// When nobody does within 20 seconds.
pub fn await_server(address: SocketAddr) -> Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if begun.elapsed() > SILENCE {
            bail!("no server at {address}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Sets every key once.
///
/// # Errors
/// When the server doesn't play along.
pub fn fill(address: SocketAddr) -> Result<()> {
    run(address, KEYS, |i, _| (i, true))
}

/// Makes `requests` requests, and says how many a second.
///
/// # Errors
/// When the server doesn't play along.
pub fn drive(address: SocketAddr, requests: u64) -> Result<f64> {
    let begun = Instant::now();
    run(address, requests, |_, numbers| {
        (numbers.below(KEYS), numbers.below(SET_ONE_IN) == 0)
    })?;
    Ok(requests as f64 / begun.elapsed().as_secs_f64())
}

/// Makes `requests` requests; `choose` says which key, and whether it is set.
fn run(
    address: SocketAddr,
    requests: u64,
    mut choose: impl FnMut(u64, &mut Numbers) -> (u64, bool),
) -> Result<()> {
    let mut numbers = Numbers(1);
    let mut connections = connect(address)?;
    let (mut sent, mut answered) = (0, 0);
    let mut next = |c: &mut Connection, numbers: &mut Numbers| -> Result<()> {
        c.busy = sent < requests;
        if c.busy {
            let (key, set) = choose(sent, numbers);
            c.stream.write_all(&request(key, set))?;
            sent += 1;
        }
        Ok(())
    };
    for c in &mut connections {
        next(c, &mut numbers)?;
    }
    while answered < requests {
        for i in readable(&connections)? {
            let c = &mut connections[i];
            if complete(c)? {
                answered += 1;
                next(c, &mut numbers)?;
            }
        }
    }
    Ok(())
}

fn connect(address: SocketAddr) -> Result<Vec<Connection>> {
    let one = |_| -> Result<Connection> {
        let stream = TcpStream::connect(address).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            answer: Vec::new(),
            busy: false,
        })
    };
    (0..CONNECTIONS).map(one).collect()
}

fn request(key: u64, set: bool) -> Vec<u8> {
    if !set {
        return format!("get key:{key}\r\n").into_bytes();
    }
    let mut text = format!("set key:{key} 0 0 {VALUE}\r\n").into_bytes();
    text.resize(text.len() + VALUE, b'a' + (key % 26) as u8);
    text.extend_from_slice(b"\r\n");
    text
}

/// Waits for answers; the connections that have some.
fn readable(connections: &[Connection]) -> Result<Vec<usize>> {
    let poll = |c: &Connection| libc::pollfd {
        fd: if c.busy { c.stream.as_raw_fd() } else { -1 },
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<_> = connections.iter().map(poll).collect();
    // SAFETY: the array is ours.
    let n = unsafe {
        libc::poll(
            polls.as_mut_ptr(),
            polls.len() as u64,
            SILENCE.as_millis() as i32,
        )
    };
    if n == 0 {
        bail!("the server has said nothing for {SILENCE:?}");
    }
    Ok((0..polls.len())
        .filter(|i| polls[*i].revents != 0)
        .collect())
}

/// Reads what is there; whether the answer is complete.
fn complete(c: &mut Connection) -> Result<bool> {
    let mut buffer = [0; 4096];
    match c.stream.read(&mut buffer) {
        Ok(0) => bail!("the server closed a connection"),
        Ok(n) => c.answer.extend_from_slice(&buffer[..n]),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(e) => return Err(e.into()),
    }
    if c.answer == b"END\r\n" {
        bail!("a key is missing");
    }
    if c.answer.starts_with(b"ERROR") || c.answer.starts_with(b"SERVER_ERROR") {
        bail!("the server says {}", String::from_utf8_lossy(&c.answer));
    }
    // Values hold no line ends, and no more than one request is under way.
    let done = c.answer.ends_with(b"\r\nEND\r\n") || c.answer == b"STORED\r\n";
    if done {
        c.answer.clear();
    }
    Ok(done)
}
