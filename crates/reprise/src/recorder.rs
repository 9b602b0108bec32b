//! The processes beside a recorded program: the agent, who takes its place when it died, and the one that keeps a trace short.

use crate::cli::{Buffers, OnFull, RecordArgs};
use crate::keep::{self, Keep};
use anyhow::{Context, Result};
use reprise_agent::{streams, Agent};
use reprise_launch::{futex, RuntimeImage, SharedSession};
use reprise_trace::{Census, Store, Writer};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::*};

/// The program, for the handlers that pass signals on.
pub static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Forks the agent; its process id. Without a trace it only attends to execs.
pub fn start_agent(
    args: &RecordArgs,
    shared: &SharedSession,
    image: &RuntimeImage,
    census: Census,
    trace: Option<(Writer, Store, &Path)>,
) -> Result<i32> {
    // SAFETY: plain call.
    let launcher = unsafe { libc::getpid() };
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    anyhow::ensure!(
        pid >= 0,
        "fork the agent: {}",
        std::io::Error::last_os_error()
    );
    // Known before its first signal, whoever of the two runs first.
    let told = if pid > 0 {
        pid as u32
    } else {
        std::process::id()
    };
    shared.session().agent_pid.store(told, SeqCst);
    if pid > 0 {
        // The agent's copies do the work; only it has the trace open.
        if let Some((writer, store, _)) = trace {
            drop(writer);
            std::mem::forget(store);
        }
        return Ok(pid);
    }
    stand_aside();
    if args.unseen {
        streams::leave(&[2]);
    }
    let on_full = match args.on_full {
        OnFull::Stop => reprise_agent::OnFull::Stop,
        OnFull::Continue => reprise_agent::OnFull::Continue,
    };
    // SAFETY: the parent's copies of both live in its own process.
    let (shared, image) = unsafe { (std::ptr::read(shared), std::ptr::read(image)) };
    let status = match trace {
        None => {
            for w in reprise_agent::attend(shared, &image, launcher) {
                eprintln!("reprise: {w}");
            }
            0
        }
        Some((writer, store, dir)) => {
            let agent = Agent {
                shared,
                writer,
                store,
                dir: dir.to_path_buf(),
                on_full,
                lazy: args.buffers == Buffers::Crash,
                image,
                launcher,
                census,
                warnings: Vec::new(),
                uncaptured: Vec::new(),
            };
            match agent.run() {
                Ok(()) => 0,
                Err(e) => {
                    eprintln!("reprise: {e}");
                    125
                }
            }
        }
    };
    // SAFETY: the child ends here, without running the parent's destructors.
    unsafe { libc::_exit(status) }
}

/// A child that works beside the program: keyboard signals are for the program, a full disk or file limit is handled as an error.
fn stand_aside() {
    PROGRAM.store(0, Relaxed);
    // SAFETY: plain calls of a process with one thread.
    unsafe {
        libc::setpgid(0, 0);
        // One for each process, and those of the trace.
        let mut files: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut files);
        files.rlim_cur = files.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        for s in [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTSTP,
            libc::SIGHUP,
            libc::SIGPIPE,
            libc::SIGXFSZ,
            libc::SIGTERM,
        ] {
            libc::signal(s, libc::SIG_IGN);
        }
    }
    // The launcher's standard streams are not the agent's business: a pipe must see its end when the program is gone.
    streams::leave(&[0, 1]);
}

/// Forks the one that keeps the trace short; its process id.
pub fn start_follower(keep: Keep, dir: &Path, shared: &SharedSession) -> Result<i32> {
    shared.session().hold.store(keep.most(0), SeqCst);
    // SAFETY: plain calls; this process has one thread.
    let (launcher, pid) = unsafe { (libc::getpid(), libc::fork()) };
    anyhow::ensure!(
        pid >= 0,
        "fork the flight recorder: {}",
        std::io::Error::last_os_error()
    );
    if pid > 0 {
        shared.session().follower_pid.store(pid as u64, SeqCst);
        return Ok(pid);
    }
    stand_aside();
    let status = keep::follow(keep, dir, shared, launcher);
    // SAFETY: the child ends here, without running the parent's destructors.
    unsafe { libc::_exit(status) }
}

/// What it takes to put somebody in the place of an agent that died.
pub struct Attendants<'a> {
    /// What was asked for.
    pub args: &'a RecordArgs,
    /// The session.
    pub shared: &'a SharedSession,
    /// What is put into programs.
    pub image: &'a RuntimeImage,
}

impl Attendants<'_> {
    /// The agent has died: the program goes on, with somebody who attends to it and records nothing; its process id.
    pub fn replace(&self) -> Result<i32> {
        eprintln!("reprise: the agent died; the program goes on without a recording");
        let s = self.shared.session();
        s.recording_lost.store(1, SeqCst);
        s.former_agent.store(s.agent_pid.load(SeqCst), SeqCst);
        start_agent(self.args, self.shared, self.image, Census::default(), None)
    }
}

/// Takes the status of a child that has ended.
pub fn reap(pid: i32) -> Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: our own child.
        if unsafe { libc::waitpid(pid, &mut status, 0) } == pid {
            return Ok(status);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error).context("wait for a child");
        }
    }
}

/// Tells the agent how the program ended and waits until the trace is closed.
pub fn finish(attendants: &Attendants, mut agent: i32, status: i32) -> Result<()> {
    let s = attendants.shared.session();
    s.wait_status.store(status as u32 + 1, SeqCst);
    s.agent_asleep.store(0, SeqCst);
    futex::wake(&s.agent_asleep, 1);
    // What came of the program may go on without it, and needs somebody as well.
    while libc::WIFSIGNALED(reap(agent)?) {
        agent = attendants.replace()?;
    }
    let full = s.counters.ring_full_ns.load(Relaxed);
    if full > 100_000_000 && !attendants.args.quiet {
        eprintln!(
            "reprise: the program waited {:.1} s for the trace to be written",
            full as f64 / 1e9
        );
    }
    Ok(())
}
