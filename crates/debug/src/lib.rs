//! Debugs a replay: a server of gdb's remote protocol over a replay that is traced by ptrace(2).
//!
//! - [`timeline`]: what is known of the trace ahead;
//! - [`debuggee`]: the replayed process at rest: threads, registers, memory;
//! - `beside`: code that the runtime has put beside the program's;
//! - [`breakpoints`]: breakpoints and watchpoints;
//! - [`expression`]: the conditions of breakpoints, as gdb sends them;
//! - [`compiled`]: a breakpoint with a condition, compiled into the code;
//! - [`collect`]: values that the replay puts down as it runs;
//! - `translated`, `machine_code`: what its stub is made of;
//! - `calls`: system calls at which it stops;
//! - `moving`: what passes between us and gdb in the midst of a motion;
//! - [`control`]: lets it run, and says why it stopped;
//! - [`checkpoint`]: the process as it was at a moment;
//! - [`checkpoints`]: which of them there are;
//! - [`diversion`]: functions of the program, called in a copy of it;
//! - [`mixture`]: a recording up to one of its hand-offs, and the program by itself from there on; `astray` runs it;
//! - [`history`]: places in the execution, and the way back to them;
//! - [`programs`]: which programs the debugged process is, one after the other;
//! - `origin`: where a value comes from;
//! - `own`: places that are known by the events of one thread;
//! - [`rest`]: the process at rest, with all its threads known;
//! - [`registers`]: registers as gdb knows them;
//! - [`files`]: files as gdb reads them, out of the trace;
//! - `objects`: what the dynamic linker has loaded;
//! - `thread_local`: where a thread's own variables are;
//! - `rr`: what tools expect that know rr;
//! - [`target`]: all that behind the traits of the crate `gdbstub`;
//! - [`monitor`]: commands of ours;
//! - `panics`: where it panicked;
//! - [`python`]: stacks of CPython;
//! - `packets`: packets that the crate doesn't know;
//! - `wire`: what gdb and the crate `gdbstub` don't tell each other;
//! - [`server`]: the connection.
//!
//! The runtime is never shown. A thread that is in it stands, for the debugger, at the gate through which it came: before or behind the
//! instruction of the program that led there ([`debuggee::Debuggee::registers`]). To step over a gate is one step.

mod astray;
mod beside;
pub mod breakpoints;
mod calls;
pub mod checkpoint;
pub mod checkpoints;
pub mod collect;
pub mod compiled;
pub mod control;
pub mod debuggee;
pub mod diversion;
pub mod expression;
pub mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
pub mod history;
mod machine_code;
pub mod mixture;
pub mod monitor;
mod moving;
mod nearer;
mod objects;
mod origin;
mod own;
mod packets;
mod panics;
pub mod peer;
pub mod programs;
pub mod python;
pub mod registers;
pub mod rest;
mod rr;
pub mod server;
mod steps;
pub mod target;
mod thread_local;
pub mod timeline;
mod translated;
mod traps;
mod wire;

pub use astray::End;
pub(crate) use reprise_launch::ptrace;
pub use rr::AsRr;
pub use server::{serve, Place, Request};

/// What can go wrong with debugging.
#[derive(Debug, thiserror::Error)]
pub enum DebugError {
    /// The trace can't be replayed.
    #[error(transparent)]
    Replay(#[from] reprise_replay::ReplayError),
    /// The trace can't be read.
    #[error(transparent)]
    Trace(#[from] reprise_trace::TraceError),
    /// The replay left the recorded path.
    #[error("the replay diverged from the recording\n{0}")]
    Diverged(Box<reprise_replay::Divergence>),
    /// It can't be debugged.
    #[error("{0}")]
    Refused(String),
    /// A motion was given up, since the debugger wanted to be heard.
    #[error("the motion was given up")]
    GivenUp,
    /// The kernel refuses something.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Adds what was being done to what the kernel says.
pub(crate) fn os(what: &str) -> impl FnOnce(std::io::Error) -> DebugError + '_ {
    move |source| DebugError::Os {
        what: what.into(),
        source,
    }
}
