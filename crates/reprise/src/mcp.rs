//! `mcp`: a server of the Model Context Protocol, over the standard input and output: programs (coding agents above all) record, ask what a recording
//! holds, and find faults by that. docs/MCP.md has an example from beginning to end.
//!
//! - [`wire`]: messages in and out, malformed ones as well;
//! - [`tool`]: what a tool is; its table is below;
//! - [`limits`]: each call has a limit of time and one of size; [`page`]: answers of many parts;
//! - [`child`]: commands of this program run as children: `list`, `events`, `origin`, `races`, `diff`, `bisect`, parts of `summary`;
//! - [`warm`]: a replay with gdb at its side that is kept for the next question; [`sessions`]: which of them there are;
//! - [`running`]: a program that is recorded, with a limit of time;
//! - [`recording`], [`reading`], [`summary`], [`standing`], [`asking`]: the tools.
//!
//! Nothing listens on the network, and what is started ends with this process or its client.

mod asking;
mod child;
mod descriptors;
mod limits;
mod page;
mod reading;
mod recording;
mod running;
mod sessions;
mod standing;
mod summary;
mod tool;
mod warm;
mod wire;

pub use child::last_words;

use crate::cli::McpArgs;
use anyhow::{Context, Result};
use limits::Limits;
use rmcp::handler::server::ServerHandler;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer, ServiceExt};
use rmcp::ErrorData;
use serde_json::Value;
use sessions::Sessions;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tool::Tool;
use wire::Wire;

/// All tools.
const TOOLS: &[Tool] = &[
    Tool::of::<recording::Record>(),
    Tool::of::<recording::ChaosUntilFailure>(),
    Tool::of::<reading::List>(),
    Tool::of::<summary::Summary>(),
    Tool::of::<standing::Backtrace>(),
    Tool::of::<reading::Events>(),
    Tool::of::<standing::Source>(),
    Tool::of::<asking::Values>(),
    Tool::of::<asking::Calls>(),
    Tool::of::<asking::Where>(),
    Tool::of::<standing::LastWrite>(),
    Tool::of::<standing::Evaluate>(),
    Tool::of::<reading::Origin>(),
    Tool::of::<reading::Races>(),
    Tool::of::<reading::Diff>(),
    Tool::of::<reading::Bisect>(),
];

/// Calls that are answered at a time; others wait.
const MOST_CALLS: usize = 8;
/// What a call may take beyond its limit to end in order.
const GRACE: Duration = Duration::from_secs(15);

const INSTRUCTIONS: &str = "\
Reprise records a run of an unmodified Linux program and replays it exactly; all tools but the recording ones ask a recording. Begin with `record` (or \
`chaos_until_failure` for a bug that shows up now and then), then `summary`. Time is counted in events: each answer tells event numbers, which other tools take \
as `at`, `from` or `to`. `trace` is always optional: the latest recording. `origin` leads from a wrong value back to where it comes from, `values`, `where` and `last_write` to whoever wrote it. \
Debugging information (-g) makes all answers better.";

/// Runs `mcp`, until its client has gone.
///
/// # Errors
/// When the standard input and output can't be used.
pub fn run(args: &McpArgs) -> Result<i32> {
    if let Some(dir) = &args.descriptors_of {
        return descriptors::run(dir);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the server")?;
    let served = runtime.block_on(serve());
    // Whoever still reads the standard input is not waited for.
    runtime.shutdown_background();
    served.map(|()| 0)
}

async fn serve() -> Result<()> {
    let gone = CancellationToken::new();
    end_by_signals(gone.clone())?;
    let sessions = Arc::new(Sessions::default());
    let server = Server {
        sessions: Arc::clone(&sessions),
        calls: Arc::new(Semaphore::new(MOST_CALLS)),
    };
    let ends = tokio::spawn(Arc::clone(&sessions).end_idle());
    match server.serve_with_ct(Wire::new(gone.clone()), gone).await {
        Ok(running) => {
            let _ = running.waiting().await;
        }
        // Who never says what he wants has not been served.
        Err(e) => tracing::info!(error = %e, "no session"),
    }
    ends.abort();
    sessions.end_all().await;
    Ok(())
}

/// Whoever ends the server wants its children to end, too.
fn end_by_signals(gone: CancellationToken) -> Result<()> {
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ];
    for kind in kinds {
        let mut signals = signal(kind).context("wait for signals")?;
        let gone = gone.clone();
        tokio::spawn(async move {
            signals.recv().await;
            gone.cancel();
        });
    }
    Ok(())
}

/// Who answers.
struct Server {
    sessions: Arc<Sessions>,
    calls: Arc<Semaphore>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let can = ServerCapabilities::builder().enable_tools().build();
        let me = Implementation::new("reprise", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(can)
            .with_server_info(me)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let all = TOOLS.iter().map(Tool::description).collect();
        Ok(ListToolsResult::with_all_items(all))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = TOOLS.iter().find(|t| t.name == request.name) else {
            let names: Vec<&str> = TOOLS.iter().map(|t| t.name).collect();
            let why = format!(
                "there is no tool {}; there are {}",
                request.name,
                names.join(", ")
            );
            return Err(ErrorData::invalid_params(why, None));
        };
        let answer = self.answer(tool, request.arguments.unwrap_or_default());
        let result = tokio::select! {
            answer = answer => answer,
            // Whatever it has started ends as it is dropped.
            () = context.ct.cancelled() => Err(anyhow::anyhow!("the call was cancelled")),
        };
        Ok(match result {
            Ok(value) => CallToolResult::success(vec![ContentBlock::text(value.to_string())]),
            Err(why) => {
                let why = crate::exit::line_of(&why).unwrap_or_else(|| "it failed".into());
                CallToolResult::error(vec![ContentBlock::text(why)])
            }
        }
        .into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.unwrap_or_default();
        // One that is known, with arguments that are none.
        if request.method == "tools/call" {
            let why = match serde_json::from_value::<CallToolRequestParams>(params) {
                Err(e) => e.to_string(),
                Ok(_) => "they can't be read".into(),
            };
            let why = format!("the parameters of tools/call are wrong: {why}");
            return Err(ErrorData::invalid_params(why, None));
        }
        let why = format!("there is no method {}", request.method);
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, why, None))
    }
}

impl Server {
    async fn answer(&self, tool: &Tool, mut arguments: JsonObject) -> Result<Value> {
        let limits = Limits::take(&mut arguments)?;
        let turn = tokio::time::timeout_at(limits.end, self.calls.acquire());
        let Ok(turn) = turn.await else {
            anyhow::bail!("{MOST_CALLS} calls were being answered all the time; ask again");
        };
        let _turn = turn.context("the server ends")?;
        let answer = tool.call(arguments, Arc::clone(&self.sessions), limits);
        let mut value = match tokio::time::timeout_at(limits.end + GRACE, answer).await {
            Ok(answer) => answer?,
            Err(_) => return Err(limits.are_over()),
        };
        page::shorten(&mut value, limits.bytes);
        let size = value.to_string().len();
        anyhow::ensure!(
            size <= limits.bytes,
            "the answer has {size} bytes, and max_bytes is {}: ask for less of it, or allow more",
            limits.bytes
        );
        Ok(value)
    }
}
