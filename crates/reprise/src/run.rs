//! `reprise run`: the same run every time (DThreads). It is started as for a recording, but nothing is recorded.

use crate::cli::{RecordArgs, RunArgs};
use crate::record;
use anyhow::Result;
use reprise_abi::engine::{can, Engine};
use reprise_abi::session::{Session, FLAG_PURE};
use reprise_console::{say, say_text};
use reprise_launch::SharedSession;
use reprise_replay::conflicts::{self, Conflict};
use std::sync::atomic::Ordering::SeqCst;

/// Runs `run`; the exit status is the program's.
///
/// # Errors
/// When the program can't be started.
pub fn run(args: &RunArgs) -> Result<i32> {
    record::run(&RecordArgs {
        quiet: args.quiet,
        det: Some(args.clone()),
        ..RecordArgs::of(Engine::that_can(can::REPEAT), args.command.clone())
    })
}

/// What the runtime is to know of the command line.
pub fn configure(s: &mut Session, args: &RunArgs) {
    s.det_report = args.det_report.into();
    s.det_patience_ns = args.patience as u64 * 1_000_000_000;
    if args.pure {
        s.flags |= FLAG_PURE;
        s.det_seed = args.seed;
    }
    s.det_without = args.without.iter().fold(0, |set, o| set | o);
    s.det_delays = args.delays.map_or(0, |seed| seed as u64 + 1);
}

/// Prints which memory two threads have written between the same two synchronisation points.
pub fn print_conflicts(shared: &SharedSession) {
    let found = conflicts::read(shared);
    let (all, more) = (&found.conflicts, found.more);
    for c in all {
        say_text(&conflict(c));
    }
    let n = all.len() as u64 + more;
    let shown = match more {
        0 => String::new(),
        _ => format!(", of which the first {} are shown", all.len()),
    };
    let of_libc = match found.of_libc {
        0 => String::new(),
        n => format!("; beside them {n} in memory of libc and ld.so"),
    };
    match n {
        0 => say!("no conflicting writes{of_libc}"),
        1 => say!("1 place with conflicting writes{of_libc}"),
        _ => say!("{n} places with conflicting writes{shown}{of_libc}"),
    }
}

fn conflict(c: &Conflict) -> String {
    let bytes = if c.len == 1 { "byte" } else { "bytes" };
    let at = match &c.variable {
        Some(name) => format!("{name} ({:#x})", c.address),
        None => format!("{:#x}", c.address),
    };
    let times = match c.times {
        1 => String::new(),
        n => format!(", {n} times"),
    };
    let mut s = format!(
        "reprise: conflicting writes to {} {bytes} at {at}{times}\n",
        c.len
    );
    for (w, whose) in c.threads.iter().zip(["is lost", "stays"]) {
        s += &format!("  what thread {} wrote {whose}; it came to\n", w.thread);
        for line in &w.stack {
            s += &format!("    {line}\n");
        }
        if w.stack.is_empty() {
            s += "    a place that is not known\n";
        }
    }
    s
}

/// Prints what was done, a counter a line.
pub fn print_counters(shared: &SharedSession) {
    for (name, value) in reprise_agent::counters::read(shared.session()) {
        if let Some(name) = name.strip_prefix("det_") {
            say!("{name} {value}");
        }
    }
}

/// Threads are processes: none outlives the first one, however that ended. `recorders`: who records it beside this process.
pub fn end_threads(shared: &SharedSession, recorders: &[u32]) {
    let s = shared.session();
    let program = s.program_pid.load(SeqCst);
    reprise_launch::threads::end_all(shared, program, recorders);
}
