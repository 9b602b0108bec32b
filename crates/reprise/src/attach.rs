//! `attach`: a process that is running already is recorded from now on, with all its threads, until it ends, or until the recording is
//! stopped: by `reprise stop`, or by the signal by which a user ends this command.

use crate::cli::{AttachArgs, RecordArgs, Until};
use crate::exit::OWN_FAILURE;
use crate::record::{self, Program};
use crate::recorder::{self, Attendants};
use anyhow::{Context, Result};
use reprise_abi::engine::{can, Engine};
use reprise_agent::kept::Keeper;
use reprise_agent::Outsiders;
use reprise_console::say;
use reprise_launch::attach::{self, Attached};
use reprise_launch::proc_files::Stat;
use reprise_launch::runtime::EMBEDDED;
use reprise_launch::{cpu, process, RuntimeImage, SharedSession};
use reprise_trace::{ByteString, Catalog, Census, Summary};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

/// Between two looks whether the recording was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// Runs `attach`; the exit status is the process's, where it ends while it is recorded.
///
/// # Errors
/// When the process can't be recorded; it goes on as before then.
pub fn run(args: &AttachArgs) -> Result<i32> {
    match args.background {
        true => in_background(args),
        false => record(args, || Ok(())),
    }
}

/// Records in a process of its own; returns when that has begun, or has failed.
fn in_background(args: &AttachArgs) -> Result<i32> {
    let (mut begun, mut tell) = UnixStream::pair().context("make a pair of sockets")?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("fork"),
        0 => {
            drop(begun);
            // No terminal's signals are for it.
            let _ = rustix::process::setsid();
            record(args, move || {
                let told = tell.write_all(&[0]);
                // The terminal, or whoever reads our output, may go away.
                reprise_agent::streams::leave(&[0, 1, 2]);
                told.context("say that it has begun")
            })
        }
        child => {
            drop(tell);
            if begun.read(&mut [0]).is_ok_and(|n| n == 1) {
                return Ok(0);
            }
            // It has said why.
            let status = recorder::reap(child)?;
            Ok(record::exit_status(status))
        }
    }
}

/// Records; calls `begun` when the process is on its way.
fn record(args: &AttachArgs, begun: impl FnOnce() -> Result<()>) -> Result<i32> {
    let pid = args.pid;
    cpu::suffices().map_err(anyhow::Error::msg)?;
    let argv = strings(pid, "cmdline");
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let asked = RecordArgs {
        output: args.output.clone(),
        keep: args.keep,
        checksum: args.checksum,
        max_size: args.max_size,
        on_full: args.on_full,
        quiet: args.quiet,
        unseen: args.background,
        ..RecordArgs::of(Engine::that_can(can::ATTACH), argv)
    };
    let mut shared = SharedSession::create()?;
    let image = RuntimeImage::load(EMBEDDED)?;
    record::configure(&mut shared, &asked);
    let end = process::open(pid).ok();
    let mut attached = attach::stop(pid).with_context(|| format!("attach to process {pid}"))?;
    let catalog = Catalog::from_env()?;
    let dir = match &args.output {
        Some(dir) => Catalog::create_at(dir)?,
        None => catalog.create(exe.file_name().unwrap_or(exe.as_os_str()))?,
    };
    let made = begin(
        &asked,
        &mut shared,
        &image,
        &mut attached,
        &catalog,
        &dir,
        exe,
    );
    let agent = match made {
        Ok(agent) => agent,
        Err(e) => {
            // It goes on as before; nothing was recorded.
            drop(attached);
            let _ = std::fs::remove_dir_all(&dir);
            return Err(e.context(format!("attach to process {pid}")));
        }
    };
    let follower = match args.keep {
        Some(keep) => Some(recorder::start_follower(keep, &dir, &shared)?),
        None => None,
    };
    // Before the user is told that it can be ended.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler = interrupt as extern "C" fn(i32);
        // SAFETY: a handler that only stores a word.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    let cpu = shared.session().cpu as usize;
    attached.go(&image, cpu)?;
    catalog.set_latest(&dir)?;
    if !args.quiet {
        say!("recording process {pid} in {}", dir.display());
    }
    begun()?;
    let attendants = Attendants {
        args: &asked,
        shared: &shared,
        image: &image,
    };
    watch(&attendants, pid, end, agent, follower, &dir)
}

/// Puts the runtime in, writes what of a trace does not change, and forks the agent: its process id.
fn begin(
    asked: &RecordArgs,
    shared: &mut SharedSession,
    image: &RuntimeImage,
    attached: &mut Attached,
    catalog: &Catalog,
    dir: &Path,
    exe: PathBuf,
) -> Result<i32> {
    let pid = attached.pid();
    attached.put_in(shared, image)?;
    let store = catalog.store()?;
    let runtime_hash = record::keep_runtime(catalog, &store, dir)?;
    let mut keeper = Keeper::new(store, dir.into());
    reprise_agent::image::write_attached(attached, shared, &mut keeper)
        .map_err(anyhow::Error::msg)?;
    let of = |strings: Vec<OsString>| strings.iter().map(|s| s.as_os_str().into()).collect();
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let who = Program {
        argv: of(asked.command.clone()),
        env: of(strings(pid, "environ")),
        cwd: ByteString::from(cwd.as_os_str()),
        exe: ByteString::from(exe.as_os_str()),
        pid,
        children: attached.children(),
    };
    let census = Census::with_children(pid, &who.children);
    let mut outsiders = Outsiders::new();
    outsiders.was_running(pid as u32, &census.all_known(), shared);
    let writer = record::write_head(asked, shared, who, runtime_hash, dir)?;
    let trace = Some((writer, catalog.store()?, dir));
    recorder::start_agent(asked, shared, image, census, outsiders, trace)
}

/// Strings that end with zeros, of a file of /proc/PID.
fn strings(pid: i32, file: &str) -> Vec<OsString> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let all = bytes.split(|b| *b == 0).filter(|s| !s.is_empty());
    all.map(|s| OsString::from_vec(s.to_vec())).collect()
}

/// The user wants the recording to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: i32) {
    INTERRUPTED.store(true, SeqCst);
}

/// Waits for the end of the process or of the recording.
fn watch(
    attendants: &Attendants,
    pid: i32,
    end: Option<OwnedFd>,
    mut agent: i32,
    follower: Option<i32>,
    dir: &Path,
) -> Result<i32> {
    let end = end.with_context(|| format!("watch process {pid}"))?;
    let s = attendants.shared.session();
    // Ctrl-C was typed; somebody is in the place of an agent that died.
    let (mut asked, mut replaced) = (false, false);
    loop {
        if process::has_ended(&end, LOOK) {
            let status = status_of(pid, &end);
            let Some(status) = status else {
                // Nobody knows how it ended but the trace; the agent closes that.
                return Ok(0);
            };
            recorder::finish(attendants, agent, status, Some(dir), Until::AllExit)?;
            if let Some(follower) = follower {
                let _ = recorder::reap(follower);
            }
            record::say_summary(dir, attendants.args.quiet);
            record::say_message(attendants.shared);
            if let Some(hint) = record::crash_hint(status, dir) {
                say!("{hint}");
            }
            return Ok(record::exit_status(status));
        }
        if INTERRUPTED.swap(false, SeqCst) {
            let lost =
                s.recording_lost.load(SeqCst) != 0 && Summary::read(dir).is_ok_and(|s| s.is_none());
            // Who asks twice finds the trace about to be closed.
            if lost && (replaced || !asked) {
                // The agent died, or has no room: there is nothing to be closed.
                say!("nothing is recorded any more; process {pid} goes on");
                return Ok(OWN_FAILURE);
            }
            asked = true;
            // Our own child, which has not been reaped.
            let _ = process::send(agent, reprise_agent::stop::SIGNAL);
        }
        if matches!(Summary::read(dir), Ok(Some(_))) {
            // From now on the agent only attends to the process.
            record::say_summary(dir, attendants.args.quiet);
            return Ok(0);
        }
        if matches!(process::reap_ended(agent), Ok(Some(_))) {
            agent = attendants.replace()?;
            replaced = true;
            // Who had asked the one that died need not ask again.
            INTERRUPTED.fetch_or(asked, SeqCst);
        }
    }
}

/// How a process ended that is no child of ours: as long as its parent has not asked, /proc tells (proc_pid_stat(5)); afterwards newer
/// kernels do, by its descriptor (PIDFD_GET_INFO).
fn status_of(pid: i32, end: &OwnedFd) -> Option<i32> {
    /// struct pidfd_info (linux/pidfd.h), as of Linux 6.15.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        rest: [u32; 13],
        exit_code: i32,
    }
    const PIDFD_GET_INFO: u64 = 0xc040_ff0b;
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    const EXIT_CODE: usize = 52;
    let stat = Stat::of_process(pid).ok();
    if let Some(zombie) = stat.filter(|stat| stat.state() == Some('Z')) {
        return zombie.field(EXIT_CODE)?.try_into().ok();
    }
    let mut info = Info {
        mask: PIDFD_INFO_EXIT,
        ..Info::default()
    };
    // SAFETY: the structure is as large as the request says.
    let r = unsafe { libc::ioctl(end.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
    (r == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}
