//! What the servers for other programs' tools are told.

use clap::Args;
use std::path::PathBuf;

/// What `mcp` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Its client starts it, and speaks with it through standard input and output; docs/MCP.md has an example. Nothing listens on the network. \
                  It records whatever its client asks for, with the rights of whoever has started it."
)]
pub struct McpArgs {
    /// Print the descriptors that processes of a trace had open in the end
    #[arg(long, value_name = "DIR", hide = true)]
    pub descriptors_of: Option<PathBuf>,
}

/// What `dap` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "An editor starts it, and speaks with it through standard input and output; docs/DAP.md has configurations. With --port it listens on 127.0.0.1, and \
                  says on standard output at which port and with which token; launch and attach have to have that token. REPRISE_DAP_TOKEN chooses one. \
                  It records and debugs whatever its client asks for, with the rights of whoever has started it."
)]
pub struct DapArgs {
    /// Serve clients through this port of 127.0.0.1 (0: one that is free)
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
}
