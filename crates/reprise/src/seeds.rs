//! `record --until-failure N --jobs J`: several runs at a time, each with a chaos seed of its own and a limit of time, until one fails.
//!
//! Each run is a fork of this process: a recorder of its own, with the program's outputs in files that only the failing run shows. The runs share a
//! page: the first that fails claims the end, and the others, which are ended then, remove what they have recorded. A run whose time is over is
//! ended with all that came of it, and fails by that: what a program that hangs did is in its trace.

use crate::cli::RecordArgs;
use crate::exit::{line_of, status_of};
use crate::record::{exit_status, one, say_recorded};
use crate::time_limit::{end_programs_of, ROUND};
use anyhow::{ensure, Context, Result};
use reprise_console::{say, say_text, Output};
use reprise_launch::dispositions;
use reprise_trace::Catalog;
use rustix::io::Errno;
use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
use rustix::process::{set_parent_process_death_signal, Signal, WaitOptions};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Most runs at a time.
pub const MOST_JOBS: u64 = 256;
/// Between two looks at the runs.
const LOOK: Duration = Duration::from_millis(10);
/// In [`Shared::failed`]: no run is to claim the end any more.
const NOBODY: u64 = u64::MAX;

/// What the runs know of each other.
#[repr(C)]
struct Shared {
    /// The run that failed first, 0 for none yet.
    failed: AtomicU64,
    /// Its wait status.
    status: AtomicI32,
}

/// A run that goes on.
struct Job {
    run: u64,
    begun: Instant,
    /// What the program writes, to its output and to its error, ...
    outputs: [File; 2],
    /// ... and the directory of the trace.
    told: File,
    out_of_time: bool,
    /// When it was ended last.
    ended: Option<Instant>,
}

/// A signal that asks all to end.
static ASKED: AtomicI32 = AtomicI32::new(0);

extern "C" fn ask(signal: i32) {
    ASKED.store(signal, SeqCst);
}

/// Runs the program up to `runs` times, with these seeds and the following ones, and says what came of it; the exit status is that of the run that
/// failed.
///
/// # Errors
/// When runs can't be started.
pub fn search(args: &RecordArgs, runs: u64, first_seed: Option<u64>) -> Result<i32> {
    let shared = share()?;
    let jobs = args.jobs.unwrap_or(1) as usize;
    let limit = args.time_limit.map(Duration::from_secs);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a handler that stores a word.
        unsafe { libc::signal(signal, ask as extern "C" fn(i32) as libc::sighandler_t) };
    }
    let mut going: BTreeMap<i32, Job> = BTreeMap::new();
    let (mut next, mut broken, mut failed) = (1, None, None);
    loop {
        if ASKED.load(SeqCst) != 0 || broken.is_some() {
            let _ = shared.failed.compare_exchange(0, NOBODY, SeqCst, SeqCst);
        }
        let over = shared.failed.load(SeqCst) != 0;
        while !over && going.len() < jobs && next <= runs {
            let seed = first_seed.map(|s| s.wrapping_add(next - 1));
            let (pid, job) = start(args, shared, next, seed)?;
            going.insert(pid, job);
            next += 1;
        }
        if going.is_empty() {
            break;
        }
        for (pid, job) in &mut going {
            job.out_of_time |= !over && limit.is_some_and(|limit| job.begun.elapsed() > limit);
            if over || job.out_of_time {
                job.end(*pid);
            }
        }
        let Some((pid, status)) = next_end()? else {
            std::thread::sleep(LOOK);
            continue;
        };
        let Some(job) = going.remove(&pid) else {
            continue;
        };
        if shared.failed.load(SeqCst) == job.run {
            failed = Some(job);
        } else if status != 0 && broken.is_none() && shared.failed.load(SeqCst) == 0 {
            // No run could be made: it has said why.
            broken = Some((exit_status(status), job));
        }
    }
    if let Some(job) = failed {
        let status = shared.status.load(SeqCst);
        return job.told_as_failed(args, status, first_seed);
    }
    if let Some((status, job)) = broken {
        job.show();
        return Ok(status);
    }
    match ASKED.load(SeqCst) {
        0 => {
            if !args.quiet {
                say!("none of {runs} runs failed");
            }
            Ok(0)
        }
        signal => Ok(128 + signal),
    }
}

impl Job {
    /// Ends the program, with all that came of it; its recorder closes the trace then.
    fn end(&mut self, launcher: i32) {
        if self.ended.is_some_and(|at| at.elapsed() < ROUND) {
            return;
        }
        self.ended = Some(Instant::now());
        end_programs_of(launcher);
    }

    /// Shows what the program wrote.
    fn show(&self) {
        let [output, errors] = &self.outputs;
        let _ = Output.write_all(&all_of(output));
        say_text(&String::from_utf8_lossy(&all_of(errors)));
    }

    fn told_as_failed(&self, args: &RecordArgs, status: i32, seed: Option<u64>) -> Result<i32> {
        self.show();
        let dir = PathBuf::from(OsString::from_vec(all_of(&self.told)));
        Catalog::from_env()?.set_latest(&dir)?;
        if !args.quiet {
            say_recorded(&dir, status);
            let seed = seed.map(|s| s.wrapping_add(self.run - 1));
            let seed = seed.map_or(String::new(), |s| format!(", with chaos seed {s}"));
            let limit = args.time_limit.unwrap_or_default();
            let how = match self.out_of_time {
                true => format!("was ended after {limit} s"),
                false => "failed".into(),
            };
            say!(
                "run {} {how}{seed}; replay it with: reprise replay",
                self.run
            );
        }
        Ok(exit_status(status))
    }
}

fn all_of(file: &File) -> Vec<u8> {
    let (mut file, mut bytes) = (file, Vec::new());
    let _ = file.seek(SeekFrom::Start(0));
    let _ = file.read_to_end(&mut bytes);
    bytes
}

/// Starts a run; its recorder's process id.
fn start(
    args: &RecordArgs,
    shared: &'static Shared,
    run: u64,
    seed: Option<u64>,
) -> Result<(i32, Job)> {
    let file = || tempfile::tempfile().context("make a file for what the program writes");
    let job = Job {
        run,
        begun: Instant::now(),
        outputs: [file()?, file()?],
        told: file()?,
        out_of_time: false,
        ended: None,
    };
    // SAFETY: plain call; this process has one thread.
    let pid = unsafe { libc::fork() };
    ensure!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid > 0 {
        return Ok((pid, job));
    }
    apart(&job.outputs);
    let args = RecordArgs {
        chaos: seed.map(Some),
        quiet: true,
        // Who has started it sees to that.
        time_limit: None,
        ..args.clone()
    };
    let status = match recorded(&args, shared, &job) {
        Ok(()) => 0,
        Err(error) => {
            if let Some(line) = line_of(&error) {
                say!("{line}");
            }
            status_of(&error)
        }
    };
    // SAFETY: the child ends here, without running the parent's destructors.
    unsafe { libc::_exit(status) }
}

/// In the child: reads nothing, writes into these files, and ends with its parent.
fn apart(outputs: &[File; 2]) {
    if let Ok(nothing) = File::open("/dev/null") {
        let _ = dup2_stdin(nothing);
    }
    let _ = dup2_stdout(&outputs[0]);
    let _ = dup2_stderr(&outputs[1]);
    // Who is killed takes the runs with it: SIGTERM is passed on to the program.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        dispositions::restore_default(signal);
    }
}

/// Makes one recording, and keeps it if it is the first that failed.
fn recorded(args: &RecordArgs, shared: &Shared, job: &Job) -> Result<()> {
    let ran = one(args)?;
    let Some(dir) = &ran.dir else { return Ok(()) };
    let is_first = ran.status != 0
        && shared
            .failed
            .compare_exchange(0, job.run, SeqCst, SeqCst)
            .is_ok();
    if !is_first {
        Catalog::from_env()?.remove(dir)?;
        return Ok(());
    }
    shared.status.store(ran.status, SeqCst);
    tell(&job.told, dir)
}

fn tell(mut file: &File, dir: &Path) -> Result<()> {
    let told = file.write_all(dir.as_os_str().as_bytes());
    told.context("tell where the recording is")
}

/// A page that all runs have.
fn share() -> Result<&'static Shared> {
    // SAFETY: new memory, zeroed and large enough, which stays for as long as the process does; zeros are a valid value.
    unsafe {
        let (none, both) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        let at = mmap_anonymous(none, size_of::<Shared>(), both, MapFlags::SHARED);
        Ok(&*at.context("share memory with the runs")?.cast())
    }
}

/// A child of ours that has ended, and its wait status.
fn next_end() -> Result<Option<(i32, i32)>> {
    let end = match rustix::process::wait(WaitOptions::NOHANG) {
        Err(Errno::INTR) => None,
        end => end.context("wait for the runs")?,
    };
    Ok(end.map(|(pid, status)| (pid.as_raw_pid(), status.as_raw())))
}
