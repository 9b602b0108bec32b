//! The command line: every command, option and default, as types. Nothing is done here.

mod pictures;
mod questions;
mod tools;

use crate::environment::EnvArgs;
use crate::exit::{one_line, OWN_FAILURE};
use crate::keep::Keep;
use crate::processes::ProcessName;
use crate::seeds::MOST_JOBS;
use clap::builder::{ArgPredicate, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use reprise_abi::det;
use reprise_abi::engine::{self, can, Engine, ENGINES};
use reprise_abi::event::Kind;
use reprise_abi::hooks;
use reprise_abi::order::{CRASH_RING, DEFAULT_RING, SMALL_RING};
use reprise_abi::syscalls;
use reprise_console::{end_unread, say, was_closed, Lost};
use reprise_debug::{AsRr, Place};
use reprise_replay::checkpoints::Every;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use pictures::{ExportArgs, ViewArgs};
pub use questions::{BisectArgs, CallsArgs, DiffArgs, OriginArgs, Part, ValuesArgs, WhereArgs};
pub use tools::{DapArgs, McpArgs};

/// Records a run of a multi-threaded program and replays it, exactly, as often as wanted.
#[derive(Parser, Debug)]
#[command(
    name = "reprise",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "Traces are kept in $REPRISE_TRACE_DIR, else in ~/.local/share/reprise.\n\
                  Exit status: that of the recorded or replayed program; 125 when reprise itself fails, \
                  126 when the program can't be run, 127 when there is none."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Let a packed trace become SIZE when it is unpacked (default: four times what it is packed, at least 1G)
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    pub max_unpacked: Option<u64>,

    /// Open packed traces that are encrypted to a key with the secret keys in FILE, as `age-keygen` makes them (default: $REPRISE_IDENTITY). May be given many times
    ///
    /// A passphrase is asked for where standard input is a terminal, or taken from $REPRISE_PASSPHRASE.
    #[arg(long, global = true, value_name = "FILE")]
    pub identity: Vec<PathBuf>,

    /// Replay a trace also with a runtime that no release has: code of whoever made the trace, in the box in which all replays run
    #[arg(long, global = true)]
    pub trust_runtime: bool,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a program and record all that it takes to replay it
    Record(RecordArgs),
    /// Run a program so that every run is the same, data races included; nothing is recorded
    Run(RunArgs),
    /// Run a recorded program again: same output, same end
    Replay(ReplayArgs),
    /// Replay a trace and check every hash of it
    Verify(VerifyArgs),
    /// Keep the program's state at many moments of a recording in the trace: a debugger is at once at any of them
    Checkpoint(CheckpointArgs),
    /// Find data races in a recorded run of a program that `reprise cc --races` built
    Races(RacesArgs),
    /// Print the events of a trace, readable like strace
    Dump(DumpArgs),
    /// Print where all threads were when the program crashed, when it ended, or at an event
    Backtrace(BacktraceArgs),
    /// Print each value that an expression had: whenever a line is passed, or its memory is written
    Values(ValuesArgs),
    /// Print each call of a function: when, by whom, and with what
    Calls(CallsArgs),
    /// Print who wrote to a location, and how often
    Where(WhereArgs),
    /// Print where a value comes from: who wrote it, out of what, back to the file it was read from
    Origin(OriginArgs),
    /// Print the first difference of two recordings of one program
    Diff(DiffArgs),
    /// Find the one hand-off between threads that makes a recorded run fail
    Bisect(BisectArgs),
    /// Write a core file of the program as it was at an event, for any debugger
    Core(CoreArgs),
    /// List the processes of a trace
    Ps(PsArgs),
    /// List the stretches of a run to which the program has given names (see `reprise header`)
    Stretches(PsArgs),
    /// List the traces
    Ls(LsArgs),
    /// Say what is in a trace: sizes, duration, events by kind
    Info(InfoArgs),
    /// Record a process that is running already, with all its threads, from now on
    Attach(AttachArgs),
    /// Save what has been recorded of a program that runs on
    Snapshot(SnapshotArgs),
    /// End a recording, and let the program go on
    Stop(StopArgs),
    /// Remove traces
    Rm(RmArgs),
    /// Make one self-contained file of a trace
    Pack(PackArgs),
    /// Write a trace for the Perfetto UI or chrome://tracing
    Export(ExportArgs),
    /// Show the timeline of a trace's threads in a browser
    View(ViewArgs),
    /// Let coding agents record programs and ask recordings: a server of the Model Context Protocol, over standard input and output
    Mcp(McpArgs),
    /// A debug adapter, by which editors debug recordings, forward and back (Debug Adapter Protocol)
    Dap(DapArgs),
    /// Compile C with clang, so that `record --engine order` sees atomics and volatiles; with --races as first argument, for `reprise races`
    Cc(CompileArgs),
    /// Compile C++ with clang++, likewise
    #[command(name = "c++")]
    Cxx(CompileArgs),
    /// Run cargo, with Rust's atomics made visible likewise
    Cargo(CompileArgs),
    /// Run Go's toolchain (build, test, ...), so that `record` knows the program's goroutines
    Go(CompileArgs),
    /// Print reprise.h, by which a program prints without a system call that a recording would know of, and names stretches of its run
    Header,
    /// Say what this machine offers and what Reprise will use of it
    Doctor(DoctorArgs),
    /// Show it: record a racy program, replay one of its outcomes
    Demo(DemoArgs),
    /// Print a completion script for a shell
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Print a manual page
    #[command(hide = true)]
    Man(ManArgs),
}

impl Command {
    /// Whether it is to say who has signed a packed trace that it opens.
    pub fn says_signer(&self) -> bool {
        match self {
            Command::Replay(args) => !args.quiet,
            Command::Core(args) => !args.quiet,
            Command::Export(args) => !args.quiet,
            // It has a line of its own for that.
            Command::Info(_) => false,
            _ => true,
        }
    }
}

/// What a compiler is told.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct CompileArgs {
    /// Its own arguments, whatever they are
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub args: Vec<OsString>,
}

/// What `record` is told.
#[derive(Args, Debug, Clone)]
pub struct RecordArgs {
    /// Put the trace into this directory, which must be new or empty
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Whether --engine was given: else programs that `reprise go` has built are recorded by their goroutines. It stands before --engine, whose usual
    /// value would else count as given
    #[arg(
        long,
        hide = true,
        default_value_if("engine", ArgPredicate::IsPresent, "true")
    )]
    pub engine_is_chosen: bool,

    /// How to order threads; `none` captures everything and logs nothing
    #[arg(long, value_parser = engines(), default_value = engine::SERIAL.name)]
    pub engine: &'static Engine,

    /// With `order`: how much of each thread's events may wait for the agent
    #[arg(long, value_enum, default_value_t = Buffers::Default)]
    pub buffers: Buffers,

    /// With `order`: record even programs that it is known not to fit (static ones, Go, Java, Node, BEAM): replays may diverge
    #[arg(long)]
    pub force: bool,

    /// Randomise when threads take turns, to provoke rare interleavings
    ///
    /// Without SEED one is chosen. Either is stored in the trace.
    // None: off; Some(None): on, without a given seed.
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, value_parser = parse_number)]
    pub chaos: Option<Option<u64>>,

    /// Hash all writable memory every N events (default: as often as costs under 1%)
    #[arg(long, value_name = "N", require_equals = true, value_parser = parse_count)]
    pub checksum: Option<u64>,

    /// Which traces to keep
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = KeepOn::Always)]
    pub keep_on: KeepOn,

    /// Repeat until a run fails, at most N times; only the failing run is kept
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub until_failure: Option<u64>,

    /// With --until-failure: so many runs at a time. What they write is shown of the failing run only, and they read nothing
    #[arg(long, value_name = "J", value_parser = parse_jobs, requires = "until_failure", conflicts_with = "output")]
    pub jobs: Option<u64>,

    /// End a run that takes more seconds, with all that came of it; it counts as failing then: for programs that hang now and then
    #[arg(long, value_name = "SECONDS", value_parser = parse_count)]
    pub time_limit: Option<u64>,

    /// When the recording ends: with the last process, or with the first one; those that it leaves go on unrecorded then
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Until::AllExit)]
    pub until: Until,

    /// Keep only the last stretch of the run: so much time (60s, 5min, 2h), or so much of its events (500M, 2GiB)
    ///
    /// The trace begins with the state of the program at that time, which is kept beside. A replay follows the recording for that, on
    /// another processor if there is one; a program that is faster than it waits for it. With the engines `serial` and `order`, and one process.
    #[arg(long, value_name = "TIME|SIZE", value_parser = parse_keep)]
    pub keep: Option<Keep>,

    /// At the end, replay the recording once, and keep the program's state at many moments of it, as `reprise checkpoint` does
    #[arg(long, conflicts_with = "keep")]
    pub checkpoints: bool,

    /// What of its environment is told.
    #[command(flatten)]
    pub env: EnvArgs,

    /// How what the program reads of files gets into the trace: by reference to a copy of the file, of which only what was read is kept, or as it is read
    ///
    /// Files that somebody writes, or whose file system can't tell when they change, are always recorded as they are read.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Inputs::Reference)]
    pub inputs: Inputs,

    /// Let the trace grow to SIZE at most (500M, 2G, ...)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_size: Option<u64>,

    /// What to do when the disk or the trace is full
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnFull::Continue)]
    pub on_full: OnFull,

    /// What the program is shown of the processor; `baseline` makes traces that replay on any machine
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = CpuLevel::Native)]
    pub cpu: CpuLevel,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// A test switch: never rewrite system call sites, trap each time
    #[arg(long, hide = true)]
    pub no_patch: bool,

    /// With `serial`: replace libc's synchronisation and heap by the runtime's own, as `order` always does, and say how often they were used
    #[arg(long, conflicts_with = "keep")]
    pub hooks: bool,

    /// A test switch, `order`: leave out a class of hooks, and what it orders unordered
    #[arg(long, hide = true, value_name = "CLASS", value_parser = parse_hooks)]
    pub test_without: Vec<u64>,

    /// A test switch: treat the processor as one that can't let cpuid trap
    #[arg(long, hide = true)]
    pub no_cpuid_trapping: bool,

    /// A test switch: treat this system call (by its name) as unknown to the table; its number
    #[arg(long, hide = true, value_name = "NAME", value_parser = parse_syscall)]
    pub forget_syscall: Option<u64>,

    /// A test switch, `serial`: compare what each call writes with what the table of system calls says, and end where they differ
    #[arg(long, hide = true)]
    pub test_writes: bool,

    /// A test switch, `order`: now and then all threads are taken out of the runtime and brought back into it, by this seed
    #[arg(long, hide = true, value_name = "SEED")]
    pub test_reenter: Option<u32>,

    /// A test switch: with it, a copy of the process is made each time, changed in one bit, and compared
    #[arg(long, hide = true, requires = "test_reenter")]
    pub test_copies: bool,

    /// A test switch: with it, what happens between two such times is run again by a copy, one thread at a time, and compared
    #[arg(
        long,
        hide = true,
        requires = "test_reenter",
        conflicts_with = "test_copies"
    )]
    pub test_epochs: bool,

    /// A test switch: the copies that run epochs again write what they do as slices, and another copy runs each epoch by these
    #[arg(long, hide = true, requires = "test_epochs")]
    pub test_slices: bool,

    /// A test switch, `uniparallel`: epochs go on also where they cost more than they bring
    #[arg(long, hide = true)]
    pub test_keep_epochs: bool,

    /// A test switch, `uniparallel`: some epochs, drawn by this seed, count as ones that no copy can run again
    #[arg(long, hide = true, value_name = "SEED")]
    pub test_fail_epochs: Option<u32>,

    /// A test switch: in these slices two neighbouring events have changed places
    #[arg(long, hide = true, requires = "test_slices")]
    pub test_flip: bool,

    /// A test switch, for engines without a log: the runtime's image, in the place of the one that is inside
    #[arg(long, hide = true, value_name = "FILE")]
    pub test_runtime: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,

    /// What `run` was asked for
    #[arg(skip)]
    pub det: Option<RunArgs>,

    /// Nobody waits for what is said later
    #[arg(skip)]
    pub unseen: bool,

    /// It is asked for in rr's words
    #[arg(skip)]
    pub as_rr: bool,

    /// A descriptor on which the trace's directory is told
    #[arg(skip)]
    pub tell_dir: Option<i32>,
}

impl RecordArgs {
    /// Do threads run in epochs that copies run again?
    pub fn in_epochs(&self) -> bool {
        self.engine.can(can::RUN_IN_EPOCHS)
    }

    /// A recording of this program, where nothing more is asked for.
    pub fn of(engine: &'static Engine, command: Vec<OsString>) -> RecordArgs {
        RecordArgs {
            output: None,
            engine,
            engine_is_chosen: true,
            buffers: Buffers::Default,
            force: false,
            chaos: None,
            checksum: None,
            keep_on: KeepOn::Always,
            checkpoints: false,
            until_failure: None,
            jobs: None,
            time_limit: None,
            until: Until::AllExit,
            keep: None,
            env: EnvArgs::default(),
            inputs: Inputs::Reference,
            max_size: None,
            on_full: OnFull::Continue,
            cpu: CpuLevel::Native,
            quiet: false,
            no_patch: false,
            hooks: false,
            test_without: Vec::new(),
            no_cpuid_trapping: false,
            forget_syscall: None,
            test_writes: false,
            test_reenter: None,
            test_copies: false,
            test_epochs: false,
            test_slices: false,
            test_flip: false,
            test_fail_epochs: None,
            test_keep_epochs: false,
            test_runtime: None,
            command,
            det: None,
            unseen: false,
            as_rr: false,
            tell_dir: None,
        }
    }
}

/// Arguments of `attach`.
#[derive(Args, Clone, Debug)]
pub struct AttachArgs {
    /// Put the trace into this directory, which must be new or empty
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Return as soon as the process is being recorded; `reprise stop` ends that
    #[arg(short, long)]
    pub background: bool,

    /// Keep only the last stretch, as with `record`
    #[arg(long, value_name = "TIME|SIZE", value_parser = parse_keep)]
    pub keep: Option<Keep>,

    /// Hash all writable memory every N events (default: as often as costs under 1%)
    #[arg(long, value_name = "N", require_equals = true, value_parser = parse_count)]
    pub checksum: Option<u64>,

    /// Let the trace grow to SIZE at most (500M, 2G, ...)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_size: Option<u64>,

    /// What to do when the disk or the trace is full
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnFull::Continue)]
    pub on_full: OnFull,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// The process
    #[arg(value_name = "PID")]
    pub pid: i32,
}

/// Arguments of `snapshot`.
#[derive(Args, Clone, Debug)]
pub struct SnapshotArgs {
    /// Put it into this directory, which must be new or empty
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// The recorded program's process id
    #[arg(value_name = "PID")]
    pub pid: i32,
}

/// Arguments of `stop`.
#[derive(Args, Clone, Debug)]
pub struct StopArgs {
    /// The process id of the recorded program, of a process that came of it, or of the `reprise record` itself
    #[arg(value_name = "PID")]
    pub pid: i32,
}

/// Arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// End the program when a thread runs without synchronising for so long while others wait for it; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub patience: u32,

    /// Print which memory two threads have written between the same two synchronisation points, and where they were: the same in every run
    #[arg(long)]
    pub det_report: bool,

    /// Print counters of what was done on standard error at the end
    #[arg(long)]
    pub stats: bool,

    /// Let the run depend on nothing but its inputs: time, random bytes and ids of processes are the same in every run, too
    #[arg(long)]
    pub pure: bool,

    /// With --pure: what random bytes are made of
    #[arg(long, value_name = "N", default_value_t = 0, requires = "pure")]
    pub seed: u64,

    /// A test switch: leave out an optimisation
    #[arg(long, hide = true, value_name = "NAME", value_parser = parse_optimisation)]
    pub without: Vec<u64>,

    /// A test switch: random delays at every gate, from this seed
    #[arg(long, hide = true, value_name = "SEED")]
    pub delays: Option<u32>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// The engines by their names, from the table.
fn engines() -> impl TypedValueParser<Value = &'static Engine> {
    let value = |e: &'static Engine| PossibleValue::new(e.name).help(e.about).hide(e.is_hidden);
    let all = ENGINES.map(value);
    PossibleValuesParser::new(all).map(|name| Engine::named(&name).unwrap_or(&engine::NONE))
}

/// How much of each thread's events may wait for the agent (Castor 3.6).
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffers {
    /// 4 KiB: what is recorded is on its way to the trace at once
    Small,
    /// 4 MiB
    Default,
    /// 64 MiB, for at most 256 threads at a time: nothing is taken from memory before a quarter of one is full, the program crashes or ends
    Crash,
}

impl Buffers {
    /// Bytes of a thread's ring.
    pub fn bytes(self) -> u64 {
        match self {
            Buffers::Small => SMALL_RING,
            Buffers::Default => DEFAULT_RING,
            Buffers::Crash => CRASH_RING,
        }
    }
}

/// What a recorded program is shown of the processor.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuLevel {
    /// All that can be replayed
    Native,
    /// x86-64-v2: SSE4.2, POPCNT, CMPXCHG16B; no AVX, no XSAVE, no AES
    Baseline,
    /// x86-64-v3: AVX2, BMI, FMA; no AVX-512
    V3,
}

/// How what is read of files gets into a trace.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inputs {
    /// By reference to a copy of the file
    Reference,
    /// As it is read
    Copy,
}

/// Which traces are kept.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepOn {
    /// All
    Always,
    /// Only those of runs that ended with another status than 0, or by a signal
    Failure,
}

/// What happens when a trace can't grow any more.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFull {
    /// The program is ended
    Stop,
    /// The program goes on, unrecorded
    Continue,
}

/// What `replay` is told.
#[derive(Args, Debug, Clone)]
pub struct ReplayArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Debug it: start gdb on the replay, stopped at the program's first instruction
    #[arg(short, long)]
    pub debug: bool,

    /// With -d: where to begin: `crash`, `end`, `panic` (of Rust or Go, or a C++ exception that nobody caught), `stretch:NAME` (see `reprise stretches`), or the number of an event
    #[arg(long, value_name = "PLACE", value_parser = parse_place, requires = "debug")]
    pub at: Option<At>,

    /// With -d: start no gdb, but wait for one (or another debugger that speaks its remote protocol) on this port of this machine, as the same user or root; 0: any
    #[arg(long, value_name = "PORT", requires = "debug")]
    pub gdb_port: Option<u16>,

    /// With -d: wait for gdb on this socket
    #[arg(long, value_name = "PATH", hide = true, requires = "debug")]
    pub gdb_socket: Option<PathBuf>,

    /// With -d: the process, in the order of their births
    #[arg(long, value_name = "N", hide = true, requires = "debug")]
    pub gdb_process: Option<u32>,

    /// With -d: show nothing of what the program writes
    #[arg(long, hide = true, requires = "debug")]
    pub gdb_unseen: bool,

    /// With -d, or as rr: before each piece of what the program writes show by whom and at which event
    #[arg(long = "gdb-marks", hide = true, requires = "debug")]
    pub marks: bool,

    /// With -d: arguments for gdb
    #[arg(last = true, value_name = "GDB ARGS", requires = "debug")]
    pub gdb: Vec<OsString>,

    /// Print an expression each time a line is passed (FILE:LINE, or the name of a function), instead of what the program writes
    #[arg(long, num_args = 2, value_names = ["PLACE", "EXPRESSION"], conflicts_with = "debug")]
    pub print: Option<Vec<String>>,

    /// Begin at the last checkpoint before this event that `reprise checkpoint` has made, if there is one; what was written before is not shown
    #[arg(long, value_name = "EVENT", conflicts_with_all = ["debug", "pid", "print"])]
    pub from: Option<u64>,

    /// Go to one process: show only its output, and end when it ends, as it ended (see `reprise ps`; PID@EVENT names one of several). With -d:
    /// debug this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<ProcessName>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// For traces of `--engine order`: when the replay diverges, remember the functions that the thread was in, by the build ids of their
    /// files; later recordings log what these functions load, so that a data race there is replayed as it was
    #[arg(long)]
    pub learn: bool,

    /// After a replay that came to its end: of the functions that `--learn` remembered, log only the loads that raced in this replay (their
    /// logs are smaller, but another load may race the next time)
    #[arg(long)]
    pub narrow: bool,

    /// For traces of `--engine order`: what threads of the replay wait for
    #[arg(long, value_enum, default_value_t = ReplayOrder::Partial)]
    pub order: ReplayOrder,

    /// For traces of `--engine order`: replay this program in the place of the recorded one: the same, rebuilt with more assertions or
    /// `reprise_printf` (see `reprise header`)
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["debug", "print", "learn", "narrow"])]
    pub with: Option<PathBuf>,

    /// End the replay after so many seconds, and say where its threads are, as Ctrl-C does (default: none. A replay in which no thread can ever
    /// go on ends by itself; one whose threads compute for ever does not)
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<u64>,

    /// A test switch: flip the lowest bit of the byte at ADDRESS before event EVENT
    #[arg(long, hide = true, value_name = "ADDRESS@EVENT", value_parser = parse_tamper)]
    pub tamper: Option<Tamper>,

    /// With -d: the server passes for rr's
    #[arg(skip)]
    pub as_rr: Option<AsRr>,

    /// With -d: what is started in gdb's place
    #[arg(skip)]
    pub debugger: Option<OsString>,
}

impl ReplayArgs {
    /// A replay of this trace, where nothing more is asked for.
    pub fn of(dir: &Path) -> ReplayArgs {
        ReplayArgs {
            trace: Some(dir.into()),
            debug: false,
            at: None,
            from: None,
            gdb_port: None,
            gdb_socket: None,
            gdb_process: None,
            gdb_unseen: false,
            marks: false,
            gdb: Vec::new(),
            print: None,
            pid: None,
            quiet: false,
            learn: false,
            narrow: false,
            order: ReplayOrder::Partial,
            with: None,
            time_limit: None,
            tamper: None,
            as_rr: None,
            debugger: None,
        }
    }
}

/// Where a debugger begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// At this place.
    Place(Place),
    /// Where the program has said that a stretch with this name begins.
    Stretch(String),
}

/// A place, as `--at` takes it.
///
/// # Errors
/// What would be one.
pub fn parse_place(text: &str) -> Result<At, String> {
    let place = match (text, text.split_once(':')) {
        (_, Some(("stretch", name))) => return Ok(At::Stretch(name.into())),
        (_, Some(("behind", number))) => number.parse().map(Place::Behind),
        ("start", _) => Ok(Place::Start),
        ("crash", _) => Ok(Place::Crash),
        ("end", _) => Ok(Place::End),
        ("panic", _) => Ok(Place::Panic),
        (number, _) => number.parse().map(Place::Event),
    };
    place.map(At::Place).map_err(|_| {
        "neither `crash` nor `end` nor `panic` nor `stretch:NAME` nor the number of an event".into()
    })
}

/// What threads of a replay wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum ReplayOrder {
    /// For what the recording ordered; else they run at the same time
    Partial,
    /// For each other: one runs at a time, and every replay is the same, even where a data race makes it another run than the recording;
    /// not for recordings of several processes
    Total,
}

/// When a recording ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Until {
    /// When the program and all that it has started have ended
    AllExit,
    /// When the program's first process has ended: what it leaves goes on unrecorded
    MainExits,
}

/// One flipped bit, to prove that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tamper {
    /// Where, in the program's memory.
    pub address: u64,
    /// Before which event.
    pub event: u64,
}

/// What `races` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Exit status: 0 when no two accesses race, 66 when some do, 125 when that can't be said."
)]
pub struct RacesArgs {
    /// A trace of `record --engine order`: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Go on after the first race: list the distinct pairs of places, up to 32. What comes after the first may follow from it
    #[arg(long)]
    pub all: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `verify` is told.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Exit status: 0 when every replay was the recording, 65 when the recording was cut off and every replay was what there is \
                  of it, 125 when one was different or can't be made."
)]
pub struct VerifyArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Check only what comes from this event on: begin at the last checkpoint before it that `reprise checkpoint` has made, if there is one
    #[arg(long, value_name = "EVENT")]
    pub from: Option<u64>,

    /// How many times to replay it
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = parse_count)]
    pub times: u64,

    /// Print one JSON object for each replay
    #[arg(long)]
    pub json: bool,

    /// For traces of `--engine order`: what threads of the replay wait for
    #[arg(long, value_enum, default_value_t = ReplayOrder::Partial)]
    pub order: ReplayOrder,

    /// End a replay after so many seconds (default: never; one in which no thread can go on ends by itself, one that computes for ever does not)
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<u64>,

    /// A test switch: flip the lowest bit of the byte at ADDRESS before event EVENT
    #[arg(long, hide = true, value_name = "ADDRESS@EVENT", value_parser = parse_tamper)]
    pub tamper: Option<Tamper>,
}

/// What `checkpoint` is told.
#[derive(Args, Debug, Clone)]
pub struct CheckpointArgs {
    /// A trace of `record`: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// How much of a replay is to be between two of them: a time (30s, 500ms, 5min), or a number of events (10000ev). One is always made at the end
    #[arg(long, value_name = "TIME|EVENTS", value_parser = crate::checkpoint::parse_every, default_value = "1s")]
    pub every: Every,
}

/// What `dump` is told.
#[derive(Args, Debug, Clone)]
pub struct DumpArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Print one JSON object for each event
    #[arg(long)]
    pub json: bool,

    /// First event to print
    #[arg(long, value_name = "N")]
    pub from: Option<u64>,

    /// Last event to print
    #[arg(long, value_name = "N")]
    pub to: Option<u64>,

    /// Only the events of the thread in this slot
    #[arg(long, value_name = "SLOT")]
    pub thread: Option<u16>,

    /// Only the events of the processes with this id (see `reprise ps`); PID@EVENT names one of several
    #[arg(long, value_name = "PID")]
    pub pid: Option<ProcessName>,

    /// Only events of this kind (may be given several times)
    #[arg(long, value_name = "KIND", value_parser = kind_parser())]
    pub kind: Vec<Kind>,

    /// Show at most so many bytes of each buffer
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 32)]
    pub string_limit: usize,
}

/// What `ps` and `stretches` are told.
#[derive(Args, Debug, Clone)]
pub struct PsArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `backtrace` is told.
#[derive(Args, Debug, Clone)]
pub struct BacktraceArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Where: `crash`, `end`, `panic`, or the number of an event (default: the crash, else the end)
    #[arg(long, value_name = "PLACE", value_parser = parse_place)]
    pub at: Option<At>,

    /// Of this process instead of the first one, by its id as `reprise ps` tells it
    #[arg(long, value_name = "PID")]
    pub pid: Option<ProcessName>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// End a replay after so many seconds (default: never; one in which no thread can go on ends by itself, one that computes for ever does not)
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<u64>,
}

/// What `core` is told.
#[derive(Args, Debug, Clone)]
pub struct CoreArgs {
    /// Where: the number of an event, `crash`, or `end`
    #[arg(value_name = "EVENT", value_parser = parse_place)]
    pub at: At,

    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Of this process instead of the first one, by its id as `reprise ps` tells it
    #[arg(long, value_name = "PID")]
    pub pid: Option<ProcessName>,

    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "core")]
    pub output: PathBuf,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// End a replay after so many seconds (default: never; one in which no thread can go on ends by itself, one that computes for ever does not)
    #[arg(long, value_name = "SECONDS")]
    pub time_limit: Option<u64>,
}

/// What `ls` is told.
#[derive(Args, Debug, Clone)]
pub struct LsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `info` is told.
#[derive(Args, Debug, Clone)]
pub struct InfoArgs {
    /// A trace: a directory, a packed file, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// List the program's environment, too
    #[arg(long)]
    pub env: bool,
}

/// What `rm` is told.
#[derive(Args, Debug, Clone)]
pub struct RmArgs {
    /// Traces: directories, or names that `reprise ls` lists
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// What `pack` is told.
#[derive(Args, Debug, Clone)]
pub struct PackArgs {
    /// A trace: a directory, or a name that `reprise ls` lists (default: the latest)
    #[arg(value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// The file to make (default: NAME.reprise in this directory)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Leave out the checkpoints that `reprise checkpoint` has made
    #[arg(long)]
    pub no_checkpoints: bool,

    /// Encrypt it to this public key of age's (`age1...`; `age-keygen` makes the pair), or to those in a file, one a line. May be given many times; each one opens
    /// it, by --identity
    #[arg(long, value_name = "KEY or FILE")]
    pub encrypt: Vec<PathBuf>,

    /// Encrypt it to a passphrase, which is asked for at the terminal or taken from $REPRISE_PASSPHRASE
    #[arg(long, conflicts_with = "encrypt")]
    pub passphrase: bool,

    /// Sign it with this secret key of minisign's (`minisign -G` makes one, `minisign -GW` one without a password): the signature is a file beside it,
    /// FILE.minisig. Who has the public key, as NAME.pub in `trusted-keys` beside their traces (or in $REPRISE_TRUSTED_KEYS), is told whose it is
    #[arg(long, value_name = "SECRET KEY")]
    pub sign: Option<PathBuf>,

    /// Put X in the place of each byte of a value, wherever it stands: in the images of memory, in what was read and written, in files that were mapped, in
    /// the manifest. NAME (or NAME*, *NAME, *NAME*) is a variable of the program's environment, whose value it is; =TEXT is a value itself, of at
    /// least 4 bytes. May be given many times. Not found is a value that was read in several pieces, that stands in another encoding, or that
    /// only hashes, registers or (`--engine order`) single words tell of. Hashes of all memory are left out. A replay of the pack goes the same
    /// way as long as the program does not look at the value, and diverges else
    #[arg(long, value_name = "NAME or =TEXT")]
    pub redact: Vec<OsString>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// What `doctor` is told.
#[derive(Args, Debug, Clone)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `demo` is told.
#[derive(Args, Debug, Clone)]
pub struct DemoArgs {
    /// Say nothing but the outcome
    #[arg(short, long)]
    pub quiet: bool,
}

/// What `completions` is told.
#[derive(Args, Debug, Clone)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// What `man` is told.
#[derive(Args, Debug, Clone)]
pub struct ManArgs {
    /// The command whose page is wanted (default: reprise itself)
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    pub command: Option<String>,

    /// Write all pages into this directory instead
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

impl Cli {
    /// Reads the command line. What it can't make sense of, and requests for help, are answered here; the exit status then.
    pub fn read() -> Result<Cli, i32> {
        let words: Vec<OsString> = std::env::args_os().collect();
        Cli::try_parse_from(&words).map_err(|error| answer(&error, &words))
    }
}

/// Prints help, the version, or one line about a mistake; returns the exit status.
fn answer(error: &clap::Error, words: &[OsString]) -> i32 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let printed = match was_closed(libc::STDOUT_FILENO) {
                true => Err(Lost(libc::EBADF).into()),
                false => error.print(),
            };
            match printed {
                Ok(()) => 0,
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => end_unread(),
                Err(e) => {
                    say!("can't print: {e}");
                    OWN_FAILURE
                }
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            OWN_FAILURE
        }
        _ => {
            say!("{}", mistake(error, words));
            OWN_FAILURE
        }
    }
}

/// Makes one line of clap's several: what is wrong, the tip where there is one, where to read on.
fn mistake(error: &clap::Error, words: &[OsString]) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let ends = ["\n\nUsage:", "\n\nFor more information"];
    let end = ends.iter().filter_map(|e| text.find(e)).min();
    let said = one_line(&text[..end.unwrap_or(text.len())]);
    let definition = definition();
    let command = words.get(1).and_then(|w| definition.find_subcommand(w));
    match command.map(|c| c.get_name()) {
        Some(name) => format!("{said}; see `reprise {name} --help`"),
        None => format!("{said}; see `reprise --help`"),
    }
}

/// The command as clap knows it, for completions and manual pages.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// A number, decimal or hexadecimal with `0x`.
fn parse_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number from 0 to 2^64-1 is wanted".into())
}

/// A number from 1 on.
fn parse_count(text: &str) -> Result<u64, String> {
    match parse_number(text) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("a number from 1 on is wanted".into()),
    }
}

fn parse_jobs(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        n if n <= MOST_JOBS => Ok(n),
        _ => Err(format!("at most {MOST_JOBS} runs go on at a time")),
    }
}

/// A size in bytes: a number, and K, M, G or T for powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    let wanted = || format!("a size like 4096, 500M or 2G is wanted, not `{text}`");
    let upper = text.to_ascii_uppercase();
    let upper = upper
        .strip_suffix("IB")
        .or(upper.strip_suffix('B'))
        .unwrap_or(&upper);
    let (digits, shift) = match upper.char_indices().last() {
        Some((at, 'K')) => (&upper[..at], 10),
        Some((at, 'M')) => (&upper[..at], 20),
        Some((at, 'G')) => (&upper[..at], 30),
        Some((at, 'T')) => (&upper[..at], 40),
        _ => (upper, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wanted())?;
    match number.checked_mul(1 << shift) {
        Some(0) | None => Err(wanted()),
        Some(size) => Ok(size),
    }
}

fn parse_keep(text: &str) -> Result<Keep, String> {
    Keep::parse(text, parse_size)
}

fn parse_syscall(name: &str) -> Result<u64, String> {
    syscalls::by_name(name)
        .map(|call| u64::from(call.nr))
        .ok_or_else(|| "no system call has this name".into())
}

fn parse_hooks(class: &str) -> Result<u64, String> {
    let names = || hooks::CLASSES.map(|(name, _)| name).join(", ");
    hooks::bit(class).ok_or_else(|| format!("there are {}", names()))
}

fn parse_optimisation(name: &str) -> Result<u64, String> {
    let names = det::OPTIMISATIONS.map(|o| o.name).join(", ");
    det::bit(name).ok_or_else(|| format!("there are {names}"))
}

fn parse_tamper(text: &str) -> Result<Tamper, String> {
    let (address, event) = text.split_once('@').ok_or("ADDRESS@EVENT is wanted")?;
    Ok(Tamper {
        address: parse_number(address)?,
        event: parse_number(event)?,
    })
}

fn kind_parser() -> impl clap::builder::TypedValueParser<Value = Kind> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    let names = Kind::ALL.map(Kind::name);
    PossibleValuesParser::new(names).map(|name| {
        let named = Kind::ALL.into_iter().find(|k| k.name() == name);
        named.expect("only names of kinds are possible values")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        let words = std::iter::once("reprise").chain(line.split(' '));
        let words: Vec<OsString> = words.map(OsString::from).collect();
        match Cli::try_parse_from(&words) {
            Ok(cli) => Ok(cli.command),
            Err(error) => Err(mistake(&error, &words)),
        }
    }

    fn record(line: &str) -> RecordArgs {
        match parsed(line) {
            Ok(Command::Record(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn everything_after_the_program_is_its_own() {
        let args = record("record -q --chaos -o here -- ls -l --chaos=3 -- x");
        assert_eq!(args.command, ["ls", "-l", "--chaos=3", "--", "x"]);
        assert!(args.quiet);
        assert_eq!(args.chaos, Some(None));
        // The dashes may be left out.
        assert_eq!(
            record("record ls -l --json").command,
            ["ls", "-l", "--json"]
        );
    }

    #[test]
    fn options_have_the_documented_forms() {
        let args = record(
            "record --engine none --chaos=0x2a --checksum=50 --keep-on=failure --until-failure 9 --max-size 2G --on-full=stop -- a",
        );
        assert_eq!(args.engine, &engine::NONE);
        assert_eq!(args.chaos, Some(Some(42)));
        assert_eq!(args.checksum, Some(50));
        assert_eq!(args.keep_on, KeepOn::Failure);
        assert_eq!(args.until_failure, Some(9));
        assert_eq!(args.max_size, Some(2 << 30));
        assert_eq!(args.on_full, OnFull::Stop);
        let args = record("record --no-patch --forget-syscall read -- a");
        assert_eq!((args.no_patch, args.forget_syscall), (true, Some(0)));
        assert_eq!(args.chaos, None);
    }

    #[test]
    fn mistakes_are_told_in_one_line_with_the_place_to_read_on() {
        for (line, says, see) in [
            ("record", "<PROGRAM>", "reprise record --help"),
            ("record --cahos -- ls", "--cahos", "reprise record --help"),
            ("verify -n 0", "0", "reprise verify --help"),
            ("recrod ls", "recrod", "reprise --help"),
            ("record --max-size x -- ls", "500M", "--help"),
            ("record --checksum=0 -- ls", "0", "--help"),
            ("dump --kind nothing", "syscall", "--help"),
        ] {
            let said = parsed(line).expect_err(line);
            assert!(said.contains(says) && said.contains(see), "{line}: {said}");
            assert!(!said.contains('\n'), "{line}: {said}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("3k"), Ok(3 << 10));
        assert_eq!(parse_size("5MiB"), Ok(5 << 20));
        assert_eq!(parse_size("1TB"), Ok(1 << 40));
        for bad in ["", "0", "M", "-1", "1.5G", "99999999T", "7 G", "1P"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tampering() {
        assert_eq!(
            parse_tamper("0x1000@7"),
            Ok(Tamper {
                address: 4096,
                event: 7
            })
        );
        assert!(parse_tamper("7").is_err());
    }
}
