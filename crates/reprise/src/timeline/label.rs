//! Short names of events, as they stand on a timeline.

use crate::dump::call_name;
use reprise_abi::det::question;
use reprise_abi::event::{Event, Instruction, Kind};
use reprise_abi::names::signal_name;
use std::borrow::Cow;

/// The name of the call for calls; of all else what it is.
pub fn label(event: &Event) -> Cow<'static, str> {
    let detail = event.header.detail;
    let signal =
        || signal_name(detail).map_or_else(|| format!("signal {detail}").into(), Cow::from);
    match event.kind {
        Kind::Syscall | Kind::Enter | Kind::Exit => call_name(detail).into(),
        Kind::Yield => "hands on".into(),
        Kind::Resume => "resumes".into(),
        Kind::ThreadStart => "thread starts".into(),
        Kind::ThreadExit => "thread ends".into(),
        Kind::Instruction if detail == Instruction::Rdtscp as u32 => "rdtscp".into(),
        Kind::Instruction if detail == Instruction::GaveWay as u32 => "waits".into(),
        Kind::Instruction if detail == Instruction::HookEnded as u32 => "stops".into(),
        Kind::Instruction => "rdtsc".into(),
        Kind::Signal => signal(),
        Kind::Fault => format!("fault {}", signal()).into(),
        Kind::Cut => "cut".into(),
        Kind::Hash => "state".into(),
        Kind::Patch => "patch".into(),
        Kind::End => "end".into(),
        Kind::Start => "start".into(),
        Kind::ProcessStart => "process starts".into(),
        Kind::ProcessEnd => "process ends".into(),
        Kind::Exec => "exec".into(),
        Kind::Shared => "shared memory".into(),
        Kind::Sync => "sync".into(),
        Kind::Gone => "gone".into(),
        Kind::Told => question::name(event.header.detail).into(),
        Kind::Goroutine => crate::goroutines::name_of(event).into(),
    }
}
