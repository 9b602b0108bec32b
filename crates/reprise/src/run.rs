//! `reprise run`: the same run every time (DThreads). It is started as for a recording, but nothing is recorded.

use crate::cli::{Buffers, CpuLevel, EngineName, KeepOn, OnFull, RecordArgs, RunArgs};
use crate::record;
use anyhow::Result;

/// Runs `run`; the exit status is the program's.
///
/// # Errors
/// When the program can't be started.
pub fn run(args: &RunArgs) -> Result<i32> {
    record::run(&RecordArgs {
        output: None,
        engine: EngineName::Det,
        buffers: Buffers::Default,
        force: false,
        chaos: None,
        checksum: None,
        keep_on: KeepOn::Always,
        until_failure: None,
        max_size: None,
        on_full: OnFull::Continue,
        cpu: CpuLevel::Native,
        quiet: args.quiet,
        no_patch: false,
        hooks: false,
        test_without: Vec::new(),
        no_cpuid_trapping: false,
        forget_syscall: None,
        command: args.command.clone(),
    })
}
