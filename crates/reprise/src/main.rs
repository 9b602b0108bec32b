//! `reprise`: records a run of a multi-threaded program and replays it exactly. This is the command line; what it commands is in
//! the libraries beside it.

mod ask;
mod attach;
mod backtrace;
mod checkpoint;
mod cli;
mod compile;
mod core_file;
mod dap;
mod debug;
mod doctor;
mod dump;
mod environment;
mod exit;
mod export;
mod foreground;
mod go;
mod goroutines;
mod human;
mod info;
mod keep;
mod keys;
mod ls;
mod manual;
mod mcp;
mod output;
mod pack;
mod play;
mod printers;
mod processes;
mod ps;
mod python;
mod races;
mod racy;
mod record;
mod recorder;
mod recordings;
mod retrospect;
mod rm;
mod rr;
mod run;
mod seeds;
mod signals;
mod snapshot;
mod stop;
mod stretches;
mod time_limit;
mod timeline;
mod view;

use cli::{Cli, Command};
use reprise_console::{end_unread, log, say, Lost};

fn main() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|a| a == racy::ARGUMENT)
    {
        return racy::run();
    }
    std::panic::set_hook(Box::new(|panic| last_words(panic)));
    log::begin();
    let asked = match rr::words() {
        Some(words) => {
            keys::tell(Vec::new());
            rr::read(words)
        }
        None => Cli::read().map(|cli| {
            keys::tell(cli.identity);
            if let Some(bytes) = cli.max_unpacked {
                reprise_trace::catalog::allow_unpacked(bytes);
            }
            if cli.trust_runtime {
                reprise_launch::known::trust_all();
            }
            cli.command
        }),
    };
    let status = match asked {
        Ok(asked) => {
            if asked.says_signer() {
                reprise_trace::catalog::tell_signers(|signer| say!("{signer}"));
            }
            command(asked)
        }
        Err(status) => status,
    };
    std::process::exit(status);
}

/// Runs a command; returns the exit status.
fn command(command: Command) -> i32 {
    // The inner one would need ptrace, and the addresses that the outer one has.
    let runs_programs = matches!(
        command,
        Command::Record(_)
            | Command::Run(_)
            | Command::Attach(_)
            | Command::Replay(_)
            | Command::Backtrace(_)
            | Command::Values(_)
            | Command::Calls(_)
            | Command::Where(_)
            | Command::Origin(_)
            | Command::Core(_)
            | Command::Verify(_)
            | Command::Checkpoint(_)
            | Command::Races(_)
            | Command::Demo(_)
            | Command::Mcp(_)
            | Command::Dap(_)
    );
    if runs_programs && reprise_launch::nested::inside_a_session() {
        say!("this reprise is itself being recorded or replayed: record its program directly, or run reprise outside of the recording");
        return exit::OWN_FAILURE;
    }
    if let Some(why) = goroutines::refusal(&command) {
        say!("{why}");
        return exit::OWN_FAILURE;
    }
    if runs_programs {
        reprise_launch::limits::raise();
    }
    let result = match command {
        Command::Record(args) => record::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Replay(args) if args.debug => debug::run(&args),
        Command::Replay(args) => match &args.print {
            Some(what) => retrospect::run(&args, what),
            None => play::replay(&args),
        },
        Command::Verify(args) => play::verify(&args),
        Command::Checkpoint(args) => checkpoint::run(&args),
        Command::Races(args) => races::run(&args),
        Command::Demo(args) => play::demo(&args),
        Command::Dump(args) => print(|| dump::run(&args)),
        Command::Backtrace(args) => backtrace::run(&args),
        Command::Values(args) => ask::values::run(&args),
        Command::Calls(args) => ask::calls::run(&args),
        Command::Where(args) => ask::writers::run(&args),
        Command::Origin(args) => ask::origin::run(&args),
        Command::Diff(args) => ask::diff::run(&args),
        Command::Bisect(args) => ask::bisect::run(&args),
        Command::Core(args) => core_file::run(&args),
        Command::Ps(args) => print(|| ps::run(&args)),
        Command::Stretches(args) => print(|| stretches::run(&args)),
        Command::Ls(args) => print(|| ls::run(&args)),
        Command::Info(args) => print(|| info::run(&args)),
        Command::Attach(args) => attach::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Stop(args) => stop::run(&args),
        Command::Rm(args) => print(|| rm::run(&args)),
        Command::Pack(args) => print(|| pack::run(&args)),
        Command::Export(args) => print(|| export::run(&args)),
        Command::View(args) => print(|| view::run(&args)),
        Command::Mcp(args) => mcp::run(&args),
        Command::Dap(args) => dap::run(&args),
        Command::Cc(args) => compile::c(&args),
        Command::Cxx(args) => compile::cxx(&args),
        Command::Cargo(args) => compile::cargo(&args),
        Command::Go(args) => go::run(&args),
        Command::Header => print(compile::header),
        Command::Doctor(args) => print(|| doctor::run(&args)),
        Command::Completions(args) => print(|| manual::completions(&args)),
        Command::Man(args) => print(|| manual::man(&args)),
    };
    result.unwrap_or_else(|error| {
        if Lost::is_unread(error.as_ref()) {
            end_unread();
        }
        if let Some(line) = exit::line_of(&error) {
            say!("{line}");
        }
        exit::status_of(&error)
    })
}

/// Runs a command that only prints.
fn print(command: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<i32> {
    command().map(|()| 0)
}

/// A bug of ours is told like any other failure, and ends with our own status, not with a signal that could be the program's.
fn last_words(panic: &std::panic::PanicHookInfo<'_>) -> ! {
    let payload = panic.payload();
    let what = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a check failed");
    let place = panic
        .location()
        .map(|l| format!("{}:{}", l.file(), l.line()));
    let place = place.unwrap_or_else(|| "an unknown place".into());
    say!(
        "internal error: {} ({place}): this is a bug in reprise, please report it",
        exit::one_line(what)
    );
    // SAFETY: ends the process at once. Handlers of exit(3) are not run: this may be a child that shares them.
    unsafe { libc::_exit(exit::OWN_FAILURE) }
}
