//! `dap`: a debug adapter, by which editors debug recordings, forward and back, through the Debug Adapter Protocol. docs/DAP.md has configurations.
//!
//! gdb is at the side of a replay, as for `replay -d`, and is spoken to through its machine interface: values are its pretty printers', breakpoints and
//! motions its and the replay's.
//!
//! - `messages`: the protocol's framing, malformed messages as well; `wire`: the two ends of a conversation;
//! - `mi`: what gdb says; `gdb`: the processes;
//! - `session`: one client and one recording, and what holds of all requests; `requests`: these by their names;
//! - `launching`: a program is recorded, or a trace is opened;
//! - `motions`, `breakpoints`, `frames`, `variables`, `memory`: what their names say;
//! - `background`: logpoints and other questions to all of the run;
//! - `server`: clients through TCP.
//!
//! Nothing listens but on 127.0.0.1, and there no client gets anything without a token. What is started ends with its client.

mod background;
mod breakpoints;
mod frames;
mod gdb;
mod launching;
mod memory;
mod messages;
mod mi;
mod motions;
mod requests;
mod server;
mod session;
mod variables;
mod wire;

use crate::cli::DapArgs;
use anyhow::Result;

/// Runs `dap`, until its client has gone; with a port, for ever.
///
/// # Errors
/// When it can't listen at the port.
pub fn run(args: &DapArgs) -> Result<i32> {
    match args.port {
        Some(port) => server::serve(port),
        None => {
            let token = std::env::var(gdb::TOKEN).ok();
            session::Session::new(token).run();
            Ok(0)
        }
    }
}
