//! `reprise run`: the same run every time (DThreads). It is started as for a recording, but nothing is recorded.

use crate::cli::{EngineName, RecordArgs, RunArgs};
use crate::record;
use anyhow::Result;
use reprise_abi::session::{slot_state, Session, ENGINE_DET};
use reprise_launch::SharedSession;
use reprise_replay::conflicts::{self, Conflict};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::SeqCst;

/// Runs `run`; the exit status is the program's.
///
/// # Errors
/// When the program can't be started.
pub fn run(args: &RunArgs) -> Result<i32> {
    record::run(&RecordArgs {
        quiet: args.quiet,
        det: Some(args.clone()),
        ..RecordArgs::of(EngineName::Det, args.command.clone())
    })
}

/// What the runtime is to know of the command line.
pub fn configure(s: &mut Session, args: &RunArgs) {
    s.det_report = args.det_report.into();
    s.det_patience_ns = args.patience as u64 * 1_000_000_000;
    s.det_without = args.without.iter().fold(0, |set, o| set | o);
    s.det_delays = args.delays.map_or(0, |seed| seed as u64 + 1);
}

/// Prints which memory two threads have written between the same two synchronisation points.
pub fn print_conflicts(shared: &SharedSession) {
    let found = conflicts::read(shared);
    let (all, more) = (&found.conflicts, found.more);
    for c in all {
        eprint!("{}", conflict(c));
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
        0 => eprintln!("reprise: no conflicting writes{of_libc}"),
        1 => eprintln!("reprise: 1 place with conflicting writes{of_libc}"),
        _ => eprintln!("reprise: {n} places with conflicting writes{shown}{of_libc}"),
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
            eprintln!("reprise: {name} {value}");
        }
    }
}

/// Threads are processes: none outlives the first one, however that ended.
pub fn end_threads(shared: &SharedSession) {
    let s = shared.session();
    if s.engine != ENGINE_DET {
        return;
    }
    for slot in (0..s.slots_used.load(SeqCst) as usize).map(|i| shared.slot(i)) {
        let tid = slot.kernel_tid.load(SeqCst);
        let process = slot.process.load(SeqCst) as usize % s.processes.len();
        let program = s.processes[process].kernel_pid.load(SeqCst) == s.program_pid.load(SeqCst);
        let used = program && slot.state.load(SeqCst) != slot_state::FREE;
        if tid > 0 && used && tid != s.program_pid.load(SeqCst) {
            end_thread(shared, tid as i32);
        }
    }
}

/// Ends a process of the session. It is nobody's child here: its id may be another's by now, who does not have the session's memory.
fn end_thread(shared: &SharedSession, pid: i32) {
    // SAFETY: plain call; the descriptor is ours.
    let fd = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        if fd < 0 {
            return;
        }
        OwnedFd::from_raw_fd(fd)
    };
    let memory = std::fs::metadata(format!("/proc/self/fd/{}", shared.fd())).map(|m| m.ino());
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let has_it = |inode: u64| {
        let inode = inode.to_string();
        maps.lines()
            .any(|line| line.split_whitespace().nth(4) == Some(&inode) && line.contains("memfd:"))
    };
    if memory.is_ok_and(has_it) {
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: whoever was looked at gets it, or nobody.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                fd.as_raw_fd(),
                libc::SIGKILL,
                info,
                0,
            )
        };
    }
}
