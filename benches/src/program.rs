//! Runs one command, as it is or pinned to one processor, and measures it.

use anyhow::{bail, Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A run that takes longer counts as hung, and is ended.
pub const LIMIT: Duration = Duration::from_secs(300);
/// Most processors that are asked for.
const MAX_PROCESSORS: usize = 1024;

/// A command to be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Added to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// The only processor it may use.
    pub pin: Option<usize>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Sample {
    /// From before the start until after the end.
    pub wall: Duration,
    /// Processor time of it and of the children it waited for.
    pub processor: Duration,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: PathBuf,
    /// The end of what it wrote to standard error.
    pub stderr: String,
}

impl Program {
    /// A command that may use every processor.
    pub fn new<S: AsRef<OsStr>>(argv: impl IntoIterator<Item = S>) -> Program {
        Program {
            argv: argv
                .into_iter()
                .map(|a| a.as_ref().to_os_string())
                .collect(),
            env: Vec::new(),
            pin: None,
        }
    }

    /// The same command on one processor.
    #[must_use]
    pub fn pinned(mut self, processor: usize) -> Program {
        self.pin = Some(processor);
        self
    }

    /// The same command with one more variable in its environment.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.env.push((name.into(), value.as_ref().into()));
        self
    }

    /// The command as a shell would take it.
    pub fn shown(&self) -> String {
        let quoted = |a: &OsString| {
            let a = a.to_string_lossy();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.+,:".contains(c);
            if a.chars().all(plain) {
                a.into_owned()
            } else {
                format!("'{a}'")
            }
        };
        self.argv.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    /// Runs it; output goes to files in `dir` whose names begin with `name`.
    ///
    /// # Errors
    /// When it can't be started, or doesn't end within [`LIMIT`].
    pub fn run(&self, dir: &Path, name: &str) -> Result<Sample> {
        self.start(dir, name)?.finish()
    }

    /// Starts it.
    ///
    /// # Errors
    /// When that isn't possible.
    pub fn start(&self, dir: &Path, name: &str) -> Result<Running> {
        let stdout = dir.join(format!("{name}.out"));
        let stderr = dir.join(format!("{name}.err"));
        let mut command = Command::new(&self.argv[0]);
        command
            .args(&self.argv[1..])
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .env("LC_ALL", "C")
            .current_dir(dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?);
        if let Some(processor) = self.pin {
            // SAFETY: only a system call happens between fork and exec.
            unsafe { command.pre_exec(move || pin_to(0, processor)) };
        }
        let begun = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.shown()))?;
        Ok(Running {
            pid: child.id() as i32,
            begun,
            stdout,
            stderr,
            shown: self.shown(),
        })
    }
}

/// A command that was started.
#[derive(Debug)]
pub struct Running {
    /// Its process id, which is also its process group.
    pub pid: i32,
    begun: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
    shown: String,
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// When it doesn't end within [`LIMIT`]; it is killed then.
    pub fn finish(self) -> Result<Sample> {
        let hung = !ends_within(self.pid, LIMIT)?;
        if hung {
            // SAFETY: our own child's group; the child is not reaped yet.
            unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        }
        let mut status = 0;
        // SAFETY: fills structs of ours.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            if libc::wait4(self.pid, &mut status, 0, &mut usage) != self.pid {
                bail!("cannot wait for {}", self.shown);
            }
            usage
        };
        let wall = self.begun.elapsed();
        let stderr = std::fs::read(&self.stderr).unwrap_or_default();
        let stderr =
            String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(500)..]).into_owned();
        if hung {
            bail!("{} did not end within {LIMIT:?}: {stderr}", self.shown);
        }
        Ok(Sample {
            wall,
            processor: duration(usage.ru_utime) + duration(usage.ru_stime),
            status: ExitStatus::from_raw(status),
            stdout: self.stdout,
            stderr,
        })
    }
}

/// Waits until a child has ended, without reaping it; false when it takes too long.
fn ends_within(pid: i32, limit: Duration) -> Result<bool> {
    // SAFETY: plain calls; the descriptor is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        if fd < 0 {
            bail!("pidfd_open: {}", std::io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        loop {
            match libc::poll(&mut poll, 1, limit.as_millis() as i32) {
                0 => return Ok(false),
                n if n > 0 => return Ok(true),
                _ => {
                    let e = std::io::Error::last_os_error();
                    if e.kind() != std::io::ErrorKind::Interrupted {
                        return Err(e.into());
                    }
                }
            }
        }
    }
}

fn duration(t: libc::timeval) -> Duration {
    Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
}

/// Pins a thread (0: the calling one) to one processor.
///
/// # Errors
/// When it may not run there.
pub fn pin_to(thread: i32, processor: usize) -> std::io::Result<()> {
    // SAFETY: the set is ours.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        if libc::sched_setaffinity(thread, size_of_val(&set), &set) != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The processors that a thread (0: the calling one) may use.
pub fn processors(thread: i32) -> Vec<usize> {
    // SAFETY: the set is ours.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(thread, size_of_val(&set), &mut set) != 0 {
            return Vec::new();
        }
        (0..MAX_PROCESSORS)
            .filter(|i| libc::CPU_ISSET(*i, &set))
            .collect()
    }
}

/// The path of an installed program; /usr/bin comes first, where no wrapper scripts are.
pub fn installed(name: &str) -> Option<PathBuf> {
    let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
    let others = std::env::var_os("PATH").unwrap_or_default();
    let others: Vec<PathBuf> = std::env::split_paths(&others).collect();
    let mut all = usual.into_iter().chain(others).map(|d| d.join(name));
    all.find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_measured() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = Program::new(["/bin/sh", "-c", "echo a b; echo c >&2; exit 3"]);
        let sample = program.run(dir.path(), "x").expect("runs");
        assert_eq!(sample.status.code(), Some(3));
        assert_eq!(std::fs::read(&sample.stdout).expect("output"), b"a b\n");
        assert_eq!(sample.stderr, "c\n");
        assert_eq!(program.shown(), "/bin/sh -c 'echo a b; echo c >&2; exit 3'");
    }

    #[test]
    fn a_pinned_run_has_one_processor() {
        let dir = tempfile::tempdir().expect("a directory");
        let processor = processors(0)[0];
        let program = Program::new(["/bin/sleep", "100"]).pinned(processor);
        let running = program.start(dir.path(), "x").expect("starts");
        assert_eq!(processors(running.pid), [processor]);
        // SAFETY: our own child.
        unsafe { libc::kill(running.pid, libc::SIGKILL) };
        assert_eq!(running.finish().expect("ends").status.signal(), Some(9));
    }
}
