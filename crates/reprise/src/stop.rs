//! `stop`: a recording ends, and its program goes on.

use crate::cli::StopArgs;
use crate::recordings::Recording;
use anyhow::{Context, Result};
use reprise_console::tell;
use reprise_launch::process;
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
    // It has a trace open, so it is there, and listens.
    let told = process::send(recording.agent, reprise_agent::stop::SIGNAL);
    told.context("ask the agent to stop")?;
    while Summary::read(&recording.dir)?.is_none() || recording.is_open() {
        let is_gone = !process::is_there(recording.agent);
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
