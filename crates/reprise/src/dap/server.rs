//! `reprise dap --port`: clients that come through TCP, on 127.0.0.1 only, each of which has to be of this user and to show a token. Each is served by a process of its own,
//! so that no client has to do with another one.

use super::gdb::TOKEN;
use anyhow::{ensure, Context, Result};
use reprise_console::{say, tell};
use reprise_debug::peer;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

/// Clients at a time.
const MOST_CLIENTS: usize = 16;
/// Characters of a token that an editor has chosen, at least ...
const FEWEST: usize = 16;
/// ... and at most.
const MOST: usize = 256;

/// Serves for ever.
///
/// # Errors
/// When it can't listen there.
pub fn serve(port: u16) -> Result<i32> {
    let token = match std::env::var(TOKEN) {
        Ok(token) => {
            ensure!(
                (FEWEST..=MOST).contains(&token.len()),
                "{TOKEN} has from {FEWEST} to {MOST} characters, not {}",
                token.len()
            );
            token
        }
        Err(_) => crate::view::secret()?,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("can't listen at port {port} of 127.0.0.1"))?;
    let address = listener.local_addr().context("no address")?;
    // For a program that reads it: the port that was free, and what clients have to show.
    tell!(
        "{}",
        serde_json::json!({"port": address.port(), "token": token})
    )?;
    say!("debug adapter at {address}; launch and attach have to have its token");
    let mut clients: Vec<Child> = Vec::new();
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Too many open files, perhaps: somebody will close one.
            std::thread::yield_now();
            continue;
        };
        clients.retain_mut(|c| matches!(c.try_wait(), Ok(None)));
        if !peer::may_debug(peer::user(&stream)) {
            continue;
        }
        if clients.len() >= MOST_CLIENTS {
            say!("a client was turned away: there are {MOST_CLIENTS} already");
            continue;
        }
        match begin(stream, &token) {
            Ok(child) => clients.push(child),
            Err(why) => say!("a client was turned away: {why:#}"),
        }
    }
}

fn begin(stream: TcpStream, token: &str) -> Result<Child> {
    let me = std::env::current_exe().context("find this program")?;
    let input = stream
        .as_fd()
        .try_clone_to_owned()
        .context("use a socket")?;
    let mut command = Command::new(me);
    command
        .arg("dap")
        .env(TOKEN, token)
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(OwnedFd::from(stream)));
    super::gdb::ends_with_us(&mut command);
    command.spawn().context("start a session")
}
