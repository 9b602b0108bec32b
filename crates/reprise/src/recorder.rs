//! The processes beside a recorded program: the agent, who takes its place when it died, and the one that keeps a trace short.

use crate::cli::{Buffers, OnFull, RecordArgs, Until};
use crate::keep::{self, Keep};
use crate::signals;
use anyhow::{Context, Result};
use reprise_abi::session::{process_state, Process, Session};
use reprise_agent::{stop, streams, Agent, Outsiders};
use reprise_console::log::{self, Role};
use reprise_console::say;
use reprise_launch::dispositions::{self, AllBlocked};
use reprise_launch::{futex, process, RuntimeImage, SharedSession};
use reprise_trace::{Census, Store, Summary, Writer};
use rustix::process::{getrlimit, setpgid, setrlimit, Resource};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// Forks the agent; its process id. Without a trace it only attends to execs.
pub fn start_agent(
    args: &RecordArgs,
    shared: &SharedSession,
    image: &RuntimeImage,
    census: Census,
    outsiders: Outsiders,
    trace: Option<(Writer, Store, &Path)>,
) -> Result<i32> {
    let launcher = std::process::id() as i32;
    let before = stop::listen();
    let pid = fork_aside();
    if pid != 0 {
        before.restore();
    }
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
    log::is(Role::Agent);
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
                say!("{w}");
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
                keeps_stretch: args.keep.is_some(),
                image,
                launcher,
                census,
                outsiders,
                warnings: Vec::new(),
                uncaptured: Vec::new(),
            };
            match agent.run() {
                Ok(()) => 0,
                Err(e) => {
                    say!("{e}");
                    125
                }
            }
        }
    };
    // SAFETY: the child ends here, without running the parent's destructors.
    unsafe { libc::_exit(status) }
}

/// Forks a child that works beside the program; what fork(2) returns. No signal reaches the child before it stands aside: until then it is in the
/// group of whoever types Ctrl-C.
fn fork_aside() -> i32 {
    let _blocked = AllBlocked::here();
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        stand_aside();
    }
    pid
}

/// A child that works beside the program: keyboard signals are for the program, a full disk or file limit is handled as an error.
fn stand_aside() {
    signals::program_has_ended();
    let _ = setpgid(None, None);
    // One for each process, and those of the trace.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    let _ = setrlimit(Resource::Nofile, files);
    for signal in [
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGHUP,
        libc::SIGPIPE,
        libc::SIGXFSZ,
        libc::SIGTERM,
    ] {
        dispositions::ignore(signal);
    }
    // The launcher's standard streams are not the agent's business: a pipe must see its end when the program is gone.
    streams::leave(&[0, 1]);
}

/// Forks the one that keeps the trace short; its process id.
pub fn start_follower(keep: Keep, dir: &Path, shared: &SharedSession) -> Result<i32> {
    shared.session().hold.store(keep.most(0), SeqCst);
    let launcher = std::process::id() as i32;
    let pid = fork_aside();
    anyhow::ensure!(
        pid >= 0,
        "fork the flight recorder: {}",
        std::io::Error::last_os_error()
    );
    if pid > 0 {
        shared.session().follower_pid.store(pid as u64, SeqCst);
        return Ok(pid);
    }
    log::is(Role::Follower);
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
        say!("the agent died; the program goes on without a recording");
        let s = self.shared.session();
        s.recording_lost.store(1, SeqCst);
        s.former_agent.store(s.agent_pid.load(SeqCst), SeqCst);
        start_agent(
            self.args,
            self.shared,
            self.image,
            Census::default(),
            Outsiders::new(),
            None,
        )
    }
}

/// Takes the status of a child that has ended.
pub fn reap(pid: i32) -> Result<i32> {
    process::reap(pid).context("wait for a child")
}

/// Between two looks whether the recording was stopped.
const LOOK: Duration = Duration::from_millis(100);
/// The same when it has been asked to.
const SHORT_LOOK: Duration = Duration::from_millis(5);
/// After which the user is told what is waited for.
const UNTOLD: Duration = Duration::from_secs(2);

/// Tells the agent how the program ended, and waits until the trace is closed: when all that came of the program has ended, too, or before,
/// where that is wanted. What is left then goes on, with the agent beside it.
pub fn finish(
    attendants: &Attendants,
    agent: i32,
    status: i32,
    dir: Option<&Path>,
    until: Until,
) -> Result<()> {
    let s = attendants.shared.session();
    s.wait_status.store(status as u32 + 1, SeqCst);
    s.agent_asleep.store(0, SeqCst);
    futex::wake(&s.agent_asleep, 1);
    wait_for_agent(attendants, agent, dir, until)?;
    let full = s.counters.ring_full_ns.load(Relaxed);
    if full > 100_000_000 && !attendants.args.quiet {
        say!(
            "the program waited {:.1} s for the trace to be written",
            full as f64 / 1e9
        );
    }
    Ok(())
}

fn wait_for_agent(
    attendants: &Attendants,
    mut agent: i32,
    dir: Option<&Path>,
    until: Until,
) -> Result<()> {
    let s = attendants.shared.session();
    let mut end = process::open(agent).context("watch the agent")?;
    // Only this one writes a trace; who takes its place attends to what is left.
    let mut writes = dir.is_some();
    let (mut asked, mut told) = (false, attendants.args.quiet);
    let begun = Instant::now();
    loop {
        let look = if asked { SHORT_LOOK } else { LOOK };
        if process::has_ended(&end, look) {
            if !libc::WIFSIGNALED(reap(agent)?) {
                return Ok(());
            }
            // What came of the program may go on without it, and needs somebody as well.
            agent = attendants.replace()?;
            end = process::open(agent).context("watch the agent")?;
            writes = false;
        }
        if until == Until::MainExits || signals::is_asked_to_end() {
            if !writes || s.recording_lost.load(SeqCst) != 0 && !asked {
                return Ok(());
            }
            if !asked {
                asked = true;
                // Our own child, which has not been reaped.
                let _ = process::send(agent, stop::SIGNAL);
            }
        }
        if let Some(dir) = dir.filter(|_| writes) {
            if Summary::read(dir).is_ok_and(|s| s.is_some_and(|s| s.stopped)) {
                return Ok(());
            }
        }
        if !told && begun.elapsed() > UNTOLD && lives(s) {
            told = true;
            say!("the program has ended; what it started has not, and is recorded on (Ctrl-C ends that, or `record --until main-exits`)");
        }
    }
}

/// Does a process of the session live?
fn lives(s: &Session) -> bool {
    let live = |p: &Process| p.state.load(SeqCst) == process_state::LIVE;
    s.processes.iter().any(live)
}
