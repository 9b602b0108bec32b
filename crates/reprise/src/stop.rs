//! `stop`: a recording ends, and its program goes on.

use crate::cli::StopArgs;
use crate::recordings::Recording;
use anyhow::{Context, Result};
use reprise_console::tell;
use reprise_trace::Summary;
use std::time::{Duration, Instant};

/// Between two looks whether the trace is closed.
const LOOK: Duration = Duration::from_millis(5);
/// Afterwards the agent is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `stop`: returns when the trace is whole.
///
/// # Errors
/// When the process is not being recorded, or nothing is heard of the agent.
pub fn run(args: &StopArgs) -> Result<i32> {
    let recording = Recording::of(args.pid)
        .with_context(|| format!("process {} is not being recorded", args.pid))?;
    let asked = Instant::now();
    // SAFETY: plain call. The agent has a trace open, so it is there, and listens.
    if unsafe { libc::kill(recording.agent, reprise_agent::stop::SIGNAL) } != 0 {
        return Err(std::io::Error::last_os_error()).context("ask the agent to stop");
    }
    while Summary::read(&recording.dir)?.is_none() || recording.is_open() {
        // SAFETY: sends nothing.
        let is_gone = unsafe { libc::kill(recording.agent, 0) } != 0;
        anyhow::ensure!(
            !is_gone || Summary::read(&recording.dir)?.is_some(),
            "the recording ended without closing its trace in {}",
            recording.dir.display()
        );
        anyhow::ensure!(
            asked.elapsed() < PATIENCE,
            "the agent, process {}, does not close the trace",
            recording.agent
        );
        std::thread::sleep(LOOK);
    }
    tell!("{}", recording.dir.display())?;
    Ok(0)
}
