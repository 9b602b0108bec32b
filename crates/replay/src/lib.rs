//! The replay driver: makes a process out of a trace, feeds it its events, and says how it ended.

pub mod checkpoints;
pub mod children;
pub mod conflicts;
pub mod driver;
mod feed;
pub mod follow;
mod freeze;
pub mod live;
mod lives;
pub mod machine;
mod mappings;
pub mod marks;
pub mod output;
pub mod plan;
pub mod races;
mod rebuilt;
pub mod report;
pub mod rings;
mod stacks;
pub mod standstill;
mod supervisor;
pub mod symbols;
mod thaw;
mod tree;

pub use driver::{replay, Options, Outcome};
pub use follow::Follower;
pub use live::{is_debuggable, Live};
pub use output::Output;
pub use report::Divergence;
pub use rings::Rings;
pub use tree::{Halt, DEADLOCK, TRACE_ENDED};

/// What can go wrong with a replay, apart from divergence.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace can't be read.
    #[error(transparent)]
    Trace(#[from] reprise_trace::TraceError),
    /// The process can't be made.
    #[error(transparent)]
    Launch(#[from] reprise_launch::LaunchError),
    /// The trace asks for something that this machine or version can't give.
    #[error("{0}")]
    Unsupported(String),
    /// Nobody can ever go on in a replay of `order`.
    #[error("{DEADLOCK}{0}")]
    Stuck(Box<standstill::Standstill>),
    /// A file of the trace can't be opened.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}
