//! What the commands that ask a recording are told.

use super::{parse_place, At};
use crate::processes::ProcessName;
use clap::Args;
use std::path::PathBuf;

/// What `values` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Without --at and --function: each write to the memory that EXPR names, as with --watch. What it names is looked up where the \
                  program crashed or ended; with a place beside --watch, where that is come to first.\n\
                  Numbers are found by code that is put into the replayed program, without stops; all other values by gdb, at a stop each."
)]
pub struct ValuesArgs {
    /// What is wanted: an expression in the program's language, as gdb takes it
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    pub expression: String,

    /// Its value at each visit of this line
    #[arg(long, value_name = "FILE:LINE", conflicts_with = "function")]
    pub at: Option<String>,

    /// Its value at each call of this function, behind its first instructions
    #[arg(long, value_name = "F")]
    pub function: Option<String>,

    /// Its value at each write to its memory
    #[arg(long)]
    pub watch: bool,

    /// What of which run is looked at.
    #[command(flatten)]
    pub part: Part,

    /// Print one JSON object for each value
    #[arg(long)]
    pub json: bool,
}

/// What `calls` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Calls are told in the order in which they began: with --returns one that lasts holds back those behind it.\n\
                  Without --args and --returns they are found by code that is put into the replayed program, without stops."
)]
pub struct CallsArgs {
    /// The function, as gdb takes it
    #[arg(value_name = "FUNCTION")]
    pub function: String,

    /// With the values of its arguments
    #[arg(long)]
    pub args: bool,

    /// With the value that it returned
    #[arg(long)]
    pub returns: bool,

    /// What of which run is looked at.
    #[command(flatten)]
    pub part: Part,

    /// Print one JSON object for each call
    #[arg(long)]
    pub json: bool,
}

/// What `where` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "What EXPR names is looked up where the program crashed or ended, or where --at or --function is come to first. \
                  `reprise values EXPR` tells the writes one by one."
)]
pub struct WhereArgs {
    /// The location: an expression in the program's language, as gdb takes it, or an address
    #[arg(value_name = "ADDRESS|EXPR", allow_hyphen_values = true)]
    pub location: String,

    /// What EXPR names at this line, when it is come to first; writes from there on
    #[arg(long, value_name = "FILE:LINE", conflicts_with = "function")]
    pub at: Option<String>,

    /// What EXPR names in this function, when it is called first; writes from there on
    #[arg(long, value_name = "F")]
    pub function: Option<String>,

    /// What of which run is looked at.
    #[command(flatten)]
    pub part: Part,

    /// Print one JSON object for each place
    #[arg(long)]
    pub json: bool,
}

/// What `origin` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "The value is followed backward through every copy: instructions, memcpy, structures, the stack, pipes and sockets between recorded \
                  processes. It ends at bytes that were read from a file (with their offset), at what else the kernel gave, at a constant, or at a \
                  computation, whose operands are told.\n\
                  EXPR is looked up in the innermost function that knows it. A number is an address; $rax and the like are registers.\n\
                  Up to 32 bytes are followed at a time: ask for text[3], not for text."
)]
pub struct OriginArgs {
    /// The value: an expression in the program's language, as gdb takes it, or an address
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    pub expression: String,

    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// When: `crash`, `end`, `panic`, or the number of an event (default: the crash, else the end)
    #[arg(long, value_name = "PLACE", value_parser = parse_place)]
    pub at: Option<At>,

    /// Go on through N computations behind each other, along all operands of each
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub depth: u32,

    /// In this process instead of the first one, by its id as `reprise ps` tells it
    #[arg(long, value_name = "PID")]
    pub pid: Option<ProcessName>,

    /// Print one JSON object for each step
    #[arg(long)]
    pub json: bool,
}

/// What `diff` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Threads are brought together by who made them, and compared by what they did and what came of it: system calls with what they \
                  were given and gave back, signals, ends. Left out is what only tells the time, the processor, ids of processes, threads and \
                  inodes, or where memory lies, what getrandom gave, and waits for locks.\n\
                  Exit status: 0 when there is no difference, 1 when there is one, 125 when that can't be said."
)]
pub struct DiffArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists
    #[arg(value_name = "A")]
    pub a: PathBuf,

    /// Another one of the same program
    #[arg(value_name = "B")]
    pub b: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `bisect` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "FAILING is replayed up to one of its hand-offs, exactly; from there on the program runs for itself, each thread until it waits. Where the \
                  thread goes on that lost its turn there, it ends as PASSING did before the hand-off that decides, and as FAILING did from there on: that place \
                  is found by halves.\n\
                  What runs for itself makes no calls that reach the world outside: what it writes is thrown away, and to read fails.\n\
                  Exit status: 0 when there is one, 1 when no hand-off decides, 125 when that can't be said."
)]
pub struct BisectArgs {
    /// A recording of the run that fails: a directory, a packed file, or a name that `reprise ls` lists
    #[arg(value_name = "FAILING")]
    pub failing: PathBuf,

    /// One of the same program that passes: how the program is to end
    #[arg(value_name = "PASSING")]
    pub passing: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What of which run is looked at.
#[derive(Args, Debug, Clone)]
pub struct Part {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Only this thread, by its id as the program knew it
    #[arg(long, value_name = "T")]
    pub thread: Option<u32>,

    /// From this event on
    #[arg(long, value_name = "A")]
    pub from: Option<u64>,

    /// Up to this event
    #[arg(long, value_name = "B")]
    pub to: Option<u64>,

    /// Of this process instead of the first one, by its id as `reprise ps` tells it
    #[arg(long, value_name = "PID")]
    pub pid: Option<ProcessName>,
}

impl Part {
    /// Does what this thread did before this event belong to it?
    pub fn holds(&self, thread: u32, event: u64) -> bool {
        self.thread.is_none_or(|t| t == thread)
            && self.from.is_none_or(|from| event >= from)
            && self.to.is_none_or(|to| event <= to)
    }
}
